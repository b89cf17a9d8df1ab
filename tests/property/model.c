#include "model.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/format/convert.h"

bool model_knows(const struct mr_feature *f)
{
    return f->kind == MR_TABLE;
}

void model_init(struct model *m, const struct mr_feature *feature)
{
    const char *what;
    memset(m, 0, sizeof(*m));
    m->feature = *feature;
    m->dim = feature->dims[0];
    model_optimizer_init(m);
    enum mr_status status = ps_initializer_init(feature, &m->initializer, &what);
    assert(status == MR_OK);
    (void)status;
}

void model_clear(struct model *m)
{
    for (uint32_t i = 0; i < MODEL_CHAINS; i++) {
        for (struct model_row *next, *row = m->chains[i]; row != NULL; row = next) {
            next = row->next;
            free(row);
        }
        m->chains[i] = NULL;
    }
    m->row_count = 0;
}

static struct model_row **chain_of(const struct model *m, uint64_t key)
{
    return (struct model_row **)&m->chains[(key * 0x9e3779b97f4a7c15u >> 40) % MODEL_CHAINS];
}

static size_t row_bytes(const struct model *m)
{
    return sizeof(struct model_row) + (m->dim + m->state_floats) * sizeof(float);
}

static struct model_row *row_new(struct model *m, uint64_t key)
{
    struct model_row **chain = chain_of(m, key), *row = calloc(1, row_bytes(m));
    assert(row != NULL);
    row->key = key;
    row->next = *chain;
    *chain = row;
    m->row_count++;
    return row;
}

void model_copy(struct model *to, const struct model *from)
{
    model_init(to, &from->feature);
    for (uint32_t i = 0; i < MODEL_CHAINS; i++)
        for (const struct model_row *row = from->chains[i]; row != NULL; row = row->next) {
            struct model_row *copy = row_new(to, row->key), *next = copy->next;
            memcpy(copy, row, row_bytes(from));
            copy->next = next;
            copy->emitted = false;
        }
}

void model_put(struct model *m, const struct model_row *row)
{
    struct model_row *to = model_find(m, row->key);
    to = to != NULL ? to : row_new(m, row->key);
    struct model_row *next = to->next;
    memcpy(to, row, row_bytes(m));
    to->next = next;
}

struct model_row *model_find(const struct model *m, uint64_t key)
{
    struct model_row *row = *chain_of(m, key);
    while (row != NULL && row->key != key)
        row = row->next;
    return row;
}

void model_initial(const struct model *m, uint64_t key, float *values)
{
    ps_initializer_fill(&m->initializer, key, values, m->dim);
    if (model_is_half(m))
        model_nearest(m, values);
}

struct model_row *model_add(struct model *m, uint64_t key)
{
    struct model_row *row = row_new(m, key);
    model_initial(m, key, row->floats);
    model_state_init(m, row);
    return row;
}

void model_remove(struct model *m, uint64_t key)
{
    struct model_row **link = chain_of(m, key);
    while ((*link)->key != key)
        link = &(*link)->next;
    struct model_row *row = *link;
    *link = row->next;
    free(row);
    m->row_count--;
}

bool model_is_half(const struct model *m)
{
    return m->feature.dtype != MR_F32;
}

static uint32_t values_bytes(const struct model *m) /* with the room up to a multiple of 4 */
{
    return model_is_half(m) ? (m->dim + 1) / 2 * 4 : m->dim * 4;
}

bool model_evicts_by_limit(const struct model *m)
{
    return m->feature.eviction == MR_EVICT_LRU || m->feature.eviction == MR_EVICT_LFU;
}

bool model_makes_room(const struct model *m)
{
    return m->feature.eviction != MR_EVICT_NEVER && m->feature.eviction != MR_EVICT_NORM;
}

uint32_t model_use_offset(const struct model *m)
{
    return values_bytes(m) + (model_is_half(m) ? 4 : 0);
}

uint32_t model_use_bytes(const struct model *m)
{
    return m->feature.eviction == MR_EVICT_NEVER ? 0 : m->feature.eviction == MR_EVICT_LFU ? 8 : 4;
}

uint32_t model_stored_bytes(const struct model *m)
{
    return model_use_offset(m) + model_use_bytes(m) + m->state_floats * 4;
}

void model_store(const struct model *m, const struct model_row *row, uint8_t *stored)
{
    memset(stored, 0, model_stored_bytes(m));
    mr_convert_from_f32((enum mr_dtype)m->feature.dtype, stored, NULL, row->floats, 1, m->dim);
    stored += values_bytes(m);
    if (model_is_half(m)) {
        memcpy(stored, &row->updates, 4);
        stored += 4;
    }
    if (model_use_bytes(m) > 0)
        memcpy(stored, &row->seen, 4);
    stored += model_use_bytes(m);
    memcpy(stored, row->floats + m->dim, m->state_floats * sizeof(float));
}

void model_restore(const struct model *m, struct model_row *row, const uint8_t *stored)
{
    mr_convert_to_f32((enum mr_dtype)m->feature.dtype, row->floats, stored, NULL, 1, m->dim);
    stored += values_bytes(m);
    if (model_is_half(m)) {
        memcpy(&row->updates, stored, 4);
        stored += 4;
    }
    if (model_use_bytes(m) > 0)
        memcpy(&row->seen, stored, 4);
    stored += model_use_bytes(m);
    memcpy(row->floats + m->dim, stored, m->state_floats * sizeof(float));
}

float model_divisor(const struct model *m, const struct model_keys *k, uint32_t bag)
{
    uint32_t first = k->offsets[bag], last = k->offsets[bag + 1];
    if (m->feature.pooling == MR_POOL_SUM)
        return 1.0f;
    if (k->divisors != NULL)
        return k->divisors[bag];
    if (first == last)
        return 1.0f;
    double sum = 0;
    for (uint32_t i = first; i < last; i++) {
        double weight = k->weights != NULL ? (double)k->weights[i] : 1.0;
        sum += m->feature.pooling == MR_POOL_MEAN ? weight : weight * weight;
    }
    return (float)(m->feature.pooling == MR_POOL_MEAN ? sum : sqrt(sum));
}

bool model_all_finite(const float *x, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (!isfinite(x[i]))
            return false;
    return true;
}

void model_set_row(const struct model *m, struct model_row *row, const float *values)
{
    memcpy(row->floats, values, m->dim * sizeof(float));
    if (model_is_half(m))
        model_set(m, row);
    model_state_init(m, row);
}

static void gather_one(const struct model *m, struct model_gradient *g, const float *gradient, float divisor,
                       float weight, bool sets)
{
    float share[MR_DIM_MAX];
    for (uint32_t i = 0; i < m->dim; i++)
        share[i] = (divisor > 0 || divisor < 0 ? gradient[i] / divisor : 0.0f) * weight;
    if (!model_all_finite(share, m->dim)) {
        g->bad++;
        return;
    }
    bool adds = g->any && !sets && m->feature.optimizer != MR_OPT_ASSIGN;
    for (uint32_t i = 0; i < m->dim; i++)
        g->sum[i] = adds ? g->sum[i] + share[i] : share[i];
    g->any = true;
}

bool model_is_excluded(const struct model *m, const struct model_keys *k, uint64_t key)
{
    uint32_t partition = mr_partition_of(mr_key_hash(key, m->feature.seed));
    return k->excluded != NULL && (k->excluded[partition / 64] >> partition % 64 & 1) != 0;
}

uint32_t model_gather(const struct model *m, const struct model_keys *k, const float *gradients,
                      struct model_gradient *out,
                      float *sums) /* NOLINT(readability-non-const-parameter): `out` leads into it */
{
    uint32_t count = 0, bag = 0;
    for (uint32_t i = 0; i < k->count; i++) {
        const float *gradient = gradients + (size_t)i * m->dim;
        float divisor = 1.0f;
        if (k->offsets != NULL) {
            while (k->offsets[bag + 1] <= i)
                bag++;
            gradient = gradients + (size_t)bag * m->dim;
            divisor = model_divisor(m, k, bag);
        }
        if (model_is_excluded(m, k, k->keys[i]))
            continue;
        uint32_t at = 0;
        while (at < count && out[at].key != k->keys[i])
            at++;
        if (at == count)
            out[count++] = (struct model_gradient){.key = k->keys[i], .sum = sums + (size_t)at * m->dim};
        gather_one(m, &out[at], gradient, divisor, k->weights != NULL ? k->weights[i] : 1.0f, k->sets);
    }
    return count;
}
