/* Connecting, failing, coming back: a client against a fake node on loopback. */
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "dataplane/wire/format/capability.h"
#include "dataplane/wire/format/packet.h"
#include "dataplane/rpc/millrace_rpc.h"
#include "tests/test.h"
#include "tests/unit/trainer_client/canned_answers.h"
#include "tests/unit/trainer_client/live_node.h"
#include "tests/wait.h"
#include "trainer_client/millrace.h"
#include "trainer_client/millrace_observe.h"

enum { TRIES_MAX = 100 }; /* of calls with short deadlines, in which somebody else has to run */

static struct mr_client *connect_to(const struct live_node *node, const char *key_file)
{
    struct mr_client_options options = {.server = live_node_address(node), .key_file = key_file};
    struct mr_client *client = NULL;
    char error[512] = "";
    if (mr_client_create(&options, &client, error, sizeof(error)) != MR_OK)
        fail_msg("%s", error);
    return client;
}

/* A server that takes these and never answers them. */
static struct live_node *start_mute(void)
{
    struct live_node *node = live_node_start_new(1);
    live_node_refuse(node, MR_OP_ECHO, LIVE_SILENT, LIVE_ALL_CORES);
    live_node_refuse(node, MR_OP_PUSH_GRAD, LIVE_SILENT, LIVE_ALL_CORES);
    return node;
}

static struct live_node *start_with_key(uint32_t core_count, const char *key_file)
{
    struct live_node *node = live_node_new(core_count);
    (void)snprintf(node->config.node_key_file, sizeof(node->config.node_key_file), "%s", key_file);
    live_node_start(node);
    return node;
}

TEST(test_echo)
{
    struct live_node *node = live_node_start_new(1);
    struct mr_client *client = connect_to(node, NULL);
    float values[6] = {1, 2, 3, 4, 5, 6};
    struct mr_tensor tensor = mr_tensor_2d(MR_F32, 2, 3, values);
    struct mr_reply *reply = NULL;
    assert_int_equal(mr_client_core_count(client), 1);
    assert_int_equal(mr_client_incarnation(client), 1);
    assert_int_equal(mr_echo(client, NULL, 0, NULL, 0, NULL), MR_OK);
    assert_int_equal(mr_echo(client, NULL, 0, &tensor, 1, &reply), MR_OK);
    assert_int_equal(mr_reply_tensor_count(reply), 1);
    assert_null(mr_reply_tensor(reply, 1));
    assert_memory_equal(mr_reply_tensor(reply, 0)->data, values, sizeof(values));
    assert_int_equal((uintptr_t)mr_reply_tensor(reply, 0)->data % 64, 0);
    assert_int_equal(mr_reply_tensor(reply, 0)->dims[1], 3);
    /* A reply outlives its client. */
    mr_client_destroy(client);
    assert_memory_equal(mr_reply_tensor(reply, 0)->data, values, sizeof(values));
    mr_reply_free(reply);
    live_node_destroy(node);
}

/* More tensors than fit beside the call, and more bytes than a few packets. */
TEST(test_echo_large)
{
    enum { TENSORS = 9, ELEMENTS = 100000 };
    struct live_node *node = live_node_start_new(1);
    struct mr_client *client = connect_to(node, NULL);
    uint32_t *values = malloc(ELEMENTS * sizeof(*values));
    struct mr_tensor tensors[TENSORS];
    struct mr_reply *reply = NULL;

    assert_non_null(values);
    for (uint32_t i = 0; i < ELEMENTS; i++)
        values[i] = i * 2654435761u;
    for (uint32_t t = 0; t < TENSORS; t++)
        tensors[t] = mr_tensor_1d(MR_U32, ELEMENTS - t, values);
    assert_int_equal(mr_echo(client, NULL, 0, tensors, TENSORS, &reply), MR_OK);
    assert_int_equal(mr_reply_tensor_count(reply), TENSORS);
    for (uint32_t t = 0; t < TENSORS; t++) {
        assert_int_equal(mr_reply_tensor(reply, t)->dims[0], ELEMENTS - t);
        assert_memory_equal(mr_reply_tensor(reply, t)->data, values, (ELEMENTS - t) * sizeof(*values));
    }
    mr_reply_free(reply);
    free(values);
    mr_client_destroy(client);
    live_node_destroy(node);
}

TEST(test_every_core)
{
    struct live_node *node = live_node_start_new(3);
    struct mr_client *client = connect_to(node, NULL);
    struct mr_core_state states[3];
    atomic_store(&node->answer, canned_answer);
    struct mr_options options = {.step = 77};
    assert_int_equal(mr_client_core_count(client), 3);
    assert_int_equal(mr_heartbeat(client, &options, states), MR_OK);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(states[i].core, i);
        assert_int_equal(states[i].state, 1);
        assert_int_equal(states[i].incarnation, 1);
        assert_int_equal(states[i].last_step, 77);
        assert_int_equal(states[i].cached_batches, i);
        assert_true(states[i].busy_share == 0.25);
        assert_int_equal(states[i].rows_refused, 40 + i);
        assert_int_equal(states[i].gradients_without_row, 50);
        assert_int_equal(states[i].gradients_skipped, 60);
        assert_int_equal(states[i].steps_ignored, 70);
        assert_int_equal(mr_echo(client, NULL, i, NULL, 0, NULL), MR_OK);
    }
    assert_int_equal(mr_echo(client, NULL, 3, NULL, 0, NULL), MR_INVALID_ARGUMENT);
    mr_client_destroy(client);
    live_node_destroy(node);
}

TEST(test_bad_options)
{
    struct {
        struct mr_client_options options;
        const char *says;
    } cases[] = {
        {{.server = NULL}, "server is missing"},
        {{.server = "127.0.0.1:99999"}, "is no address"},
        {{.server = "[::1"}, "is no address"},
        {{.server = ":7700"}, "is no address"},
        {{.server = "127.0.0.1:0"}, "port 0"},
        {{.server = "127.0.0.1", .client_id = "12"}, "client_id must be 32 hex digits"},
        {{.server = "127.0.0.1", .client_id = "0123456789abcdef0123456789abcdeg"}, "client_id must be"},
        {{.server = "127.0.0.1", .key_file = "/nonexistent/key"}, "/nonexistent/key"},
        {{.server = "no.such.name.invalid"}, "does not resolve: "},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct mr_client *client = NULL;
        char error[512] = "";
        assert_int_equal(mr_client_create(&cases[i].options, &client, error, sizeof(error)),
                         MR_INVALID_ARGUMENT);
        assert_null(client);
        if (strstr(error, cases[i].says) == NULL)
            fail_msg("case %zu says \"%s\"", i, error);
        assert_string_equal(error, mr_last_error());
    }
}

TEST(test_nobody_there)
{
    struct live_node *node = live_node_start_new(1);
    struct mr_client_options options = {.server = live_node_address(node), .connect_ms = 50};
    struct mr_client *client = NULL;
    char error[512] = "";
    live_node_kill(node);
    for (uint32_t tries = 0; tries < TRIES_MAX && strstr(error, "nothing listens there") == NULL; tries++)
        assert_int_equal(mr_client_create(&options, &client, error, sizeof(error)), MR_UNREACHABLE);
    assert_null(client);
    assert_non_null(strstr(error, live_node_address(node)));
    assert_non_null(strstr(error, "nothing listens there"));
    live_node_destroy(node);
}

static void write_key(const char *path, char digit)
{
    char key[65];
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    memset(key, digit, 64);
    key[64] = '\n';
    assert_int_equal(fwrite(key, 1, 65, file), 65);
    assert_int_equal(fclose(file), 0);
}

TEST(test_keys)
{
    char right[] = "/tmp/millrace-key-XXXXXX", wrong[] = "/tmp/millrace-key-XXXXXX";
    close(mkstemp(right));
    close(mkstemp(wrong));
    write_key(right, '1');
    write_key(wrong, '2');

    struct live_node *node = start_with_key(1, right);
    struct mr_client *client = connect_to(node, right);
    struct mr_client_options options = {
        .server = live_node_address(node), .key_file = wrong, .connect_ms = 50};
    char error[512] = "";

    assert_int_equal(mr_echo(client, NULL, 0, NULL, 0, NULL), MR_OK);
    mr_client_destroy(client);
    client = NULL;
    assert_int_equal(mr_client_create(&options, &client, error, sizeof(error)), MR_UNREACHABLE);
    assert_non_null(strstr(error, "has the server the key that this client has"));
    options.key_file = NULL;
    assert_int_equal(mr_client_create(&options, &client, error, sizeof(error)), MR_UNREACHABLE);
    assert_non_null(strstr(error, "does the server want a key (this client has none)"));
    live_node_destroy(node);
    unlink(right);
    unlink(wrong);
}

/* Nobody answers any more. What came before is read, so that it does not pass for an answer to what is asked
 * next. */
static void kill_unheard(struct live_node *node, struct mr_client *client)
{
    live_node_kill(node);
    (void)mr_client_progress(client);
}

/* The silence is noticed within the deadline, unless the client does not run for a while. */
static void check_unreachable(struct mr_client *client, const struct mr_options *options)
{
    enum mr_status status;
    WAIT_UNTIL((status = mr_echo(client, options, 0, NULL, 0, NULL)) != MR_DEADLINE_EXCEEDED);
    assert_int_equal(status, MR_UNREACHABLE);
}

/* The server comes back under another key: the client finds it in its key file. A file that is none yet does
 * no harm. */
TEST(test_key_rotation)
{
    char path[] = "/tmp/millrace-key-XXXXXX";
    close(mkstemp(path));
    write_key(path, '1');
    struct live_node *node = start_with_key(2, path);
    struct mr_client *client = connect_to(node, path);
    struct mr_options options = {.deadline_ms = 1500};

    assert_int_equal(mr_echo(client, NULL, 1, NULL, 0, NULL), MR_OK);
    kill_unheard(node, client);
    FILE *half = fopen(path, "w");

    assert_non_null(half);
    assert_true(fputs("22", half) >= 0);
    assert_int_equal(fclose(half), 0);
    check_unreachable(client, &options);
    write_key(path, '2');
    live_node_restart(node);
    assert_int_equal(mr_echo(client, NULL, 0, NULL, 0, NULL), MR_OK);
    assert_int_equal(mr_echo(client, NULL, 1, NULL, 0, NULL), MR_OK);
    mr_client_destroy(client);
    live_node_destroy(node);
    unlink(path);
}

TEST(test_server_away)
{
    struct live_node *node = live_node_start_new(1);
    struct mr_client *client = connect_to(node, NULL);
    struct mr_options options = {.deadline_ms = 1500};
    kill_unheard(node, client);
    check_unreachable(client, &options);
    assert_non_null(strstr(mr_last_error(), live_node_address(node)));
    assert_non_null(strstr(mr_last_error(), "core 0: echo: UNREACHABLE"));
    assert_non_null(strstr(mr_last_error(), "silent for "));
    mr_client_destroy(client);
    live_node_destroy(node);
}

/* Short deadlines, too, tell a server that says nothing from one that is slow. */
TEST(test_server_away_soon)
{
    struct live_node *node = live_node_start_new(1);
    struct mr_client *client = connect_to(node, NULL);
    struct mr_options options = {.deadline_ms = 300};
    assert_int_equal(mr_echo(client, NULL, 0, NULL, 0, NULL), MR_OK);
    kill_unheard(node, client);
    check_unreachable(client, &options);
    assert_non_null(strstr(mr_last_error(), "silent for "));
    mr_client_destroy(client);
    live_node_destroy(node);
}

/* A server that gets no processor for so long is as good as away: once more then. */
static enum mr_status echo_slowly(struct mr_client *client, const struct mr_options *options)
{
    enum mr_status status = MR_UNREACHABLE;
    for (uint32_t tries = 0; tries < TRIES_MAX && status == MR_UNREACHABLE; tries++)
        status = mr_echo(client, options, 0, NULL, 0, NULL);
    return status;
}

TEST(test_slow_is_not_away)
{
    struct live_node *node = start_mute();
    struct mr_client *client = connect_to(node, NULL);
    struct mr_options options = {.deadline_ms = 600};
    assert_int_equal(echo_slowly(client, &options), MR_DEADLINE_EXCEEDED);
    mr_client_destroy(client);
    live_node_destroy(node);
}

TEST(test_echo_of_nonsense)
{
    struct live_node *node = live_node_start_new(1);
    struct mr_client *client = connect_to(node, NULL);
    float values[4] = {0};
    struct mr_tensor t = mr_tensor_1d(MR_F32, 4, values);
    t.bytes = 12;
    assert_int_equal(mr_echo(client, NULL, 0, &t, 1, NULL), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(mr_last_error(), "tensors[0] has 12 bytes; its dims make 16"));
    t = mr_tensor_1d(MR_F32, 4, values);
    t.dtype = 99;
    assert_int_equal(mr_echo(client, NULL, 0, &t, 1, NULL), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(mr_last_error(), "unknown dtype"));
    t = mr_tensor_1d(MR_F32, 4, values);
    t.rank = 9;
    assert_int_equal(mr_echo(client, NULL, 0, &t, 1, NULL), MR_INVALID_ARGUMENT);
    t = (struct mr_tensor){.dtype = MR_F32, .rank = 4, .dims = {65536, 65536, 65536, 65536}};
    assert_int_equal(mr_echo(client, NULL, 0, &t, 1, NULL), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(mr_last_error(), "larger than memory"));
    mr_client_destroy(client);
    live_node_destroy(node);
}

/* A call that the server took and does not answer: away it is not. */
TEST(test_deadline)
{
    struct live_node *node = start_mute();
    struct mr_client *client = connect_to(node, NULL);
    struct mr_options options = {.deadline_ms = 20};
    assert_int_equal(echo_slowly(client, &options), MR_DEADLINE_EXCEEDED);
    assert_non_null(strstr(mr_last_error(), "core 0: echo: DEADLINE_EXCEEDED"));
    mr_client_destroy(client);
    live_node_destroy(node);
}

TEST(test_restart)
{
    struct live_node *node = live_node_start_new(3);
    struct mr_client *client = connect_to(node, NULL);
    struct mr_feature features[1] = {mr_feature_table("t", 2)};
    struct mr_reply *reply = NULL;
    struct mr_future *future = NULL;
    struct mr_options async = {.future = &future, .deadline_ms = 60000};
    uint32_t id;
    uint64_t keys[40];
    for (uint32_t i = 0; i < 40; i++)
        keys[i] = i * 7919u;
    assert_int_equal(mr_create(client, NULL, features, 1, &id), MR_OK);
    live_node_fill(node, id, 2, keys, 40);
    live_node_save(node);
    assert_int_equal(mr_lookup(client, NULL, id, keys, 40, &reply), MR_OK);
    mr_reply_free(reply);
    live_node_kill(node);
    /* Made while nobody is there; it ends well once somebody is. */
    assert_int_equal(mr_lookup(client, &async, id, keys, 40, NULL), MR_OK);
    assert_false(mr_future_done(future));
    live_node_restart(node);
    assert_int_equal(mr_future_wait(future, &reply), MR_OK);
    assert_int_equal(mr_reply_tensor(reply, 0)->dims[0], 40);
    assert_true(((const float *)mr_reply_tensor(reply, 0)->data)[2 * 39 + 1] == live_value(keys[39], 1));
    assert_int_equal(mr_client_incarnation(client), 2);
    mr_reply_free(reply);
    mr_future_destroy(future);
    assert_int_equal(mr_lookup(client, NULL, id, keys, 40, NULL), MR_OK);
    mr_client_destroy(client);
    live_node_destroy(node);
}

/* Calls that must not run twice are not sent again to another incarnation. */
TEST(test_unknown_outcome)
{
    struct live_node *node = start_mute();
    struct mr_client *client = connect_to(node, NULL);
    struct mr_feature feature = mr_feature_table("t", 2);
    struct mr_future *future = NULL;
    struct mr_options options = {.deadline_ms = 60000, .future = &future};
    uint64_t key = 5, requests;
    float gradient[2] = {1, 1};
    uint32_t id;
    assert_int_equal(mr_create(client, NULL, &feature, 1, &id), MR_OK);
    requests = atomic_load(&node->cores[0].requests);
    assert_int_equal(mr_push_gradients(client, &options, id, &key, 1, 2, gradient), MR_OK);
    while (atomic_load(&node->cores[0].requests) == requests)
        mr_client_progress(client);
    live_node_save(node);
    live_node_kill(node);
    live_node_refuse(node, MR_OP_PUSH_GRAD, MR_OK, 0);
    live_node_restart(node);
    assert_int_equal(mr_future_wait(future, NULL), MR_UNKNOWN_OUTCOME);
    assert_non_null(strstr(mr_last_error(), "core 0: push_grad: UNKNOWN_OUTCOME"));
    mr_future_destroy(future);
    assert_int_equal(mr_push_gradients(client, NULL, id, &key, 1, 2, gradient), MR_OK);
    mr_client_destroy(client);
    live_node_destroy(node);
}

/* A server whose NIC spreads by source ports: every link finds one that leads to its core, and calls go
 * on. */
TEST(test_source_ports)
{
    struct live_node *node = live_node_start_new(3);
    struct mr_client *client;
    uint32_t detours = 0, direct = 0;
    atomic_store(&node->spreads, true);
    client = connect_to(node, NULL);
    do {
        direct = 0;
        detours = 0;
        for (uint32_t i = 0; i < 3; i++) {
            uint32_t before = atomic_load(&node->cores[i].detours);
            assert_int_equal(mr_echo(client, NULL, i, NULL, 0, NULL), MR_OK);
            detours += atomic_load(&node->cores[i].detours) - before;
            direct += atomic_load(&node->cores[i].direct) > 0;
        }
    } while (detours > 0 || direct < 3);
    mr_client_destroy(client);
    live_node_destroy(node);
}

/* Calls handed over together share packets, but not those of a client that wants none. */
TEST(test_no_bundle)
{
    enum { CALLS = 16 };
    struct live_node *node = live_node_start_new(1);

    setenv("MILLRACE_BUNDLE", "0", 1);
    struct mr_client *client = connect_to(node, NULL);
    unsetenv("MILLRACE_BUNDLE");
    struct mr_future *futures[CALLS];
    uint32_t before = atomic_load(&node->cores[0].packets);

    for (uint32_t i = 0; i < CALLS; i++) {
        struct mr_options options = {.future = &futures[i], .more = i + 1 < CALLS};
        assert_int_equal(mr_echo(client, &options, 0, NULL, 0, NULL), MR_OK);
    }
    for (uint32_t i = 0; i < CALLS; i++) {
        assert_int_equal(mr_future_wait(futures[i], NULL), MR_OK);
        mr_future_destroy(futures[i]);
    }
    assert_true(atomic_load(&node->cores[0].packets) - before >= CALLS);
    mr_client_destroy(client);
    live_node_destroy(node);
}

/* A server of another version: of what comes it knows only that it is a HELLO. */
struct other_server {
    int fd;
    uint8_t version;
    atomic_bool stop;
};

static void *answer_as_other(void *arg)
{
    struct other_server *server = arg;
    uint8_t hello[2048];
    struct sockaddr_storage from;
    while (!atomic_load(&server->stop)) {
        socklen_t from_bytes = sizeof(from);
        struct pollfd wait = {.fd = server->fd, .events = POLLIN};
        if (poll(&wait, 1, 20) <= 0)
            continue;
        ssize_t got = recvfrom(server->fd, hello, sizeof(hello), 0, (struct sockaddr *)&from, &from_bytes);

        if (got < (ssize_t)MR_VERSION_HELLO_BYTES)
            continue;
        struct mr_version_answer answer = {
            .magic = MR_MAGIC, .version = server->version, .type = MR_PACKET_VERSION, .asked = hello[2]};

        memcpy(answer.echo, hello + 8, sizeof(answer.echo));
        (void)sendto(server->fd, &answer, sizeof(answer), 0, (const struct sockaddr *)&from, from_bytes);
    }
    return NULL;
}

/* Tries to reach a server of that version; the status, and its line. */
typedef enum mr_status (*reach_run)(const char *address, char *error, size_t error_bytes);

static enum mr_status reach_as_client(const char *address, char *error, size_t error_bytes)
{
    struct mr_client_options options = {.server = address, .connect_ms = 300};
    struct mr_client *client = NULL;
    return mr_client_create(&options, &client, error, error_bytes);
}

static enum mr_status reach_as_worker(const char *address, char *error, size_t error_bytes)
{
    struct mr_rpc_options options = {.rendezvous = address, .init_timeout_ms = 300};
    struct mr_rpc *rpc = NULL;
    return mr_rpc_init("w", 1, 2, &options, &rpc, error, error_bytes);
}

static void check_other_version(reach_run reach, uint8_t version, const char *advice)
{
    struct other_server server = {.fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), .version = version};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);
    char where[32], versions[128], error[512] = "";
    enum mr_status status = MR_UNREACHABLE;
    pthread_t thread;
    assert_int_equal(bind(server.fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(getsockname(server.fd, (struct sockaddr *)&address, &bytes), 0);
    snprintf(where, sizeof(where), "127.0.0.1:%u", ntohs(address.sin_port));
    assert_int_equal(pthread_create(&thread, NULL, answer_as_other, &server), 0);
    for (uint32_t tries = 0; tries < TRIES_MAX && status == MR_UNREACHABLE; tries++) /* no answer in time */
        status = reach(where, error, sizeof(error));
    assert_int_equal(status, MR_VERSION_MISMATCH);
    atomic_store(&server.stop, true);
    pthread_join(thread, NULL);
    close(server.fd);
    snprintf(versions, sizeof(versions), "version %u of the protocol, and this library version %u", version,
             MR_PROTOCOL_VERSION);
    if (strstr(error, versions) == NULL || strstr(error, advice) == NULL || strstr(error, where) == NULL ||
        strchr(error, '\n') != NULL)
        fail_msg("%s", error);
}

TEST(test_other_version)
{
    check_other_version(reach_as_client, MR_PROTOCOL_VERSION + 1, "upgrade the library");
    check_other_version(reach_as_client, MR_PROTOCOL_VERSION - 1, "upgrade the server");
    check_other_version(reach_as_worker, MR_PROTOCOL_VERSION + 1, "upgrade the library");
    check_other_version(reach_as_worker, MR_PROTOCOL_VERSION - 1, "upgrade the rendezvous");
}

/* A HELLO of the version before. */
static void *ask_as_other(void *arg)
{
    struct other_server *worker = arg;
    uint8_t hello[MR_VERSION_HELLO_BYTES] = {0};
    const struct mr_packet_header header = {
        .magic = MR_MAGIC, .version = worker->version, .type = MR_PACKET_HELLO};
    memcpy(hello, &header, 4);
    while (!atomic_load(&worker->stop)) {
        (void)send(worker->fd, hello, sizeof(hello), MSG_NOSIGNAL);
        (void)poll(NULL, 0, 20);
    }
    return NULL;
}

/* Where the workers meet, it is said that one of another version asks. */
TEST(test_worker_of_another_version_asks)
{
    struct other_server worker = {.fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0),
                                  .version = MR_PROTOCOL_VERSION - 1};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);
    int taken = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    char where[32], says[160], error[512] = "";
    struct mr_rpc_options options = {.rendezvous = where, .init_timeout_ms = 300};
    struct mr_rpc *rpc = NULL;
    pthread_t thread;
    assert_int_equal(bind(taken, (const struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(getsockname(taken, (struct sockaddr *)&address, &bytes), 0);
    close(taken);
    snprintf(where, sizeof(where), "127.0.0.1:%u", ntohs(address.sin_port));
    assert_int_equal(connect(worker.fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(pthread_create(&thread, NULL, ask_as_other, &worker), 0);
    for (uint32_t tries = 0; tries < 100 && strstr(error, "speaks version") == NULL; tries++)
        assert_int_equal(mr_rpc_init("r", 0, 2, &options, &rpc, error, sizeof(error)), MR_DEADLINE_EXCEEDED);
    atomic_store(&worker.stop, true);
    pthread_join(thread, NULL);
    close(worker.fd);
    snprintf(says, sizeof(says),
             "speaks version %u of the protocol, and this library (version %s) version %u: upgrade the peer",
             MR_PROTOCOL_VERSION - 1, mr_version_text(), MR_PROTOCOL_VERSION);
    if (strstr(error, "missing: rank 1; 127.0.0.1:") == NULL || strstr(error, says) == NULL)
        fail_msg("%s", error);
}

/* A dropped future's call goes on, and goes with the client. */
TEST(test_destroy_while_under_way)
{
    struct live_node *node = start_mute();
    struct mr_client *client = connect_to(node, NULL);
    struct mr_future *future = NULL;
    struct mr_options options = {.future = &future};
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(mr_echo(client, &options, 0, NULL, 0, NULL), MR_OK);
        assert_false(mr_future_done(future));
        mr_future_destroy(future);
    }
    mr_client_destroy(client);
    live_node_destroy(node);
}
