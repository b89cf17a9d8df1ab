/* A target whose source does not answer: a firewall is between the nodes, or they have different keys. And a
 * backup, whose source answers as long as it lives. */
#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "dataplane/udp/address.h"
#include "dataplane/udp/udp_endpoint.h"
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/format/move.h"
#include "ps/checkpoint/checkpoint_format.h"
#include "ps/move/copy_source.h"
#include "ps/move/migration_target.h"
#include "tests/test.h"
#include "tests/wait.h"

static struct ps_config config;
static struct ps_node node = {.config = &config};
static sem_t changes;
static char address[PS_CLUSTER_NAME_BYTES];

int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **out);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **out);

int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **out)
{
    if (strcmp(host, "nosuch.test") == 0)
        return EAI_NONAME;
    if (strcmp(host, "two.test") != 0)
        return __real_getaddrinfo(host, port, hints, out);
    const int failed = __real_getaddrinfo("127.0.0.6", port, hints, out);
    return failed != 0 ? failed : __real_getaddrinfo("127.0.0.1", port, hints, &(*out)->ai_next);
}

/* Takes what is sent there, and says nothing. */
static int open_silent_socket(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(at);
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, bytes), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
    (void)snprintf(address, sizeof(address), "127.0.0.1:%u", ntohs(at.sin_port));
    return fd;
}

static struct ps_migration_target_options options_of(const char *source)
{
    struct ps_migration_target_options options = {
        .node = &node,
        .migration = {.move = {.id = 7, .first = 3, .count = 1}, .peer = {.core_count = 1}},
        .silence_us = 1000000};
    (void)snprintf(options.migration.peer.address, sizeof(options.migration.peer.address), "%s", source);
    return options;
}

TEST(a_silent_source_is_given_up)
{
    const int fd = open_silent_socket();
    const struct ps_migration_target_options options = options_of(address);
    struct ps_migration_target_progress progress;
    struct ps_migration_target *target;
    char text[PS_MOVE_TEXT_BYTES];
    if (ps_migration_target_start(&options, &target, text) != MR_OK)
        fail_msg("%s", text);
    assert_int_equal(sem_wait(&changes), 0);
    ps_migration_target_progress(target, &progress);
    assert_int_equal(progress.state, PS_MIGRATION_FAILED);
    (void)snprintf(text, sizeof(text), "%s does not answer for 1 s: a firewall", address);
    assert_non_null(strstr(progress.text, text));
    ps_migration_target_stop(target);
    (void)close(fd);
}

/* The name of the source has two addresses, and it answers at the second. */
TEST(the_next_address_is_tried)
{
    struct ps_migration_target_options options = options_of("two.test");
    struct ps_migration_target *target;
    char text[PS_MOVE_TEXT_BYTES];
    const int fd = open_silent_socket();
    struct pollfd asked = {.fd = fd, .events = POLLIN};
    (void)strcat(options.migration.peer.address, strchr(address, ':'));
    options.silence_us = 60000000;
    if (ps_migration_target_start(&options, &target, text) != MR_OK)
        fail_msg("%s", text);
    assert_int_equal(poll(&asked, 1, 60000), 1);
    ps_migration_target_stop(target);
    (void)close(fd);
}

/* The look-up does not hold the caller, the control thread. */
TEST(an_unknown_source_ends_the_migration)
{
    const struct ps_migration_target_options options = options_of("nosuch.test:7");
    struct ps_migration_target_progress progress;
    struct ps_migration_target *target;
    char text[PS_MOVE_TEXT_BYTES];
    if (ps_migration_target_start(&options, &target, text) != MR_OK)
        fail_msg("%s", text);
    assert_int_equal(sem_wait(&changes), 0);
    ps_migration_target_progress(target, &progress);
    assert_int_equal(progress.state, PS_MIGRATION_FAILED);
    assert_non_null(strstr(progress.text, "nosuch.test: the name does not resolve"));
    ps_migration_target_stop(target);
}

TEST(nodes_call_each_other_as_operators)
{
    const struct ps_migration_target_options options = options_of("127.0.0.1:7");
    struct ps_migration_target *target;
    char text[PS_MOVE_TEXT_BYTES], error[PS_CONFIG_ERROR_BYTES];
    assert_int_equal(ps_config_set(&config, "node.key=trainer:/nonexistent/t.key", error), MR_OK);
    assert_int_equal(ps_migration_target_start(&options, &target, text), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(text, "set node.key = operator:FILE"));
    assert_int_equal(ps_config_set(&config, "node.key=operator:/nonexistent/o.key", error), MR_OK);
    assert_int_equal(ps_migration_target_start(&options, &target, text), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(text, "/nonexistent/o.key")); /* it is the one that is read */
    ps_config_default(&config);
}

/* ---- a backup ---- */

#define ASKED_MAX 8u

/* One core: what it was asked for, and what it sends when it is asked for the first time. */
static struct {
    struct mr_udp_endpoint udp;
    uint32_t asked;
    uint64_t positions[ASKED_MAX];
    struct ps_record stream[3];
} source;

static void source_on_request(void *app, struct mr_endpoint *ep, const struct mr_request *request)
{
    uint64_t words[MR_MOVE_ASK_WORDS];
    (void)app;
    assert_int_equal(request->message->preamble.op, MR_OP_MOVE_READ);
    assert_true(mr_body_read(MR_BODY_MOVE_ASK, &request->message->tensors[0], words));
    if (source.asked < ASKED_MAX)
        source.positions[source.asked] = words[MR_MOVE_ASK_POSITION];
    if (source.asked++ > 0) { /* from now on it says nothing */
        assert_non_null(mr_reply_later(ep, request));
        return;
    }
    const uint64_t state[MR_MOVE_WORDS] = {[MR_MOVE_STATE] = MR_MOVE_MORE};
    struct mr_tensor tensors[2] = {mr_body_tensor(MR_BODY_MOVE, state),
                                   mr_tensor_1d(MR_U8, sizeof(source.stream), source.stream)};
    assert_true(mr_reply_begin(ep, request->ref, MR_OK, tensors, 2));
    mr_reply_end(ep, request->ref);
}

static void source_open(void)
{
    struct mr_endpoint_config of_source;
    const struct mr_udp_options options = {0};
    struct mr_address local;
    char error[200];
    memset(&source, 0, sizeof(source));
    source.stream[0] = (struct ps_record){.kind = PS_COPY_WHOLE};
    source.stream[1] = (struct ps_record){.kind = PS_COPY_END, .offset = 1};
    source.stream[2] = (struct ps_record){.kind = PS_RECORD_ROWS, .bytes = 8}; /* that is not all of it */
    assert_int_equal(mr_address_resolve("127.0.0.1:0", true, &local, error, sizeof(error)), MR_OK);
    if (mr_udp_endpoint_open(&source.udp, &local, &options, false, error, sizeof(error)) != MR_OK)
        fail_msg("%s", error);
    mr_endpoint_config_default(&of_source);
    of_source.on_request = source_on_request;
    assert_int_equal(mr_udp_endpoint_create(&source.udp, &of_source), MR_OK);
    mr_udp_local(&source.udp.socket, &local);
    (void)snprintf(address, sizeof(address), "127.0.0.1:%u", local.port);
}

static void source_go_on(void)
{
    (void)mr_udp_endpoint_receive(&source.udp, 16);
    (void)mr_udp_endpoint_send(&source.udp, mr_clock_us(), 16);
}

static enum ps_migration_state state_of(struct ps_migration_target *target)
{
    struct ps_migration_target_progress progress;
    ps_migration_target_progress(target, &progress);
    return progress.state;
}

/* It follows once it has what the cursor gave, and says with the next question how far it has come. Then a
 * silence of its source, however long, does not end it: it would be promoted with nothing. */
TEST(a_backup_that_follows_waits_for_its_source)
{
    struct ps_migration_target *target;
    char text[PS_MOVE_TEXT_BYTES];
    source_open();
    struct ps_migration_target_options options = options_of(address);
    options.follows = true;
    options.partitions = ps_partitions_all();
    if (ps_migration_target_start(&options, &target, text) != MR_OK)
        fail_msg("%s", text);
    ps_migration_target_hurry(target, true);
    WAIT_UNTIL(source_go_on(), source.asked == 2);
    assert_int_equal(state_of(target), PS_MIGRATION_FOLLOWING);
    WAIT_UNTIL(source_go_on(),
               source.asked == 3); /* it has given that call up, after more than the silence */
    assert_int_equal(state_of(target), PS_MIGRATION_FOLLOWING);
    assert_int_equal(source.positions[0], 1);
    assert_int_equal(source.positions[1], 1 + sizeof(source.stream));
    assert_int_equal(source.positions[2], 1 + sizeof(source.stream));
    if (ps_migration_target_promote(target, &options.partitions, text) != MR_OK)
        fail_msg("%s", text);
    ps_migration_target_stop(target);
    mr_udp_endpoint_close(&source.udp);
}

/* One that has not come so far cannot be promoted. */
TEST(a_backup_that_copies_is_given_up)
{
    struct ps_migration_target *target;
    char text[PS_MOVE_TEXT_BYTES];
    const int fd = open_silent_socket();
    struct ps_migration_target_options options = options_of(address);
    options.follows = true;
    options.partitions = ps_partitions_all();
    if (ps_migration_target_start(&options, &target, text) != MR_OK)
        fail_msg("%s", text);
    WAIT_UNTIL(state_of(target) == PS_MIGRATION_FAILED);
    assert_int_equal(ps_migration_target_promote(target, &options.partitions, text), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(text, "does not answer for 1 s"));
    ps_migration_target_stop(target);
    (void)close(fd);
}

int main(void)
{
    ps_config_default(&config);
    node.control_wake = &changes;
    (void)sem_init(&changes, 0, 0);
    return tests_run(NULL, NULL);
}
