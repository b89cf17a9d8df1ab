/* Paths whose MTU is smaller than that of both ends, or becomes so: every call comes through, large ones too,
 * and a path below what the transport needs is refused in one line. Over a bridge, which drops what is too
 * long without a word, and over a router, which says so. */
#include <stdio.h>
#include <string.h>
#include "millrace_observe.h"
#include "tests/integration/node_fixture.h"
#include "trainer_client/call/client.h"
#include "tests/test.h"

enum { ECHO_BYTES = 500000, LINE_BYTES = 512 };

static struct node_fixture node;

static void path_run(enum netns_side side, const char *command)
{
    if (netns_run(&node.net, side, "%s", command) != 0)
        fail_msg("%s", command);
}

static void path_start(uint32_t cores)
{
    static const char *settings[] = {"port.driver=af_packet", NULL};
    struct netns_options cable = {.cut = true};
    node_fixture_start_over(&node, &cable, cores, settings);
}

/* The two pieces of the cable as ports of a switch. */
static void bridge(void)
{
    path_run(NETNS_SERVER,
             "ip link add switch type bridge && ip link set switch up && ip link set " NETNS_SERVER_END
             " master switch && ip link set " NETNS_CLIENT_END
             " master switch && ip link set " NETNS_CLIENT_END " up");
}

/* The two pieces as networks of their own, and the kernel between them as their router. The client's is
 * 10.98.0.0/24. */
static void route(void)
{
    path_run(NETNS_SERVER,
             "echo 1 > /proc/sys/net/ipv4/ip_forward && ip addr add 10.99.0.3/24 dev " NETNS_SERVER_END
             " && ip link set " NETNS_CLIENT_END " up && ip addr add 10.98.0.1/24 dev " NETNS_CLIENT_END);
    path_run(NETNS_CLIENT,
             "ip addr flush dev " NETNS_CLIENT_IF " && ip addr add 10.98.0.2/24 dev " NETNS_CLIENT_IF
             " && ip route add default via 10.98.0.1");
}

static void set_path_mtu(uint32_t mtu)
{
    if (netns_run(&node.net, NETNS_SERVER,
                  "ip link set " NETNS_SERVER_END " mtu %u && ip link set " NETNS_CLIENT_END " mtu %u", mtu,
                  mtu) != 0)
        fail_msg("the path's MTU cannot be set");
}

static void echo(struct mr_client *client, uint32_t core, uint32_t bytes)
{
    static uint8_t data[ECHO_BYTES];
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, bytes, data);
    struct mr_reply *reply = NULL;
    for (uint32_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)(i * 31 + bytes);
    if (mr_echo(client, NULL, core, &tensor, 1, &reply) != MR_OK)
        fail_msg("%u bytes: %s", bytes, mr_last_error());
    assert_memory_equal(mr_reply_tensor(reply, 0)->data, data, bytes);
    mr_reply_free(reply);
}

static void echo_all(struct mr_client *client)
{
    static const uint32_t lengths[] = {10, 1200, 1290, 1350, 1400, 1450, 3000, ECHO_BYTES};
    for (uint32_t core = 0; core < mr_client_core_count(client); core++)
        for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
            echo(client, core, lengths[i]);
}

/* At first narrower than both ends, then as narrow as may be, then wide; calls are made all along. */
static void check_path(void)
{
    set_path_mtu(1400);

    struct mr_client *client = node_fixture_connect(&node);

    echo_all(client);
    set_path_mtu(1280);
    echo_all(client);
    set_path_mtu(1500);
    echo_all(client);
    mr_client_destroy(client);
    client = node_fixture_connect(&node);
    echo_all(client);
    set_path_mtu(1300);
    echo_all(client);
    mr_client_destroy(client);
}

TEST(test_switch)
{
    path_start(2);
    bridge();
    check_path();
    node_fixture_stop(&node);
}

TEST(test_router)
{
    path_start(1);
    route();
    check_path();
    node_fixture_stop(&node);
}

/* Calls until the server has heard of it that many times. */
static void echo_until_heard(struct mr_client *client, uint64_t hints)
{
    echo(client, 0, ECHO_BYTES);
    while (node_fixture_sum(client, "wire.path_hints") < hints)
        echo(client, 0, ECHO_BYTES);
}

/* Only the way back becomes narrower: it is the server that the router tells of it, by ICMP. */
TEST(test_router_on_the_way_back)
{
    path_start(2);
    route();

    struct mr_client *client = node_fixture_connect(&node);

    echo_all(client);
    assert_int_equal(node_fixture_sum(client, "port.rx_too_long"), 0);
    path_run(NETNS_SERVER, "ip route replace 10.98.0.0/24 dev " NETNS_CLIENT_END " mtu lock 1300");
    echo_until_heard(client, 1);
    assert_true(node_fixture_sum(client, "port.rx_too_long") > 0);
    assert_true(node_fixture_sum(client, "wire.path_shrank") > 0);
    echo_all(client);
    mr_client_destroy(client);
    node_fixture_stop(&node);
}

static uint64_t client_hints(const struct mr_client *client)
{
    return mr_endpoint_counters(client->links[0]->ep)->path_hints;
}

/* Only the way there does: the kernel tells the client's socket. */
TEST(test_router_on_the_way_there)
{
    path_start(1);
    route();

    struct mr_client *client = node_fixture_connect(&node);

    echo_all(client);
    assert_int_equal(client_hints(client), 0);
    path_run(NETNS_SERVER,
             "ip route replace " NETNS_SERVER_IPV4 "/32 dev " NETNS_SERVER_END " mtu lock 1300");
    while (client_hints(client) == 0)
        echo(client, 0, ECHO_BYTES);
    echo_all(client);
    mr_client_destroy(client);
    node_fixture_stop(&node);
}

static void refused(uint32_t mtu)
{
    const struct mr_client_options options = {.server = node.address, .connect_ms = NODE_READY_MS};
    struct mr_client *client = NULL;
    char line[LINE_BYTES] = "";
    set_path_mtu(mtu);
    assert_int_equal(mr_client_create(&options, &client, line, sizeof(line)), MR_UNREACHABLE);
    assert_null(client);
    if (strstr(line, "MTU is below 1280") == NULL || strchr(line, '\n') != NULL)
        fail_msg("%s", line);
}

TEST(test_too_small)
{
    path_start(1);
    bridge();

    struct mr_client *client = node_fixture_connect(&node);
    static uint8_t data[5000];
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, sizeof(data), data);
    const struct mr_options hurried = {.deadline_ms = 5000};
    struct mr_reply *reply = NULL;
    enum mr_status status;

    refused(1200);
    do /* until it has tried what gets through, as it has in time unless it does not run for seconds */
        status = mr_echo(client, &hurried, 0, &tensor, 1, &reply);
    while (status != MR_OK && strstr(mr_last_error(), "MTU is below 1280") == NULL);
    assert_int_equal(status, MR_UNREACHABLE);
    set_path_mtu(1500);
    echo_all(client);
    mr_client_destroy(client);
    node_fixture_stop(&node);
}

int main(int argc, char **argv)
{
    netns_require_root();
    node_fixture_server = argv[1];
    return tests_run(NULL, NULL);
}
