/* A node that loads the module of layers: a worker makes a network there, has it computed and trains it; the
 * node ends well with a network that is still referred to, and goes on where it has saved after it was
 * killed. */
#include <stdio.h>
#include <string.h>
#include "millrace_admin.h"
#include "tests/integration/node_fixture.h"
#include "tests/integration/rpc/node_network.h"
#include "tests/integration/rpc/rpc_workers.h"
#include "tests/test.h"

enum { STEPS = 30, SAVED = 12, KILLED = 17 };
#define DEAD_AFTER_MS 3000u

static const char *module;

struct fixture {
    struct node_fixture node;
    struct rpc_workers workers;
    struct node_network network;
};

static void rpc_layers_node_join(struct fixture *x)
{
    x->workers =
        (struct rpc_workers){.world_size = 2, .dead_after_ms = DEAD_AFTER_MS, .rendezvous = x->node.address};
    rpc_workers_join(&x->workers, 1, 1);
}

static void rpc_layers_node_start(struct fixture *x)
{
    static char with_module[1024];
    const char *const settings[] = {"rpc.world_size=2",    "rpc.name=server", "rpc.rank=0",
                                    "checkpoint.deltas=4", with_module,       NULL};
    snprintf(with_module, sizeof(with_module), "rpc.module=%s parts 2", module);
    *x = (struct fixture){0};
    node_fixture_start(&x->node, 1, settings);
    rpc_layers_node_join(x);
}

static void make_network(struct fixture *x, const char *name)
{
    node_network_make(&x->network, x->workers.rpcs[0], 0, name);
}

static float train(struct fixture *x, int64_t step)
{
    return node_network_train(&x->network, step);
}

static void let_go(struct fixture *x)
{
    node_network_let_go(&x->network);
}

TEST(a_node_trains_a_network)
{
    struct fixture x;
    float first, last = 0;
    rpc_layers_node_start(&x);
    make_network(&x, NULL);
    first = train(&x, 0);
    for (int64_t step = 1; step < STEPS; step++)
        last = train(&x, step);
    if (!(last < first / 4))
        fail_msg("the loss went from %f to %f", (double)first, (double)last);
    let_go(&x);
    node_fixture_stop(&x.node);
    mr_rpc_destroy(x.workers.rpcs[0]);
}

TEST(a_node_ends_with_a_network)
{
    struct fixture x;
    rpc_layers_node_start(&x);
    make_network(&x, NULL);
    (void)train(&x, 0);
    node_fixture_stop(&x.node); /* checks that it ends well */
    let_go(&x);
    mr_rpc_destroy(x.workers.rpcs[0]);
}

/* ---- a node that is killed ---- */

/* All values of the network's parameter. */
static struct mr_rpc_result *fetch(struct fixture *x)
{
    struct mr_rpc_result *values;
    if (mr_rref_to_here(mr_rpc_result_value(x->network.parameter, 0)->rref, 0, &values) != MR_OK)
        fail_msg("%s", mr_rpc_last_error());
    return values;
}

static void assert_same_values(const struct mr_rpc_result *a, const struct mr_rpc_result *b)
{
    const struct mr_tensor *x = &mr_rpc_result_value(a, 0)->tensor, *y = &mr_rpc_result_value(b, 0)->tensor;
    assert_int_equal(x->bytes, y->bytes);
    assert_memory_equal(x->data, y->data, x->bytes);
}

static uint64_t steps_of(struct fixture *x)
{
    uint64_t steps;
    if (mr_dist_optimizer_steps(x->network.optimizer, &steps) != MR_OK)
        fail_msg("%s", mr_rpc_last_error());
    return steps;
}

static void train_from(struct fixture *x, int64_t from, int64_t to)
{
    for (int64_t step = from; step < to; step++)
        (void)train(x, step);
}

/* The world ends with the node; the parameters do not. */
static void leave_dead_world(struct fixture *x)
{
    let_go(x);
    mr_rpc_destroy(x->workers.rpcs[0]);
}

/* Killed in the middle, and again with nothing done since its start; on more cores; from a delta: the values
 * are those of a run that nobody has disturbed, to the bit. */
TEST(a_killed_node_goes_on_where_it_saved)
{
    struct fixture x, undisturbed;
    rpc_layers_node_start(&undisturbed);
    make_network(&undisturbed, "net");
    assert_int_equal(steps_of(&undisturbed), 0);
    train_from(&undisturbed, 0, STEPS);
    struct mr_rpc_result *expected = fetch(&undisturbed);
    node_fixture_stop(&undisturbed.node);

    rpc_layers_node_start(&x);
    make_network(&x, "net");
    struct mr_client *client = node_fixture_connect(&x.node);
    train_from(&x, 0, SAVED / 2);
    (void)node_fixture_save(client);
    train_from(&x, SAVED / 2, SAVED);
    (void)node_fixture_save(client);
    train_from(&x, SAVED, KILLED);
    mr_client_destroy(client);
    node_fixture_kill(&x.node);
    leave_dead_world(&x);
    node_fixture_restart(&x.node);
    node_fixture_kill(&x.node); /* nobody has asked for the network: what was restored stays */
    node_fixture_restart_with(&x.node, 2);
    client = node_fixture_connect(&x.node);
    (void)node_fixture_save(client);
    mr_client_destroy(client);
    node_fixture_kill(&x.node);
    node_fixture_restart(&x.node);

    rpc_layers_node_join(&x);
    make_network(&x, "net");
    assert_int_equal(steps_of(&x), SAVED);
    train_from(&x, SAVED, STEPS);
    assert_int_equal(steps_of(&x), STEPS);
    struct mr_rpc_result *got = fetch(&x);
    assert_same_values(expected, got);
    mr_rpc_result_free(got);
    node_fixture_stop(&x.node);
    leave_dead_world(&x);
    mr_rpc_result_free(expected);
    leave_dead_world(&undisturbed);
}

static void save_by_name(struct mr_client *client, const char *name)
{
    uint64_t number;
    const struct mr_save_options save = {.bytes = sizeof(save), .names = &name, .name_count = 1};
    if (mr_save(client, NULL, &save, NULL, &number) != MR_OK)
        fail_msg("%s", mr_last_error());
    assert_int_equal(node_fixture_wait_saved(client).last_status, MR_OK);
}

static enum mr_status restore_by_name(struct fixture *x, struct mr_client *client, const char *new_name,
                                      bool replace, struct mr_restored *restored)
{
    char partial[NODE_PATH_BYTES + sizeof("/partial")];
    const struct mr_restore_name name = {.name = "net", .new_name = new_name};
    snprintf(partial, sizeof(partial), "%s/partial", x->node.checkpoints);
    const struct mr_restore_options options = {
        .bytes = sizeof(options), .directory = partial, .names = &name, .name_count = 1, .replace = replace};
    *restored = (struct mr_restored){.bytes = sizeof(*restored)};
    return mr_restore(client, NULL, &options, restored);
}

/* What was learnt since goes, and comes back under another name; tables are not touched. */
TEST(a_parameter_is_saved_and_restored_by_name)
{
    struct fixture x;
    struct mr_restored restored;
    const struct mr_feature user = mr_feature_table("user", 4);
    uint32_t id;
    rpc_layers_node_start(&x);
    make_network(&x, "net");
    struct mr_client *client = node_fixture_connect(&x.node);
    assert_int_equal(mr_create(client, NULL, &user, 1, &id), MR_OK);
    (void)node_fixture_save(client);
    train_from(&x, 0, SAVED);
    save_by_name(client, "net");
    struct mr_rpc_result *saved = fetch(&x);
    train_from(&x, SAVED, KILLED);
    struct mr_rpc_result *later = fetch(&x);

    node_fixture_refused(restore_by_name(&x, client, NULL, false, &restored), MR_INVALID_ARGUMENT,
                         "parameter net is there already");
    assert_int_equal(restore_by_name(&x, client, "net_before", false, &restored), MR_OK);
    assert_int_equal(restored.parameters, 1);
    assert_int_equal(restored.tables + restored.variables, 0);
    assert_int_equal(steps_of(&x), KILLED);
    struct mr_rpc_result *now = fetch(&x);
    assert_same_values(now, later);
    mr_rpc_result_free(now);

    assert_int_equal(restore_by_name(&x, client, NULL, true, &restored), MR_OK);
    assert_int_equal(steps_of(&x), SAVED);
    now = fetch(&x);
    assert_same_values(now, saved);
    mr_rpc_result_free(now);
    train_from(&x, SAVED, KILLED);
    now = fetch(&x);
    assert_same_values(now, later);
    mr_rpc_result_free(now);

    const char *names[] = {"net_before", "user"};
    assert_int_equal(mr_drop(client, NULL, names, 2), MR_OK);
    mr_client_destroy(client);
    mr_rpc_result_free(saved);
    mr_rpc_result_free(later);
    node_fixture_stop(&x.node);
    leave_dead_world(&x);
}

/* A name that is taken by a network of another shape is free once it was dropped, and what was dropped is in
 * no later checkpoint. */
TEST(a_dropped_parameter_is_a_new_one)
{
    const struct mr_value other[] = {mr_value_string("input 4; linear 4 3; log_softmax"), mr_value_i64(1),
                                     mr_value_string("net")};
    const char *name = "net";
    struct mr_rpc_result *nothing;
    struct fixture x;
    struct mr_rref *network;
    rpc_layers_node_start(&x);
    make_network(&x, "net");
    train_from(&x, 0, 2);
    struct mr_client *client = node_fixture_connect(&x.node);
    struct mr_rpc *rpc = x.workers.rpcs[0];
    assert_int_equal(mr_remote(rpc, 0, "layers.network", other, 3, NULL, &network), MR_OK);
    rpc_workers_refused(mr_rref_to_here(network, 0, &nothing), MR_FUNCTION_FAILED,
                        "parameter net is there already");
    mr_rref_release(network);
    assert_int_equal(mr_drop(client, NULL, &name, 1), MR_OK);
    (void)node_fixture_save(client);
    mr_client_destroy(client);
    node_fixture_kill(&x.node);
    leave_dead_world(&x);
    node_fixture_restart(&x.node);
    rpc_layers_node_join(&x);
    make_network(&x, "net");
    assert_int_equal(steps_of(&x), 0);
    node_fixture_stop(&x.node);
    leave_dead_world(&x);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: test_rpc_layers_node MILLRACED MODULE\n");
        return 2;
    }
    node_fixture_server = argv[1];
    module = argv[2];
    netns_require_root();
    return tests_run(NULL, NULL);
}
