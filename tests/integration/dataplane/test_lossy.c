/* A real server and a real client over a network that loses, repeats, reorders and damages packets: every
 * gradient is applied exactly once, every byte that comes back is the right one. The faults are put in by the
 * server's own fault port, or by a forwarder on the cable outside of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include "millrace_observe.h"
#include "tests/integration/node_fixture.h"
#include "tests/test.h"

enum {
    DIM = 16,
    KEYS = 2000,
    LARGE_PUSHES = 30,  /* of all keys */
    SMALL_PUSHES = 600, /* of one key each */
    IN_FLIGHT = 16,
    ECHOES = 40,
    ECHO_BYTES_MAX = 300000,
    LINE_MS = 10000
};

static const char *forwarder_path;

/* xorshift64* (Vigna, 2016). */
static uint64_t random_number(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1du;
}

/* ---- work whose outcome shows each call that was lost or done twice ---- */

struct work {
    struct mr_client *client;
    uint32_t table;
    uint64_t keys[KEYS];
    float gradients[KEYS * DIM];
    float expected[KEYS]; /* what each element of the key's row must be */
    struct mr_future *futures[IN_FLIGHT];
    uint32_t begun;
};

static void await(struct work *w, uint32_t place)
{
    if (w->futures[place] == NULL)
        return;
    if (mr_future_wait(w->futures[place], NULL) != MR_OK)
        fail_msg("%s", mr_last_error());
    mr_future_destroy(w->futures[place]);
    w->futures[place] = NULL;
}

static void lossy_push(struct work *w, uint32_t first, uint32_t count)
{
    uint32_t place = w->begun++ % IN_FLIGHT;
    struct mr_options options = {.future = &w->futures[place], .more = w->begun % 3 != 0};
    await(w, place);
    assert_int_equal(mr_push_gradients(w->client, &options, w->table, w->keys + first, count, DIM,
                                       w->gradients + (size_t)first * DIM),
                     MR_OK);
    for (uint32_t i = first; i < first + count; i++)
        w->expected[i] -= w->gradients[(size_t)i * DIM];
}

/* Sums of small whole numbers: exact in a float, in any order. */
static void check_rows(struct work *w)
{
    struct mr_reply *reply = NULL;
    assert_int_equal(mr_lookup(w->client, NULL, w->table, w->keys, KEYS, &reply), MR_OK);

    const float *rows = mr_reply_tensor(reply, 0)->data;

    for (uint32_t i = 0; i < KEYS * DIM; i++)
        assert_true(rows[i] == w->expected[i / DIM]);
    mr_reply_free(reply);
}

static void push_and_check(struct work *w)
{
    struct mr_feature table = mr_feature_table("rows", DIM);
    table.learning_rate = 1;
    assert_int_equal(mr_create(w->client, NULL, &table, 1, &w->table), MR_OK);
    for (uint32_t i = 0; i < KEYS; i++) {
        w->keys[i] = i * 0x9e3779b97f4a7c15u;
        for (uint32_t d = 0; d < DIM; d++)
            w->gradients[(size_t)i * DIM + d] = (float)(i % 7 + 1);
    }
    assert_int_equal(mr_lookup(w->client, NULL, w->table, w->keys, KEYS, NULL), MR_OK);
    for (uint32_t n = 0; n < SMALL_PUSHES; n++) {
        lossy_push(w, n * 37 % KEYS, 1);
        if (n % (SMALL_PUSHES / LARGE_PUSHES) == 0)
            lossy_push(w, 0, KEYS);
    }
    for (uint32_t place = 0; place < IN_FLIGHT; place++)
        await(w, place);
    check_rows(w);
}

static void echo(struct mr_client *client, uint32_t core, uint8_t *data, size_t bytes, uint64_t *random)
{
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, (uint32_t)bytes, data);
    struct mr_reply *reply = NULL;
    for (size_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)(random_number(random) >> 56);
    if (mr_echo(client, NULL, core, &tensor, 1, &reply) != MR_OK)
        fail_msg("%zu bytes: %s", bytes, mr_last_error());
    assert_int_equal(mr_reply_tensor(reply, 0)->bytes, bytes);
    assert_memory_equal(mr_reply_tensor(reply, 0)->data, data, bytes);
    mr_reply_free(reply);
}

static void work_and_check(struct mr_client *client)
{
    static uint8_t data[ECHO_BYTES_MAX];
    static struct work w;
    uint64_t random = 99;
    memset(&w, 0, sizeof(w));
    w.client = client;
    push_and_check(&w);
    for (uint32_t i = 0; i < ECHOES; i++)
        echo(client, i % mr_client_core_count(client), data, random_number(&random) % ECHO_BYTES_MAX,
             &random);
    check_rows(&w);
}

/* ---- the server's own fault port ---- */

#define FAULTS                                                                                               \
    "fault.loss_ppm=10000", "fault.duplicate_ppm=10000", "fault.reorder_ppm=20000", "fault.delay_ppm=2000",  \
        "fault.delay_us=3000", "fault.corrupt_ppm=10000"

static void check_fault_port(const char *driver, const char *direction, uint32_t cores)
{
    const char *settings[] = {driver, direction, FAULTS, NULL};
    static const char *const counters[] = {"port.fault_lost", "port.fault_duplicated", "port.fault_late",
                                           "port.fault_corrupted"};
    struct node_fixture node;
    node_fixture_start(&node, cores, settings);

    struct mr_client *client = node_fixture_connect(&node);

    work_and_check(client);
    for (size_t i = 0; i < sizeof(counters) / sizeof(*counters); i++)
        assert_true(node_fixture_sum(client, counters[i]) > 0);
    mr_client_destroy(client);
    node_fixture_stop(&node);
}

TEST(test_fault_port_af_xdp)
{
    check_fault_port("port.driver=af_xdp", "fault.direction=both", 1);
}

TEST(test_fault_port_af_packet)
{
    check_fault_port("port.driver=af_packet", "fault.direction=both", 2);
}

TEST(test_fault_port_receive)
{
    check_fault_port("port.driver=af_xdp", "fault.direction=receive", 1);
}

TEST(test_fault_port_transmit)
{
    check_fault_port("port.driver=af_packet", "fault.direction=transmit", 1);
}

TEST(test_fault_port_is_off)
{
    static const char *const settings[] = {FAULTS, NULL};
    struct node_fixture node;
    node_fixture_start(&node, 1, settings);

    struct mr_client *client = node_fixture_connect(&node);

    work_and_check(client);
    assert_int_equal(node_fixture_sum(client, "port.fault_lost"), 0);
    assert_int_equal(node_fixture_sum(client, "port.fault_duplicated"), 0);
    assert_int_equal(node_fixture_sum(client, "port.fault_late"), 0);
    assert_int_equal(node_fixture_sum(client, "port.fault_corrupted"), 0);
    mr_client_destroy(client);
    node_fixture_stop(&node);
}

/* ---- a bad cable ---- */

#define LARGE_PACKETS "memory.packets_mib=256" /* room for buffers of 9000 bytes */

static void check_forwarder(const char *driver, uint16_t mtu)
{
    const char *settings[] = {driver, LARGE_PACKETS, NULL};
    bool on_socket = strstr(driver, "socket") != NULL;
    struct netns_options cable = {.mtu = mtu, .cut = true, .server_kernel = on_socket};
    char *argv[] = {(char *)forwarder_path,
                    NETNS_SERVER_END,
                    NETNS_CLIENT_END,
                    "10000",
                    "10000",
                    "20000",
                    "5000",
                    "17",
                    NULL};
    struct node_fixture node;
    struct netns_process forwarder;
    unsigned long lost, duplicated, reordered, corrupted;
    node_fixture_start_over(&node, &cable, 1, settings);
    netns_spawn(&node.net, NETNS_SERVER, argv, &forwarder);
    assert_true(netns_wait_line(&forwarder, "forwarding", LINE_MS));

    struct mr_client *client = node_fixture_connect(&node);

    work_and_check(client);
    mr_client_destroy(client);
    kill(forwarder.pid, SIGTERM);
    assert_true(netns_wait_line(&forwarder, "carried", LINE_MS));
    assert_int_equal(sscanf(forwarder.line, "carried %*u lost %lu duplicated %lu reordered %lu corrupted %lu",
                            &lost, &duplicated, &reordered, &corrupted),
                     4);
    assert_true(lost > 0 && duplicated > 0 && reordered > 0 && corrupted > 0);
    assert_int_equal(netns_end(&forwarder, 0), 0);
    node_fixture_stop(&node);
}

TEST(test_forwarder_1280)
{
    check_forwarder("port.driver=af_packet", 1280);
}

TEST(test_forwarder_1500)
{
    check_forwarder("port.driver=af_xdp", 1500);
}

TEST(test_forwarder_3498)
{
    check_forwarder("port.driver=af_xdp", 3498);
}

TEST(test_forwarder_sockets_1280)
{
    check_forwarder("port.driver=socket", 1280);
}

TEST(test_forwarder_sockets_1500)
{
    check_forwarder("port.driver=socket", 1500);
}

TEST(test_forwarder_sockets_3498)
{
    check_forwarder("port.driver=socket", 3498);
}

TEST(test_forwarder_sockets_9000)
{
    check_forwarder("port.driver=socket", 9000);
}

TEST(test_forwarder_9000)
{
    check_forwarder("port.driver=af_packet", 9000);
}

/* ---- the largest message both ways ---- */

static void check_largest(const char *driver, uint16_t mtu)
{
    static const char *const more[] = {"transport.message_mib_max=64", "memory.messages_mib=256"};
    const size_t bytes = (64u << 20) - 4096;
    const char *settings[] = {driver, LARGE_PACKETS, more[0], more[1], NULL};
    struct netns_options cable = {.mtu = mtu};
    struct node_fixture node;
    struct mr_client *client = NULL;
    uint8_t *data = malloc(bytes);
    uint64_t random = mtu;
    char error[256];
    assert_non_null(data);
    node_fixture_start_over(&node, &cable, 1, settings);

    struct mr_client_options options = {
        .server = node.address, .deadline_ms = NODE_READY_MS, .connect_ms = NODE_READY_MS};

    assert_int_equal(mr_client_create(&options, &client, error, sizeof(error)), MR_OK);
    echo(client, 0, data, bytes, &random);
    mr_client_destroy(client);
    node_fixture_stop(&node);
    free(data);
}

TEST(test_largest_1280)
{
    check_largest("port.driver=af_xdp", 1280);
}

TEST(test_largest_1500)
{
    check_largest("port.driver=af_packet", 1500);
}

TEST(test_largest_9000)
{
    check_largest("port.driver=af_packet", 9000);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: test_lossy MILLRACED FORWARDER\n");
        return 2;
    }
    node_fixture_server = argv[1];
    forwarder_path = argv[2];
    netns_require_root();
    return tests_run(NULL, NULL);
}
