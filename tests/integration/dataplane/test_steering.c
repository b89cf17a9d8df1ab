/* How packets find their core, over real ports of several queues and of one. */
#include <stdio.h>
#include <string.h>
#include "tests/integration/dataplane/echo_fixture.h"
#include "tests/integration/wire_client.h"
#include "tests/test.h"

enum { PORT = 7700, CALLS = 200, CLIENTS = 8, CALL_MS = 60000 };

static void echo_to(uint16_t core)
{
    struct wire_client *client = wire_client_create(NETNS_SERVER_IPV4, (uint16_t)(PORT + core), core);
    struct mr_client_session_info info;
    for (uint32_t i = 0; i < CALLS; i++)
        assert_int_equal(wire_client_echo(client, 100, 1, CALL_MS), MR_OK);
    /* Over a ring nothing better is to be had; a tap's flow has turned to its core by the time of the second
     * HELLO. */
    wire_client_info(client, &info);
    assert_int_equal(info.arrived_core, core);
    wire_client_destroy(client);
}

static void serve_clients(struct echo_fixture *f)
{
    netns_enter(&f->net, NETNS_CLIENT);
    for (uint32_t i = 0; i < CLIENTS; i++)
        echo_to((uint16_t)(i % 2));
    echo_fixture_stop(f, 2);
    for (uint32_t core = 0; core < 2; core++)
        assert_int_equal(echo_fixture_counter(f, core, "wire.calls_served"), CALLS * CLIENTS / 2);
}

static unsigned long long steered(const struct echo_fixture *f)
{
    return echo_fixture_counter(f, 0, "port.steered_in") + echo_fixture_counter(f, 1, "port.steered_in");
}

/* The kernel sends a flow to where its answers come from: what another core hears of each client is its first
 * packets. With rte_flow for taps (sch_multiq and cls_flower in the kernel) not even those. */
TEST(a_tap_has_a_queue_for_each_core)
{
    struct echo_fixture f;
    echo_fixture_start(&f, &(struct netns_options){.no_veth = true}, "--driver tap --cores 2 --idle-us 50");
    bool flow_rules = strstr(f.server.line, "steering=flow rules") != NULL;
    assert_true(flow_rules || strstr(f.server.line, "steering=rss (2 queues") != NULL);
    netns_give_to_client(&f.net, "server0");
    serve_clients(&f);
    assert_true(echo_fixture_counter(&f, 0, "port.rx_frames") > CALLS);
    assert_true(echo_fixture_counter(&f, 1, "port.rx_frames") > CALLS);
    assert_true(steered(&f) <= 2 * CLIENTS);
    assert_int_equal(echo_fixture_counter(&f, 0, "port.steering"), flow_rules ? 1 : 2);
}

static void one_queue_feeds_the_others_by_rings(const char *arguments)
{
    struct echo_fixture f;
    echo_fixture_start(&f, NULL, arguments);
    assert_non_null(strstr(f.server.line, "steering=rings (1 queue for 2 cores)"));
    serve_clients(&f);
    assert_int_equal(echo_fixture_counter(&f, 0, "port.steering"), 3);
    assert_int_equal(echo_fixture_counter(&f, 0, "port.steered_in"), 0);
    assert_true(echo_fixture_counter(&f, 1, "port.steered_in") >= CALLS * CLIENTS / 2);
}

TEST(one_queue_of_af_xdp)
{
    one_queue_feeds_the_others_by_rings("--driver af_xdp --cores 2 --idle-us 50");
}

TEST(one_queue_of_af_packet)
{
    one_queue_feeds_the_others_by_rings("--driver af_packet --cores 2 --idle-us 50");
}

/* Queues that only receive are not for net_af_xdp; af_packet hears all of them. */
TEST(queues_apart_are_not_for_af_xdp)
{
    struct echo_fixture f;
    echo_fixture_start(&f, &(struct netns_options){.queues = 2}, "--driver auto --cores 2 --idle-us 50");
    assert_non_null(strstr(
        f.server.line,
        "driver=af_packet (the first that opens) memory=no-huge steering=rings (1 queue for 2 cores)"));
    serve_clients(&f);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: test_steering <path of echo_server>\n");
        return 2;
    }
    echo_fixture_server = argv[1];
    netns_require_root();
    return tests_run(NULL, NULL);
}
