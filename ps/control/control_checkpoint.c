/* A save over all cores, from the choice of its kind to its cut, and what it shares with Restore. */
#include <stdio.h>
#include <string.h>
#include "ps/base/log.h"
#include "ps/checkpoint/checkpoint_format.h"
#include "ps/config/config_rules.h"
#include "ps/control/control_internal.h"

void ps_control_set_view(struct ps_control *c, const struct ps_checkpoint_view *view)
{
    pthread_mutex_lock(&c->view_lock);
    c->view = *view;
    pthread_mutex_unlock(&c->view_lock);
}

enum mr_status ps_control_check_idle(const struct ps_control *c, char *text)
{
    if (c->writer == NULL) {
        return MR_OK;
    }
    snprintf(
        text, PS_CONTROL_TEXT_BYTES,
        "checkpoint %llu is being written by save %llu; wait for its end, or withdraw it (ctl save --cancel "
        "%llu); a save may be queued after it (ctl save --queue)",
        (unsigned long long)c->view.id, (unsigned long long)c->saves.running.number,
        (unsigned long long)c->saves.running.number);
    return MR_CHECKPOINT_RUNNING;
}

/* ---- who writes to a directory ---- */

enum mr_status ps_control_claim_directory(struct ps_control *c, char *text)
{
    char who[64];
    if (c->node->config->checkpoint_directory[0] == '\0') {
        return MR_OK;
    }
    ps_checkpoint_unlock(c->directory_lock);
    snprintf(who, sizeof(who), "millraced %s", c->node->config->node_name);
    return ps_checkpoint_lock(c->node->config->checkpoint_directory, who, &c->directory_lock, text);
}

/* Keeps others from writing to a directory while a save is running; refused by name when another
 * process has it. */
static enum mr_status lock_directory(struct ps_control *c, const char *directory, char *text)
{
    char who[64];
    if (ps_checkpoint_lock_is_on(c->directory_lock, directory)) {
        return MR_OK;
    }
    if (strcmp(directory, c->node->config->checkpoint_directory) == 0) {
        return ps_control_claim_directory(c, text); /* it was removed, or another one has come in its place */
    }
    snprintf(who, sizeof(who), "millraced %s", c->node->config->node_name);
    return ps_checkpoint_lock(directory, who, &c->save_lock, text);
}

void ps_control_unlock(struct ps_control *c)
{
    ps_checkpoint_unlock(c->save_lock);
    c->save_lock = PS_NO_LOCK;
}

/* ---- counters ---- */

// NOLINTNEXTLINE(readability-non-const-parameter): the store is not seen
void ps_control_set_counter(uint64_t *counter, uint64_t value)
{
    __atomic_store_n(counter, value, __ATOMIC_RELAXED); /* other threads read it */
}

void ps_control_add_counter(uint64_t *counter, uint64_t value)
{
    ps_control_set_counter(counter, *counter + value);
}

/* ---- Save ---- */

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
    for (uint32_t i = 0; i < c->node->core_count; i++) {
        sum += changes->on_core[i];
    }
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

struct begin_order {
    struct ps_writer *writer;
    enum ps_save_kind kind;
    enum mr_status status[DP_CORES_MAX];
    uint64_t bytes[DP_CORES_MAX];
    struct changes changes; /* that the cut holds */
};

static void begin_on_core(struct ps_core *core, void *arg)
{
    struct begin_order *order = arg;
    look_at_changes(core, &order->changes);
    if (order->kind == PS_SAVE_DELTA && !ps_save_delta_possible(core)) {
        order->status[core->index] = MR_NOT_READY; /* it was, a moment ago */
        return;
    }
    order->status[core->index] = ps_save_begin(core, order->writer, order->kind, &order->bytes[core->index]);
}

/* Of a core's file, whose records come to so many bytes, about. */
static uint64_t file_bytes(uint64_t bytes)
{
    return (bytes + PS_PAYLOAD_BYTES - 1) / PS_PAYLOAD_BYTES * PS_BLOCK_BYTES;
}

/* The cut on every core, or on none. */
static enum mr_status begin_everywhere(struct ps_control *c, struct ps_writer *writer, bool is_delta,
                                       uint64_t *bytes_total, uint64_t *changes)
{
    struct begin_order order = {.writer = writer, .kind = is_delta ? PS_SAVE_DELTA : PS_SAVE_FULL};
    ps_node_each_core_at_once(c->node, begin_on_core, &order);
    *bytes_total = 0;
    for (uint32_t i = 0; i < c->node->core_count; i++) {
        if (order.status[i] != MR_OK) {
            ps_control_cut_end(c);
            return order.status[i];
        }
        *bytes_total += file_bytes(order.bytes[i]);
    }
    *changes = changes_sum(c, &order.changes);
    return MR_OK;
}

static enum mr_status start_writer(struct ps_control *c, const struct ps_save_entry *entry,
                                   const char *directory, struct ps_writer **writer, char *text)
{
    const struct ps_node *node = c->node;
    int cpus[DP_CORES_MAX];
    int cpu_count = ps_cpus_parse(node->config->cores_cpus, cpus, DP_CORES_MAX);
    const struct ps_writer_options options = {
        .directory = directory,
        .avoid_cpus = cpus,
        .avoid_cpu_count = cpu_count > 0 ? (uint32_t)cpu_count : 0,
        .features = c->catalog.features,
        .feature_ids = c->catalog.ids,
        .feature_count = c->catalog.count,
        .id = entry->id,
        .parent_id = entry->parent_id,
        .parent_hash = &c->saves.chain.last_hash,
        .ancestry = &c->ancestry,
        .step = entry->step,
        .clock_s = (uint32_t)((dp_now_us() + c->clock_offset_us) / 1000000),
        .is_at_step = entry->is_at_step,
        .core_count = node->core_count,
        .incarnation = node->incarnation,
        .buffers_per_core = (uint32_t)node->config->checkpoint_buffers_per_core,
        .bytes_per_s_max = node->config->checkpoint_rate_mib_s << 20,
    };
    return ps_writer_start(NULL, &options, writer, text);
}

static void log_begun(const struct ps_control *c, const struct ps_save_entry *entry, uint64_t bytes)
{
    char at[64] = "", kind[64] = "";
    if (entry->is_at_step) {
        snprintf(at, sizeof(at), " at step %llu", (unsigned long long)entry->step);
    }
    if (entry->is_delta) {
        snprintf(kind, sizeof(kind), ", a delta on %llu,", (unsigned long long)entry->parent_id);
    }
    ps_log("saving checkpoint %llu%s%s to %s, about %llu MiB, by %s", (unsigned long long)entry->id, kind, at,
           c->saves.running.directory, (unsigned long long)(bytes >> 20), ps_writer_method(c->writer));
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
    ps_control_set_counter(&counters->running_id, entry->id);
    ps_control_set_counter(&counters->running_bytes, 0);
    ps_control_set_counter(&counters->running_bytes_total, bytes_total);
    atomic_store(&c->node->state, MR_NODE_SAVING);
}

/* From the writer to the cut, as this kind. On failure nothing is left of it. */
static enum mr_status try_cut(struct ps_control *c, const char *directory, const struct ps_save_entry *entry,
                              uint64_t *bytes_total, uint64_t *changes, char *text)
{
    struct ps_writer *writer;
    enum mr_status status = start_writer(c, entry, directory, &writer, text);
    if (status != MR_OK) {
        return status;
    }
    status = begin_everywhere(c, writer, entry->is_delta, bytes_total, changes);
    if (status != MR_OK) {
        ps_writer_abort(writer);
        ps_writer_finish(writer);
        ps_chain_ended(c, NULL);
        snprintf(text, PS_CONTROL_TEXT_BYTES, "%s",
                 status == MR_NOT_READY ? "more rows went since the last checkpoint than were kept track of"
                                        : "no memory for a copy of the variables");
        return status;
    }
    c->writer = writer;
    return MR_OK;
}

/* It may be for what it is based on that a delta failed: a full one does not need that. */
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
    enum mr_status status = ps_checkpoint_next_id(NULL, request->directory, &entry.id, text);
    if (status == MR_OK) {
        status = ps_chain_choose(c, request, &entry, text);
    }
    if (status != MR_OK) {
        return status;
    }
    status = try_cut(c, request->directory, &entry, &bytes_total, &changes, text);
    if (entry.is_delta && request->wish != PS_WISH_DELTA && is_for_parent(status)) {
        ps_log("a full checkpoint in place of a delta: %s", text);
        entry.is_delta = false;
        entry.parent_id = 0;
        status = try_cut(c, request->directory, &entry, &bytes_total, &changes, text);
    }
    if (status != MR_OK) {
        return status;
    }
    if (strcmp(request->directory, c->node->config->checkpoint_directory) == 0) {
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
    enum mr_status status = lock_directory(c, request->directory, text);
    if (status != MR_OK) {
        return status;
    }
    status = cut(c, request, step, is_at_step, id, text);
    if (status != MR_OK) {
        ps_control_unlock(c);
    }
    return status;
}
