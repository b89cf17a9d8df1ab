/* Ends: of a node that is stopped, killed or restarted, of workers, and of their worlds. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include "tests/integration/rpc/rpc_node_fixture.h"
#include "tests/test.h"
#include "tests/wait.h"

enum { NODE = RPC_NODE_RANK };

#define NOT_BY_TIME_MS 3600000u /* so long a silence that it is not what a test has seen */

/* ---- ends ---- */

static void stop_signal(const struct rpc_node *x)
{
    assert_int_equal(kill(x->node.server.pid, SIGTERM), 0);
}

/* What runs is run to its end and answered, nothing else begins, and it is reported to the others. */
TEST(a_node_that_is_stopped_ends_what_it_runs, rpc_node_set_up, rpc_node_tear_down)
{
    struct rpc_node *x = *state;
    struct mr_rpc_future *future;
    enum mr_status status;
    rpc_node_start_worker(x, "rpc.world_size=3", "rpc.dead_after_ms=3600000");
    x->workers.dead_after_ms = NOT_BY_TIME_MS;
    rpc_workers_join(&x->workers, 1, 2);
    rpc_node_hold(x, 1, &future);
    stop_signal(x);
    do { /* until it has heard the signal */
        status = mr_rpc_sync(x->workers.rpcs[1], NODE, "held", NULL, 0, NULL, NULL);
    } while (status == MR_OK);
    rpc_workers_refused(status, MR_SHUTTING_DOWN, "held on worker \"server\" (rank 0)");
    rpc_node_open_gate(x);
    rpc_node_let_go(1, &future);
    for (uint32_t i = 0; i < 2; i++) {
        do { /* until we have heard its goodbye */
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
TEST(a_module_ends_its_threads_before_the_node, rpc_node_set_up, rpc_node_tear_down)
{
    struct rpc_node *x = *state;
    struct mr_value rank = mr_value_i64(1);
    rpc_node_start_worker(x, "rpc.world_size=2", NULL);
    rpc_workers_join(&x->workers, 1, 1);
    if (mr_rpc_sync(x->workers.rpcs[0], NODE, "begin_calling", &rank, 1, NULL, NULL) != MR_OK)
        fail_msg("%s", mr_rpc_last_error());
    rpc_workers_string(x->workers.rpcs[0], NODE, "ask", &rank, 1, "w1");
    stop_signal(x);
    assert_int_equal(netns_end(&x->node.server, 0), 0);
    rpc_workers_leave(&x->workers, MR_WORKER_DIED);
    node_fixture_restart(&x->node);
}

/* Calls in flight and new ones name it; then it comes back, and a new world meets there. */
TEST(a_node_that_is_killed_is_named, rpc_node_set_up, rpc_node_tear_down)
{
    struct rpc_node *x = *state;
    struct mr_rpc_future *future;
    struct mr_rpc_result *result;
    rpc_node_start_worker(x, "rpc.world_size=3", NULL);
    rpc_workers_join(&x->workers, 1, 2);
    rpc_node_hold(x, 1, &future);
    node_fixture_kill(&x->node);
    rpc_workers_refused(mr_rpc_wait(future, &result), MR_WORKER_DIED, "hold on worker \"server\" (rank 0)");
    mr_rpc_future_destroy(future);
    rpc_workers_refused(mr_rpc_sync(x->workers.rpcs[0], NODE, "held", NULL, 0, NULL, NULL), MR_WORKER_DIED,
                        "worker \"server\" (rank 0)");
    rpc_workers_string(x->workers.rpcs[0], 2, "whoami", NULL, 0, "w2");
    rpc_workers_leave(&x->workers, MR_WORKER_DIED);

    node_fixture_restart(&x->node);
    rpc_workers_join(&x->workers, 1, 2);
    rpc_node_scale(x->workers.rpcs[0], 3);
    rpc_workers_leave(&x->workers, MR_OK);
}

/* One that is restarted before its silence was noticed is another, and knows nothing of the world. */
TEST(a_node_that_is_restarted_is_another, rpc_node_set_up, rpc_node_tear_down)
{
    struct rpc_node *x = *state;
    struct mr_rpc_future *future;
    struct mr_rpc_result *result;
    rpc_node_start_worker(x, "rpc.world_size=2", NULL);
    x->workers.dead_after_ms = NOT_BY_TIME_MS;
    rpc_workers_join(&x->workers, 1, 1);
    rpc_node_hold(x, 1, &future);
    node_fixture_kill(&x->node);
    node_fixture_restart(&x->node);
    rpc_workers_refused(mr_rpc_wait(future, &result), MR_WORKER_DIED, "hold on worker \"server\" (rank 0)");
    mr_rpc_future_destroy(future);
    rpc_workers_leave(&x->workers, MR_WORKER_DIED);
}

TEST(a_worker_that_dies_is_named_by_the_node, rpc_node_set_up, rpc_node_tear_down)
{
    struct rpc_node *x = *state;
    struct mr_value rank = mr_value_i64(1);
    int status;
    rpc_node_start_worker(x, "rpc.world_size=3", NULL);

    pid_t pid = rpc_workers_fork(&x->workers, 1, NULL);

    rpc_workers_join(&x->workers, 2, 1);
    rpc_workers_string(x->workers.rpcs[0], NODE, "ask", &rank, 1, "w1");
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    rpc_workers_refused(mr_rpc_sync(x->workers.rpcs[0], NODE, "ask", &rank, 1, NULL, NULL),
                        MR_FUNCTION_FAILED, "ask on worker \"server\" (rank 0): WORKER_DIED: ");
    assert_non_null(strstr(mr_rpc_last_error(), "worker \"w1\" (rank 1)"));
    rpc_workers_leave(&x->workers, MR_OK);
}

/* ---- one world after the other ---- */

TEST(a_world_follows_another, rpc_node_set_up, rpc_node_tear_down)
{
    struct rpc_node *x = *state;
    rpc_node_start_worker(x, "rpc.world_size=3", NULL);
    for (uint32_t world = 1; world <= 3; world++) {
        rpc_workers_join(&x->workers, 1, 2);
        rpc_node_scale(x->workers.rpcs[0], 3);
        assert_int_equal(rpc_workers_i64(x->workers.rpcs[1], NODE, "lives", NULL, 0),
                         100 * world + world - 1); /* the module is started again for each */
        rpc_workers_leave(&x->workers, MR_OK);
    }
}

TEST(a_world_follows_one_that_died, rpc_node_set_up, rpc_node_tear_down)
{
    static const char *const settings[] = {"rpc.world_size=2", NULL};
    struct rpc_node *x = *state;
    int status;
    rpc_node_start(x, settings, 2);

    pid_t pids[2] = {rpc_workers_fork(&x->workers, 0, NULL), rpc_workers_fork(&x->workers, 1, NULL)};
    struct mr_client *client = node_fixture_connect(&x->node);

    WAIT_UNTIL(node_fixture_counter(client, 0, "rpc.members_joined") >= 2);
    mr_client_destroy(client);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(kill(pids[i], SIGKILL), 0);
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
    }
    rpc_workers_join(&x->workers, 0, 2); /* refused until the node has missed both for a while */
    rpc_workers_string(x->workers.rpcs[0], 1, "whoami", NULL, 0, "w1");
    rpc_workers_leave(&x->workers, MR_OK);
}

static void make_object(struct mr_rpc *rpc)
{
    struct mr_rref *object;
    if (mr_remote(rpc, NODE, "make", NULL, 0, NULL, &object) != MR_OK || mr_rref_confirm(object, 0) != MR_OK)
        fprintf(stderr, "%s\n", mr_rpc_last_error());
}

/* What a worker that died had made there is freed, and nothing of it is in the next world. */
TEST(a_next_world_owns_nothing_of_the_last, rpc_node_set_up, rpc_node_tear_down)
{
    struct rpc_node *x = *state;
    int status;
    rpc_node_start_worker(x, "rpc.world_size=2", NULL);

    pid_t pid = rpc_workers_fork(&x->workers, 1, make_object);
    struct mr_client *client = node_fixture_connect(&x->node);

    WAIT_UNTIL(node_fixture_counter(client, 0, "rpc.values_owned") >= 1);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    WAIT_UNTIL(node_fixture_counter(client, 0, "rpc.members_joined") <= 1);
    assert_int_equal(node_fixture_counter(client, 0, "rpc.values_owned"), 0);
    mr_client_destroy(client);
    rpc_workers_join(&x->workers, 1, 1);
    assert_int_equal(rpc_workers_i64(x->workers.rpcs[0], NODE, "objects", NULL, 0), 0);
    rpc_workers_leave(&x->workers, MR_OK);
}

/* Those of the world before may still have calls in flight there. */
TEST(what_runs_ends_before_the_next_world, rpc_node_set_up, rpc_node_tear_down)
{
    struct rpc_node *x = *state;
    const struct mr_rpc_call_options options = {.timeout_ms = 100};
    struct mr_value gate;
    rpc_node_start_worker(x, "rpc.world_size=2", NULL);
    gate = mr_value_string(x->gate);
    rpc_workers_join(&x->workers, 1, 1);
    rpc_workers_refused(mr_rpc_sync(x->workers.rpcs[0], NODE, "hold", &gate, 1, &options, NULL),
                        MR_DEADLINE_EXCEEDED, "hold on worker \"server\" (rank 0)");
    rpc_workers_leave(&x->workers, MR_OK);
    rpc_node_open_gate(x);
    rpc_workers_join(&x->workers, 1, 1);
    assert_int_equal(rpc_workers_i64(x->workers.rpcs[0], NODE, "held", NULL, 0), 0);
    assert_int_equal(rpc_workers_i64(x->workers.rpcs[0], NODE, "lives", NULL, 0), 201);
    rpc_workers_leave(&x->workers, MR_OK);
}

int main(int argc, char **argv)
{
    if (!rpc_node_arguments(argc, argv))
        return 2;
    return tests_run(NULL, NULL);
}
