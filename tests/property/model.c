#include "model.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool model_knows(const struct mr_feature *f)
{
    return (f->optimizer == MR_OPT_SGD || f->optimizer == MR_OPT_ADAGRAD) && f->dtype == MR_F32 &&
           f->admission == MR_ADMIT_ALWAYS && f->eviction == MR_EVICT_NEVER && f->memory_bytes == 0 &&
           f->schedule == MR_SCHEDULE_CONSTANT && f->schedule_warmup_steps == 0;
}

void model_init(struct model *m, const struct mr_feature *feature)
{
    const char *what;
    memset(m, 0, sizeof(*m));
    m->feature = *feature;
    m->dim = feature->dims[0];
    m->state_floats = model_state_floats(feature);
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

struct model_row *model_find(const struct model *m, uint64_t key)
{
    struct model_row *row = *chain_of(m, key);
    while (row != NULL && row->key != key)
        row = row->next;
    return row;
}

struct model_row *model_add(struct model *m, uint64_t key)
{
    struct model_row *row = row_new(m, key);
    ps_initializer_fill(&m->initializer, key, row->floats, m->dim);
    model_state_init(m, row->floats + m->dim);
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

uint32_t model_stored_bytes(const struct model *m)
{
    return (m->dim + m->state_floats) * (uint32_t)sizeof(float);
}

void model_store(const struct model *m, const struct model_row *row, uint8_t *stored)
{
    memcpy(stored, row->floats, model_stored_bytes(m));
}

void model_restore(const struct model *m, struct model_row *row, const uint8_t *stored)
{
    memcpy(row->floats, stored, model_stored_bytes(m));
}

float model_divisor(const struct model *m, uint32_t bag_keys)
{
    switch (m->feature.pooling) {
    case MR_POOL_MEAN:
        return bag_keys > 0 ? (float)bag_keys : 1.0f;
    case MR_POOL_SQRTN:
        return bag_keys > 0 ? sqrtf((float)bag_keys) : 1.0f;
    default:
        return 1.0f;
    }
}

static bool finite_floats(const float *x, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (!isfinite(x[i]))
            return false;
    return true;
}

static void gather_one(const struct model *m, struct model_gradient *g, const float *gradient, float divisor)
{
    if (!finite_floats(gradient, m->dim)) {
        g->bad++;
        return;
    }
    for (uint32_t i = 0; i < m->dim; i++) {
        float share = gradient[i] / divisor;
        g->sum[i] = g->any ? g->sum[i] + share : share;
    }
    g->any = true;
}

uint32_t model_gather(const struct model *m, const uint64_t *keys, uint32_t key_count,
                      const uint32_t *offsets, const float *gradients, struct model_gradient *out,
                      float *sums)
{
    uint32_t count = 0, bag = 0;
    for (uint32_t k = 0; k < key_count; k++) {
        const float *gradient = gradients + (size_t)k * m->dim;
        float divisor = 1.0f;
        if (offsets != NULL) {
            while (offsets[bag + 1] <= k)
                bag++;
            gradient = gradients + (size_t)bag * m->dim;
            divisor = model_divisor(m, offsets[bag + 1] - offsets[bag]);
        }
        uint32_t at = 0;
        while (at < count && out[at].key != keys[k])
            at++;
        if (at == count)
            out[count++] = (struct model_gradient){.key = keys[k], .sum = sums + (size_t)at * m->dim};
        gather_one(m, &out[at], gradient, divisor);
    }
    return count;
}
