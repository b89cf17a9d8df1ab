/* The key hash runs once per key of every call: have it inline, without a call into the library. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "dataplane/wire/format/ranges.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

/* X(field, offset, bytes): the layout, field by field */
#define FEATURE_FIELD_LIST(X)                                                                                \
    X(name, 0, 64)                                                                                           \
    X(kind, 64, 4)                                                                                           \
    X(dtype, 68, 4)                                                                                          \
    X(rank, 72, 4)                                                                                           \
    X(dims, 76, 16)                                                                                          \
    X(initializer, 92, 4)                                                                                    \
    X(init_a, 96, 4)                                                                                         \
    X(init_b, 100, 4)                                                                                        \
    X(seed, 104, 8)                                                                                          \
    X(optimizer, 112, 4)                                                                                     \
    X(learning_rate, 116, 4)                                                                                 \
    X(optimizer_args, 120, 24)                                                                               \
    X(weight_decay, 144, 4)                                                                                  \
    X(clip_value, 148, 4)                                                                                    \
    X(clip_norm, 152, 4)                                                                                     \
    X(pooling, 156, 4)                                                                                       \
    X(admission, 160, 4)                                                                                     \
    X(admission_arg, 164, 4)                                                                                 \
    X(eviction, 168, 4)                                                                                      \
    X(eviction_arg, 172, 4)                                                                                  \
    X(capacity_rows, 176, 8)                                                                                 \
    X(memory_bytes, 184, 8)                                                                                  \
    X(filter_bytes, 192, 8)                                                                                  \
    X(schedule, 200, 4)                                                                                      \
    X(schedule_warmup_steps, 204, 4)                                                                         \
    X(schedule_steps, 208, 4)                                                                                \
    X(learning_rate_end, 212, 4)                                                                             \
    X(altered, 216, 4)                                                                                       \
    X(range_values, 220, 4)                                                                                  \
    X(reserved, 224, 16)

/* X(field): those that can be altered, each with the next bit of `altered`; append only */
#define ALTERABLE_LIST(X)                                                                                    \
    X(learning_rate)                                                                                         \
    X(optimizer_args)                                                                                        \
    X(weight_decay)                                                                                          \
    X(clip_value)                                                                                            \
    X(clip_norm)                                                                                             \
    X(schedule)                                                                                              \
    X(schedule_warmup_steps)                                                                                 \
    X(schedule_steps)                                                                                        \
    X(learning_rate_end)                                                                                     \
    X(admission)                                                                                             \
    X(admission_arg)                                                                                         \
    X(eviction)                                                                                              \
    X(eviction_arg)                                                                                          \
    X(capacity_rows)                                                                                         \
    X(memory_bytes)

#define FIELD_ASSERT(field, offset, bytes)                                                                   \
    static_assert(offsetof(struct mr_feature, field) == (offset), #field " offset");                         \
    static_assert(sizeof(((struct mr_feature *)0)->field) == (bytes), #field " size");
FEATURE_FIELD_LIST(FIELD_ASSERT)
#undef FIELD_ASSERT
static_assert(sizeof(struct mr_feature) == 240, "feature size");

/* ---- defaults ---- */

/* SGD has Adagrad's: it does not read them, so that naming that is all it takes. */
static const float default_args[][MR_OPTIMIZER_ARGS] = {
    [MR_OPT_SGD] = {0, 1e-10f},
    [MR_OPT_MOMENTUM] = {0.9f},
    [MR_OPT_ADAGRAD] = {0, 1e-10f},
    [MR_OPT_ROWWISE_ADAGRAD] = {0, 1e-10f},
    [MR_OPT_ADAM] = {0.9f, 0.999f, 1e-8f},
    [MR_OPT_ADAMW] = {0.9f, 0.999f, 1e-8f},
    [MR_OPT_FTRL] = {0, 1},
    [MR_OPT_GROUP_FTRL] = {0, 1},
    [MR_OPT_ASSIGN] = {0},
};

void mr_feature_set_optimizer(struct mr_feature *f, enum mr_optimizer optimizer)
{
    f->optimizer = (uint32_t)optimizer;
    if (optimizer >= MR_OPT_SGD && optimizer <= MR_OPT_LAST)
        memcpy(f->optimizer_args, default_args[optimizer], sizeof(f->optimizer_args));
}

/* A name that is too long fills the field without a NUL, which mr_feature_check() refuses. */
static struct mr_feature feature_default(const char *name, enum mr_feature_kind kind, uint32_t rank)
{
    struct mr_feature f = {
        .kind = (uint32_t)kind,
        .dtype = MR_F32,
        .rank = rank,
        .initializer = MR_INIT_CONSTANT,
        .learning_rate = 0.01f,
        .pooling = MR_POOL_SUM,
    };
    mr_feature_set_optimizer(&f, MR_OPT_SGD);
    if (name != NULL)
        memcpy(f.name, name, strnlen(name, MR_NAME_BYTES));
    return f;
}

struct mr_feature mr_feature_table(const char *name, uint32_t dim)
{
    struct mr_feature f = feature_default(name, MR_TABLE, 1);
    f.dims[0] = dim;
    return f;
}

struct mr_feature mr_feature_variable(const char *name, uint32_t rank, const uint32_t *dims)
{
    struct mr_feature f = feature_default(name, MR_VARIABLE, rank);
    for (uint32_t i = 0; i < rank && i < MR_RANK_MAX; i++)
        f.dims[i] = dims[i];
    return f;
}

/* ---- fields that can be altered ---- */

static const struct alterable {
    const char *name;
    size_t offset, bytes;
} alterable[] = {
#define ALTERABLE_ROW(field)                                                                                 \
    {#field, offsetof(struct mr_feature, field), sizeof(((struct mr_feature *)0)->field)},
    ALTERABLE_LIST(ALTERABLE_ROW)
#undef ALTERABLE_ROW
};

#define ALTERABLE_COUNT (sizeof(alterable) / sizeof(*alterable))
static_assert(ALTERABLE_COUNT < 32, "a bit for each");

static void copy_field(struct mr_feature *to, const struct mr_feature *from, const struct alterable *field)
{
    memcpy((uint8_t *)to + field->offset, (const uint8_t *)from + field->offset, field->bytes);
}

static bool is_same_field(const struct mr_feature *a, const struct mr_feature *b,
                          const struct alterable *field)
{
    return memcmp((const uint8_t *)a + field->offset, (const uint8_t *)b + field->offset, field->bytes) == 0;
}

/* The first field that differs and cannot be altered. */
static const char *fixed_diff(const struct mr_feature *a, const struct mr_feature *b)
{
    struct mr_feature like_a = *b;
    for (size_t i = 0; i < ALTERABLE_COUNT; i++)
        copy_field(&like_a, a, &alterable[i]);
    like_a.altered = a->altered;
    return mr_feature_diff(a, &like_a);
}

const char *mr_feature_alter(struct mr_feature *f, const struct mr_feature *before,
                             const struct mr_feature *after)
{
    const char *fixed = fixed_diff(before, after);
    for (size_t i = 0; fixed == NULL && i < ALTERABLE_COUNT; i++) {
        if (is_same_field(before, after, &alterable[i]))
            continue;
        copy_field(f, after, &alterable[i]);
        f->altered |= 1u << i;
    }
    return fixed;
}

const char *mr_feature_conflict(const struct mr_feature *mine, const struct mr_feature *other)
{
    struct mr_feature like_mine = *other;
    for (size_t i = 0; i < ALTERABLE_COUNT; i++)
        if ((other->altered >> i & 1) != 0)
            copy_field(&like_mine, mine, &alterable[i]);
    like_mine.altered = mine->altered;
    like_mine.range_values = mine->range_values; /* where it is stored is the node's business */
    return mr_feature_diff(mine, &like_mine);
}

/* ---- checks ---- */

static bool name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("_./:-", c) != NULL);
}

static bool all_zero(const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    for (size_t i = 0; i < n; i++)
        if (p[i] != 0)
            return false;
    return true;
}

static bool name_ok(const char name[MR_NAME_BYTES])
{
    size_t n = 0;
    while (n < MR_NAME_BYTES && name_char(name[n]))
        n++;
    return n >= 1 && n < MR_NAME_BYTES && all_zero(name + n, MR_NAME_BYTES - n);
}

static bool not_negative(float x)
{
    return isfinite(x) && x >= 0.0f;
}

static const char *check_shape(const struct mr_feature *f)
{
    bool table = f->kind == MR_TABLE;
    if (table ? f->rank != 1 : f->rank > MR_RANK_MAX)
        return "rank";
    if (table && (f->dims[0] < 1 || f->dims[0] > MR_DIM_MAX))
        return "dim";
    uint64_t elements = 1;
    for (uint32_t i = 0; i < MR_RANK_MAX; i++) {
        if (i >= f->rank ? f->dims[i] != 0 : f->dims[i] == 0)
            return "dims";
        if (i < f->rank && __builtin_mul_overflow(elements, (uint64_t)f->dims[i], &elements))
            return "dims";
    }
    return elements > MR_VARIABLE_ELEMENTS_MAX ? "dims" : NULL;
}

/* Whether every first value is finite; no normal one lies beyond 7 standard deviations. */
static bool initial_values_finite(const struct mr_feature *f)
{
    if (f->initializer == MR_INIT_UNIFORM)
        return isfinite(f->init_b - f->init_a);
    return f->initializer < MR_INIT_NORMAL || isfinite(fabsf(f->init_a) + 7 * f->init_b);
}

static const char *check_initializer(const struct mr_feature *f)
{
    if (f->initializer < MR_INIT_CONSTANT || f->initializer > MR_INIT_TRUNCATED_NORMAL)
        return "initializer";
    if (!isfinite(f->init_a))
        return "init_a";
    if (!isfinite(f->init_b))
        return "init_b";
    if (f->initializer == MR_INIT_UNIFORM && f->init_b < f->init_a)
        return "init_b";
    if (f->initializer >= MR_INIT_NORMAL && f->init_b < 0.0f)
        return "init_b";
    return initial_values_finite(f) ? NULL : "init_b";
}

/* [0, 1) */
static bool is_share(float x)
{
    return x >= 0.0f && x < 1.0f;
}

/* How many arguments an optimizer has. */
static uint32_t arg_count(uint32_t optimizer)
{
    static const uint32_t counts[] = {
        [MR_OPT_SGD] = MR_OPTIMIZER_ARG_DENSE, /* whatever they are */
        [MR_OPT_MOMENTUM] = 3,
        [MR_OPT_ADAGRAD] = 2,
        [MR_OPT_ROWWISE_ADAGRAD] = 2,
        [MR_OPT_ADAM] = 4,
        [MR_OPT_ADAMW] = 4,
        [MR_OPT_FTRL] = 4,
        [MR_OPT_GROUP_FTRL] = 5,
        [MR_OPT_ASSIGN] = 0,
    };
    return counts[optimizer];
}

/* The arguments that an optimizer has, all finite, are in their ranges; whoever divides does not divide by
 * 0. */
static bool args_ok(uint32_t optimizer, const float *args)
{
    switch (optimizer) {
    case MR_OPT_SGD:
    case MR_OPT_ASSIGN:
        return true;
    case MR_OPT_MOMENTUM: /* as torch: Nesterov needs momentum and no dampening */
        if (args[2] != 0.0f && (args[2] != 1.0f || args[0] <= 0.0f || args[1] != 0.0f))
            return false;
        return is_share(args[0]) && is_share(args[1]);
    case MR_OPT_ADAM:
    case MR_OPT_ADAMW:
        return is_share(args[0]) && is_share(args[1]) && args[2] > 0.0f &&
               (args[3] == 0.0f || args[3] == 1.0f);
    default: /* both Adagrads, both FTRLs */
        for (uint32_t i = 0; i < arg_count(optimizer); i++)
            if (args[i] < 0.0f)
                return false;
        return args[0] > 0.0f || args[1] > 0.0f;
    }
}

static const char *check_optimizer(const struct mr_feature *f)
{
    if (f->optimizer < MR_OPT_SGD || f->optimizer > MR_OPT_LAST)
        return "optimizer";
    if (!not_negative(f->learning_rate))
        return "learning_rate";
    for (uint32_t i = 0; i < MR_OPTIMIZER_ARGS; i++) {
        bool unused =
            i >= arg_count(f->optimizer) && !(i == MR_OPTIMIZER_ARG_DENSE && mr_feature_is_dense(f));
        if (!isfinite(f->optimizer_args[i]) || (unused && f->optimizer_args[i] != 0.0f))
            return "optimizer_args";
    }
    if (!args_ok(f->optimizer, f->optimizer_args))
        return "optimizer_args";
    bool sets = f->optimizer == MR_OPT_ASSIGN; /* values, as they are */
    if (!not_negative(f->weight_decay) || (sets && f->weight_decay > 0.0f))
        return "weight_decay";
    if (!not_negative(f->clip_value) || (sets && f->clip_value > 0.0f))
        return "clip_value";
    return not_negative(f->clip_norm) && !(sets && f->clip_norm > 0.0f) ? NULL : "clip_norm";
}

static const char *check_schedule(const struct mr_feature *f)
{
    bool sets = f->optimizer == MR_OPT_ASSIGN; /* at no rate */
    if (f->schedule > MR_SCHEDULE_EXPONENTIAL || (sets && f->schedule != MR_SCHEDULE_CONSTANT))
        return "schedule";
    if (sets && f->schedule_warmup_steps != 0)
        return "schedule_warmup_steps";
    bool constant = f->schedule == MR_SCHEDULE_CONSTANT;
    if (constant ? f->schedule_steps != 0 : f->schedule_steps == 0)
        return "schedule_steps";
    if (!not_negative(f->learning_rate_end) || (constant && f->learning_rate_end > 0.0f))
        return "learning_rate_end";
    /* No factor leads from 0 to anywhere, or to 0. */
    bool has_factor = f->schedule == MR_SCHEDULE_EXPONENTIAL;
    if (has_factor && f->learning_rate <= 0.0f)
        return "learning_rate";
    return has_factor && f->learning_rate_end <= 0.0f ? "learning_rate_end" : NULL;
}

/* What only tables have: how bags are reduced, which rows come and which go. */
static const char *check_rows(const struct mr_feature *f)
{
    bool variable = f->kind == MR_VARIABLE;
    if (f->pooling > MR_POOL_NONE || (variable && f->pooling != 0))
        return "pooling";
    if (f->admission > MR_ADMIT_OBSERVATIONS || (variable && f->admission != MR_ADMIT_ALWAYS))
        return "admission";
    if (!not_negative(f->admission_arg))
        return "admission_arg";
    if (f->admission == MR_ADMIT_PROBABILITY && (f->admission_arg <= 0.0f || f->admission_arg > 1.0f))
        return "admission_arg";
    if (f->admission == MR_ADMIT_OBSERVATIONS &&
        (f->admission_arg < 1.0f || f->admission_arg > MR_OBSERVATIONS_MAX ||
         f->admission_arg != truncf(f->admission_arg)))
        return "admission_arg";
    if (f->eviction > MR_EVICT_STEPS || (variable && f->eviction != MR_EVICT_NEVER))
        return "eviction";
    if (!not_negative(f->eviction_arg))
        return "eviction_arg";
    bool needs_arg =
        f->eviction == MR_EVICT_AGE || f->eviction == MR_EVICT_NORM || f->eviction == MR_EVICT_STEPS;
    if (needs_arg && f->eviction_arg <= 0.0f)
        return "eviction_arg";
    if (variable && f->capacity_rows != 0)
        return "capacity_rows";
    if (variable ? f->memory_bytes != 0 : f->memory_bytes != 0 && f->memory_bytes < MR_MEMORY_BYTES_MIN)
        return "memory_bytes";
    if (f->filter_bytes > (f->admission == MR_ADMIT_OBSERVATIONS ? MR_FILTER_BYTES_MAX : 0))
        return "filter_bytes";
    return NULL;
}

/* Whether an update of each element is a function of that element, its gradient and its state alone. */
static bool is_elementwise(const struct mr_feature *f)
{
    return f->optimizer != MR_OPT_ROWWISE_ADAGRAD && f->optimizer != MR_OPT_GROUP_FTRL && f->clip_norm <= 0;
}

static const char *check_ranges(const struct mr_feature *f)
{
    const bool ok =
        f->range_values == 0 || (f->kind == MR_VARIABLE && mr_variable_ranges(f) <= MR_RANGES_MAX &&
                                 (is_elementwise(f) || mr_variable_ranges(f) == 1));
    return ok ? NULL : "range_values";
}

void mr_feature_spread(struct mr_feature *f)
{
    if (f->kind != MR_VARIABLE || f->range_values != 0 || !is_elementwise(f) ||
        mr_variable_elements(f) <= MR_RANGE_VALUES)
        return;
    f->range_values = MR_RANGE_VALUES;
    while (mr_variable_ranges(f) > MR_RANGES_MAX)
        f->range_values *= 2;
}

const char *mr_feature_check(const struct mr_feature *f)
{
    static const char *(*const checks[])(const struct mr_feature *) = {
        check_shape, check_initializer, check_optimizer, check_schedule, check_rows, check_ranges};
    if (!name_ok(f->name))
        return "name";
    if (f->kind != MR_TABLE && f->kind != MR_VARIABLE)
        return "kind";
    if (f->dtype != MR_F32 && f->dtype != MR_F16 && f->dtype != MR_BF16)
        return "dtype";
    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
        const char *field = checks[i](f);
        if (field != NULL)
            return field;
    }
    if (f->altered >= 1u << ALTERABLE_COUNT)
        return "altered";
    return all_zero(f->reserved, sizeof(f->reserved)) ? NULL : "reserved";
}

/* Bit for bit, so that two nodes always agree. */
const char *mr_feature_diff(const struct mr_feature *a, const struct mr_feature *b)
{
    if (a->kind == MR_TABLE && b->kind == MR_TABLE && a->dims[0] != b->dims[0] &&
        memcmp(a->name, b->name, sizeof(a->name)) == 0 && a->dtype == b->dtype && a->rank == b->rank)
        return "dim";
#define FIELD_DIFF(field, offset, bytes)                                                                     \
    if (memcmp((const uint8_t *)a + (offset), (const uint8_t *)b + (offset), (bytes)) != 0)                  \
        return #field;
    FEATURE_FIELD_LIST(FIELD_DIFF)
#undef FIELD_DIFF
    return NULL;
}

/* ---- where keys live ---- */

uint64_t mr_key_hash(uint64_t key, uint64_t seed)
{
    return XXH3_64bits_withSeed(&key, sizeof(key), seed);
}

uint32_t mr_variable_partition(const char *name)
{
    return mr_range_partition(name, 0);
}

uint32_t mr_range_partition(const char *name, uint32_t range)
{
    return mr_partition_of(XXH3_64bits_withSeed(name, strnlen(name, MR_NAME_BYTES), range));
}
