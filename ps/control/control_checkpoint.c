/* One save over all cores: the choice of its kind, its cut, its progress, and its end. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "dataplane/optimizer/named_parameters.h"
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/log.h"
#include "ps/checkpoint/checkpoint_format.h"
#include "ps/control/control_internal.h"
#include "ps/core/push_log.h"
#include "ps/store/store_url.h"

#define IDS_MAX   4096u /* of a directory, looked at for the parent */
#define WHY_BYTES 256u

#define REMOTE_MIB      56u /* of buffers of a save to a store, and of its parts that are in flight */
#define REMOTE_PART_MIB 8u  /* one for each core, */
#define REMOTE_PARTS    3u  /* but so many at least may be in use */

/* ---- what has changed since the last cut ---- */

struct changes {
    uint64_t on_core[DP_CORES_MAX];
};

static uint64_t changes_of(const struct ps_core *core)
{
    return core->counters.pushes_applied + core->counters.features;
}

static uint64_t changes_sum(const struct ps_control *c, const struct changes *changes)
{
    uint64_t sum = atomic_load(&c->node->restores);
    if (c->node->parameters != NULL)
        sum += mr_named_changes(c->node->parameters);
    for (uint32_t i = 0; i < c->node->core_count; i++)
        sum += changes->on_core[i];
    return sum;
}

static void look_at_changes(struct ps_core *core, void *arg)
{
    struct changes *changes = arg;
    changes->on_core[core->index] = changes_of(core);
}

uint64_t ps_control_changes(struct ps_control *c)
{
    struct changes changes;
    ps_node_each_core(c->node, look_at_changes, &changes);
    return changes_sum(c, &changes);
}

/* ---- full or delta ---- */

struct marks {
    enum ps_no_delta lost[DP_CORES_MAX];
    char table[DP_CORES_MAX][MR_NAME_BYTES]; /* that the reason is about */
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
    ps_save_marks_lost(core);
}

/* Returns why a core does not know what has changed, written to `why`; NULL: all cores know. */
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
                "table %s was made when there was no memory to note which of its observations change: raise "
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

/* Of a store the writer finds out. */
static bool is_there(const char *directory, uint64_t id)
{
    uint64_t ids[IDS_MAX];
    if (ps_store_url_is_remote(directory))
        return true;
    uint32_t count = ps_checkpoint_list(NULL, directory, ids, IDS_MAX);
    for (uint32_t i = 0; i < count && i < IDS_MAX; i++)
        if (ids[i] == id)
            return true;
    return false;
}

static enum mr_status choose_kind(struct ps_control *c, const struct ps_save_request *request,
                                  struct ps_save_entry *entry, char *text)
{
    const struct ps_config *config = c->node->config;
    const struct ps_save_chain *chain = &c->saves.chain;
    const struct ps_save_chain_limits limits = {(uint32_t)config->checkpoint_deltas,
                                                (uint32_t)config->checkpoint_delta_share_percent};
    char why[WHY_BYTES];
    entry->is_partial = ps_save_is_partial(request);
    if (entry->is_partial)
        return MR_OK;
    bool may_be = limits.deltas_max > 0 && chain->is_open && request->kind != PS_ASKED_FULL;
    const char *why_not = ps_save_chain_no_delta(chain, &limits, request->directory,
                                                 may_be && is_there(request->directory, chain->last_id),
                                                 may_be ? marks_lost(c, why) : NULL);
    if (request->kind == PS_ASKED_DELTA && why_not == NULL && request->is_by_trainer &&
        ps_save_chain_is_long(chain, &limits))
        why_not = "the chain has as many deltas as are configured, which only an operator's key exceeds";
    if (request->kind == PS_ASKED_DELTA && why_not != NULL) {
        snprintf(text, PS_CONTROL_TEXT_BYTES, "no delta is possible now: %s", why_not);
        return MR_INVALID_ARGUMENT;
    }
    bool wants_delta = (request->kind == PS_ASKED_DELTA && !request->is_by_trainer) ||
                       (request->kind != PS_ASKED_FULL && !ps_save_chain_is_long(chain, &limits));
    if (may_be && wants_delta && why_not != NULL && strcmp(chain->directory, request->directory) == 0)
        mr_log_info("save_is_full", "a full checkpoint, as no delta is possible now: %s", why_not);
    entry->is_delta = why_not == NULL && wants_delta;
    entry->parent_id = entry->is_delta ? chain->last_id : 0;
    return MR_OK;
}

static const char *why_chain_ended(const struct ps_save_entry *entry)
{
    if (entry != NULL && entry->status == MR_OK)
        return "the last save was of single tables, which took what was known of changes: save a full one "
               "first";
    return entry == NULL || entry->status != MR_CANCELLED
               ? "the last save failed, and what was known of changes is lost: save a full one first"
               : "the last save was cancelled, and what was known of changes is lost: save a full one first";
}

static void chain_ended(struct ps_control *c, const struct ps_save_entry *entry)
{
    if (entry != NULL && entry->status == MR_OK && !entry->is_partial) {
        ps_save_chain_published(&c->saves.chain, c->saves.running.directory, entry->id, entry->is_delta,
                                entry->bytes);
        return;
    }
    ps_save_chain_break(&c->saves.chain, why_chain_ended(entry));
    ps_node_each_core(c->node, lose_marks, NULL);
}

/* ---- the cut ---- */

static void end_on_core(struct ps_core *core, void *arg)
{
    if (core->save.writer != NULL)
        ps_save_end(core);
}

static void end_cut(struct ps_control *c)
{
    ps_node_each_core(c->node, end_on_core, NULL);
    mr_named_cut_free(c->parameters);
    c->parameters = NULL;
}

struct begin_order {
    struct ps_writer *writer;
    enum ps_save_kind kind;
    const struct ps_save_request *request;
    const struct mr_named_cut *parameters;
    enum mr_status status[DP_CORES_MAX];
    uint64_t bytes[DP_CORES_MAX];
    struct changes changes;              /* up to the cut */
    const struct ps_log_file *log_files; /* of each core; NULL: the log is not rotated */
};

static void begin_on_core(struct ps_core *core, void *arg)
{
    struct begin_order *order = arg;
    if (order->log_files != NULL)
        ps_push_log_switch(core, &order->log_files[core->index]);
    look_at_changes(core, &order->changes);
    if (order->kind == PS_SAVE_DELTA && !ps_save_delta_possible(core)) {
        order->status[core->index] = MR_NOT_READY; /* it was possible a moment ago */
        return;
    }
    uint64_t *bytes = &order->bytes[core->index];
    order->status[core->index] = ps_save_is_partial(order->request)
                                     ? ps_save_begin_some(core, order->writer, order->request->feature_ids,
                                                          order->request->feature_count, bytes)
                                     : ps_save_begin(core, order->writer, order->kind, bytes);
    if (order->status[core->index] == MR_OK && core->index == 0 && order->parameters != NULL)
        ps_save_parameters(core, order->parameters, bytes);
}

/* The approximate length of a core's file, from the bytes of its records. */
static uint64_t file_bytes(uint64_t bytes)
{
    return (bytes + PS_PAYLOAD_BYTES - 1) / PS_PAYLOAD_BYTES * PS_BLOCK_BYTES;
}

/* Makes the cut on every core, or on none. */
static enum mr_status begin_everywhere(struct ps_control *c, struct ps_writer *writer,
                                       const struct ps_save_request *request, bool is_delta,
                                       uint64_t *bytes_total, uint64_t *changes)
{
    struct begin_order order = {.writer = writer,
                                .kind = is_delta ? PS_SAVE_DELTA : PS_SAVE_FULL,
                                .request = request,
                                .parameters = c->parameters,
                                .log_files = ps_control_log_take(c)};
    ps_node_each_core_at_once(c->node, begin_on_core, &order);
    *bytes_total = 0;
    for (uint32_t i = 0; i < c->node->core_count; i++) {
        if (order.status[i] != MR_OK) {
            end_cut(c);
            return order.status[i];
        }
        *bytes_total += file_bytes(order.bytes[i]);
    }
    *changes = changes_sum(c, &order.changes);
    return MR_OK;
}

/* Copies the features to `out`. MR_UNKNOWN_TABLE: one has gone since the save was asked for. */
static enum mr_status pick_features(const struct ps_control *c, const struct ps_save_request *request,
                                    struct ps_catalog *out, char *text)
{
    out->count = 0;
    for (uint32_t i = 0; i < request->feature_count; i++) {
        const uint32_t at = ps_catalog_find_id(&c->catalog, request->feature_ids[i]);
        if (at == c->catalog.count) {
            snprintf(text, PS_CONTROL_TEXT_BYTES, "table or variable %u, which was to be saved, is gone",
                     request->feature_ids[i]);
            return MR_UNKNOWN_TABLE;
        }
        ps_catalog_add(out, c->catalog.ids[at], &c->catalog.features[at]);
    }
    return MR_OK;
}

/* What a save holds in memory: with what its connections take, at most 64 MiB where the store is slow and
 * there are up to six cores. */
static uint32_t buffers_per_core(const struct ps_node *node, const struct ps_place *place)
{
    const uint32_t wanted = (uint32_t)node->config->checkpoint_buffers_per_core;
    const uint32_t parts = node->core_count > REMOTE_PARTS ? node->core_count : REMOTE_PARTS;
    const uint32_t parts_mib = parts * REMOTE_PART_MIB;
    const uint32_t share = parts_mib < REMOTE_MIB ? (REMOTE_MIB - parts_mib) / node->core_count : 0;
    if (place->stop == NULL || share >= wanted)
        return wanted;
    return share > 2 ? share : 2;
}

static enum mr_status start_writer(struct ps_control *c, const struct ps_save_request *request,
                                   const struct ps_save_entry *entry, const struct ps_catalog *catalog,
                                   struct ps_writer **writer, char *text)
{
    const struct ps_node *node = c->node;
    struct ps_place place;
    const enum mr_status status = ps_stores_place(c->stores, request->directory, PS_PLACE_SAVE, &place, text);
    if (status != MR_OK)
        return status;
    const struct ps_writer_options options = {
        .directory = place.path,
        .stop = place.stop,
        .stall_us_max = node->config->checkpoint_store_wait_ms * 1000,
        .counters = &c->node->uring_counters,
        .avoid_cpus = node->cpus,
        .avoid_cpu_count = node->cpu_count,
        .features = catalog->features,
        .feature_ids = catalog->ids,
        .feature_count = catalog->count,
        .is_partial = entry->is_partial,
        .is_by_trainer = request->is_by_trainer,
        .id = entry->id,
        .parent_id = entry->parent_id,
        .parent_hash = &c->saves.chain.last_hash,
        .ancestry = &c->ancestry,
        .step = entry->step,
        .clock_s = (uint32_t)((dp_now_us() + c->clock_offset_us) / 1000000),
        .is_at_step = entry->is_at_step,
        .core_count = node->core_count,
        .incarnation = node->incarnation,
        .buffers_per_core = buffers_per_core(node, &place),
        .bytes_per_s_max = node->config->checkpoint_rate_mib_s << 20,
    };
    return ps_writer_start(place.store, &options, writer, text);
}

static void log_begun(const struct ps_control *c, const struct ps_save_entry *entry, uint64_t bytes)
{
    char at[64] = "", kind[64] = "";
    const char *by = c->saves.running.is_by_trainer ? ", which a trainer asked for," : "";
    if (entry->is_at_step)
        snprintf(at, sizeof(at), " at step %llu", (unsigned long long)entry->step);
    if (entry->is_delta)
        snprintf(kind, sizeof(kind), ", a delta on %llu,", (unsigned long long)entry->parent_id);
    if (entry->is_partial)
        snprintf(kind, sizeof(kind), ", a partial one of %u,",
                 c->saves.running.feature_count + c->saves.running.parameter_count);
    mr_log_with(MR_LOG_INFO,
                MR_LOG_FIELDS({"checkpoint", .number = entry->id},
                              {"directory", .text = c->saves.running.directory}, {"bytes", .number = bytes}),
                "save_begins", "saving checkpoint %llu%s%s%s to %s, about %llu MiB, by %s",
                (unsigned long long)entry->id, kind, at, by, c->saves.running.directory,
                (unsigned long long)(bytes >> 20), ps_writer_method(c->writer));
}

static void set_running(struct ps_control *c, const struct ps_save_request *request,
                        const struct ps_save_entry *entry, uint64_t bytes_total)
{
    struct ps_checkpoint_view view = c->view;
    struct ps_checkpoint_counters *counters = &c->node->checkpoint_counters;
    c->saves.running = *request;
    c->saves.entry = *entry;
    ps_control_note_entry(c, request->number, entry);
    view.state = PS_VIEW_SAVING;
    view.id = entry->id;
    view.bytes_total = bytes_total;
    view.bytes_done = 0;
    view.duration_us = 0;
    ps_control_set_view(c, &view);
    ps_counter_set(&counters->running_id, entry->id);
    ps_counter_set(&counters->running_bytes, 0);
    ps_counter_set(&counters->running_bytes_total, bytes_total);
    ps_node_set_state(c->node, MR_NODE_SAVING);
}

static enum mr_status start_partial_writer(struct ps_control *c, const struct ps_save_request *request,
                                           const struct ps_save_entry *entry, struct ps_writer **writer,
                                           char *text)
{
    struct ps_catalog *picked = malloc(sizeof(*picked));
    enum mr_status status = MR_NO_MEMORY;
    if (picked == NULL)
        snprintf(text, PS_CONTROL_TEXT_BYTES, "no memory left");
    else
        status = pick_features(c, request, picked, text);
    if (status == MR_OK)
        status = start_writer(c, request, entry, picked, writer, text);
    free(picked);
    return status;
}

static const char *why_not_cut(enum mr_status status)
{
    return status == MR_NOT_READY ? "more rows went since the last checkpoint than were kept track of"
                                  : "no memory for a copy of the variables";
}

/* Makes the cut of tables and parameters: between two steps of optimizers, of which none is applied
 * meanwhile. */
static enum mr_status begin_all(struct ps_control *c, struct ps_writer *writer,
                                const struct ps_save_request *request, const struct ps_save_entry *entry,
                                uint64_t *bytes_total, uint64_t *changes, char *text)
{
    const bool has_none = c->node->parameters == NULL || (entry->is_partial && request->parameter_count == 0);
    struct mr_named_parameters *parameters = has_none ? NULL : c->node->parameters;
    enum mr_status status = MR_OK;
    if (parameters != NULL) {
        pthread_mutex_lock(mr_named_lock(parameters));
        status = ps_control_cut_parameters(c, request, writer, text);
    }
    if (status == MR_OK) {
        status = begin_everywhere(c, writer, request, entry->is_delta, bytes_total, changes);
        if (status != MR_OK)
            snprintf(text, PS_CONTROL_TEXT_BYTES, "%s", why_not_cut(status));
    }
    if (parameters != NULL)
        pthread_mutex_unlock(mr_named_lock(parameters));
    if (status != MR_OK) {
        mr_named_cut_free(c->parameters);
        c->parameters = NULL;
    }
    return status;
}

/* A start may go on from it. */
static bool is_of_the_log(const struct ps_control *c, const struct ps_save_request *request,
                          const struct ps_save_entry *entry)
{
    return !entry->is_partial && request->part == 0 &&
           strcmp(request->directory, c->node->config->checkpoint_directory) == 0;
}

/* Starts the writer and makes the cut, as a full or a delta. On failure nothing is left of either. */
static enum mr_status try_cut(struct ps_control *c, const struct ps_save_request *request,
                              const struct ps_save_entry *entry, uint64_t *bytes_total, uint64_t *changes,
                              char *text)
{
    struct ps_writer *writer;
    enum mr_status status = entry->is_partial ? start_partial_writer(c, request, entry, &writer, text)
                                              : start_writer(c, request, entry, &c->catalog, &writer, text);
    if (status != MR_OK)
        return status;
    if (is_of_the_log(c, request, entry))
        status = ps_control_log_prepare(c, entry->id, "", text);
    if (status == MR_OK)
        status = begin_all(c, writer, request, entry, bytes_total, changes, text);
    if (status != MR_OK) {
        ps_control_log_discard(c);
        ps_writer_abort(writer);
        ps_writer_finish(writer);
        chain_ended(c, NULL);
        return status;
    }
    c->writer = writer;
    return MR_OK;
}

/* A delta may have failed because of what it is based on, which a full one does not need. */
static bool is_for_parent(enum mr_status status)
{
    return status == MR_CHECKPOINT_NOT_FOUND || status == MR_CHECKPOINT_CORRUPT ||
           status == MR_CHECKPOINT_NEWER || status == MR_IO_ERROR || status == MR_INVALID_ARGUMENT ||
           status == MR_NOT_READY;
}

static enum mr_status cut(struct ps_control *c, const struct ps_save_request *request, uint64_t step,
                          bool is_at_step, uint64_t *id, char *text)
{
    struct ps_save_entry entry = {.state = PS_SAVE_WRITING, .step = step, .is_at_step = is_at_step};
    uint64_t bytes_total, changes = 0;
    struct ps_place place;
    enum mr_status status = ps_stores_place(c->stores, request->directory, PS_PLACE_SAVE, &place, text);
    entry.id = request->part;
    if (status == MR_OK && request->part == 0)
        status = ps_control_next_id(c, request->directory, &place, &entry.id, text);
    if (status == MR_OK)
        status = choose_kind(c, request, &entry, text);
    if (status != MR_OK)
        return status;
    status = try_cut(c, request, &entry, &bytes_total, &changes, text);
    if (entry.is_delta && request->kind != PS_ASKED_DELTA && is_for_parent(status)) {
        mr_log_info("save_is_full", "a full checkpoint in place of a delta: %s", text);
        entry.is_delta = false;
        entry.parent_id = 0;
        status = try_cut(c, request, &entry, &bytes_total, &changes, text);
    }
    if (status != MR_OK)
        return status;
    ps_control_note_id(c, request->directory, entry.id);
    /* A trainer's save counts as none of the node's own: those would never come, or be skipped. */
    if (!request->is_by_trainer && strcmp(request->directory, c->node->config->checkpoint_directory) == 0) {
        ps_save_schedule_began(&c->saves.schedule, step, dp_now_us());
        c->saves.changes_saved = changes;
    }
    set_running(c, request, &entry, bytes_total);
    log_begun(c, &entry, bytes_total);
    *id = entry.id;
    return MR_OK;
}

enum mr_status ps_control_cut(struct ps_control *c, const struct ps_save_request *request, uint64_t step,
                              bool is_at_step, uint64_t *id, char *text)
{
    enum mr_status status = ps_control_lock_directory(c, request->directory, text);
    if (status != MR_OK)
        return status;
    status = cut(c, request, step, is_at_step, id, text);
    if (status != MR_OK)
        ps_control_unlock(c);
    return status;
}

/* ---- its progress and its end ---- */

/* The number of saves changes last: whoever waits for it finds the rest of that save. */
static void count_ended(struct ps_control *c, const struct ps_save_entry *entry)
{
    struct ps_checkpoint_counters *counters = &c->node->checkpoint_counters;
    ps_counter_set(&counters->running_id, 0);
    ps_counter_set(&counters->running_bytes, 0);
    ps_counter_set(&counters->running_bytes_total, 0);
    ps_counter_set(&counters->last_status, entry->status);
    if (entry->status != MR_OK) {
        ps_counter_add(entry->status == MR_CANCELLED ? &counters->saves_cancelled : &counters->saves_failed,
                       1);
        return;
    }
    ps_counter_add(&counters->deltas_good, entry->is_delta);
    ps_counter_add(&counters->saves_at_step, entry->is_at_step);
    ps_counter_add(&counters->bytes_written, entry->bytes);
    ps_counter_add(&counters->write_us, entry->duration_us);
    if (!entry->is_partial) {
        ps_counter_set(&counters->last_good_id, entry->id);
        ps_counter_set(&counters->last_good_step, entry->step);
        ps_counter_set(&counters->last_good_s, (uint64_t)time(NULL));
    }
    ps_counter_add(&counters->saves_good, 1);
}

static void log_ended(const struct ps_save_entry *entry)
{
    if (entry->status == MR_CANCELLED) {
        mr_log_with(MR_LOG_INFO, MR_LOG_FIELDS({"checkpoint", .number = entry->id}), "save_cancelled",
                    "the save of checkpoint %llu was cancelled", (unsigned long long)entry->id);
        return;
    }
    if (entry->status != MR_OK) {
        mr_log_with(MR_LOG_ERROR, MR_LOG_FIELDS({"checkpoint", .number = entry->id}), "save_failed",
                    "save of checkpoint %llu failed: %s", (unsigned long long)entry->id, entry->text);
        return;
    }
    mr_log_with(MR_LOG_INFO,
                MR_LOG_FIELDS({"checkpoint", .number = entry->id}, {"bytes", .number = entry->bytes},
                              {"ms", .number = entry->duration_us / 1000}),
                "saved", "saved checkpoint %llu: %llu MiB in %llu ms", (unsigned long long)entry->id,
                (unsigned long long)(entry->bytes >> 20), (unsigned long long)(entry->duration_us / 1000));
}

static void view_ended(struct ps_control *c, const struct ps_save_entry *entry)
{
    struct ps_checkpoint_view view = c->view;
    view.state = PS_VIEW_IDLE;
    view.bytes_done = entry->bytes;
    view.duration_us = entry->duration_us;
    view.last_status = entry->status;
    view.last_errno = (uint64_t)entry->error_number;
    snprintf(view.text, sizeof(view.text), "%s", entry->text);
    if (entry->status == MR_OK) {
        view.last_good_id = entry->is_partial ? view.last_good_id : view.id;
        view.bytes_total = entry->bytes;
    }
    ps_control_set_view(c, &view);
}

static void fill_ended(struct ps_save_entry *entry, const struct ps_writer_status *status, bool is_cancelled)
{
    entry->state = PS_SAVE_ENDED;
    entry->status = status->status;
    entry->error_number = status->error_number;
    entry->bytes = status->bytes_written;
    entry->duration_us = status->duration_us;
    snprintf(entry->text, sizeof(entry->text), "%s", status->status == MR_OK ? "" : status->text);
    if (is_cancelled && status->error_number == ECANCELED) {
        entry->status = MR_CANCELLED;
        entry->error_number = 0;
        snprintf(entry->text, sizeof(entry->text), PS_SAVE_CANCELLED);
    }
}

/* Ends the save, after the writer has published the checkpoint or failed. */
static void end_save(struct ps_control *c, const struct ps_writer_status *status)
{
    const char *directory = c->saves.running.directory;
    struct ps_save_entry *entry = &c->saves.entry;
    end_cut(c);
    ps_writer_finish(c->writer);
    c->writer = NULL;
    fill_ended(entry, status, c->saves.is_cancelled);
    entry->committed_ms = entry->status == MR_OK ? mr_clock_unix_ms() : 0;
    bool is_own = strcmp(directory, c->node->config->checkpoint_directory) == 0;
    entry->is_copied = is_own || c->saves.running.is_kept;
    log_ended(entry);
    chain_ended(c, entry);
    ps_save_chain_set_hash(&c->saves.chain, status->manifest_hash);
    if (entry->status != MR_OK) {
        c->saves.changes_saved =
            UINT64_MAX; /* no checkpoint holds these changes: the next save by time must not be skipped */
    }
    const bool is_part = c->saves.running.part != 0; /* of no worth until the cluster has committed it */
    entry->is_copied = entry->is_copied && !is_part;
    if (entry->status == MR_OK && is_own && !is_part) {
        ps_control_published(c, entry->id);
        ps_control_log_covered(c);
    }
    if (entry->status == MR_OK && entry->is_copied) {
        ps_control_retain(c, directory, false);
        struct ps_copier *copier = atomic_load(&c->node->copier);
        if (copier != NULL)
            ps_copier_wake(copier);
    } else if (entry->status == MR_OK && c->saves.running.is_by_trainer && !is_part) {
        ps_control_retain(c, directory, true); /* operators clear up what they save elsewhere */
    }
    ps_control_unlock(c);
    count_ended(c, entry);
    ps_control_note_entry(c, c->saves.running.number, entry);
    view_ended(c, entry);
    uint32_t saving = MR_NODE_SAVING;
    atomic_compare_exchange_strong(&c->node->state, &saving, MR_NODE_SERVING);
}

void ps_control_save_progress(struct ps_control *c)
{
    struct ps_writer_status status;
    if (c->writer == NULL)
        return;
    ps_writer_watch(c->writer, dp_now_us());
    ps_writer_status(c->writer, &status);
    if (status.done) {
        end_save(c, &status);
        return;
    }
    struct ps_checkpoint_view view = c->view;
    view.bytes_done = status.bytes_written;
    view.bytes_total = status.bytes_written > view.bytes_total ? status.bytes_written : view.bytes_total;
    view.duration_us = status.duration_us;
    ps_control_set_view(c, &view);
    ps_counter_set(&c->node->checkpoint_counters.running_bytes, view.bytes_done);
    ps_counter_set(&c->node->checkpoint_counters.running_bytes_total, view.bytes_total);
}

enum mr_status ps_control_save_wait(struct ps_control *c, char *text)
{
    if (c->writer == NULL)
        return MR_OK;
    while (c->writer != NULL) {
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        ps_control_save_progress(c);
    }
    snprintf(text, PS_CONTROL_TEXT_BYTES, "%s", c->saves.entry.text);
    return c->saves.entry.status;
}

void ps_control_save_abort(struct ps_control *c)
{
    char text[PS_CONTROL_TEXT_BYTES];
    if (c->writer != NULL) {
        ps_writer_abort(c->writer);
        ps_control_save_wait(c, text);
    }
}
