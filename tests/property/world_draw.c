#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include "dataplane/wire/format/convert.h"
#include "ps/row/row_use.h"
#include "world.h"

static uint32_t draw_dim(struct world *w)
{
    switch (random_below(&w->rng, 16)) {
    case 0:
        return 1 + random_below(&w->rng, MR_DIM_MAX);
    case 1:
    case 2:
        return 41 + random_below(&w->rng, 160);
    case 3:
    case 4:
    case 5:
    case 6:
        return 8 * (1 + random_below(&w->rng, 4));
    default:
        return 1 + random_below(&w->rng, 40);
    }
}

static void draw_initializer(struct world *w, struct mr_feature *f)
{
    f->initializer = MR_INIT_CONSTANT + random_below(&w->rng, 4);
    f->init_a = 0.1f * random_float(&w->rng);
    f->init_b = f->init_a + 0.2f;
    if (f->initializer == MR_INIT_NORMAL || f->initializer == MR_INIT_TRUNCATED_NORMAL)
        f->init_b = 0.1f;
}

static void draw_optimizer_args(struct world *w, struct mr_feature *f)
{
    float *args = f->optimizer_args;
    switch (f->optimizer) {
    case MR_OPT_MOMENTUM:
        args[1] = random_one_in(&w->rng, 3) ? 0.5f : 0.0f;
        args[2] = args[1] > 0 ? 0.0f : (float)random_below(&w->rng, 2);
        break;
    case MR_OPT_ADAM:
    case MR_OPT_ADAMW:
        args[3] = (float)random_below(&w->rng, 2);
        break;
    case MR_OPT_ADAGRAD:
    case MR_OPT_ROWWISE_ADAGRAD:
        args[0] = random_one_in(&w->rng, 4) ? 0.0f : fabsf(random_float(&w->rng));
        break;
    case MR_OPT_GROUP_FTRL:
        args[4] = random_one_in(&w->rng, 2) ? 0.1f : 0.0f;
        args[2] = args[3] = 0.05f;
        break;
    case MR_OPT_FTRL:
        args[0] = fabsf(random_float(&w->rng));
        args[2] = random_one_in(&w->rng, 2) ? 0.05f : 0.0f;
        break;
    default:
        break;
    }
}

static void draw_schedule(struct world *w, struct mr_feature *f)
{
    if (random_one_in(&w->rng, 4))
        f->schedule_warmup_steps = 1 + random_below(&w->rng, 20);
    if (random_one_in(&w->rng, 2))
        return;
    f->schedule = random_below(&w->rng, MR_SCHEDULE_EXPONENTIAL + 1);
    if (f->schedule != MR_SCHEDULE_CONSTANT) {
        f->schedule_steps = 1 + random_below(&w->rng, 100);
        f->learning_rate_end = 0.01f;
    }
}

static void draw_optimizer(struct world *w, struct mr_feature *f)
{
    mr_feature_set_optimizer(f, MR_OPT_SGD + random_below(&w->rng, MR_OPT_LAST));
    f->learning_rate = 0.02f + fabsf(random_float(&w->rng));
    if (f->optimizer == MR_OPT_ASSIGN)
        return; /* has none of the following */
    draw_optimizer_args(w, f);
    draw_schedule(w, f);
    if (random_one_in(&w->rng, 4))
        f->weight_decay = 0.01f;
    if (random_one_in(&w->rng, 4))
        f->clip_value = 0.5f;
    if (random_one_in(&w->rng, 4))
        f->clip_norm = 0.7f;
}

static void draw_limits(struct world *w, struct mr_feature *f)
{
    if (random_one_in(&w->rng, 4))
        f->admission = MR_ADMIT_PROBABILITY + random_below(&w->rng, 2);
    if (f->admission == MR_ADMIT_PROBABILITY)
        f->admission_arg = 0.05f + 0.45f * (1.0f + random_float(&w->rng));
    if (f->admission == MR_ADMIT_OBSERVATIONS)
        f->admission_arg = (float)(1 + random_below(&w->rng, 3));
    if (random_one_in(&w->rng, 8))
        f->memory_bytes = MR_MEMORY_BYTES_MIN + random_below(&w->rng, 1 << 20);
    if (random_one_in(&w->rng, 2))
        return;
    f->eviction = MR_EVICT_AGE + random_below(&w->rng, MR_EVICT_STEPS);
    f->eviction_arg = f->eviction == MR_EVICT_NORM ? fabsf(random_float(&w->rng)) + 0.01f
                                                   : (float)(1 + random_below(&w->rng, 40));
    if ((f->eviction == MR_EVICT_LRU || f->eviction == MR_EVICT_LFU) && f->capacity_rows == 0)
        f->capacity_rows = 1 + random_below(&w->rng, 500);
}

struct mr_feature draw_feature(struct world *w)
{
    struct mr_feature f = mr_feature_table("table", draw_dim(w));
    draw_initializer(w, &f);
    draw_optimizer(w, &f);
    static const enum mr_dtype dtypes[] = {MR_F16, MR_BF16};
    f.dtype = random_one_in(&w->rng, 3) ? dtypes[random_below(&w->rng, 2)] : MR_F32;
    f.seed = random_next(&w->rng);
    f.pooling = random_below(&w->rng, 3); /* sum, mean, sqrtn */
    if (random_one_in(&w->rng, 6))
        f.capacity_rows = 1 + random_below(&w->rng, 500);
    draw_limits(w, &f);
    assert(model_knows(&f));
    return f;
}

/* Keys: any, those of a few partitions of the first table (which then grow again and again), or small
 * numbers. */
void draw_keys(struct world *w)
{
    static const uint64_t extremes[] = {0, UINT64_MAX, 1, UINT64_MAX - 1, UINT64_C(1) << 63};
    static const uint32_t counts[] = {3, 20, 100, 300, 600, WORLD_KEYS_MAX};
    uint32_t kind = random_below(&w->rng, 4);
    w->key_count = counts[random_below(&w->rng, kind == 0 ? 4 : 6)];
    w->keys = calloc(w->key_count, sizeof(*w->keys));
    assert(w->keys != NULL);
    uint64_t seed = w->subjects[0].model.feature.seed, candidate = random_next(&w->rng);
    /* Often the first ones: there a cut's cursor stays for many small steps. */
    uint32_t partition = random_one_in(&w->rng, 2) ? 0 : random_below(&w->rng, MR_PARTITION_COUNT);
    for (uint32_t i = 0; i < w->key_count; i++) {
        if (i < sizeof(extremes) / sizeof(extremes[0]) && random_one_in(&w->rng, 2))
            w->keys[i] = extremes[i];
        else if (kind == 0) {
            do
                candidate++;
            while ((mr_partition_of(mr_key_hash(candidate, seed)) - partition) % MR_PARTITION_COUNT > 3);
            w->keys[i] = candidate;
        } else
            w->keys[i] = kind == 1 ? i : random_next(&w->rng);
    }
}

/* Some keys are used more than others. */
uint64_t draw_key(struct world *w)
{
    uint32_t range = random_one_in(&w->rng, 2) ? w->key_count : w->key_count / 8 + 1;
    return w->keys[random_below(&w->rng, range)];
}

static uint32_t draw_count(struct world *w, uint32_t most)
{
    static const uint32_t mosts[] = {1, 4, 4, 20, 20, 20, 40, 40, 100, WORLD_CALL_KEYS};
    uint32_t bound = mosts[random_below(&w->rng, random_one_in(&w->rng, 8) ? 10 : 8)];
    bound = bound < most ? bound : most;
    return 1 + random_below(&w->rng, bound);
}

static void draw_bags(struct world *w, struct call *c, uint32_t bags_max)
{
    c->bag_count = 1 + random_below(&w->rng, c->key_count < bags_max ? c->key_count + 1 : bags_max);
    c->bag_count = c->bag_count < bags_max ? c->bag_count : bags_max;
    for (uint32_t b = 1; b < c->bag_count; b++)
        c->offsets[b] = random_below(&w->rng, c->key_count + 1);
    for (uint32_t i = 2; i < c->bag_count; i++) /* in order: insertion sort */
        for (uint32_t j = i; j > 1 && c->offsets[j] < c->offsets[j - 1]; j--) {
            uint32_t lower = c->offsets[j];
            c->offsets[j] = c->offsets[j - 1];
            c->offsets[j - 1] = lower;
        }
    c->offsets[0] = 0;
    c->offsets[c->bag_count] = c->key_count;
}

/* Weights of keys and, now and then, divisors of bags; some are 0. */
static void draw_weights(struct world *w, const struct subject *s, struct call *c)
{
    c->weighted = random_one_in(&w->rng, 3);
    c->divided = s->model.feature.pooling != MR_POOL_SUM && random_one_in(&w->rng, 4);
    for (uint32_t i = 0; c->weighted && i < c->key_count; i++)
        c->weights[i] = random_one_in(&w->rng, 20) ? 0.0f : 2 * random_float(&w->rng);
    for (uint32_t i = 0; c->divided && i < c->bag_count; i++)
        c->divisors[i] = random_one_in(&w->rng, 20) ? 0.0f : 2 * random_float(&w->rng);
}

bool draw_has_repeated(const struct call *c)
{
    for (uint32_t i = 0; i < c->key_count; i++)
        for (uint32_t j = 0; j < i; j++)
            if (c->keys[i] == c->keys[j])
                return true;
    return false;
}

void draw_call(struct world *w, const struct subject *s, struct call *c)
{
    uint32_t most = WORLD_CALL_FLOATS / s->model.dim;
    most = most < WORLD_CALL_KEYS ? most : WORLD_CALL_KEYS;
    if (model_evicts_by_limit(&s->model)) /* what a call uses stays until it is over; see world_upkeep.c */
        most = most < PS_USES_HELD ? most : PS_USES_HELD;
    c->key_count = draw_count(w, most);
    for (uint32_t i = 0; i < c->key_count; i++)
        c->keys[i] = draw_key(w);
    if (random_one_in(&w->rng, 8)) /* all the same */
        for (uint32_t i = 1; i < c->key_count; i++)
            c->keys[i] = c->keys[0];
    c->insert = random_one_in(&w->rng, 2);
    if (draw_has_repeated(c) &&
        (model_makes_room(&s->model) || s->model.feature.admission == MR_ADMIT_OBSERVATIONS))
        c->insert = false; /* which of them made the row would not be told */
    c->bags = random_one_in(&w->rng, 2);
    c->bag_count = c->key_count;
    c->weighted = c->divided = false;
    if (c->bags) {
        draw_bags(w, c, most);
        draw_weights(w, s, c);
    }
    static const enum mr_dtype dtypes[] = {MR_F16, MR_BF16, MR_I8};
    c->dtype = random_one_in(&w->rng, 3) ? dtypes[random_below(&w->rng, 3)] : MR_F32;
    c->learning_rate = -1;
    if (random_one_in(&w->rng, 4))
        c->learning_rate = random_one_in(&w->rng, 4) ? 0 : 0.01f + fabsf(random_float(&w->rng));
    c->step = random_one_in(&w->rng, 2) ? random_below(&w->rng, 150) : 0;
    c->excludes = random_one_in(&w->rng, 8);
    for (uint32_t i = 0; c->excludes && i < MR_PARTITION_COUNT / 64; i++)
        c->excluded[i] = random_next(&w->rng);
}

void draw_gradients(struct world *w, const struct subject *s, struct call *c, bool broken)
{
    static const float breaks[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 1e-42f};
    size_t count = (size_t)(c->bags ? c->bag_count : c->key_count) * s->model.dim;
    float size = random_one_in(&w->rng, 4) ? 1e-3f : 1.0f;
    for (size_t i = 0; i < count; i++)
        c->in[i] = size * random_float(&w->rng);
    for (uint32_t n = broken && random_one_in(&w->rng, 4) ? 1 + random_below(&w->rng, 4) : 0; n > 0; n--)
        c->in[random_below(&w->rng, (uint32_t)count)] = breaks[random_below(&w->rng, 6)];
    if (c->dtype == MR_F32)
        return;
    uint32_t rows = (uint32_t)(count / s->model.dim);
    mr_convert_from_f32(c->dtype, c->travels, c->scales, c->in, rows, s->model.dim);
    mr_convert_to_f32(c->dtype, c->in, c->travels, c->scales, rows, s->model.dim);
}

void draw_sets(const struct world *w, struct call *c)
{
    uint64_t rng = w->seed * 0xD1B54A32D192ED03u + w->operation;
    c->sets =
        !c->bags && !c->weighted && c->dtype == MR_F32 && c->learning_rate < 0 && random_one_in(&rng, 4);
}

uint64_t draw_budget(struct world *w)
{
    return random_one_in(&w->rng, 8) ? UINT64_MAX : 1 + random_below(&w->rng, 20000);
}
