#include "tools/ctl/feature_json.h"

#include <stdint.h>
#include <string.h>
#include "tools/ctl/feature_text.h"

#define PARTS 3u

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
    return json_pack("{s:s, s:f, s:I, s:s, s:f, s:I, s:I}", "admission", mr_admission_name(f->admission),
                     "admission_arg", (double)f->admission_arg, "filter_bytes", (json_int_t)f->filter_bytes,
                     "eviction", mr_eviction_name(f->eviction), "eviction_arg", (double)f->eviction_arg,
                     "capacity_rows", (json_int_t)f->capacity_rows, "memory_bytes",
                     (json_int_t)f->memory_bytes);
}

json_t *tool_feature_json(const struct mr_feature *f)
{
    json_t *parts[PARTS] = {shape_json(f), training_json(f), limits_json(f)};
    json_t *all = json_object();
    for (uint32_t i = 0; i < PARTS; i++) {
        (void)json_object_update(all, parts[i]);
        json_decref(parts[i]);
    }
    return all;
}
