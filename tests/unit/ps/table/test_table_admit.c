#include <math.h>
#include <string.h>
#include <stdio.h>
#include "ps/table/occurrence_filter.h"
#include "ps/row/initializer.h"
#include "ps/base/key_hash.h"
#include "ps/row/row_layout.h"
#include "ps/row/row_use.h"
#include "ps/table/table_internal.h"
#include "table_fixture.h"
#include "tests/test.h"
#include "tests/unit/ps/table_calls.h"

#define DIM 4u

static struct ps_table *table_of(enum mr_admission admission, float arg)
{
    struct mr_feature f = fixture_adagrad(DIM);
    f.admission = (uint32_t)admission;
    f.admission_arg = arg;
    return fixture_table(&f, fixture_arena);
}

TEST(a_share_of_the_keys_is_admitted_whatever_the_order, fixture_arena_create, fixture_arena_destroy)
{
    enum { KEYS = 20000, CALL = 100 };
    static const float shares[] = {0.01f, 0.3f, 0.9f, 1.0f};
    for (size_t s = 0; s < sizeof(shares) / sizeof(shares[0]); s++) {
        struct ps_table *t = table_of(MR_ADMIT_PROBABILITY, shares[s]),
                        *again = table_of(MR_ADMIT_PROBABILITY, shares[s]);
        uint64_t keys[CALL], half[2] = {0};
        float out[CALL * DIM];
        for (uint64_t i = 0; i < KEYS; i += CALL) {
            for (uint32_t j = 0; j < CALL; j++)
                keys[j] = i + j;
            table_lookup(t, keys, CALL, true, out);
            table_lookup(t, keys, CALL, true, out); /* asking again does not help */
        }
        for (uint64_t key = KEYS; key-- > 0;) {
            fixture_insert(again, key);
            bool admitted = fixture_has_row(t, key);
            assert_int_equal(admitted, fixture_has_row(again, key));
            half[mr_partition_of(ps_key_hash(key, 7)) / (MR_PARTITION_COUNT / 2)] += admitted;
        }
        double expected = (double)shares[s] * KEYS / 2;
        double deviation = sqrt(expected * (1.0 - (double)shares[s]));
        for (uint32_t i = 0; i < 2; i++)
            assert_true(fabs((double)half[i] - expected) < 6 * deviation + 150 * (double)shares[s] + 1);
        assert_int_equal(ps_table_rows(t), half[0] + half[1]);
        assert_int_equal(ps_table_counters(t)->keys_not_admitted_probability, 2 * (KEYS - half[0] - half[1]));
        assert_int_equal(ps_table_counters(t)->rows_refused, 0);
        ps_table_destroy(t);
        ps_table_destroy(again);
    }
}

/* To the bit. */
static bool differs(const void *row, const void *other)
{
    return memcmp(row, other, DIM * sizeof(float)) != 0;
}

TEST(keys_that_are_not_admitted_get_their_first_values, fixture_arena_create, fixture_arena_destroy)
{
    struct mr_feature always = fixture_adagrad(DIM);
    struct ps_table *t = table_of(MR_ADMIT_PROBABILITY, 0.5f), *all = fixture_table(&always, fixture_arena);
    uint64_t keys[200];
    float out[200 * DIM], expected[200 * DIM], gradients[200 * DIM];
    for (uint32_t i = 0; i < 200; i++)
        keys[i] = i;
    for (uint32_t i = 0; i < 200 * DIM; i++)
        gradients[i] = 1;
    table_lookup(all, keys, 200, true, expected);
    table_lookup(t, keys, 200, true, out);
    assert_memory_equal(out, expected, sizeof(out));
    uint64_t rows = ps_table_rows(t);
    assert_int_in_range(rows, 50, 150);
    table_push(t, keys, 200, gradients); /* leaves those keys out, and no others */
    assert_int_equal(ps_table_counters(t)->updates, rows);
    assert_int_equal(ps_table_counters(t)->gradients_without_row, 200 - rows);
    table_lookup(t, keys, 200, true, out);
    for (uint32_t i = 0; i < 200; i++)
        assert_int_equal(fixture_has_row(t, keys[i]), differs(out + i * DIM, expected + i * DIM));
    ps_table_destroy(t);
    ps_table_destroy(all);
}

static void push_inserting(struct ps_table *t, uint64_t key)
{
    static const float gradient[DIM] = {1, 1, 1, 1};
    uint64_t budget_bytes = UINT64_MAX;
    struct ps_table_push p = {
        .in.keys = &key, .in.key_count = 1, .gradients = gradient, .at_once = true, .insert = true};
    assert_true(ps_table_push_step(t, &p, &budget_bytes));
}

TEST(a_row_is_made_with_the_nth_lookup_that_may, fixture_arena_create, fixture_arena_destroy)
{
    struct ps_table *t = table_of(MR_ADMIT_OBSERVATIONS, 3);
    const uint64_t twice[2] = {5, 5}, keys[4] = {0, UINT64_MAX, 0, 0};
    float out[4 * DIM];
    fixture_insert(t, 5);
    table_lookup(t, twice, 2, false, out); /* may not insert: no observation */
    push_inserting(t, 5);                  /* a push is none either */
    assert_int_equal(ps_table_rows(t), 0);
    table_lookup(t, twice, 2, true, out); /* a key counts as often as it comes */
    assert_true(fixture_has_row(t, 5));
    table_lookup(t, keys, 4, true, out);
    assert_true(fixture_has_row(t, 0));
    assert_false(fixture_has_row(t, UINT64_MAX));
    const struct ps_table_counters *c = ps_table_counters(t);
    assert_int_equal(c->keys_not_admitted_observations, 5);
    assert_int_equal(c->gradients_without_row, 1);
    assert_int_equal(c->observations_not_counted, 0);
    assert_int_equal(c->keys_not_admitted_probability, 0);
    assert_true(ps_table_filter_bytes(t) > 0);
    assert_true(ps_table_memory_bytes(t) > ps_table_filter_bytes(t));
    ps_table_clear(t);
    fixture_insert(t, 5);
    assert_false(fixture_has_row(t, 5));
    ps_table_destroy(t);
}

enum { CALL_KEYS = 40, CALLS = 60, KEY_SPACE = 400 };

/* Some of them twice. */
static void draw_call(uint64_t *random, uint64_t keys[CALL_KEYS], float gradients[CALL_KEYS * DIM])
{
    for (uint32_t i = 0; i < CALL_KEYS; i++) {
        *random = *random * UINT64_C(6364136223846793005) + 1442695040888963407;
        keys[i] = i % 8 == 7 ? keys[i - 1] : (*random >> 33) % KEY_SPACE;
    }
    for (uint32_t i = 0; i < CALL_KEYS * DIM; i++)
        gradients[i] = (float)((*random >> 20) % 100 + i) * 1e-2f;
}

static void push_call(struct ps_table *t, const uint64_t *keys, const float *gradients,
                      const uint64_t *excluded, bool sees, uint64_t step_bytes)
{
    struct ps_table_push p = {.in.keys = keys,
                              .in.key_count = CALL_KEYS,
                              .gradients = gradients,
                              .excluded = excluded,
                              .insert = true,
                              .sees = sees};
    uint64_t budget_bytes = step_bytes;
    while (!ps_table_push_step(t, &p, &budget_bytes))
        budget_bytes = step_bytes;
}

static void check_same_filters(const struct ps_table *a, const struct ps_table *b)
{
    size_t bytes = ps_occurrence_partition_bytes(&a->filter);
    for (uint32_t i = 0; i < MR_PARTITION_COUNT; i++) {
        const uint8_t *of_a = a->filter.counters[i];
        const uint8_t *of_b = b->filter.counters[i];
        assert_int_equal(of_a == NULL, of_b == NULL);
        if (of_a != NULL)
            assert_memory_equal(of_a, of_b, bytes);
    }
}

static void check_same_rows(struct ps_table *a, struct ps_table *b)
{
    for (uint64_t key = 0; key < KEY_SPACE; key++) {
        float of_a[DIM], of_b[DIM];
        assert_int_equal(fixture_has_row(a, key), fixture_has_row(b, key));
        table_lookup(a, &key, 1, false, of_a);
        table_lookup(b, &key, 1, false, of_b);
        assert_memory_equal(of_a, of_b, sizeof(of_a));
    }
}

/* The same rows with the same bits, and the same counts of keys without one, as if the lookup had come first;
 * in steps of any size. */
TEST(a_push_whose_lookup_was_lost_is_an_observation, fixture_arena_create, fixture_arena_destroy)
{
    struct ps_table *t = table_of(MR_ADMIT_OBSERVATIONS, 3), *calm = table_of(MR_ADMIT_OBSERVATIONS, 3);
    uint64_t keys[CALL_KEYS] = {0}, random = 1;
    float gradients[CALL_KEYS * DIM], out[CALL_KEYS * DIM];
    for (uint32_t call = 0; call < CALLS; call++) {
        bool lost = call % 3 != 0;
        draw_call(&random, keys, gradients);
        table_lookup(calm, keys, CALL_KEYS, true, out);
        push_call(calm, keys, gradients, NULL, false, UINT64_MAX);
        if (!lost)
            table_lookup(t, keys, CALL_KEYS, true, out);
        push_call(t, keys, gradients, NULL, lost, call % 2 == 0 ? UINT64_MAX : 1 + call * 20);
    }
    assert_int_in_range(ps_table_rows(t), 100, KEY_SPACE - 1);
    assert_int_equal(ps_table_counters(t)->updates, ps_table_counters(calm)->updates);
    assert_int_equal(ps_table_counters(t)->gradients_without_row,
                     ps_table_counters(calm)->gradients_without_row);
    check_same_filters(t, calm);
    check_same_rows(t, calm);
    ps_table_destroy(t);
    ps_table_destroy(calm);
}

/* Partitions that have the push already have its observations. */
TEST(what_a_push_leaves_out_is_not_seen_either, fixture_arena_create, fixture_arena_destroy)
{
    struct ps_table *t = table_of(MR_ADMIT_OBSERVATIONS, 1);
    uint64_t keys[CALL_KEYS] = {0}, excluded[MR_PARTITION_COUNT / 64], random = 2, seed = t->feature.seed;
    float gradients[CALL_KEYS * DIM];
    draw_call(&random, keys, gradients);
    memset(excluded, 0xff, sizeof(excluded));
    push_call(t, keys, gradients, excluded, true, UINT64_MAX);
    assert_int_equal(ps_table_rows(t), 0);
    uint32_t partition = mr_partition_of(ps_key_hash(keys[0], seed));
    excluded[partition / 64] &= ~(UINT64_C(1) << partition % 64);
    push_call(t, keys, gradients, excluded, true, UINT64_MAX);
    assert_true(fixture_has_row(t, keys[0]));
    for (uint64_t key = 0; key < KEY_SPACE; key++)
        assert_false(fixture_has_row(t, key) && mr_partition_of(ps_key_hash(key, seed)) != partition);
    ps_table_destroy(t);
}

TEST(pushes_that_make_rows_make_those_of_admitted_keys, fixture_arena_create, fixture_arena_destroy)
{
    struct ps_table *t = table_of(MR_ADMIT_PROBABILITY, 0.5f), *looked = table_of(MR_ADMIT_PROBABILITY, 0.5f);
    for (uint64_t key = 0; key < 300; key++) {
        push_inserting(t, key);
        fixture_insert(looked, key);
        assert_int_equal(fixture_has_row(t, key), fixture_has_row(looked, key));
    }
    assert_int_equal(ps_table_counters(t)->updates, ps_table_rows(t));
    assert_int_equal(ps_table_counters(t)->gradients_without_row, 300 - ps_table_rows(t));
    ps_table_destroy(t);
    ps_table_destroy(looked);
}

struct uses_read {
    struct ps_row_layout layout;
    uint32_t rows, uses; /* of the last row */
};

static void read_uses(void *self, struct ps_table *t, const uint64_t *keys, const uint8_t *const *rows,
                      uint32_t count)
{
    struct uses_read *read = self;
    memcpy(&read->uses, rows[count - 1] + read->layout.uses_offset, sizeof(read->uses));
    read->rows += count;
}

/* A push is one use, also the one that makes the row. */
TEST(a_push_that_makes_a_row_is_one_use, fixture_arena_create, fixture_arena_destroy)
{
    struct mr_feature f = fixture_adagrad(DIM);
    f.eviction = MR_EVICT_LFU;
    f.capacity_rows = 100;
    struct ps_table *t = fixture_table(&f, fixture_arena);
    for (uint32_t pushes = 1; pushes <= 3; pushes++) {
        struct uses_read read = {.layout = ps_row_layout_of(&f, DIM)};
        push_inserting(t, 7);
        ps_table_cut_begin(t, &(struct ps_cut){.self = &read, .emit = read_uses}, PS_SAVE_FULL);
        assert_true(ps_table_cut_step(t, UINT32_MAX));
        assert_int_equal(read.rows, 1);
        assert_int_equal(read.uses, pushes * PS_LFU_USE);
    }
    ps_table_destroy(t);
}

TEST(observations_are_read_and_put_back, fixture_arena_create, fixture_arena_destroy)
{
    struct ps_table *from = table_of(MR_ADMIT_OBSERVATIONS, 3), *to = table_of(MR_ADMIT_OBSERVATIONS, 3),
                    *always = table_of(MR_ADMIT_ALWAYS, 0);
    for (uint64_t key = 0; key < 500; key++)
        for (uint64_t i = 0; i < key % 3; i++)
            fixture_insert(from, key);
    struct ps_occurrence_part piece;
    uint8_t stored[PS_FILTER_PIECE_BYTES_MAX];
    char text[200] = "";
    uint32_t bytes, pieces = 0;
    assert_int_equal(ps_table_filter_cut_begin(from, PS_SAVE_FULL), MR_OK);
    for (; ps_table_filter_cut_next(from, &piece, &bytes); pieces++) {
        assert_int_equal(bytes, PS_FILTER_PIECE_BYTES_MAX); /* 16 MiB over all partitions */
        ps_table_filter_cut_take(from, &piece, stored);
        assert_int_equal(
            ps_table_filter_load(to, piece.partition, piece.first_line, stored, bytes, text, sizeof(text)),
            MR_OK);
    }
    assert_int_in_range(pieces, 250, 500);
    for (uint64_t key = 0; key < 500; key++) {
        fixture_insert(to, key);
        assert_int_equal(fixture_has_row(to, key), key % 3 == 2);
    }
    assert_int_equal(ps_table_filter_cut_begin(always, PS_SAVE_FULL), MR_OK);
    assert_false(ps_table_filter_cut_next(always, &piece, &bytes));
    assert_int_equal(ps_table_filter_load(always, 0, 0, stored, sizeof(stored), text, sizeof(text)),
                     MR_CHECKPOINT_CORRUPT);
    ps_table_destroy(from);
    ps_table_destroy(to);
    ps_table_destroy(always);
}

static void check_refused(struct ps_table *t, uint32_t partition, uint32_t first_line, const uint8_t *stored,
                          uint64_t bytes, const char *expected)
{
    char text[200] = "";
    assert_int_equal(ps_table_filter_load(t, partition, first_line, stored, bytes, text, sizeof(text)),
                     MR_CHECKPOINT_CORRUPT);
    assert_string_equal(text, expected);
}

TEST(observations_of_another_filter_are_refused, fixture_arena_create, fixture_arena_destroy)
{
    struct ps_table *t = table_of(MR_ADMIT_OBSERVATIONS, 3);
    _Alignas(4) uint8_t stored[PS_FILTER_PIECE_BYTES_MAX] = {64, 0, 0, 0, 3, 0, 0, 0};
    char text[200], name[100];
    snprintf(name, sizeof(name), "table %s: ", t->feature.name);
    assert_int_equal(ps_table_filter_load(t, 1, 0, stored, sizeof(stored), text, sizeof(text)), MR_OK);
#define REFUSED(partition, first_line, bytes, why)                                                           \
    snprintf(text, sizeof(text), "%s%s", name, why);                                                         \
    check_refused(t, partition, first_line, stored, bytes, text)
    REFUSED(1, 0, 8, "a piece of an admission filter that is none");
    REFUSED(1, 0, 70, "a piece of an admission filter that is none");
    REFUSED(1, 1, sizeof(stored), "a piece reaches beyond its admission filter");
    REFUSED(1, UINT32_MAX, 72, "a piece reaches beyond its admission filter");
    REFUSED(4096, 0, 72, "a piece reaches beyond its admission filter");
    stored[4] = 4; /* how far it counts may have been altered */
    assert_int_equal(ps_table_filter_load(t, 1, 0, stored, 72, text, sizeof(text)), MR_OK);
    stored[0] = 65;
    REFUSED(1, 0, 72, "its admission filter has 64 lines per partition, that of the checkpoint 65");
    ps_table_destroy(t);
}

TEST(the_filter_counts_against_the_tables_memory, fixture_arena_create, fixture_arena_destroy)
{
    struct mr_feature f = fixture_adagrad(DIM);
    f.admission = MR_ADMIT_OBSERVATIONS;
    f.admission_arg = 2;
    f.memory_bytes = 1 << 20;
    f.filter_bytes = 8 << 20;
    struct ps_table *t = fixture_table(&f, fixture_arena);
    for (uint64_t key = 0; key < 2000; key++) {
        fixture_insert(t, key);
        assert_true(ps_table_memory_bytes(t) <= f.memory_bytes);
    }
    const struct ps_table_counters *c = ps_table_counters(t);
    assert_int_equal(c->keys_not_admitted_observations, 2000 - ps_table_rows(t));
    assert_int_in_range(ps_table_filter_bytes(t), 1,
                        f.memory_bytes / 4 + MR_PARTITION_COUNT * sizeof(void *));
    ps_table_destroy(t);
}

/* Loaded, so that none of them was counted. */
static struct ps_table *table_of_rows(const struct mr_feature *f, uint64_t rows)
{
    struct ps_table *t = fixture_table(f, fixture_arena);
    uint8_t row[2 * DIM * sizeof(float)] = {0};
    assert_int_equal(ps_table_stored_row_bytes(t), sizeof(row));
    for (uint64_t key = 0; key < rows; key++)
        assert_int_equal(ps_table_load(t, key, row), MR_OK);
    return t;
}

/* The filter's first line for a partition is taken only where the table's memory has room for it. What is not
 * counted then is said, and, where the first observation is the one that is wanted, makes its row all the
 * same. */
TEST(the_filter_stops_at_the_tables_memory, fixture_arena_create, fixture_arena_destroy)
{
    enum { ROWS = 20000 };
    const struct {
        float wanted;
        uint64_t room_bytes;
        bool is_counted;
    } cases[] = {{2, PS_OCCURRENCE_LINE_BYTES - 1, false},
                 {2, PS_OCCURRENCE_LINE_BYTES, true},
                 {1, PS_OCCURRENCE_LINE_BYTES - 1, false}};
    struct mr_feature f = fixture_adagrad(DIM);
    f.admission = MR_ADMIT_OBSERVATIONS;
    f.admission_arg = 2;
    f.filter_bytes = 1; /* a line per partition */
    struct ps_table *without_limit = table_of_rows(&f, ROWS);
    const size_t used_bytes = ps_table_memory_bytes(without_limit);
    ps_table_destroy(without_limit);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        f.admission_arg = cases[i].wanted;
        f.memory_bytes = used_bytes + cases[i].room_bytes;
        struct ps_table *t = table_of_rows(&f, ROWS);
        assert_int_equal(ps_table_memory_bytes(t), used_bytes);
        assert_int_equal(ps_occurrence_partition_bytes(&t->filter), PS_OCCURRENCE_LINE_BYTES);
        bool is_admitted = cases[i].wanted == 1;
        fixture_insert(t, ROWS);
        assert_int_equal(fixture_has_row(t, ROWS), is_admitted);
        assert_true(ps_table_memory_bytes(t) <= f.memory_bytes);
        assert_int_equal(ps_occurrence_count(&t->filter, ps_key_hash(ROWS, f.seed)), cases[i].is_counted);
        assert_int_equal(ps_table_counters(t)->observations_not_counted,
                         !cases[i].is_counted && !is_admitted);
        assert_int_equal(ps_table_counters(t)->keys_not_admitted_observations, !is_admitted);
        ps_table_destroy(t);
    }
}

/* However large the filter that was asked for. */
TEST(a_filter_leaves_memory_for_rows, fixture_arena_create, fixture_arena_destroy)
{
    struct mr_feature f = fixture_adagrad(DIM);
    f.admission = MR_ADMIT_OBSERVATIONS;
    f.admission_arg = 2;
    f.memory_bytes = 1 << 20; /* and the filter has its 16 MiB */
    struct ps_table *t = fixture_table(&f, fixture_arena);
    for (uint64_t key = 0; key < 20000; key++)
        fixture_insert(t, key);
    assert_true(ps_table_rows(t) < 2000); /* taken for others */
    uint64_t rows = ps_table_rows(t);
    for (uint64_t key = 100000; key < 101000; key++) {
        fixture_insert(t, key);
        fixture_insert(t, key);
        assert_true(ps_table_memory_bytes(t) <= f.memory_bytes);
    }
    assert_true(ps_table_rows(t) > rows + 900); /* some keys' counters fade in between */
    assert_int_equal(ps_table_counters(t)->observations_not_counted, 0);
    ps_table_destroy(t);
}
