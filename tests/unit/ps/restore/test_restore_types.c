/* Checkpoints of tables in f16 and bf16 through a whole node, restored onto other numbers of cores: what is
 * pushed then is rounded as if nothing had happened. */
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "fake_dp.h"
#include "node_fixture.h"
#include "ps/core/core.h"
#include "tests/test.h"

#define BATCH(sequence) ((uint64_t)3 << MR_BATCH_SEQUENCE_BITS | (sequence))
#define KEYS            40u

static uint64_t keys[KEYS];

static uint32_t make_table(struct node_fixture *n, const char *name, enum mr_dtype dtype)
{
    struct mr_feature f = node_table(name, 0);
    f.dtype = (uint32_t)dtype;
    f.initializer = MR_INIT_UNIFORM;
    f.init_a = -1;
    f.init_b = 1;
    f.optimizer = MR_OPT_ADAGRAD;
    f.learning_rate = 0.01f;
    f.optimizer_args[0] = 0.1f;
    for (uint32_t i = 0; i < KEYS; i++)
        keys[i] = 1000 + i;
    return node_create(n, &f);
}

static void learn(struct node_fixture *n, uint32_t table, uint64_t batch_id, float gradient)
{
    node_feed(n, batch_id, table, keys, KEYS);
    for (uint32_t core = 0; core < n->core_count; core++)
        assert_int_equal(node_push_batch(n, core, batch_id, table, KEYS, gradient), 1);
}

static void look_up(struct node_fixture *n, uint32_t table, float rows[KEYS][NODE_DIM])
{
    for (uint32_t i = 0; i < KEYS; i++) {
        struct mr_tensor t = mr_tensor_1d(MR_U64, 1, &keys[i]);
        const struct node_reply *reply =
            node_call(n, node_core_of_key(n, keys[i], 0), MR_OP_LOOKUP, (uint16_t)table, &t, 1);
        node_check(reply, MR_OK, NULL);
        memcpy(rows[i], reply->tensors[0].data, NODE_DIM * sizeof(float));
    }
}

static void check_type(struct node_fixture *n, const char *name, enum mr_dtype dtype, uint32_t cores)
{
    float before[KEYS][NODE_DIM], expected[KEYS][NODE_DIM], after[KEYS][NODE_DIM];
    uint32_t table = make_table(n, name, dtype);
    for (uint32_t i = 0; i < 5; i++)
        learn(n, table, BATCH(i), 0.1f * (float)(i + 1));
    look_up(n, table, before);
    node_save(n);
    learn(n, table, BATCH(5), 0.07f);
    look_up(n, table, expected);
    node_restart(n, cores);
    look_up(n, table, after);
    assert_memory_equal(after, before, sizeof(after));
    learn(n, table, BATCH(5), 0.07f);
    look_up(n, table, after);
    assert_memory_equal(after, expected, sizeof(after));
    assert_memory_not_equal(after, before, sizeof(after));
    for (uint32_t i = 0; i < KEYS * NODE_DIM; i++) { /* and they are numbers of the type */
        uint32_t bits;
        memcpy(&bits, &after[i / NODE_DIM][i % NODE_DIM], sizeof(bits));
        assert_int_equal(bits & (dtype == MR_F16 ? 0x1fffu : 0xffffu), 0);
    }
}

TEST(f16_from_1_core_to_3, node_setup, node_teardown)
{
    check_type(*state, "half", MR_F16, 3);
}

TEST(bf16_from_1_core_to_2, node_setup, node_teardown)
{
    check_type(*state, "brain", MR_BF16, 2);
}

TEST(bf16_from_3_cores_to_1, node_setup_3_cores, node_teardown)
{
    check_type(*state, "brain", MR_BF16, 1);
}

/* As a server of an older version may have left it. */
static void put_row(uint32_t core, uint32_t table, uint64_t key, const void *values, size_t bytes)
{
    uint8_t stored[64] = {0};
    fake_dp_hold(core);
    fake_dp_wait_held(core);
    struct ps_table *t = ps_core_feature(fake_dp_app(core), table)->table;
    assert_true(ps_table_stored_row_bytes(t) <= sizeof(stored));
    memcpy(stored, values, bytes);
    assert_int_equal(ps_table_load(t, key, stored), MR_OK);
    fake_dp_release(core);
}

/* Rows and variables that hold NaN or Inf are loaded as they are; that is counted, and the log says so. */
TEST(what_is_not_finite_is_told, node_setup, node_teardown)
{
    static const float nans[NODE_DIM] = {1, NAN, 1, 1}, fine[NODE_DIM] = {1, 2, 3, 4};
    static const uint16_t infinite[NODE_DIM] = {0, 0, 0, 0x7c00};
    struct node_fixture *n = *state;
    struct mr_feature f = node_table("emb", 0), half = node_table("half", 0),
                      v = node_variable("bias", NODE_DIM);
    char text[8192];
    half.dtype = MR_F16;
    uint32_t table = node_create(n, &f), halves = node_create(n, &half), variable = node_create(n, &v);
    put_row(0, table, 1, nans, sizeof(nans));
    put_row(0, table, 2, nans, sizeof(nans));
    put_row(0, table, 3, nans, sizeof(nans));
    put_row(0, table, 3, fine, sizeof(fine)); /* in its place */
    put_row(0, halves, 4, infinite, sizeof(infinite));
    assert_int_equal(node_counter(n, 0, "table.rows_not_finite"), 3);
    fake_dp_hold(0);
    fake_dp_wait_held(0);
    assert_int_equal(
        ps_variable_set(ps_core_feature(fake_dp_app(0), variable)->ranges[0].variable, 0, nans, NODE_DIM),
        MR_OK);
    fake_dp_release(0);
    node_save(n);
    int before = dup(STDERR_FILENO), log = memfd_create("log", 0);
    assert_true(before >= 0 && log >= 0 && dup2(log, STDERR_FILENO) >= 0);
    node_restart(n, 1);
    assert_true(dup2(before, STDERR_FILENO) >= 0);
    ssize_t bytes = pread(log, text, sizeof(text) - 1, 0);
    assert_true(bytes > 0);
    text[bytes] = '\0';
    close(before);
    close(log);
    assert_non_null(strstr(text, "restore: table emb has 2 rows with NaN or Inf in checkpoint 1"));
    assert_non_null(strstr(text, "restore: table half has 1 row with NaN or Inf in checkpoint 1"));
    assert_non_null(strstr(text, "restore: variable bias has 1 range with NaN or Inf in checkpoint 1"));
    assert_int_equal(node_counter(n, 0, "table.rows_not_finite"), 3);
    assert_float_equal(node_value(n, table, 3), 1, 0);
}
