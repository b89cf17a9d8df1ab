/* A checkpoint of a cluster, restored onto one node: of each node what was its own, rows and the record of
 * what was applied to them, however many cores there are. */
#include <stdio.h>
#include <string.h>
#include "checkpoint_fixture.h"
#include "cluster_fixture.h"
#include "dataplane/wire/format/push_number.h"
#include "ps/checkpoint/checkpoint.h"
#include "restore_fixture.h"
#include "tests/test.h"

enum { NODES = 3, ELEMENTS = 40000 /* more than one piece of a record */ };

static const char *const nodes[NODES] = {"a", "b", "c"};
static const uint32_t cores[NODES] = {1, 3, 2};
static const char *const variables[] = {"bias", "scale", "shift", "w1", "w2"};
#define VARIABLES (sizeof(variables) / sizeof(*variables))

/* As long as `checkpoint_directory`, with nothing behind it that is not needed. */
static char whole[256];

static uint32_t owner_of(const char *variable)
{
    return mr_variable_partition(variable) % NODES;
}

static void set_variable(struct node_fixture *n, const char *name, float value)
{
    static float values[ELEMENTS];
    struct mr_feature f = node_variable(name, ELEMENTS);
    const uint32_t variable = node_create(n, &f);
    uint64_t first = 0;
    for (uint32_t i = 0; i < ELEMENTS; i++)
        values[i] = value + (float)i;
    struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U64, 1, &first), mr_tensor_1d(MR_F32, ELEMENTS, values)};
    node_check(node_call_step(n, node_core_of_variable(n, name), MR_OP_VARIABLE_PUSH, (uint16_t)variable, 7,
                              0, tensors, 2),
               MR_OK, NULL);
}

static void check_variable(struct node_fixture *n, const char *name, float value)
{
    struct mr_feature f = node_variable(name, ELEMENTS);
    const uint32_t variable = node_create(n, &f);
    uint64_t range[2] = {0, 0};
    struct mr_tensor t = mr_tensor_1d(MR_U64, 2, range);
    const struct node_reply *reply =
        node_call(n, node_core_of_variable(n, name), MR_OP_VARIABLE_PULL, (uint16_t)variable, &t, 1);
    node_check(reply, MR_OK, NULL);
    const float *values = reply->tensors[0].data;
    for (uint32_t i = 0; i < ELEMENTS; i++)
        assert_float_equal(values[i], value + (float)i, 0);
}

static uint32_t owner_of_key(uint64_t key)
{
    return mr_partition_of(mr_key_hash(key, 0)) % NODES;
}

/* Push 1 of a push stream of the client's own, to all cores: a gradient of 1 for the keys of one of the
 * cluster's nodes, or of all (NODES). */
static void push_in_stream(struct node_fixture *n, uint32_t table, uint32_t node)
{
    static float ones[KEYS * NODE_DIM];
    for (uint32_t i = 0; i < KEYS * NODE_DIM; i++)
        ones[i] = 1;
    for (uint32_t core = 0; core < n->core_count; core++) {
        uint64_t mine[KEYS];
        uint32_t head[4] = {table, 0}, count = 0;
        for (uint32_t i = 0; i < KEYS; i++)
            if (core_of(n->core_count, keys[i]) == core && (node == NODES || owner_of_key(keys[i]) == node))
                mine[count++] = keys[i];
        struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U32, 4, head), mr_tensor_1d(MR_U64, count, mine),
                                       mr_tensor_1d(MR_U32, 0, NULL),
                                       mr_tensor_2d(MR_F32, count, NODE_DIM, ones)};
        n->sequence = mr_push_sequence(mr_push_stream_chosen(9), 1);
        node_check(node_call_step(n, core, MR_OP_PUSH_GRAD, 0, 7, 0, tensors, count > 0 ? 4 : 0), MR_OK,
                   NULL);
        n->sequence = 0;
    }
}

/* Makes a node whose every key has learnt `batches` batches when checkpoint 2 is made, and as many more keys'
 * values of its own: a full one and a delta. */
static void save_node(struct node_fixture *n, uint32_t node)
{
    char path[sizeof(n->config.checkpoint_directory)];
    node_stop(n);
    (void)snprintf(path, sizeof(path), "%.200s/%s", whole, nodes[node]);
    memcpy(n->config.checkpoint_directory, path, sizeof(path));
    n->config.checkpoint_deltas = 4;
    node_start(n, cores[node]);
    const uint32_t table = make_table(n);
    for (uint32_t v = 0; v < VARIABLES; v++)
        set_variable(n, variables[v], (float)(100 * node));
    assert_int_equal(learn(n, table, BATCH(0)), cores[node]);
    assert_int_equal(node_save(n), 1);
    for (uint32_t i = 0; i < node; i++)
        assert_int_equal(learn(n, table, BATCH(1 + i)), cores[node]);
    if (node != 1) /* it has not come there yet */
        push_in_stream(n, table, node);
    assert_int_equal(node_save(n), 2);
}

static void make_cluster(struct node_fixture *n)
{
    (void)snprintf(whole, sizeof(whole), "%.200s/whole", n->directory);
    assert_int_equal(ps_store_local()->make_directory(NULL, whole), 0);
    for (uint32_t i = 0; i < NODES; i++)
        save_node(n, i);
    node_stop(n);
    cluster_commit(whole, 2, nodes, NODES);
}

/* Checks the keys of each node: how many gradients of 1 they have had. */
static void check_cluster(struct node_fixture *n, const float had[NODES])
{
    const uint32_t table = make_table(n);
    uint32_t seen = 0;
    for (uint32_t i = 0; i < KEYS; i++) {
        const uint32_t owner = owner_of_key(keys[i]);
        assert_float_equal(node_value(n, table, keys[i]), 100.0f - had[owner], 0);
        seen |= 1u << owner;
    }
    assert_int_equal(seen, 7); /* of every node */
    for (uint32_t v = 0; v < VARIABLES; v++)
        check_variable(n, variables[v], (float)(100 * owner_of(variables[v])));
}

/* Node i applied 1 + i batches, and those but b a push. */
static const float restored[NODES] = {2, 2, 4};

static void start_on(struct node_fixture *n, const char *directory, uint32_t core_count)
{
    (void)snprintf(n->config.checkpoint_directory, sizeof(n->config.checkpoint_directory), "%s", directory);
    node_start(n, core_count);
}

/* What is sent again is applied to what lacks it, and to nothing else. */
static void goes_onto_one_node(struct node_fixture *n, uint32_t core_count)
{
    make_cluster(n);
    start_on(n, whole, core_count);
    check_cluster(n, restored);
    const uint32_t table = make_table(n);
    assert_int_equal(learn(n, table, BATCH(0)), 0);
    (void)learn(n, table, BATCH(1)); /* of keys of a */
    check_cluster(n, (const float[NODES]){3, 2, 4});
    (void)learn(n, table, BATCH(2)); /* of a and b */
    check_cluster(n, (const float[NODES]){4, 3, 4});
    push_in_stream(n, table, NODES); /* of b */
    push_in_stream(n, table, NODES);
    check_cluster(n, (const float[NODES]){4, 4, 4});
    assert_int_equal(learn(n, table, BATCH(3)), core_count);
    /* Its own checkpoints come after, begin with a full one, and are where it goes on. */
    assert_int_equal(node_save(n), 3);
    node_restart(n, core_count);
    check_cluster(n, (const float[NODES]){5, 5, 5});
    for (uint32_t batch = 0; batch < 4; batch++)
        assert_int_equal(learn(n, table, BATCH(batch)), 0);
    push_in_stream(n, table, NODES);
    check_cluster(n, (const float[NODES]){5, 5, 5});
    node_check(node_restore(n, 2), MR_OK, NULL);
    check_cluster(n, restored);
}

TEST(on_1_core, node_setup, node_teardown)
{
    goes_onto_one_node(*state, 1);
}

TEST(on_2_cores, node_setup, node_teardown)
{
    goes_onto_one_node(*state, 2);
}

TEST(on_5_cores, node_setup, node_teardown)
{
    goes_onto_one_node(*state, 5);
}

/* Clients send again what they keep: the checkpoint says what it has of it. */
TEST(takes_nothing_back, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_client_session_info info;
    make_cluster(n);
    start_on(n, whole, 1);
    (void)node_call(n, 0, MR_OP_STATS, 0, NULL, 0); /* it comes with the session */
    mr_client_session_info(n->sessions[0], &info);
    assert_int_equal(info.restores, 0);
}

TEST(damage_in_any_part_condemns_it, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    char path[512];
    make_cluster(n);
    start_on(n, whole, 1);
    check_cluster(n, restored);
    assert_int_equal(learn(n, make_table(n), BATCH(5)), 1);
    (void)snprintf(path, sizeof(path), "%s/b/ckpt-1/core-001.mrc", whole);
    fixture_flip(path, 5000, 1);
    node_check(node_restore(n, 2), MR_CHECKPOINT_CORRUPT, "b/ckpt-1/core-001.mrc");
    check_cluster(n, (const float[NODES]){3, 3, 5}); /* it serves what it served */
}

/* The partitions of these nodes. */
static struct ps_partition_set partitions_of(bool a, bool b, bool c)
{
    const bool wanted[NODES] = {a, b, c};
    struct ps_partition_set set = {{0}};
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        if (wanted[p % NODES])
            ps_partitions_add(&set, p);
    return set;
}

/* A node with the same features, one more and one less, which has gone on: every key has had two batches, and
 * the first checkpoint of its own has them. */
static uint32_t start_live(struct node_fixture *n, uint32_t core_count)
{
    char live[256];
    const struct mr_feature later = node_table("later", 1);
    (void)snprintf(live, sizeof(live), "%.200s/live", n->directory);
    start_on(n, live, core_count);
    const uint32_t table = make_table(n);
    for (uint32_t v = 0; v < VARIABLES; v++)
        set_variable(n, variables[v], 1000);
    (void)node_create(n, &later);
    assert_int_equal(learn(n, table, BATCH(0)), core_count);
    assert_int_equal(learn(n, table, BATCH(1)), core_count);
    assert_int_equal(node_save(n), 1);
    return table;
}

static void check_variables(struct node_fixture *n, const float base[NODES])
{
    for (uint32_t v = 0; v < VARIABLES; v++)
        check_variable(n, variables[v], base[owner_of(variables[v])]);
}

static void check_rows(struct node_fixture *n, uint32_t table, const float had[NODES])
{
    for (uint32_t i = 0; i < KEYS; i++)
        assert_float_equal(node_value(n, table, keys[i]), 100.0f - had[owner_of_key(keys[i])], 0);
}

/* a and c have died. What they had saved goes on here, beside what this node has of b. */
static void is_taken_over_beside_what_serves(struct node_fixture *n, uint32_t core_count)
{
    const struct ps_partition_set dead = partitions_of(true, false, true);
    char text[PS_MOVE_TEXT_BYTES];
    make_cluster(n);
    const uint32_t table = start_live(n, core_count);
    if (take_over(whole, 2, &dead, text) != PS_TAKE_OVER_LOADED)
        fail_msg("%s", text);
    check_rows(n, table, (const float[NODES]){2, 2, 4});
    check_variables(n, (const float[NODES]){0, 1000, 200});
    /* what is sent again is applied to what lacks it, and to nothing else */
    assert_int_equal(learn(n, table, BATCH(0)), 0);
    (void)learn(n, table, BATCH(1));
    check_rows(n, table, (const float[NODES]){3, 2, 4});
    (void)learn(n, table, BATCH(2));
    check_rows(n, table, (const float[NODES]){4, 3, 4});
    push_in_stream(n, table, NODES);
    push_in_stream(n, table, NODES);
    check_rows(n, table, (const float[NODES]){4, 4, 4});
    assert_int_equal(learn(n, table, BATCH(3)), core_count);
    /* all of it is in the next checkpoint, which is no delta on the one before */
    assert_int_equal(node_save(n), 2);
    node_restart(n, core_count);
    check_rows(n, table, (const float[NODES]){5, 5, 5});
    check_variables(n, (const float[NODES]){0, 1000, 200});
}

TEST(is_taken_over_on_2_cores, node_setup, node_teardown)
{
    is_taken_over_beside_what_serves(*state, 2);
}

TEST(is_taken_over_on_5_cores, node_setup, node_teardown)
{
    is_taken_over_beside_what_serves(*state, 5);
}

/* There is no checkpoint yet: the partitions are as they were at the beginning, and lack every batch. */
TEST(what_was_never_saved_begins_empty, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    const struct ps_partition_set dead = partitions_of(false, false, true);
    char text[PS_MOVE_TEXT_BYTES];
    node_stop(n);
    const uint32_t table = start_live(n, 3);
    push_in_stream(n, table, NODES);
    if (take_over("", 0, &dead, text) != PS_TAKE_OVER_LOADED)
        fail_msg("%s", text);
    check_rows(n, table, (const float[NODES]){3, 3, 0});
    (void)learn(n, table, BATCH(1));
    push_in_stream(n, table, NODES);
    check_rows(n, table, (const float[NODES]){3, 3, 2});
    (void)learn(n, table, BATCH(0));
    check_rows(n, table, (const float[NODES]){3, 3, 3});
    assert_int_equal(learn(n, table, BATCH(0)), 0);
}

TEST(damage_of_a_part_takes_nothing_over, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    const struct ps_partition_set of_b = partitions_of(false, true, false),
                                  of_c = partitions_of(false, false, true);
    char path[512], text[PS_MOVE_TEXT_BYTES];
    make_cluster(n);
    const uint32_t table = start_live(n, 1);
    (void)snprintf(path, sizeof(path), "%s/b/ckpt-1/core-001.mrc", whole);
    fixture_flip(path, 5000, 1);
    assert_int_equal(take_over(whole, 2, &of_b, text), PS_TAKE_OVER_FAILED);
    if (strstr(text, "b/ckpt-1/core-001.mrc") == NULL)
        fail_msg("%s", text);
    check_rows(n, table, (const float[NODES]){2, 0, 2});
    node_drop(n, "later"); /* of what is gone nothing comes back */
    node_drop(n, variables[VARIABLES - 1]);
    if (take_over(whole, 2, &of_c, text) != PS_TAKE_OVER_LOADED) /* of what is not needed nothing is read */
        fail_msg("%s", text);
    check_rows(n, table, (const float[NODES]){2, 0, 4});
}
