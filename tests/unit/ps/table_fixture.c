#include "table_fixture.h"

#include <math.h>
#include <float.h>
#include <stdlib.h>
#include <string.h>
#include "ps/base/key_hash.h"
#include "ps/row/initializer.h"
#include "ps/table/table_internal.h"
#include "tests/unit/ps/table_calls.h"

struct ps_arena *fixture_arena;

int fixture_arena_create(void **state)
{
    (void)state;
    fixture_arena = ps_arena_create(FIXTURE_LIMIT_BYTES);
    assert_non_null(fixture_arena);
    return 0;
}

int fixture_arena_destroy(void **state)
{
    (void)state;
    assert_int_equal(ps_arena_allocated_bytes(fixture_arena), 0);
    ps_arena_destroy(fixture_arena);
    return 0;
}

struct mr_feature fixture_adagrad(uint32_t dim)
{
    struct mr_feature f = mr_feature_table("table", dim);
    f.optimizer = MR_OPT_ADAGRAD;
    f.learning_rate = 0.1f;
    f.optimizer_args[0] = 0.1f;
    f.optimizer_args[1] = 1e-10f;
    f.initializer = MR_INIT_UNIFORM;
    f.init_a = -0.05f;
    f.init_b = 0.05f;
    f.seed = 7;
    return f;
}

struct ps_key_secret fixture_key_secret(void)
{
    static struct ps_key_secret secret;
    if (secret.bits[0] == 0) {
        uint64_t rng = fixture_seed("key secret");
        secret.bits[0] = random_next(&rng) | 1;
        secret.bits[1] = random_next(&rng);
    }
    return secret;
}

struct ps_table *fixture_table(const struct mr_feature *feature, struct ps_arena *arena)
{
    struct ps_table *t = NULL;
    const char *what = NULL;
    const struct ps_key_secret secret = fixture_key_secret();
    assert_null(mr_feature_check(feature));
    assert_int_equal(ps_table_create(feature, arena, &secret, &t, &what), MR_OK);
    return t;
}

uint64_t fixture_key_of(const struct ps_table *t, uint32_t partition, uint64_t n)
{
    uint64_t hash = (uint64_t)partition << 52 | (n + 1) * UINT64_C(0x9e3779b97f4a7c15) >> 12;
    assert_int_equal(mr_partition_of(hash), partition);
    return ps_index_key(&t->index, hash);
}

void fixture_insert(struct ps_table *t, uint64_t key)
{
    float out[MR_DIM_MAX];
    table_lookup(t, &key, 1, true, out);
}

bool fixture_has_row(struct ps_table *t, uint64_t key)
{
    uint64_t missing = ps_table_counters(t)->keys_missing;
    float out[MR_DIM_MAX];
    table_lookup(t, &key, 1, false, out);
    return ps_table_counters(t)->keys_missing == missing;
}

void model_init(struct model *m, const struct mr_feature *feature)
{
    *m = (struct model){.feature = *feature, .dim = feature->dims[0]};
    m->stored_floats = m->dim * (feature->optimizer == MR_OPT_ADAGRAD ? 2 : 1);
}

void model_free(struct model *m)
{
    for (uint32_t i = 0; i < m->row_count; i++)
        free(m->rows[i].stored);
    free(m->rows);
}

static float *model_add(struct model *m, uint64_t key)
{
    if (m->row_count == m->row_capacity) {
        m->row_capacity = m->row_capacity == 0 ? 64 : 2 * m->row_capacity;
        m->rows = realloc(m->rows, m->row_capacity * sizeof(*m->rows));
        assert_non_null(m->rows);
    }
    struct model_row *row = &m->rows[m->row_count++];
    row->key = key;
    row->stored = calloc(m->stored_floats, sizeof(float));
    assert_non_null(row->stored);
    return row->stored;
}

void model_copy(struct model *m, const struct model *from)
{
    model_init(m, &from->feature);
    for (uint32_t i = 0; i < from->row_count; i++)
        memcpy(model_add(m, from->rows[i].key), from->rows[i].stored, m->stored_floats * sizeof(float));
}

float *model_find(const struct model *m, uint64_t key)
{
    for (uint32_t i = 0; i < m->row_count; i++)
        if (m->rows[i].key == key)
            return m->rows[i].stored;
    return NULL;
}

void model_remove(struct model *m, uint64_t key)
{
    for (uint32_t i = 0; i < m->row_count; i++) {
        if (m->rows[i].key != key)
            continue;
        free(m->rows[i].stored);
        m->rows[i] = m->rows[--m->row_count];
        return;
    }
    fail();
}

void model_lookup(struct model *m, uint64_t key, bool insert, float *out)
{
    struct ps_initializer initializer;
    const char *what;
    float *row = model_find(m, key);
    if (row != NULL) {
        memcpy(out, row, m->dim * sizeof(float));
        return;
    }
    assert_int_equal(ps_initializer_init(&m->feature, &initializer, &what), MR_OK);
    ps_initializer_fill(&initializer, key, out, m->dim);
    if (!insert)
        return;
    row = model_add(m, key);
    memcpy(row, out, m->dim * sizeof(float));
    for (uint32_t i = m->dim; i < m->stored_floats; i++)
        row[i] = m->feature.optimizer_args[0];
}

/* One operation at a time: through volatile, the compiler can neither contract nor reorder. */
static void model_step(const struct model *m, float *row, const float *gradient)
{
    for (uint32_t i = 0; i < m->dim; i++) {
        volatile float g = gradient[i];
        volatile float step = m->feature.learning_rate * g;
        if (m->feature.optimizer == MR_OPT_ADAGRAD) {
            volatile float square = g * g;
            volatile float state = row[m->dim + i] + square;
            row[m->dim + i] = state < FLT_MAX ? state : FLT_MAX;
            volatile float root = sqrtf(row[m->dim + i]);
            volatile float divisor = root + m->feature.optimizer_args[1];
            step = step / divisor;
        }
        row[i] = row[i] - step;
    }
}

static bool all_finite(const float *x, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (!isfinite(x[i]))
            return false;
    return true;
}

uint32_t model_push(struct model *m, const uint64_t *keys, uint32_t key_count, const float *gradients)
{
    uint32_t changed = 0;
    float *sum = calloc(m->dim, sizeof(float));
    assert_non_null(sum);
    for (uint32_t k = 0; k < key_count; k++) {
        bool first = true, any = false;
        for (uint32_t j = 0; j < k && first; j++)
            first = keys[j] != keys[k];
        float *row = model_find(m, keys[k]);
        if (!first || row == NULL)
            continue;
        for (uint32_t j = k; j < key_count; j++) {
            const float *g = gradients + (size_t)j * m->dim;
            if (keys[j] != keys[k] || !all_finite(g, m->dim))
                continue;
            for (uint32_t i = 0; i < m->dim; i++)
                sum[i] = any ? sum[i] + g[i] : g[i];
            any = true;
        }
        if (any && all_finite(sum, m->dim)) {
            model_step(m, row, sum);
            changed++;
        }
    }
    free(sum);
    return changed;
}

struct check {
    const struct model *model;
    uint64_t rows;
};

static void check_row(void *self, struct ps_table *t, const uint64_t *keys, const uint8_t *const *rows,
                      uint32_t count)
{
    struct check *check = self;
    for (uint32_t i = 0; i < count; i++) {
        const float *expected = model_find(check->model, keys[i]);
        assert_non_null(expected);
        assert_memory_equal(rows[i], expected, ps_table_stored_row_bytes(t));
    }
    check->rows += count;
}

void model_check(const struct model *m, struct ps_table *t)
{
    struct check check = {.model = m};
    struct ps_cut cut = {.self = &check, .emit = check_row};
    assert_int_equal(ps_table_rows(t), m->row_count);
    ps_table_cut_begin(t, &cut, PS_SAVE_FULL);
    while (!ps_table_cut_step(t, 1000)) {
    }
    assert_int_equal(check.rows, m->row_count);
}

void modelled_open(struct modelled *m, const struct mr_feature *feature, uint32_t universe)
{
    *m = (struct modelled){.arena = ps_arena_create(FIXTURE_LIMIT_BYTES), .universe = universe};
    assert_non_null(m->arena);
    assert_int_equal(feature->dims[0], MODELLED_DIM);
    m->table = fixture_table(feature, m->arena);
    model_init(&m->model, feature);
}

void modelled_close(struct modelled *m)
{
    ps_table_destroy(m->table);
    ps_arena_destroy(m->arena);
    model_free(&m->model);
}

uint64_t modelled_key(struct modelled *m)
{
    static const uint64_t extremes[] = {0, UINT64_MAX, UINT64_MAX - 1, 1};
    uint32_t n = random_below(&m->rng, m->universe);
    return n < 4 ? extremes[n] : n * 0x9e3779b97f4a7c15u;
}

void modelled_lookup(struct modelled *m, uint32_t key_count, bool insert)
{
    uint64_t keys[MODELLED_CALL_MAX] = {0};
    float out[MODELLED_CALL_MAX * MODELLED_DIM], expected[MODELLED_DIM];
    for (uint32_t i = 0; i < key_count; i++)
        keys[i] = modelled_key(m);
    table_lookup(m->table, keys, key_count, insert, out);
    for (uint32_t i = 0; i < key_count; i++) {
        model_lookup(&m->model, keys[i], insert, expected);
        assert_memory_equal(out + i * MODELLED_DIM, expected, sizeof(expected));
    }
}

void modelled_push(struct modelled *m, uint32_t key_count)
{
    uint64_t keys[MODELLED_CALL_MAX] = {0}, updates = ps_table_counters(m->table)->updates;
    float gradients[MODELLED_CALL_MAX * MODELLED_DIM];
    for (uint32_t i = 0; i < key_count; i++)
        keys[i] = modelled_key(m);
    for (uint32_t i = 0; i < key_count * MODELLED_DIM; i++)
        gradients[i] = random_below(&m->rng, 500) == 0 ? INFINITY : random_float(&m->rng);
    table_push(m->table, keys, key_count, gradients);
    uint32_t changed = model_push(&m->model, keys, key_count, gradients);
    assert_int_equal(ps_table_counters(m->table)->updates - updates, changed);
}

void modelled_remove(struct modelled *m)
{
    uint64_t key = modelled_key(m), hash = ps_index_hash(&m->table->index, key);
    struct ps_place place = ps_index_find(&m->table->index, hash);
    assert_int_equal(place.bucket != NULL, model_find(&m->model, key) != NULL);
    if (place.bucket == NULL)
        return;
    ps_table_row_remove(m->table, place, hash);
    model_remove(&m->model, key);
    assert_int_equal(ps_table_rows(m->table), m->model.row_count);
}
