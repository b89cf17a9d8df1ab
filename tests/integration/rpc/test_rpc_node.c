/* A node among workers: as the place where they meet, and as a worker that offers the functions of a
 * module. */
#include <jansson.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>
#include "tests/integration/program.h"
#include "tests/integration/rpc/rpc_node_fixture.h"
#include "tests/test.h"
#include "tests/wait.h"

#define MEETING     "meeting.test"
#define NOBODY_IPV4 "10.99.0.77"

enum { LOOKUPS = 500, KEYS = 16, DIM = 4, LARGE = 1 << 18, LONG = 72 << 18, NODE = RPC_NODE_RANK };

/* ---- a place to meet ---- */

static void look_up(struct mr_client *client, uint32_t times)
{
    uint64_t keys[KEYS];
    uint32_t table;
    struct mr_feature feature = mr_feature_table("t", DIM);
    for (uint64_t i = 0; i < KEYS; i++)
        keys[i] = i;
    assert_int_equal(mr_create(client, NULL, &feature, 1, &table), MR_OK);
    for (uint32_t i = 0; i < times; i++) {
        struct mr_reply *rows;
        if (mr_lookup(client, NULL, table, keys, KEYS, &rows) != MR_OK)
            fail_msg("%s", mr_last_error());
        mr_reply_free(rows);
    }
}

TEST(workers_meet_at_a_node, rpc_node_set_up, rpc_node_tear_down)
{
    static const char *const settings[] = {"rpc.world_size=3", NULL};
    struct rpc_node *x = *state;
    rpc_node_start(x, settings, 3);
    rpc_workers_join(&x->workers, 0, 3);
    for (uint32_t from = 0; from < 3; from++) {
        rpc_workers_string(x->workers.rpcs[from], 0, "whoami", NULL, 0, "w0");
        rpc_workers_string(x->workers.rpcs[from], 1, "whoami", NULL, 0, "w1");
        rpc_workers_string(x->workers.rpcs[from], 2, "whoami", NULL, 0, "w2");
    }

    struct mr_client *client = node_fixture_connect(&x->node);

    look_up(client, LOOKUPS); /* the tables' clients are served at the same port */
    assert_int_equal(node_fixture_counter(client, 0, "rpc.members_joined"), 3);
    mr_client_destroy(client);
    rpc_workers_leave(&x->workers, MR_OK);
}

TEST(a_node_that_takes_no_part_says_so, rpc_node_set_up, rpc_node_tear_down)
{
    struct rpc_node *x = *state;
    struct mr_rpc_options options = {.rendezvous_is_node = true};
    struct mr_rpc *rpc;
    char error[512];
    rpc_node_start(x, NULL, 1);
    options.rendezvous = x->node.address;
    assert_int_equal(mr_rpc_init("w", 0, 1, &options, &rpc, error, sizeof(error)), MR_UNKNOWN_OP);
    assert_non_null(strstr(error, "set rpc.world_size in its configuration"));
}

/* ---- a worker with a module ---- */

TEST(functions_of_a_module_are_called, rpc_node_set_up, rpc_node_tear_down)
{
    struct rpc_node *x = *state;
    struct mr_value number = mr_value_i64(7);
    struct mr_rpc_worker info;
    rpc_node_start_worker(x, "rpc.world_size=3", NULL);
    rpc_workers_join(&x->workers, 1, 2);

    struct mr_rpc *rpc = x->workers.rpcs[0];

    assert_int_equal(mr_worker_by_name(rpc, "server", &info), MR_OK);
    assert_int_equal(info.rank, NODE);
    assert_true(info.is_node);
    assert_false(info.is_dead);
    for (uint32_t i = 0; i < x->workers.count; i++) {
        rpc_node_scale(x->workers.rpcs[i], 3);
        rpc_node_scale(x->workers.rpcs[i], LARGE);
    }
    assert_int_equal(rpc_workers_i64(rpc, NODE, "held", NULL, 0), 0);
    rpc_workers_refused(mr_rpc_sync(rpc, NODE, "refuse", &number, 1, NULL, NULL), MR_FUNCTION_FAILED,
                        "refuse on worker \"server\" (rank 0): 7 is not wanted");
    rpc_workers_refused(mr_rpc_sync(rpc, NODE, "scale", &number, 1, NULL, NULL), MR_WRONG_SIGNATURE,
                        "it was called with (i64), and takes (f32[...])");
    rpc_workers_refused(mr_rpc_sync(rpc, NODE, "nothing", NULL, 0, NULL, NULL), MR_UNKNOWN_FUNCTION,
                        "nothing on worker \"server\" (rank 0)");

    struct mr_client *client = node_fixture_connect(&x->node);

    assert_int_equal(node_fixture_counter(client, 0, "rpc.calls_served"), 8);
    assert_int_equal(node_fixture_counter(client, 0, "rpc.calls_failed"), 3);
    assert_int_equal(node_fixture_counter(client, 0, "rpc.calls_refused"), 2);
    mr_client_destroy(client);
    rpc_workers_leave(&x->workers, MR_OK);
}

/* Longer than a message of the transport's: 72 MiB there and back, and more than the node takes. */
TEST(a_node_takes_long_messages, rpc_node_set_up, rpc_node_tear_down)
{
    static float too_much[LONG + LARGE];
    struct rpc_node *x = *state;
    struct mr_value value = mr_value_tensor(mr_tensor_1d(MR_F32, LONG + LARGE, too_much));
    rpc_node_start_worker(x, "rpc.world_size=2", "rpc.message_mib_max=73");
    rpc_workers_join(&x->workers, 1, 1);
    rpc_node_scale(x->workers.rpcs[0], LONG);
    rpc_workers_refused(mr_rpc_sync(x->workers.rpcs[0], NODE, "scale", &value, 1, NULL, NULL), MR_TOO_LARGE,
                        "a message of 74 MiB came, and \"server\" takes at most 73 MiB");

    struct mr_client *client = node_fixture_connect(&x->node);

    assert_int_equal(node_fixture_counter(client, 0, "rpc.long_messages"), 1);
    WAIT_UNTIL(node_fixture_counter(client, 0, "rpc.long_bytes") == 0);
    mr_client_destroy(client);
    rpc_workers_leave(&x->workers, MR_OK);
}

TEST(a_node_calls_workers, rpc_node_set_up, rpc_node_tear_down)
{
    struct rpc_node *x = *state;
    rpc_node_start_worker(x, "rpc.world_size=3", NULL);
    rpc_workers_join(&x->workers, 1, 2);
    for (uint32_t from = 0; from < 2; from++) {
        for (uint32_t of = 1; of < 3; of++) {
            struct mr_value rank = mr_value_i64(of);
            char name[16];
            snprintf(name, sizeof(name), "w%u", of);
            rpc_workers_string(x->workers.rpcs[from], NODE, "ask", &rank, 1, name);
        }
    }
    rpc_workers_leave(&x->workers, MR_OK);
}

/* Gives the programs of this test a file of hosts of their own. */
static void name_meeting(void)
{
    char path[] = "/tmp/millrace-hosts-XXXXXX";
    static const char hosts[] =
        "127.0.0.1 localhost\n" NOBODY_IPV4 " " MEETING "\n" NETNS_CLIENT_IPV4 " " MEETING "\n";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, hosts, strlen(hosts)), strlen(hosts));
    assert_int_equal(close(fd), 0);
    assert_int_equal(unshare(CLONE_NEWNS), 0);
    assert_int_equal(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    assert_int_equal(mount(path, "/etc/hosts", NULL, MS_BIND, NULL), 0);
    assert_int_equal(unlink(path), 0);
}

/* It is no rendezvous: it finds the others by itself, at the second address of their name, and they find
 * it. */
TEST(a_node_joins_workers_elsewhere, rpc_node_set_up, rpc_node_tear_down)
{
    static const char meeting[] = NETNS_CLIENT_IPV4 ":7800";
    static char with_module[1024];
    static const char elsewhere[] = "rpc.rendezvous=" MEETING ":7800";
    const char *const settings[] = {"rpc.world_size=3", "rpc.name=server", "rpc.rank=2",
                                    elsewhere,          with_module,       NULL};
    struct rpc_node *x = *state;
    name_meeting();
    snprintf(with_module, sizeof(with_module), "rpc.module=%s 2.5", rpc_node_module);
    rpc_node_start(x, settings, 3);
    x->workers.rendezvous = meeting;
    x->workers.meet_at_first = true;
    rpc_workers_join(&x->workers, 0, 2);
    for (uint32_t from = 0; from < 2; from++) {
        for (uint32_t of = 0; of < 2; of++) {
            struct mr_value rank = mr_value_i64(of);
            char name[16];
            snprintf(name, sizeof(name), "w%u", of);
            rpc_workers_string(x->workers.rpcs[from], 2, "ask", &rank, 1, name);
        }
    }

    struct mr_client *client = node_fixture_connect(&x->node);

    look_up(client, 1);
    assert_int_equal(node_fixture_counter(client, 0, "rpc.calls_made"), 4);
    mr_client_destroy(client);
    rpc_workers_leave(&x->workers, MR_OK);
}

/* ---- functions that take long ---- */

/* All its threads are taken, and core 0 serves as before: lookups, and functions that run on it. */
TEST(functions_that_block_delay_no_core, rpc_node_set_up, rpc_node_tear_down)
{
    enum { HELD = 2 };
    struct rpc_node *x = *state;
    struct mr_rpc_future *futures[HELD];

    rpc_node_start_worker(x, "rpc.world_size=2", "rpc.threads=2");
    rpc_workers_join(&x->workers, 1, 1);
    rpc_node_hold(x, HELD, futures);

    struct mr_client *client = node_fixture_connect(&x->node);

    look_up(client, LOOKUPS);
    assert_int_equal(rpc_workers_i64(x->workers.rpcs[0], NODE, "held", NULL, 0), HELD);
    assert_int_equal(node_fixture_counter(client, 0, "rpc.functions_running"), HELD);
    mr_client_destroy(client);
    rpc_node_open_gate(x);
    rpc_node_let_go(HELD, futures);
    rpc_workers_leave(&x->workers, MR_OK);
}

/* Where there is more than one. */
TEST(functions_keep_off_the_cores, rpc_node_set_up, rpc_node_tear_down)
{
    struct rpc_node *x = *state;
    char cpus[64];
    cpu_set_t set;
    uint32_t used = 0, at = 0;
    assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
    if ((uint32_t)CPU_COUNT(&set) <= rpc_node_cores)
        skip();

    int taken[DIM] = {0};

    at = (uint32_t)snprintf(cpus, sizeof(cpus), "cores.cpus=");
    for (int cpu = 0; used < rpc_node_cores; cpu++) {
        if (CPU_ISSET((size_t)cpu, &set)) {
            at += (uint32_t)snprintf(cpus + at, sizeof(cpus) - at, "%s%d", used == 0 ? "" : ",", cpu);
            taken[used++] = cpu;
        }
    }
    rpc_node_start_worker(x, "rpc.world_size=2", cpus);
    rpc_workers_join(&x->workers, 1, 1);
    for (uint32_t i = 0; i < rpc_node_cores; i++) {
        struct mr_value cpu = mr_value_i64(taken[i]);
        assert_int_equal(rpc_workers_i64(x->workers.rpcs[0], NODE, "may_run_on", &cpu, 1), 0);
    }
    rpc_workers_leave(&x->workers, MR_OK);
}

/* ---- what is reported of it ---- */

static int64_t number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value))
        fail_msg("no number \"%s\"", key);
    return json_integer_value(value);
}

static void expect_member(const json_t *world, size_t rank, const char *name, bool is_node, const char *is)
{
    const json_t *member = json_array_get(json_object_get(world, "members"), rank);
    assert_int_equal(number(member, "rank"), rank);
    assert_string_equal(json_string_value(json_object_get(member, "name")), name);
    assert_string_equal(json_string_value(json_object_get(member, "state")), is);
    assert_int_equal(json_is_true(json_object_get(member, "node")), is_node);
    if (name[0] != 0 && !is_node)
        assert_memory_equal(json_string_value(json_object_get(member, "address")), NETNS_CLIENT_IPV4 ":", 10);
}

static json_t *ctl_rpc(struct rpc_node *x)
{
    struct program_result result;
    json_error_t error;
    program_run(&x->node.net, NETNS_CLIENT, &result, "%s ctl rpc --json --server %s", rpc_node_millrace,
                x->node.address);
    program_expect(&result, 0, "");

    json_t *world = json_loads(result.out, 0, &error);

    if (world == NULL)
        fail_msg("%s: %s", error.text, result.out);
    return world;
}

static void expect_said(struct rpc_node *x, const char *says)
{
    struct program_result result;
    program_run(&x->node.net, NETNS_CLIENT, &result, "%s ctl rpc --server %s", rpc_node_millrace,
                x->node.address);
    program_expect(&result, 0, "");
    if (strstr(result.out, says) == NULL)
        fail_msg("\"%s\" is not in:\n%s", says, result.out);
}

TEST(ctl_tells_of_the_world, rpc_node_set_up, rpc_node_tear_down)
{
    struct rpc_node *x = *state;
    struct mr_rpc_future *future;
    struct mr_value rank = mr_value_i64(1);
    rpc_node_start_worker(x, "rpc.world_size=3", "rpc.threads=2");

    json_t *world = ctl_rpc(x);

    assert_true(json_is_false(json_object_get(world, "complete")));
    assert_int_equal(number(world, "joined"), 1);
    expect_member(world, 0, "server", true, "alive");
    expect_member(world, 1, "", false, "missing");
    json_decref(world);

    rpc_workers_join(&x->workers, 1, 2);
    rpc_node_hold(x, 1, &future);
    rpc_workers_string(x->workers.rpcs[0], NODE, "ask", &rank, 1, "w1");
    rpc_workers_refused(mr_rpc_sync(x->workers.rpcs[0], NODE, "refuse", &rank, 1, NULL, NULL),
                        MR_FUNCTION_FAILED, "refuse");
    world = ctl_rpc(x);
    assert_true(json_is_true(json_object_get(world, "complete")));
    assert_true(json_is_true(json_object_get(world, "worker")));
    assert_int_equal(number(world, "rank"), 0);
    assert_int_equal(number(world, "world_size"), 3);
    assert_int_equal(number(world, "joined"), 3);
    assert_int_equal(number(world, "threads_max"), 2);
    assert_int_equal(number(world, "functions_running"), 1);
    assert_int_equal(number(world, "calls_failed"), 1);
    assert_int_equal(number(world, "calls_refused"), 0);
    assert_int_equal(number(world, "calls_made"), 1);
    assert_int_equal(number(world, "calls_under_way"), 0);
    assert_int_equal(number(world, "values_owned"), 0);
    assert_int_equal(json_array_size(json_object_get(world, "members")), 3);
    expect_member(world, 2, "w2", false, "alive");
    json_decref(world);
    expect_said(x, "3 of 3 workers have joined");
    expect_said(x, "  scale(f32[...]) -> f32[...]\n");
    expect_said(x, "   0  server                   (this node)              alive   node, rendezvous\n");
    rpc_node_open_gate(x);
    rpc_node_let_go(1, &future);
    rpc_workers_leave(&x->workers, MR_OK);
}

TEST(ctl_tells_that_there_is_no_world, rpc_node_set_up, rpc_node_tear_down)
{
    struct rpc_node *x = *state;
    struct program_result result;
    rpc_node_start(x, NULL, 1);
    program_run(&x->node.net, NETNS_CLIENT, &result, "%s ctl rpc --server %s", rpc_node_millrace,
                x->node.address);
    program_expect(&result, 1, "this node takes no part in remote calls: set rpc.world_size");
}

/* ---- mistakes ---- */

static void expect_refused(struct rpc_node *x, int code, const char *says, const char *format, ...)
{
    struct program_result result;
    char options[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(options, sizeof(options), format, list);
    va_end(list);
    program_run(&x->node.net, NETNS_SERVER, &result, "%s --config %s %s", node_fixture_server, x->node.config,
                options);
    program_expect(&result, code, says);
}

TEST(modules_that_do_not_load_keep_the_node_from_starting, rpc_node_set_up, rpc_node_tear_down)
{
    static const char worker[] = "--set rpc.world_size=2 --set rpc.name=server";
    struct rpc_node *x = *state;
    rpc_node_start(x, NULL, 1);
    node_fixture_kill(&x->node);
    expect_refused(x, 1, "there is no such file that can be read (/nowhere/m.so): name a shared object",
                   "%s --set rpc.module=/nowhere/m.so", worker);
    expect_refused(x, 1, "/millrace/nowhere.so)", "%s --set rpc.module=nowhere.so", worker);
    expect_refused(x, 1, "it cannot be loaded: ", "%s --set rpc.module=%s", worker, x->node.config);
    expect_refused(x, 1, "it is no module: it has no function millrace_module_init (see millrace_rpc.h)",
                   "%s --set rpc.module=%s", worker, rpc_node_no_module);
    expect_refused(x, 1,
                   "its start failed: it takes a number, by which \"scale\" multiplies; fix its arguments "
                   "(\"two\"), or take the line out",
                   "%s --set 'rpc.module=%s two'", worker, rpc_node_module);
    expect_refused(x, 1, "function \"scale\": a function of that name is registered already",
                   "%s --set rpc.module=%s --set rpc.module=%s", worker, rpc_node_module, rpc_node_module);
    expect_refused(x, 2, "--set: rpc.module: the node offers functions only as a worker: give it a name",
                   "--set rpc.world_size=2 --set rpc.module=%s", rpc_node_module);
    node_fixture_restart(&x->node);
}

int main(int argc, char **argv)
{
    if (!rpc_node_arguments(argc, argv))
        return 2;
    return tests_run(NULL, NULL);
}
