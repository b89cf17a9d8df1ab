#include "ps/restore.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ps/core.h"
#include "ps/learnt_merge.h"
#include "ps/log.h"
#include "ps/push_merge.h"

#define BLOCKS_MIN 4u /* that the cores look through at a time */
#define BLOCKS_MAX 32u

struct loader {
    struct ps_node *node;
    bool named_only; /* not all of the checkpoint's features are staged, and no records */
    _Atomic uint64_t *progress;
    const uint8_t *const *blocks; /* being loaded */
    uint32_t block_count;
    struct ps_learnt_merge *learnt;
    struct ps_push_merge *pushes;
    char *text; /* of the caller */
    /* what each core says of them */
    enum mr_status status[DP_CORES_MAX];
    uint64_t lanes_forgotten[DP_CORES_MAX];
    char core_text[DP_CORES_MAX][PS_RESTORE_TEXT_BYTES];
};

/* ---- on a core ---- */

static enum mr_status load_rows(struct ps_core *core, const struct ps_feature *f,
                                const struct ps_record *record, const uint8_t *bytes, char *text)
{
    const struct ps_node *node = core->node;
    uint32_t row_bytes = ps_table_stored_row_bytes(f->table);
    if (record->row_bytes != row_bytes) {
        snprintf(text, PS_RESTORE_TEXT_BYTES, "table %s: rows of %u bytes, not %u", f->feature.name,
                 record->row_bytes, row_bytes);
        return MR_CHECKPOINT_CORRUPT;
    }
    const uint64_t *keys = (const uint64_t *)(const void *)bytes;
    const uint8_t *rows = bytes + record->count * sizeof(uint64_t);
    for (uint32_t i = 0; i < record->count; i++) {
        uint32_t partition = mr_partition_of(mr_key_hash(keys[i], f->feature.seed));
        if (node->partition_core[partition] != core->index) {
            continue;
        }
        enum mr_status status = ps_table_load(f->table, keys[i], rows + (size_t)i * row_bytes);
        if (status != MR_OK) {
            snprintf(text, PS_RESTORE_TEXT_BYTES, "table %s: %s: raise memory.limit_mib", f->feature.name,
                     mr_status_text(status));
            return status;
        }
    }
    return MR_OK;
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
        free(f->loading);
        f->loading = NULL;
    }
    return MR_OK;
}

struct core_load {
    struct ps_core *core;
    bool named_only;
    char *text;
};

static enum mr_status load_record(void *arg, const struct ps_record *record, const uint8_t *bytes)
{
    struct ps_core *core = ((struct core_load *)arg)->core;
    char *text = ((struct core_load *)arg)->text;
    if (record->kind != PS_RECORD_ROWS && record->kind != PS_RECORD_VARIABLE) {
        return MR_OK; /* the control thread's */
    }
    struct ps_feature *f = ps_staged_feature(core, record->feature);
    if (f == NULL && ((struct core_load *)arg)->named_only) {
        return MR_OK; /* of one that was not asked for */
    }
    bool is_known = f != NULL && (record->kind == PS_RECORD_ROWS) == (f->table != NULL);
    if (!is_known) {
        snprintf(text, PS_RESTORE_TEXT_BYTES, "a record belongs to feature %u, which is not in the manifest",
                 record->feature);
        return MR_CHECKPOINT_CORRUPT;
    }
    if (record->kind == PS_RECORD_ROWS) {
        return load_rows(core, f, record, bytes, text);
    }
    return f->variable != NULL ? load_variable(f, record, bytes, text) : MR_OK;
}

static void load_blocks(struct ps_core *core, void *arg)
{
    struct loader *l = arg;
    struct core_load load = {core, l->named_only, l->core_text[core->index]};
    enum mr_status status = MR_OK;
    for (uint32_t i = 0; i < l->block_count && status == MR_OK; i++) {
        status = ps_block_each(l->blocks[i], load_record, &load);
    }
    l->status[core->index] = status;
}

/* Every variable came whole. */
static void check_whole(struct ps_core *core, void *arg)
{
    struct loader *l = arg;
    for (uint32_t id = 1; id <= ps_staged_id_max(core); id++) {
        const struct ps_feature *f = ps_staged_feature(core, id);
        if (f != NULL && f->variable != NULL && f->loaded_bytes != ps_variable_stored_bytes(f->variable)) {
            snprintf(l->core_text[core->index], PS_RESTORE_TEXT_BYTES, "variable %s is not whole",
                     f->feature.name);
            l->status[core->index] = MR_CHECKPOINT_CORRUPT;
        }
    }
}

/* Into the records that were staged: they are the core's from here on. */
static void take_over(struct ps_core *core, void *arg)
{
    struct loader *l = arg;
    ps_staged_swap(core);
    char *text = l->core_text[core->index];
    uint64_t forgotten = ps_pushes_forgotten(core->pushes);
    enum mr_status status = ps_learnt_merge_load(l->learnt, core, text);
    l->status[core->index] = status == MR_OK ? ps_push_merge_load(l->pushes, core, text) : status;
    l->lanes_forgotten[core->index] = ps_pushes_forgotten(core->pushes) - forgotten;
}

static void give_back(struct ps_core *core, void *arg)
{
    (void)arg;
    ps_staged_swap(core);
}

/* ---- on the control thread ---- */

static enum mr_status run(struct loader *l, void (*task)(struct ps_core *core, void *arg), char *text)
{
    ps_node_each_core(l->node, task, l);
    for (uint32_t i = 0; i < l->node->core_count; i++) {
        if (l->status[i] != MR_OK) {
            snprintf(text, PS_RESTORE_TEXT_BYTES, "%s", l->core_text[i]);
            return l->status[i];
        }
    }
    return MR_OK;
}

/* Fewer cores have fewer places for the lanes of as many clients. */
static void tell_forgotten(const struct loader *l)
{
    uint64_t forgotten = 0;
    for (uint32_t i = 0; i < l->node->core_count; i++) {
        forgotten += l->lanes_forgotten[i];
    }
    if (forgotten > 0) {
        ps_log("restore: no room for %llu records of numbered pushes, those of clients that were silent for "
               "longest: what one "
               "of these sends again may be applied twice; restore onto more cores",
               (unsigned long long)forgotten);
    }
}

/* What the records say of learnt batches and numbered pushes; it is given out when all is here. */
static enum mr_status note_record(void *arg, const struct ps_record *record, const uint8_t *bytes)
{
    struct loader *l = arg;
    uint64_t bytes_read = sizeof(*record) + ((record->bytes + 7) & ~UINT64_C(7));
    atomic_fetch_add_explicit(l->progress, bytes_read, memory_order_relaxed);
    if (l->named_only) {
        return MR_OK;
    }
    if (record->kind == PS_RECORD_STREAM || record->kind == PS_RECORD_CLIENT) {
        return ps_learnt_merge_add(l->learnt, record, bytes, l->text);
    }
    return record->kind == PS_RECORD_PUSHES ? ps_push_merge_add(l->pushes, record, bytes, l->text) : MR_OK;
}

static enum mr_status visit_blocks(void *arg, const uint8_t *const *blocks, uint32_t count)
{
    struct loader *l = arg;
    l->blocks = blocks;
    l->block_count = count;
    enum mr_status status = run(l, load_blocks, l->text);
    for (uint32_t i = 0; i < count && status == MR_OK; i++) {
        status = ps_block_each(blocks[i], note_record, l);
    }
    return status;
}

static uint32_t blocks_at_a_time(const struct ps_node *node)
{
    uint32_t wanted = 2 * node->core_count;
    return wanted < BLOCKS_MIN ? BLOCKS_MIN : wanted < BLOCKS_MAX ? wanted : BLOCKS_MAX;
}

/* What was staged serves on all cores, or on none. */
static enum mr_status take_over_everywhere(struct loader *l, char *text)
{
    enum mr_status status = ps_learnt_merge_finish(l->learnt, text);
    if (status == MR_OK) {
        status = ps_push_merge_finish(l->pushes, text);
    }
    if (status != MR_OK) {
        return status;
    }
    status = run(l, take_over, text);
    if (status != MR_OK) {
        ps_node_each_core(l->node, give_back, NULL);
        return status;
    }
    tell_forgotten(l);
    return MR_OK;
}

enum mr_status ps_restore_load(struct ps_node *node, struct ps_reader *reader, bool whole,
                               _Atomic uint64_t *progress, char *text)
{
    enum mr_status status = MR_NO_MEMORY;
    struct loader *l = calloc(1, sizeof(*l));
    snprintf(text, PS_RESTORE_TEXT_BYTES, "no memory left");
    if (l == NULL) {
        return status;
    }
    l->node = node;
    l->named_only = !whole;
    l->progress = progress;
    l->text = text;
    l->learnt = ps_learnt_merge_create(ps_reader_core_count(reader), node->core_count);
    l->pushes = ps_push_merge_create(ps_reader_core_count(reader), node->core_count);
    if (l->learnt == NULL || l->pushes == NULL) {
        goto out;
    }
    text[0] = '\0';
    status = ps_reader_blocks(reader, whole ? blocks_at_a_time(node) : 1, visit_blocks, l, text);
    if (status == MR_OK) {
        status = run(l, check_whole, text);
    }
    if (status == MR_OK && whole) {
        status = take_over_everywhere(l, text);
    }
out:
    ps_push_merge_destroy(l->pushes);
    ps_learnt_merge_destroy(l->learnt);
    free(l);
    return status;
}
