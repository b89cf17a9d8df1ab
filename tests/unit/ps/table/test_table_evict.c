/* Eviction of tables beside plain models: AGE, STEPS and NORM; limits; cuts. LRU and LFU against exact ones:
 * test_table_evict_hits.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "ps/table/table_internal.h"
#include "table_fixture.h"
#include "tests/test.h"
#include "tests/unit/ps/table_calls.h"

#define DIM      4u
#define KEYS     3000u
#define CAPACITY 800u /* fewer than are used within the limit, and not many */

static struct mr_feature feature_of(enum mr_eviction eviction, float arg)
{
    struct mr_feature f = fixture_adagrad(DIM);
    f.eviction = (uint32_t)eviction;
    f.eviction_arg = arg;
    return f;
}

static void evict_all_due(struct ps_table *t)
{
    while (ps_table_evict(t, 2000)) {
    }
}

/* Rows are looked up and pushed at random over time; `last` is the model: when each key's row was used. */
static void check_unseen(enum mr_eviction eviction, uint64_t capacity, const char *name)
{
    enum { LIMIT = 40, PERIOD = LIMIT / PS_EVICT_ROUNDS_PER_LIMIT + 1, TIMES = 400 };
    struct mr_feature f = feature_of(eviction, LIMIT);
    f.capacity_rows = capacity;
    struct ps_table *t = fixture_table(&f, fixture_arena);
    static uint32_t last[KEYS];
    static const float gradient[DIM] = {0.5f};
    uint64_t rng = fixture_seed(name);
    bool by_steps = eviction == MR_EVICT_STEPS;
    /* at a limit few rows get so old: how many depends on where the secret places them */
    const uint32_t end = 1000 + (capacity != 0 ? 4 : 1) * TIMES;
    memset(last, 0, sizeof(last));
    for (uint32_t now = 1000; now < end; now++) {
        ps_table_set_now(t, by_steps ? 1 : now, by_steps ? now : 1);
        for (uint32_t i = 0; i < 30; i++) {
            uint64_t key = random_below(&rng, KEYS);
            bool push = random_below(&rng, 4) == 0, had = fixture_has_row(t, key);
            if (push)
                table_push(t, &key, 1, gradient);
            else
                fixture_insert(t, key);
            last[key] = !push || had ? now : last[key];
            assert_true(push || fixture_has_row(t, key) || (capacity != 0 && ps_table_rows(t) == capacity));
        }
        evict_all_due(t);
        uint64_t rows = 0;
        for (uint32_t key = 0; key < KEYS; key++) {
            uint32_t unseen = now - last[key];
            bool here = fixture_has_row(t, key);
            rows += here;
            assert_true(here || last[key] == 0 || unseen > (capacity != 0 ? 0 : LIMIT));
            assert_true(!here || unseen <= LIMIT + 2 * PERIOD + 1);
        }
        assert_int_equal(ps_table_rows(t), rows);
    }
    const struct ps_table_counters *c = ps_table_counters(t);
    uint64_t evicted = by_steps ? c->rows_evicted_steps : c->rows_evicted_age;
    assert_true(evicted > (capacity != 0 ? 100 : KEYS));
    assert_int_equal(c->rows_evicted_capacity > 0, capacity != 0);
    assert_int_equal(c->rows_created - evicted - c->rows_evicted_capacity, ps_table_rows(t));
    assert_int_equal(c->rows_evicted_age + c->rows_evicted_steps + c->rows_evicted_norm, evicted);
    ps_table_destroy(t);
}

TEST(rows_unseen_for_too_many_seconds_go, fixture_arena_create, fixture_arena_destroy)
{
    check_unseen(MR_EVICT_AGE, 0, "eviction by age");
    check_unseen(MR_EVICT_AGE, CAPACITY, "eviction by age at a limit");
}

TEST(rows_unseen_for_too_many_steps_go, fixture_arena_create, fixture_arena_destroy)
{
    check_unseen(MR_EVICT_STEPS, 0, "eviction by steps");
    check_unseen(MR_EVICT_STEPS, CAPACITY, "eviction by steps at a limit");
}

/* At a limit new rows take the place of the stalest, long before its time is up. */
TEST(the_stalest_row_goes_at_a_limit, fixture_arena_create, fixture_arena_destroy)
{
    static const enum mr_eviction by[] = {MR_EVICT_AGE, MR_EVICT_STEPS};
    enum { ROWS = 8, FIRST = 100, TIMES = 80 }; /* so few rows that every sample has all of them */
    for (size_t i = 0; i < 2; i++) {
        struct mr_feature f = feature_of(by[i], 1000000);
        f.capacity_rows = ROWS;
        struct ps_table *t = fixture_table(&f, fixture_arena);
        uint32_t seen[TIMES] = {0}; /* 0: the key has no row */
        for (uint32_t key = 0; key < TIMES; key++) {
            const uint32_t now = FIRST + 2 * key; /* no two rows are used at one time */
            uint32_t stalest = 0;
            ps_table_set_now(t, now, now);
            if (key % 3 == 0 && key >= 5 && seen[key - 5] != 0) {
                fixture_insert(t, key - 5);
                seen[key - 5] = now;
            }
            for (uint32_t k = 0; k < key; k++)
                stalest = seen[k] != 0 && (seen[stalest] == 0 || seen[k] < seen[stalest]) ? k : stalest;
            ps_table_set_now(t, now + 1, now + 1);
            fixture_insert(t, key);
            seen[key] = now + 1;
            if (key >= ROWS)
                seen[stalest] = 0;
            for (uint32_t k = 0; k <= key; k++)
                assert_int_equal(fixture_has_row(t, k), seen[k] != 0);
        }
        const struct ps_table_counters *c = ps_table_counters(t);
        assert_int_equal(c->rows_evicted_capacity, TIMES - ROWS);
        assert_int_equal(c->rows_refused + c->rows_evicted_age + c->rows_evicted_steps, 0);
        ps_table_destroy(t);
    }
}

/* Ten times as many keys as there may be rows, some of them used all the time. */
TEST(used_rows_stay_at_a_limit, fixture_arena_create, fixture_arena_destroy)
{
    enum { ROWS = 1000, HOT = 200, NEW = 50, STEPS = 200 };
    struct mr_feature f = feature_of(MR_EVICT_STEPS, 1000000);
    f.capacity_rows = ROWS;
    struct ps_table *t = fixture_table(&f, fixture_arena);
    for (uint64_t step = 1; step <= STEPS; step++) {
        ps_table_set_now(t, 1, step);
        for (uint64_t key = 0; key < HOT; key++)
            fixture_insert(t, key);
        for (uint64_t i = 0; i < NEW; i++)
            fixture_insert(t, HOT + step * NEW + i);
        for (uint64_t key = 0; key < HOT; key++)
            assert_true(fixture_has_row(t, key));
    }
    const struct ps_table_counters *c = ps_table_counters(t);
    assert_int_equal(ps_table_rows(t), ROWS);
    assert_int_equal(c->rows_refused, 0);
    assert_int_equal(c->rows_evicted_capacity, HOT + STEPS * NEW - ROWS);
    ps_table_destroy(t);
}

/* What was used in this second, or by this step, stays: calls in progress may hold it. */
TEST(rows_of_now_stay_at_a_limit, fixture_arena_create, fixture_arena_destroy)
{
    enum { ROWS = 100 };
    struct mr_feature f = feature_of(MR_EVICT_AGE, 1000);
    f.capacity_rows = ROWS;
    struct ps_table *t = fixture_table(&f, fixture_arena);
    ps_table_set_now(t, 50, 0);
    for (uint64_t key = 0; key < 2 * ROWS; key++)
        fixture_insert(t, key);
    for (uint64_t key = 0; key < ROWS; key++)
        assert_true(fixture_has_row(t, key));
    assert_int_equal(ps_table_counters(t)->rows_refused, ROWS);
    ps_table_set_now(t, 51, 0);
    fixture_insert(t, ROWS);
    assert_true(fixture_has_row(t, ROWS));
    assert_int_equal(ps_table_rows(t), ROWS);
    ps_table_destroy(t);
}

/* A table over its limit, which a checkpoint or an alteration made so, returns to it. */
TEST(stale_rows_beyond_the_limit_go, fixture_arena_create, fixture_arena_destroy)
{
    struct mr_feature f = feature_of(MR_EVICT_STEPS, 1000000), less = f;
    struct ps_table *t = fixture_table(&f, fixture_arena);
    for (uint64_t key = 0; key < 300; key++) {
        ps_table_set_now(t, 1, 1 + key / 100);
        fixture_insert(t, key);
    }
    less.capacity_rows = 50;
    ps_table_alter(t, &less, 0, 1);
    for (uint32_t i = 0; i < 1000; i++) /* a sample may have rows of this step alone */
        (void)ps_table_evict(t, 2000);
    assert_int_equal(ps_table_rows(t), 100); /* those of this step stay */
    ps_table_set_now(t, 1, 4);
    evict_all_due(t);
    assert_int_equal(ps_table_rows(t), 50);
    assert_int_equal(ps_table_counters(t)->rows_evicted_capacity, 250);
    ps_table_destroy(t);
}

/* The index shrinks while the cursor is on its way: it still comes by every row, though the clock stands
 * still from then on. */
TEST(no_row_is_passed_over_while_the_index_shrinks, fixture_arena_create, fixture_arena_destroy)
{
    enum { ROWS = 60000 };
    struct mr_feature f = feature_of(MR_EVICT_STEPS, 10);
    struct ps_table *t = fixture_table(&f, fixture_arena);
    ps_table_set_now(t, 1, 1);
    for (uint64_t key = 0; key < ROWS; key++)
        fixture_insert(t, key);
    ps_table_set_now(t, 1, 5);
    for (uint64_t key = 0; key < ROWS; key += 4)
        fixture_insert(t, key);
    ps_table_set_now(t, 1, 14);
    for (bool more = true; more;) {
        more = ps_table_evict(t, 2000);
        more |= ps_table_maintain(t, 2000);
    }
    assert_int_equal(ps_table_rows(t), ROWS / 4);
    ps_table_destroy(t);
}

TEST(a_read_only_lookup_does_not_keep_a_row, fixture_arena_create, fixture_arena_destroy)
{
    struct mr_feature f = feature_of(MR_EVICT_AGE, 10);
    struct ps_table *t = fixture_table(&f, fixture_arena);
    ps_table_set_now(t, 100, 0);
    fixture_insert(t, 1);
    fixture_insert(t, 2);
    for (uint32_t now = 101; now < 114; now++) {
        ps_table_set_now(t, now, 0);
        assert_true(fixture_has_row(t, 1) || now > 111); /* looks without leave to insert */
        fixture_insert(t, 2);
        evict_all_due(t);
    }
    assert_false(fixture_has_row(t, 1));
    assert_true(fixture_has_row(t, 2));
    ps_table_destroy(t);
}

TEST(small_rows_go_once_they_are_idle, fixture_arena_create, fixture_arena_destroy)
{
    struct mr_feature f = feature_of(MR_EVICT_NORM, 0.5f);
    f.initializer = MR_INIT_CONSTANT;
    f.init_a = 0;
    f.optimizer = MR_OPT_SGD;
    f.learning_rate = 1;
    struct ps_table *t = fixture_table(&f, fixture_arena);
    ps_table_set_now(t, 1000, 0);
    for (uint64_t key = 0; key < 100; key++) {
        const float gradient[DIM] = {0, 0.01f * (float)key, 0, 0}; /* norm 0 .. 0.99 */
        fixture_insert(t, key);
        table_push(t, &key, 1, gradient);
    }
    for (uint32_t now = 1001; now <= 1000 + PS_NORM_IDLE_S; now++) {
        ps_table_set_now(t, now, 0);
        evict_all_due(t);
    }
    assert_int_equal(ps_table_rows(t), 100); /* gradients of their last lookups may be on the way */
    fixture_insert(t, 7);
    for (uint32_t now = 1001 + PS_NORM_IDLE_S; now < 1010 + PS_NORM_IDLE_S; now++) {
        ps_table_set_now(t, now, 0);
        evict_all_due(t);
    }
    for (uint64_t key = 0; key < 100; key++)
        if (key != 50) /* 0.01f * 50 is 0.5 or beside it */
            assert_int_equal(fixture_has_row(t, key), key > 50 || key == 7);
    assert_true(ps_table_counters(t)->rows_evicted_norm >= 49);
    ps_table_destroy(t);
}

/* Values never change here: whatever a large call answers is the keys' first values, also when rows that it
 * has found are in the way of rows that it makes. */
TEST(rows_that_a_call_holds_stay, fixture_arena_create, fixture_arena_destroy)
{
    enum { CALL = 500 };
    uint64_t rng = fixture_seed("rows held by a call");
    struct mr_feature plain = fixture_adagrad(DIM);
    struct ps_table *all = fixture_table(&plain, fixture_arena);
    static uint64_t keys[CALL];
    static float out[CALL * DIM], expected[CALL * DIM];
    for (uint64_t capacity = 1; capacity < 200; capacity += 1 + capacity / 3) {
        struct mr_feature f = feature_of(capacity % 2 == 0 ? MR_EVICT_LRU : MR_EVICT_LFU, 0);
        f.capacity_rows = capacity;
        struct ps_table *t = fixture_table(&f, fixture_arena);
        for (uint32_t round = 0; round < 20; round++) {
            for (uint32_t i = 0; i < CALL; i++)
                keys[i] = random_below(&rng, 400);
            table_lookup(t, keys, CALL, true, out);
            table_lookup(all, keys, CALL, false, expected);
            assert_memory_equal(out, expected, sizeof(out));
            assert_true(ps_table_rows(t) <= capacity);
        }
        const struct ps_table_counters *c = ps_table_counters(t);
        assert_int_equal(c->rows_created - c->rows_evicted_capacity, ps_table_rows(t));
        assert_int_equal(ps_table_rows(t), capacity);
        assert_true(capacity < 50 || c->rows_refused < c->rows_created / 10);
        ps_table_destroy(t);
    }
    ps_table_destroy(all);
}

enum { DIM_LARGE = 512, PARTITION = 80 };

/* A table that has used up its memory, with a row of keys[0] and no place for that of keys[1], which is of
 * the same partition. */
static struct ps_table *table_without_memory(uint64_t keys[2])
{
    struct mr_feature f = fixture_adagrad(DIM_LARGE);
    f.eviction = MR_EVICT_LRU;
    f.memory_bytes = MR_MEMORY_BYTES_MIN;
    struct ps_table *t = fixture_table(&f, fixture_arena);
    float out[DIM_LARGE];
    keys[0] = fixture_key_of(t, PARTITION, 0);
    keys[1] = fixture_key_of(t, PARTITION, 1);
    table_lookup(t, keys, 1, true, out);
    for (uint32_t i = 1; ps_table_counters(t)->rows_refused == 0; i++) {
        uint64_t filler = fixture_key_of(t, PARTITION + i * PS_GROUP_PARTITIONS, 0);
        table_lookup(t, &filler, 1, true, out);
    }
    assert_int_equal(ps_table_counters(t)->rows_evicted_memory, 0);
    return t;
}

/* No call holds any but this one then. */
static void let_go_of_others(struct ps_table *t)
{
    float out[DIM_LARGE];
    uint64_t key = fixture_key_of(t, PARTITION + PS_GROUP_PARTITIONS, 0);
    for (uint32_t i = 0; i < PS_USES_HELD + 2; i++)
        table_lookup(t, &key, 1, true, out);
}

/* Where memory is the limit, a row of the same group goes, unless the call holds it. */
TEST(a_row_that_a_call_holds_stays_at_the_memory_limit, fixture_arena_create, fixture_arena_destroy)
{
    struct mr_feature plain = fixture_adagrad(DIM_LARGE);
    static float out[2 * DIM_LARGE], expected[2 * DIM_LARGE];
    uint64_t keys[2];
    struct ps_table *t = table_without_memory(keys), *all = fixture_table(&plain, fixture_arena);
    const struct ps_table_counters *c = ps_table_counters(t);
    table_lookup(t, keys, 2, true, out);
    table_lookup(all, keys, 2, false, expected);
    assert_memory_equal(out, expected, sizeof(out));
    assert_int_equal(c->rows_refused, 2);
    assert_int_equal(c->rows_evicted_memory, 0);
    let_go_of_others(t);
    table_lookup(t, keys + 1, 1, true, out);
    assert_int_equal(c->rows_refused, 2);
    assert_int_equal(c->rows_evicted_memory, 1);
    ps_table_destroy(t);
    ps_table_destroy(all);
}

enum {
    FULL_PARTITION = 7 * PS_GROUP_PARTITIONS,
    BESIDE = FULL_PARTITION + 1,
    KEYS_BESIDE = 4,
    FILLERS = 200
};

static uint64_t load_with_stamp(struct ps_table *t, uint64_t key, uint32_t seen)
{
    uint32_t row_bytes = ps_table_stored_row_bytes(t);
    uint8_t *row = calloc(1, row_bytes);
    memcpy(row + ps_row_layout_of(&t->feature, t->feature.dims[0]).seen_offset, &seen, sizeof(seen));
    assert_int_equal(ps_table_load(t, key, row), MR_OK);
    free(row);
    return key;
}

/* A full bucket, the partition's only one; older rows in a partition of the same group, and a free place
 * among that group's rows or none. Returns the next key of the full partition. */
static uint64_t fill_partition(struct ps_table *t, uint64_t keys[PS_BUCKET_KEYS],
                               uint64_t beside[KEYS_BESIDE], bool has_place)
{
    for (uint32_t i = 0; i < KEYS_BESIDE; i++)
        beside[i] = load_with_stamp(t, fixture_key_of(t, BESIDE, i), 1 + i);
    for (uint32_t i = 0; i < PS_BUCKET_KEYS; i++)
        keys[i] = load_with_stamp(t, fixture_key_of(t, FULL_PARTITION, i), 100 + i);
    for (uint32_t i = 0; i < FILLERS; i++)
        load_with_stamp(t, fixture_key_of(t, BESIDE + PS_GROUP_PARTITIONS + i, 0), 1000);
    if (has_place)
        ps_table_load_tombstone(t, beside[0]);
    return fixture_key_of(t, FULL_PARTITION, PS_BUCKET_KEYS);
}

static bool has_large_row(struct ps_table *t, uint64_t key)
{
    uint64_t missing = ps_table_counters(t)->keys_missing;
    float out[DIM_LARGE];
    table_lookup(t, &key, 1, false, out);
    return ps_table_counters(t)->keys_missing == missing;
}

/* The one unused for longest, which is of its own partition though rows beside are older: they would make no
 * room. */
static void check_one_goes_for(struct ps_table *t, uint64_t key, const uint64_t keys[PS_BUCKET_KEYS],
                               const uint64_t beside[KEYS_BESIDE])
{
    float out[DIM_LARGE];
    table_lookup(t, &key, 1, true, out);
    assert_int_equal(ps_table_counters(t)->rows_refused, 0);
    assert_int_equal(ps_table_counters(t)->rows_evicted_memory, 1);
    assert_true(has_large_row(t, key) && has_large_row(t, keys[1]) && has_large_row(t, beside[1]));
    assert_false(has_large_row(t, keys[0]));
}

TEST(a_full_partition_loses_one_of_its_own_rows, fixture_arena_create, fixture_arena_destroy)
{
    for (uint32_t has_place = 0; has_place < 2; has_place++) {
        struct mr_feature f = fixture_adagrad(DIM_LARGE);
        uint64_t keys[PS_BUCKET_KEYS], beside[KEYS_BESIDE];
        f.eviction = MR_EVICT_LRU;
        struct ps_table *without_limit = fixture_table(&f, fixture_arena);
        (void)fill_partition(without_limit, keys, beside, has_place != 0);
        f.memory_bytes = ps_table_memory_bytes(without_limit);
        assert_true(f.memory_bytes >= MR_MEMORY_BYTES_MIN);
        ps_table_destroy(without_limit);
        struct ps_table *t = fixture_table(&f, fixture_arena);
        uint64_t key = fill_partition(t, keys, beside, has_place != 0);
        check_one_goes_for(t, key, keys, beside);
        assert_int_equal(ps_table_memory_bytes(t), f.memory_bytes);
        ps_table_destroy(t);
    }
}

/* Here it is the node that has no memory for more buckets, of whatever number. */
TEST(a_full_partition_loses_one_at_the_nodes_limit, fixture_arena_create, fixture_arena_destroy)
{
    struct ps_arena *small = ps_arena_create(6 * PS_ARENA_HUGE_PAGE_BYTES);
    struct mr_feature f = fixture_adagrad(DIM_LARGE);
    uint64_t keys[PS_BUCKET_KEYS], beside[KEYS_BESIDE];
    f.eviction = MR_EVICT_LRU;
    struct ps_table *t = fixture_table(&f, small);
    uint64_t key = fill_partition(t, keys, beside, true);
    for (uint32_t buckets = 16; buckets > 1; buckets--)
        while (ps_arena_piece_alloc(small, buckets * sizeof(struct ps_bucket)) != NULL) {
        }
    check_one_goes_for(t, key, keys, beside);
    ps_table_destroy(t);
    ps_arena_destroy(small);
}

/* The memory left is just what a partition's first bucket takes: a row of another one makes room for its
 * row. */
TEST(the_last_bytes_are_for_a_first_bucket, fixture_arena_create, fixture_arena_destroy)
{
    struct mr_feature f = fixture_adagrad(DIM_LARGE);
    uint64_t keys[PS_BUCKET_KEYS], beside[KEYS_BESIDE];
    float out[DIM_LARGE];
    f.eviction = MR_EVICT_LRU;
    struct ps_table *without_limit = fixture_table(&f, fixture_arena);
    (void)fill_partition(without_limit, keys, beside, false);
    f.memory_bytes = ps_table_memory_bytes(without_limit) + sizeof(struct ps_bucket);
    ps_table_destroy(without_limit);
    struct ps_table *t = fixture_table(&f, fixture_arena);
    (void)fill_partition(t, keys, beside, false);
    uint64_t key = fixture_key_of(t, BESIDE + 1, 0);
    table_lookup(t, &key, 1, true, out);
    assert_int_equal(ps_table_counters(t)->rows_refused, 0);
    assert_int_equal(ps_table_counters(t)->rows_evicted_memory, 1);
    assert_int_equal(ps_table_memory_bytes(t), f.memory_bytes);
    assert_true(has_large_row(t, key));
    assert_false(has_large_row(t, beside[0]));
    ps_table_destroy(t);
}

/* Also in a table that a checkpoint brought beyond its limit: the partition has room for the key, and the
 * group has none. */
TEST(beyond_the_limit_rows_of_the_group_make_room, fixture_arena_create, fixture_arena_destroy)
{
    struct mr_feature f = fixture_adagrad(DIM_LARGE);
    uint64_t keys[PS_BUCKET_KEYS], beside[KEYS_BESIDE];
    float out[DIM_LARGE];
    f.eviction = MR_EVICT_LRU;
    f.memory_bytes = MR_MEMORY_BYTES_MIN;
    struct ps_table *t = fixture_table(&f, fixture_arena);
    (void)fill_partition(t, keys, beside, true);
    for (uint32_t i = 0; i < PS_BUCKET_KEYS; i++)
        ps_table_load_tombstone(t, keys[i]);
    for (uint32_t i = 0; i <= PS_BUCKET_KEYS; i++)
        (void)load_with_stamp(t, fixture_key_of(t, BESIDE + 1, i), 200);
    assert_true(ps_table_memory_bytes(t) > f.memory_bytes);
    table_lookup(t, &keys[0], 1, true, out);
    assert_int_equal(ps_table_counters(t)->rows_refused, 0);
    assert_int_equal(ps_table_counters(t)->rows_evicted_memory, 1);
    assert_true(has_large_row(t, keys[0]));
    assert_false(has_large_row(t, beside[1]));
    ps_table_destroy(t);
}

/* Nobody evicts for long, as on a frozen node: what is due then is one round over the table, not one for each
 * second. */
TEST(what_is_due_is_one_round, fixture_arena_create, fixture_arena_destroy)
{
    struct mr_feature f = feature_of(MR_EVICT_AGE, 10);
    struct ps_table *t = fixture_table(&f, fixture_arena);
    uint32_t of_one_second = 0, of_many = 0;
    ps_table_set_now(t, 100, 0);
    for (uint64_t key = 0; key < KEYS; key++)
        fixture_insert(t, key);
    ps_table_set_now(t, 101, 0);
    for (bool more = true; more; of_one_second++)
        more = ps_table_evict(t, 1);
    for (uint32_t now = 102; now <= 110; now++)
        ps_table_set_now(t, now, 0);
    for (bool more = true; more; of_many++)
        more = ps_table_evict(t, 1);
    assert_true(of_one_second > 100);
    assert_int_equal(of_many, of_one_second);
    assert_int_equal(ps_table_rows(t), KEYS);
    ps_table_destroy(t);
}

/* A push is one as well. */
TEST(pushes_let_other_rows_go, fixture_arena_create, fixture_arena_destroy)
{
    enum { ROWS = 10 };
    const float gradient[DIM] = {1, 1, 1, 1};
    const uint64_t pushed = 0;
    struct mr_feature f = feature_of(MR_EVICT_LRU, 0);
    f.capacity_rows = ROWS;
    struct ps_table *t = fixture_table(&f, fixture_arena);
    for (uint64_t key = 0; key < ROWS; key++)
        fixture_insert(t, key);
    fixture_insert(t, ROWS);
    assert_int_equal(ps_table_counters(t)->rows_refused, 1);
    for (uint32_t i = 0; i <= PS_USES_HELD; i++)
        table_push(t, &pushed, 1, gradient);
    fixture_insert(t, ROWS);
    assert_int_equal(ps_table_counters(t)->rows_refused, 1);
    assert_true(fixture_has_row(t, pushed) && fixture_has_row(t, ROWS));
    ps_table_destroy(t);
}

/* However often the cursor comes by: the others' places are for others. */
TEST(no_row_is_a_candidate_twice, fixture_arena_create, fixture_arena_destroy)
{
    struct mr_feature f = feature_of(MR_EVICT_LRU, 0);
    f.capacity_rows = 100;
    struct ps_table *t = fixture_table(&f, fixture_arena);
    const struct ps_evictor *e = &t->evictor;
    for (uint64_t key = 0; key < 1000; key++) {
        fixture_insert(t, key);
        for (uint32_t i = 1; i < e->pool_count; i++)
            for (uint32_t j = 0; j < i; j++)
                assert_true(e->pool[i].hash != e->pool[j].hash);
    }
    assert_true(e->pool_count > 1);
    ps_table_destroy(t);
}

/* One key at a time: each is a use, by which other rows grow older. */
TEST(single_lookups_keep_a_row, fixture_arena_create, fixture_arena_destroy)
{
    struct mr_feature f = feature_of(MR_EVICT_LRU, 0);
    f.capacity_rows = 200;
    struct ps_table *t = fixture_table(&f, fixture_arena);
    for (uint64_t key = 1000; key < 6000; key++) {
        fixture_insert(t, key);
        if (key % 10 == 0)
            fixture_insert(t, 7);
        assert_true(key < 1010 || fixture_has_row(t, 7));
    }
    ps_table_destroy(t);
}

TEST(a_new_key_takes_the_place_of_an_old_one, fixture_arena_create, fixture_arena_destroy)
{
    struct mr_feature f = feature_of(MR_EVICT_LRU, 0);
    f.capacity_rows = 1000;
    struct ps_table *t = fixture_table(&f, fixture_arena);
    for (uint64_t key = 0; key < 5000; key++) {
        fixture_insert(t, key);
        assert_true(fixture_has_row(t, key));
        assert_true(ps_table_rows(t) <= 1000);
    }
    assert_int_equal(ps_table_counters(t)->rows_evicted_capacity, 4000);
    assert_int_equal(ps_table_counters(t)->rows_refused, 0);
    ps_table_destroy(t);
}

static void check_memory(struct ps_table *t, uint32_t dim, uint64_t memory_bytes, bool evicts)
{
    enum { CALL = 100 };
    uint64_t keys[CALL];
    static float out[CALL * DIM_LARGE];
    for (uint64_t i = 0; i < 400; i++) {
        for (uint64_t j = 0; j < CALL; j++)
            keys[j] = i * CALL + j;
        table_lookup(t, keys, CALL, true, out);
        assert_true(ps_table_memory_bytes(t) <= memory_bytes);
        (void)ps_table_maintain(t, 10000);
    }
    const struct ps_table_counters *c = ps_table_counters(t);
    assert_true(ps_table_rows(t) * dim * 8 > memory_bytes / 2);
    if (evicts) {
        assert_true(c->rows_evicted_memory > 0);
        assert_true(c->rows_refused < 400);
        assert_int_equal(c->rows_created - c->rows_evicted_memory, ps_table_rows(t));
    } else {
        assert_true(c->rows_refused > 0);
        assert_int_equal(c->rows_created, ps_table_rows(t));
    }
}

/* Of large rows there are so few that partitions without any must still be able to have their first
 * buckets. */
TEST(a_table_keeps_to_its_memory, fixture_arena_create, fixture_arena_destroy)
{
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t dim = i < 2 ? 64 : DIM_LARGE;
        bool evicts = i % 2 != 0;
        struct mr_feature f = fixture_adagrad(dim);
        f.eviction = evicts ? MR_EVICT_LRU : MR_EVICT_NEVER;
        f.memory_bytes = 8 << 20;
        struct ps_table *t = fixture_table(&f, fixture_arena);
        check_memory(t, dim, f.memory_bytes, evicts);
        ps_table_destroy(t);
    }
}

/* The arena is what is full: nothing says so before memory is asked for. */
static void check_node_limit(uint32_t dim)
{
    enum { CALL = 100 };
    struct ps_arena *small = ps_arena_create(6 * PS_ARENA_HUGE_PAGE_BYTES);
    struct mr_feature f = fixture_adagrad(dim);
    f.eviction = MR_EVICT_LFU;
    struct ps_table *t = fixture_table(&f, small);
    uint64_t keys[CALL];
    static float out[CALL * DIM_LARGE];
    for (uint64_t i = 0; i < 500; i++) {
        for (uint64_t j = 0; j < CALL; j++)
            keys[j] = i * CALL + j;
        table_lookup(t, keys, CALL, true, out);
        assert_true(ps_arena_mapped_bytes(small) <= ps_arena_limit_bytes(small));
        (void)ps_table_maintain(t, 10000);
    }
    assert_true(ps_table_counters(t)->rows_evicted_memory > 20000);
    assert_true(ps_table_counters(t)->rows_refused < 500);
    ps_table_destroy(t);
    ps_arena_destroy(small);
}

TEST(at_the_nodes_limit_rows_go_too, fixture_arena_create, fixture_arena_destroy)
{
    check_node_limit(64);
    check_node_limit(DIM_LARGE);
}

TEST(limits_are_shared_over_cores, fixture_arena_create, fixture_arena_destroy)
{
    struct mr_feature f = fixture_adagrad(DIM);
    f.capacity_rows = 11;
    uint64_t rows = 0;
    for (uint32_t core = 0; core < 4; core++) {
        struct ps_table *t = fixture_table(&f, fixture_arena);
        ps_table_set_share(t, core, 4);
        for (uint64_t key = 0; key < 50; key++)
            fixture_insert(t, key);
        assert_int_equal(ps_table_rows(t), core < 3 ? 3 : 2);
        rows += ps_table_rows(t);
        ps_table_destroy(t);
    }
    assert_int_equal(rows, 11);
    f.capacity_rows = 2;
    struct ps_table *t = fixture_table(&f, fixture_arena);
    ps_table_set_share(t, 3, 4);
    fixture_insert(t, 1);
    assert_int_equal(ps_table_rows(t), 1); /* one at least */
    ps_table_destroy(t);
}

TEST(rows_loaded_beyond_the_limit_go_little_by_little, fixture_arena_create, fixture_arena_destroy)
{
    for (uint32_t by_memory = 0; by_memory < 2; by_memory++) {
        struct mr_feature f = feature_of(MR_EVICT_LRU, 0), free_of_limits = f;
        struct ps_table *from = fixture_table(&free_of_limits, fixture_arena);
        if (by_memory != 0)
            f.memory_bytes = 1 << 20;
        else
            f.capacity_rows = 2000;
        struct ps_table *t = fixture_table(&f, fixture_arena);
        uint32_t row_bytes = ps_table_stored_row_bytes(t);
        uint8_t *row = calloc(1, row_bytes);
        for (uint64_t key = 0; key < 50000; key++)
            assert_int_equal(ps_table_load(t, key, row), MR_OK);
        assert_int_equal(ps_table_rows(t), 50000);
        fixture_insert(t, 50001); /* at the limit: one goes, and the table is no larger */
        assert_true(ps_table_rows(t) <= 50001);
        for (uint32_t i = 0; i < 100; i++)
            fixture_insert(t, i);
        uint64_t before = ps_table_rows(t);
        assert_true(ps_table_evict(t, 10000));
        assert_int_in_range(before - ps_table_rows(t), 1, 20);
        evict_all_due(t);
        if (by_memory == 0)
            assert_int_equal(ps_table_rows(t), 2000);
        assert_int_in_range(ps_table_rows(t), 1000, 40000);
        free(row);
        ps_table_destroy(t);
        ps_table_destroy(from);
    }
}

/* ---- cuts ---- */

struct cut_check {
    uint32_t emitted[KEYS];
    uint64_t count;
    bool room;
};

static bool has_room(void *self, const struct ps_table *t, uint32_t rows)
{
    const struct cut_check *check = self;
    assert_true(rows >= PS_CUT_BUCKET_ROWS_MAX);
    return check->room;
}

static void emit(void *self, struct ps_table *t, const uint64_t *keys, const uint8_t *const *rows,
                 uint32_t count)
{
    struct cut_check *check = self;
    for (uint32_t i = 0; i < count; i++)
        check->emitted[keys[i] % KEYS]++;
    check->count += count;
}

/* All rows of the cut come once, although the table is at its limit and ever new keys come. Where there is no
 * room for more, only rows go that the cut has written. */
static void check_cut(bool room)
{
    struct mr_feature f = feature_of(MR_EVICT_LRU, 0);
    struct cut_check *check = calloc(1, sizeof(*check));
    struct ps_cut cut = {.self = check, .emit = emit, .has_room = has_room};
    check->room = room;
    f.capacity_rows = KEYS;
    struct ps_table *t = fixture_table(&f, fixture_arena);
    for (uint64_t key = 0; key < KEYS; key++)
        fixture_insert(t, key);
    ps_table_cut_begin(t, &cut, PS_SAVE_FULL);
    fixture_insert(t, 777777); /* no row has been written yet */
    assert_int_equal(ps_table_counters(t)->rows_refused, !room);
    assert_int_equal(check->count > 0, room);
    uint64_t next = KEYS;
    while (!ps_table_cut_step(t, 4)) {
        uint64_t emitted = check->count;
        fixture_insert(t, next++);
        fixture_insert(t, next++);
        (void)ps_table_evict(t, 5000);
        assert_true(room || check->count == emitted);
        assert_true(ps_table_rows(t) <= KEYS);
    }
    assert_int_equal(check->count, KEYS);
    for (uint32_t i = 0; i < KEYS; i++)
        assert_int_equal(check->emitted[i], 1);
    assert_true(ps_table_counters(t)->rows_evicted_capacity > 100);
    assert_true(ps_table_counters(t)->rows_refused < 50);
    assert_true(!room || ps_table_counters(t)->rows_refused == 0);
    ps_table_destroy(t);
    free(check);
}

TEST(a_cut_loses_no_row_to_eviction, fixture_arena_create, fixture_arena_destroy)
{
    check_cut(false);
    check_cut(true);
}

TEST(rows_over_age_wait_for_the_cut, fixture_arena_create, fixture_arena_destroy)
{
    struct mr_feature f = feature_of(MR_EVICT_AGE, 5);
    struct cut_check *check = calloc(1, sizeof(*check));
    struct ps_cut cut = {.self = check, .emit = emit};
    struct ps_table *t = fixture_table(&f, fixture_arena);
    ps_table_set_now(t, 100, 0);
    for (uint64_t key = 0; key < KEYS; key++)
        fixture_insert(t, key);
    ps_table_cut_begin(t, &cut, PS_SAVE_FULL);
    for (uint32_t now = 101; !ps_table_cut_step(t, 50); now++) {
        ps_table_set_now(t, now, 0);
        evict_all_due(t);
        assert_true(ps_table_rows(t) >= KEYS - check->count);
    }
    assert_int_equal(check->count, KEYS);
    for (uint32_t now = 1000; now < 1004; now++) {
        ps_table_set_now(t, now, 0);
        evict_all_due(t);
    }
    assert_int_equal(ps_table_rows(t), 0);
    assert_int_equal(ps_table_counters(t)->rows_evicted_age, KEYS);
    ps_table_destroy(t);
    free(check);
}

/* Nor is one taken from a cut without room where memory is the limit. */
TEST(a_cut_keeps_its_rows_at_the_memory_limit, fixture_arena_create, fixture_arena_destroy)
{
    struct cut_check *check = calloc(1, sizeof(*check));
    struct ps_cut cut = {.self = check, .emit = emit, .has_room = has_room};
    uint64_t keys[2];
    float out[DIM_LARGE];
    struct ps_table *t = table_without_memory(keys);
    const struct ps_table_counters *c = ps_table_counters(t);
    let_go_of_others(t);
    const uint64_t rows = ps_table_cut_begin(t, &cut, PS_SAVE_FULL);
    table_lookup(t, keys + 1, 1, true, out);
    assert_int_equal(c->rows_refused, 2);
    assert_int_equal(check->count, 0);
    while (!ps_table_cut_step(t, 1)) {
    }
    assert_int_equal(check->count, rows);
    table_lookup(t, keys + 1, 1, true, out);
    assert_int_equal(c->rows_refused, 2);
    assert_int_equal(c->rows_evicted_memory, 1);
    ps_table_destroy(t);
    free(check);
}

/* They go into it at once, before it comes by. */
TEST(rows_over_age_go_into_a_cut_with_room, fixture_arena_create, fixture_arena_destroy)
{
    struct mr_feature f = feature_of(MR_EVICT_AGE, 5);
    struct cut_check *check = calloc(1, sizeof(*check));
    struct ps_cut cut = {.self = check, .emit = emit, .has_room = has_room};
    struct ps_table *t = fixture_table(&f, fixture_arena);
    check->room = true;
    ps_table_set_now(t, 100, 0);
    for (uint64_t key = 0; key < KEYS; key++)
        fixture_insert(t, key);
    ps_table_cut_begin(t, &cut, PS_SAVE_FULL);
    ps_table_set_now(t, 106, 0);
    evict_all_due(t);
    assert_int_equal(ps_table_rows(t), 0);
    assert_int_equal(check->count, KEYS);
    for (uint32_t i = 0; i < KEYS; i++)
        assert_int_equal(check->emitted[i], 1);
    assert_true(ps_table_cut_step(t, 1));
    ps_table_destroy(t);
    free(check);
}

/* Without room, rows that the cut has been through are found, however far the cursor had come before the cut
 * began; others stay, also those that were to go next. */
TEST(what_a_cut_has_been_through_makes_room_at_once, fixture_arena_create, fixture_arena_destroy)
{
    struct mr_feature f = feature_of(MR_EVICT_LRU, 0);
    struct cut_check *check = calloc(1, sizeof(*check));
    struct ps_cut cut = {.self = check, .emit = emit, .has_room = has_room};
    f.capacity_rows = KEYS;
    for (uint32_t evicted = 50; evicted <= 250; evicted += 50) {
        struct ps_table *t = fixture_table(&f, fixture_arena);
        uint64_t next = 0;
        while (next < KEYS + evicted)
            fixture_insert(t, next++);
        ps_table_cut_begin(t, &cut, PS_SAVE_FULL);
        assert_false(ps_table_cut_step(t, 200));
        const uint64_t emitted = check->count;
        for (uint32_t i = 0; i < 50; i++)
            fixture_insert(t, next++);
        assert_int_equal(ps_table_counters(t)->rows_refused, 0);
        assert_int_equal(check->count, emitted);
        ps_table_destroy(t);
    }
    free(check);
}
