/* Alter over all cores: what can change and what cannot, and what becomes of it in checkpoints and after a
 * start. */
#include <stdio.h>
#include <string.h>
#include "node_fixture.h"
#include "tests/test.h"

static const struct node_reply *alter(struct node_fixture *n, const struct mr_feature *before,
                                      const struct mr_feature *after)
{
    const struct mr_feature both[2] = {*before, *after};
    const struct mr_tensor t = mr_tensor_2d(MR_U8, 2, sizeof(*both), both);
    return node_call(n, 0, MR_OP_ALTER, 0, &t, 1);
}

static void altered(struct node_fixture *n, const struct mr_feature *before, const struct mr_feature *after)
{
    node_check(alter(n, before, after), MR_OK, NULL);
}

/* The first feature of LIST. */
static struct mr_feature listed(struct node_fixture *n)
{
    struct mr_feature f;
    const struct node_reply *reply = node_call(n, 0, MR_OP_LIST, 0, NULL, 0);
    node_check(reply, MR_OK, NULL);
    memcpy(&f, reply->tensors[0].data, sizeof(f));
    return f;
}

static void look_up(struct node_fixture *n, uint32_t table, uint64_t key)
{
    const struct mr_tensor t = mr_tensor_1d(MR_U64, 1, &key);
    node_check(node_call(n, node_core_of_key(n, key, 0), MR_OP_LOOKUP, (uint16_t)table, &t, 1), MR_OK, NULL);
}

/* A gradient of 1 for the key's row, which is made if need be. */
static void control_alter_push(struct node_fixture *n, uint32_t table, uint64_t key)
{
    static const float ones[NODE_DIM] = {1, 1, 1, 1};
    uint32_t head[4] = {table, 0};
    struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U32, 4, head), mr_tensor_1d(MR_U64, 1, &key),
                                   mr_tensor_1d(MR_U32, 0, NULL), mr_tensor_2d(MR_F32, 1, NODE_DIM, ones)};
    look_up(n, table, key);
    node_check(node_call(n, node_core_of_key(n, key, 0), MR_OP_PUSH_GRAD, 0, tensors, 4), MR_OK, NULL);
}

static uint64_t rows(struct node_fixture *n)
{
    uint64_t sum = 0;
    for (uint32_t core = 0; core < n->core_count; core++)
        sum += node_counter(n, core, "table.rows");
    return sum;
}

/* Of the kinds of a restart: that of a node which died has no save. */
static void die_and_start(struct node_fixture *n, uint32_t core_count)
{
    n->config.checkpoint_save_on_stop = false;
    node_restart(n, core_count);
}

TEST(rates_and_limits_change_at_once, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    const struct mr_feature made = node_table("emb", 100);
    const uint32_t table = node_create(n, &made);
    struct mr_feature after = made;
    control_alter_push(n, table, 5);
    after.learning_rate = 4;
    after.capacity_rows = 3; /* one on each core */
    altered(n, &made, &after);
    control_alter_push(n, table, 5);
    assert_float_equal(node_value(n, table, 5), 95, 0);
    for (uint64_t key = 0; key < 100; key++)
        look_up(n, table, key);
    assert_int_equal(rows(n), n->core_count);
    after.capacity_rows = 0;
    altered(n, &made, &after); /* nothing of it differs from what the caller saw, so the limit stays */
    assert_int_equal(listed(n).capacity_rows, 3);
    const struct mr_feature now = listed(n);
    altered(n, &now, &after);
    for (uint64_t key = 0; key < 100; key++)
        look_up(n, table, key);
    assert_int_equal(rows(n), 100);
    assert_float_equal(listed(n).learning_rate, 4, 0);
}

TEST(a_table_over_its_new_limit_returns_to_it, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature made = node_table("emb", 100), after;
    made.eviction = MR_EVICT_LRU;
    const uint32_t table = node_create(n, &made);
    for (uint64_t key = 0; key < 600; key++)
        look_up(n, table, key);
    assert_int_equal(rows(n), 600);
    after = made;
    after.capacity_rows = 300;
    altered(n, &made, &after);
    for (uint64_t key = 0; rows(n) > 300; key = (key + 1) % 600) /* rows in use stay until others are used */
        look_up(n, table, key);
    assert_int_equal(rows(n), 300);
    const struct mr_feature now = listed(n);
    after.capacity_rows = 0;
    altered(n, &now, &after);
    for (uint64_t key = 0; key < 600; key++)
        look_up(n, table, key);
    assert_int_equal(rows(n), 600);
}

TEST(what_others_altered_meanwhile_stays, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    const struct mr_feature made = node_table("emb", 100);
    (void)node_create(n, &made);
    struct mr_feature one = made, other = made;
    one.learning_rate = 4;
    other.clip_value = 0.5f;
    altered(n, &made, &one);
    altered(n, &made, &other);
    altered(n, &made, &other); /* again: as if it came once */
    const struct mr_feature now = listed(n);
    assert_float_equal(now.learning_rate, 4, 0);
    assert_float_equal(now.clip_value, 0.5, 0);
    (void)node_create(n, &made); /* as it was made */
    (void)node_create(n, &now);  /* and as it is */
    struct mr_feature wrong = made;
    wrong.weight_decay = 1;
    const struct mr_tensor t = mr_tensor_2d(MR_U8, 1, sizeof(wrong), &wrong);
    node_check(node_call(n, 0, MR_OP_CREATE, 0, &t, 1), MR_FEATURE_MISMATCH, "weight_decay 0, not 1");
}

TEST(what_cannot_be_altered_is_refused_with_the_reason, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature made = node_table("emb", 100), momentum = node_table("momentum", 1);
    struct mr_feature counted = node_table("counted", 1), nobody = node_table("nobody", 1);
    mr_feature_set_optimizer(&momentum, MR_OPT_MOMENTUM);
    counted.admission = MR_ADMIT_OBSERVATIONS;
    counted.admission_arg = 2;
    counted.memory_bytes = 8 << 20;
    (void)node_create(n, &made);
    (void)node_create(n, &momentum);
    (void)node_create(n, &counted);
#define REFUSED(feature, change, status, why)                                                                \
    do {                                                                                                     \
        struct mr_feature f = (feature);                                                                     \
        change;                                                                                              \
        node_check(alter(n, &(feature), &f), status, why);                                                   \
    } while (0)
    REFUSED(made, f.dims[0] = 8, MR_UNSUPPORTED, "emb: dim cannot be altered: it is the length");
    REFUSED(made, f.dtype = MR_F16, MR_UNSUPPORTED, "emb: dtype cannot be altered");
    REFUSED(made, f.optimizer = MR_OPT_ADAM, MR_UNSUPPORTED, "emb: optimizer cannot be altered");
    REFUSED(made, f.init_a = 1, MR_UNSUPPORTED, "emb: init_a cannot be altered");
    REFUSED(made, f.name[0] = 'E', MR_UNSUPPORTED, "emb: name cannot be altered");
    REFUSED(made, f.learning_rate = -1, MR_INVALID_ARGUMENT, "emb: learning_rate is -1");
    REFUSED(made, f.eviction = MR_EVICT_LRU, MR_UNSUPPORTED, "eviction cannot be altered from never to lru");
    REFUSED(made, (f.admission = MR_ADMIT_OBSERVATIONS, f.admission_arg = 2), MR_UNSUPPORTED,
            "admission cannot be altered from always to observations");
    REFUSED(momentum, f.optimizer_args[1] = 0.5f, MR_UNSUPPORTED, "with dampening");
    REFUSED(momentum, f.optimizer_args[MR_OPTIMIZER_ARG_DENSE] = 1, MR_UNSUPPORTED, "or dense");
    REFUSED(counted, f.memory_bytes = 4 << 20, MR_UNSUPPORTED, "memory_bytes cannot be altered to 4194304");
    REFUSED(nobody, f.learning_rate = 2, MR_UNKNOWN_TABLE, "named nobody");
#undef REFUSED
    const struct mr_tensor one = mr_tensor_2d(MR_U8, 1, sizeof(made), &made);
    node_check(node_call(n, 0, MR_OP_ALTER, 0, &one, 1), MR_WRONG_SHAPE, "before and after");
    const struct mr_feature now = listed(n);
    assert_null(mr_feature_diff(&now, &made));
}

/* The number of occurrences that admits a key, with those that were counted before, and after a restart. */
TEST(a_threshold_holds_for_what_was_counted, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature made = node_table("emb", 100), after;
    made.admission = MR_ADMIT_OBSERVATIONS;
    made.admission_arg = 3;
    const uint32_t table = node_create(n, &made);
    look_up(n, table, 5);
    look_up(n, table, 5);
    (void)node_save(n);
    after = made;
    after.admission_arg = 5;
    altered(n, &made, &after);
    look_up(n, table, 5);
    look_up(n, table, 5);
    assert_int_equal(rows(n), 0);
    (void)node_save(n);
    die_and_start(n, n->core_count); /* whose checkpoint may be two, of either threshold */
    look_up(n, table, 5);
    assert_int_equal(rows(n), 1);
}

/* A node that dies has the options that it was given last, whatever its checkpoint has; on any number of
 * cores. */
TEST(options_outlive_the_node, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    const uint32_t cores = n->core_count;
    const struct mr_feature made = node_table("emb", 100);
    const uint32_t table = node_create(n, &made);
    struct mr_feature after = made;
    control_alter_push(n, table, 5);
    const uint64_t id = node_save(n);
    after.learning_rate = 4;
    altered(n, &made, &after);
    die_and_start(n, 2);
    control_alter_push(n, table, 5);
    assert_float_equal(node_value(n, table, 5), 95, 0);
    (void)node_save(n);
    die_and_start(n, cores);
    control_alter_push(n, table, 5);
    assert_float_equal(node_value(n, table, 5), 91, 0);
    node_check(node_restore(n, id), MR_OK, NULL); /* which has its own */
    control_alter_push(n, table, 5);
    assert_float_equal(node_value(n, table, 5), 98, 0);
    assert_int_equal(listed(n).altered, 0);
    die_and_start(n, cores); /* goes on from that restore */
    assert_float_equal(listed(n).learning_rate, 1, 0);
    altered(n, &made, &after);
    snprintf(n->config.checkpoint_restore, sizeof(n->config.checkpoint_restore), "%d", (int)id);
    die_and_start(n, cores); /* with one that is named */
    assert_float_equal(listed(n).learning_rate, 1, 0);
}

/* A delta may have other options than its parent. */
TEST(deltas_carry_the_options, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    const struct mr_feature made = node_table("emb", 100);
    node_stop(n);
    n->config.checkpoint_deltas = 10;
    n->config.checkpoint_delta_share_percent = 1000;
    node_start(n, n->core_count);
    const uint32_t table = node_create(n, &made);
    struct mr_feature after = made;
    for (uint64_t key = 0; key < 200; key++)
        control_alter_push(n, table, key);
    (void)node_save(n);
    after.learning_rate = 4;
    after.capacity_rows = 250;
    altered(n, &made, &after);
    control_alter_push(n, table, 5);
    (void)node_save(n);
    assert_int_equal(node_counter(n, 0, "checkpoint.deltas_good"), 1);
    die_and_start(n, n->core_count);
    assert_float_equal(node_value(n, table, 5), 95, 0);
    assert_float_equal(node_value(n, table, 6), 99, 0);
    struct mr_feature now = listed(n);
    assert_int_equal(now.capacity_rows, 250);
    after.capacity_rows = 0;
    altered(n, &now, &after);
    control_alter_push(n, table, 6);
    (void)node_save(n);
    assert_int_equal(node_counter(n, 0, "checkpoint.deltas_good"), 1); /* since this start */
    node_check(node_restore(n, 2), MR_OK, NULL);
    assert_int_equal(listed(n).capacity_rows, 250);
    assert_float_equal(node_value(n, table, 6), 99, 0);
}

TEST(a_variable_and_what_was_dropped, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    const struct mr_feature made = node_variable("bias", 1);
    struct mr_feature after = made;
    (void)node_create(n, &made);
    after.learning_rate = 8;
    altered(n, &made, &after);
    (void)node_save(n);
    node_drop(n, made.name);
    (void)node_create(n, &made);
    assert_int_equal(listed(n).altered, 0);
    die_and_start(n, n->core_count);
    node_check(node_restore(n, 1), MR_OK, NULL);
    assert_float_equal(listed(n).learning_rate, 8, 0);
}
