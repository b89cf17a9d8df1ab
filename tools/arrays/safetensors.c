#include "tools/arrays/safetensors.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT    8u
#define LENGTH_BYTES sizeof(uint64_t)

static const char *dtype_text(enum mr_dtype dtype)
{
    static const char *const texts[MR_DTYPE_COUNT] = {
        [MR_U8] = "U8",     [MR_I8] = "I8",   [MR_U16] = "U16", [MR_F16] = "F16",
        [MR_BF16] = "BF16", [MR_U32] = "U32", [MR_I32] = "I32", [MR_F32] = "F32",
        [MR_U64] = "U64",   [MR_I64] = "I64", [MR_F64] = "F64",
    };
    return texts[dtype];
}

static bool tensor_bytes(const struct tool_safetensor *t, uint64_t *bytes)
{
    const uint32_t dims[3] = {t->columns, t->more[0], t->more[1]};
    bool fits = !__builtin_mul_overflow(t->rows, mr_dtype_bytes(t->dtype), bytes);
    for (uint32_t i = 0; i < 3 && dims[i] > 0; i++)
        fits = fits && !__builtin_mul_overflow(*bytes, dims[i], bytes);
    return fits && *bytes <= INT64_MAX / TOOL_SAFETENSORS_MAX;
}

/* Offsets after the header, tensors with the largest elements first. */
static bool place(struct tool_safetensor *tensors, uint32_t count, uint64_t *sizes)
{
    uint64_t at = 0;
    for (uint32_t element = ALIGNMENT; element > 0; element /= 2) {
        for (uint32_t i = 0; i < count; i++) {
            if (mr_dtype_bytes(tensors[i].dtype) != element)
                continue;
            if (!tensor_bytes(&tensors[i], &sizes[i]))
                return false;
            tensors[i].offset = at;
            at += sizes[i];
        }
    }
    return true;
}

static json_t *tensor_json(const struct tool_safetensor *t, uint64_t bytes)
{
    json_t *shape = json_array();
    json_array_append_new(shape, json_integer((json_int_t)t->rows));
    const uint32_t dims[3] = {t->columns, t->more[0], t->more[1]};
    for (uint32_t i = 0; i < 3 && dims[i] > 0; i++)
        json_array_append_new(shape, json_integer((json_int_t)dims[i]));
    const uint64_t end = t->offset + bytes;
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtype_text(t->dtype), "shape", shape, "data_offsets",
                     (json_int_t)t->offset, (json_int_t)end);
}

static char *safetensors_print(const struct tool_safetensor *tensors, const uint64_t *sizes, uint32_t count,
                               json_t *metadata)
{
    json_t *root = json_object();
    int bad = root == NULL;
    if (metadata)
        bad |= json_object_set(root, "__metadata__", metadata);
    for (uint32_t i = 0; i < count; i++)
        bad |= json_object_set_new(root, tensors[i].name, tensor_json(&tensors[i], sizes[i]));
    char *text = bad ? NULL : json_dumps(root, JSON_COMPACT);
    json_decref(root);
    return text;
}

char *tool_safetensors_header(struct tool_safetensor *tensors, uint32_t tensor_count, json_t *metadata,
                              size_t *header_bytes)
{
    uint64_t sizes[TOOL_SAFETENSORS_MAX] = {0};
    assert(tensor_count <= TOOL_SAFETENSORS_MAX);
    if (!place(tensors, tensor_count, sizes))
        return NULL;
    char *json = safetensors_print(tensors, sizes, tensor_count, metadata);
    if (!json)
        return NULL;
    const size_t json_bytes = strlen(json);
    const uint64_t padded = (json_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    char *out = malloc(LENGTH_BYTES + padded);
    if (out) {
        memcpy(out, &padded, LENGTH_BYTES);
        memset(out + LENGTH_BYTES, ' ', padded);
        memcpy(out + LENGTH_BYTES, json, json_bytes); /* NOLINT(bugprone-not-null-terminated-result) */
        *header_bytes = LENGTH_BYTES + padded;
        for (uint32_t i = 0; i < tensor_count; i++)
            tensors[i].offset += *header_bytes;
    }
    free(json);
    return out;
}
