/* Features in words: the names of what their fields may be, and what is wrong with one. */
#include "dataplane/wire/format/mr_feature.h"

#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define FLOAT_DIGITS 7
#define VALUE_BYTES  128u /* room for any field's value but the name */

/* ---- names ---- */

/* NULL entries have no name either. */
static const char *feature_text_pick(const char *const *names, size_t count, uint32_t value)
{
    return value < count && names[value] != NULL ? names[value] : "?";
}

const char *mr_optimizer_name(uint32_t optimizer)
{
    static const char *const names[] = {
        [MR_OPT_SGD] = "sgd",         [MR_OPT_MOMENTUM] = "momentum",
        [MR_OPT_ADAGRAD] = "adagrad", [MR_OPT_ROWWISE_ADAGRAD] = "rowwise_adagrad",
        [MR_OPT_ADAM] = "adam",       [MR_OPT_ADAMW] = "adamw",
        [MR_OPT_FTRL] = "ftrl",       [MR_OPT_GROUP_FTRL] = "group_ftrl",
        [MR_OPT_ASSIGN] = "assign",
    };
    return feature_text_pick(names, sizeof(names) / sizeof(*names), optimizer);
}

const char *mr_initializer_name(uint32_t initializer)
{
    static const char *const names[] = {
        [MR_INIT_CONSTANT] = "constant",
        [MR_INIT_UNIFORM] = "uniform",
        [MR_INIT_NORMAL] = "normal",
        [MR_INIT_TRUNCATED_NORMAL] = "truncated_normal",
    };
    return feature_text_pick(names, sizeof(names) / sizeof(*names), initializer);
}

const char *mr_schedule_name(uint32_t schedule)
{
    static const char *const names[] = {"constant", "linear", "cosine", "exponential"};
    return feature_text_pick(names, sizeof(names) / sizeof(*names), schedule);
}

const char *mr_pooling_name(uint32_t pooling)
{
    static const char *const names[] = {"sum", "mean", "sqrtn", "none"};
    return feature_text_pick(names, sizeof(names) / sizeof(*names), pooling);
}

const char *mr_admission_name(uint32_t admission)
{
    static const char *const names[] = {"always", "probability", "observations"};
    return feature_text_pick(names, sizeof(names) / sizeof(*names), admission);
}

const char *mr_eviction_name(uint32_t eviction)
{
    static const char *const names[] = {"never", "age", "lru", "lfu", "norm", "steps"};
    return feature_text_pick(names, sizeof(names) / sizeof(*names), eviction);
}

/* ---- values ---- */

static const char *kind_name(uint32_t kind)
{
    return kind == MR_TABLE ? "table" : kind == MR_VARIABLE ? "variable" : "?";
}

static const char *dtype_name(uint32_t dtype)
{
    return mr_dtype_name((enum mr_dtype)dtype);
}

/* A number, with its name where it has one: "adagrad", "99" */
static void put_named(const char *(*name_of)(uint32_t), uint32_t value, char *text, size_t bytes)
{
    const char *name = name_of(value);
    if (strcmp(name, "?") == 0)
        snprintf(text, bytes, "%u", value);
    else
        snprintf(text, bytes, "%s", name);
}

static void put_dims(const struct mr_feature *f, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "[");
    for (uint32_t i = 0; i < f->rank && i < MR_RANK_MAX && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%u", i > 0 ? "," : "", f->dims[i]);
    if (used < bytes)
        snprintf(text + used, bytes - used, "]");
}

static void put_args(const struct mr_feature *f, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "[");
    for (uint32_t i = 0; i < MR_OPTIMIZER_ARGS && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%.*g", i > 0 ? "," : "", FLOAT_DIGITS,
                                 (double)f->optimizer_args[i]);
    if (used < bytes)
        snprintf(text + used, bytes - used, "]");
}

enum value_kind { VALUE_FLOAT, VALUE_U32, VALUE_U64, VALUE_NAMED };

#define FIELD(name, kind)                                                                                    \
    {                                                                                                        \
#name, offsetof(struct mr_feature, name), kind, NULL                                                 \
    }
#define NAMED_FIELD(name, name_of)                                                                           \
    {                                                                                                        \
#name, offsetof(struct mr_feature, name), VALUE_NAMED, name_of                                       \
    }

static const struct field {
    const char *name;
    size_t offset;
    enum value_kind kind;
    const char *(*name_of)(uint32_t);
} fields[] = {
    NAMED_FIELD(kind, kind_name),
    NAMED_FIELD(dtype, dtype_name),
    NAMED_FIELD(initializer, mr_initializer_name),
    NAMED_FIELD(optimizer, mr_optimizer_name),
    NAMED_FIELD(pooling, mr_pooling_name),
    NAMED_FIELD(admission, mr_admission_name),
    NAMED_FIELD(eviction, mr_eviction_name),
    NAMED_FIELD(schedule, mr_schedule_name),
    FIELD(rank, VALUE_U32),
    FIELD(schedule_warmup_steps, VALUE_U32),
    FIELD(schedule_steps, VALUE_U32),
    FIELD(range_values, VALUE_U32),
    FIELD(seed, VALUE_U64),
    FIELD(capacity_rows, VALUE_U64),
    FIELD(memory_bytes, VALUE_U64),
    FIELD(filter_bytes, VALUE_U64),
    FIELD(init_a, VALUE_FLOAT),
    FIELD(init_b, VALUE_FLOAT),
    FIELD(learning_rate, VALUE_FLOAT),
    FIELD(learning_rate_end, VALUE_FLOAT),
    FIELD(weight_decay, VALUE_FLOAT),
    FIELD(clip_value, VALUE_FLOAT),
    FIELD(clip_norm, VALUE_FLOAT),
    FIELD(admission_arg, VALUE_FLOAT),
    FIELD(eviction_arg, VALUE_FLOAT),
};

static void put_field(const struct mr_feature *f, const struct field *field, char *text, size_t bytes)
{
    const void *at = (const uint8_t *)f + field->offset;
    if (field->kind == VALUE_FLOAT)
        snprintf(text, bytes, "%.*g", FLOAT_DIGITS, (double)*(const float *)at);
    else if (field->kind == VALUE_U64)
        snprintf(text, bytes, "%" PRIu64, *(const uint64_t *)at);
    else if (field->kind == VALUE_U32)
        snprintf(text, bytes, "%" PRIu32, *(const uint32_t *)at);
    else
        put_named(field->name_of, *(const uint32_t *)at, text, bytes);
}

static void put_value(const struct mr_feature *f, const char *field, char *text, size_t bytes)
{
    for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++) {
        if (strcmp(field, fields[i].name) == 0) {
            put_field(f, &fields[i], text, bytes);
            return;
        }
    }
    if (strcmp(field, "dim") == 0)
        snprintf(text, bytes, "%u", f->dims[0]);
    else if (strcmp(field, "dims") == 0)
        put_dims(f, text, bytes);
    else if (strcmp(field, "optimizer_args") == 0)
        put_args(f, text, bytes);
    else if (strcmp(field, "name") == 0)
        snprintf(text, bytes, "\"%.*s\"", MR_NAME_BYTES, f->name);
    else
        snprintf(text, bytes, "set"); /* reserved */
}

/* ---- what is wrong ---- */

#define DENSE_ALLOWED "; the sixth is 0, or in a table of f32 1 for a dense optimizer"

/* What the optimizer's arguments may be. */
static const char *args_allowed(uint32_t optimizer)
{
    switch (optimizer) {
    case MR_OPT_SGD:
        return "they are finite" DENSE_ALLOWED;
    case MR_OPT_MOMENTUM:
        return "momentum and dampening go from 0 to below 1; nesterov is 0, or 1 with momentum and without "
               "dampening" DENSE_ALLOWED;
    case MR_OPT_ADAGRAD:
        return "initial accumulator and epsilon are at least 0, and not both 0" DENSE_ALLOWED;
    case MR_OPT_ROWWISE_ADAGRAD:
        return "initial accumulator and epsilon are at least 0, and not both 0";
    case MR_OPT_ADAM:
    case MR_OPT_ADAMW:
        return "beta1 and beta2 go from 0 to below 1, epsilon is above 0, and the fourth is 0, or 1 for a "
               "bias correction by the step of pushes" DENSE_ALLOWED;
    case MR_OPT_FTRL:
    case MR_OPT_GROUP_FTRL:
        return "initial accumulator, beta, l1, l2 (and l21 of group_ftrl) are at least 0, the first two not "
               "both 0";
    default:
        return "they are finite, and 0 where the optimizer has none";
    }
}

static_assert(MR_DIM_MAX == 1024 && MR_RANK_MAX == 4 && MR_VARIABLE_ELEMENTS_MAX == 1073741824 &&
                  MR_OBSERVATIONS_MAX == 255 && MR_MEMORY_BYTES_MIN == 1048576 &&
                  MR_FILTER_BYTES_MAX == 8589934592 && MR_RANGES_MAX == 4096,
              "the texts name these limits");

static const char *allowed(const struct mr_feature *f, const char *field)
{
    static const struct {
        const char *field, *text;
    } texts[] = {
        {"name", "it has 1 to 63 of the characters A-Z a-z 0-9 _ . / : -"},
        {"kind", "it is table or variable"},
        {"dtype", "it is f32, f16 or bf16"},
        {"rank", "it is 1 for a table, 0 to 4 for a variable"},
        {"dim", "it goes from 1 to 1024"},
        {"dims", "there are as many as the rank, each at least 1, with 2^30 elements at most"},
        {"initializer", "it is constant, uniform, normal or truncated_normal"},
        {"init_a", "it is finite"},
        {"init_b", "it is finite, at least init_a (uniform) or 0 (normal), and no first value is infinite"},
        {"optimizer", "it is one of enum mr_optimizer"},
        {"learning_rate", "it is at least 0, above 0 with an exponential schedule, and finite"},
        {"schedule", "it is constant, linear, cosine or exponential"},
        {"schedule_steps", "it is 0 with a constant learning rate, else at least 1"},
        {"learning_rate_end", "it is 0 with a constant learning rate, else at least 0, and above 0 with an "
                              "exponential schedule"},
        {"weight_decay", "it is at least 0, and finite"},
        {"clip_value", "it is at least 0, and finite"},
        {"clip_norm", "it is at least 0, and finite"},
        {"pooling", "it is sum, mean, sqrtn or none, and 0 for a variable"},
        {"admission", "it is always, probability or observations, and always for a variable"},
        {"admission_arg", "a probability is above 0 and at most 1, observations are whole, from 1 to 255"},
        {"eviction", "it is never, age, lru, lfu, norm or steps, and never for a variable"},
        {"eviction_arg", "it is at least 0, above 0 for age, norm and steps, and finite"},
        {"capacity_rows", "it is 0 for a variable"},
        {"memory_bytes", "it is 0 (no limit of its own) or at least 1 MiB, and 0 for a variable"},
        {"filter_bytes", "it is 0 without observations, and at most 8 GiB"},
        {"range_values",
         "it is 0 for a table, and makes at most 4096 ranges; one range with rowwise_adagrad, "
         "group_ftrl or clip_norm, which need the whole variable"},
    };
    bool sets = f->optimizer == MR_OPT_ASSIGN;
    if (sets && (strcmp(field, "weight_decay") == 0 || strncmp(field, "clip_", 5) == 0 ||
                 strncmp(field, "schedule", 8) == 0))
        return "the optimizer assign, which sets rows as they are, has none";
    if (strcmp(field, "optimizer_args") == 0)
        return args_allowed(f->optimizer);
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        if (strcmp(field, texts[i].field) == 0)
            return texts[i].text;
    return "it is zero"; /* reserved */
}

void mr_feature_explain(const struct mr_feature *f, const char *field, char *text, size_t bytes)
{
    char value[VALUE_BYTES];
    put_value(f, field, value, sizeof(value));
    snprintf(text, bytes, "%s is %s: %s", field, value, allowed(f, field));
}

const char *mr_feature_why_fixed(const char *field)
{
    static const struct {
        const char *field, *text;
    } texts[] = {
        {"name", "clients find the feature by it"},
        {"kind", "a table is no variable"},
        {"dtype", "it is the type of the values that are there"},
        {"rank", "it is the shape of the values that are there"},
        {"dim", "it is the length of the rows that are there"},
        {"dims", "it is the shape of the values that are there"},
        {"initializer", "a row that is made again, or by a replay, must be the same"},
        {"init_a", "a row that is made again, or by a replay, must be the same"},
        {"init_b", "a row that is made again, or by a replay, must be the same"},
        {"seed", "it says on which core and where a key's row is"},
        {"optimizer", "the state beside the values is that of the optimizer they were trained with"},
        {"pooling", "batches that were fed, and models, count on it"},
        {"filter_bytes", "the occurrences that are counted lie in a filter of that size"},
        {"range_values", "it says on which cores the values are"},
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        if (strcmp(field, texts[i].field) == 0)
            return texts[i].text;
    return "it has no meaning yet";
}

void mr_feature_explain_diff(const struct mr_feature *mine, const struct mr_feature *other, const char *field,
                             char *text, size_t bytes)
{
    char here[VALUE_BYTES], there[VALUE_BYTES];
    put_value(mine, field, here, sizeof(here));
    put_value(other, field, there, sizeof(there));
    snprintf(text, bytes, "%s %s, not %s", field, there, here);
}
