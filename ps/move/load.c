#include "ps/move/load.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "dataplane/optimizer/rule.h"
#include "dataplane/wire/base/bytes.h"
#include "dataplane/wire/base/list.h"
#include "ps/checkpoint/checkpoint_format.h"
#include "ps/core/core.h"
#include "ps/move/copy_source.h"
#include "ps/move/migration_source.h"

/* A core loads so much at a time, some hundred rows if they are small, and looks after its calls between. */
#define SLICE_BYTES   (16u << 10)
#define POST_RETRY_NS 100000

struct ps_move_load {
    struct ps_node *node;
    const struct ps_partition_set *partitions;
    struct ps_move_block block;
    uint64_t rows;
    int wakes;
    _Atomic uint32_t left; /* cores that have not ended */
    atomic_bool has_told;  /* the last of them has, and added to `wakes` */
    struct load_part {
        struct dp_task task;
        struct ps_move_load *load;
        uint32_t at; /* of the block */
        enum mr_status status;
        char text[PS_CORE_TEXT_BYTES];
    } parts[];
};

/* With what it is about. */
static uint32_t whole_bytes(const struct ps_record *record)
{
    return (uint32_t)sizeof(*record) + (uint32_t)mr_padded(record->bytes);
}

/* The record at `at`; false: there is none that is whole. */
static bool record_at(const uint8_t *bytes, uint32_t byte_count, uint32_t at, struct ps_record *out)
{
    if (byte_count - at < sizeof(*out))
        return false;
    memcpy(out, bytes + at, sizeof(*out));
    return out->bytes <= byte_count && (uint32_t)mr_padded(out->bytes) <= byte_count - at - sizeof(*out);
}

/* ---- on a core ---- */

/* Of a copy, what the core still keeps one of. */
static bool is_own(const struct ps_core *core, const struct ps_move_load *l, uint32_t partition)
{
    return partition < MR_PARTITION_COUNT && core->node->partition_core[partition] == core->index &&
           ps_partitions_has(l->partitions, partition) &&
           (!l->block.is_copy || ps_partitions_has(&core->followed, partition));
}

static bool is_own_key(const struct ps_core *core, const struct ps_move_load *l, const struct ps_feature *f,
                       uint64_t key)
{
    return is_own(core, l, mr_partition_of(mr_key_hash(key, f->feature.seed)));
}

static enum mr_status no_memory(const struct ps_feature *f, enum mr_status status, char *text)
{
    if (status != MR_OK)
        (void)snprintf(text, PS_CORE_TEXT_BYTES, "%s: %s: raise memory.limit_mib", f->feature.name,
                       mr_status_text(status));
    return status;
}

static enum mr_status load_rows(struct ps_core *core, const struct ps_move_load *l, struct ps_feature *f,
                                const struct ps_record *record, const uint8_t *bytes, char *text)
{
    struct ps_stored_row rows[PS_CUT_EMIT_ROWS_MAX];
    const uint32_t row_bytes = ps_table_stored_row_bytes(f->table);
    const uint64_t *keys = (const uint64_t *)(const void *)bytes;
    uint32_t count = 0;
    enum mr_status status = MR_OK;
    if (record->row_bytes != row_bytes ||
        record->bytes != record->count * (sizeof(uint64_t) + (uint64_t)row_bytes)) {
        (void)snprintf(text, PS_CORE_TEXT_BYTES, "table %s: rows of %u bytes, not %u", f->feature.name,
                       record->row_bytes, row_bytes);
        return MR_BAD_MESSAGE;
    }
    ps_table_load_from(f->table, l->block.clock_s, core->now_s);
    for (uint32_t i = 0; i < record->count && status == MR_OK; i++) {
        if (is_own_key(core, l, f, keys[i]))
            rows[count++] = (struct ps_stored_row){keys[i], bytes + record->count * sizeof(uint64_t) +
                                                                (size_t)i * row_bytes};
        if (count == PS_CUT_EMIT_ROWS_MAX || i + 1 == record->count) {
            status = ps_table_load_rows(f->table, rows, count, l->block.is_first);
            count = 0;
        }
    }
    return no_memory(f, status, text);
}

static enum mr_status load_variable(const struct ps_core *core, const struct ps_move_load *l,
                                    struct ps_feature *f, const struct ps_record *record,
                                    const uint8_t *bytes, char *text)
{
    const uint64_t each = mr_rule_range_bytes(&f->feature), i = record->offset / each;
    if (i >= f->range_count) {
        (void)snprintf(text, PS_CORE_TEXT_BYTES, "variable %s: a piece lies beyond its end", f->feature.name);
        return MR_BAD_MESSAGE;
    }
    if (!is_own(core, l, f->ranges[i].partition))
        return MR_OK;
    const enum mr_status status = ps_feature_make_range(f, (uint32_t)i, text);
    if (l->block.is_copy && record->offset % each == 0)
        ps_feature_reload_range(f, (uint32_t)i);
    return status == MR_OK
               ? ps_feature_load_range(f, (uint32_t)i, record->offset % each, bytes, record->bytes, text)
               : status;
}

static enum mr_status load_of_table(struct ps_core *core, const struct ps_move_load *l, struct ps_feature *f,
                                    const struct ps_record *record, const uint8_t *bytes, char *text)
{
    const uint64_t *keys = (const uint64_t *)(const void *)bytes;
    switch (record->kind) {
    case PS_RECORD_ROWS:
        return load_rows(core, l, f, record, bytes, text);
    case PS_RECORD_GONE:
        for (uint32_t i = 0; i < record->bytes / sizeof(*keys); i++)
            if (is_own_key(core, l, f, keys[i]))
                ps_table_load_tombstone(f->table, keys[i]);
        return MR_OK;
    default:
        return !is_own(core, l, (uint32_t)record->offset)
                   ? MR_OK
                   : ps_table_filter_load(f->table, (uint32_t)record->offset, record->row_bytes, bytes,
                                          record->bytes, text, PS_CORE_TEXT_BYTES);
    }
}

static enum mr_status load_record(struct ps_core *core, const struct ps_move_load *l,
                                  const struct ps_record *record, const uint8_t *bytes, char *text)
{
    const bool is_skipped = l->block.is_saved || l->block.is_copy
                                ? ps_record_feature_kind(record->kind) == 0 ||
                                      (l->block.is_saved && !ps_record_counts(record->kind, l->block.is_last))
                                : record->kind == PS_MOVE_RECORD;
    if (is_skipped)
        return MR_OK;
    const bool is_of_table = record->kind == PS_RECORD_ROWS || record->kind == PS_RECORD_GONE ||
                             record->kind == PS_RECORD_OBSERVATIONS;
    struct ps_feature *f =
        record->feature <= MR_FEATURE_ID_MAX ? ps_core_feature(core, record->feature) : NULL;
    if (f == NULL && (l->block.is_saved || record->feature <= core->feature_id_max))
        return MR_OK; /* it was dropped */
    if (f == NULL || is_of_table != (f->table != NULL) ||
        (!is_of_table && record->kind != PS_RECORD_VARIABLE)) {
        (void)snprintf(text, PS_CORE_TEXT_BYTES, "a record of feature %u, which this node does not have",
                       record->feature);
        return MR_BAD_MESSAGE;
    }
    if (is_of_table)
        return load_of_table(core, l, f, record, bytes, text);
    return load_variable(core, l, f, record, bytes, text);
}

/* The core has loaded the block, or cannot. Both the load and what it wakes may be gone afterwards. */
static void end_part(struct ps_move_load *l)
{
    const uint64_t one = 1;
    if (atomic_fetch_sub_explicit(&l->left, 1, memory_order_acq_rel) > 1)
        return;
    if (l->wakes >= 0)
        (void)!write(l->wakes, &one, sizeof(one));
    atomic_store_explicit(&l->has_told, true, memory_order_release);
}

/* Between two slices of a call, if one is in progress: it is about other partitions. */
static void load_slice(struct dp_task *task, void *core_app, struct dp_core *dp_core)
{
    struct load_part *part = MR_CONTAINER(task, struct load_part, task);
    const struct ps_move_block *block = &part->load->block;
    struct ps_core *core = core_app;
    struct ps_record record;
    uint32_t loaded = 0;
    (void)dp_core;
    while (part->status == MR_OK && record_at(block->bytes, block->byte_count, part->at, &record)) {
        if (loaded >= SLICE_BYTES) {
            if (dp_post(core->node->dp, core->index, task))
                return;
            loaded = 0; /* others have more to do than fits: it goes on at once */
        }
        part->status =
            load_record(core, part->load, &record, block->bytes + part->at + sizeof(record), part->text);
        part->at += whole_bytes(&record);
        loaded += whole_bytes(&record);
    }
    end_part(part->load);
}

/* ---- on the caller's thread ---- */

/* Returns whether the block's records are whole, and counts rows. */
static bool count_rows(const struct ps_move_block *block, uint64_t *rows)
{
    struct ps_record record;
    uint32_t at = 0;
    *rows = 0;
    for (; record_at(block->bytes, block->byte_count, at, &record); at += whole_bytes(&record))
        *rows += record.kind == PS_RECORD_ROWS ? record.count : 0;
    return at == block->byte_count;
}

enum mr_status ps_move_load_begin(struct ps_node *node, const struct ps_partition_set *partitions,
                                  const struct ps_move_block *block, int wakes, struct ps_move_load **out,
                                  char *text)
{
    bool is_concerned[DP_CORES_MAX] = {false}; /* the core has some of the partitions */
    uint64_t rows;
    *out = NULL;
    if (!count_rows(block, &rows)) {
        (void)snprintf(text, PS_MOVE_TEXT_BYTES, "a block that is damaged");
        return MR_BAD_MESSAGE;
    }
    struct ps_move_load *l = calloc(1, sizeof(*l) + node->core_count * sizeof(l->parts[0]));
    if (l == NULL) {
        (void)snprintf(text, PS_MOVE_TEXT_BYTES, "no memory left");
        return MR_NO_MEMORY;
    }
    l->node = node;
    l->partitions = partitions;
    l->block = *block;
    l->rows = rows;
    l->wakes = wakes;
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        if (ps_partitions_has(partitions, p))
            is_concerned[node->partition_core[p]] = true;
    uint32_t concerned = 0;
    for (uint32_t i = 0; i < node->core_count; i++)
        concerned += is_concerned[i];
    atomic_init(&l->left, concerned);
    atomic_init(&l->has_told, concerned == 0);
    for (uint32_t i = 0; i < node->core_count; i++) {
        l->parts[i].task.run = load_slice;
        l->parts[i].load = l;
        while (is_concerned[i] && !dp_post(node->dp, i, &l->parts[i].task))
            (void)nanosleep(&(struct timespec){.tv_nsec = POST_RETRY_NS}, NULL);
    }
    *out = l;
    return MR_OK;
}

bool ps_move_load_has_ended(const struct ps_move_load *l)
{
    if (atomic_load_explicit(&l->left, memory_order_acquire) > 0)
        return false;
    while (!atomic_load_explicit(&l->has_told, memory_order_acquire)) /* the last core is about to */
        (void)sched_yield();
    return true;
}

enum mr_status ps_move_load_end(struct ps_move_load *l, uint64_t *rows, char *text)
{
    enum mr_status status = MR_OK;
    while (!ps_move_load_has_ended(l))
        (void)nanosleep(&(struct timespec){.tv_nsec = POST_RETRY_NS}, NULL);
    for (uint32_t i = 0; i < l->node->core_count && status == MR_OK; i++) {
        status = l->parts[i].status;
        if (status != MR_OK)
            (void)snprintf(text, PS_MOVE_TEXT_BYTES, "%s", l->parts[i].text);
    }
    *rows = l->rows;
    free(l);
    return status;
}

bool ps_move_collect(const struct ps_move_block *block, struct ps_move_collected *out)
{
    struct ps_record record;
    for (uint32_t at = 0; record_at(block->bytes, block->byte_count, at, &record);
         at += whole_bytes(&record)) {
        if (record.kind != PS_MOVE_RECORD)
            continue;
        if (record.offset != out->byte_count)
            return false;
        uint8_t *bytes = realloc(out->bytes, out->byte_count + record.bytes + 1);
        if (bytes == NULL)
            return false;
        memcpy(bytes + out->byte_count, block->bytes + at + sizeof(record), record.bytes);
        out->bytes = bytes;
        out->byte_count += record.bytes;
    }
    return true;
}

struct records {
    const struct ps_partition_set *partitions;
    const struct ps_move_collected *collected;
    bool is_saved;
    enum mr_status status[DP_CORES_MAX];
};

/* Those of the partitions that are to be this core's. */
static void load_records(struct ps_core *core, void *arg)
{
    struct records *r = arg;
    struct ps_records own = ps_core_records(core);
    struct ps_partition_set slice = {{0}};
    struct ps_partition_set others = {{0}};
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++) {
        if (core->node->partition_core[p] != core->index)
            continue;
        if (ps_partitions_has(r->partitions, p))
            ps_partitions_add(&slice, p);
        else if (ps_since_is_owned(core->owns.since[p]) || ps_partitions_has(&core->owns.arriving, p))
            ps_partitions_add(&others, p);
    }
    if (ps_partitions_empty(&slice))
        return; /* the status is MR_OK */
    ps_ownership_arrive(&core->owns, &slice);
    r->status[core->index] = (r->is_saved ? ps_records_import_saved : ps_records_import)(
        &own, &slice, &others, r->collected->bytes, r->collected->byte_count);
    if (core->copies != NULL)
        ps_copies_note_all(core);
}

enum mr_status ps_move_load_records(struct ps_node *node, const struct ps_partition_set *partitions,
                                    const struct ps_move_collected *records, bool is_saved, char *text)
{
    struct records r = {.partitions = partitions, .collected = records, .is_saved = is_saved};
    ps_node_each_core(node, load_records, &r);
    for (uint32_t i = 0; i < node->core_count; i++) {
        if (r.status[i] != MR_OK) {
            (void)snprintf(text, PS_MOVE_TEXT_BYTES, "records of batches and pushes: %s",
                           mr_status_text(r.status[i]));
            return r.status[i];
        }
    }
    return MR_OK;
}
