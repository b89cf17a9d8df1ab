/* Restore over all cores. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ps/control_internal.h"
#include "ps/log.h"
#include "ps/restore.h"

#define IDS_MAX 4096u /* looked at when searching for the newest that is whole */

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
static enum mr_status read_catalog(const struct ps_reader *reader, struct ps_catalog *catalog, char *text)
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

/* From busy to loaded. When the checkpoint turns out to be damaged and there was nothing to lose, the node is empty again;
 * otherwise a failure leaves it broken. */
static enum mr_status load(struct ps_control *c, struct ps_reader *reader, bool is_empty, char *text)
{
    struct ps_catalog *catalog = calloc(1, sizeof(*catalog));
    if (catalog == NULL) {
        snprintf(text, PS_CONTROL_TEXT_BYTES, "no memory left");
        return MR_NO_MEMORY;
    }
    enum mr_status status = read_catalog(reader, catalog, text);
    if (status == MR_OK) {
        ps_control_gate(c, PS_GATE_BUSY, MR_OK, "");
        status = replace_state(c, reader, catalog, text);
        if (status != MR_OK && is_empty && ps_reader_is_damaged(reader)) {
            ps_node_each_core(c->node, clear_on_core, NULL);
        } else if (status != MR_OK) {
            char why[PS_CORE_TEXT_BYTES];
            snprintf(why, sizeof(why), "restore of checkpoint %llu failed half way (%.120s): restore another",
                     (unsigned long long)ps_reader_id(reader), text);
            ps_control_gate(c, PS_GATE_BROKEN, status, why);
            snprintf(text, PS_CONTROL_TEXT_BYTES, "%s; until then the node serves no data", why);
        }
    }
    free(catalog);
    return status;
}

static enum mr_status load_and_close(struct ps_control *c, struct ps_reader *reader, bool is_empty,
                                     struct ps_checkpoint_view *view, bool *is_damaged, char *text)
{
    view->id = ps_reader_id(reader);
    view->bytes_total = ps_reader_bytes(reader);
    atomic_store(&c->load_progress, 0);
    ps_control_set_view(c, view);
    enum mr_status status = load(c, reader, is_empty, text);
    *is_damaged = ps_reader_is_damaged(reader);
    ps_reader_close(reader);
    return status;
}

/* All of the checkpoint is verified before anything of the node's state goes. */
static enum mr_status restore_verified(struct ps_control *c, const char *directory, uint64_t id,
                                       struct ps_checkpoint_view *view, char *text)
{
    struct ps_reader *reader;
    bool is_damaged;
    enum mr_status status = ps_reader_open(directory, id, &reader, text);
    if (status != MR_OK) {
        return status;
    }
    if (text[0] != '\0') {
        ps_log("restore: %s", text);
    }
    return load_and_close(c, reader, false, view, &is_damaged, text);
}

/* There is nothing to lose: each block is verified as it is loaded, and read once. */
static enum mr_status restore_unread(struct ps_control *c, const char *directory, uint64_t id,
                                     struct ps_checkpoint_view *view, bool *is_damaged, char *text)
{
    struct ps_reader *reader;
    enum mr_status status = ps_reader_open_unread(directory, id, &reader, text);
    *is_damaged = status == MR_CHECKPOINT_CORRUPT || status == MR_CHECKPOINT_NOT_FOUND;
    return status == MR_OK ? load_and_close(c, reader, true, view, is_damaged, text) : status;
}

/* The newest that is whole. Only one that is damaged is passed over, as in ps_reader_open(). */
static enum mr_status restore_newest_unread(struct ps_control *c, const char *directory,
                                            struct ps_checkpoint_view *view, char *text)
{
    uint64_t ids[IDS_MAX];
    uint32_t count = ps_checkpoint_list(directory, ids, IDS_MAX);
    char passed_over[PS_CONTROL_TEXT_BYTES] = "";
    enum mr_status status = MR_CHECKPOINT_NOT_FOUND;
    bool is_damaged = true;
    if (count == 0) { /* says why */
        return restore_verified(c, directory, 0, view, text);
    }
    for (uint32_t i = 0; i < count && i < IDS_MAX && status != MR_OK && is_damaged; i++) {
        status = restore_unread(c, directory, ids[i], view, &is_damaged, text);
        if (status != MR_OK && passed_over[0] == '\0') {
            memcpy(passed_over, text, sizeof(passed_over));
        }
    }
    if (status == MR_OK && passed_over[0] != '\0') {
        ps_log("restore: %s", passed_over);
    } else if (status != MR_OK && is_damaged) {
        memcpy(text, passed_over, sizeof(passed_over));
    }
    return status;
}

static enum mr_status restore_any(struct ps_control *c, const char *directory, uint64_t id,
                                  struct ps_checkpoint_view *view, char *text)
{
    bool is_damaged;
    if (c->catalog.count > 0 || c->gate == PS_GATE_BROKEN) {
        return restore_verified(c, directory, id, view, text);
    }
    return id == 0 ? restore_newest_unread(c, directory, view, text)
                   : restore_unread(c, directory, id, view, &is_damaged, text);
}

enum mr_status ps_control_restore(struct ps_control *c, const char *directory, uint64_t id,
                                  uint64_t *restored_id, char *text)
{
    struct ps_checkpoint_view view = c->view;
    uint32_t state_before = atomic_load(&c->node->state);
    enum mr_status status = ps_control_check_idle(c, text);
    if (status != MR_OK) {
        return status;
    }
    directory = ps_control_directory(c, directory, text);
    if (directory == NULL) {
        return MR_INVALID_ARGUMENT;
    }
    view.state = PS_VIEW_LOADING;
    view.id = id;
    view.bytes_done = view.bytes_total = 0;
    atomic_store(&c->load_progress, 0);
    ps_control_set_view(c, &view);
    atomic_store(&c->node->state, MR_NODE_RESTORING);
    uint64_t start_us = dp_now_us();
    text[0] = '\0';
    status = restore_any(c, directory, id, &view, text);
    view.state = PS_VIEW_IDLE;
    view.bytes_done = atomic_load(&c->load_progress);
    view.duration_us = dp_now_us() - start_us;
    view.last_status = status;
    view.last_errno = 0;
    snprintf(view.text, sizeof(view.text), "%s", status == MR_OK ? "" : text);
    ps_control_set_view(c, &view);
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
