#include "ps/save/save.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/optimizer/named_parameters.h"
#include "dataplane/optimizer/rule.h"
#include "dataplane/wire/base/bytes.h"
#include "dataplane/wire/format/capability.h"
#include "ps/core/core.h"
#include "ps/table/occurrence_filter.h"

#define TOMBSTONE_RECORD_KEYS 1024u /* at most */
/* Of a variable or parameter per record: small against a block, so little is wasted. */
#define PIECE_BYTES (64u << 10)

/* The result of a step of the cursor. */
enum went {
    WENT_ON,
    NO_ROOM, /* in the writer's buffers: nothing was written */
    THROUGH, /* there is no more of it */
};

/* ---- rows ---- */

static void write_rows(struct ps_save *save, const struct ps_feature *f, uint32_t row_bytes,
                       const uint64_t *keys, const uint8_t *const *rows, uint32_t count)
{
    struct ps_record record = {.kind = PS_RECORD_ROWS,
                               .feature = f->id,
                               .count = count,
                               .row_bytes = row_bytes,
                               .bytes = count * (sizeof(uint64_t) + (uint64_t)row_bytes)};
    uint8_t *to = ps_writer_append(save->writer, f->core->index, &record);
    if (to == NULL) {
        assert(ps_writer_failed(save->writer)); /* the caller has checked that there is room */
        return;
    }
    memcpy(to, keys, count * sizeof(uint64_t));
    to += count * sizeof(uint64_t);
    for (uint32_t i = 0; i < count; i++)
        memcpy(to + (size_t)i * row_bytes, rows[i], row_bytes);
}

static void emit(void *self, struct ps_table *t, const uint64_t *keys, const uint8_t *const *rows,
                 uint32_t count)
{
    const struct ps_feature *f = self;
    uint32_t row_bytes = ps_table_stored_row_bytes(t);
    if (!f->core->save.in_step)
        ps_save_pace_called(&f->core->save.pace, (uint64_t)count * PS_SAVE_ROW_NS);
    for (uint32_t i = 0; i < count; i += PS_SAVE_RECORD_ROWS) {
        uint32_t n = count - i < PS_SAVE_RECORD_ROWS ? count - i : PS_SAVE_RECORD_ROWS;
        write_rows(&f->core->save, f, row_bytes, keys + i, rows + i, n);
    }
}

/* How many bytes `rows` rows take at most, however they are split into records. A record never spans blocks,
 * so each block may lose up to a record at its end. */
static uint64_t rows_need_bytes(uint64_t rows, uint32_t row_bytes)
{
    uint64_t per_row = sizeof(struct ps_record) + sizeof(uint64_t) + mr_padded(row_bytes) + 8;
    uint64_t record_max =
        sizeof(struct ps_record) + PS_SAVE_RECORD_ROWS * (sizeof(uint64_t) + (uint64_t)row_bytes) + 8;
    uint64_t bytes = rows * per_row;
    uint64_t blocks = bytes / (PS_BLOCK_BYTES - 2 * record_max) + 2;
    return rows == 0 ? 0 : bytes + blocks * record_max;
}

/* Whether there is room beside what is reserved for pushes in slices, and what a push that was held back
 * waits for. */
static bool has_room(void *self, const struct ps_table *t, uint32_t rows)
{
    const struct ps_feature *f = self;
    const struct ps_save *save = &f->core->save;
    uint64_t need_bytes = rows_need_bytes(rows, ps_table_stored_row_bytes(t));
    uint64_t wanted_bytes = dp_now_us() < save->wanted_until_us ? save->wanted_bytes : 0;
    return ps_writer_free_bytes(save->writer, f->core->index) >=
           save->reserved_bytes + wanted_bytes + need_bytes;
}

/* ---- records, copied at the cut ---- */

static bool copy_begin(struct ps_core *core, struct ps_save *save)
{
    const struct ps_records records = ps_core_records(core);
    const uint32_t cores = core->node->core_count;
    save->copy_bytes = ps_records_write(&records, core->index, cores, NULL);
    save->copy = malloc(save->copy_bytes + 1);
    if (save->copy == NULL)
        return false;
    ps_records_write(&records, core->index, cores, save->copy);
    return true;
}

/* ---- variables: read where they are, or from a copy made before a change ---- */

static uint64_t left_of(const struct ps_range *r)
{
    return ps_variable_stored_bytes(r->variable) - r->cut_bytes;
}

void ps_save_range_end(struct ps_core *core, struct ps_range *r)
{
    if (r->cut_copy != NULL)
        core->save.variable_copy_bytes -= r->cut_copy_bytes;
    free(r->cut_copy);
    r->cut_copy = NULL;
    r->in_cut = false;
}

bool ps_save_range_ready(struct ps_core *core, struct ps_range *r)
{
    struct ps_save *save = &core->save;
    if (!r->in_cut || r->cut_copy != NULL)
        return true;
    uint64_t bytes = left_of(r);
    if (save->variable_copy_bytes + bytes > PS_SAVE_VARIABLES_BYTES)
        return false;
    r->cut_copy = malloc(bytes);
    if (r->cut_copy == NULL)
        return false;
    ps_variable_store(r->variable, r->cut_bytes, bytes, r->cut_copy);
    r->cut_copy_bytes = bytes;
    save->variable_copy_bytes += bytes;
    return true;
}

/* ---- begin and end ---- */

/* The features of a cut: those with these numbers, or all that the core has. */
struct chosen {
    const uint16_t *ids; /* NULL: all */
    uint32_t count;
};

static struct chosen choose_all(const struct ps_core *core)
{
    return (struct chosen){.count = core->feature_id_max};
}

/* NULL: there is none of that number. */
static struct ps_feature *chosen_feature(const struct ps_core *core, const struct chosen *chosen, uint32_t i)
{
    return core->features[chosen->ids != NULL ? chosen->ids[i] : i + 1];
}

/* Begins the part of the cut that may fail, for all features or none. */
static bool filters_begin(struct ps_core *core, const struct chosen *chosen, enum ps_save_kind kind)
{
    for (uint32_t i = 0; i < chosen->count; i++) {
        struct ps_feature *f = chosen_feature(core, chosen, i);
        if (f == NULL || f->table == NULL || ps_table_filter_cut_begin(f->table, kind) == MR_OK)
            continue;
        while (i-- > 0) {
            f = chosen_feature(core, chosen, i);
            if (f != NULL && f->table != NULL)
                ps_table_cut_abort(f->table);
        }
        return false;
    }
    return true;
}

/* Begins the cut of a feature, and returns about how many bytes it will write. */
static uint64_t feature_begin(struct ps_feature *f, enum ps_save_kind kind)
{
    f->in_cut = f->table != NULL;
    f->cut_range = 0;
    for (uint32_t i = 0; i < f->range_count; i++) {
        f->ranges[i].in_cut =
            f->ranges[i].variable != NULL && !ps_partitions_has(&f->core->followed, f->ranges[i].partition);
        f->ranges[i].cut_bytes = 0;
    }
    if (f->table == NULL)
        return ps_feature_variable_bytes(f);
    f->cut = (struct ps_cut){.self = f, .emit = emit, .has_room = has_room};
    uint64_t rows = ps_table_cut_begin(f->table, &f->cut, kind);
    return rows * (sizeof(uint64_t) + ps_table_stored_row_bytes(f->table)) +
           rows / PS_SAVE_RECORD_ROWS * sizeof(struct ps_record) +
           ps_table_cut_tombstones_left(f->table) * sizeof(uint64_t) + ps_table_filter_cut_bytes(f->table);
}

static struct ps_save begin_save(const struct ps_core *core, struct ps_writer *writer)
{
    assert(core->save.writer == NULL && core->coop_tasks.running == NULL);
    return (struct ps_save){
        .writer = writer,
        .next_feature = 1,
        .capacity_bytes = ps_writer_free_bytes(writer, core->index),
        .pace = ps_save_pace_start((uint32_t)core->node->config->checkpoint_busy_share_percent, 0, 0)};
}

/* Begins the cut of the features, which cannot fail. Returns about how many bytes the core will write. */
static uint64_t cut_begin(struct ps_core *core, const struct ps_save *begun, const struct chosen *chosen,
                          enum ps_save_kind kind)
{
    uint64_t bytes = begun->copy_bytes;
    core->save = *begun;
    for (uint32_t i = 0; i < chosen->count; i++) {
        struct ps_feature *f = chosen_feature(core, chosen, i);
        if (f != NULL)
            bytes += feature_begin(f, kind);
    }
    ps_writer_expect(begun->writer, core->index, bytes);
    return bytes;
}

enum mr_status ps_save_begin(struct ps_core *core, struct ps_writer *writer, enum ps_save_kind kind,
                             uint64_t *bytes)
{
    struct ps_save begun = begin_save(core, writer);
    const struct chosen all = choose_all(core);
    assert(kind == PS_SAVE_FULL || ps_save_delta_possible(core));
    if (!copy_begin(core, &begun) || !filters_begin(core, &all, kind)) {
        free(begun.copy);
        return MR_OUT_OF_MEMORY;
    }
    ps_pushes_cut(core->pushes);
    *bytes = cut_begin(core, &begun, &all, kind);
    core->marks_hold = true;
    return MR_OK;
}

enum mr_status ps_save_begin_some(struct ps_core *core, struct ps_writer *writer, const uint16_t *ids,
                                  uint32_t count, uint64_t *bytes)
{
    const struct ps_save begun = begin_save(core, writer);
    const struct chosen chosen = {ids, count};
    if (!filters_begin(core, &chosen, PS_SAVE_FULL))
        return MR_OUT_OF_MEMORY;
    *bytes = cut_begin(core, &begun, &chosen, PS_SAVE_FULL);
    core->marks_hold = false;
    return MR_OK;
}

void ps_save_parameters(struct ps_core *core, const struct mr_named_cut *parameters, uint64_t *bytes)
{
    core->save.parameters = parameters;
    for (uint32_t i = 0; i < parameters->count; i++)
        *bytes += parameters->items[i].shape.bytes;
    ps_writer_expect(core->save.writer, core->index, *bytes);
}

static void end_feature(struct ps_core *core, struct ps_feature *f)
{
    if (f->in_cut) {
        core->marks_hold = false; /* not everything is written */
        ps_table_cut_abort(f->table);
        f->in_cut = false;
    }
    for (uint32_t i = f->cut_range; i < f->range_count; i++) {
        if (!f->ranges[i].in_cut)
            continue;
        core->marks_hold = false;
        ps_save_range_end(core, &f->ranges[i]);
    }
}

void ps_save_end(struct ps_core *core)
{
    for (uint32_t id = 1; id <= core->feature_id_max; id++)
        if (core->features[id] != NULL)
            end_feature(core, core->features[id]);
    free(core->save.copy);
    core->save = (struct ps_save){0};
}

/* ---- marks of what changed ---- */

/* Returns the name of the first table for which has() is false; NULL: there is none. */
static const char *table_without(const struct ps_core *core, bool (*has)(const struct ps_table *t))
{
    for (uint32_t id = 1; id <= core->feature_id_max; id++) {
        const struct ps_feature *f = core->features[id];
        if (f != NULL && f->table != NULL && !has(f->table))
            return f->feature.name;
    }
    return NULL;
}

enum ps_no_delta ps_save_no_delta(const struct ps_core *core, const char **table)
{
    bool keeps_track = core->tombstone_arena != NULL;
    *table = keeps_track ? table_without(core, ps_table_keeps_marks) : NULL;
    if (*table != NULL)
        return PS_NO_DELTA_NO_MEMORY;
    if (!keeps_track || !core->marks_hold || core->save.writer != NULL)
        return PS_NO_DELTA_UNKNOWN;
    *table = table_without(core, ps_table_delta_possible);
    return *table != NULL ? PS_NO_DELTA_ROWS_WENT : PS_DELTA_POSSIBLE;
}

bool ps_save_delta_possible(const struct ps_core *core)
{
    const char *table;
    return ps_save_no_delta(core, &table) == PS_DELTA_POSSIBLE;
}

void ps_save_marks_lost(struct ps_core *core)
{
    core->marks_hold = false;
}

void ps_save_is_as_saved(struct ps_core *core)
{
    core->marks_hold = true;
}

/* ---- room in the writer's buffers ---- */

uint64_t ps_save_need_bytes(const struct ps_core *core, const struct ps_feature *feature, uint32_t key_count)
{
    if (core->save.writer == NULL || !feature->in_cut)
        return 0;
    return rows_need_bytes(ps_table_cut_rows_max(feature->table, key_count),
                           ps_table_stored_row_bytes(feature->table));
}

bool ps_save_has_room(struct ps_core *core, uint64_t need_bytes, uint64_t now_us)
{
    struct ps_save *save = &core->save;
    if (need_bytes == 0 ||
        ps_writer_free_bytes(save->writer, core->index) >= save->reserved_bytes + need_bytes ||
        ps_writer_failed(save->writer))
        return true;
    ps_writer_push_waits(save->writer, core->index, now_us);
    /* A push that needs more than the buffers hold beside the one being filled waits for the end of the cut:
     * the cursor must not wait for it. */
    if (need_bytes + PS_BLOCK_BYTES <= save->capacity_bytes) {
        save->wanted_bytes = need_bytes;
        save->wanted_until_us = now_us + PS_SAVE_HOLD_CURSOR_US;
    }
    return false;
}

/* ---- the cursor ---- */

/* It leaves room for the next pushes, and for one that waits for more than that. */
static bool cursor_has_room(const struct ps_core *core, uint64_t need_bytes, uint64_t now_us)
{
    const struct ps_save *save = &core->save;
    uint64_t left = save->capacity_bytes / PS_SAVE_ROOM_SHARE;
    if (now_us < save->wanted_until_us && save->wanted_bytes > left)
        left = save->wanted_bytes;
    return ps_writer_free_bytes(save->writer, core->index) >= save->reserved_bytes + left + need_bytes;
}

/* ps_writer_append() for the cursor, which leaves the room that pushes wait for. NULL when there is no
 * more. */
static uint8_t *append(struct ps_core *core, const struct ps_record *record, uint64_t now_us)
{
    if (!cursor_has_room(core, sizeof(*record) + mr_padded(record->bytes), now_us))
        return NULL;
    return ps_writer_append(core->save.writer, core->index, record);
}

/* Writes one record of the copy. */
static enum went copy_step(struct ps_core *core, uint64_t now_us)
{
    struct ps_save *save = &core->save;
    struct ps_record record;
    if (save->copied_out_bytes == save->copy_bytes)
        return THROUGH;
    memcpy(&record, save->copy + save->copied_out_bytes, sizeof(record));
    uint8_t *to = append(core, &record, now_us);
    if (to == NULL)
        return NO_ROOM;
    if (record.kind == PS_RECORD_STREAM && record.row_bytes == PS_STREAM_PARTIALS)
        ps_writer_need(save->writer, core->index, MR_CAN(BATCH_RANGES));
    memcpy(to, save->copy + save->copied_out_bytes + sizeof(record), record.bytes);
    save->copied_out_bytes += sizeof(record) + mr_padded(record.bytes);
    return WENT_ON;
}

/* Writes a piece of a parameter, or of a state. */
static enum went parameter_step(struct ps_core *core, uint64_t now_us)
{
    struct ps_save *save = &core->save;
    const struct mr_named_cut *cut = save->parameters;
    while (cut != NULL && save->next_parameter < cut->count &&
           save->parameter_bytes == cut->items[save->next_parameter].shape.bytes) {
        save->parameter_bytes = 0;
        save->next_parameter++;
    }
    if (cut == NULL || save->next_parameter == cut->count)
        return THROUGH;
    const struct mr_named_item *item = &cut->items[save->next_parameter];
    const uint64_t left = item->shape.bytes - save->parameter_bytes;
    const uint64_t bytes = left < PIECE_BYTES ? left : PIECE_BYTES;
    const struct ps_record record = {.kind = PS_RECORD_PARAMETER,
                                     .feature = save->next_parameter,
                                     .count = (uint32_t)bytes,
                                     .offset = save->parameter_bytes,
                                     .bytes = bytes};
    uint8_t *to = append(core, &record, now_us);
    if (to == NULL)
        return NO_ROOM;
    memcpy(to, (const uint8_t *)mr_version_values(item->version) + save->parameter_bytes, bytes);
    save->parameter_bytes += bytes;
    return WENT_ON;
}

static void piece_read(const struct ps_range *r, uint64_t bytes, uint8_t *out)
{
    if (r->cut_copy != NULL) {
        uint64_t begins_at = ps_variable_stored_bytes(r->variable) - r->cut_copy_bytes;
        memcpy(out, r->cut_copy + (r->cut_bytes - begins_at), bytes);
    } else {
        ps_variable_store(r->variable, r->cut_bytes, bytes, out);
    }
}

static enum went variable_step(struct ps_core *core, struct ps_feature *f, uint64_t now_us)
{
    while (f->cut_range < f->range_count && !f->ranges[f->cut_range].in_cut)
        f->cut_range++;
    if (f->cut_range == f->range_count)
        return THROUGH;
    struct ps_range *r = &f->ranges[f->cut_range];
    uint64_t bytes = left_of(r) < PIECE_BYTES ? left_of(r) : PIECE_BYTES;
    struct ps_record record = {.kind = PS_RECORD_VARIABLE,
                               .feature = f->id,
                               .count = (uint32_t)bytes,
                               .offset = f->cut_range * mr_rule_range_bytes(&f->feature) + r->cut_bytes,
                               .bytes = bytes};
    uint8_t *to = append(core, &record, now_us);
    if (to == NULL)
        return NO_ROOM;
    piece_read(r, bytes, to);
    r->cut_bytes += bytes;
    if (left_of(r) == 0)
        ps_save_range_end(core, r);
    return WENT_ON;
}

static enum went tombstones_step(struct ps_core *core, struct ps_feature *f, uint64_t now_us)
{
    uint64_t left = ps_table_cut_tombstones_left(f->table);
    uint32_t count = left < TOMBSTONE_RECORD_KEYS ? (uint32_t)left : TOMBSTONE_RECORD_KEYS;
    if (count == 0)
        return THROUGH;
    struct ps_record record = {
        .kind = PS_RECORD_GONE, .feature = f->id, .count = count, .bytes = count * sizeof(uint64_t)};
    uint64_t *to = (uint64_t *)(void *)append(core, &record, now_us);
    if (to == NULL)
        return NO_ROOM;
    uint32_t taken = 0;
    while (taken < count)
        taken += ps_table_cut_take_tombstones(f->table, to + taken, count - taken);
    return WENT_ON;
}

static enum went filter_step(struct ps_core *core, struct ps_feature *f, uint64_t now_us)
{
    struct ps_occurrence_part piece;
    uint32_t bytes;
    if (!ps_table_filter_cut_next(f->table, &piece, &bytes))
        return THROUGH;
    struct ps_record record = {.kind = PS_RECORD_OBSERVATIONS,
                               .feature = f->id,
                               .count = bytes,
                               .row_bytes = piece.first_line,
                               .offset = piece.partition,
                               .bytes = bytes};
    uint8_t *to = append(core, &record, now_us);
    if (to == NULL)
        return NO_ROOM;
    ps_table_filter_cut_take(f->table, &piece, to);
    return WENT_ON;
}

static uint64_t step_need_bytes(const struct ps_feature *f, uint32_t bucket_count)
{
    return rows_need_bytes(ps_table_cut_step_rows_max(f->table, bucket_count),
                           ps_table_stored_row_bytes(f->table));
}

static enum went rows_step(struct ps_core *core, struct ps_feature *f, uint64_t now_us)
{
    uint32_t buckets = PS_SAVE_STEP_BUCKETS;
    if (!cursor_has_room(core, step_need_bytes(f, buckets), now_us)) {
        buckets = 1;
        if (!cursor_has_room(core, step_need_bytes(f, buckets), now_us))
            return NO_ROOM;
    }
    core->save.in_step = true;
    bool is_through = ps_table_cut_step(f->table, buckets);
    core->save.in_step = false;
    if (!is_through)
        return WENT_ON;
    f->in_cut = false;
    return THROUGH;
}

/* The cursor goes through all features once for each of these: first for what pushes may have to wait for, or
 * what takes memory. */
enum pass { PASS_VARIABLES, PASS_FILTERS, PASS_GONE, PASS_ROWS, PASS_COUNT };

static enum went feature_step(struct ps_core *core, struct ps_feature *f, uint64_t now_us)
{
    if (f != NULL && core->save.pass == PASS_VARIABLES)
        return variable_step(core, f, now_us);
    if (f == NULL || !f->in_cut)
        return THROUGH;
    switch ((enum pass)core->save.pass) {
    case PASS_FILTERS:
        return filter_step(core, f, now_us);
    case PASS_GONE:
        return tombstones_step(core, f, now_us);
    default:
        return rows_step(core, f, now_us);
    }
}

/* THROUGH: everything is written. */
static enum went cursor_step(struct ps_core *core, uint64_t now_us)
{
    struct ps_save *save = &core->save;
    enum went went = copy_step(core, now_us);
    if (went == THROUGH)
        went = parameter_step(core, now_us);
    while (went == THROUGH && save->pass < PASS_COUNT) {
        for (; went == THROUGH && save->next_feature <= core->feature_id_max;
             save->next_feature += went == THROUGH)
            went = feature_step(core, core->features[save->next_feature], now_us);
        if (went == THROUGH) {
            save->next_feature = 1;
            save->pass++;
        }
    }
    return went;
}

bool ps_save_step(struct ps_core *core, uint64_t now_us, uint64_t step_us)
{
    struct ps_writer *writer = core->save.writer;
    uint64_t end_us = dp_now_us() + step_us;
    do {
        enum went went = ps_writer_failed(writer) ? THROUGH : cursor_step(core, now_us);
        if (went == THROUGH) {
            ps_save_end(core);
            ps_writer_core_done(writer, core->index);
            return false;
        }
        if (went == NO_ROOM)
            return false;
    } while (dp_now_us() < end_us);
    return true;
}

/* What the core has done for others. */
static uint64_t other_work(const struct ps_core *core)
{
    const struct mr_wire_counters *wire = mr_endpoint_counters(core->ep);
    return wire->rx_packets + wire->tx_packets + core->counters.slices;
}

bool ps_save_poll(struct ps_core *core, uint64_t now_us)
{
    struct ps_save *save = &core->save;
    ps_save_pace_look(&save->pace, other_work(core), now_us);
    if (!ps_save_pace_may_step(&save->pace, now_us))
        return false;
    bool is_busy = ps_save_pace_is_busy(&save->pace, now_us);
    uint64_t start_us = dp_now_us();
    bool more = ps_save_step(core, now_us, is_busy ? PS_SAVE_STEP_BUSY_US : PS_SAVE_STEP_US);
    if (save->writer == NULL)
        return false;
    ps_save_pace_stepped(&save->pace, dp_now_us() - start_us, now_us);
    save->yielded = more && (is_busy || !save->yielded);
    return more && !save->yielded;
}
