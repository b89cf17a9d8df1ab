/* A node among workers: as the place where they meet, and as a worker that offers the functions of a module. */
#include <jansson.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "tests/integration/node_fixture.h"
#include "tests/integration/program.h"
#include "tests/integration/rpc_workers.h"

enum { LOOKUPS = 500, KEYS = 16, DIM = 4, LARGE = 1 << 18, NODE = 0 };

#define NOT_BY_TIME_MS 3600000u /* so long a silence that it is not what a test has seen */

static const char *module, *no_module, *millrace;
static uint32_t cores;

struct fixture {
    struct node_fixture node;
    struct rpc_workers workers;
    char gate[NODE_PATH_BYTES + 16]; /* file for which held functions wait */
};

static void start(struct fixture *x, const char *const *settings, uint32_t world_size)
{
    *x = (struct fixture){.workers = {.world_size = world_size}};
    node_fixture_start(&x->node, cores, settings);
    x->workers.rendezvous = x->node.address;
    snprintf(x->gate, sizeof x->gate, "%s/gate", x->node.directory);
}

/* The node is rank 0 of that many workers, and has the module. */
static void start_worker(struct fixture *x, const char *world_size, const char *more)
{
    static char with_module[1024];
    const char *const settings[] = {world_size, "rpc.name=server", "rpc.rank=0", with_module, more, NULL};

    snprintf(with_module, sizeof with_module, "rpc.module=%s 2.5", module);
    start(x, settings, (uint32_t)strtoul(strchr(world_size, '=') + 1, NULL, 10));
}

static void open_gate(const struct fixture *x)
{
    FILE *file = fopen(x->gate, "w");

    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
}

/* A node ends no function that runs: those of a test that failed must end by themselves. */
static int tear_down(void **state)
{
    struct fixture *x = *state;

    if (x->workers.world_size > 0) { /* else it was skipped */
        open_gate(x);
        node_fixture_stop(&x->node);
    }
    free(x);
    return 0;
}

static int set_up(void **state)
{
    *state = calloc(1, sizeof(struct fixture));
    return *state == NULL;
}

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

static void workers_meet_at_a_node(void **state)
{
    static const char *const settings[] = {"rpc.world_size=3", NULL};
    struct fixture *x = *state;

    start(x, settings, 3);
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

static void a_node_that_takes_no_part_says_so(void **state)
{
    struct fixture *x = *state;
    struct mr_rpc_options options = {.rendezvous_is_node = true};
    struct mr_rpc *rpc;
    char error[512];

    start(x, NULL, 1);
    options.rendezvous = x->node.address;
    assert_int_equal(mr_rpc_init("w", 0, 1, &options, &rpc, error, sizeof error), MR_UNKNOWN_OP);
    assert_non_null(strstr(error, "set rpc.world_size in its configuration"));
}

/* ---- a worker with a module ---- */

static void call_with_tensor(struct mr_rpc *rpc, uint32_t elements)
{
    float *in = calloc(elements, sizeof *in);
    struct mr_value argument = mr_value_tensor(mr_tensor_1d(MR_F32, elements, in));
    struct mr_rpc_result *result;

    assert_non_null(in);
    for (uint32_t i = 0; i < elements; i++)
        in[i] = (float)i;
    if (mr_rpc_sync(rpc, NODE, "scale", &argument, 1, NULL, &result) != MR_OK)
        fail_msg("%s", mr_rpc_last_error());

    const struct mr_tensor *out = &mr_rpc_result_value(result, 0)->tensor;

    assert_int_equal(out->bytes, elements * sizeof(float));
    for (uint32_t i = 0; i < elements; i++)
        assert_float_equal(((const float *)out->data)[i], 2.5F * (float)i, 0);
    mr_rpc_result_free(result);
    free(in);
}

static void functions_of_a_module_are_called(void **state)
{
    struct fixture *x = *state;
    struct mr_value number = mr_value_i64(7);
    struct mr_rpc_worker info;

    start_worker(x, "rpc.world_size=3", NULL);
    rpc_workers_join(&x->workers, 1, 2);

    struct mr_rpc *rpc = x->workers.rpcs[0];

    assert_int_equal(mr_worker_by_name(rpc, "server", &info), MR_OK);
    assert_int_equal(info.rank, NODE);
    assert_true(info.is_node);
    assert_false(info.is_dead);
    for (uint32_t i = 0; i < x->workers.count; i++) {
        call_with_tensor(x->workers.rpcs[i], 3);
        call_with_tensor(x->workers.rpcs[i], LARGE);
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

static void a_node_calls_workers(void **state)
{
    struct fixture *x = *state;

    start_worker(x, "rpc.world_size=3", NULL);
    rpc_workers_join(&x->workers, 1, 2);
    for (uint32_t from = 0; from < 2; from++) {
        for (uint32_t of = 1; of < 3; of++) {
            struct mr_value rank = mr_value_i64(of);
            char name[16];

            snprintf(name, sizeof name, "w%u", of);
            rpc_workers_string(x->workers.rpcs[from], NODE, "ask", &rank, 1, name);
        }
    }
    rpc_workers_leave(&x->workers, MR_OK);
}

/* It is no rendezvous: it finds the others by itself, and they find it. */
static void a_node_joins_workers_elsewhere(void **state)
{
    static const char meeting[] = NETNS_CLIENT_IPV4 ":7800";
    static char with_module[1024];
    static const char elsewhere[] = "rpc.rendezvous=" NETNS_CLIENT_IPV4 ":7800";
    const char *const settings[] = {"rpc.world_size=3", "rpc.name=server", "rpc.rank=2",
                                    elsewhere,          with_module,       NULL};
    struct fixture *x = *state;

    snprintf(with_module, sizeof with_module, "rpc.module=%s 2.5", module);
    start(x, settings, 3);
    x->workers.rendezvous = meeting;
    x->workers.meet_at_first = true;
    rpc_workers_join(&x->workers, 0, 2);
    for (uint32_t from = 0; from < 2; from++) {
        for (uint32_t of = 0; of < 2; of++) {
            struct mr_value rank = mr_value_i64(of);
            char name[16];

            snprintf(name, sizeof name, "w%u", of);
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

static void start_holding(struct fixture *x, uint32_t count, struct mr_rpc_future **futures)
{
    const struct mr_rpc_call_options options = {.timeout_ms = UINT32_MAX};
    struct mr_value gate = mr_value_string(x->gate);

    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(mr_rpc_async(x->workers.rpcs[0], NODE, "hold", &gate, 1, &options, &futures[i]),
                         MR_OK);
    while (rpc_workers_i64(x->workers.rpcs[0], NODE, "held", NULL, 0) < count)
        ;
}

static void end_holding(uint32_t count, struct mr_rpc_future **futures)
{
    for (uint32_t i = 0; i < count; i++) {
        struct mr_rpc_result *result;

        if (mr_rpc_wait(futures[i], &result) != MR_OK)
            fail_msg("%s", mr_rpc_last_error());
        assert_string_equal(mr_rpc_result_value(result, 0)->string.text, "let go");
        mr_rpc_result_free(result);
        mr_rpc_future_destroy(futures[i]);
    }
}

/* All its threads are taken, and core 0 serves as before: lookups, and functions that run on it. */
static void functions_that_block_delay_no_core(void **state)
{
    enum { HELD = 2 };
    struct fixture *x = *state;
    struct mr_rpc_future *futures[HELD];

    start_worker(x, "rpc.world_size=2", "rpc.threads=2");
    rpc_workers_join(&x->workers, 1, 1);
    start_holding(x, HELD, futures);

    struct mr_client *client = node_fixture_connect(&x->node);

    look_up(client, LOOKUPS);
    assert_int_equal(rpc_workers_i64(x->workers.rpcs[0], NODE, "held", NULL, 0), HELD);
    assert_int_equal(node_fixture_counter(client, 0, "rpc.functions_running"), HELD);
    mr_client_destroy(client);
    open_gate(x);
    end_holding(HELD, futures);
    rpc_workers_leave(&x->workers, MR_OK);
}

/* Where there is more than one. */
static void functions_keep_off_the_cores(void **state)
{
    struct fixture *x = *state;
    char cpus[64];
    cpu_set_t set;
    uint32_t used = 0, at = 0;

    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    if ((uint32_t)CPU_COUNT(&set) <= cores)
        skip();

    int taken[DIM] = {0};

    at = (uint32_t)snprintf(cpus, sizeof cpus, "cores.cpus=");
    for (int cpu = 0; used < cores; cpu++) {
        if (CPU_ISSET((size_t)cpu, &set)) {
            at += (uint32_t)snprintf(cpus + at, sizeof cpus - at, "%s%d", used == 0 ? "" : ",", cpu);
            taken[used++] = cpu;
        }
    }
    start_worker(x, "rpc.world_size=2", cpus);
    rpc_workers_join(&x->workers, 1, 1);
    for (uint32_t i = 0; i < cores; i++) {
        struct mr_value cpu = mr_value_i64(taken[i]);

        assert_int_equal(rpc_workers_i64(x->workers.rpcs[0], NODE, "may_run_on", &cpu, 1), 0);
    }
    rpc_workers_leave(&x->workers, MR_OK);
}

/* ---- one world after the other ---- */

static void a_world_follows_another(void **state)
{
    struct fixture *x = *state;

    start_worker(x, "rpc.world_size=3", NULL);
    for (uint32_t world = 1; world <= 3; world++) {
        rpc_workers_join(&x->workers, 1, 2);
        call_with_tensor(x->workers.rpcs[0], 3);
        assert_int_equal(rpc_workers_i64(x->workers.rpcs[1], NODE, "lives", NULL, 0),
                         100 * world + world - 1); /* the module is started anew for each */
        rpc_workers_leave(&x->workers, MR_OK);
    }
}

static void a_world_follows_one_that_died(void **state)
{
    static const char *const settings[] = {"rpc.world_size=2", "rpc.dead_after_ms=5000", NULL};
    struct fixture *x = *state;
    int status;

    start(x, settings, 2);

    pid_t pids[2] = {rpc_workers_fork(&x->workers, 0), rpc_workers_fork(&x->workers, 1)};
    struct mr_client *client = node_fixture_connect(&x->node);

    while (node_fixture_counter(client, 0, "rpc.members_joined") < 2)
        ;
    mr_client_destroy(client);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(kill(pids[i], SIGKILL), 0);
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
    }
    usleep(2000000); /* who comes at once is told that his rank is taken */
    rpc_workers_join(&x->workers, 0, 2);
    rpc_workers_string(x->workers.rpcs[0], 1, "whoami", NULL, 0, "w1");
    rpc_workers_leave(&x->workers, MR_OK);
}

/* Those of the world before may still have something under way there. */
static void what_runs_ends_before_the_next_world(void **state)
{
    struct fixture *x = *state;
    const struct mr_rpc_call_options options = {.timeout_ms = 100};
    struct mr_value gate;

    start_worker(x, "rpc.world_size=2", NULL);
    gate = mr_value_string(x->gate);
    rpc_workers_join(&x->workers, 1, 1);
    rpc_workers_refused(mr_rpc_sync(x->workers.rpcs[0], NODE, "hold", &gate, 1, &options, NULL),
                        MR_DEADLINE_EXCEEDED, "hold on worker \"server\" (rank 0)");
    rpc_workers_leave(&x->workers, MR_OK);
    open_gate(x);
    rpc_workers_join(&x->workers, 1, 1);
    assert_int_equal(rpc_workers_i64(x->workers.rpcs[0], NODE, "held", NULL, 0), 0);
    assert_int_equal(rpc_workers_i64(x->workers.rpcs[0], NODE, "lives", NULL, 0), 201);
    rpc_workers_leave(&x->workers, MR_OK);
}

/* ---- what is told of it ---- */

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

static json_t *ctl_rpc(struct fixture *x)
{
    struct program_result result;
    json_error_t error;

    program_run(&x->node.net, NETNS_CLIENT, &result, "%s ctl rpc --json --server %s", millrace,
                x->node.address);
    program_expect(&result, 0, "");

    json_t *world = json_loads(result.out, 0, &error);

    if (world == NULL)
        fail_msg("%s: %s", error.text, result.out);
    return world;
}

static void expect_said(struct fixture *x, const char *says)
{
    struct program_result result;

    program_run(&x->node.net, NETNS_CLIENT, &result, "%s ctl rpc --server %s", millrace, x->node.address);
    program_expect(&result, 0, "");
    if (strstr(result.out, says) == NULL)
        fail_msg("\"%s\" is not in:\n%s", says, result.out);
}

static void ctl_tells_of_the_world(void **state)
{
    struct fixture *x = *state;
    struct mr_rpc_future *future;
    struct mr_value rank = mr_value_i64(1);

    start_worker(x, "rpc.world_size=3", "rpc.threads=2");

    json_t *world = ctl_rpc(x);

    assert_true(json_is_false(json_object_get(world, "complete")));
    assert_int_equal(number(world, "joined"), 1);
    expect_member(world, 0, "server", true, "alive");
    expect_member(world, 1, "", false, "missing");
    json_decref(world);

    rpc_workers_join(&x->workers, 1, 2);
    start_holding(x, 1, &future);
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
    open_gate(x);
    end_holding(1, &future);
    rpc_workers_leave(&x->workers, MR_OK);
}

static void ctl_tells_that_there_is_no_world(void **state)
{
    struct fixture *x = *state;
    struct program_result result;

    start(x, NULL, 1);
    program_run(&x->node.net, NETNS_CLIENT, &result, "%s ctl rpc --server %s", millrace, x->node.address);
    program_expect(&result, 1, "this node takes no part in remote calls: set rpc.world_size");
}

/* ---- ends ---- */

static void stop_signal(const struct fixture *x)
{
    assert_int_equal(kill(x->node.server.pid, SIGTERM), 0);
}

/* What runs is run to its end and answered, nothing else begins, and the others are told. */
static void a_node_that_is_stopped_ends_what_it_runs(void **state)
{
    struct fixture *x = *state;
    struct mr_rpc_future *future;
    enum mr_status status;

    start_worker(x, "rpc.world_size=3", "rpc.dead_after_ms=3600000");
    x->workers.dead_after_ms = NOT_BY_TIME_MS;
    rpc_workers_join(&x->workers, 1, 2);
    start_holding(x, 1, &future);
    stop_signal(x);
    do { /* until it has heard the signal */
        status = mr_rpc_sync(x->workers.rpcs[1], NODE, "held", NULL, 0, NULL, NULL);
    } while (status == MR_OK);
    rpc_workers_refused(status, MR_SHUTTING_DOWN, "held on worker \"server\" (rank 0)");
    open_gate(x);
    end_holding(1, &future);
    for (uint32_t i = 0; i < 2; i++) {
        do { /* until we have heard its farewell */
            status = mr_rpc_sync(x->workers.rpcs[i], NODE, "held", NULL, 0, NULL, NULL);
        } while (status == MR_SHUTTING_DOWN);
        rpc_workers_refused(status, MR_WORKER_DIED, "worker \"server\" (rank 0)");
    }
    rpc_workers_string(x->workers.rpcs[0], 2, "whoami", NULL, 0, "w2"); /* the rest goes on */
    assert_int_equal(netns_end(&x->node.server, 0), 0);
    rpc_workers_leave(&x->workers, MR_WORKER_DIED); /* without the rendezvous */
    node_fixture_restart(&x->node);
}

/* Which calls others until then. */
static void a_module_ends_its_threads_before_the_node(void **state)
{
    struct fixture *x = *state;
    struct mr_value rank = mr_value_i64(1);

    start_worker(x, "rpc.world_size=2", NULL);
    rpc_workers_join(&x->workers, 1, 1);
    if (mr_rpc_sync(x->workers.rpcs[0], NODE, "begin_calling", &rank, 1, NULL, NULL) != MR_OK)
        fail_msg("%s", mr_rpc_last_error());
    rpc_workers_string(x->workers.rpcs[0], NODE, "ask", &rank, 1, "w1");
    stop_signal(x);
    assert_int_equal(netns_end(&x->node.server, 0), 0);
    rpc_workers_leave(&x->workers, MR_WORKER_DIED);
    node_fixture_restart(&x->node);
}

/* Calls under way and new ones name it; then it comes back, and a new world meets there. */
static void a_node_that_is_killed_is_named(void **state)
{
    struct fixture *x = *state;
    struct mr_rpc_future *future;
    struct mr_rpc_result *result;

    start_worker(x, "rpc.world_size=3", NULL);
    x->workers.dead_after_ms = 5000;
    rpc_workers_join(&x->workers, 1, 2);
    start_holding(x, 1, &future);
    node_fixture_kill(&x->node);
    rpc_workers_refused(mr_rpc_wait(future, &result), MR_WORKER_DIED, "hold on worker \"server\" (rank 0)");
    mr_rpc_future_destroy(future);
    rpc_workers_refused(mr_rpc_sync(x->workers.rpcs[0], NODE, "held", NULL, 0, NULL, NULL), MR_WORKER_DIED,
                        "worker \"server\" (rank 0)");
    rpc_workers_string(x->workers.rpcs[0], 2, "whoami", NULL, 0, "w2");
    rpc_workers_leave(&x->workers, MR_WORKER_DIED);

    node_fixture_restart(&x->node);
    rpc_workers_join(&x->workers, 1, 2);
    call_with_tensor(x->workers.rpcs[0], 3);
    rpc_workers_leave(&x->workers, MR_OK);
}

/* One that is restarted before its silence was noticed is another, and knows nothing of the world. */
static void a_node_that_is_restarted_is_another(void **state)
{
    struct fixture *x = *state;
    struct mr_rpc_future *future;
    struct mr_rpc_result *result;

    start_worker(x, "rpc.world_size=2", NULL);
    x->workers.dead_after_ms = NOT_BY_TIME_MS;
    rpc_workers_join(&x->workers, 1, 1);
    start_holding(x, 1, &future);
    node_fixture_kill(&x->node);
    node_fixture_restart(&x->node);
    rpc_workers_refused(mr_rpc_wait(future, &result), MR_WORKER_DIED, "hold on worker \"server\" (rank 0)");
    mr_rpc_future_destroy(future);
    rpc_workers_leave(&x->workers, MR_WORKER_DIED);
}

static void a_worker_that_dies_is_named_by_the_node(void **state)
{
    struct fixture *x = *state;
    struct mr_value rank = mr_value_i64(1);
    int status;

    start_worker(x, "rpc.world_size=3", "rpc.dead_after_ms=5000");

    pid_t pid = rpc_workers_fork(&x->workers, 1);

    rpc_workers_join(&x->workers, 2, 1);
    rpc_workers_string(x->workers.rpcs[0], NODE, "ask", &rank, 1, "w1");
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    rpc_workers_refused(mr_rpc_sync(x->workers.rpcs[0], NODE, "ask", &rank, 1, NULL, NULL),
                        MR_FUNCTION_FAILED, "ask on worker \"server\" (rank 0): WORKER_DIED: ");
    assert_non_null(strstr(mr_rpc_last_error(), "worker \"w1\" (rank 1)"));
    rpc_workers_leave(&x->workers, MR_OK);
}

/* ---- mistakes ---- */

static void expect_refused(struct fixture *x, int code, const char *says, const char *format, ...)
{
    struct program_result result;
    char options[1024];
    va_list list;

    va_start(list, format);
    vsnprintf(options, sizeof options, format, list);
    va_end(list);
    program_run(&x->node.net, NETNS_SERVER, &result, "%s --config %s %s", node_fixture_server, x->node.config,
                options);
    program_expect(&result, code, says);
}

static void modules_that_do_not_load_keep_the_node_from_starting(void **state)
{
    static const char worker[] = "--set rpc.world_size=2 --set rpc.name=server";
    struct fixture *x = *state;

    start(x, NULL, 1);
    node_fixture_kill(&x->node);
    expect_refused(x, 1, "there is no such file that can be read (/nowhere/m.so): name a shared object",
                   "%s --set rpc.module=/nowhere/m.so", worker);
    expect_refused(x, 1, "/millrace/nowhere.so)", "%s --set rpc.module=nowhere.so", worker);
    expect_refused(x, 1, "it cannot be loaded: ", "%s --set rpc.module=%s", worker, x->node.config);
    expect_refused(x, 1, "it is no module: it has no function millrace_module_init (see millrace_rpc.h)",
                   "%s --set rpc.module=%s", worker, no_module);
    expect_refused(x, 1,
                   "its start failed: it takes a number, by which \"scale\" multiplies; mend its arguments "
                   "(\"two\"), or take the line out",
                   "%s --set 'rpc.module=%s two'", worker, module);
    expect_refused(x, 1, "function \"scale\": a function of that name is registered already",
                   "%s --set rpc.module=%s --set rpc.module=%s", worker, module, module);
    expect_refused(x, 2, "--set: rpc.module: the node offers functions only as a worker: give it a name",
                   "--set rpc.world_size=2 --set rpc.module=%s", module);
    node_fixture_restart(&x->node);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(workers_meet_at_a_node, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_node_that_takes_no_part_says_so, set_up, tear_down),
        cmocka_unit_test_setup_teardown(functions_of_a_module_are_called, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_node_calls_workers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_node_joins_workers_elsewhere, set_up, tear_down),
        cmocka_unit_test_setup_teardown(functions_that_block_delay_no_core, set_up, tear_down),
        cmocka_unit_test_setup_teardown(functions_keep_off_the_cores, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_world_follows_another, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_world_follows_one_that_died, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_runs_ends_before_the_next_world, set_up, tear_down),
        cmocka_unit_test_setup_teardown(ctl_tells_of_the_world, set_up, tear_down),
        cmocka_unit_test_setup_teardown(ctl_tells_that_there_is_no_world, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_node_that_is_stopped_ends_what_it_runs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_module_ends_its_threads_before_the_node, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_node_that_is_killed_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_node_that_is_restarted_is_another, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_worker_that_dies_is_named_by_the_node, set_up, tear_down),
        cmocka_unit_test_setup_teardown(modules_that_do_not_load_keep_the_node_from_starting, set_up,
                                        tear_down),
    };

    if (argc != 6) {
        fprintf(stderr, "usage: test_rpc_node MILLRACED MODULE NO_MODULE MILLRACE CORES\n");
        return 2;
    }
    node_fixture_server = argv[1];
    module = argv[2];
    no_module = argv[3];
    millrace = argv[4];
    cores = (uint32_t)strtoul(argv[5], NULL, 10);
    netns_require_root();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
