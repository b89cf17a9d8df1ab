#include "tools/ctl/feature_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FLOAT_DIGITS_MAX 9 /* enough for any float */
#define WHOLE_MAX        1e7f
#define MIB              1048576.0

/* ---- text that ends where its room ends ---- */

struct text {
    char *out;
    size_t bytes, at;
};

static struct text text_in(char *out, size_t out_bytes)
{
    if (out_bytes > 0)
        out[0] = '\0';
    return (struct text){.out = out, .bytes = out_bytes};
}

static __attribute__((format(printf, 2, 3))) void feature_text_add(struct text *t, const char *format, ...)
{
    if (t->at >= t->bytes)
        return;
    va_list args;
    va_start(args, format);
    t->at += (size_t)vsnprintf(t->out + t->at, t->bytes - t->at, format, args);
    va_end(args);
}

/* The shortest decimal number that is this float; whole numbers in full. */
static void add_float(struct text *t, float x)
{
    char digits[32];
    if (x == truncf(x) && fabsf(x) < WHOLE_MAX) {
        feature_text_add(t, "%.0f", (double)x);
        return;
    }
    for (int precision = 1; precision <= FLOAT_DIGITS_MAX; precision++) {
        (void)snprintf(digits, sizeof(digits), "%.*g", precision, (double)x);
        if (strtof(digits, NULL) == x)
            break;
    }
    feature_text_add(t, "%s", digits);
}

static void name_option(struct text *t, const char *option, const char *name, bool is_default)
{
    if (!is_default)
        feature_text_add(t, "%s--%s %s", t->at > 0 ? " " : "", option, name);
}

static void float_option(struct text *t, const char *option, float x, float standard)
{
    if (x == standard)
        return;
    feature_text_add(t, "%s--%s ", t->at > 0 ? " " : "", option);
    add_float(t, x);
}

static void number_option(struct text *t, const char *option, uint64_t n)
{
    if (n != 0)
        feature_text_add(t, "%s--%s %" PRIu64, t->at > 0 ? " " : "", option, n);
}

static void mib_option(struct text *t, const char *option, uint64_t bytes)
{
    if (bytes != 0)
        feature_text_add(t, "%s--%s %.15g", t->at > 0 ? " " : "", option, (double)bytes / MIB);
}

/* Up to the last one that is not at its default. */
static void optimizer_args_option(struct text *t, const struct mr_feature *f)
{
    struct mr_feature standard = *f;
    uint32_t count = MR_OPTIMIZER_ARGS;
    mr_feature_set_optimizer(&standard, (enum mr_optimizer)f->optimizer);
    while (count > 0 && f->optimizer_args[count - 1] == standard.optimizer_args[count - 1])
        count--;
    for (uint32_t i = 0; i < count; i++) {
        feature_text_add(t, "%s", i > 0 ? "," : t->at > 0 ? " --optimizer-args " : "--optimizer-args ");
        add_float(t, f->optimizer_args[i]);
    }
}

void tool_feature_options(const struct mr_feature *f, char *out, size_t out_bytes)
{
    const struct mr_feature standard = mr_feature_table("", 1);
    struct text t = text_in(out, out_bytes);
    name_option(&t, "init", mr_initializer_name(f->initializer), f->initializer == standard.initializer);
    float_option(&t, "init-a", f->init_a, 0);
    float_option(&t, "init-b", f->init_b, 0);
    number_option(&t, "seed", f->seed);
    name_option(&t, "optimizer", mr_optimizer_name(f->optimizer), f->optimizer == standard.optimizer);
    optimizer_args_option(&t, f);
    float_option(&t, "learning-rate", f->learning_rate, standard.learning_rate);
    name_option(&t, "schedule", mr_schedule_name(f->schedule), f->schedule == MR_SCHEDULE_CONSTANT);
    number_option(&t, "schedule-steps", f->schedule_steps);
    number_option(&t, "schedule-warmup-steps", f->schedule_warmup_steps);
    float_option(&t, "learning-rate-end", f->learning_rate_end, 0);
    float_option(&t, "weight-decay", f->weight_decay, 0);
    float_option(&t, "clip-value", f->clip_value, 0);
    float_option(&t, "clip-norm", f->clip_norm, 0);
    name_option(&t, "pooling", mr_pooling_name(f->pooling), f->pooling == MR_POOL_SUM);
    name_option(&t, "admission", mr_admission_name(f->admission), f->admission == MR_ADMIT_ALWAYS);
    float_option(&t, "admission-arg", f->admission_arg, 0);
    mib_option(&t, "filter-mib", f->filter_bytes);
    name_option(&t, "eviction", mr_eviction_name(f->eviction), f->eviction == MR_EVICT_NEVER);
    float_option(&t, "eviction-arg", f->eviction_arg, 0);
    number_option(&t, "capacity-rows", f->capacity_rows);
    mib_option(&t, "memory-mib", f->memory_bytes);
    number_option(&t, "range-values", f->range_values);
}

void tool_feature_shape(const struct mr_feature *f, char *out, size_t out_bytes)
{
    struct text t = text_in(out, out_bytes);
    feature_text_add(&t, "%s %s[", f->kind == MR_TABLE ? "table" : "variable",
                     mr_dtype_name((enum mr_dtype)f->dtype));
    for (uint32_t i = 0; i < f->rank && i < MR_RANK_MAX; i++)
        feature_text_add(&t, "%s%u", i > 0 ? "," : "", f->dims[i]);
    feature_text_add(&t, "]");
}

static json_t *numbers_json(const float *numbers, uint32_t count)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < count; i++)
        json_array_append_new(list, json_real((double)numbers[i]));
    return list;
}

static json_t *shape_json(const struct mr_feature *f)
{
    json_t *dims = json_array();
    for (uint32_t i = 0; i < f->rank && i < MR_RANK_MAX; i++)
        json_array_append_new(dims, json_integer(f->dims[i]));
    return json_pack("{s:s%, s:s, s:s, s:o, s:s, s:f, s:f, s:s}", "name", f->name,
                     strnlen(f->name, sizeof(f->name)), "kind", f->kind == MR_TABLE ? "table" : "variable",
                     "dtype", mr_dtype_name((enum mr_dtype)f->dtype), "dims", dims, "init",
                     mr_initializer_name(f->initializer), "init_a", (double)f->init_a, "init_b",
                     (double)f->init_b, "pooling", mr_pooling_name(f->pooling));
}

static json_t *training_json(const struct mr_feature *f)
{
    return json_pack(
        "{s:s, s:o, s:f, s:s, s:I, s:I, s:f, s:f, s:f, s:f}", "optimizer", mr_optimizer_name(f->optimizer),
        "optimizer_args", numbers_json(f->optimizer_args, MR_OPTIMIZER_ARGS), "learning_rate",
        (double)f->learning_rate, "schedule", mr_schedule_name(f->schedule), "schedule_steps",
        (json_int_t)f->schedule_steps, "schedule_warmup_steps", (json_int_t)f->schedule_warmup_steps,
        "learning_rate_end", (double)f->learning_rate_end, "weight_decay", (double)f->weight_decay,
        "clip_value", (double)f->clip_value, "clip_norm", (double)f->clip_norm);
}

static json_t *limits_json(const struct mr_feature *f)
{
    return json_pack("{s:s, s:f, s:I, s:s, s:f, s:I, s:I, s:I}", "admission", mr_admission_name(f->admission),
                     "admission_arg", (double)f->admission_arg, "filter_bytes", (json_int_t)f->filter_bytes,
                     "eviction", mr_eviction_name(f->eviction), "eviction_arg", (double)f->eviction_arg,
                     "capacity_rows", (json_int_t)f->capacity_rows, "memory_bytes",
                     (json_int_t)f->memory_bytes, "range_values", (json_int_t)f->range_values);
}

json_t *tool_feature_json(const struct mr_feature *f)
{
    enum { PARTS = 3 };
    json_t *parts[PARTS] = {shape_json(f), training_json(f), limits_json(f)};
    json_t *all = json_object();
    for (uint32_t i = 0; i < PARTS; i++) {
        (void)json_object_update(all, parts[i]);
        json_decref(parts[i]);
    }
    return all;
}
