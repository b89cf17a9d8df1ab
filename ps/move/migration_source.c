#include "ps/move/migration_source.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/optimizer/rule.h"
#include "dataplane/wire/base/bytes.h"
#include "dataplane/wire/format/move.h"
#include "ps/core/core.h"
#include "ps/table/table_copy.h"

/* What comes after what. */
enum source_stage { SOURCE_ROWS, SOURCE_VARIABLES, SOURCE_RECORDS, SOURCE_ALL };

struct ps_migration_source {
    uint64_t id;
    struct ps_partition_set partitions;
    bool is_fenced, is_lost;
    enum source_stage stage;
    uint32_t next_feature;
    /* A pass goes once over all tables. If nothing was sent in one that began after the fence, nothing is
     * left. */
    bool pass_is_fenced, pass_sent;
    uint32_t next_range;  /* of the next feature, if it is a variable */
    uint64_t range_bytes; /* sent of that */
    uint8_t *records;     /* of batches, clients and pushes, as they were when the variables were through */
    size_t record_bytes, records_sent;
    uint64_t position; /* of the block */
    bool is_making;    /* the block is not complete */
    bool is_first;
    uint32_t block_bytes;
    struct ps_copy_part part;
    uint8_t block[MR_MOVE_BLOCK_BYTES];
};

/* ---- life ---- */

static struct ps_migration_source *source_find(const struct ps_core *core, uint64_t id)
{
    return core->migration_source != NULL && core->migration_source->id == id ? core->migration_source : NULL;
}

enum mr_status ps_migration_source_begin(struct ps_core *core, uint64_t id,
                                         const struct ps_partition_set *partitions)
{
    assert(core->migration_source == NULL && id != 0);
    struct ps_migration_source *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return MR_NO_MEMORY;
    s->id = id;
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        if (ps_partitions_has(partitions, p) && core->node->partition_core[p] == core->index)
            ps_partitions_add(&s->partitions, p);
    s->next_feature = 1;
    core->migration_source = s;
    return MR_OK;
}

void ps_migration_source_fence(struct ps_core *core, uint64_t id)
{
    struct ps_migration_source *s = source_find(core, id);
    if (s != NULL)
        s->is_fenced = true;
}

void ps_migration_source_end(struct ps_core *core, uint64_t id)
{
    struct ps_migration_source *s = core->migration_source;
    if (s == NULL || (id != 0 && s->id != id))
        return;
    for (uint32_t i = 1; i <= core->feature_id_max; i++)
        if (core->features[i] != NULL && core->features[i]->table != NULL)
            ps_table_copy_end(core->features[i]->table);
    free(s->records);
    free(s);
    core->migration_source = NULL;
}

/* ---- records into the block ---- */

/* Room for a record's bytes; NULL: there is none. */
static uint8_t *source_add(struct ps_migration_source *s, const struct ps_record *record)
{
    const uint32_t bytes = (uint32_t)mr_padded(record->bytes);
    if (sizeof(*record) + bytes > sizeof(s->block) - s->block_bytes)
        return NULL;
    uint8_t *to = s->block + s->block_bytes;
    memcpy(to, record, sizeof(*record));
    memset(to + sizeof(*record) + record->bytes, 0, bytes - record->bytes);
    s->block_bytes += (uint32_t)sizeof(*record) + bytes;
    return to + sizeof(*record);
}

/* How many rows fit into the block, PS_CUT_EMIT_ROWS_MAX at most; 0 where a piece of a filter would not. */
static uint32_t source_rows_that_fit(const struct ps_migration_source *s, uint32_t row_bytes)
{
    const size_t left = sizeof(s->block) - s->block_bytes;
    if (left < sizeof(struct ps_record) + (uint32_t)mr_padded(PS_FILTER_PIECE_BYTES_MAX))
        return 0;
    const size_t rows = (left - sizeof(struct ps_record) - 8) / (sizeof(uint64_t) + row_bytes);
    return rows < PS_CUT_EMIT_ROWS_MAX ? (uint32_t)rows : PS_CUT_EMIT_ROWS_MAX;
}

/* What the table has put into s->part, for which there is room. */
static void source_add_part(struct ps_migration_source *s, const struct ps_feature *f, enum ps_copy_kind kind,
                            uint32_t row_bytes)
{
    const struct ps_copy_part *part = &s->part;
    const uint64_t key_bytes = part->count * sizeof(uint64_t);
    struct ps_record record = {.feature = f->id, .count = part->count};
    if (kind == PS_COPY_ROWS) {
        record.kind = PS_RECORD_ROWS;
        record.row_bytes = row_bytes;
        record.bytes = key_bytes + part->count * (uint64_t)row_bytes;
        uint8_t *to = source_add(s, &record);
        memcpy(to, part->keys, key_bytes);
        for (uint32_t i = 0; i < part->count; i++)
            memcpy(to + key_bytes + (size_t)i * row_bytes, part->rows[i], row_bytes);
    } else if (kind == PS_COPY_GONE) {
        record.kind = PS_RECORD_GONE;
        record.bytes = key_bytes;
        memcpy(source_add(s, &record), part->keys, key_bytes);
    } else {
        record = (struct ps_record){.kind = PS_RECORD_OBSERVATIONS,
                                    .feature = f->id,
                                    .count = part->filter_bytes,
                                    .row_bytes = part->first_line,
                                    .offset = part->partition,
                                    .bytes = part->filter_bytes};
        memcpy(source_add(s, &record), part->filter, record.bytes);
    }
}

/* ---- the stages; each returns whether the next thing can be looked at: false, the block is full, or the
 * budget is used up ---- */

/* All of a table that has changed. */
static bool source_send_rows(struct ps_migration_source *s, struct ps_feature *f, uint64_t *budget_bytes)
{
    const uint32_t row_bytes = ps_table_stored_row_bytes(f->table);
    if (!ps_table_copy_runs(f->table) && ps_table_copy_begin(f->table, &s->partitions) != MR_OK)
        s->is_lost = true;
    while (!s->is_lost) {
        const uint32_t fit = source_rows_that_fit(s, row_bytes);
        if (*budget_bytes == 0 || fit == 0)
            return false;
        s->is_first |= ps_table_copy_is_first(f->table);
        const enum ps_copy_kind kind = ps_table_copy_next(f->table, fit, &s->part, budget_bytes);
        if (kind == PS_COPY_NONE)
            break;
        s->pass_sent = true;
        source_add_part(s, f, kind, row_bytes);
    }
    s->is_lost |= ps_table_copy_runs(f->table) && ps_table_copy_is_lost(f->table);
    return s->is_lost || *budget_bytes > 0;
}

/* A pass over the tables; then the next one, until nothing is left. */
static bool source_send_tables(struct ps_core *core, struct ps_migration_source *s, uint64_t *budget_bytes)
{
    if (s->next_feature == 1 && !s->pass_sent)
        s->pass_is_fenced = s->is_fenced;
    for (; s->next_feature <= core->feature_id_max; s->next_feature++) {
        struct ps_feature *f = core->features[s->next_feature];
        if (f != NULL && f->table != NULL && !source_send_rows(s, f, budget_bytes))
            return false;
    }
    const bool is_through = !s->pass_sent && s->pass_is_fenced;
    const bool goes_on = s->pass_sent && s->is_fenced;
    s->next_feature = 1;
    s->pass_sent = false;
    s->pass_is_fenced = s->is_fenced;
    if (is_through)
        s->stage = SOURCE_VARIABLES;
    return is_through || goes_on;
}

#define PIECE_BYTES (64u << 10)

static bool source_send_range(struct ps_migration_source *s, const struct ps_feature *f,
                              uint64_t *budget_bytes)
{
    const struct ps_variable *v = f->ranges[s->next_range].variable;
    const uint64_t total = ps_variable_stored_bytes(v);
    while (s->range_bytes < total) {
        const uint64_t left = total - s->range_bytes;
        const uint64_t bytes = left < PIECE_BYTES ? left : PIECE_BYTES;
        const struct ps_record record = {.kind = PS_RECORD_VARIABLE,
                                         .feature = f->id,
                                         .count = (uint32_t)bytes,
                                         .offset = s->next_range * mr_rule_range_bytes(&f->feature) +
                                                   s->range_bytes,
                                         .bytes = bytes};
        uint8_t *to = *budget_bytes > 0 ? source_add(s, &record) : NULL;
        if (to == NULL)
            return false;
        ps_variable_store(v, s->range_bytes, bytes, to);
        s->range_bytes += bytes;
        *budget_bytes -= bytes < *budget_bytes ? bytes : *budget_bytes;
    }
    s->range_bytes = 0;
    return true;
}

/* Then copies the records of what was applied to the partitions: they belong to the state that was sent. */
static bool source_send_variables(struct ps_core *core, struct ps_migration_source *s, uint64_t *budget_bytes)
{
    for (; s->next_feature <= core->feature_id_max; s->next_feature++) {
        const struct ps_feature *f = core->features[s->next_feature];
        for (; f != NULL && s->next_range < f->range_count; s->next_range++) {
            const struct ps_range *r = &f->ranges[s->next_range];
            if (r->variable != NULL && ps_partitions_has(&s->partitions, r->partition) &&
                !source_send_range(s, f, budget_bytes))
                return false;
        }
        s->next_range = 0; /* of one that was dropped between two blocks, some was sent */
        s->range_bytes = 0;
    }
    s->next_feature = 1;
    s->stage = SOURCE_RECORDS;
    const struct ps_records records = ps_core_records(core);
    s->record_bytes = ps_records_export(&records, &s->partitions, NULL);
    s->records = malloc(s->record_bytes + 1);
    if (s->records != NULL)
        (void)ps_records_export(&records, &s->partitions, s->records);
    else
        s->is_lost = true;
    return true;
}

/* In pieces: what belongs together is put together again by the target. */
static bool source_send_records(struct ps_migration_source *s)
{
    while (s->records_sent < s->record_bytes) {
        const size_t left = s->record_bytes - s->records_sent;
        const size_t bytes = left < PIECE_BYTES ? left : PIECE_BYTES;
        const struct ps_record record = {
            .kind = PS_MOVE_RECORD, .count = (uint32_t)bytes, .offset = s->records_sent, .bytes = bytes};
        uint8_t *to = source_add(s, &record);
        if (to == NULL)
            return false;
        memcpy(to, s->records + s->records_sent, bytes);
        s->records_sent += bytes;
    }
    s->stage = SOURCE_ALL;
    return true;
}

/* ---- blocks ---- */

/* Returns whether there may be more for this block, with the budget that is left. */
static bool source_send(struct ps_core *core, struct ps_migration_source *s, uint64_t *budget_bytes)
{
    switch (s->stage) {
    case SOURCE_ROWS:
        return source_send_tables(core, s, budget_bytes);
    case SOURCE_VARIABLES:
        return source_send_variables(core, s, budget_bytes);
    case SOURCE_RECORDS:
        return source_send_records(s);
    default:
        return false;
    }
}

static uint64_t source_left_bytes(const struct ps_core *core)
{
    uint64_t bytes = 0;
    for (uint32_t id = 1; id <= core->feature_id_max; id++) {
        const struct ps_feature *f = core->features[id];
        if (f != NULL && f->table != NULL && ps_table_copy_runs(f->table))
            bytes += ps_table_copy_left(f->table) * (sizeof(uint64_t) + ps_table_stored_row_bytes(f->table));
    }
    return bytes;
}

bool ps_migration_source_read(struct ps_core *core, uint64_t id, uint64_t position, uint64_t budget_bytes,
                              struct ps_migration_block *out)
{
    struct ps_migration_source *s = source_find(core, id);
    *out = (struct ps_migration_block){.state = MR_MOVE_NOT_READY};
    if (s == NULL || core->save.writer != NULL) /* a snapshot in progress uses the rows' marks, too */
        return true;
    const bool is_next = position == s->position + 1 && !s->is_making;
    s->is_lost |= !is_next && position != s->position;
    if (is_next) {
        s->position = position;
        s->is_making = true;
        s->is_first = false;
        s->block_bytes = 0;
    }
    uint64_t left = budget_bytes;
    while (s->is_making && !s->is_lost && left > 0 && source_send(core, s, &left)) {
    }
    if (s->is_making && !s->is_lost && left == 0)
        return false;
    s->is_making = false;
    *out = (struct ps_migration_block){.bytes = s->block,
                                       .byte_count = s->is_lost ? 0 : s->block_bytes,
                                       .state = s->is_lost               ? MR_MOVE_LOST
                                                : s->stage == SOURCE_ALL ? MR_MOVE_ALL
                                                                         : MR_MOVE_MORE,
                                       .is_first = s->is_first,
                                       .left_bytes = source_left_bytes(core)};
    return true;
}
