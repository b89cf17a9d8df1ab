/* A world whose members are on links of their own, with a router between them: two nodes on DPDK ports, or
 * on sockets (MILLRACE_DRIVER=socket), workers on a third host and beside the second node. Whether they meet
 * at a program or at a node, over IPv4, IPv6 or both. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include "tests/integration/node_fixture.h"
#include "tests/integration/program.h"
#include "tests/integration/rpc/node_network.h"
#include "tests/integration/rpc/rpc_workers.h"
#include "tests/test.h"

enum { LARGE = 1 << 18, STEPS = 10 };
#define DEAD_AFTER_MS 3000u
#define DEAD_AFTER    "rpc.dead_after_ms=3000"

static const char *module, *layers_module;

struct routed {
    struct node_fixture first;
    struct netns_process second;
    const char *second_settings[NODE_SETTINGS_MAX + 1];
    struct rpc_workers workers;
    pid_t beside; /* a worker on the second node's host; 0: none */
};

/* ---- nodes ---- */

static void launch_second(struct routed *x)
{
    static char name[32], checkpoints[NODE_PATH_BYTES + 48];
    char *argv[8 + 2 * NODE_SETTINGS_MAX + 16] = {(char *)node_fixture_server, "--config", x->first.config};
    const char *const own[] = {name, checkpoints, "port.device=" NETNS_SECOND_IF,
                               "port.ipv4=" NETNS_SECOND_IPV4 "/24", "port.ipv6=" NETNS_SECOND_IPV6 "/64"};
    int argc = 3;
    snprintf(name, sizeof(name), "node.name=second-%d", (int)getpid());
    snprintf(checkpoints, sizeof(checkpoints), "checkpoint.directory=%.40s/second", x->first.directory);
    for (uint32_t i = 0; i < sizeof(own) / sizeof(*own); i++) {
        argv[argc++] = "--set";
        argv[argc++] = (char *)own[i];
    }
    for (uint32_t i = 0; x->second_settings[i] != NULL; i++) {
        argv[argc++] = "--set";
        argv[argc++] = (char *)x->second_settings[i];
    }
    netns_spawn(&x->first.net, NETNS_SECOND, argv, &x->second);
    assert_true(netns_wait_line(&x->second, "millraced: ready", NODE_READY_MS));
}

/* Each with both modules; `rendezvous` is what both are told. */
static void rpc_routed_start(struct routed *x, const char *world_size, const char *rendezvous,
                             const char *first_rank, const char *second_rank, bool second_has_ipv6)
{
    static char with_module[512], with_layers[512], at[128];
    const struct netns_options cable = {.routed = true};
    const bool has_ports = !node_fixture_on_sockets(); /* whose routes are the node's, not the kernel's */
    const char *const first[] = {world_size,
                                 at,
                                 "rpc.name=first",
                                 first_rank,
                                 with_module,
                                 with_layers,
                                 DEAD_AFTER,
                                 has_ports ? "port.ipv4_gateway=" NETNS_SERVER_GATEWAY4 : NULL,
                                 has_ports ? "port.ipv6_gateway=" NETNS_SERVER_GATEWAY6 : NULL,
                                 NULL};
    const char *const second[] = {world_size,
                                  at,
                                  "rpc.name=second",
                                  second_rank,
                                  with_module,
                                  with_layers,
                                  DEAD_AFTER,
                                  !second_has_ipv6 ? "port.ipv6="
                                  : has_ports      ? "port.ipv6_gateway=" NETNS_SECOND_GATEWAY6
                                                   : NULL,
                                  has_ports ? "port.ipv4_gateway=" NETNS_SECOND_GATEWAY4 : NULL,
                                  NULL};
    snprintf(with_module, sizeof(with_module), "rpc.module=%s 2.5", module);
    snprintf(with_layers, sizeof(with_layers), "rpc.module=%s", layers_module);
    snprintf(at, sizeof(at), "rpc.rendezvous=%s", rendezvous);
    *x = (struct routed){.workers = {.dead_after_ms = DEAD_AFTER_MS}};
    x->workers.world_size = (uint32_t)strtoul(strchr(world_size, '=') + 1, NULL, 10);
    memcpy(x->second_settings, second, sizeof(second));
    node_fixture_start_over(&x->first, &cable, 1, first);
    launch_second(x);
}

static void routed_stop(struct routed *x)
{
    if (x->beside != 0) {
        kill(x->beside, SIGKILL);
        (void)waitpid(x->beside, NULL, 0);
    }
    assert_int_equal(netns_end(&x->second, SIGTERM), 0);
    node_fixture_stop(&x->first);
}

/* A worker in a process of its own, on the second node's host. */
static void start_beside(struct routed *x, uint32_t rank)
{
    netns_enter(&x->first.net, NETNS_SECOND);
    x->beside = rpc_workers_fork(&x->workers, rank, NULL);
    netns_enter(&x->first.net, NETNS_CLIENT);
}

/* ---- what members do for each other ---- */

/* Worker `from` calls `to`; a node is asked by the first worker to do so. */
static void expect_call(struct routed *x, uint32_t first_worker, uint32_t from, uint32_t to, const char *name)
{
    struct mr_value rank = mr_value_i64(to);
    bool is_ours = from >= first_worker && from - first_worker < x->workers.count;
    if (is_ours)
        rpc_workers_string(x->workers.rpcs[from - first_worker], to, "whoami", NULL, 0, name);
    else
        rpc_workers_string(x->workers.rpcs[0], from, "ask", &rank, 1, name);
}

/* A value that stays there is used from here, and is gone when nobody refers to it. */
static void refer(struct mr_rpc *rpc, uint32_t node)
{
    static float in[LARGE];
    struct mr_value argument = mr_value_tensor(mr_tensor_1d(MR_F32, LARGE, in));
    struct mr_rref *scaled, *object;
    struct mr_rpc_result *result;
    for (uint32_t i = 0; i < LARGE; i++)
        in[i] = (float)i;
    if (mr_remote(rpc, node, "scale", &argument, 1, NULL, &scaled) != MR_OK ||
        mr_remote(rpc, node, "make", NULL, 0, NULL, &object) != MR_OK ||
        mr_rref_to_here(scaled, 0, &result) != MR_OK)
        fail_msg("%s", mr_rpc_last_error());
    assert_float_equal(((const float *)mr_rpc_result_value(result, 0)->tensor.data)[LARGE - 1],
                       2.5F * (LARGE - 1), 0);
    assert_int_equal(rpc_workers_i64(rpc, node, "objects", NULL, 0), 1);
    mr_rpc_result_free(result);
    mr_rref_release(scaled);
    mr_rref_release(object);
    while (rpc_workers_i64(rpc, node, "objects", NULL, 0) != 0)
        ;
}

static void train(struct mr_rpc *rpc, uint32_t node)
{
    struct node_network network;
    float first, last = 0;
    node_network_make(&network, rpc, node, NULL);
    first = node_network_train(&network, 0);
    for (int64_t step = 1; step < STEPS; step++)
        last = node_network_train(&network, step);
    assert_true(last < first);
    node_network_let_go(&network);
}

/* ---- tests ---- */

/* Nobody has called anybody before: every way is found by the routes. Ranks 0 and 1 are workers here, 2 and 3
 * the nodes. */
static void meet_at_a_program(const char *rendezvous)
{
    static const char *const names[] = {"w0", "w1", "first", "second"};
    struct routed x;
    rpc_routed_start(&x, "rpc.world_size=4", rendezvous, "rpc.rank=2", "rpc.rank=3", true);
    x.workers.rendezvous = rendezvous;
    x.workers.meet_at_first = true;
    rpc_workers_join(&x.workers, 0, 2);
    for (uint32_t from = 0; from < 4; from++)
        for (uint32_t to = 0; to < 4; to++)
            if (from != to)
                expect_call(&x, 0, from, to, names[to]);
    for (uint32_t node = 2; node < 4; node++) {
        struct mr_rpc_worker info;
        assert_int_equal(mr_worker_by_name(x.workers.rpcs[1], names[node], &info), MR_OK);
        assert_int_equal(info.rank, node);
        assert_true(info.is_node);
        refer(x.workers.rpcs[1], info.rank);
        train(x.workers.rpcs[node - 2], info.rank);
    }
    rpc_workers_leave(&x.workers, MR_OK);
    routed_stop(&x);
}

TEST(members_of_any_link_meet_over_ipv4)
{
    meet_at_a_program(NETNS_FAR_IPV4 ":7800");
}

TEST(members_of_any_link_meet_over_ipv6)
{
    meet_at_a_program("[" NETNS_FAR_IPV6 "]:7800");
}

/* At the first node, which has both families; the second has IPv4 only. Of the workers one has each, one has
 * both, and one is beside the second node. Those who can reach each other do, and the others are told why
 * not. */
TEST(families_are_mixed)
{
    enum { FIRST, SECOND, IPV4, IPV6, BOTH, BESIDE };
    static const char *const names[] = {"first", "second", "w2", "w3", "w4", "w5"};
    struct mr_value rank = mr_value_i64(IPV6);
    struct routed x;
    rpc_routed_start(&x, "rpc.world_size=6", NETNS_SERVER_IPV4 ":7700", "rpc.rank=0", "rpc.rank=1", false);
    x.workers.rendezvous = NETNS_SERVER_IPV4 ":7700";
    start_beside(&x, BESIDE);
    x.workers.places[0] = NETNS_SECOND_IPV4 ":7700," NETNS_SERVER_IPV4 ":7700"; /* any of the nodes */
    x.workers.places[1] = "[" NETNS_SERVER_IPV6 "]:7700";
    x.workers.places[2] = x.workers.places[1];
    x.workers.listens[2] = NETNS_FAR_IPV4 ":0,[" NETNS_FAR_IPV6 "]:0";
    rpc_workers_join(&x.workers, IPV4, 3);
    for (uint32_t from = 0; from < BESIDE; from++) {
        for (uint32_t to = 0; to < 6; to++) {
            bool have_no_common = (from == IPV6 && (to == SECOND || to == IPV4 || to == BESIDE)) ||
                                  (to == IPV6 && (from == SECOND || from == IPV4));
            if (from != to && !have_no_common)
                expect_call(&x, IPV4, from, to, names[to]);
        }
    }
    rpc_workers_refused(mr_rpc_sync(x.workers.rpcs[0], IPV6, "whoami", NULL, 0, NULL, NULL), MR_UNREACHABLE,
                        "worker \"w3\" (rank 3) cannot be reached at [" NETNS_FAR_IPV6 "]:");
    rpc_workers_refused(mr_rpc_sync(x.workers.rpcs[1], SECOND, "whoami", NULL, 0, NULL, NULL), MR_UNREACHABLE,
                        "only; name an address of each family (listen)");
    rpc_workers_refused(mr_rpc_sync(x.workers.rpcs[0], SECOND, "ask", &rank, 1, NULL, NULL),
                        MR_FUNCTION_FAILED, "this node has no IPv6 address: set port.ipv6");
    kill(x.beside, SIGKILL);
    (void)waitpid(x.beside, NULL, 0);
    x.beside = 0;
    rpc_workers_leave(&x.workers, MR_OK); /* once it is known to be dead */
    routed_stop(&x);
}

/* The others go on without it; when the programs have left, all nodes begin the next world, with it. */
TEST(a_node_that_is_lost_is_there_again_in_the_next_world)
{
    struct routed x;
    rpc_routed_start(&x, "rpc.world_size=4", NETNS_SERVER_IPV4 ":7700", "rpc.rank=0", "rpc.rank=1", true);
    x.workers.rendezvous = NETNS_SECOND_IPV4 ":7700," NETNS_SERVER_IPV4 ":7700";
    for (uint32_t world = 0; world < 3; world++) {
        rpc_workers_join(&x.workers, 2, 2);
        train(x.workers.rpcs[0], 1);
        refer(x.workers.rpcs[1], 1);
        assert_int_equal(netns_end(&x.second, SIGKILL), 128 + SIGKILL);
        if (world > 0) /* before anybody has noticed, or after */
            launch_second(&x);
        rpc_workers_refused(mr_rpc_sync(x.workers.rpcs[0], 1, "whoami", NULL, 0, NULL, NULL), MR_WORKER_DIED,
                            "worker \"second\" (rank 1)");
        rpc_workers_string(x.workers.rpcs[1], 0, "whoami", NULL, 0, "first");
        rpc_workers_string(x.workers.rpcs[0], 3, "whoami", NULL, 0, "w3");
        rpc_workers_leave(&x.workers, MR_OK);
        if (world == 0)
            launch_second(&x);
    }
    rpc_workers_join(&x.workers, 2, 2);
    expect_call(&x, 2, 0, 1, "second"); /* it knows the world, too */
    /* The one where they meet: the programs end their world, and both nodes take part in the next one. */
    node_fixture_kill(&x.first);
    rpc_workers_refused(mr_rpc_sync(x.workers.rpcs[0], 0, "whoami", NULL, 0, NULL, NULL), MR_WORKER_DIED,
                        "worker \"first\" (rank 0)");
    rpc_workers_string(x.workers.rpcs[0], 1, "whoami", NULL, 0, "second");
    rpc_workers_leave(&x.workers, MR_WORKER_DIED);
    netns_leave(&x.first.net);
    node_fixture_restart(&x.first);
    netns_enter(&x.first.net, NETNS_CLIENT);
    rpc_workers_join(&x.workers, 2, 2);
    expect_call(&x, 2, 0, 1, "second");
    expect_call(&x, 2, 1, 0, "first");
    rpc_workers_leave(&x.workers, MR_OK);
    routed_stop(&x);
}

/* A node that could never call the others does not start, and says what to set. */
TEST(a_node_without_a_way_does_not_start)
{
    enum { REFUSED = 5 };
    static const char *const by_ports[REFUSED][2] = {
        {"--set rpc.rendezvous=" NETNS_FAR_IPV4 ":7800",
         "it is not on the link of this node, " NETNS_SERVER_IPV4
         "/24: set port.ipv4_gateway to the router there"},
        {"--set rpc.rendezvous=[" NETNS_FAR_IPV6 "]:7800", "/64: set port.ipv6_gateway to the router there"},
        {"--set port.ipv6= --set rpc.rendezvous=[" NETNS_FAR_IPV6 "]:7800",
         "this node has no IPv6 address: set port.ipv6"},
        {"--set port.ipv4_gateway=10.99.1.254", "is not on the link of ipv4 = " NETNS_SERVER_IPV4 "/24"},
        {"--set rpc.rendezvous=no-such-host.invalid:7700", "rpc.rendezvous = no-such-host.invalid:7700: "},
    };
    static const char *const by_sockets[REFUSED][2] = {
        {"--set rpc.rendezvous=" NETNS_FAR_IPV4 ":7800", "this machine has no route there: "},
        {"--set rpc.rendezvous=[" NETNS_FAR_IPV6 "]:7800", "this machine has no route there: "},
        {"--set port.ipv6= --set rpc.rendezvous=[" NETNS_FAR_IPV6 "]:7800",
         "this node has no IPv6 address: set port.ipv6"},
        {"--set port.ipv4_gateway=" NETNS_SERVER_GATEWAY4,
         "leave ipv4_gateway and ipv6_gateway unset, and set routes there (ip route add)"},
        {"--set rpc.rendezvous=no-such-host.invalid:7700", "rpc.rendezvous = no-such-host.invalid:7700: "},
    };
    const char *const(*refused)[2] = node_fixture_on_sockets() ? by_sockets : by_ports;
    struct node_fixture node;
    struct program_result result;
    node_fixture_start(&node, 1, NULL);
    node_fixture_kill(&node);
    for (uint32_t i = 0; i < REFUSED; i++) {
        program_run(&node.net, NETNS_SERVER, &result,
                    "%s --config %s --set rpc.world_size=2 --set rpc.name=n --set rpc.rank=1 "
                    "--set rpc.rendezvous=" NETNS_CLIENT_IPV4 ":7800 %s",
                    node_fixture_server, node.config, refused[i][0]);
        program_expect(&result, 1, refused[i][1]);
    }
    node_fixture_restart(&node);
    node_fixture_stop(&node);
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: test_rpc_routed MILLRACED MODULE LAYERS_MODULE\n");
        return 2;
    }
    node_fixture_server = argv[1];
    module = argv[2];
    layers_module = argv[3];
    netns_require_root();
    return tests_run(NULL, NULL);
}
