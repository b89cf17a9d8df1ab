#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "ps/index.h"
#include "ps/key_hash.h"
#include "table_fixture.h"

struct fixture {
    struct ps_arena *arena;
    struct ps_index ix;
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    f->arena = ps_arena_create(FIXTURE_LIMIT_BYTES);
    assert_non_null(f->arena);
    ps_index_init(&f->ix, f->arena, 99);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    ps_index_clear(&f->ix);
    assert_int_equal(ps_arena_allocated_bytes(f->arena), 0);
    ps_arena_destroy(f->arena);
    free(f);
    return 0;
}

static bool insert(struct ps_index *ix, uint64_t key, uint32_t row)
{
    return ps_index_insert(ix, key, ps_key_hash(key, ix->seed), row);
}

/* The key's row number, UINT32_MAX when it is not there. */
static uint32_t find(const struct ps_index *ix, uint64_t key)
{
    struct ps_place place = ps_index_find(ix, key, ps_key_hash(key, ix->seed));
    return place.bucket == NULL ? UINT32_MAX : place.bucket->rows[place.slot];
}

static void test_hash_is_the_one_of_the_wire(void **state)
{
    uint64_t rng = fixture_seed("hash");
    assert_int_equal(ps_key_hash(0, 0), mr_key_hash(0, 0));
    assert_int_equal(ps_key_hash(UINT64_MAX, UINT64_MAX), mr_key_hash(UINT64_MAX, UINT64_MAX));
    for (uint32_t i = 0; i < 1000; i++) {
        uint64_t key = random_next(&rng), seed = random_next(&rng);
        assert_int_equal(ps_key_hash(key, seed), mr_key_hash(key, seed));
    }
}

static void test_an_empty_index_holds_no_memory_and_no_key(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(f->ix.bytes, 0);
    assert_int_equal(find(&f->ix, 0), UINT32_MAX);
    assert_int_equal(find(&f->ix, UINT64_MAX), UINT32_MAX);
}

static void test_zero_and_all_ones_are_keys_like_others(void **state)
{
    struct fixture *f = *state;
    assert_true(insert(&f->ix, 0, 5));
    assert_int_equal(find(&f->ix, 0), 5);
    assert_int_equal(find(&f->ix, UINT64_MAX), UINT32_MAX);
    assert_true(insert(&f->ix, UINT64_MAX, 6));
    assert_int_equal(find(&f->ix, UINT64_MAX), 6);
    assert_int_equal(f->ix.rows, 2);
}

static void test_random_keys_are_found_and_others_not(void **state)
{
    enum { COUNT = 300000 };
    struct fixture *f = *state;
    uint64_t seed = fixture_seed("index"), rng = seed;
    for (uint32_t i = 0; i < COUNT; i++)
        assert_true(insert(&f->ix, random_next(&rng), i));
    assert_int_equal(f->ix.rows, COUNT);
    rng = seed;
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(find(&f->ix, random_next(&rng)), i);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(find(&f->ix, random_next(&rng)), UINT32_MAX);
    assert_true(f->ix.bytes < COUNT * 20);
    assert_int_equal(ps_arena_allocated_bytes(f->arena), f->ix.bytes);
}

/* Keys of one partition only: what an adversary, or bad luck, would send. */
static void test_one_partition_takes_them_all(void **state)
{
    enum { COUNT = 3000 };
    struct fixture *f = *state;
    uint64_t keys[COUNT], rng = fixture_seed("one partition");
    uint32_t count = 0;
    while (count < COUNT) {
        uint64_t key = random_next(&rng);
        if (mr_partition_of(ps_key_hash(key, f->ix.seed)) == 17) {
            keys[count] = key;
            assert_true(insert(&f->ix, key, count));
            count++;
        }
    }
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(find(&f->ix, keys[i]), i);
    const struct ps_partition *p = &f->ix.partitions[17];
    assert_int_equal(p->rows, COUNT);
    assert_true(p->bucket_count * PS_BUCKET_KEYS < 2 * COUNT);
}

/* Partitions of one to a few buckets, where keys overflow from the last bucket into the first. */
static void test_small_partitions_at_every_size(void **state)
{
    enum { COUNT = 150 };
    struct fixture *f = *state;
    uint64_t keys[COUNT], rng = 2; /* fixed: keys that do overflow around the end */
    bool overflowed_around = false;
    for (uint32_t count = 0; count < COUNT;) {
        uint64_t key = random_next(&rng), hash = ps_key_hash(key, f->ix.seed);
        if (mr_partition_of(hash) >= 3)
            continue;
        assert_int_equal(find(&f->ix, key), UINT32_MAX);
        assert_true(insert(&f->ix, key, count));
        keys[count++] = key;
        for (uint32_t i = 0; i < count; i++)
            assert_int_equal(find(&f->ix, keys[i]), i);
        for (uint32_t i = 0; i < count; i++) {
            uint64_t h = ps_key_hash(keys[i], f->ix.seed);
            overflowed_around |= ps_index_find(&f->ix, keys[i], h).bucket < ps_index_home(&f->ix, h);
        }
    }
    assert_true(overflowed_around);
}

static void test_clear_gives_all_back(void **state)
{
    struct fixture *f = *state;
    for (uint32_t i = 0; i < 50000; i++)
        assert_true(insert(&f->ix, i, i));
    ps_index_clear(&f->ix);
    assert_int_equal(f->ix.rows, 0);
    assert_int_equal(f->ix.bytes, 0);
    assert_int_equal(find(&f->ix, 1), UINT32_MAX);
    assert_true(insert(&f->ix, 1, 3));
    assert_int_equal(find(&f->ix, 1), 3);
}

static void test_no_memory_changes_nothing(void **state)
{
    struct ps_arena *small = ps_arena_create(PS_ARENA_LIMIT_BYTES_MIN);
    struct ps_index *ix = calloc(1, sizeof(*ix));
    assert_non_null(small);
    assert_non_null(ix);
    ps_index_init(ix, small, 1);
    uint64_t key = 0;
    while (insert(ix, key, (uint32_t)key))
        key++;
    assert_int_equal(ix->rows, key);
    assert_int_equal(find(ix, key), UINT32_MAX);
    for (uint64_t i = 0; i < key; i++)
        assert_int_equal(find(ix, i), i);
    ps_index_clear(ix);
    ps_arena_destroy(small);
    free(ix);
}

static void count_pending(const struct ps_index *ix, uint64_t *pending)
{
    *pending = 0;
    for (uint32_t i = 0; i < MR_PARTITION_COUNT; i++)
        for (uint32_t j = 0; j < ix->partitions[i].bucket_count; j++)
            *pending += (uint64_t)__builtin_popcount(ps_bucket_pending(ix, &ix->partitions[i].buckets[j]));
}

static void test_a_cut_holds_the_keys_there_are_through_growth(void **state)
{
    struct fixture *f = *state;
    uint64_t pending;
    for (uint32_t i = 0; i < 20000; i++)
        assert_true(insert(&f->ix, i, i));
    ps_index_cut_begin(&f->ix);
    for (uint32_t i = 20000; i < 90000; i++)
        assert_true(insert(&f->ix, i, i));
    count_pending(&f->ix, &pending);
    assert_int_equal(pending, 20000);
    for (uint32_t i = 0; i < 90000; i++) {
        struct ps_place place = ps_index_find(&f->ix, i, ps_key_hash(i, f->ix.seed));
        assert_int_equal(ps_bucket_pending(&f->ix, place.bucket) >> place.slot & 1, i < 20000);
    }
    ps_index_cut_begin(&f->ix);
    count_pending(&f->ix, &pending);
    assert_int_equal(pending, 90000);
}

static void test_generations_start_again(void **state)
{
    struct fixture *f = *state;
    uint64_t pending;
    for (uint32_t i = 0; i < 1000; i++)
        assert_true(insert(&f->ix, i, i));
    ps_index_cut_begin(&f->ix);
    for (uint32_t i = 0; i < 500; i++) {
        struct ps_place place = ps_index_find(&f->ix, i, ps_key_hash(i, f->ix.seed));
        ps_bucket_set_pending(&f->ix, place.bucket, 0);
    }
    f->ix.generation = PS_GENERATION_MAX; /* as after two million cuts */
    ps_index_cut_begin(&f->ix);
    assert_int_equal(f->ix.generation, 1);
    count_pending(&f->ix, &pending);
    assert_int_equal(pending, 1000);
}

int main(void)
{
#define WITH_INDEX(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hash_is_the_one_of_the_wire),
        WITH_INDEX(test_an_empty_index_holds_no_memory_and_no_key),
        WITH_INDEX(test_zero_and_all_ones_are_keys_like_others),
        WITH_INDEX(test_random_keys_are_found_and_others_not),
        WITH_INDEX(test_one_partition_takes_them_all),
        WITH_INDEX(test_small_partitions_at_every_size),
        WITH_INDEX(test_clear_gives_all_back),
        cmocka_unit_test(test_no_memory_changes_nothing),
        WITH_INDEX(test_a_cut_holds_the_keys_there_are_through_growth),
        WITH_INDEX(test_generations_start_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
