/* Save and Restore over all cores. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "ps/control_internal.h"
#include "ps/log.h"
#include "ps/restore.h"

enum { VIEW_IDLE = 0, VIEW_SAVING = 1, VIEW_LOADING = 2 };

static void set_view(struct ps_control *c, const struct ps_checkpoint_view *view)
{
    pthread_mutex_lock(&c->view_lock);
    c->view = *view;
    pthread_mutex_unlock(&c->view_lock);
}

/* The directory meant by a call, or NULL with the reason in `text`. */
static const char *directory_of(const struct ps_control *c, const char *directory, char *text)
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

static enum mr_status check_idle(const struct ps_control *c, char *text)
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
    order->status[core->index] = ps_save_begin(core, order->writer, &order->bytes[core->index]);
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
    ps_node_each_core(c->node, begin_on_core, &order);
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
    return ps_writer_start(directory, *id, node->core_count, node->incarnation, c->catalog.features,
                           c->catalog.ids, c->catalog.count,
                           (uint32_t)node->config->checkpoint_buffers_per_core, writer, text);
}

enum mr_status ps_control_save(struct ps_control *c, const char *directory, uint64_t *id, char *text)
{
    struct ps_writer *writer;
    struct ps_checkpoint_view view = c->view;
    enum mr_status status = check_idle(c, text);
    if (status != MR_OK) {
        return status;
    }
    if (c->gate == PS_GATE_BROKEN) {
        snprintf(text, PS_CONTROL_TEXT_BYTES, "the node holds half a checkpoint and does not save it");
        return MR_CHECKPOINT_CORRUPT;
    }
    directory = directory_of(c, directory, text);
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
        snprintf(text, PS_CONTROL_TEXT_BYTES, "no memory for a copy of the variables");
        return status;
    }
    c->writer = writer;
    snprintf(c->save_directory, sizeof(c->save_directory), "%s", directory);
    view.state = VIEW_SAVING;
    view.bytes_done = 0;
    view.duration_us = 0;
    set_view(c, &view);
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
    view.state = VIEW_IDLE;
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
    set_view(c, &view);
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
    set_view(c, &view);
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

/* ---- Restore ---- */

struct add_order {
    const struct ps_catalog *catalog;
    enum mr_status status[DP_CORES_MAX];
    char text[DP_CORES_MAX][PS_CORE_TEXT_BYTES];
};

static void clear_on_core(struct ps_core *core, void *arg)
{
    (void)arg;
    ps_core_clear(core);
}

static void add_on_core(struct ps_core *core, void *arg)
{
    struct add_order *order = arg;
    enum mr_status status = MR_OK;
    for (uint32_t i = 0; i < order->catalog->count && status == MR_OK; i++) {
        status = ps_core_add_feature(core, order->catalog->ids[i], &order->catalog->features[i],
                                     order->text[core->index]);
    }
    order->status[core->index] = status;
}

/* The checkpoint's features, checked as those of a Create are. */
static enum mr_status read_catalog(const struct ps_reader *reader, uint32_t core_count,
                                   struct ps_catalog *catalog, char *text)
{
    catalog->count = 0;
    for (uint32_t i = 0; i < ps_reader_feature_count(reader); i++) {
        uint32_t id;
        const struct mr_feature *f = ps_reader_feature(reader, i, &id);
        const char *field = mr_feature_check(f);
        bool is_good = field == NULL && id >= 1 && id <= MR_FEATURE_MAX && catalog->count < MR_FEATURE_MAX &&
                       ps_catalog_find_id(catalog, id) == catalog->count &&
                       ps_catalog_find(catalog, f->name) == catalog->count;
        if (!is_good) {
            snprintf(text, PS_CONTROL_TEXT_BYTES, "feature %u (%.63s): %s", id, f->name,
                     field != NULL ? field : "its number or name is used twice, or out of range");
            return MR_CHECKPOINT_CORRUPT;
        }
        const char *refusal = ps_core_refusal(f, core_count);
        if (refusal != NULL) {
            snprintf(text, PS_CONTROL_TEXT_BYTES, "%.63s: %s", f->name, refusal);
            return MR_UNSUPPORTED;
        }
        ps_catalog_add(catalog, id, f);
    }
    return MR_OK;
}

/* Takes the node's state away and puts the checkpoint's in its place. From its first line on there is no way back. */
static enum mr_status replace_state(struct ps_control *c, struct ps_reader *reader,
                                    const struct ps_catalog *catalog, char *text)
{
    struct add_order order = {.catalog = catalog};
    c->catalog.count = 0;
    ps_node_each_core(c->node, clear_on_core, NULL);
    ps_node_each_core(c->node, add_on_core, &order);
    for (uint32_t i = 0; i < c->node->core_count; i++) {
        if (order.status[i] != MR_OK) {
            snprintf(text, PS_CONTROL_TEXT_BYTES, "%s", order.text[i]);
            return order.status[i];
        }
    }
    enum mr_status status = ps_restore_load(c->node, reader, &c->load_progress, text);
    if (status == MR_OK) {
        c->catalog = *catalog;
    }
    return status;
}

/* A verified checkpoint: from busy to loaded, or to broken. */
static enum mr_status load(struct ps_control *c, struct ps_reader *reader, char *text)
{
    struct ps_catalog *catalog = calloc(1, sizeof(*catalog));
    if (catalog == NULL) {
        snprintf(text, PS_CONTROL_TEXT_BYTES, "no memory left");
        return MR_NO_MEMORY;
    }
    enum mr_status status = read_catalog(reader, c->node->core_count, catalog, text);
    if (status == MR_OK) {
        char why[PS_CORE_TEXT_BYTES];
        ps_control_gate(c, PS_GATE_BUSY, MR_OK, "");
        status = replace_state(c, reader, catalog, text);
        if (status != MR_OK) {
            snprintf(why, sizeof(why), "restore of checkpoint %llu failed half way (%.120s): restore another",
                     (unsigned long long)ps_reader_id(reader), text);
            ps_control_gate(c, PS_GATE_BROKEN, status, why);
            snprintf(text, PS_CONTROL_TEXT_BYTES, "%s; until then the node serves no data", why);
        }
    }
    free(catalog);
    return status;
}

enum mr_status ps_control_restore(struct ps_control *c, const char *directory, uint64_t id,
                                  uint64_t *restored_id, char *text)
{
    struct ps_reader *reader = NULL;
    struct ps_checkpoint_view view = c->view;
    uint32_t state_before = atomic_load(&c->node->state);
    enum mr_status status = check_idle(c, text);
    if (status != MR_OK) {
        return status;
    }
    directory = directory_of(c, directory, text);
    if (directory == NULL) {
        return MR_INVALID_ARGUMENT;
    }
    view.state = VIEW_LOADING;
    view.id = id;
    view.bytes_done = view.bytes_total = 0;
    atomic_store(&c->load_progress, 0);
    set_view(c, &view);
    atomic_store(&c->node->state, MR_NODE_RESTORING);
    uint64_t start_us = dp_now_us();
    text[0] = '\0';
    status = ps_reader_open(directory, id, &reader, text);
    if (status == MR_OK) {
        if (text[0] != '\0') {
            ps_log("restore: %s", text);
        }
        view.id = ps_reader_id(reader);
        view.bytes_total = ps_reader_bytes(reader);
        set_view(c, &view);
        status = load(c, reader, text);
        ps_reader_close(reader);
    }
    view.state = VIEW_IDLE;
    view.bytes_done = atomic_load(&c->load_progress);
    view.duration_us = dp_now_us() - start_us;
    view.last_status = status;
    view.last_errno = 0;
    snprintf(view.text, sizeof(view.text), "%s", status == MR_OK ? "" : text);
    set_view(c, &view);
    atomic_store(&c->node->state, c->gate == PS_GATE_BROKEN ? MR_NODE_RESTORING : state_before);
    if (status == MR_OK) {
        *restored_id = view.id;
        ps_log("restored checkpoint %llu from %s: %llu MiB in %llu ms", (unsigned long long)view.id,
               directory, (unsigned long long)(view.bytes_total >> 20),
               (unsigned long long)(view.duration_us / 1000));
    } else {
        ps_log("restore failed: %s", text);
    }
    return status;
}
