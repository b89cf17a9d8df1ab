/* Cuts of what has changed, one on the other: what they gave out together is the table as it was at the last
 * of them. */
#include <stdlib.h>
#include <string.h>
#include "ps/table/table_internal.h"
#include "table_fixture.h"
#include "tests/test.h"
#include "tests/unit/ps/table_calls.h"

#define DIM      MODELLED_DIM
#define UNIVERSE 1500u
#define CALL_MAX 100u

struct fixture {
    struct modelled m;
    struct model snapshot; /* at the last cut's begin */
    struct model image;    /* of what cuts gave out */
    uint64_t emitted;
};

static int set_up_with(void **state, enum mr_eviction eviction)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct mr_feature feature = fixture_adagrad(DIM);
    assert_non_null(f);
    feature.eviction = (uint32_t)eviction;
    modelled_open(&f->m, &feature, UNIVERSE);
    ps_table_keep_marks(f->m.table, f->m.arena);
    model_init(&f->snapshot, &feature);
    model_init(&f->image, &feature);
    *state = f;
    return 0;
}

static int set_up(void **state)
{
    return set_up_with(state, MR_EVICT_NEVER);
}

static int set_up_with_uses(void **state)
{
    return set_up_with(state, MR_EVICT_LRU);
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    modelled_close(&f->m);
    model_free(&f->snapshot);
    model_free(&f->image);
    free(f);
    return 0;
}

static void anything(struct fixture *f)
{
    switch (random_below(&f->m.rng, 6)) {
    case 3:
        for (uint32_t i = random_below(&f->m.rng, 30); i > 0; i--)
            modelled_remove(&f->m);
        break;
    case 0:
        modelled_lookup(&f->m, 1 + random_below(&f->m.rng, 20), true);
        break;
    case 1:
        modelled_lookup(&f->m, 1 + random_below(&f->m.rng, CALL_MAX - 1), false);
        break;
    case 2:
        ps_table_maintain(f->m.table, random_below(&f->m.rng, 3000));
        break;
    default:
        modelled_push(&f->m, 1 + random_below(&f->m.rng, 10));
    }
}

static void emit(void *self, struct ps_table *t, const uint64_t *keys, const uint8_t *const *rows,
                 uint32_t count)
{
    struct fixture *f = self;
    float ignored[DIM];
    for (uint32_t i = 0; i < count; i++) {
        const float *as_it_was = model_find(&f->snapshot, keys[i]);
        assert_non_null(as_it_was);
        assert_memory_equal(rows[i], as_it_was, ps_table_stored_row_bytes(t));
        model_lookup(&f->image, keys[i], true, ignored);
        memcpy(model_find(&f->image, keys[i]), rows[i], ps_table_stored_row_bytes(t));
    }
    f->emitted += count;
}

static uint64_t cut_begin(struct fixture *f, enum ps_save_kind kind)
{
    struct ps_cut cut = {.self = f, .emit = emit};
    model_free(&f->snapshot);
    model_copy(&f->snapshot, &f->m.model);
    if (kind == PS_SAVE_FULL) {
        struct mr_feature feature = f->m.table->feature;
        model_free(&f->image);
        model_init(&f->image, &feature);
    }
    f->emitted = 0;
    return ps_table_cut_begin(f->m.table, &cut, kind);
}

/* None of them had a row when the cut began, so none is among those that it gives out. */
static void take_gone(struct fixture *f)
{
    uint64_t keys[20];
    uint32_t most = 1 + random_below(&f->m.rng, 20), count;
    uint64_t left = ps_table_cut_tombstones_left(f->m.table);
    while ((count = ps_table_cut_take_tombstones(f->m.table, keys, most)) > 0) {
        assert_true(count <= most && count <= left);
        for (uint32_t i = 0; i < count; i++) {
            assert_null(model_find(&f->snapshot, keys[i]));
            if (model_find(&f->image, keys[i]) != NULL)
                model_remove(&f->image, keys[i]);
        }
        left -= count;
        assert_int_equal(ps_table_cut_tombstones_left(f->m.table), left);
        if (random_below(&f->m.rng, 3) == 0)
            anything(f);
    }
    assert_int_equal(left, 0);
}

/* The image is the snapshot. */
static void check_image(struct fixture *f)
{
    assert_int_equal(f->image.row_count, f->snapshot.row_count);
    for (uint32_t i = 0; i < f->snapshot.row_count; i++) {
        const float *row = model_find(&f->image, f->snapshot.rows[i].key);
        assert_non_null(row);
        assert_memory_equal(row, f->snapshot.rows[i].stored, ps_table_stored_row_bytes(f->m.table));
    }
}

static void cut_to_the_end(struct fixture *f)
{
    take_gone(f);
    while (!ps_table_cut_step(f->m.table, 1 + random_below(&f->m.rng, 400)))
        if (random_below(&f->m.rng, 3) == 0)
            anything(f);
}

TEST(test_a_chain_is_the_table, set_up, tear_down)
{
    struct fixture *f = *state;
    f->m.rng = fixture_seed("chain");
    for (uint32_t cut = 0; cut < 60; cut++) {
        for (uint32_t i = random_below(&f->m.rng, 12); i > 0; i--)
            anything(f);
        bool full = !ps_table_delta_possible(f->m.table) || random_below(&f->m.rng, 10) == 0;
        uint64_t rows = cut_begin(f, full ? PS_SAVE_FULL : PS_SAVE_DELTA);
        if (random_below(&f->m.rng, 8) == 0) {
            (void)ps_table_cut_step(f->m.table, 1 + random_below(&f->m.rng, 2000));
            anything(f);
            bool whole = !f->m.table->cut_running && ps_table_delta_possible(f->m.table);
            ps_table_cut_abort(f->m.table);
            assert_int_equal(ps_table_delta_possible(f->m.table), whole);
            continue;
        }
        cut_to_the_end(f);
        assert_int_equal(f->emitted, rows);
        check_image(f);
    }
    model_check(&f->m.model, f->m.table);
}

/* What was not touched does not come again; what changes while a cut runs is in the next one, whether it was
 * given out or not. */
TEST(test_a_delta_has_what_changed, set_up, tear_down)
{
    struct fixture *f = *state;
    uint64_t keys[3] = {5, 6, 7};
    float out[3 * DIM], gradients[3 * DIM] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    f->m.rng = 1;
    assert_true(ps_table_delta_possible(f->m.table)); /* nothing has been lost yet */
    for (uint32_t i = 0; i < 30; i++)
        modelled_lookup(&f->m, CALL_MAX, true);
    table_lookup(f->m.table, keys, 3, true, out);
    for (uint32_t i = 0; i < 3; i++)
        model_lookup(&f->m.model, keys[i], true, out);
    assert_int_equal(cut_begin(f, PS_SAVE_DELTA), f->m.model.row_count);
    while (!ps_table_cut_step(f->m.table, 100)) {
    }
    assert_int_equal(cut_begin(f, PS_SAVE_DELTA), 0);
    assert_true(ps_table_cut_step(f->m.table, 1));
    assert_int_equal(f->emitted, 0);

    table_push(f->m.table, keys, 2, gradients);
    (void)model_push(&f->m.model, keys, 2, gradients);
    table_lookup(f->m.table, keys, 3, true, out); /* this table keeps no uses: nothing changes */
    assert_int_equal(cut_begin(f, PS_SAVE_DELTA), 2);
    table_push(f->m.table, keys + 1, 2, gradients); /* one of the cut, and one that is not */
    assert_int_in_range(f->emitted, 1, 2);
    (void)model_push(&f->m.model, keys + 1, 2, gradients);
    while (!ps_table_cut_step(f->m.table, 100)) {
    }
    assert_int_equal(f->emitted, 2);
    assert_int_equal(cut_begin(f, PS_SAVE_DELTA), 2);
    while (!ps_table_cut_step(f->m.table, 100)) {
    }
    check_image(f);
}

static void emit_nothing(void *self, struct ps_table *t, const uint64_t *keys, const uint8_t *const *rows,
                         uint32_t count)
{
    struct fixture *f = self;
    f->emitted += count;
}

static uint64_t rows_of_delta(struct fixture *f)
{
    struct ps_cut cut = {.self = f, .emit = emit_nothing};
    f->emitted = 0;
    uint64_t rows = ps_table_cut_begin(f->m.table, &cut, PS_SAVE_DELTA);
    while (!ps_table_cut_step(f->m.table, 100)) {
    }
    assert_int_equal(f->emitted, rows);
    return rows;
}

TEST(test_uses_are_changes_where_they_are_kept, set_up_with_uses, tear_down)
{
    struct fixture *f = *state;
    uint64_t keys[CALL_MAX], one = 42;
    float out[CALL_MAX * DIM];
    for (uint32_t i = 0; i < CALL_MAX; i++)
        keys[i] = i;
    table_lookup(f->m.table, keys, CALL_MAX, true, out);
    assert_int_equal(rows_of_delta(f), CALL_MAX);
    table_lookup(f->m.table, &one, 1, true, out);
    assert_int_equal(rows_of_delta(f), 1);
    table_lookup(f->m.table, keys, CALL_MAX, false, out); /* read only */
    assert_int_equal(rows_of_delta(f), 0);
    table_lookup(f->m.table, keys, CALL_MAX, true, out);
    assert_int_equal(rows_of_delta(f), CALL_MAX);
}

/* Of PARTITION: there before the call; made by the call, so that the former get other buckets after they were
 * looked for; and some of another one between them, as calls look ahead. */
enum {
    PARTITION = 9,
    THERE = PS_BUCKET_KEYS,
    MADE = PS_GROUP_KEYS,
    BETWEEN = PS_GROUP_KEYS,
    ALL = MADE + BETWEEN + THERE
};

static void draw_call_that_grows(struct fixture *f, uint64_t keys[ALL])
{
    float out[ALL * DIM];
    for (uint32_t i = 0; i < MADE; i++)
        keys[i] = fixture_key_of(f->m.table, PARTITION, THERE + i);
    for (uint32_t i = 0; i < BETWEEN; i++)
        keys[MADE + i] = fixture_key_of(f->m.table, PARTITION + 1, i);
    for (uint32_t i = 0; i < THERE; i++)
        keys[MADE + BETWEEN + i] = fixture_key_of(f->m.table, PARTITION, i);
    for (uint32_t i = 2; i < 20;
         i++) { /* so that the memory of buckets that are given back is left as it is */
        uint64_t other = fixture_key_of(f->m.table, PARTITION + i, 0);
        table_lookup(f->m.table, &other, 1, true, out);
    }
    (void)rows_of_delta(f);
    table_lookup(f->m.table, keys + MADE, BETWEEN + THERE, true, out);
    assert_int_equal(f->m.table->index.partitions[PARTITION].bucket_count, 1);
    assert_int_equal(rows_of_delta(f), BETWEEN + THERE);
}

static void push_inserting(struct fixture *f, const uint64_t keys[ALL])
{
    float gradients[ALL * DIM];
    uint64_t budget_bytes = UINT64_MAX;
    struct ps_table_push p = {
        .in.keys = keys, .in.key_count = ALL, .gradients = gradients, .at_once = true, .insert = true};
    for (uint32_t i = 0; i < ALL * DIM; i++)
        gradients[i] = 1;
    assert_true(ps_table_push_step(f->m.table, &p, &budget_bytes));
}

TEST(test_rows_are_marked_where_their_partition_went, set_up, tear_down)
{
    for (uint32_t push = 0; push < 2; push++) {
        tear_down(state);
        set_up_with_uses(state);
        struct fixture *f = *state;
        uint64_t keys[ALL];
        float out[ALL * DIM];
        draw_call_that_grows(f, keys);
        if (push != 0)
            push_inserting(f, keys);
        else
            table_lookup(f->m.table, keys, ALL, true, out);
        assert_true(f->m.table->index.partitions[PARTITION].bucket_count > 1);
        assert_int_equal(rows_of_delta(f), ALL);
    }
}

static void remove_row_of(struct ps_table *t, uint64_t key)
{
    uint64_t hash = ps_index_hash(&t->index, key);
    ps_table_row_remove(t, ps_index_find(&t->index, hash), hash);
}

/* A full cut has none of the rows that went before it: the next delta need not say so. */
TEST(test_what_went_before_a_full_cut_is_not_said_again, set_up, tear_down)
{
    struct fixture *f = *state;
    struct ps_cut cut = {.self = f, .emit = emit_nothing};
    float out[DIM];
    for (uint64_t key = 0; key < 10; key++)
        table_lookup(f->m.table, &key, 1, true, out);
    remove_row_of(f->m.table, 1);
    remove_row_of(f->m.table, 2);
    ps_table_cut_begin(f->m.table, &cut, PS_SAVE_FULL);
    assert_int_equal(ps_table_cut_tombstones_left(f->m.table), 0);
    while (!ps_table_cut_step(f->m.table, 100)) {
    }
    remove_row_of(f->m.table, 3);
    ps_table_cut_begin(f->m.table, &cut, PS_SAVE_DELTA);
    assert_int_equal(ps_table_cut_tombstones_left(f->m.table), 1);
    uint64_t gone[2];
    assert_int_equal(ps_table_cut_take_tombstones(f->m.table, gone, 2), 1);
    assert_int_equal(gone[0], 3);
    while (!ps_table_cut_step(f->m.table, 100)) {
    }
}

/* A cut may have all its rows, and its filter not. */
TEST(test_there_is_no_delta_while_a_filter_is_cut, set_up, tear_down)
{
    struct mr_feature feature = fixture_adagrad(DIM);
    struct fixture *f = *state;
    feature.admission = MR_ADMIT_OBSERVATIONS;
    feature.admission_arg = 2;
    struct ps_table *t = fixture_table(&feature, f->m.arena);
    const uint64_t key = 9;
    float out[DIM];
    struct ps_occurrence_part piece;
    static uint8_t stored[PS_FILTER_PIECE_BYTES_MAX];
    uint32_t bytes, pieces = 0;
    ps_table_keep_marks(t, f->m.arena);
    table_lookup(t, &key, 1, true, out);
    assert_true(ps_table_delta_possible(t));
    assert_int_equal(ps_table_filter_cut_begin(t, PS_SAVE_FULL), MR_OK);
    assert_false(ps_table_delta_possible(t));
    for (; ps_table_filter_cut_next(t, &piece, &bytes); pieces++)
        ps_table_filter_cut_take(t, &piece, stored);
    assert_true(pieces > 0);
    assert_true(ps_table_delta_possible(t));
    ps_table_destroy(t);
}

TEST(test_loaded_rows_are_as_saved, set_up, tear_down)
{
    struct fixture *f = *state;
    float stored[2 * DIM] = {1, 2, 3, 4, 5, 6}, out[DIM];
    uint64_t key = 9;
    assert_int_equal(ps_table_load(f->m.table, 8, (const uint8_t *)stored), MR_OK);
    assert_int_equal(ps_table_load(f->m.table, 8, (const uint8_t *)stored), MR_OK);
    assert_true(ps_table_delta_possible(f->m.table));
    table_lookup(f->m.table, &key, 1, true, out);
    model_lookup(&f->m.model, key, true, out);
    assert_int_equal(cut_begin(f, PS_SAVE_DELTA), 1);
    assert_true(ps_table_cut_step(f->m.table, UINT32_MAX));
    check_image(f);
    ps_table_clear(f->m.table); /* that is a change of all */
    assert_false(ps_table_delta_possible(f->m.table));
}

/* More keys go than are kept: the next cut must be of every row, and keeps what goes from then on. */
TEST(test_too_many_that_go_are_forgotten, set_up, tear_down)
{
    enum { COUNT = 8000 };
    struct fixture *f = *state;
    uint64_t keys[COUNT], taken[8];
    float out[DIM];
    for (uint32_t i = 0; i < COUNT; i++) {
        keys[i] = i;
        table_lookup(f->m.table, &keys[i], 1, true, out);
    }
    assert_int_equal(rows_of_delta(f), COUNT);
    size_t bytes = ps_arena_allocated_bytes(f->m.arena);
    uint32_t gone = 0;
    for (; ps_table_delta_possible(f->m.table); gone++) {
        uint64_t hash = ps_index_hash(&f->m.table->index, keys[gone]);
        ps_table_row_remove(f->m.table, ps_index_find(&f->m.table->index, hash), hash);
    }
    assert_int_in_range(gone, PS_TABLE_TOMBSTONE_MIN,
                        PS_TABLE_TOMBSTONE_MIN + COUNT / PS_TABLE_TOMBSTONE_SHARE);
    assert_true(ps_arena_allocated_bytes(f->m.arena) <= bytes);
    struct ps_cut cut = {.self = f, .emit = emit_nothing};
    assert_int_equal(ps_table_cut_begin(f->m.table, &cut, PS_SAVE_FULL), COUNT - gone);
    while (!ps_table_cut_step(f->m.table, 100)) {
    }
    assert_true(ps_table_delta_possible(f->m.table));
    ps_table_load_tombstone(f->m.table, keys[COUNT - 1]);
    assert_int_equal(ps_table_cut_begin(f->m.table, &cut, PS_SAVE_DELTA), 0);
    assert_int_equal(ps_table_cut_take_tombstones(f->m.table, taken, 8), 0);
    ps_table_cut_abort(f->m.table);
}

TEST(test_without_marks_there_is_no_delta, set_up, tear_down)
{
    struct fixture *f = *state;
    struct mr_feature feature = fixture_adagrad(DIM);
    struct ps_table *t = fixture_table(&feature, f->m.arena);
    uint64_t key = 9;
    float out[DIM];
    table_lookup(t, &key, 1, true, out);
    table_push(t, &key, 1, out);
    assert_int_equal(t->index.marks, 0);
    assert_false(ps_table_delta_possible(t));
    ps_table_destroy(t);
}
