/* A server on a real DPDK port, a client with ordinary sockets, a cable between their namespaces (see
 * netns.h). Each test starts its own server; they differ in driver, cores and addresses. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/net/carrier.h"
#include "tests/integration/dataplane/echo_fixture.h"
#include "tests/integration/wire_client.h"
#include "tests/test.h"

#define PORT            7700
#define CALL_MS         60000
#define LARGE_BYTES     (3u << 20)
#define GARBAGE_PACKETS 200

static void echo_to(const char *ip, uint16_t core)
{
    struct wire_client *client = wire_client_create(ip, (uint16_t)(PORT + core), core);
    assert_int_equal(wire_client_echo(client, 8, 1, CALL_MS), MR_OK);
    assert_int_equal(wire_client_echo(client, 100, 64, CALL_MS), MR_OK);
    assert_int_equal(wire_client_echo(client, LARGE_BYTES, 1, CALL_MS), MR_OK);
    wire_client_destroy(client);
}

static void serves_over(const char *driver, enum dp_carrier carrier)
{
    struct echo_fixture f;
    char arguments[64], expected[96];
    snprintf(arguments, sizeof(arguments), "--driver %s", driver);
    echo_fixture_start(&f, &(struct netns_options){.no_veth = strcmp(driver, "tap") == 0}, arguments);
    snprintf(expected, sizeof(expected), "driver=%s (as configured) memory=no-huge steering=one core",
             driver);
    assert_non_null(strstr(f.server.line, expected));
    if (strcmp(driver, "tap") == 0)
        netns_give_to_client(&f.net, "server0");
    netns_enter(&f.net, NETNS_CLIENT);
    assert_int_equal(
        netns_run(&f.net, NETNS_CLIENT, "ping -c 3 -i 0.05 -W 10 " NETNS_SERVER_IPV4 " >/dev/null"), 0);
    assert_int_equal(
        netns_run(&f.net, NETNS_CLIENT, "ping -c 3 -i 0.05 -W 10 " NETNS_SERVER_IPV6 " >/dev/null"), 0);
    echo_to(NETNS_SERVER_IPV4, 0);
    echo_to(NETNS_SERVER_IPV6, 0);
    echo_fixture_stop(&f, 1);
    assert_true(echo_fixture_counter(&f, 0, "port.rx_arp") >= 1);
    assert_true(echo_fixture_counter(&f, 0, "port.rx_nd") >= 1);
    assert_true(echo_fixture_counter(&f, 0, "port.rx_icmp") >= 6);
    assert_int_equal(echo_fixture_counter(&f, 0, "wire.sessions_accepted"), 2);
    assert_int_equal(echo_fixture_counter(&f, 0, "wire.calls_served"), 2 * 66);
    assert_int_equal(echo_fixture_counter(&f, 0, "port.carrier"), carrier);
    assert_int_equal(echo_fixture_counter(&f, 0, "port.virtual_link"), 1);
}

TEST(serves_over_af_xdp)
{
    serves_over("af_xdp", DP_CARRIER_XDP_COPY);
}

TEST(serves_over_af_packet)
{
    serves_over("af_packet", DP_CARRIER_PACKET_SOCKET);
}

TEST(serves_over_tap)
{
    serves_over("tap", DP_CARRIER_TAP);
}

static void start_on_sockets(struct echo_fixture *f, const char *arguments)
{
    char all[256];
    snprintf(all, sizeof(all), "--driver socket %s", arguments);
    echo_fixture_start(f, &(struct netns_options){.server_kernel = true, .keep_offloads = true}, all);
}

/* Runs of datagrams as one, both ways: of a MiB and a half far fewer system calls than datagrams. */
TEST(serves_over_sockets)
{
    struct echo_fixture f;
    start_on_sockets(&f, "");
    assert_non_null(strstr(f.server.line, "driver=socket (as configured) memory=no-huge steering=one core"));
    assert_non_null(strstr(f.server.line, "segment_bytes=1392"));
    netns_enter(&f.net, NETNS_CLIENT);
    echo_to(NETNS_SERVER_IPV4, 0);
    echo_to(NETNS_SERVER_IPV6, 0);
    echo_fixture_stop(&f, 1);
    assert_int_equal(echo_fixture_counter(&f, 0, "wire.sessions_accepted"), 2);
    assert_int_equal(echo_fixture_counter(&f, 0, "wire.calls_served"), 2 * 66);
    assert_int_equal(echo_fixture_counter(&f, 0, "port.carrier"), DP_CARRIER_SUPER_PACKETS);
    assert_true(echo_fixture_counter(&f, 0, "port.rx_frames") > 2 * LARGE_BYTES / 1472);
    assert_true(echo_fixture_counter(&f, 0, "port.tx_frames") > 2 * LARGE_BYTES / 1472);
}

TEST(the_kernel_finds_each_core_s_socket)
{
    struct echo_fixture f;
    start_on_sockets(&f, "--cores 3 --idle-us 50");
    assert_non_null(strstr(f.server.line, "steering=sockets"));
    netns_enter(&f.net, NETNS_CLIENT);
    for (uint16_t core = 0; core < 3; core++)
        echo_to(NETNS_SERVER_IPV4, core);
    echo_fixture_stop(&f, 3);
    for (uint32_t core = 0; core < 3; core++) {
        assert_int_equal(echo_fixture_counter(&f, core, "wire.calls_served"), 66);
        assert_int_equal(echo_fixture_counter(&f, core, "port.steered_in"), 0);
    }
}

TEST(auto_takes_af_xdp_first)
{
    struct echo_fixture f;
    echo_fixture_start(&f, NULL, "--driver auto");
    assert_non_null(strstr(f.server.line, "driver=af_xdp (the first that opens)"));
    echo_fixture_stop(&f, 1);
}

/* A DPDK port would answer for addresses for which the kernel answers, too. */
TEST(auto_leaves_the_kernel_its_addresses)
{
    static const struct {
        const char *more, *driver;
    } cases[] = {{"", "driver=socket (the kernel has the address)"},
                 {"--mac 02:00:00:00:00:07", "driver=af_xdp"},
                 {"--ipv6 fd99::77", "driver=af_xdp"}};
    struct echo_fixture f;

    for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char all[128];
        snprintf(all, sizeof(all), "--driver auto %s", cases[i].more);
        echo_fixture_start(&f, &(struct netns_options){.server_kernel = true, .keep_offloads = true}, all);
        assert_non_null(strstr(f.server.line, cases[i].driver));
        if (i == 0) {
            netns_enter(&f.net, NETNS_CLIENT);
            echo_to(NETNS_SERVER_IPV4, 0);
        }
        echo_fixture_stop(&f, 1);
    }
}

/* AF_XDP keeps a packet within a page: frames larger than that go over af_packet, with rings sized for
 * them. */
TEST(auto_falls_back_where_the_mtu_is_too_large)
{
    struct echo_fixture f;
    echo_fixture_start(&f, &(struct netns_options){.mtu = 9000}, "--driver auto");
    assert_non_null(strstr(f.server.line, "driver=af_packet"));
    assert_non_null(strstr(f.server.line, "segment_bytes=8896"));
    netns_enter(&f.net, NETNS_CLIENT);
    echo_to(NETNS_SERVER_IPV4, 0);
    echo_fixture_stop(&f, 1);
}

TEST(large_frames_over_af_xdp)
{
    struct echo_fixture f;
    echo_fixture_start(&f, &(struct netns_options){.mtu = 3498}, "--driver af_xdp");
    netns_enter(&f.net, NETNS_CLIENT);
    echo_to(NETNS_SERVER_IPV4, 0);
    echo_fixture_stop(&f, 1);
}

/* The client's kernel leaves checksums for a network card to finish that is not there. */
TEST(unfinished_checksums_are_understood_over_af_xdp)
{
    struct echo_fixture f;
    echo_fixture_start(&f, &(struct netns_options){.keep_offloads = true}, "--driver af_xdp");
    netns_enter(&f.net, NETNS_CLIENT);
    echo_to(NETNS_SERVER_IPV4, 0);
    echo_to(NETNS_SERVER_IPV6, 0);
    echo_fixture_stop(&f, 1);
    assert_int_equal(echo_fixture_counter(&f, 0, "port.rx_checksum"), 0);
}

/* fe80:: and the MAC address in the middle: it serves without being configured. */
TEST(the_link_local_address_serves)
{
    char address[64];
    struct echo_fixture f;
    echo_fixture_start(&f, NULL, "--driver af_xdp --mac 02:00:00:00:00:07");
    netns_enter(&f.net, NETNS_CLIENT);
    snprintf(address, sizeof(address), "fe80::ff:fe00:7%%%s", NETNS_CLIENT_IF);
    echo_to(address, 0);
    echo_fixture_stop(&f, 1);
}

static void rings_carry_what_one_queue_cannot(const char *arguments)
{
    struct echo_fixture f;
    echo_fixture_start(&f, NULL, arguments);
    assert_non_null(strstr(f.server.line, "steering=rings"));
    netns_enter(&f.net, NETNS_CLIENT);
    for (uint16_t core = 0; core < 3; core++) {
        echo_to(NETNS_SERVER_IPV4, core);
        echo_to(NETNS_SERVER_IPV6, core);
    }
    echo_fixture_stop(&f, 3);
    for (uint32_t core = 0; core < 3; core++)
        assert_int_equal(echo_fixture_counter(&f, core, "wire.calls_served"), 2 * 66);
    /* A client's last acknowledgement may still lie in a ring when the cores stop. */
    assert_int_in_range(echo_fixture_counter(&f, 1, "port.steered_in") +
                            echo_fixture_counter(&f, 2, "port.steered_in"),
                        2 * 2 * 66, echo_fixture_counter(&f, 0, "port.steered_out"));
    assert_int_equal(echo_fixture_counter(&f, 1, "port.rx_frames"), 0);
    assert_true(echo_fixture_counter(&f, 1, "port.steered_in") > 0);
}

TEST(three_cores_share_a_queue_of_af_xdp)
{
    rings_carry_what_one_queue_cannot("--driver af_xdp --cores 3 --idle-us 50");
}

TEST(three_cores_share_a_queue_of_af_packet)
{
    rings_carry_what_one_queue_cannot("--driver af_packet --cores 3 --idle-us 0");
}

TEST(garbage_is_counted_and_never_answered)
{
    struct echo_fixture f;
    echo_fixture_start(&f, NULL, "--driver af_xdp");
    netns_enter(&f.net, NETNS_CLIENT);
    /* The client's kernel holds only so many packets until it knows the server's MAC address. */
    echo_to(NETNS_SERVER_IPV4, 0);
    assert_int_equal(
        netns_run(&f.net, NETNS_CLIENT,
                  "python3 -c \"\nimport socket, random\nrandom.seed(1)\n"
                  "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.connect(('" NETNS_SERVER_IPV4
                  "', %d))\n"
                  "for i in range(%d): s.send(random.randbytes(random.randrange(1, 1400)))\n"
                  "s.settimeout(0.2)\n"
                  "try:\n    s.recv(2000)\n    raise SystemExit(1)\nexcept TimeoutError: pass\n\"",
                  PORT, GARBAGE_PACKETS),
        0);
    echo_to(NETNS_SERVER_IPV4, 0);
    echo_fixture_stop(&f, 1);
    assert_int_equal(echo_fixture_counter(&f, 0, "wire.drop_short") +
                         echo_fixture_counter(&f, 0, "wire.drop_magic"),
                     GARBAGE_PACKETS);
}

TEST(an_unknown_operation_is_refused)
{
    struct echo_fixture f;
    echo_fixture_start(&f, NULL, "--driver af_xdp");
    netns_enter(&f.net, NETNS_CLIENT);
    struct wire_client *client = wire_client_create(NETNS_SERVER_IPV4, PORT, 0);
    assert_int_equal(wire_client_call(client, MR_OP_HEARTBEAT, CALL_MS), MR_UNKNOWN_OP);
    wire_client_destroy(client);
    echo_fixture_stop(&f, 1);
}

TEST(an_idle_core_sleeps_and_still_answers)
{
    struct echo_fixture f;
    echo_fixture_start(&f, NULL, "--driver af_xdp --idle-us 50");
    netns_enter(&f.net, NETNS_CLIENT);
    assert_int_equal(
        netns_run(&f.net, NETNS_CLIENT, "ping -c 5 -i 0.2 -W 10 " NETNS_SERVER_IPV4 " >/dev/null"), 0);
    echo_to(NETNS_SERVER_IPV4, 0);
    echo_fixture_stop(&f, 1);
    assert_true(echo_fixture_counter(&f, 0, "port.sleeps") > 0);
}

/* Killed without a word, AF_XDP leaves its program on the interface: the next server must cope. */
TEST(a_killed_server_can_be_started_again)
{
    char *argv[] = {(char *)echo_fixture_server, "--driver", "af_xdp", NULL};
    struct echo_fixture f;
    echo_fixture_start(&f, NULL, "--driver af_xdp");
    assert_int_equal(netns_end(&f.server, SIGKILL), 128 + SIGKILL);
    netns_spawn(&f.net, NETNS_SERVER, argv, &f.server);
    assert_true(netns_wait_line(&f.server, "ready", ECHO_READY_MS));
    netns_enter(&f.net, NETNS_CLIENT);
    echo_to(NETNS_SERVER_IPV4, 0);
    echo_fixture_stop(&f, 1);
}

/* Each wrong set-up ends with one line that names the cause, and code 1. */
TEST(a_wrong_port_is_one_line)
{
    static const char *const wrong[][2] = {
        {"--driver auto --device nosuch0", "no network interface \"nosuch0\""},
        {"--driver af_xdp --device nosuch0", "no network interface \"nosuch0\""},
        {"--driver af_packet --device nosuch0", "no network interface \"nosuch0\""},
        {"--driver af_xdp --mtu 9000", "takes at most"},
        {"--driver af_xdp --mtu 100", "mtu must be"},
        {"--driver socket --device nosuch0", "no network interface \"nosuch0\""},
        {"--driver socket", "10.99.0.1 is not an address of this machine"},
        {"--driver socket --vlan 7", "leave mac and vlan unset"},
        {"--driver memif --device /nonexistent/socket", "memif"},
        {"--hugepages 1 --memory-mib 1000000", "vm.nr_hugepages"},
        {"--ipv4 10.0.0", "ipv4"},
        {"--cores 65", "1..64"},
    };
    struct netns net;
    netns_create(&net, NULL);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        int code = netns_run(&net, NETNS_SERVER,
                             "text=$(%s %s 2>&1); code=$?; [ $code = 1 ] || exit 2; "
                             "[ $(printf '%%s\\n' \"$text\" | wc -l) = 1 ] || exit 3; "
                             "case \"$text\" in *'%s'*) exit 0;; esac; echo \"$text\"; exit 4",
                             echo_fixture_server, wrong[i][0], wrong[i][1]);
        if (code != 0)
            print_error("%s: %d\n", wrong[i][0], code);
        assert_int_equal(code, 0);
    }
    netns_destroy(&net);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: test_dataplane <path of echo_server>\n");
        return 2;
    }
    echo_fixture_server = argv[1];
    netns_require_root();
    return tests_run(NULL, NULL);
}
