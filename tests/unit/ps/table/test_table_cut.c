#include <stdlib.h>
#include <string.h>
#include "ps/table/table_internal.h"
#include "table_fixture.h"
#include "tests/test.h"
#include "tests/unit/ps/table_calls.h"

#define DIM      MODELLED_DIM
#define UNIVERSE 1200u
#define CALL_MAX MODELLED_CALL_MAX

/* What a cut is given before it is aborted. */
#define ABORT_STEPS        5u
#define ABORT_STEP_BUCKETS 3u
#define ABORT_PUSH_KEYS    100u
#define ABORT_EMITTED_MAX  (ABORT_STEPS * ABORT_STEP_BUCKETS * PS_CUT_BUCKET_ROWS_MAX + ABORT_PUSH_KEYS)

struct fixture {
    struct modelled m;
    /* of the running cut */
    struct model snapshot;
    uint32_t emitted_count;
    uint32_t emitted_max; /* what the next call may emit at most */
    bool *emitted;        /* by place in the snapshot */
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct mr_feature feature = fixture_adagrad(DIM);
    assert_non_null(f);
    modelled_open(&f->m, &feature, UNIVERSE);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    modelled_close(&f->m);
    free(f);
    return 0;
}

static void table_cut_push(struct fixture *f, uint32_t count)
{
    uint32_t emitted = f->emitted_count;
    uint64_t emitted_max = ps_table_cut_rows_max(f->m.table, count);
    modelled_push(&f->m, count);
    assert_true(f->emitted_count - emitted <= emitted_max);
}

static void table_cut_load(struct fixture *f)
{
    uint64_t key = modelled_key(&f->m);
    float stored[2 * DIM], ignored[DIM];
    for (uint32_t i = 0; i < 2 * DIM; i++)
        stored[i] = random_float(&f->m.rng) + 1;
    assert_int_equal(ps_table_load(f->m.table, key, (const uint8_t *)stored), MR_OK);
    model_lookup(&f->m.model, key, true, ignored);
    memcpy(model_find(&f->m.model, key), stored, sizeof(stored));
}

static void emit(void *self, struct ps_table *t, const uint64_t *keys, const uint8_t *const *rows,
                 uint32_t count)
{
    struct fixture *f = self;
    assert_int_in_range(count, 1, PS_CUT_EMIT_ROWS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = 0;
        while (at < f->snapshot.row_count && f->snapshot.rows[at].key != keys[i])
            at++;
        assert_true(at < f->snapshot.row_count); /* no row that came later */
        assert_false(f->emitted[at]);            /* none twice */
        f->emitted[at] = true;
        assert_memory_equal(rows[i], f->snapshot.rows[at].stored, ps_table_stored_row_bytes(t));
    }
    f->emitted_count += count;
}

static void cut_start(struct fixture *f)
{
    struct ps_cut cut = {.self = f, .emit = emit};
    model_copy(&f->snapshot, &f->m.model);
    f->emitted = calloc(f->snapshot.row_count + 1, sizeof(bool));
    assert_non_null(f->emitted);
    f->emitted_count = 0;
    ps_table_cut_begin(f->m.table, &cut, PS_SAVE_FULL);
    assert_true(f->m.table->cut_running);
}

static void cut_end(struct fixture *f)
{
    assert_false(f->m.table->cut_running);
    assert_int_equal(ps_table_cut_rows_max(f->m.table, 100), 0);
    model_free(&f->snapshot);
    free(f->emitted);
    f->emitted = NULL;
}

static void anything(struct fixture *f)
{
    switch (random_below(&f->m.rng, 6)) {
    case 3:
        for (uint32_t i = random_below(&f->m.rng, 20); i > 0; i--)
            modelled_remove(&f->m);
        break;
    case 4:
        ps_table_maintain(f->m.table, random_below(&f->m.rng, 3000));
        break;
    case 0:
        modelled_lookup(&f->m, 1 + random_below(&f->m.rng, 60), true);
        break;
    case 1:
        modelled_lookup(&f->m, 1 + random_below(&f->m.rng, 60), false);
        break;
    case 2:
        table_cut_push(f, 1 + random_below(&f->m.rng, 60));
        break;
    default:
        table_cut_load(f);
    }
}

TEST(test_random_operations_under_cuts, set_up, tear_down)
{
    struct fixture *f = *state;
    f->m.rng = fixture_seed("cut under load");
    for (uint32_t cut = 0; cut < 25; cut++) {
        for (uint32_t i = 0; i < 20; i++)
            anything(f);
        cut_start(f);
        uint32_t budget = 1 + random_below(&f->m.rng, 400);
        bool done = false;
        while (!done) {
            if (random_below(&f->m.rng, 3) == 0)
                anything(f);
            uint32_t emitted = f->emitted_count;
            done = ps_table_cut_step(f->m.table, budget);
            assert_true(f->emitted_count - emitted <= budget * PS_CUT_BUCKET_ROWS_MAX);
        }
        assert_int_equal(f->emitted_count, f->snapshot.row_count);
        cut_end(f);
    }
    model_check(&f->m.model, f->m.table);
}

/* All keys of a few partitions: they grow again and again while the cursor stands in one. */
TEST(test_growth_under_the_cursor, set_up, tear_down)
{
    enum { COUNT = 4000 };
    struct fixture *f = *state;
    f->m.rng = fixture_seed("growth under the cursor");
    uint64_t keys[COUNT];
    float out[DIM];
    uint32_t count = 0, given = 0;
    for (uint64_t key = 0; count < COUNT; key++)
        if (mr_partition_of(mr_key_hash(key, f->m.table->feature.seed)) < 4)
            keys[count++] = key;
    for (; given < COUNT / 8; given++) {
        table_lookup(f->m.table, &keys[given], 1, true, out);
        model_lookup(&f->m.model, keys[given], true, out);
    }
    cut_start(f);
    while (!ps_table_cut_step(f->m.table, 1 + random_below(&f->m.rng, 3)))
        for (uint32_t i = random_below(&f->m.rng, 200); i > 0 && given < COUNT; i--, given++)
            table_lookup(f->m.table, &keys[given], 1, true, out);
    assert_int_equal(f->emitted_count, COUNT / 8);
    assert_true(given > COUNT / 2);
    cut_end(f);
}

TEST(test_an_aborted_cut_leaves_no_trace, set_up, tear_down)
{
    struct fixture *f = *state;
    f->m.rng = fixture_seed("abort");
    for (uint32_t i = 0; i < 30; i++)
        anything(f);
    for (uint32_t i = 0; i < 3; i++) /* whatever came of that: more rows than the cut gets here */
        modelled_lookup(&f->m, CALL_MAX, true);
    cut_start(f);
    for (uint32_t i = 0; i < ABORT_STEPS; i++)
        assert_false(ps_table_cut_step(f->m.table, ABORT_STEP_BUCKETS));
    table_cut_push(f, ABORT_PUSH_KEYS);
    uint32_t emitted = f->emitted_count;
    assert_int_in_range(emitted, 1, ABORT_EMITTED_MAX);
    assert_true(f->snapshot.row_count > ABORT_EMITTED_MAX && f->m.table->cut_running);
    ps_table_cut_abort(f->m.table);
    ps_table_cut_abort(f->m.table);
    table_cut_push(f, ABORT_PUSH_KEYS);
    assert_int_equal(f->emitted_count, emitted);
    cut_end(f);
    model_check(&f->m.model, f->m.table);
}

TEST(test_an_empty_table_is_cut_at_once, set_up, tear_down)
{
    struct fixture *f = *state;
    f->m.rng = 1;
    cut_start(f);
    modelled_lookup(&f->m, 50, true);
    table_cut_push(f, 50);
    assert_true(ps_table_cut_step(f->m.table, 1));
    assert_int_equal(f->emitted_count, 0);
    cut_end(f);
}

struct moved_check {
    uint32_t emitted[4096]; /* by the key's number */
    uint64_t count;
};

static void count_moved(void *self, struct ps_table *t, const uint64_t *keys, const uint8_t *const *rows,
                        uint32_t count)
{
    struct moved_check *check = self;
    for (uint32_t i = 0; i < count; i++)
        check->emitted[(uint32_t) * (const float *)(const void *)rows[i]]++;
    check->count += count;
}

/* Keys that are put in make others of their partition give way, also to where the cut has been. */
TEST(test_rows_that_give_way_past_the_cursor, set_up, tear_down)
{
    enum { PARTITION = 3, ROWS_MIN = 1000, ROWS_MAX = 1400 };
    struct fixture *f = *state;
    uint64_t row_bytes = ps_table_stored_row_bytes(f->m.table);
    float *row = calloc(1, row_bytes), out[DIM];
    struct moved_check *check = calloc(1, sizeof(*check));
    uint32_t moved = 0;
    for (uint32_t rows = ROWS_MIN; rows < ROWS_MAX; rows += 10) {
        struct ps_cut cut = {.self = check, .emit = count_moved};
        memset(check, 0, sizeof(*check));
        ps_table_clear(f->m.table);
        for (uint32_t i = 0; i < rows; i++) {
            row[0] = (float)i;
            assert_int_equal(
                ps_table_load(f->m.table, fixture_key_of(f->m.table, PARTITION, i), (uint8_t *)row), MR_OK);
        }
        assert_int_equal(ps_table_cut_begin(f->m.table, &cut, PS_SAVE_FULL), rows);
        for (uint32_t next = rows; !ps_table_cut_step(f->m.table, 4); next++) {
            uint64_t key = fixture_key_of(f->m.table, PARTITION, next);
            table_lookup(f->m.table, &key, 1, true, out);
            moved += f->m.table->index.watched_moves > 0;
        }
        assert_int_equal(check->count, rows);
        for (uint32_t i = 0; i < rows; i++)
            assert_int_equal(check->emitted[i], 1);
    }
    assert_true(moved > 0);
    free(check);
    free(row);
}

/* A cut is aborted while a partition has rows in its old buckets yet: the next one has all of them. */
TEST(test_an_abort_while_a_partition_moves, set_up, tear_down)
{
    enum { PARTITION = 3 };
    struct fixture *f = *state;
    struct moved_check *check = calloc(1, sizeof(*check));
    struct ps_cut cut = {.self = check, .emit = count_moved};
    float *row = calloc(1, ps_table_stored_row_bytes(f->m.table));
    const struct ps_index_move *move = &f->m.table->index.move;
    uint32_t rows = 0;
    for (; move->partition != PARTITION || move->bucket_count < 2 * (move->done + 1); rows++) {
        assert_true(rows < 4096);
        row[0] = (float)rows;
        assert_int_equal(
            ps_table_load(f->m.table, fixture_key_of(f->m.table, PARTITION, rows), (uint8_t *)row), MR_OK);
    }
    assert_int_equal(ps_table_cut_begin(f->m.table, &cut, PS_SAVE_FULL), rows);
    assert_false(ps_table_cut_step(f->m.table, 1));
    ps_table_cut_abort(f->m.table);
    memset(check, 0, sizeof(*check));
    assert_int_equal(move->partition, PARTITION);
    assert_int_equal(ps_table_cut_begin(f->m.table, &cut, PS_SAVE_FULL), rows);
    while (!ps_table_cut_step(f->m.table, 4)) {
    }
    for (uint32_t i = 0; i < rows; i++)
        assert_int_equal(check->emitted[i], 1);
    free(check);
    free(row);
}
