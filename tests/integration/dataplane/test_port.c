/* A node, its port, and what it keeps: a second node on the device is refused and does the first no harm; a
 * node that loses its port says so, saves, and ends; and one that is stopped in order has kept what it was
 * given. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include "tests/integration/program.h"
#include "trainer_client/millrace.h"
#include "tests/test.h"

#define LINE_MS 60000
#define MAKE_INTERFACE                                                                                       \
    "ip link add made0 type veth peer name made1 && ip address add 10.98.0.1/24 dev made0 && "               \
    "ip link set made0 up && ip link set made1 up"

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
    memset(&x, 0, sizeof(x));
    netns_create(&x.net, NULL);
    snprintf(x.config, sizeof(x.config), "%s/node.conf", x.net.directory);
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
static void launch_node(struct fixture *x, const char *options)
{
    char command[512];
    char *argv[] = {"/bin/sh", "-c", command, NULL};
    snprintf(command, sizeof(command), "exec %s --config %s %s 2>&1", millraced, x->config, options);
    netns_spawn(&x->net, NETNS_SERVER, argv, &x->node);
}

static void start_node(struct fixture *x, const char *options)
{
    launch_node(x, options);
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
    snprintf(holder, sizeof(holder), "is in use by the node \"first\", process %d;", (int)x->node.pid);
    program_run(&x->net, NETNS_SERVER, &result, "%s --config %s --set node.name=second %s", millraced,
                x->config, options);
    program_expect(&result, 1, holder);
    assert_null(strstr(result.out, "ready"));
    answers(x);
}

/* Whatever the driver, and under another name of the interface. */
TEST(a_second_node_is_refused, set_up, tear_down)
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
TEST(a_node_follows_one_that_was_killed, set_up, tear_down)
{
    struct fixture *x = *state;
    start_node(x, "--set port.driver=af_xdp");
    assert_int_equal(netns_end(&x->node, SIGKILL), 128 + SIGKILL);
    start_node(x, "--set port.driver=af_xdp");
    answers(x);
    /* It has given up what opening a port needed, and takes its XDP program back all the same. */
    assert_int_equal(netns_run(&x->net, NETNS_SERVER, "ip link show " NETNS_SERVER_IF " | grep -q xdp"), 0);
    assert_int_equal(netns_run(&x->net, NETNS_SERVER,
                               "! grep -h CapPrm /proc/%d/task/*/status | grep -vE ':.0{12}[0145]000$'",
                               (int)x->node.pid),
                     0);
    assert_int_equal(netns_end(&x->node, SIGTERM), 0);
    assert_int_equal(netns_run(&x->net, NETNS_SERVER, "! ip link show " NETNS_SERVER_IF " | grep -q xdp"), 0);
}

/* Two nodes of one name on two devices: the end of one leaves the other's run-time files alone. */
TEST(nodes_of_one_name_do_not_disturb_each_other, set_up, tear_down)
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

TEST(a_lost_port_ends_the_node, set_up, tear_down)
{
    struct fixture *x = *state;
    loses_its_port(x, "--set port.driver=af_xdp", "ip link set " NETNS_SERVER_IF " xdp off",
                   NETNS_SERVER_IF ": its XDP program was removed by another process");
    loses_its_port(x, "--set port.driver=tap --set port.device=tap0", "ip link del tap0",
                   "tap0: the tap interface was deleted");
    assert_int_equal(netns_run(&x->net, NETNS_SERVER, MAKE_INTERFACE), 0);
    loses_its_port(x, "--set port.driver=socket --set port.device=made0 --set port.ipv4=10.98.0.1/24",
                   "ip link del made0 && " MAKE_INTERFACE, "made0: the interface is gone");
    loses_its_port(x, "--set port.driver=af_packet", "ip link del " NETNS_SERVER_IF,
                   NETNS_SERVER_IF ": the interface is gone");
}

static struct mr_client *connect_to(const struct fixture *x)
{
    struct mr_client_options options = {
        .server = NETNS_SERVER_IPV4 ":7700", .connect_ms = LINE_MS, .deadline_ms = LINE_MS};
    struct mr_client *client = NULL;
    char error[512] = "";
    netns_enter(&x->net, NETNS_CLIENT);
    if (mr_client_create(&options, &client, error, sizeof(error)) != MR_OK)
        fail_msg("%s", error);
    netns_leave(&x->net);
    return client;
}

static void has_variable(const struct fixture *x, uint32_t id, float expected)
{
    struct mr_client *client = connect_to(x);
    struct mr_reply *reply;
    float value;
    assert_int_equal(mr_variable_pull(client, NULL, id, 0, 0, &reply), MR_OK);
    memcpy(&value, mr_reply_tensor(reply, 0)->data, sizeof(value));
    mr_reply_free(reply);
    mr_client_destroy(client);
    assert_true(value == expected);
}

static uint32_t set_variable(const struct fixture *x, float value)
{
    struct mr_client *client = connect_to(x);
    struct mr_feature v = mr_feature_variable("v", 0, NULL);
    uint32_t id;
    assert_int_equal(mr_create(client, NULL, &v, 1, &id), MR_OK);
    assert_int_equal(mr_variable_push(client, NULL, id, 0, 1, &value), MR_OK);
    mr_client_destroy(client);
    return id;
}

/* With nothing but a directory a node keeps what it was given, however it ends in order, and saves nothing
 * twice. */
TEST(what_was_pushed_is_kept, set_up, tear_down)
{
    struct fixture *x = *state;
    char settings[160];
    snprintf(settings, sizeof(settings), "--set checkpoint.directory=%s/ckpt", x->net.directory);
    start_node(x, settings);
    uint32_t id = set_variable(x, 1.5f);
    assert_int_equal(netns_end(&x->node, SIGTERM), 0);
    start_node(x, settings);
    has_variable(x, id, 1.5f);
    assert_int_equal(netns_end(&x->node, SIGTERM), 0);
    assert_int_equal(netns_run(&x->net, NETNS_SERVER, "test ! -e %s/ckpt/ckpt-2", x->net.directory), 0);
    start_node(x, settings);
    assert_int_equal(set_variable(x, 2.5f), id);
    assert_int_equal(netns_run(&x->net, NETNS_SERVER, "ip link set " NETNS_SERVER_IF " xdp off"), 0);
    assert_int_equal(netns_end(&x->node, 0), 1);
    start_node(x, settings);
    has_variable(x, id, 2.5f);
    assert_int_equal(netns_end(&x->node, SIGTERM), 0);
}

/* Once it has been serving for checkpoint.every_s. */
TEST(a_directory_is_enough_to_save_by_time, set_up, tear_down)
{
    struct fixture *x = *state;
    char settings[192];
    snprintf(settings, sizeof(settings), "--set checkpoint.directory=%s/ckpt --set checkpoint.every_s=1",
             x->net.directory);
    start_node(x, settings);
    uint32_t id = set_variable(x, 3.5f);
    assert_true(netns_wait_line(&x->node, "saved checkpoint 1", LINE_MS));
    assert_int_equal(netns_end(&x->node, SIGKILL), 128 + SIGKILL);
    start_node(x, settings);
    has_variable(x, id, 3.5f);
    assert_int_equal(netns_end(&x->node, SIGTERM), 0);
}

TEST(one_that_keeps_nothing_says_so, set_up, tear_down)
{
    struct fixture *x = *state;
    launch_node(x, "");
    assert_true(netns_wait_line(&x->node, "this node keeps nothing", LINE_MS));
    assert_true(netns_wait_line(&x->node, "millraced: ready", LINE_MS));
    assert_int_equal(netns_end(&x->node, SIGTERM), 0);
}

/* Without an address of its own it is reached by the link's. */
TEST(says_where_it_listens, set_up, tear_down)
{
    struct fixture *x = *state;
    start_node(x, "--set port.ipv4=");
    assert_non_null(strstr(x->node.line, "listen=[fe80::"));
    assert_int_equal(netns_end(&x->node, SIGTERM), 0);
}

TEST(a_link_that_is_down_comes_back, set_up, tear_down)
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
    if (argc != 2)
        return 2;
    millraced = argv[1];
    netns_require_root();
    return tests_run(NULL, NULL);
}
