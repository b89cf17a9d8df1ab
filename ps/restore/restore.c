#include "ps/restore/restore.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/optimizer/rule.h"
#include "dataplane/wire/base/bytes.h"
#include "dataplane/wire/base/log.h"
#include "dataplane/wire/base/plural.h"
#include "ps/checkpoint/block_stream.h"
#include "ps/checkpoint/checkpoint_chain.h"
#include "ps/checkpoint/checkpoint_format.h"
#include "ps/core/core.h"
#include "ps/restore/applied_batches_merge.h"
#include "ps/restore/push_merge.h"

#define BLOCKS_MIN 4u /* that the cores look through at a time */
#define BLOCKS_MAX PS_STREAM_BATCH_MAX
#define ROUNDS     PS_STREAM_HELD_MAX
#define ROWS_MAX   8192u /* loaded together */

/* The records that a core loads: rows, removed keys, the occurrence filter and variables of the features in
 * its staging state, as far as it owns their partitions. */
struct core_load {
    struct ps_core *core;
    const struct ps_chain *chain;
    const bool *owns; /* see struct ps_restore_share */
    uint32_t part;    /* of the chain, that the blocks are of */
    bool named_only;  /* records of features that are not staged are skipped */
    bool makes_room;  /* the keys have no rows yet; see ps_table_load_rows() */
    char *text;       /* PS_RESTORE_TEXT_BYTES: what is wrong */
    /* rows that wait to be loaded together */
    const struct ps_feature *feature;
    uint32_t count;
    struct ps_stored_row rows[ROWS_MAX];
};

/* Blocks that the cores load together. */
struct round {
    struct loader *loader;
    const uint8_t *blocks[BLOCKS_MAX];
    uint32_t block_count;
    const struct ps_chain_link *link; /* that they are of */
    bool is_running;
    enum mr_status status[DP_CORES_MAX];
    struct ps_node_round work;
};

struct loader {
    struct ps_node *node;
    const struct ps_chain *chain;
    const struct ps_restore_share *share;
    bool named_only; /* only some of the checkpoint's features are staged, and no records */
    bool leaves_out; /* some of its features are not staged, but everything else is loaded */
    bool makes_room;
    _Atomic uint64_t *progress;
    uint32_t held;  /* rounds in flight at most: while the cores load one, the next one waits for them */
    uint32_t round; /* how many have begun */
    struct round rounds[ROUNDS];
    struct ps_saved_writers *writers;
    struct ps_applied_batches_merge *applied;
    struct ps_push_merge *pushes;
    struct ps_parameter_load *parameters;
    char *text;                /* of the caller */
    struct core_load *records; /* of each core */
    /* reported by each core */
    enum mr_status status[DP_CORES_MAX]; /* the first that is not MR_OK stays */
    char core_text[DP_CORES_MAX][PS_RESTORE_TEXT_BYTES];
};

/* ---- on a core ---- */

/* Whether the node is to have a partition, and the part has what counts of it. */
static bool is_taken(const struct core_load *r, uint32_t partition)
{
    return (r->owns == NULL || r->owns[partition]) && ps_chain_part_owns(r->chain, r->part, partition);
}

static bool is_own(const struct core_load *r, uint32_t partition)
{
    return r->core->node->partition_core[partition] == r->core->index && is_taken(r, partition);
}

static bool is_own_key(const struct core_load *r, const struct ps_feature *f, uint64_t key)
{
    return is_own(r, mr_partition_of(mr_key_hash(key, f->feature.seed)));
}

static enum mr_status no_memory(const struct ps_feature *f, enum mr_status status, char *text)
{
    snprintf(text, PS_RESTORE_TEXT_BYTES, "table %s: %s: raise memory.limit_mib", f->feature.name,
             mr_status_text(status));
    return status;
}

/* Loads the rows that wait. */
static enum mr_status flush_rows(struct core_load *r)
{
    uint32_t count = r->count;
    r->count = 0;
    if (count == 0)
        return MR_OK;
    enum mr_status status = ps_table_load_rows(r->feature->table, r->rows, count, r->makes_room);
    return status == MR_OK ? MR_OK : no_memory(r->feature, status, r->text);
}

static enum mr_status load_rows(struct core_load *r, const struct ps_feature *f,
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
    enum mr_status status = r->feature == f ? MR_OK : flush_rows(r);
    r->feature = f;
    for (uint32_t i = 0; i < record->count && status == MR_OK; i++) {
        if (!is_own_key(r, f, keys[i]))
            continue;
        r->rows[r->count++] = (struct ps_stored_row){keys[i], rows + (size_t)i * row_bytes};
        if (r->count == ROWS_MAX)
            status = flush_rows(r);
    }
    return status;
}

static void load_tombstones(const struct core_load *r, const struct ps_feature *f,
                            const struct ps_record *record, const uint8_t *bytes)
{
    const uint64_t *keys = (const uint64_t *)(const void *)bytes;
    for (uint32_t i = 0; i < record->count; i++)
        if (is_own_key(r, f, keys[i]))
            ps_table_load_tombstone(f->table, keys[i]);
}

static enum mr_status load_filter(const struct core_load *r, const struct ps_feature *f,
                                  const struct ps_record *record, const uint8_t *bytes, char *text)
{
    if (!is_own(r, (uint32_t)record->offset))
        return MR_OK;
    enum mr_status status = ps_table_filter_load(f->table, (uint32_t)record->offset, record->row_bytes, bytes,
                                                 record->bytes, text, PS_RESTORE_TEXT_BYTES);
    return status == MR_OUT_OF_MEMORY ? no_memory(f, status, text) : status;
}

/* By the variable's name in the checkpoint: a restore may give it another one. */
static uint32_t range_partition(const struct ps_chain *chain, uint32_t id, uint32_t range)
{
    const struct mr_feature *saved = ps_manifest_feature(ps_chain_manifest(chain), id);
    return saved != NULL ? mr_range_partition(saved->name, range) : 0;
}

static enum mr_status load_variable(const struct core_load *r, struct ps_feature *f,
                                    const struct ps_record *record, const uint8_t *bytes)
{
    const uint64_t each = mr_rule_range_bytes(&f->feature), i = record->offset / each;
    if (i >= f->range_count) {
        snprintf(r->text, PS_RESTORE_TEXT_BYTES, "variable %s: a piece lies beyond its end", f->feature.name);
        return MR_CHECKPOINT_CORRUPT;
    }
    const struct ps_range *range = &f->ranges[i];
    if (range->variable == NULL || !is_taken(r, range_partition(r->chain, record->feature, (uint32_t)i)))
        return MR_OK;
    const enum mr_status status =
        ps_feature_load_range(f, (uint32_t)i, record->offset % each, bytes, record->bytes, r->text);
    return status == MR_BAD_MESSAGE ? MR_CHECKPOINT_CORRUPT : status;
}

/* `bytes` must stay until the next flush. Records that the control thread loads are skipped. */
static enum mr_status take_record(struct core_load *r, const struct ps_record *record, const uint8_t *bytes)
{
    uint32_t wanted = ps_record_feature_kind(record->kind);
    if (wanted == 0)
        return MR_OK;
    struct ps_feature *f = ps_staging_feature(r->core, record->feature);
    if (f == NULL && r->named_only)
        return MR_OK; /* nobody asked for its feature */
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
        load_tombstones(r, f, record, bytes);
        return MR_OK;
    case PS_RECORD_OBSERVATIONS:
        return load_filter(r, f, record, bytes, r->text);
    default:
        return load_variable(r, f, record, bytes);
    }
}

struct block_load {
    struct core_load *records;
    bool is_last_link;
};

static enum mr_status load_record(void *arg, const struct ps_record *record, const uint8_t *bytes)
{
    const struct block_load *load = arg;
    return ps_record_counts(record->kind, load->is_last_link) ? take_record(load->records, record, bytes)
                                                              : MR_OK;
}

static void load_blocks(struct ps_core *core, void *arg)
{
    struct round *r = arg;
    struct loader *l = r->loader;
    struct core_load *records = &l->records[core->index];
    struct block_load load = {records, r->link->is_last};
    records->core = core;
    records->chain = l->chain;
    records->owns = l->share->owns;
    if (l->chain->cluster != NULL && records->part != r->link->part)
        ps_staging_load_from(core, ps_chain_part_last(l->chain, r->link->part)->manifest.clock_s);
    records->part = r->link->part;
    records->named_only = l->named_only || l->leaves_out;
    records->makes_room = l->makes_room && r->link->is_first;
    records->text = l->core_text[core->index];
    enum mr_status status = l->status[core->index];
    for (uint32_t i = 0; i < r->block_count && status == MR_OK; i++) {
        status = ps_block_each(r->blocks[i], load_record, &load);
        if (status == MR_OK)
            status = flush_rows(records);
    }
    l->status[core->index] = r->status[core->index] = status;
}

static bool is_whole(const struct loader *l, const struct ps_feature *f, uint32_t id)
{
    for (uint32_t i = 0; i < f->range_count; i++) {
        const struct ps_range *r = &f->ranges[i];
        if (r->variable != NULL && r->loaded_bytes != ps_variable_stored_bytes(r->variable) &&
            (l->share->owns == NULL || l->share->owns[range_partition(l->chain, id, i)]))
            return false;
    }
    return true;
}

/* Checks that every variable is complete. */
static void check_whole(struct ps_core *core, void *arg)
{
    struct loader *l = arg;
    for (uint32_t id = 1; id <= ps_staging_id_max(core); id++) {
        const struct ps_feature *f = ps_staging_feature(core, id);
        if (f != NULL && !is_whole(l, f, id)) {
            snprintf(l->core_text[core->index], PS_RESTORE_TEXT_BYTES, "variable %s is not whole",
                     f->feature.name);
            l->status[core->index] = MR_CHECKPOINT_CORRUPT;
        }
    }
}

/* Exchanges the staged state for the one that serves, and loads the records of batches and pushes into it. */
static void take_over(struct ps_core *core, void *arg)
{
    struct loader *l = arg;
    ps_staging_swap(core);
    char *text = l->core_text[core->index];
    enum mr_status status = ps_applied_batches_merge_load(l->applied, core, text);
    l->status[core->index] = status == MR_OK ? ps_push_merge_load(l->pushes, core, text) : status;
}

static void give_back(struct ps_core *core, void *arg)
{
    ps_staging_swap(core);
}

/* Makes the variables that the node is to have: the cores do not serve them yet. */
static void make_variables(struct ps_core *core, void *arg)
{
    struct loader *l = arg;
    for (uint32_t id = 1; id <= ps_staging_id_max(core) && l->status[core->index] == MR_OK; id++) {
        struct ps_feature *f = ps_staging_feature(core, id);
        for (uint32_t i = 0; f != NULL && i < f->range_count && l->status[core->index] == MR_OK; i++)
            if (l->share->owns[f->ranges[i].partition])
                l->status[core->index] = ps_feature_make_range(f, i, l->core_text[core->index]);
    }
}

/* ---- on the control thread ---- */

/* Returns the first failure that a core reports, or MR_OK. */
static enum mr_status first_failure(const struct loader *l, const enum mr_status *status, char *text)
{
    for (uint32_t i = 0; i < l->node->core_count; i++) {
        if (status[i] != MR_OK) {
            snprintf(text, PS_RESTORE_TEXT_BYTES, "%s", l->core_text[i]);
            return status[i];
        }
    }
    return MR_OK;
}

static enum mr_status restore_run(struct loader *l, void (*task)(struct ps_core *core, void *arg), char *text)
{
    ps_node_each_core(l->node, task, l);
    return first_failure(l, l->status, text);
}

/* Collects the records of applied batches and numbered pushes, which are given to the cores once all are
 * read. */
static enum mr_status note_record(void *arg, const struct ps_record *record, const uint8_t *bytes)
{
    const struct round *r = arg;
    struct loader *l = r->loader;
    uint64_t bytes_read = sizeof(*record) + mr_padded(record->bytes);
    atomic_fetch_add_explicit(l->progress, bytes_read, memory_order_relaxed);
    const uint32_t part = r->link->part;
    if (!r->link->is_last)
        return MR_OK;
    if (record->kind == PS_RECORD_PARAMETER && l->parameters != NULL && part == l->share->own_part)
        return ps_parameter_load_add(l->parameters, record, bytes, l->text);
    if (l->named_only)
        return MR_OK;
    if (record->kind == PS_RECORD_STREAM || record->kind == PS_RECORD_CLIENT)
        return ps_applied_batches_merge_add(l->applied, part, record, bytes, l->text);
    return record->kind == PS_RECORD_PUSHES || record->kind == PS_RECORD_PUSH_STREAM
               ? ps_push_merge_add(l->pushes, part, record, bytes, l->text)
               : MR_OK;
}

static enum mr_status round_end(struct round *r)
{
    if (!r->is_running)
        return MR_OK;
    ps_node_wait(&r->work);
    r->is_running = false;
    return first_failure(r->loader, r->status, r->loader->text);
}

static enum mr_status end_all(struct loader *l)
{
    enum mr_status status = MR_OK;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        enum mr_status ended = round_end(&l->rounds[i]);
        status = status == MR_OK ? ended : status;
    }
    return status;
}

/* Gives the blocks to the cores, which load them now or after the previous ones, while this thread collects
 * its own records and waits for the previous round. */
static enum mr_status visit_blocks(void *arg, uint32_t link, const uint8_t *const *blocks, uint32_t count)
{
    struct loader *l = arg;
    struct round *r = &l->rounds[l->round++ % l->held];
    if (count == 0)
        return end_all(l);
    r->loader = l;
    memcpy(r->blocks, blocks, count * sizeof(*blocks));
    r->block_count = count;
    r->link = l->chain->links[link];
    r->is_running = true;
    ps_node_begin(l->node, &r->work, load_blocks, r);
    enum mr_status status = MR_OK;
    for (uint32_t i = 0; i < count && status == MR_OK; i++)
        status = ps_block_each(blocks[i], note_record, r);
    enum mr_status ended = round_end(&l->rounds[l->round % l->held]);
    return status == MR_OK ? ended : status;
}

static uint32_t blocks_at_a_time(const struct ps_node *node)
{
    uint32_t wanted = 2 * node->core_count;
    return wanted < BLOCKS_MIN ? BLOCKS_MIN : wanted < BLOCKS_MAX ? wanted : BLOCKS_MAX;
}

/* Puts the staged state into service on all cores, or on none. */
static enum mr_status take_over_everywhere(struct loader *l, char *text)
{
    enum mr_status status = ps_applied_batches_merge_finish(l->applied, text);
    if (status == MR_OK)
        status = ps_push_merge_finish(l->pushes, text);
    if (status != MR_OK)
        return status;
    status = restore_run(l, take_over, text);
    if (status != MR_OK) {
        ps_node_each_core(l->node, give_back, NULL);
        return status;
    }
    return MR_OK;
}

enum mr_status ps_restore_load(struct ps_node *node, struct ps_reader *reader,
                               const struct ps_restore_share *share, bool whole, bool leaves_out,
                               bool makes_room, struct ps_parameter_load *parameters,
                               _Atomic uint64_t *progress, char *text)
{
    enum mr_status status = MR_NO_MEMORY;
    struct loader *l = calloc(1, sizeof(*l));
    snprintf(text, PS_RESTORE_TEXT_BYTES, "no memory left");
    if (l == NULL)
        return status;
    l->node = node;
    l->chain = ps_reader_chain(reader);
    l->share = share;
    l->named_only = !whole;
    l->leaves_out = leaves_out;
    l->makes_room = makes_room;
    l->held = whole ? ROUNDS : 1;
    l->progress = progress;
    l->parameters = parameters;
    l->text = text;
    l->writers = ps_saved_writers_of_chain(l->chain, share->owns, share->own_part, node->core_count);
    l->applied = ps_applied_batches_merge_create(l->writers);
    l->pushes = ps_push_merge_create(l->writers, share->owns);
    l->records = calloc(node->core_count, sizeof(*l->records));
    if (l->writers == NULL || l->applied == NULL || l->pushes == NULL || l->records == NULL)
        goto out;
    for (uint32_t i = 0; i < node->core_count; i++)
        l->records[i].part = UINT32_MAX; /* none so far */
    text[0] = '\0';
    status = share->owns != NULL ? restore_run(l, make_variables, text) : MR_OK;
    if (status == MR_OK)
        status = ps_reader_blocks(reader, whole ? blocks_at_a_time(node) : 1, l->held, visit_blocks, l, text);
    if (status == MR_OK)
        status = restore_run(l, check_whole, text);
    if (status == MR_OK && parameters != NULL)
        status = ps_parameter_load_check(parameters, text);
    if (status == MR_OK && whole)
        status = take_over_everywhere(l, text);
out:
    free(l->records);
    ps_push_merge_destroy(l->pushes);
    ps_applied_batches_merge_destroy(l->applied);
    ps_saved_writers_free(l->writers);
    free(l);
    return status;
}
