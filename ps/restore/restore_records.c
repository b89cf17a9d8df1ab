#include "ps/restore/restore_records.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/optimizer/kernels.h"
#include "ps/checkpoint/checkpoint_format.h"
#include "ps/core/core.h"
#include "ps/restore/restore.h"

static bool is_own(const struct ps_core *core, uint32_t partition)
{
    return core->node->partition_core[partition] == core->index;
}

static bool is_own_key(const struct ps_core *core, const struct ps_feature *f, uint64_t key)
{
    return is_own(core, mr_partition_of(mr_key_hash(key, f->feature.seed)));
}

static enum mr_status no_memory(const struct ps_feature *f, enum mr_status status, char *text)
{
    snprintf(text, PS_RESTORE_TEXT_BYTES, "table %s: %s: raise memory.limit_mib", f->feature.name,
             mr_status_text(status));
    return status;
}

enum mr_status ps_restore_flush(struct ps_restore_core *r)
{
    uint32_t count = r->count;
    r->count = 0;
    if (count == 0) {
        return MR_OK;
    }
    enum mr_status status = ps_table_load_rows(r->feature->table, r->rows, count, r->makes_room);
    return status == MR_OK ? MR_OK : no_memory(r->feature, status, r->text);
}

static enum mr_status load_rows(struct ps_restore_core *r, const struct ps_feature *f,
                                const struct ps_record *record, const uint8_t *bytes)
{
    uint32_t row_bytes = ps_table_stored_row_bytes(f->table);
    if (record->row_bytes != row_bytes) {
        snprintf(r->text, PS_RESTORE_TEXT_BYTES, "table %s: rows of %u bytes, not %u", f->feature.name,
                 record->row_bytes, row_bytes);
        return MR_CHECKPOINT_CORRUPT;
    }
    const uint64_t *keys = (const uint64_t *)(const void *)bytes;
    const uint8_t *rows = bytes + record->count * sizeof(uint64_t);
    enum mr_status status = r->feature == f ? MR_OK : ps_restore_flush(r);
    r->feature = f;
    for (uint32_t i = 0; i < record->count && status == MR_OK; i++) {
        if (!is_own_key(r->core, f, keys[i])) {
            continue;
        }
        r->rows[r->count++] = (struct ps_stored_row){keys[i], rows + (size_t)i * row_bytes};
        if (r->count == PS_RESTORE_ROWS) {
            status = ps_restore_flush(r);
        }
    }
    return status;
}

static void load_gone(struct ps_core *core, const struct ps_feature *f, const struct ps_record *record,
                      const uint8_t *bytes)
{
    const uint64_t *keys = (const uint64_t *)(const void *)bytes;
    for (uint32_t i = 0; i < record->count; i++) {
        if (is_own_key(core, f, keys[i])) {
            ps_table_load_gone(f->table, keys[i]);
        }
    }
}

static enum mr_status load_sightings(struct ps_core *core, const struct ps_feature *f,
                                     const struct ps_record *record, const uint8_t *bytes, char *text)
{
    if (!is_own(core, (uint32_t)record->offset)) {
        return MR_OK;
    }
    enum mr_status status = ps_table_filter_load(f->table, (uint32_t)record->offset, record->row_bytes, bytes,
                                                 record->bytes, text, PS_RESTORE_TEXT_BYTES);
    return status == MR_OUT_OF_MEMORY ? no_memory(f, status, text) : status;
}

/* Pieces of a variable come in any order; the last one completes it. */
static enum mr_status load_variable(struct ps_feature *f, const struct ps_record *record,
                                    const uint8_t *bytes, char *text)
{
    uint64_t total = ps_variable_stored_bytes(f->variable);
    if (record->bytes > total - f->loaded_bytes || record->offset > total - record->bytes) {
        snprintf(text, PS_RESTORE_TEXT_BYTES, "variable %s: a piece reaches beyond its end, or comes twice",
                 f->feature.name);
        return MR_CHECKPOINT_CORRUPT;
    }
    if (f->loading == NULL && (f->loading = calloc(1, total)) == NULL) {
        snprintf(text, PS_RESTORE_TEXT_BYTES, "variable %s: no memory left", f->feature.name);
        return MR_OUT_OF_MEMORY;
    }
    memcpy(f->loading + record->offset, bytes, record->bytes);
    f->loaded_bytes += record->bytes;
    if (f->loaded_bytes == total) {
        ps_variable_load(f->variable, f->loading);
        f->is_not_finite = !mr_kernels_best()->all_finite(ps_variable_values(f->variable),
                                                          ps_variable_elements(f->variable));
        free(f->loading);
        f->loading = NULL;
    }
    return MR_OK;
}

enum mr_status ps_restore_record(struct ps_restore_core *r, const struct ps_record *record,
                                 const uint8_t *bytes)
{
    uint32_t wanted = ps_record_feature_kind(record->kind);
    if (wanted == 0) {
        return MR_OK; /* the control thread's */
    }
    struct ps_feature *f = ps_staged_feature(r->core, record->feature);
    if (f == NULL && r->named_only) {
        return MR_OK; /* of one that was not asked for */
    }
    bool is_known = f != NULL && (wanted == MR_TABLE) == (f->table != NULL);
    if (!is_known) {
        snprintf(r->text, PS_RESTORE_TEXT_BYTES,
                 "a record belongs to feature %u, which is not in the manifest", record->feature);
        return MR_CHECKPOINT_CORRUPT;
    }
    switch (record->kind) {
    case PS_RECORD_ROWS:
        return load_rows(r, f, record, bytes);
    case PS_RECORD_GONE:
        load_gone(r->core, f, record, bytes);
        return MR_OK;
    case PS_RECORD_SIGHTINGS:
        return load_sightings(r->core, f, record, bytes, r->text);
    default:
        return f->variable != NULL ? load_variable(f, record, bytes, r->text) : MR_OK;
    }
}
