/* Rows that are set and read as they are stored, in tables of every optimizer and type, next to the rules
 * themselves. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/optimizer/rule.h"
#include "dataplane/wire/format/convert.h"
#include "table_fixture.h"
#include "tests/test.h"
#include "tests/unit/ps/table_calls.h"

#define DIM        5u
#define KEYS       40u
#define STATE_MAX  (2 * DIM + 1)
#define FLOATS_MAX (DIM + STATE_MAX)

static const enum mr_dtype types[] = {MR_F32, MR_F16, MR_BF16};
static const uint32_t optimizers[] = {MR_OPT_SGD,   MR_OPT_MOMENTUM, MR_OPT_ADAGRAD, MR_OPT_ROWWISE_ADAGRAD,
                                      MR_OPT_ADAM,  MR_OPT_ADAMW,    MR_OPT_FTRL,    MR_OPT_GROUP_FTRL,
                                      MR_OPT_ASSIGN};

static uint64_t keys[KEYS];

static int set_up(void **state)
{
    for (uint32_t i = 0; i < KEYS; i++)
        keys[i] = i * UINT64_C(0x123456789abcdef1);
    return fixture_arena_create(state);
}

static struct mr_feature feature_of(uint32_t optimizer, enum mr_dtype dtype)
{
    struct mr_feature f = fixture_adagrad(DIM);
    mr_feature_set_optimizer(&f, (enum mr_optimizer)optimizer);
    f.dtype = (uint32_t)dtype;
    if (optimizer == MR_OPT_MOMENTUM)
        f.optimizer_args[1] = 0.25f; /* dampening, which has a float of its own */
    return f;
}

static void draw(uint64_t *rng, float *out, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        out[i] = random_float(rng);
}

static struct ps_push_counts set_rows(struct ps_table *t, const uint64_t *of, uint32_t count, bool has_state,
                                      const float *rows, uint64_t budget_bytes)
{
    struct ps_table_push p = {.in = {.keys = of, .key_count = count},
                              .gradients = rows,
                              .sets = true,
                              .has_state = has_state,
                              .insert = true,
                              .at_once = budget_bytes == UINT64_MAX};
    for (uint64_t budget = budget_bytes; !ps_table_push_step(t, &p, &budget); budget = budget_bytes) {
    }
    return p.counts;
}

static void read_rows(struct ps_table *t, const uint64_t *of, uint32_t count, bool has_state, float *out,
                      uint64_t budget_bytes)
{
    struct ps_table_read r = {.keys = of, .key_count = count, .has_state = has_state};
    r.out = out;
    for (uint64_t budget = budget_bytes; !ps_table_read_step(t, &r, &budget); budget = budget_bytes) {
    }
}

/* As the table's type holds it. */
static float held(enum mr_dtype dtype, float x)
{
    uint16_t narrow;
    if (dtype == MR_F32)
        return x;
    mr_convert_from_f32(dtype, &narrow, NULL, &x, 1, 1);
    return dtype == MR_F16 ? mr_f32_from_f16(narrow) : mr_f32_from_bf16(narrow);
}

static void check_set_as_new(uint32_t optimizer, enum mr_dtype dtype)
{
    const struct mr_feature f = feature_of(optimizer, dtype);
    struct ps_table *t = fixture_table(&f, fixture_arena);
    const uint32_t state_floats = ps_table_state_floats(t), record = DIM + state_floats + 1;
    float rows[KEYS * DIM], out[KEYS * (FLOATS_MAX + 1)], expected[FLOATS_MAX];
    uint64_t rng = fixture_seed("set as new");
    struct mr_rule rule;
    const char *what;
    assert_int_equal(mr_rule_init(&f, &rule, &what), MR_OK);
    assert_int_equal(state_floats, mr_rule_state_floats(&rule, DIM));
    table_lookup(t, keys, KEYS / 2, true, rows); /* the others have no row yet */
    draw(&rng, rows, KEYS * DIM);
    table_push(t, keys, KEYS / 2, rows);
    draw(&rng, rows, KEYS * DIM);
    const struct ps_push_counts counts = set_rows(t, keys, KEYS, false, rows, 1);
    assert_int_equal(counts.applied, KEYS);
    assert_int_equal(ps_table_rows(t), KEYS);
    read_rows(t, keys, KEYS, true, out, 1);
    for (uint32_t k = 0; k < KEYS; k++) {
        for (uint32_t i = 0; i < DIM; i++)
            expected[i] = held(dtype, rows[k * DIM + i]);
        if (state_floats > 0)
            mr_rule_state_init(&rule, expected, expected + DIM, DIM);
        assert_memory_equal(out + k * record, expected, (DIM + state_floats) * sizeof(float));
        assert_true(out[(k + 1) * record - 1] == 1.0f);
    }
    ps_table_destroy(t);
}

TEST(without_state_a_row_is_as_a_new_one, set_up, fixture_arena_destroy)
{
    for (uint32_t o = 0; o < sizeof(optimizers) / sizeof(*optimizers); o++)
        for (uint32_t d = 0; d < 3; d++)
            check_set_as_new(optimizers[o], types[d]);
}

/* Rows of a table go to another one with their state, and both train on: the same bits. */
static void check_set_with_state(uint32_t optimizer)
{
    const struct mr_feature f = feature_of(optimizer, MR_F32);
    struct ps_table *from = fixture_table(&f, fixture_arena), *to = fixture_table(&f, fixture_arena);
    const uint32_t floats = DIM + ps_table_state_floats(from);
    float gradients[KEYS * DIM], records[KEYS * (FLOATS_MAX + 1)], rows[KEYS * FLOATS_MAX],
        again[KEYS * (FLOATS_MAX + 1)];
    uint64_t rng = fixture_seed("set with state");
    table_lookup(from, keys, KEYS, true, gradients);
    for (uint32_t turn = 0; turn < 6; turn++) {
        draw(&rng, gradients, KEYS * DIM);
        table_push(from, keys, KEYS, gradients);
        if (turn > 2)
            table_push(to, keys, KEYS, gradients);
        if (turn != 2)
            continue;
        read_rows(from, keys, KEYS, true, records, UINT64_MAX);
        for (uint32_t k = 0; k < KEYS; k++)
            memcpy(rows + k * floats, records + k * (floats + 1), floats * sizeof(float));
        assert_int_equal(set_rows(to, keys, KEYS, true, rows, UINT64_MAX).applied, KEYS);
    }
    read_rows(from, keys, KEYS, true, records, UINT64_MAX);
    read_rows(to, keys, KEYS, true, again, UINT64_MAX);
    assert_memory_equal(again, records, KEYS * (floats + 1) * sizeof(float));
    ps_table_destroy(from);
    ps_table_destroy(to);
}

TEST(with_state_training_goes_on, set_up, fixture_arena_destroy)
{
    for (uint32_t o = 0; o < sizeof(optimizers) / sizeof(*optimizers); o++)
        check_set_with_state(optimizers[o]);
}

TEST(the_last_finite_row_of_a_key_counts, set_up, fixture_arena_destroy)
{
    const struct mr_feature f = feature_of(MR_OPT_ROWWISE_ADAGRAD, MR_F32);
    struct ps_table *t = fixture_table(&f, fixture_arena);
    const uint64_t of[] = {7, 9, 7, 7, 11, 9};
    float rows[6][DIM + 1], out[2 * (DIM + 2)];
    for (uint32_t k = 0; k < 6; k++)
        for (uint32_t i = 0; i <= DIM; i++)
            rows[k][i] = (float)(10 * k + i);
    rows[3][DIM] = NAN; /* in the state */
    rows[4][1] = INFINITY;
    const struct ps_push_counts counts = set_rows(t, of, 6, true, rows[0], UINT64_MAX);
    assert_int_equal(counts.applied, 2);
    assert_int_equal(counts.not_finite, 2);
    read_rows(t, of, 2, true, out, UINT64_MAX);
    assert_memory_equal(out, rows[2], sizeof(rows[2]));
    assert_memory_equal(out + DIM + 2, rows[5], sizeof(rows[5]));
    assert_int_equal(ps_table_counters(t)->gradients_skipped, 2);
    ps_table_destroy(t);
}

TEST(rows_of_16_bits_are_clamped, set_up, fixture_arena_destroy)
{
    for (uint32_t d = 1; d < 3; d++) {
        const struct mr_feature f = feature_of(MR_OPT_ADAM, types[d]);
        struct ps_table *t = fixture_table(&f, fixture_arena);
        const float row[DIM] = {3e38f, 1, 2, 3, 4}, largest = types[d] == MR_F16 ? 65504 : 3.38953139e38f;
        float out[DIM + 1];
        assert_int_equal(set_rows(t, keys, 1, false, row, UINT64_MAX).applied, 1);
        read_rows(t, keys, 1, false, out, UINT64_MAX);
        assert_true(types[d] == MR_F16 ? out[0] == largest : out[0] <= largest && out[0] > 2.9e38f);
        assert_int_equal(ps_table_counters(t)->rows_saturated, types[d] == MR_F16);
        ps_table_destroy(t);
    }
}

TEST(a_read_makes_no_rows, set_up, fixture_arena_destroy)
{
    struct mr_feature f = feature_of(MR_OPT_ADAGRAD, MR_F32);
    struct ps_table *t = fixture_table(&f, fixture_arena);
    float first[DIM], out[2 * (2 * DIM + 1)];
    table_lookup(t, keys, 1, false, first);
    table_lookup(t, keys + 1, 1, true, out);
    read_rows(t, keys, 2, true, out, UINT64_MAX);
    assert_memory_equal(out, first, sizeof(first));
    for (uint32_t i = 0; i < DIM; i++)
        assert_true(out[DIM + i] == f.optimizer_args[0]);
    assert_true(out[2 * DIM] == 0.0f && out[2 * (2 * DIM + 1) - 1] == 1.0f);
    assert_int_equal(ps_table_rows(t), 1);
    assert_int_equal(ps_table_counters(t)->keys_missing, 3);
    ps_table_destroy(t);
}

/* What is set need not have been seen before. */
TEST(a_set_asks_no_admission, set_up, fixture_arena_destroy)
{
    struct mr_feature f = feature_of(MR_OPT_SGD, MR_F32);
    f.admission = MR_ADMIT_OBSERVATIONS;
    f.admission_arg = 3;
    struct ps_table *t = fixture_table(&f, fixture_arena);
    const float row[DIM] = {1, 2, 3, 4, 5};
    float out[DIM];
    assert_int_equal(set_rows(t, keys, 1, false, row, UINT64_MAX).applied, 1);
    table_lookup(t, keys, 1, false, out);
    assert_memory_equal(out, row, sizeof(row));
    f.admission = MR_ADMIT_ALWAYS;
    f.admission_arg = 0;
    f.capacity_rows = 1;
    struct ps_table *full = fixture_table(&f, fixture_arena);
    float rows[2][DIM] = {{0}};
    const struct ps_push_counts counts = set_rows(full, keys, 2, false, rows[0], UINT64_MAX);
    assert_int_equal(counts.applied, 1);
    assert_int_equal(counts.refused, 1);
    ps_table_destroy(t);
    ps_table_destroy(full);
}

struct cut_rows {
    uint32_t count;
    float first; /* of the last row */
};

static void note_rows(void *self, struct ps_table *t, const uint64_t *of, const uint8_t *const *rows,
                      uint32_t count)
{
    struct cut_rows *cut = self;
    (void)t;
    (void)of;
    cut->count += count;
    memcpy(&cut->first, rows[count - 1], sizeof(cut->first));
}

/* A running cut has the rows as they were, and the next one of changes has those that were set. */
TEST(rows_that_are_set_are_in_cuts, set_up, fixture_arena_destroy)
{
    const struct mr_feature f = feature_of(MR_OPT_ADAM, MR_F32);
    struct ps_table *t = fixture_table(&f, fixture_arena);
    float rows[KEYS * DIM] = {0}, changed[DIM] = {3};
    struct cut_rows full = {0}, delta = {0};
    struct ps_cut cut = {.self = &full, .emit = note_rows};
    ps_table_keep_marks(t, fixture_arena);
    set_rows(t, keys, KEYS, false, rows, UINT64_MAX);
    ps_table_cut_begin(t, &cut, PS_SAVE_FULL);
    set_rows(t, keys + 3, 1, false, changed, UINT64_MAX);
    assert_int_equal(full.count, 1);
    assert_true(full.first == 0.0f);
    while (!ps_table_cut_step(t, 1000)) {
    }
    assert_int_equal(full.count, KEYS);
    cut.self = &delta;
    assert_true(ps_table_delta_possible(t));
    ps_table_cut_begin(t, &cut, PS_SAVE_DELTA);
    while (!ps_table_cut_step(t, 1000)) {
    }
    assert_int_equal(delta.count, 1);
    assert_true(delta.first == 3.0f);
    ps_table_destroy(t);
}
