/* Partly learnt batches: which keys are left out of their push. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>
#include "ps/partial.h"

static struct ps_partial with_partition_of(uint64_t key, uint64_t seed)
{
    struct ps_partial p = {.batch_id = 1};
    uint32_t partition = mr_partition_of(mr_key_hash(key, seed));
    p.partitions[partition / 64] |= UINT64_C(1) << (partition % 64);
    return p;
}

static void leaves_out_keys_of_learnt_partitions(void **state)
{
    struct ps_partial p = with_partition_of(20, 7);
    uint64_t keys[6] = {10, 20, 30, 20, 20, 40};
    uint32_t offsets[5] = {0, 2, 4, 5, 6};
    (void)state;
    assert_int_equal(ps_partial_filter(&p, 7, keys, offsets, 4), 3);
    const uint64_t left[3] = {10, 30, 40};
    const uint32_t bags[5] = {0, 1, 2, 2, 3};
    assert_memory_equal(keys, left, sizeof(left));
    assert_memory_equal(offsets, bags, sizeof(bags));
}

static void the_seed_decides(void **state)
{
    struct ps_partial p = with_partition_of(20, 7);
    uint64_t keys[1] = {20};
    uint32_t offsets[2] = {0, 1};
    (void)state;
    assert_int_equal(ps_partial_filter(&p, 8, keys, offsets, 1), 1);
    assert_int_equal(keys[0], 20);
}

static void none_and_all(void **state)
{
    struct ps_partial p = {0};
    uint64_t keys[3] = {1, 2, 3};
    uint32_t offsets[3] = {0, 1, 3};
    (void)state;
    assert_int_equal(ps_partial_filter(&p, 0, keys, offsets, 2), 3);
    assert_int_equal(offsets[2], 3);
    memset(p.partitions, 0xFF, sizeof(p.partitions));
    assert_int_equal(ps_partial_filter(&p, 0, keys, offsets, 2), 0);
    assert_int_equal(offsets[1], 0);
    assert_int_equal(offsets[2], 0);
}

static void are_found_until_they_are_learnt(void **state)
{
    struct ps_partial entries[3] = {{.batch_id = 5}, {.batch_id = 6}, {.batch_id = 7}};
    struct ps_partials p = {0};
    (void)state;
    assert_null(ps_partials_find(&p, 5));
    assert_true(ps_partials_set(&p, entries, 3));
    ps_partials_remove(&p, 5);
    ps_partials_remove(&p, 8);
    assert_null(ps_partials_find(&p, 5));
    assert_int_equal(ps_partials_find(&p, 6)->batch_id, 6);
    assert_int_equal(ps_partials_find(&p, 7)->batch_id, 7);
    assert_int_equal(p.count, 2);
    assert_true(ps_partials_set(&p, entries, 1));
    assert_int_equal(p.count, 1);
    ps_partials_clear(&p);
    assert_null(ps_partials_find(&p, 5));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leaves_out_keys_of_learnt_partitions),
        cmocka_unit_test(the_seed_decides),
        cmocka_unit_test(none_and_all),
        cmocka_unit_test(are_found_until_they_are_learnt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
