/* A node and its port: a second node on the device is refused and does the first no harm, and a node that loses its port
 * says so, saves, and ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "tests/integration/program.h"

#define LINE_MS 60000

static const char *millraced;

struct fixture {
    struct netns net;
    struct netns_process node;
    char config[96];
};

static void write_config(const struct fixture *x)
{
    FILE *file = fopen(x->config, "w");

    assert_non_null(file);
    fprintf(file,
            "[node]\nname = first\n[port]\ndevice = %s\nipv4 = %s/24\n[cores]\npoll_mode = adaptive\n"
            "[memory]\nhugepages = never\npackets_mib = 64\nlimit_mib = 128\nmessages_mib = 16\n"
            "[transport]\nmessage_mib_max = 4\n[batches]\nmemory_mib = 16\n",
            NETNS_SERVER_IF, NETNS_SERVER_IPV4);
    assert_int_equal(fclose(file), 0);
}

static int set_up(void **state)
{
    static struct fixture x;

    memset(&x, 0, sizeof x);
    netns_create(&x.net, NULL);
    snprintf(x.config, sizeof x.config, "%s/node.conf", x.net.directory);
    write_config(&x);
    *state = &x;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *x = *state;

    netns_destroy(&x->net);
    return 0;
}

/* Its log comes with its output. */
static void start_node(struct fixture *x, const char *options)
{
    char command[512];
    char *argv[] = {"/bin/sh", "-c", command, NULL};

    snprintf(command, sizeof command, "exec %s --config %s %s 2>&1", millraced, x->config, options);
    netns_spawn(&x->net, NETNS_SERVER, argv, &x->node);
    assert_true(netns_wait_line(&x->node, "millraced: ready", LINE_MS));
}

static void answers(const struct fixture *x)
{
    assert_int_equal(
        netns_run(&x->net, NETNS_CLIENT, "ping -c 3 -i 0.05 -W 10 " NETNS_SERVER_IPV4 " >/dev/null"), 0);
}

static void second_is_refused(const struct fixture *x, const char *options)
{
    struct program_result result;
    char holder[64];

    snprintf(holder, sizeof holder, "is in use by the node \"first\", process %d;", (int)x->node.pid);
    program_run(&x->net, NETNS_SERVER, &result, "%s --config %s --set node.name=second %s", millraced,
                x->config, options);
    program_expect(&result, 1, holder);
    assert_null(strstr(result.out, "ready"));
    answers(x);
}

/* Whatever the driver, and under another name of the interface. */
static void a_second_node_is_refused(void **state)
{
    struct fixture *x = *state;

    assert_int_equal(
        netns_run(&x->net, NETNS_SERVER, "ip link property add dev " NETNS_SERVER_IF " altname other"), 0);
    start_node(x, "--set port.driver=af_xdp");
    second_is_refused(x, "");
    second_is_refused(x, "--set port.driver=af_xdp --set port.device=other");
    second_is_refused(x, "--set port.driver=af_packet");
    assert_int_equal(netns_end(&x->node, SIGTERM), 0);
    start_node(x, "--set port.driver=af_packet");
    second_is_refused(x, "");
    assert_int_equal(netns_end(&x->node, SIGKILL), 128 + SIGKILL);
    start_node(x, "--set port.driver=af_packet"); /* the lock has ended with its holder */
    assert_int_equal(netns_end(&x->node, SIGTERM), 0);
}

/* What a killed node leaves attached is no reason to refuse. */
static void a_node_follows_one_that_was_killed(void **state)
{
    struct fixture *x = *state;

    start_node(x, "--set port.driver=af_xdp");
    assert_int_equal(netns_end(&x->node, SIGKILL), 128 + SIGKILL);
    start_node(x, "--set port.driver=af_xdp");
    answers(x);
    assert_int_equal(netns_end(&x->node, SIGTERM), 0);
}

/* Two nodes of one name on two devices: the end of one leaves the other's run-time files alone. */
static void nodes_of_one_name_do_not_disturb_each_other(void **state)
{
    struct fixture *x = *state;
    struct fixture other = *x;

    start_node(x, "");
    start_node(&other, "--set port.driver=tap --set port.device=tap0");
    assert_int_equal(netns_end(&other.node, SIGTERM), 0);
    assert_int_equal(
        netns_run(&x->net, NETNS_SERVER, "test -S %s/dpdk/first/dpdk_telemetry.v2", x->net.directory), 0);
    assert_int_equal(netns_end(&x->node, SIGTERM), 0);
    assert_int_equal(netns_run(&x->net, NETNS_SERVER, "test ! -e %s/dpdk/first", x->net.directory), 0);
}

static void loses_its_port(struct fixture *x, const char *options, const char *command, const char *says)
{
    start_node(x, options);
    assert_int_equal(netns_run(&x->net, NETNS_SERVER, "%s", command), 0);
    assert_true(netns_wait_line(&x->node, says, LINE_MS));
    assert_true(netns_wait_line(&x->node, "is lost, see the log above", LINE_MS));
    assert_int_equal(netns_end(&x->node, 0), 1);
}

static void a_lost_port_ends_the_node(void **state)
{
    struct fixture *x = *state;

    loses_its_port(x, "--set port.driver=af_xdp", "ip link set " NETNS_SERVER_IF " xdp off",
                   NETNS_SERVER_IF ": its XDP program was removed by another process");
    loses_its_port(x, "--set port.driver=tap --set port.device=tap0", "ip link del tap0",
                   "tap0: the tap interface was deleted");
    loses_its_port(x, "--set port.driver=af_packet", "ip link del " NETNS_SERVER_IF,
                   NETNS_SERVER_IF ": the interface is gone");
}

static void a_link_that_is_down_comes_back(void **state)
{
    struct fixture *x = *state;

    start_node(x, "");
    assert_int_equal(netns_run(&x->net, NETNS_CLIENT, "ip link set " NETNS_CLIENT_IF " down"), 0);
    assert_true(netns_wait_line(&x->node, NETNS_SERVER_IF ": the link is down", LINE_MS));
    assert_int_equal(netns_run(&x->net, NETNS_CLIENT, "ip link set " NETNS_CLIENT_IF " up"), 0);
    assert_true(netns_wait_line(&x->node, NETNS_SERVER_IF ": the link is up again", LINE_MS));
    answers(x);
    assert_int_equal(netns_end(&x->node, SIGTERM), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_second_node_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_node_follows_one_that_was_killed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nodes_of_one_name_do_not_disturb_each_other, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_lost_port_ends_the_node, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_link_that_is_down_comes_back, set_up, tear_down),
    };

    if (argc != 2)
        return 2;
    millraced = argv[1];
    netns_require_root();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
