#include "tools/ckpt/ckpt_rows_out.h"

#include <stdio.h>
#include "dataplane/wire/format/convert.h"

static bool is_narrow(enum mr_dtype dtype)
{
    return dtype == MR_F16 || dtype == MR_BF16;
}

void ckpt_fields_of(const struct ckpt_row *row, const char *key_name, bool with_state, bool as_f32,
                    struct ckpt_fields *out)
{
    *out = (struct ckpt_fields){.count = 1};
    out->list[0] = (struct ckpt_field){.name = key_name, .dtype = MR_U64};
    for (uint32_t i = 0; i < (with_state ? row->part_count : 1); i++) {
        const struct ckpt_part *part = &row->parts[i];
        out->list[out->count++] =
            (struct ckpt_field){.name = part->name,
                                .dtype = as_f32 && is_narrow(part->dtype) ? MR_F32 : part->dtype,
                                .columns = part->columns,
                                .part = part};
    }
}

struct writing {
    const struct ckpt_fields *fields;
    struct ckpt_column *columns;
    bool is_interleaved;
    uint64_t rows;
};

static enum mr_status count_rows(void *arg, const struct ckpt_rows *rows)
{
    ((struct writing *)arg)->rows += rows->count;
    return MR_OK;
}

static void put_field(const struct ckpt_field *field, struct ckpt_column *column, uint64_t key,
                      const uint8_t *row)
{
    float expanded[MR_DIM_MAX];
    if (!field->part) {
        ckpt_column_put(column, &key, sizeof(key));
        return;
    }
    const struct ckpt_part *part = field->part;
    if (part->dtype == field->dtype) {
        ckpt_column_put(column, row + part->offset, ckpt_part_bytes(part));
        return;
    }
    mr_convert_to_f32(part->dtype, expanded, row + part->offset, NULL, 1, ckpt_part_elements(part));
    ckpt_column_put(column, expanded, ckpt_part_elements(part) * sizeof(*expanded));
}

static enum mr_status write_rows(void *arg, const struct ckpt_rows *rows)
{
    struct writing *w = arg;
    for (uint32_t i = 0; i < rows->count; i++)
        for (uint32_t field = 0; field < w->fields->count; field++)
            put_field(&w->fields->list[field], &w->columns[w->is_interleaved ? 0 : field], rows->keys[i],
                      rows->rows + (size_t)i * rows->row_bytes);
    w->rows += rows->count;
    for (uint32_t field = 0; field < w->fields->count; field++)
        if (w->columns[w->is_interleaved ? 0 : field].error != 0)
            return MR_IO_ERROR;
    return MR_OK;
}

static enum mr_status each_row(const struct ckpt_table_source *source, ckpt_visit_rows visit, void *arg,
                               char *text)
{
    struct ckpt_progress progress;
    struct ckpt_live live;
    const struct ps_chain_link *last = ckpt_chain_last(source->chain);
    ckpt_progress_begin(&progress, source->what, ckpt_chain_bytes(source->chain));
    enum mr_status status = ckpt_live_open(&live, source->chain, last->manifest.feature_ids[source->index],
                                           source->memory_bytes, &progress, text);
    if (status == MR_OK)
        status = ckpt_live_all(&live, visit, NULL, arg, text);
    ckpt_live_close(&live);
    ckpt_progress_end(&progress);
    return status;
}

enum mr_status ckpt_table_count(const struct ckpt_table_source *source, uint64_t *rows, char *text)
{
    struct writing w = {0};
    enum mr_status status = each_row(source, count_rows, &w, text);
    *rows = w.rows;
    return status;
}

enum mr_status ckpt_table_write(const struct ckpt_table_source *source, const struct ckpt_fields *fields,
                                struct ckpt_column *columns, bool is_interleaved, uint64_t row_count,
                                char *text)
{
    struct writing w = {.fields = fields, .columns = columns, .is_interleaved = is_interleaved};
    text[0] = '\0';
    enum mr_status status = each_row(source, write_rows, &w, text);
    if (status == MR_OK && w.rows != row_count) {
        (void)snprintf(text, PS_TEXT_BYTES, "%.200s: its files were changed meanwhile",
                       ckpt_chain_last(source->chain)->path);
        return MR_CHECKPOINT_CORRUPT;
    }
    return status;
}
