#include <math.h>
#include <string.h>
#include "world.h"

/* The model's row of a key; when there is none, what the table made of it. */
static struct model_row *row_of(struct subject *s, uint64_t key, bool insert)
{
    struct model_row *row = model_find(&s->model, key);
    if (row != NULL || !insert)
        return row;
    if (!world_has_row(s, key)) {
        s->expected.rows_refused++;
        return NULL;
    }
    s->expected.rows_created++;
    return model_add(&s->model, key);
}

static void answer_key(struct subject *s, uint64_t key, bool insert, const float **values, float *initial)
{
    const struct model_row *row = model_find(&s->model, key);
    if (row == NULL) {
        s->expected.keys_missing++;
        row = row_of(s, key, insert);
    }
    if (row == NULL)
        ps_initializer_fill(&s->model.initializer, key, initial, s->model.dim);
    *values = row != NULL ? row->floats : initial;
}

static void bag_finish(const struct model *m, struct call *c, uint32_t bag)
{
    float *sum = c->expected + (size_t)bag * m->dim;
    float divisor = model_divisor(m, c->offsets[bag + 1] - c->offsets[bag]);
    for (uint32_t i = 0; i < m->dim; i++)
        sum[i] /= divisor;
}

void model_answer(struct subject *s, struct call *c, uint32_t first, uint32_t last)
{
    const struct model *m = &s->model;
    float initial[MR_DIM_MAX];
    const float *values;
    uint32_t bag = 0;
    for (uint32_t k = first; k < last; k++) {
        answer_key(s, c->keys[k], c->insert, &values, initial);
        if (!c->bags) {
            memcpy(c->expected + (size_t)k * m->dim, values, m->dim * sizeof(float));
            continue;
        }
        while (c->offsets[bag + 1] <= k)
            bag++;
        float *sum = c->expected + (size_t)bag * m->dim;
        if (k == c->offsets[bag])
            memset(sum, 0, m->dim * sizeof(float));
        for (uint32_t i = 0; i < m->dim; i++)
            sum[i] += values[i];
        if (k + 1 == c->offsets[bag + 1])
            bag_finish(m, c, bag);
    }
    s->expected.keys_looked_up += last - first;
}

void world_lookup(struct world *w, struct subject *s)
{
    struct call *c = w->call;
    w->doing = "lookup";
    draw_call(w, s, c);
    size_t floats = (size_t)(c->bags ? c->bag_count : c->key_count) * s->model.dim;
    memset(c->expected, 0, floats * sizeof(float));
    if (c->bags)
        ps_table_lookup_bags(s->table, c->keys, c->offsets, c->bag_count, c->insert, c->out);
    else
        ps_table_lookup(s->table, c->keys, c->key_count, c->insert, c->out);
    model_answer(s, c, 0, c->key_count);
    world_check_floats(w, c->out, c->expected, floats, "answer");
}

void model_apply(struct subject *s, const struct model_gradient *g, bool insert)
{
    struct model_row *row = model_find(&s->model, g->key);
    if (row == NULL && insert && g->bad > 0 && !g->any && !world_has_row(s, g->key)) {
        s->expected.gradients_skipped += g->bad; /* nothing to make a row for */
        s->ambiguous++;
        return;
    }
    if (row == NULL)
        row = row_of(s, g->key, insert);
    s->expected.gradients_skipped += g->bad;
    if (row == NULL) {
        if (g->any)
            s->expected.gradients_without_row++;
        else
            s->ambiguous++;
        return;
    }
    if (!g->any)
        return;
    if (model_step(&s->model, row, g->sum))
        s->expected.updates++;
    else
        s->expected.gradients_skipped++;
}

void world_push(struct world *w, struct subject *s)
{
    struct call *c = w->call;
    w->doing = "push";
    draw_call(w, s, c);
    draw_gradients(w, s, c, true);
    c->gradient_count = model_gather(&s->model, c->keys, c->key_count, c->bags ? c->offsets : NULL, c->in,
                                     c->gradients, c->sums);
    uint64_t bound = world_cut_bound(s, c->key_count);
    c->insert = random_one_in(&w->rng, 4);
    if (c->insert) {
        struct ps_table_push p = {.keys = c->keys,
                                  .key_count = c->key_count,
                                  .offsets = c->bags ? c->offsets : NULL,
                                  .bag_count = c->bag_count,
                                  .gradients = c->in,
                                  .at_once = true,
                                  .insert = true};
        uint64_t budget_bytes = UINT64_MAX;
        WORLD_CHECK(w, ps_table_push_step(s->table, &p, &budget_bytes), "a push at once is not over");
    } else if (c->bags)
        ps_table_push_bags(s->table, c->keys, c->offsets, c->bag_count, c->in);
    else
        ps_table_push(s->table, c->keys, c->key_count, c->in);
    WORLD_CHECK(w, s->emitted <= bound, "it emitted more rows than it may");
    for (uint32_t i = 0; i < c->gradient_count; i++)
        model_apply(s, &c->gradients[i], c->insert);
    s->expected.keys_pushed += c->key_count;
}

void world_load(struct world *w, struct subject *s)
{
    float stored[4 * MR_DIM_MAX];
    uint64_t key = draw_key(w), bound = world_cut_bound(s, 1);
    w->doing = "load";
    for (uint32_t i = 0; i < model_stored_bytes(&s->model) / sizeof(float); i++)
        stored[i] = 1.0f + random_float(&w->rng);
    enum mr_status status = ps_table_load(s->table, key, (const uint8_t *)stored);
    WORLD_CHECK(w, s->emitted <= bound, "it emitted more rows than it may");
    struct model_row *row = row_of(s, key, true);
    WORLD_CHECK(w, (status == MR_OK) == (row != NULL) && (row != NULL || status == MR_OUT_OF_MEMORY),
                "status %d", (int)status);
    if (row != NULL)
        model_restore(&s->model, row, (const uint8_t *)stored);
}

void world_prefetch(struct world *w)
{
    struct ps_hint hints[PS_HINT_KEYS_MAX];
    uint32_t count = 1 + random_below(&w->rng, PS_HINT_KEYS_MAX);
    w->doing = "prefetch";
    for (uint32_t i = 0; i < count; i++) {
        const struct subject *s = &w->subjects[random_below(&w->rng, w->subject_count)];
        hints[i] = (struct ps_hint){s->table, draw_key(w), ps_table_stored_row_bytes(s->table)};
    }
    ps_table_prefetch(hints, count);
}
