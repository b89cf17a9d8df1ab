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
enum stage { ROWS, VARIABLES, RECORDS, ALL };

struct ps_migration_source {
    uint64_t move;
    struct ps_partition_set partitions;
    bool is_held, is_lost;
    enum stage stage;
    uint32_t next_feature;
    /* A pass goes once over all tables. If nothing was given in one that began after the hold, nothing is
     * left. */
    bool pass_is_held, pass_gave;
    uint32_t next_range;  /* of the next feature, if it is a variable */
    uint64_t range_bytes; /* given of that */
    uint8_t *records;     /* of batches, clients and pushes, as they were when VARIABLES were through */
    size_t record_bytes, records_given;
    uint64_t position; /* of the block */
    bool is_making;    /* the block is not complete */
    bool is_first;
    uint32_t block_bytes;
    struct ps_copy_part part;
    uint8_t block[MR_MOVE_BLOCK_BYTES];
};

/* ---- life ---- */

static struct ps_migration_source *give_find(const struct ps_core *core, uint64_t move)
{
    return core->migration_source != NULL && (move == 0 || core->migration_source->move == move)
               ? core->migration_source
               : NULL;
}

enum mr_status ps_migration_source_begin(struct ps_core *core, uint64_t move,
                                         const struct ps_partition_set *partitions)
{
    assert(core->migration_source == NULL && move != 0);
    struct ps_migration_source *g = calloc(1, sizeof(*g));
    if (g == NULL)
        return MR_NO_MEMORY;
    g->move = move;
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        if (ps_partitions_has(partitions, p) && core->node->partition_core[p] == core->index)
            ps_partitions_add(&g->partitions, p);
    g->next_feature = 1;
    core->migration_source = g;
    return MR_OK;
}

void ps_migration_source_fence(struct ps_core *core, uint64_t move)
{
    struct ps_migration_source *g = give_find(core, move);
    if (g != NULL)
        g->is_held = true;
}

void ps_migration_source_end(struct ps_core *core, uint64_t move)
{
    struct ps_migration_source *g = give_find(core, move);
    if (g == NULL)
        return;
    for (uint32_t id = 1; id <= core->feature_id_max; id++)
        if (core->features[id] != NULL && core->features[id]->table != NULL)
            ps_table_copy_end(core->features[id]->table);
    free(g->records);
    free(g);
    core->migration_source = NULL;
}

/* ---- records into the block ---- */

/* Room for a record's bytes; NULL: there is none. */
static uint8_t *give_add(struct ps_migration_source *g, const struct ps_record *record)
{
    const uint32_t bytes = (uint32_t)mr_padded(record->bytes);
    if (sizeof(*record) + bytes > sizeof(g->block) - g->block_bytes)
        return NULL;
    uint8_t *to = g->block + g->block_bytes;
    memcpy(to, record, sizeof(*record));
    memset(to + sizeof(*record) + record->bytes, 0, bytes - record->bytes);
    g->block_bytes += (uint32_t)sizeof(*record) + bytes;
    return to + sizeof(*record);
}

/* How many rows fit into the block, PS_CUT_EMIT_ROWS_MAX at most. */
static uint32_t rows_that_fit(const struct ps_migration_source *g, uint32_t row_bytes)
{
    const size_t left = sizeof(g->block) - g->block_bytes;
    const size_t rows = left < sizeof(struct ps_record) + 8
                            ? 0
                            : (left - sizeof(struct ps_record) - 8) / (sizeof(uint64_t) + row_bytes);
    return rows < PS_CUT_EMIT_ROWS_MAX ? (uint32_t)rows : PS_CUT_EMIT_ROWS_MAX;
}

static void add_rows(struct ps_migration_source *g, const struct ps_feature *f)
{
    const struct ps_copy_part *part = &g->part;
    const uint32_t row_bytes = ps_table_stored_row_bytes(f->table);
    const struct ps_record record = {.kind = PS_RECORD_ROWS,
                                     .feature = f->id,
                                     .count = part->count,
                                     .row_bytes = row_bytes,
                                     .bytes = part->count * (sizeof(uint64_t) + (uint64_t)row_bytes)};
    uint8_t *to = give_add(g, &record);
    memcpy(to, part->keys, part->count * sizeof(uint64_t));
    to += part->count * sizeof(uint64_t);
    for (uint32_t i = 0; i < part->count; i++)
        memcpy(to + (size_t)i * row_bytes, part->rows[i], row_bytes);
}

static void add_gone(struct ps_migration_source *g, const struct ps_feature *f)
{
    const struct ps_record record = {.kind = PS_RECORD_GONE,
                                     .feature = f->id,
                                     .count = g->part.count,
                                     .bytes = g->part.count * sizeof(uint64_t)};
    memcpy(give_add(g, &record), g->part.keys, record.bytes);
}

static void add_filter(struct ps_migration_source *g, const struct ps_feature *f)
{
    const struct ps_record record = {.kind = PS_RECORD_SIGHTINGS,
                                     .feature = f->id,
                                     .count = g->part.filter_bytes,
                                     .row_bytes = g->part.first_line,
                                     .offset = g->part.partition,
                                     .bytes = g->part.filter_bytes};
    memcpy(give_add(g, &record), g->part.filter, record.bytes);
}

/* ---- the stages; each returns whether the next thing can be looked at: false, the block is full, or the
 * budget is used up ---- */

/* What must fit, whatever comes next. */
static bool has_room(const struct ps_migration_source *g, const struct ps_table *t)
{
    const size_t left = sizeof(g->block) - g->block_bytes;
    return rows_that_fit(g, ps_table_stored_row_bytes(t)) > 0 &&
           left >= sizeof(struct ps_record) + (uint32_t)mr_padded(PS_FILTER_PIECE_BYTES_MAX);
}

/* All of a table that has changed. */
static bool give_rows(struct ps_migration_source *g, struct ps_feature *f, uint64_t *budget_bytes)
{
    if (!ps_table_copy_runs(f->table) && ps_table_copy_begin(f->table, &g->partitions) != MR_OK)
        g->is_lost = true;
    while (!g->is_lost) {
        if (*budget_bytes == 0 || !has_room(g, f->table))
            return false;
        g->is_first |= ps_table_copy_is_first(f->table);
        const enum ps_copy_kind kind = ps_table_copy_next(
            f->table, rows_that_fit(g, ps_table_stored_row_bytes(f->table)), &g->part, budget_bytes);
        if (kind == PS_COPY_NONE)
            break;
        g->pass_gave = true;
        (kind == PS_COPY_ROWS ? add_rows : kind == PS_COPY_GONE ? add_gone : add_filter)(g, f);
    }
    g->is_lost |= ps_table_copy_runs(f->table) && ps_table_copy_is_lost(f->table);
    return g->is_lost || *budget_bytes > 0;
}

/* A pass over the tables; then the next one, until nothing is left. */
static bool give_tables(struct ps_core *core, struct ps_migration_source *g, uint64_t *budget_bytes)
{
    if (g->next_feature == 1 && !g->pass_gave)
        g->pass_is_held = g->is_held;
    for (; g->next_feature <= core->feature_id_max; g->next_feature++) {
        struct ps_feature *f = core->features[g->next_feature];
        if (f != NULL && f->table != NULL && !give_rows(g, f, budget_bytes))
            return false;
    }
    const bool is_through = !g->pass_gave && g->pass_is_held;
    const bool goes_on = g->pass_gave && g->is_held;
    g->next_feature = 1;
    g->pass_gave = false;
    g->pass_is_held = g->is_held;
    if (is_through)
        g->stage = VARIABLES;
    return is_through || goes_on;
}

#define PIECE_BYTES (64u << 10)

static bool give_range(struct ps_migration_source *g, const struct ps_feature *f, uint64_t *budget_bytes)
{
    const struct ps_variable *v = f->ranges[g->next_range].variable;
    const uint64_t total = ps_variable_stored_bytes(v);
    while (g->range_bytes < total) {
        const uint64_t left = total - g->range_bytes;
        const struct ps_record record = {.kind = PS_RECORD_VARIABLE,
                                         .feature = f->id,
                                         .count = (uint32_t)(left < PIECE_BYTES ? left : PIECE_BYTES),
                                         .offset = g->next_range * mr_rule_range_bytes(&f->feature) +
                                                   g->range_bytes,
                                         .bytes = left < PIECE_BYTES ? left : PIECE_BYTES};
        uint8_t *to = *budget_bytes > 0 ? give_add(g, &record) : NULL;
        if (to == NULL)
            return false;
        ps_variable_store(v, g->range_bytes, record.bytes, to);
        g->range_bytes += record.bytes;
        *budget_bytes -= record.bytes < *budget_bytes ? record.bytes : *budget_bytes;
    }
    g->range_bytes = 0;
    return true;
}

static bool give_variable(struct ps_migration_source *g, const struct ps_feature *f, uint64_t *budget_bytes)
{
    for (; g->next_range < f->range_count; g->next_range++) {
        const struct ps_range *r = &f->ranges[g->next_range];
        if (r->variable != NULL && ps_partitions_has(&g->partitions, r->partition) &&
            !give_range(g, f, budget_bytes))
            return false;
    }
    return true;
}

/* Copies the records of what was applied to the partitions. */
static bool copy_records(struct ps_core *core, struct ps_migration_source *g)
{
    const struct ps_records records = ps_core_records(core);
    g->record_bytes = ps_records_export(&records, &g->partitions, NULL);
    g->records = malloc(g->record_bytes + 1);
    if (g->records != NULL)
        (void)ps_records_export(&records, &g->partitions, g->records);
    return g->records != NULL;
}

static bool give_variables(struct ps_core *core, struct ps_migration_source *g, uint64_t *budget_bytes)
{
    for (; g->next_feature <= core->feature_id_max; g->next_feature++) {
        const struct ps_feature *f = core->features[g->next_feature];
        if (f != NULL && !give_variable(g, f, budget_bytes))
            return false;
        g->next_range = 0; /* of one that was dropped between two blocks, some was given */
        g->range_bytes = 0;
    }
    g->next_feature = 1;
    g->stage = RECORDS;
    if (!copy_records(core, g))
        g->is_lost = true;
    return true;
}

/* In pieces: what belongs together is put together again by the taker. */
static bool give_records(struct ps_migration_source *g)
{
    while (g->records_given < g->record_bytes) {
        const size_t left = g->record_bytes - g->records_given;
        const struct ps_record record = {.kind = PS_MOVE_RECORD,
                                         .count = (uint32_t)(left < PIECE_BYTES ? left : PIECE_BYTES),
                                         .offset = g->records_given,
                                         .bytes = left < PIECE_BYTES ? left : PIECE_BYTES};
        uint8_t *to = give_add(g, &record);
        if (to == NULL)
            return false;
        memcpy(to, g->records + g->records_given, record.bytes);
        g->records_given += record.bytes;
    }
    g->stage = ALL;
    return true;
}

/* Returns whether there may be more for this block, with the budget that is left. */
static bool give_some(struct ps_core *core, struct ps_migration_source *g, uint64_t *budget_bytes)
{
    switch (g->stage) {
    case ROWS:
        return give_tables(core, g, budget_bytes);
    case VARIABLES:
        return give_variables(core, g, budget_bytes);
    case RECORDS:
        return give_records(g);
    default:
        return false;
    }
}

/* ---- blocks ---- */

static uint64_t left_bytes(const struct ps_core *core)
{
    uint64_t bytes = 0;
    for (uint32_t id = 1; id <= core->feature_id_max; id++) {
        const struct ps_feature *f = core->features[id];
        if (f != NULL && f->table != NULL && ps_table_copy_runs(f->table))
            bytes += ps_table_copy_left(f->table) * (sizeof(uint64_t) + ps_table_stored_row_bytes(f->table));
    }
    return bytes;
}

/* A core that has a cut in progress gives nothing: both use the rows' marks. */
static bool is_ready(const struct ps_core *core, uint64_t move)
{
    return give_find(core, move) != NULL && move != 0 && core->save.writer == NULL;
}

static void describe(const struct ps_core *core, const struct ps_migration_source *g,
                     struct ps_migration_block *out)
{
    *out = (struct ps_migration_block){.bytes = g->block,
                                       .byte_count = g->is_lost ? 0 : g->block_bytes,
                                       .state = g->is_lost        ? MR_MOVE_LOST
                                                : g->stage == ALL ? MR_MOVE_ALL
                                                                  : MR_MOVE_MORE,
                                       .is_first = g->is_first,
                                       .left_bytes = left_bytes(core)};
}

bool ps_migration_source_read(struct ps_core *core, uint64_t move, uint64_t position, uint64_t budget_bytes,
                              struct ps_migration_block *out)
{
    *out = (struct ps_migration_block){.state = MR_MOVE_NOT_READY};
    if (!is_ready(core, move))
        return true;
    struct ps_migration_source *g = core->migration_source;
    const bool is_next = position == g->position + 1 && !g->is_making;
    g->is_lost |= !is_next && position != g->position;
    if (is_next) {
        g->position = position;
        g->is_making = true;
        g->is_first = false;
        g->block_bytes = 0;
    }
    uint64_t left = budget_bytes;
    while (g->is_making && !g->is_lost && left > 0 && give_some(core, g, &left)) {
    }
    if (g->is_making && !g->is_lost && left == 0)
        return false;
    g->is_making = false;
    describe(core, g, out);
    return true;
}
