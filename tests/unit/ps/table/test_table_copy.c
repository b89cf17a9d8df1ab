#include <stdlib.h>
#include <string.h>
#include "ps/table/table_internal.h"
#include "ps/table/table_copy.h"
#include "table_fixture.h"
#include "tests/test.h"
#include "tests/unit/ps/table_calls.h"

#define DIM        3u
#define PARTITIONS 12u /* 100, 103, ...: every second one is copied */
#define KEYS_EACH  400u
#define CALL_KEYS  40u
#define ROUNDS     4000u

struct fixture {
    struct ps_table *from, *to;
    struct ps_partition_set set;
    uint64_t rng;
    uint32_t keys_each; /* that calls are about */
};

static uint32_t partition_at(uint32_t i)
{
    return 100 + 3 * i;
}

static bool is_copied(uint32_t partition)
{
    return (partition - 100) / 3 % 2 == 0;
}

static int set_up_of(void **state, const struct mr_feature *feature)
{
    struct fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    (void)fixture_arena_create(state);
    f->from = fixture_table(feature, fixture_arena);
    f->to = fixture_table(feature, fixture_arena);
    f->keys_each = KEYS_EACH;
    f->rng = 11;
    for (uint32_t i = 0; i < PARTITIONS; i++)
        if (is_copied(partition_at(i)))
            ps_partitions_add(&f->set, partition_at(i));
    *state = f;
    return 0;
}

static int set_up(void **state)
{
    const struct mr_feature feature = fixture_adagrad(DIM);
    return set_up_of(state, &feature);
}

static int set_up_counting(void **state)
{
    struct mr_feature feature = fixture_adagrad(DIM);
    feature.admission = MR_ADMIT_OBSERVATIONS;
    feature.admission_arg = 5;
    return set_up_of(state, &feature);
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    ps_table_destroy(f->from);
    ps_table_destroy(f->to);
    free(f);
    return fixture_arena_destroy(state);
}

static uint64_t any_key(struct fixture *f)
{
    return fixture_key_of(f->from, partition_at(random_below(&f->rng, PARTITIONS)),
                          random_below(&f->rng, f->keys_each));
}

static void look_up(struct fixture *f)
{
    uint64_t keys[CALL_KEYS];
    float out[CALL_KEYS * DIM];
    for (uint32_t i = 0; i < CALL_KEYS; i++)
        keys[i] = any_key(f);
    table_lookup(f->from, keys, CALL_KEYS, true, out);
}

static void table_copy_push(struct fixture *f)
{
    uint64_t keys[CALL_KEYS];
    float gradients[CALL_KEYS * DIM];
    for (uint32_t i = 0; i < CALL_KEYS; i++)
        keys[i] = any_key(f);
    for (uint32_t i = 0; i < CALL_KEYS * DIM; i++)
        gradients[i] = random_float(&f->rng);
    table_push(f->from, keys, CALL_KEYS, gradients);
}

static void remove_one(struct fixture *f)
{
    const uint64_t key = any_key(f), hash = ps_index_hash(&f->from->index, key);
    const struct ps_place place = ps_index_find(&f->from->index, hash);
    if (place.bucket != NULL)
        ps_table_row_remove(f->from, place, hash);
}

/* Gives the other table what comes next. False: nothing did. */
static bool copy_some(struct fixture *f, uint32_t keys_max, uint64_t *budget)
{
    static struct ps_copy_part part;
    char text[128];
    switch (ps_table_copy_next(f->from, keys_max, &part, budget)) {
    case PS_COPY_ROWS:
        for (uint32_t i = 0; i < part.count; i++) {
            assert_true(is_copied(mr_partition_of(mr_key_hash(part.keys[i], f->from->feature.seed))));
            assert_int_equal(ps_table_load(f->to, part.keys[i], part.rows[i]), MR_OK);
        }
        return true;
    case PS_COPY_GONE:
        for (uint32_t i = 0; i < part.count; i++)
            ps_table_load_tombstone(f->to, part.keys[i]);
        return true;
    case PS_COPY_FILTER:
        assert_int_equal(ps_table_filter_load(f->to, part.partition, part.first_line, part.filter,
                                              part.filter_bytes, text, sizeof(text)),
                         MR_OK);
        return true;
    default:
        return false;
    }
}

static void copy_rest(struct fixture *f)
{
    uint64_t budget = UINT64_MAX;
    while (copy_some(f, PS_CUT_EMIT_ROWS_MAX, &budget))
        budget = UINT64_MAX;
    assert_int_equal(ps_table_copy_left(f->from), 0);
    assert_false(ps_table_copy_is_first(f->from));
}

/* The other table has the rows of these partitions, bit for bit, and no others. */
static void check_same(struct fixture *f)
{
    uint64_t rows = 0;
    for (uint32_t i = 0; i < PARTITIONS; i++) {
        for (uint64_t n = 0; n < KEYS_EACH; n++) {
            const uint64_t hash = ps_index_hash(&f->from->index, fixture_key_of(f->from, partition_at(i), n));
            const struct ps_place here = ps_index_find(&f->from->index, hash);
            const struct ps_place there = ps_index_find(&f->to->index, hash);
            const bool is_wanted = here.bucket != NULL && is_copied(partition_at(i));
            assert_int_equal(there.bucket != NULL, is_wanted);
            if (!is_wanted)
                continue;
            rows++;
            assert_memory_equal(ps_table_row(f->from, here), ps_table_row(f->to, there),
                                ps_table_stored_row_bytes(f->from));
        }
    }
    assert_int_equal(ps_table_rows(f->to), rows);
    assert_true(rows > 0);
}

static void table_copy_call(struct fixture *f)
{
    switch (random_below(&f->rng, 3)) {
    case 0:
        look_up(f);
        break;
    case 1:
        table_copy_push(f);
        break;
    default:
        remove_one(f);
        break;
    }
}

/* Rows are made, change and go, and partitions grow and shrink, while they are copied. */
TEST(test_what_changes_is_copied_again, set_up, tear_down)
{
    struct fixture *f = *state;
    f->keys_each = KEYS_EACH / 4;
    for (uint32_t i = 0; i < 50; i++)
        look_up(f);
    assert_int_equal(ps_table_copy_begin(f->from, &f->set), MR_OK);
    uint64_t longest = 0;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint64_t budget = random_below(&f->rng, 2000);
        f->keys_each = i < ROUNDS / 2 ? KEYS_EACH / 4 + i * (KEYS_EACH * 3 / 4) / (ROUNDS / 2) : KEYS_EACH;
        table_copy_call(f);
        (void)copy_some(f, 1 + random_below(&f->rng, PS_CUT_EMIT_ROWS_MAX), &budget);
        (void)ps_table_maintain(f->from, 1000);
        longest = ps_table_copy_left(f->from) > longest ? ps_table_copy_left(f->from) : longest;
    }
    copy_rest(f);
    check_same(f);
    for (uint32_t i = 0; i < 20; i++)
        table_copy_call(f);
    copy_rest(f);
    check_same(f);
    assert_false(ps_table_copy_is_lost(f->from));
    ps_table_copy_end(f->from);
    table_copy_call(f);
}

/* Keys enter the log once each, however often they change. */
TEST(test_a_row_that_changes_often_waits_once, set_up, tear_down)
{
    struct fixture *f = *state;
    for (uint32_t i = 0; i < 100; i++)
        look_up(f);
    assert_int_equal(ps_table_copy_begin(f->from, &f->set), MR_OK);
    copy_rest(f);
    for (uint32_t i = 0; i < 500; i++)
        table_copy_push(f);
    assert_int_in_range(ps_table_copy_left(f->from), 1, PARTITIONS / 2 * KEYS_EACH);
    copy_rest(f);
    check_same(f);
    ps_table_copy_end(f->from);
}

/* A checkpoint after a copy has every row, because the copy has used up the marks. */
TEST(test_the_next_cut_is_of_every_row, set_up, tear_down)
{
    struct fixture *f = *state;
    look_up(f);
    assert_int_equal(ps_table_copy_begin(f->from, &f->set), MR_OK);
    ps_table_copy_end(f->from);
    assert_false(ps_table_delta_possible(f->from));
}

TEST(test_a_dropped_partition_is_empty, set_up, tear_down)
{
    struct fixture *f = *state;
    uint32_t slices = 0;
    for (uint32_t i = 0; i < 200; i++)
        look_up(f);
    const uint64_t before = ps_table_rows(f->from);
    const uint32_t partition = partition_at(3), here = f->from->index.partition_rows[partition];
    for (uint64_t budget = 1000; ps_table_drop_partition(f->from, partition, &budget); budget = 1000) {
        slices++;
        look_up(f); /* it grows, and comes to have other buckets meanwhile: its new rows go, too */
    }
    assert_true(here > 0 && slices > 1);
    assert_int_equal(f->from->index.partition_rows[partition], 0);
    assert_true(ps_table_rows(f->from) >= before - here);
    for (uint64_t n = 0; n < KEYS_EACH; n++)
        assert_false(fixture_has_row(f->from, fixture_key_of(f->from, partition, n)));
    assert_int_equal(ps_table_counters(f->from)->rows, ps_table_rows(f->from));
    for (uint32_t i = 0; i < 50; i++)
        look_up(f); /* it is as new */
    assert_true(f->from->index.partition_rows[partition] > 0);
}

/* Observations that came before and while the filter was copied count at the other table. */
TEST(test_observations_go_along, set_up_counting, tear_down)
{
    struct fixture *f = *state;
    for (uint32_t i = 0; i < 60; i++)
        look_up(f);
    assert_int_equal(ps_table_copy_begin(f->from, &f->set), MR_OK);
    for (uint32_t i = 0; i < 400; i++) {
        uint64_t budget = 1000;
        look_up(f);
        (void)copy_some(f, PS_CUT_EMIT_ROWS_MAX, &budget);
    }
    copy_rest(f);
    check_same(f);
    uint32_t counted = 0;
    for (uint32_t i = 0; i < PARTITIONS; i += 2) {
        for (uint64_t n = 0; n < KEYS_EACH; n++) {
            const uint64_t hash =
                mr_key_hash(fixture_key_of(f->from, partition_at(i), n), f->from->feature.seed);
            const uint32_t count = ps_occurrence_count(&f->from->filter, hash);
            assert_int_equal(ps_occurrence_count(&f->to->filter, hash), count);
            counted += count > 0;
        }
    }
    assert_true(counted > 0);
    assert_int_equal(
        ps_occurrence_count(&f->to->filter,
                            mr_key_hash(fixture_key_of(f->from, partition_at(1), 0), f->from->feature.seed)),
        0);
    ps_table_copy_end(f->from);
    uint64_t budget = UINT64_MAX;
    assert_false(ps_table_drop_partition(f->to, partition_at(0), &budget));
    assert_null(f->to->filter.counters[partition_at(0)]);
}
