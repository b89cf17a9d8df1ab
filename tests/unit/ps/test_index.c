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
    return ps_index_insert(ix, key, ps_key_hash(key, ix->seed), row, false);
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
    ps_index_cut_begin(&f->ix, false);
    for (uint32_t i = 20000; i < 90000; i++)
        assert_true(insert(&f->ix, i, i));
    count_pending(&f->ix, &pending);
    assert_int_equal(pending, 20000);
    for (uint32_t i = 0; i < 90000; i++) {
        struct ps_place place = ps_index_find(&f->ix, i, ps_key_hash(i, f->ix.seed));
        assert_int_equal(ps_bucket_pending(&f->ix, place.bucket) >> place.slot & 1, i < 20000);
    }
    ps_index_cut_begin(&f->ix, false);
    count_pending(&f->ix, &pending);
    assert_int_equal(pending, 90000);
}

static void remove_key(struct ps_index *ix, uint64_t key)
{
    uint64_t hash = ps_key_hash(key, ix->seed);
    struct ps_place place = ps_index_find(ix, key, hash);
    assert_non_null(place.bucket);
    ps_index_remove(ix, place, hash);
}

static void maintain_to_the_end(struct ps_index *ix)
{
    for (uint64_t budget = 1; ps_index_maintain(ix, &budget); budget = 1)
        ;
    assert_int_equal(ix->untidy_count, 0);
}

/* Keys come and go at random, in few and in many partitions, with upkeep now and then or never. */
static void keys_come_and_go(struct ps_index *ix, uint64_t *rng, uint32_t partitions, bool maintain)
{
    enum { KEYS = 4000, STEPS = 150000 };
    static uint64_t keys[KEYS];
    static bool there[KEYS];
    uint32_t count = 0;
    for (uint32_t i = 0; i < KEYS; i++) {
        do
            keys[i] = random_next(rng);
        while (mr_partition_of(ps_key_hash(keys[i], ix->seed)) >= partitions);
        there[i] = false;
    }
    for (uint32_t i = 0; i < STEPS; i++) {
        uint32_t which = random_below(rng, KEYS / (1 + i / 10000 % 3));
        assert_int_equal(find(ix, keys[which]), there[which] ? which : UINT32_MAX);
        if (there[which])
            remove_key(ix, keys[which]);
        else
            assert_true(insert(ix, keys[which], which));
        there[which] = !there[which];
        count += there[which] ? 1 : UINT32_MAX;
        assert_int_equal(ix->rows, count);
        uint64_t budget = random_below(rng, 2000);
        if (maintain && i % 100 == 0)
            ps_index_maintain(ix, &budget);
    }
    for (uint32_t i = 0; i < KEYS; i++)
        assert_int_equal(find(ix, keys[i]), there[i] ? i : UINT32_MAX);
    ps_index_clear(ix);
}

static void test_keys_come_and_go(void **state)
{
    struct fixture *f = *state;
    uint64_t rng = fixture_seed("keys come and go");
    for (uint32_t i = 0; i < 6; i++)
        keys_come_and_go(&f->ix, &rng, (uint32_t[]){1, 7, MR_PARTITION_COUNT}[i / 2], i % 2 == 0);
}

static uint64_t overflow_flags(const struct ps_index *ix)
{
    uint64_t flags = 0;
    for (uint32_t i = 0; i < MR_PARTITION_COUNT; i++)
        for (uint32_t j = 0; j < ix->partitions[i].bucket_count; j++)
            flags += (ix->partitions[i].buckets[j].flags & PS_BUCKET_OVERFLOW) != 0;
    return flags;
}

static void test_removing_most_keys_gives_the_memory_back(void **state)
{
    enum { COUNT = 200000, LEFT = 20000 };
    struct fixture *f = *state;
    for (uint32_t i = 0; i < LEFT; i++)
        assert_true(insert(&f->ix, i, i));
    size_t small_bytes = f->ix.bytes;
    for (uint32_t i = LEFT; i < COUNT; i++)
        assert_true(insert(&f->ix, i, i));
    size_t full_bytes = f->ix.bytes;
    for (uint32_t i = LEFT; i < COUNT; i++)
        remove_key(&f->ix, i);
    assert_int_equal(f->ix.bytes, full_bytes);
    maintain_to_the_end(&f->ix);
    assert_true(f->ix.bytes <= small_bytes + small_bytes / 4);
    assert_int_equal(ps_arena_allocated_bytes(f->arena), f->ix.bytes);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(find(&f->ix, i), i < LEFT ? i : UINT32_MAX);
    for (uint32_t i = 0; i < LEFT; i++)
        remove_key(&f->ix, i);
    maintain_to_the_end(&f->ix);
    assert_int_equal(f->ix.bytes, 0);
}

/* The same number of rows, others all the time: the flags that removals leave do not gather. */
static void test_flags_of_no_use_are_cleared(void **state)
{
    enum { COUNT = 100000, ROUNDS = 20 };
    struct fixture *f = *state;
    for (uint32_t i = 0; i < COUNT; i++)
        assert_true(insert(&f->ix, i, i));
    uint64_t flags = overflow_flags(&f->ix), bytes = f->ix.bytes;
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        for (uint32_t i = 0; i < COUNT; i++) {
            remove_key(&f->ix, (uint64_t)(round - 1) * COUNT + i);
            assert_true(insert(&f->ix, (uint64_t)round * COUNT + i, i));
        }
        maintain_to_the_end(&f->ix);
    }
    assert_true(overflow_flags(&f->ix) < 2 * flags + 100);
    assert_true(f->ix.bytes < bytes + bytes / 3);
}

/* What was there when the cut began is pending until it is taken, however often partitions are written anew. */
static void test_a_cut_goes_on_through_removals_and_upkeep(void **state)
{
    enum { COUNT = 60000 };
    struct fixture *f = *state;
    uint64_t pending;
    for (uint32_t i = 0; i < COUNT; i++)
        assert_true(insert(&f->ix, i, i));
    ps_index_cut_begin(&f->ix, false);
    for (uint32_t i = 0; i < COUNT; i += 2)
        remove_key(&f->ix, i);
    for (uint32_t i = COUNT; i < COUNT + 100; i++)
        assert_true(insert(&f->ix, i, i));
    count_pending(&f->ix, &pending);
    assert_int_equal(pending, COUNT / 2);
    maintain_to_the_end(&f->ix);
    count_pending(&f->ix, &pending);
    assert_int_equal(pending, COUNT / 2);
    for (uint32_t i = 0; i < COUNT + 100; i++) {
        struct ps_place place = ps_index_find(&f->ix, i, ps_key_hash(i, f->ix.seed));
        assert_int_equal(place.bucket == NULL, i < COUNT && i % 2 == 0);
        if (place.bucket != NULL)
            assert_int_equal(ps_bucket_pending(&f->ix, place.bucket) >> place.slot & 1, i < COUNT);
    }
}

static struct ps_place place_of(struct ps_index *ix, uint64_t key)
{
    return ps_index_find(ix, key, ps_key_hash(key, ix->seed));
}

static bool is_pending(struct ps_index *ix, uint64_t key)
{
    struct ps_place place = place_of(ix, key);
    return (ps_bucket_pending(ix, place.bucket) >> place.slot & 1) != 0;
}

static bool is_marked(struct ps_index *ix, uint64_t key)
{
    struct ps_place place = place_of(ix, key);
    return (ps_bucket_marks(ix, place.bucket) >> place.slot & 1) != 0;
}

/* All that there is to emit is. */
static void emit_all(struct ps_index *ix)
{
    for (uint32_t i = 0; i < MR_PARTITION_COUNT; i++)
        for (uint32_t j = 0; ix->partitions[i].rows > 0 && j < ix->partitions[i].bucket_count; j++)
            ps_bucket_set_pending(ix, &ix->partitions[i].buckets[j], 0);
    ps_index_cut_is_whole(ix);
}

/* Rows that change while a cut of marks runs are of the next one; marks and what is pending go with keys that move. */
static void test_marks_go_through_cuts_growth_and_removals(void **state)
{
    enum { COUNT = 20000, MORE = 60000 };
    struct fixture *f = *state;
    struct ps_index *ix = &f->ix;
    uint64_t pending;
    for (uint32_t i = 0; i < COUNT; i++)
        assert_true(ps_index_insert(ix, i, ps_key_hash(i, ix->seed), i, i % 2 == 0));
    assert_int_equal(ix->marks, COUNT / 2);
    ps_index_mark(ix, place_of(ix, 1));
    ps_index_mark(ix, place_of(ix, 1));
    assert_int_equal(ix->marks, COUNT / 2 + 1);
    remove_key(ix, 1);
    assert_int_equal(ps_index_cut_begin(ix, true), COUNT / 2);
    assert_int_equal(ix->marks, 0);
    for (uint32_t i = 0; i < COUNT; i += 7)
        if (i != 1)
            ps_index_mark(ix, place_of(ix, i));
    for (uint32_t i = COUNT; i < MORE; i++) /* partitions grow */
        assert_true(ps_index_insert(ix, i, ps_key_hash(i, ix->seed), i, true));
    for (uint32_t i = 0; i < COUNT; i += 3)
        if (i != 1)
            remove_key(ix, i);
    maintain_to_the_end(ix);
    uint64_t marks = 0, left = 0;
    for (uint32_t i = 0; i < MORE; i++) {
        if (i == 1 || (i < COUNT && i % 3 == 0))
            continue;
        assert_int_equal(is_pending(ix, i), i < COUNT && i % 2 == 0);
        assert_int_equal(is_marked(ix, i), i >= COUNT || i % 7 == 0);
        marks += i >= COUNT || i % 7 == 0;
        left += i < COUNT && i % 2 == 0;
    }
    count_pending(ix, &pending);
    assert_int_equal(pending, left);
    assert_int_equal(ix->marks, marks);
    emit_all(ix);
    assert_int_equal(ps_index_cut_begin(ix, true), marks);
    count_pending(ix, &pending);
    assert_int_equal(pending, marks);
}

/* A cut of all keys takes the marks, also those of buckets that it has not come to. */
static void test_a_cut_of_all_takes_the_marks(void **state)
{
    struct fixture *f = *state;
    struct ps_index *ix = &f->ix;
    for (uint32_t i = 0; i < 1000; i++)
        assert_true(ps_index_insert(ix, i, ps_key_hash(i, ix->seed), i, true));
    assert_int_equal(ps_index_cut_begin(ix, false), 1000);
    for (uint32_t i = 0; i < 1000; i++)
        assert_true(is_pending(ix, i) && !is_marked(ix, i));
    ps_index_mark(ix, place_of(ix, 5));
    assert_true(is_pending(ix, 5) && is_marked(ix, 5));
    emit_all(ix);
    assert_int_equal(ps_index_cut_begin(ix, true), 1);
    for (uint32_t i = 0; i < 1000; i++)
        assert_int_equal(is_pending(ix, i), i == 5);
}

/* Buckets of a cut of all keys stay as they are through as many cuts of marks as there are generations. */
static void test_generations_go_round(void **state)
{
    struct fixture *f = *state;
    struct ps_index *ix = &f->ix;
    for (uint32_t i = 0; i < 1000; i++)
        assert_true(insert(ix, i, i));
    (void)ps_index_cut_begin(ix, false);
    emit_all(ix);
    for (uint32_t cut = 0; cut < 3 * PS_GENERATION_MAX; cut++) {
        ps_index_mark(ix, place_of(ix, cut % 500));
        assert_int_equal(ps_index_cut_begin(ix, true), 1);
        assert_true(is_pending(ix, cut % 500) && !is_pending(ix, (cut + 1) % 500) && !is_pending(ix, 700));
        ps_bucket_set_pending(ix, place_of(ix, cut % 500).bucket, 0);
        ps_index_cut_is_whole(ix);
    }
    ps_index_mark(ix, place_of(ix, 800));
    (void)ps_index_cut_begin(ix, true);
    uint64_t pending;
    count_pending(ix, &pending);
    assert_int_equal(pending, 1);
}

static void test_generations_start_again(void **state)
{
    struct fixture *f = *state;
    uint64_t pending;
    for (uint32_t i = 0; i < 1000; i++)
        assert_true(insert(&f->ix, i, i));
    ps_index_cut_begin(&f->ix, false);
    for (uint32_t i = 0; i < 500; i++)
        ps_bucket_set_pending(&f->ix, place_of(&f->ix, i).bucket, 0);
    f->ix.generation = 17;
    f->ix.generations_old = PS_GENERATION_MAX - 1; /* as after so many cuts that were not whole */
    ps_index_cut_begin(&f->ix, false);
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
        WITH_INDEX(test_keys_come_and_go),
        WITH_INDEX(test_removing_most_keys_gives_the_memory_back),
        WITH_INDEX(test_flags_of_no_use_are_cleared),
        WITH_INDEX(test_a_cut_goes_on_through_removals_and_upkeep),
        WITH_INDEX(test_marks_go_through_cuts_growth_and_removals),
        WITH_INDEX(test_a_cut_of_all_takes_the_marks),
        WITH_INDEX(test_generations_go_round),
        WITH_INDEX(test_generations_start_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
