/* A target whose source does not answer: a firewall is between the nodes, or they have different keys. */
#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "ps/move/migration_target.h"
#include "tests/test.h"

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
}

int main(void)
{
    ps_config_default(&config);
    node.control_wake = &changes;
    (void)sem_init(&changes, 0, 0);
    return tests_run(NULL, NULL);
}
