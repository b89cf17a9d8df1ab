#include "tools/ckpt/ckpt_import_rows.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "dataplane/wire/base/plural.h"
#include "dataplane/wire/format/convert.h"
#include "tools/ckpt/ckpt_map.h"

static bool import_fail(char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool import_fail(char *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, TOOL_NPY_TEXT_BYTES, format, args);
    va_end(args);
    return false;
}

static bool check_files(struct ckpt_import_rows *r, char *text)
{
    const struct tool_npy *k = &r->keys.array, *v = &r->values.array;
    if (k->rank != 1 || (k->dtype != MR_U64 && k->dtype != MR_I64))
        return import_fail(text, "%s: keys must be one dimension of u64 or i64; save a.ravel().astype('<u8')",
                           r->keys.path);
    if (v->rank != 2 || v->shape[1] == 0 || v->shape[1] > MR_DIM_MAX)
        return import_fail(text, "%s: values must have the shape [rows, dim], dim from 1 to %u",
                           r->values.path, MR_DIM_MAX);
    if (v->dtype != MR_F32 && v->dtype != MR_F16 && v->dtype != MR_U16)
        return import_fail(text,
                           "%s: values must be f32 or f16, or u16 for the bits of bf16; save a.astype('<f4')",
                           r->values.path);
    if (k->shape[0] != v->shape[0])
        return import_fail(text, "%s has %" PRIu64 " key%s and %s %" PRIu64 " row%s: they must be as many",
                           r->keys.path, k->shape[0], mr_plural(k->shape[0]), r->values.path, v->shape[0],
                           mr_plural(v->shape[0]));
    r->count = k->shape[0];
    r->dim = (uint32_t)v->shape[1];
    return true;
}

bool ckpt_import_open(struct ckpt_import_rows *r, const char *keys, const char *values, char *text)
{
    *r = (struct ckpt_import_rows){.keys = {.fd = -1}, .values = {.fd = -1}};
    if (tool_npy_open(&r->keys, keys, text) && tool_npy_open(&r->values, values, text) &&
        check_files(r, text))
        return true;
    ckpt_import_close(r);
    return false;
}

void ckpt_import_close(struct ckpt_import_rows *r)
{
    tool_npy_close(&r->keys);
    tool_npy_close(&r->values);
}

bool ckpt_import_check_type(const struct ckpt_import_rows *r, enum mr_dtype table_dtype, char *text)
{
    if (r->values.array.dtype != MR_U16 || table_dtype == MR_BF16)
        return true;
    return import_fail(
        text,
        "%s: its values are u16, which are taken for the bits of bf16: import with --dtype bf16, or save f32",
        r->values.path);
}

/* ---- keys ---- */

static bool check_key(const struct ckpt_import_rows *r, struct ckpt_map *map, struct ckpt_range *range,
                      uint64_t row, uint64_t key, char *text)
{
    if (r->keys.array.dtype == MR_I64 && key > INT64_MAX)
        return import_fail(text, "%s: key %" PRIu64 " is below 0: %" PRId64, r->keys.path, row, (int64_t)key);
    struct ckpt_entry *entry;
    switch (ckpt_map_put(map, range, 0, key, 0, &entry)) {
    case CKPT_FOUND:
        return import_fail(text, "%s: the key %" PRIu64 " is there twice, the second time at %" PRIu64,
                           r->keys.path, key, row);
    case CKPT_NO_ROOM:
        return import_fail(text, "there is no room for the keys; raise --check-mib");
    default:
        return true;
    }
}

static bool check_pass(const struct ckpt_import_rows *r, struct ckpt_map *map, struct ckpt_range *range,
                       char *text)
{
    uint64_t keys[CKPT_IMPORT_ROWS];
    ckpt_map_clear(map);
    for (uint64_t first = 0; first < r->count; first += CKPT_IMPORT_ROWS) {
        const uint64_t left = r->count - first, count = left < CKPT_IMPORT_ROWS ? left : CKPT_IMPORT_ROWS;
        if (!tool_npy_read(&r->keys, first, count, keys, text))
            return false;
        for (uint64_t i = 0; i < count; i++)
            if (!check_key(r, map, range, first + i, keys[i], text))
                return false;
    }
    return true;
}

bool ckpt_import_check_keys(const struct ckpt_import_rows *r, uint64_t memory_bytes, char *text)
{
    struct ckpt_map *map = ckpt_map_create(memory_bytes);
    if (!map)
        return import_fail(text, "no memory for checking the keys");
    bool good = true;
    for (struct ckpt_range range = {0, CKPT_PLACES}; range.begin < CKPT_PLACES && good;) {
        good = check_pass(r, map, &range, text);
        range = (struct ckpt_range){range.end, CKPT_PLACES};
    }
    ckpt_map_destroy(map);
    return good;
}

/* ---- rows ---- */

/* The column of the first number that is none, or dim. */
static uint32_t first_unusable(const float *row, uint32_t dim)
{
    uint32_t i = 0;
    while (i < dim && isfinite(row[i]))
        i++;
    return i;
}

/* One row of the file as the table's values. */
static bool convert_row(const struct ckpt_import_rows *r, uint64_t at, const void *from, void *values,
                        char *text)
{
    float given[MR_DIM_MAX], kept[MR_DIM_MAX];
    const enum mr_dtype stored = r->values.array.dtype == MR_U16 ? MR_BF16 : r->values.array.dtype;
    mr_convert_to_f32(stored, given, from, NULL, 1, r->dim);
    uint32_t column = first_unusable(given, r->dim);
    if (column < r->dim)
        return import_fail(text,
                           "%s: [%" PRIu64 ", %" PRIu32 "] is %g: a row that holds it never learns again",
                           r->values.path, at, column, (double)given[column]);
    mr_convert_from_f32(r->maker.dtype, values, NULL, given, 1, r->dim);
    mr_convert_to_f32(r->maker.dtype, kept, values, NULL, 1, r->dim);
    column = first_unusable(kept, r->dim);
    if (column < r->dim)
        return import_fail(
            text, "%s: [%" PRIu64 ", %" PRIu32 "] is %g, more than %s can hold; import with --dtype f32",
            r->values.path, at, column, (double)given[column], mr_dtype_name(r->maker.dtype));
    return true;
}

bool ckpt_import_read(const struct ckpt_import_rows *r, uint64_t first, uint32_t count, uint64_t *keys,
                      uint8_t *rows, char *text)
{
    float values[MR_DIM_MAX];
    const uint64_t row_bytes = tool_npy_row_bytes(&r->values.array);
    uint8_t *given = malloc(count * row_bytes);
    bool good = given ? tool_npy_read(&r->keys, first, count, keys, text) &&
                            tool_npy_read(&r->values, first, count, given, text)
                      : import_fail(text, "no memory for reading %s", r->values.path);
    for (uint32_t i = 0; i < count && good; i++) {
        good = convert_row(r, first + i, given + i * row_bytes, values, text);
        if (good)
            ckpt_row_make(&r->maker, values, rows + (size_t)i * r->maker.layout.bytes);
    }
    free(given);
    return good;
}
