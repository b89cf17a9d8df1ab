/* Checkpoints of tables in f16 and bf16 through a whole node, restored onto other numbers of cores: what is pushed then is
 * rounded as if nothing had happened. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include "node_fixture.h"

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

static void f16_from_1_core_to_3(void **state)
{
    check_type(*state, "half", MR_F16, 3);
}

static void bf16_from_1_core_to_2(void **state)
{
    check_type(*state, "brain", MR_BF16, 2);
}

static void bf16_from_3_cores_to_1(void **state)
{
    check_type(*state, "brain", MR_BF16, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(f16_from_1_core_to_3, node_setup, node_teardown),
        cmocka_unit_test_setup_teardown(bf16_from_1_core_to_2, node_setup, node_teardown),
        cmocka_unit_test_setup_teardown(bf16_from_3_cores_to_1, node_setup_3_cores, node_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
