#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/format/convert.h"
#include "ps/table/table_internal.h"
#include "world.h"
#include "tests/unit/ps/table_calls.h"

/* The model's row of a key; when there is none, what the table made of it. */
static struct model_row *row_of(struct subject *s, uint64_t key, bool insert)
{
    struct model_row *row = model_find(&s->model, key);
    if (row != NULL || !insert)
        return row;
    if (!world_has_row(s, key)) {
        s->not_made++;
        return NULL;
    }
    WORLD_CHECK(s->world,
                s->model.feature.admission != MR_ADMIT_PROBABILITY || s->loading || s->setting ||
                    ps_table_admits_push(s->table, ps_index_hash(&s->table->index, key)),
                "key %#llx got a row, and is not admitted", (unsigned long long)key);
    s->expected.rows_created++;
    row = model_add(&s->model, key);
    world_use(s, row);
    return row;
}

static void answer_key(struct subject *s, uint64_t key, bool insert, const float **values, float *initial)
{
    const struct model_row *row = model_find(&s->model, key);
    if (row == NULL) {
        s->expected.keys_missing++;
        row = row_of(s, key, insert);
    } else if (insert) {
        world_use(s, model_find(&s->model, key));
    }
    if (row == NULL)
        model_initial(&s->model, key, initial);
    *values = row != NULL ? row->floats : initial;
}

struct model_keys keys_of(const struct call *c)
{
    return (struct model_keys){.keys = c->keys,
                               .count = c->key_count,
                               .offsets = c->bags ? c->offsets : NULL,
                               .weights = c->weighted ? c->weights : NULL,
                               .divisors = c->divided ? c->divisors : NULL,
                               .excluded = c->excludes ? c->excluded : NULL,
                               .sets = c->sets};
}

struct ps_table_lookup lookup_of(struct call *c)
{
    return (struct ps_table_lookup){.in.keys = c->keys,
                                    .in.key_count = c->key_count,
                                    .in.offsets = c->bags ? c->offsets : NULL,
                                    .in.bag_count = c->bags ? c->bag_count : 0,
                                    .in.weights = c->weighted ? c->weights : NULL,
                                    .in.divisors = c->divided ? c->divisors : NULL,
                                    .insert = c->insert,
                                    .out_dtype = c->dtype,
                                    .out = c->out,
                                    .scales = c->scales,
                                    .sum = c->sum};
}

struct ps_table_push push_of(const struct call *c)
{
    return (struct ps_table_push){.in.keys = c->keys,
                                  .in.key_count = c->key_count,
                                  .in.offsets = c->bags ? c->offsets : NULL,
                                  .in.bag_count = c->bag_count,
                                  .gradients_dtype = c->dtype,
                                  .gradients = c->dtype == MR_F32 ? c->in : c->travels,
                                  .gradient_scales = c->scales,
                                  .in.weights = c->weighted ? c->weights : NULL,
                                  .in.divisors = c->divided ? c->divisors : NULL,
                                  .excluded = c->excludes ? c->excluded : NULL,
                                  .insert = c->insert,
                                  .sees = c->sees,
                                  .sets = c->sets,
                                  .step = c->step,
                                  .learning_rate = c->learning_rate >= 0 ? &c->learning_rate : NULL};
}

static void bag_finish(const struct model *m, struct call *c, uint32_t bag)
{
    struct model_keys k = keys_of(c);
    float *sum = c->expected + (size_t)bag * m->dim, divisor = model_divisor(m, &k, bag);
    for (uint32_t i = 0; i < m->dim; i++)
        sum[i] = divisor > 0 || divisor < 0 ? sum[i] / divisor : 0.0f;
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
            sum[i] += c->weighted ? c->weights[k] * values[i] : values[i];
        if (k + 1 == c->offsets[bag + 1])
            bag_finish(m, c, bag);
    }
    s->expected.keys_looked_up += last - first;
}

void world_check_answer(struct world *w, const struct subject *s, struct call *c, uint32_t rows)
{
    uint32_t dim = s->model.dim;
    if (c->dtype == MR_F32) {
        world_check_floats(w, c->out, c->expected, (size_t)rows * dim, "answer");
        return;
    }
    float scales[WORLD_CALL_KEYS] = {0};
    size_t bytes = (size_t)rows * dim * mr_dtype_bytes(c->dtype);
    mr_convert_from_f32(c->dtype, c->travels, scales, c->expected, rows, dim);
    if (c->dtype == MR_I8)
        world_check_floats(w, c->scales, scales, rows, "scale");
    if (memcmp(c->out, c->travels, bytes) == 0)
        return;
    /* NaN has more than one form. */
    mr_convert_to_f32(c->dtype, c->sums, c->travels, scales, rows, dim);
    mr_convert_to_f32(c->dtype, c->in, c->out, scales, rows, dim);
    world_check_floats(w, c->in, c->sums, (size_t)rows * dim, "narrow answer");
}

void world_lookup(struct world *w, struct subject *s)
{
    struct call *c = w->call;
    w->doing = "lookup";
    draw_call(w, s, c);
    uint32_t rows = c->bags ? c->bag_count : c->key_count;
    memset(c->expected, 0, (size_t)rows * s->model.dim * sizeof(float));
    if (c->weighted || c->divided || c->dtype != MR_F32) {
        struct ps_table_lookup l = lookup_of(c);
        uint64_t budget_bytes = UINT64_MAX;
        WORLD_CHECK(w, ps_table_lookup_step(s->table, &l, &budget_bytes), "a lookup at once is not over");
    } else if (c->bags)
        table_lookup_bags(s->table, c->keys, c->offsets, c->bag_count, c->insert, c->out);
    else
        table_lookup(s->table, c->keys, c->key_count, c->insert, c->out);
    model_answer(s, c, 0, c->key_count);
    world_check_answer(w, s, c, rows);
}

/* A key without a gradient worth adding is used or not, depending on what is found out first. */
static void world_seen_follow(const struct subject *s, struct model_row *row)
{
    const struct ps_index *ix = &s->table->index;
    struct ps_place place = ps_index_find(ix, ps_index_hash(ix, row->key));
    if (place.bucket != NULL && model_use_bytes(&s->model) > 0)
        memcpy(&row->seen, (const uint8_t *)ps_table_row(s->table, place) + model_use_offset(&s->model),
               sizeof(row->seen));
}

void model_apply(struct subject *s, const struct model_gradient *g, const struct call *c)
{
    bool insert = c->insert && (c->sets || s->model.feature.admission != MR_ADMIT_OBSERVATIONS);
    const struct mr_rule_push push = {
        .learning_rate = mr_rule_learning_rate(&s->model.optimizer, c->step,
                                               c->learning_rate >= 0 ? &c->learning_rate : NULL),
        .step = c->step};
    struct model_row *row = model_find(&s->model, g->key);
    if (row == NULL && insert && g->bad > 0 && !g->any && !world_has_row(s, g->key)) {
        s->expected.gradients_skipped += g->bad; /* nothing to make a row for */
        s->ambiguous++;
        return;
    }
    if (row == NULL) {
        s->setting = c->sets;
        row = row_of(s, g->key, insert);
        s->setting = false;
        s->not_admitted_pushed +=
            row == NULL && insert && !c->sets && s->model.feature.admission == MR_ADMIT_PROBABILITY;
    }
    s->expected.gradients_skipped += g->bad;
    if (row == NULL) {
        if (g->any)
            s->expected.gradients_without_row++;
        else
            s->ambiguous++;
        return;
    }
    if (g->any)
        world_use(s, row);
    else
        world_seen_follow(s, row);
    if (!g->any)
        return;
    if (c->sets) {
        model_set_row(&s->model, row, g->sum);
    } else if (!model_step(&s->model, row, g->sum, &push)) {
        s->expected.gradients_skipped++;
        return;
    }
    s->expected.updates++;
    s->expected.rows_saturated += model_is_half(&s->model) &&
                                  (c->sets || s->model.feature.optimizer == MR_OPT_ASSIGN) &&
                                  !model_holds(&s->model, g->sum);
}

/* A push whose lookup was lost makes the rows that it would have made. */
static void see(struct subject *s, const struct model_keys *k)
{
    for (uint32_t i = 0; i < k->count; i++) {
        struct model_row *row = model_find(&s->model, k->keys[i]);
        if (model_is_excluded(&s->model, k, k->keys[i]))
            continue;
        if (row != NULL)
            world_use(s, row);
        else
            (void)row_of(s, k->keys[i], true);
    }
}

void world_push(struct world *w, struct subject *s)
{
    struct call *c = w->call;
    w->doing = "push";
    draw_call(w, s, c);
    draw_gradients(w, s, c, true);
    draw_sets(w, c);
    struct model_keys k = keys_of(c);
    c->gradient_count = model_gather(&s->model, &k, c->in, c->gradients, c->sums);
    uint64_t bound = world_cut_bound(s, c->key_count);
    c->insert = random_one_in(&w->rng, 4);
    c->sees = c->insert && !draw_has_repeated(c);
    if (c->sets || c->insert || c->weighted || c->divided || c->excludes || c->dtype != MR_F32 ||
        c->learning_rate >= 0 || c->step > 0) {
        struct ps_table_push p = push_of(c);
        uint64_t budget_bytes = UINT64_MAX;
        p.at_once = true;
        WORLD_CHECK(w, ps_table_push_step(s->table, &p, &budget_bytes), "a push at once is not over");
    } else if (c->bags)
        table_push_bags(s->table, c->keys, c->offsets, c->bag_count, c->in);
    else
        table_push(s->table, c->keys, c->key_count, c->in);
    WORLD_CHECK(w, s->emitted <= bound, "it emitted more rows than it may");
    if (c->sees && !c->sets && s->model.feature.admission == MR_ADMIT_OBSERVATIONS)
        see(s, &k);
    for (uint32_t i = 0; i < c->gradient_count; i++)
        model_apply(s, &c->gradients[i], c);
    s->expected.keys_pushed += c->key_count;
}

/* When a row was used last, by the clock of the node that saved it, and when that was by this table's: as
 * long before. */
static uint32_t draw_seen(struct world *w, struct subject *s, uint32_t *seen_here)
{
    enum mr_eviction eviction = (enum mr_eviction)s->model.feature.eviction;
    bool is_told = eviction == MR_EVICT_AGE || eviction == MR_EVICT_NORM;
    if (!is_told) {
        *seen_here = s->table->use.now - (model_evicts_by_limit(&s->model) ? 0 : random_below(&w->rng, 10));
        return *seen_here;
    }
    uint32_t clock_s = random_below(&w->rng, 2000000), age_s = random_below(&w->rng, 10);
    uint32_t seen = clock_s - age_s;
    if (random_one_in(&w->rng, 8)) { /* stamped by the wall clock, as before version 4: as old as the node */
        seen = 100000000 + random_below(&w->rng, 100000000);
        age_s = clock_s = random_one_in(&w->rng, 2) ? 0 : clock_s;
    }
    ps_table_load_from(s->table, clock_s, s->now_s);
    *seen_here = s->now_s - age_s;
    return seen;
}

/* Values and state from 0 to 2, as a stored row; the second it was used by this table's clock into
 * `seen_here`. */
static void draw_stored(struct world *w, struct subject *s, uint64_t key, uint8_t *stored,
                        uint32_t *seen_here)
{
    struct model *m = &s->model;
    struct model_row *row = calloc(1, sizeof(*row) + (m->dim + m->state_floats) * sizeof(float));
    row->key = key;
    row->updates = random_below(&w->rng, 1000);
    row->seen = draw_seen(w, s, seen_here);
    for (uint32_t i = 0; i < m->dim + m->state_floats; i++)
        row->floats[i] = 1.0f + random_float(&w->rng);
    model_store(m, row, stored);
    free(row);
}

void world_load(struct world *w, struct subject *s)
{
    uint8_t stored[WORLD_STORED_BYTES];
    uint64_t key = draw_key(w), bound = world_cut_bound(s, 1);
    uint32_t seen_here;
    w->doing = "load";
    draw_stored(w, s, key, stored, &seen_here);
    enum mr_status status = ps_table_load(s->table, key, stored);
    s->rows_allowed++;
    s->loaded = true;
    WORLD_CHECK(w, s->emitted <= bound, "it emitted more rows than it may");
    s->loading = true;
    struct model_row *row = row_of(s, key, true);
    s->loading = false;
    WORLD_CHECK(w, (status == MR_OK) == (row != NULL) && (row != NULL || status == MR_OUT_OF_MEMORY),
                "status %d", (int)status);
    if (row != NULL) {
        world_use(s, row);
        model_restore(&s->model, row, stored);
        row->seen = seen_here;
    }
    world_chain_load(s, key);
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
