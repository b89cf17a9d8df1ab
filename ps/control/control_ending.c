/* A save behind its cut: progress, and how it ends. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "ps/base/log.h"
#include "ps/control/control_internal.h"

static void end_on_core(struct ps_core *core, void *arg)
{
    (void)arg;
    if (core->save.writer != NULL) {
        ps_save_end(core);
    }
}

void ps_control_cut_end(struct ps_control *c)
{
    ps_node_each_core(c->node, end_on_core, NULL);
}

static void published_on_core(struct ps_core *core, void *arg)
{
    ps_pushes_published(core->pushes);
    mr_endpoint_set_checkpoint(core->ep, *(const uint64_t *)arg);
}

/* Clients may forget the pushes that the last cut holds: they are in checkpoint `id`. */
static void set_durable(struct ps_control *c, uint64_t id)
{
    ps_node_each_core(c->node, published_on_core, &id);
}

void ps_control_durable(struct ps_control *c)
{
    set_durable(c, c->ancestry.starts[0].from);
}

static void count_ended(struct ps_control *c, const struct ps_save_entry *entry)
{
    struct ps_checkpoint_counters *counters = &c->node->checkpoint_counters;
    ps_control_set_counter(&counters->running_id, 0);
    ps_control_set_counter(&counters->running_bytes, 0);
    ps_control_set_counter(&counters->running_bytes_total, 0);
    ps_control_set_counter(&counters->last_status, entry->status);
    if (entry->status != MR_OK) {
        ps_control_add_counter(
            entry->status == MR_CANCELLED ? &counters->saves_withdrawn : &counters->saves_failed, 1);
        return;
    }
    ps_control_add_counter(&counters->saves_good, 1);
    ps_control_add_counter(&counters->deltas_good, entry->is_delta);
    ps_control_add_counter(&counters->saves_at_step, entry->is_at_step);
    ps_control_add_counter(&counters->bytes_written, entry->bytes);
    ps_control_add_counter(&counters->write_us, entry->duration_us);
    ps_control_set_counter(&counters->last_good_id, entry->id);
    ps_control_set_counter(&counters->last_good_step, entry->step);
}

static void log_ended(const struct ps_save_entry *entry)
{
    if (entry->status == MR_CANCELLED) {
        ps_log("the save of checkpoint %llu was cancelled", (unsigned long long)entry->id);
        return;
    }
    if (entry->status != MR_OK) {
        ps_log("save of checkpoint %llu failed: %s", (unsigned long long)entry->id, entry->text);
        return;
    }
    ps_log("saved checkpoint %llu: %llu MiB in %llu ms", (unsigned long long)entry->id,
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
        view.last_good_id = view.id;
        view.bytes_total = entry->bytes;
    }
    ps_control_set_view(c, &view);
}

static void fill_ended(struct ps_save_entry *entry, const struct ps_writer_status *status, bool is_withdrawn)
{
    entry->state = PS_SAVE_ENDED;
    entry->status = status->status;
    entry->error_number = status->error_number;
    entry->bytes = status->bytes_written;
    entry->duration_us = status->duration_us;
    snprintf(entry->text, sizeof(entry->text), "%s", status->status == MR_OK ? "" : status->text);
    if (is_withdrawn && status->error_number == ECANCELED) {
        entry->status = MR_CANCELLED;
        entry->error_number = 0;
        snprintf(entry->text, sizeof(entry->text), PS_SAVE_WITHDRAWN);
    }
}

/* The writer has published or failed: take it apart. */
static void end_save(struct ps_control *c, const struct ps_writer_status *status)
{
    const char *directory = c->saves.running.directory;
    struct ps_save_entry *entry = &c->saves.entry;
    ps_control_cut_end(c);
    ps_writer_finish(c->writer);
    c->writer = NULL;
    ps_control_unlock(c);
    fill_ended(entry, status, c->saves.is_withdrawn);
    log_ended(entry);
    ps_chain_ended(c, entry);
    ps_chain_set_hash(&c->saves.chain, status->manifest_hash);
    if (entry->status != MR_OK) {
        c->saves.changes_saved =
            UINT64_MAX; /* what it had is in no checkpoint: the next by time is not left out */
    }
    if (entry->status == MR_OK && strcmp(directory, c->node->config->checkpoint_directory) == 0) {
        set_durable(c, entry->id);
        ps_checkpoint_retain(NULL, directory, (uint32_t)c->node->config->checkpoint_keep);
    }
    count_ended(c, entry);
    ps_control_note_entry(c, c->saves.running.number, entry);
    view_ended(c, entry);
    uint32_t saving = MR_NODE_SAVING;
    atomic_compare_exchange_strong(&c->node->state, &saving, MR_NODE_SERVING);
}

void ps_control_save_progress(struct ps_control *c)
{
    struct ps_writer_status status;
    if (c->writer == NULL) {
        return;
    }
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
    ps_control_set_counter(&c->node->checkpoint_counters.running_bytes, view.bytes_done);
    ps_control_set_counter(&c->node->checkpoint_counters.running_bytes_total, view.bytes_total);
}

enum mr_status ps_control_save_wait(struct ps_control *c, char *text)
{
    if (c->writer == NULL) {
        return MR_OK;
    }
    while (c->writer != NULL) {
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        ps_control_save_progress(c);
    }
    snprintf(text, PS_CONTROL_TEXT_BYTES, "%s", c->saves.entry.text);
    return c->saves.entry.status;
}

enum mr_status ps_control_save_last(struct ps_control *c, char *text)
{
    struct ps_save_request request = {.is_automatic = true};
    uint64_t id;
    /* A broken gate stays, and with it the refusal to save half a checkpoint. */
    if (c->gate != PS_GATE_BROKEN) {
        ps_control_gate(c, PS_GATE_BUSY, MR_OK, "");
        if (ps_control_changes(c) == c->saves.changes_saved) {
            ps_log("nothing was pushed since the last save: none more");
            return MR_OK;
        }
    }
    enum mr_status status = ps_control_save(c, &request, &id, text);
    return status == MR_OK ? ps_control_save_wait(c, text) : status;
}

void ps_control_save_abort(struct ps_control *c)
{
    char text[PS_CONTROL_TEXT_BYTES];
    if (c->writer != NULL) {
        ps_writer_abort(c->writer);
        ps_control_save_wait(c, text);
    }
}
