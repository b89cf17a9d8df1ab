/* Save over all cores, and what it shares with Restore. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "ps/control_internal.h"
#include "ps/log.h"

void ps_control_set_view(struct ps_control *c, const struct ps_checkpoint_view *view)
{
    pthread_mutex_lock(&c->view_lock);
    c->view = *view;
    pthread_mutex_unlock(&c->view_lock);
}

const char *ps_control_directory(const struct ps_control *c, const char *directory, char *text)
{
    if (directory[0] == '\0') {
        directory = c->node->config->checkpoint_directory;
    }
    if (directory[0] == '\0') {
        snprintf(text, PS_CONTROL_TEXT_BYTES,
                 "no directory: set checkpoint.directory, or name one in the call");
        return NULL;
    }
    return directory;
}

enum mr_status ps_control_check_idle(const struct ps_control *c, char *text)
{
    if (c->writer == NULL) {
        return MR_OK;
    }
    snprintf(text, PS_CONTROL_TEXT_BYTES, "checkpoint %llu is being written", (unsigned long long)c->view.id);
    return MR_CHECKPOINT_RUNNING;
}

/* ---- Save ---- */

struct begin_order {
    struct ps_writer *writer;
    enum mr_status status[DP_CORES_MAX];
    uint64_t bytes[DP_CORES_MAX];
};

static void begin_on_core(struct ps_core *core, void *arg)
{
    struct begin_order *order = arg;
    order->status[core->index] = ps_save_begin(core, order->writer, PS_SAVE_FULL, &order->bytes[core->index]);
}

static void end_on_core(struct ps_core *core, void *arg)
{
    (void)arg;
    if (core->save.writer != NULL) {
        ps_save_end(core);
    }
}

/* The cut on every core, or on none. */
static enum mr_status begin_everywhere(struct ps_control *c, struct ps_writer *writer, uint64_t *bytes_total)
{
    struct begin_order order = {.writer = writer};
    ps_node_each_core_at_once(c->node, begin_on_core, &order);
    *bytes_total = 0;
    for (uint32_t i = 0; i < c->node->core_count; i++) {
        if (order.status[i] != MR_OK) {
            ps_node_each_core(c->node, end_on_core, NULL);
            return order.status[i];
        }
        *bytes_total += order.bytes[i];
    }
    return MR_OK;
}

static enum mr_status start_writer(struct ps_control *c, const char *directory, uint64_t *id,
                                   struct ps_writer **writer, char *text)
{
    const struct ps_node *node = c->node;
    uint64_t newest = 0;
    ps_checkpoint_list(directory, &newest, 1);
    *id = newest + 1;
    const struct ps_writer_options options = {
        .directory = directory,
        .features = c->catalog.features,
        .feature_ids = c->catalog.ids,
        .feature_count = c->catalog.count,
        .id = *id,
        .core_count = node->core_count,
        .incarnation = node->incarnation,
        .buffers_per_core = (uint32_t)node->config->checkpoint_buffers_per_core,
    };
    return ps_writer_start(NULL, &options, writer, text);
}

enum mr_status ps_control_save(struct ps_control *c, const char *directory, uint64_t *id, char *text)
{
    struct ps_writer *writer;
    struct ps_checkpoint_view view = c->view;
    enum mr_status status = ps_control_check_idle(c, text);
    if (status != MR_OK) {
        return status;
    }
    if (c->gate == PS_GATE_BROKEN) {
        snprintf(text, PS_CONTROL_TEXT_BYTES, "the node holds half a checkpoint and does not save it");
        return MR_CHECKPOINT_CORRUPT;
    }
    directory = ps_control_directory(c, directory, text);
    if (directory == NULL) {
        return MR_INVALID_ARGUMENT;
    }
    status = start_writer(c, directory, &view.id, &writer, text);
    if (status != MR_OK) {
        ps_log("save failed: %s", text);
        return status;
    }
    status = begin_everywhere(c, writer, &view.bytes_total);
    if (status != MR_OK) {
        ps_writer_abort(writer);
        ps_writer_finish(writer);
        snprintf(text, PS_CONTROL_TEXT_BYTES, "no memory for a copy of what was learnt, and of clients");
        return status;
    }
    c->writer = writer;
    snprintf(c->save_directory, sizeof(c->save_directory), "%s", directory);
    view.state = PS_VIEW_SAVING;
    view.bytes_done = 0;
    view.duration_us = 0;
    ps_control_set_view(c, &view);
    atomic_store(&c->node->state, MR_NODE_SAVING);
    ps_log("saving checkpoint %llu to %s, about %llu MiB, by %s", (unsigned long long)view.id, directory,
           (unsigned long long)(view.bytes_total >> 20), ps_writer_method(writer));
    *id = view.id;
    return MR_OK;
}

static void published_on_core(struct ps_core *core, void *arg)
{
    (void)arg;
    ps_pushes_published(core->pushes);
}

void ps_control_durable(struct ps_control *c)
{
    ps_node_each_core(c->node, published_on_core, NULL);
}

/* The writer has published or failed: take it apart. */
static void end_save(struct ps_control *c, const struct ps_writer_status *status)
{
    struct ps_checkpoint_view view = c->view;
    ps_node_each_core(c->node, end_on_core, NULL);
    ps_writer_finish(c->writer);
    c->writer = NULL;
    c->save_status = status->status;
    view.state = PS_VIEW_IDLE;
    view.bytes_done = status->bytes_written;
    view.duration_us = status->duration_us;
    view.last_status = status->status;
    view.last_errno = (uint64_t)status->error_number;
    snprintf(view.text, sizeof(view.text), "%s", status->status == MR_OK ? "" : status->text);
    if (status->status == MR_OK) {
        view.last_good_id = view.id;
        view.bytes_total = status->bytes_written;
        ps_log("saved checkpoint %llu: %llu MiB in %llu ms", (unsigned long long)view.id,
               (unsigned long long)(status->bytes_written >> 20),
               (unsigned long long)(status->duration_us / 1000));
        if (strcmp(c->save_directory, c->node->config->checkpoint_directory) == 0) {
            ps_control_durable(c);
            ps_checkpoint_retain(c->save_directory, (uint32_t)c->node->config->checkpoint_keep);
        }
    } else {
        ps_log("save of checkpoint %llu failed: %s", (unsigned long long)view.id, status->text);
    }
    ps_control_set_view(c, &view);
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
    view.duration_us = status.duration_us;
    ps_control_set_view(c, &view);
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
    snprintf(text, PS_CONTROL_TEXT_BYTES, "%s", c->view.text);
    return c->save_status;
}

enum mr_status ps_control_save_last(struct ps_control *c, char *text)
{
    uint64_t id;
    /* A broken gate stays, and with it the refusal to save half a checkpoint. */
    if (c->gate != PS_GATE_BROKEN) {
        ps_control_gate(c, PS_GATE_BUSY, MR_OK, "");
    }
    enum mr_status status = ps_control_save(c, "", &id, text);
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
