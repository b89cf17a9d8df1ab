/* Full or delta: what the node knows of the last checkpoint, and what of it the cores can say. */
#include <stdio.h>
#include <string.h>
#include "ps/base/log.h"
#include "ps/checkpoint/checkpoint_manifest.h"
#include "ps/control/control_internal.h"

#define IDS_MAX 4096u /* of a directory, looked at for the parent */

#define WHY_BYTES 256u

struct marks {
    enum ps_no_delta lost[DP_CORES_MAX];
    char table[DP_CORES_MAX][MR_NAME_BYTES]; /* that it is about */
};

static void look_at_marks(struct ps_core *core, void *arg)
{
    struct marks *marks = arg;
    const char *table;
    marks->lost[core->index] = ps_save_no_delta(core, &table);
    snprintf(marks->table[core->index], MR_NAME_BYTES, "%s", table != NULL ? table : "");
}

static void lose_marks(struct ps_core *core, void *arg)
{
    (void)arg;
    ps_save_marks_lost(core);
}

static void begin_marks(struct ps_core *core, void *arg)
{
    (void)arg;
    ps_save_is_as_saved(core);
}

/* Why a core does not know what has changed, in `why`; NULL: all do. */
static const char *marks_lost(struct ps_control *c, char why[WHY_BYTES])
{
    struct marks marks;
    ps_node_each_core(c->node, look_at_marks, &marks);
    for (uint32_t i = 0; i < c->node->core_count; i++) {
        switch (marks.lost[i]) {
        case PS_DELTA_POSSIBLE:
            continue;
        case PS_NO_DELTA_NO_MEMORY:
            snprintf(
                why, WHY_BYTES,
                "table %s was made when there was no memory to note which of its sightings change: raise "
                "memory.limit_mib and start again",
                marks.table[i]);
            return why;
        case PS_NO_DELTA_ROWS_WENT:
            snprintf(why, WHY_BYTES,
                     "more rows of table %s went since the last checkpoint than were kept track of: save a "
                     "full one first",
                     marks.table[i]);
            return why;
        case PS_NO_DELTA_UNKNOWN:
            return "it is not known what has changed since the last checkpoint: save a full one first";
        }
    }
    return NULL;
}

static bool is_there(const char *directory, uint64_t id)
{
    uint64_t ids[IDS_MAX];
    uint32_t count = ps_checkpoint_list(NULL, directory, ids, IDS_MAX);
    for (uint32_t i = 0; i < count && i < IDS_MAX; i++) {
        if (ids[i] == id) {
            return true;
        }
    }
    return false;
}

enum mr_status ps_chain_choose(struct ps_control *c, const struct ps_save_request *request,
                               struct ps_save_entry *entry, char *text)
{
    const struct ps_config *config = c->node->config;
    const struct ps_chain *chain = &c->saves.chain;
    const struct ps_chain_limits limits = {(uint32_t)config->checkpoint_deltas,
                                           (uint32_t)config->checkpoint_delta_share_percent};
    char why[WHY_BYTES];
    bool may_be = limits.deltas_max > 0 && chain->is_open && request->wish != PS_WISH_FULL;
    const char *why_not = ps_chain_no_delta(chain, &limits, request->directory,
                                            may_be && is_there(request->directory, chain->last_id),
                                            may_be ? marks_lost(c, why) : NULL);
    if (request->wish == PS_WISH_DELTA && why_not != NULL) {
        snprintf(text, PS_CONTROL_TEXT_BYTES, "no delta is possible now: %s", why_not);
        return MR_INVALID_ARGUMENT;
    }
    bool is_wished = request->wish == PS_WISH_DELTA ||
                     (request->wish == PS_WISH_CONFIGURED && !ps_chain_is_long(chain, &limits));
    if (may_be && is_wished && why_not != NULL && strcmp(chain->directory, request->directory) == 0) {
        ps_log("a full checkpoint, as no delta is possible now: %s", why_not);
    }
    entry->is_delta = why_not == NULL && is_wished;
    entry->parent_id = entry->is_delta ? chain->last_id : 0;
    return MR_OK;
}

void ps_chain_ended(struct ps_control *c, const struct ps_save_entry *entry)
{
    if (entry != NULL && entry->status == MR_OK) {
        ps_chain_published(&c->saves.chain, c->saves.running.directory, entry->id, entry->is_delta,
                           entry->bytes);
        return;
    }
    ps_chain_break(
        &c->saves.chain,
        entry == NULL || entry->status != MR_CANCELLED
            ? "the last save failed, and what was known of changes is lost: save a full one first"
            : "the last save was cancelled, and what was known of changes is lost: save a full one "
              "first");
    ps_node_each_core(c->node, lose_marks, NULL);
}

/* ---- after a restore ---- */

static void restored_on_core(struct ps_core *core, void *arg)
{
    ps_core_set_step(core, *(const uint64_t *)arg);
    mr_endpoint_set_checkpoint(core->ep, 0);
}

/* The next save may be a delta on what was restored: the newest of the configured directory. */
static void follow(struct ps_control *c, const char *directory, const struct ps_reader *reader)
{
    uint32_t links = ps_reader_link_count(reader);
    uint64_t newest = 0, delta_bytes = 0;
    (void)ps_checkpoint_list(NULL, directory, &newest, 1);
    ps_chain_break(
        &c->saves.chain,
        "what was restored is not the newest checkpoint of checkpoint.directory: save a full one first");
    if (newest != ps_reader_id(reader) || strcmp(directory, c->node->config->checkpoint_directory) != 0) {
        return;
    }
    for (uint32_t i = 1; i < links; i++) {
        delta_bytes += ps_manifest_block_bytes(ps_reader_manifest(reader, i));
    }
    ps_chain_restored(&c->saves.chain, directory, newest, links - 1,
                      ps_manifest_block_bytes(ps_reader_manifest(reader, 0)), delta_bytes);
    ps_chain_set_hash(&c->saves.chain, ps_reader_manifest(reader, links - 1)->hash);
    ps_node_each_core(c->node, begin_marks, NULL);
}

void ps_control_restored_some(struct ps_control *c)
{
    ps_chain_break(&c->saves.chain,
                   "single tables were restored since the last checkpoint: save a full one first");
}

void ps_control_restored(struct ps_control *c, const char *directory, const struct ps_reader *reader)
{
    struct ps_checkpoint_counters *counters = &c->node->checkpoint_counters;
    const struct ps_manifest *last = ps_reader_manifest(reader, ps_reader_link_count(reader) - 1);
    uint64_t step = last->step;
    ps_control_saves_drop(c, "a checkpoint was restored meanwhile");
    bool is_own = strcmp(directory, c->node->config->checkpoint_directory) == 0;
    ps_ancestry_begin(&c->ancestry, &last->ancestry, c->node->start_id, is_own ? last->id : 0);
    ps_node_each_core(c->node, restored_on_core, &step);
    follow(c, directory, reader);
    c->clock_offset_us = last->clock_s * UINT64_C(1000000) - dp_now_us();
    ps_control_set_counter(&counters->restored_id, last->id);
    ps_control_set_counter(&counters->restored_step, step);
    ps_control_set_counter(&counters->restored_at_step, last->is_at_step);
    ps_control_schedule_start(c);
}
