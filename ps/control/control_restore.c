/* Restore, a call or at the start: which checkpoint, of which directory, and what follows for the saves after
 * it. */
#include "ps/control/control_restore.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/log.h"
#include "ps/checkpoint/checkpoint_chain.h"
#include "ps/core/push_log.h"
#include "ps/store/store_url.h"

/* ---- after it ---- */

static void begin_marks(struct ps_core *core, void *arg)
{
    ps_save_is_as_saved(core);
}

struct restored_state {
    uint64_t step;
    const struct ps_log_file *log_files; /* NULL: there is no log, or not yet */
};

static void restored_on_core(struct ps_core *core, void *arg)
{
    const struct restored_state *restored = arg;
    ps_core_set_step(core, restored->step);
    mr_endpoint_set_checkpoint(core->ep, 0);
    if (restored->log_files != NULL)
        ps_push_log_switch(core, &restored->log_files[core->index]);
}

/* The next save may be a delta on what was restored: the newest of the configured directory. */
static void follow(struct ps_control *c, const char *directory, const struct ps_reader *reader)
{
    const struct ps_chain *chain = ps_reader_chain(reader);
    const uint64_t newest = ps_control_own_newest(c);
    uint64_t delta_bytes = 0;
    ps_save_chain_break(
        &c->saves.chain,
        "what was restored is not the newest checkpoint of checkpoint.directory: save a full one first");
    if (chain->cluster != NULL || newest != ps_reader_manifest(reader)->id ||
        strcmp(directory, c->node->config->checkpoint_directory) != 0)
        return;
    for (uint32_t i = 1; i < chain->count; i++)
        delta_bytes += ps_manifest_block_bytes(&chain->links[i]->manifest);
    ps_save_chain_restored(&c->saves.chain, directory, newest, chain->count - 1,
                           ps_manifest_block_bytes(&chain->links[0]->manifest), delta_bytes);
    ps_save_chain_set_hash(&c->saves.chain, ps_reader_manifest(reader)->hash);
    ps_node_each_core(c->node, begin_marks, NULL);
}

static void restored_whole(const struct ps_restore_attempt *a, const struct ps_reader *reader)
{
    struct ps_control *c = a->c;
    const char *directory = a->directory;
    struct ps_checkpoint_counters *counters = &c->node->checkpoint_counters;
    const struct ps_manifest *last = ps_reader_manifest(reader);
    uint64_t step = last->step;
    ps_control_saves_drop(c, "a checkpoint was restored meanwhile");
    bool is_own = strcmp(directory, c->node->config->checkpoint_directory) == 0;
    if (ps_reader_chain(reader)->cluster != NULL)
        is_own = a->share.own_part != PS_SAVED_NO_PART;
    ps_ancestry_begin(&c->ancestry, &ps_restore_own_manifest(a, reader)->ancestry, c->node->start_id,
                      is_own ? last->id : 0);
    struct restored_state restored = {.step = step, .log_files = ps_control_log_take(c)};
    c->log.cut_number = 0; /* no save has covered it */
    c->log.has_base = true;
    ps_node_each_core(c->node, restored_on_core, &restored);
    c->durable = (struct ps_durable){0};
    follow(c, directory, reader);
    c->clock_offset_us = last->clock_s * UINT64_C(1000000) - dp_now_us();
    ps_counter_set(&counters->restored_id, last->id);
    ps_counter_set(&counters->restored_step, step);
    ps_counter_set(&counters->restored_at_step, last->is_at_step);
    ps_control_schedule_start(c);
}

static void note_restored(const struct ps_restore_attempt *a, const struct ps_reader *reader)
{
    const struct ps_manifest *last = ps_reader_manifest(reader);
    struct ps_restored restored = {.id = last->id, .step = last->step, .is_at_step = last->is_at_step};
    for (uint32_t i = 0; i < a->plan.count; i++) {
        restored.tables += a->plan.entries[i].feature.kind == MR_TABLE;
        restored.variables += a->plan.entries[i].feature.kind == MR_VARIABLE;
    }
    if (a->parameters != NULL)
        restored.parameters = ps_parameter_load_count(a->parameters);
    *a->restored = restored;
}

/* ---- one checkpoint ---- */

/* NULL: no memory, and `text` says so. To be freed. */
static struct ps_restore_attempt *make_attempt(struct ps_control *c, const struct ps_restore_request *request,
                                               const char *directory, struct ps_checkpoint_view *view,
                                               char *text)
{
    struct ps_restore_attempt *a = calloc(1, sizeof(*a));
    if (a == NULL) {
        snprintf(text, PS_CONTROL_TEXT_BYTES, "no memory left");
        return NULL;
    }
    a->c = c;
    a->request = request;
    a->directory = directory;
    a->view = view;
    a->text = text;
    return a;
}

struct opening {
    struct ps_restore_attempt *attempt;
    uint64_t id;
    struct ps_reader *reader;
    enum mr_status status;
};

/* Reads the MANIFESTs of its chain. */
static void open_unread(void *arg)
{
    struct opening *o = arg;
    struct ps_restore_attempt *a = o->attempt;
    o->status = ps_reader_open_unread(a->place.store, a->place.path, o->id, &o->reader, a->text);
}

/* Whether a member has just those partitions that it had then: then its records are its own. */
static bool has_same_share(const struct ps_restore_request *request,
                           const struct ps_cluster_manifest *cluster)
{
    const uint32_t part =
        request->owns != NULL ? ps_cluster_manifest_find(cluster, request->own_part) : cluster->part_count;
    bool is_same = part < cluster->part_count;
    for (uint32_t p = 0; p < MR_PARTITION_COUNT && is_same; p++)
        is_same = request->owns[p] == (cluster->owner[p] == part);
    return is_same;
}

/* A node by itself takes all of a cluster's checkpoint, a member takes what it owns, of a single node's too:
 * rows, and the records of what was applied to them. Parameters are the node's own. */
static void choose_share(struct ps_restore_attempt *a, const struct ps_chain *chain)
{
    const bool is_shared = chain->cluster != NULL || a->request->owns != NULL;
    uint32_t parameters = 0;
    a->share =
        (struct ps_restore_share){.owns = a->request->owns, .own_part = is_shared ? PS_SAVED_NO_PART : 0};
    if (chain->cluster != NULL && has_same_share(a->request, chain->cluster))
        a->share.own_part = ps_cluster_manifest_find(chain->cluster, a->request->own_part);
    for (uint32_t i = 0; chain->cluster != NULL && i < chain->part_count && a->request->owns == NULL; i++)
        parameters += ps_parameters_listed(&ps_chain_part_last(chain, i)->manifest);
    if (parameters > 0 && a->request->name_count == 0)
        mr_log_with(
            MR_LOG_WARNING, MR_LOG_FIELDS({"count", .number = parameters}), "restore_without_parameters",
            "restore: %u parameters of the cluster's nodes are left out: restore them by name from the "
            "node's folder (ctl restore --directory DIR/NODE --table NAME)",
            parameters);
}

/* At a start, what the log has after it; later, where the log goes on after it. */
static enum mr_status prepare_log(struct ps_restore_attempt *a)
{
    const bool is_own = strcmp(a->directory, a->c->node->config->checkpoint_directory) == 0;
    const char *directory = is_own ? "" : a->directory;
    if (!a->request->by_call && a->request->name_count == 0 && a->request->owns == NULL)
        return ps_control_log_find(a->c, a->view->id, directory, a->text);
    return a->request->name_count == 0 ? ps_control_log_prepare(a->c, a->view->id, directory, a->text)
                                       : MR_OK;
}

/* Restores checkpoint `id`. Each block is read once, and verified as it is loaded. */
static enum mr_status restore_one(struct ps_restore_attempt *a, uint64_t id)
{
    struct opening opening = {.attempt = a, .id = id};
    ps_control_await(a->c, &a->place, open_unread, &opening);
    struct ps_reader *reader = opening.reader;
    enum mr_status status = opening.status;
    a->is_damaged = status == MR_CHECKPOINT_CORRUPT || status == MR_CHECKPOINT_NOT_FOUND;
    if (status != MR_OK)
        return status;
    if (a->request->own_part != NULL && a->request->own_part[0] != '\0' &&
        ps_reader_chain(reader)->cluster == NULL) {
        ps_text_path(a->text, a->place.path, "the file CLUSTER of that number cannot be opened");
        ps_reader_close(reader);
        return MR_CHECKPOINT_NOT_FOUND;
    }
    a->view->id = ps_reader_manifest(reader)->id;
    a->view->bytes_total = ps_chain_bytes(ps_reader_chain(reader));
    choose_share(a, ps_reader_chain(reader));
    ps_control_set_view(a->c, a->view);
    a->watch = ps_control_watch_store(a->c, &a->place);
    status = prepare_log(a);
    if (status == MR_OK)
        status = ps_restore_attempt_load(a, reader);
    if (status != MR_OK)
        ps_control_log_discard(a->c);
    ps_control_unwatch_store(a->watch);
    a->is_damaged |= ps_reader_is_damaged(reader);
    if (status == MR_OK) {
        note_restored(a, reader);
        ps_control_log_not_finite(a->c, &a->plan, a->view->id);
    }
    if (status == MR_OK && a->plan.whole)
        restored_whole(a, reader);
    else if (status == MR_OK)
        ps_save_chain_break(&a->c->saves.chain,
                            "single tables were restored since the last checkpoint: save a full one first");
    ps_reader_close(reader);
    return status;
}

static enum mr_status try_one(void *arg, uint64_t id, bool *is_damaged, char *text)
{
    struct ps_restore_attempt *a = arg;
    enum mr_status status = restore_one(a, id);
    *is_damaged = a->is_damaged;
    snprintf(text, PS_RESTORE_TEXT_BYTES, "%s", a->text);
    return status;
}

struct finding {
    struct ps_restore_attempt *attempt;
    uint64_t *ids;
    uint32_t count;
    enum mr_status status;
    char text[PS_TEXT_BYTES];
};

static void find_all(void *arg)
{
    struct finding *f = arg;
    const struct ps_place *place = &f->attempt->place;
    f->status = ps_checkpoint_find(place->store, place->path, &f->ids, &f->count, f->text);
}

static enum mr_status restore_newest(struct ps_restore_attempt *a)
{
    struct finding f = {.attempt = a};
    a->is_damaged = true; /* if there is no checkpoint at all */
    ps_control_await(a->c, &a->place, find_all, &f);
    if (f.status == MR_OK)
        f.status = ps_checkpoint_try(f.ids, f.count, try_one, a, f.text);
    free(f.ids);
    if (f.status == MR_OK && f.text[0] != '\0')
        mr_log_warning("restore_of_an_older_one", "restore: %s", f.text);
    else if (f.status != MR_OK && a->is_damaged)
        snprintf(a->text, PS_CONTROL_TEXT_BYTES, "%s", f.text);
    return f.status;
}

/* ---- the call ---- */

static enum mr_status restore_to_view(struct ps_control *c, const struct ps_restore_request *request,
                                      const char *directory, struct ps_checkpoint_view *view,
                                      struct ps_restored *restored, char *text)
{
    struct ps_restore_attempt *a = make_attempt(c, request, directory, view, text);
    if (a == NULL)
        return MR_NO_MEMORY;
    a->restored = restored;
    enum mr_status status = ps_stores_place(c->stores, directory, PS_PLACE_READ, &a->place, text);
    if (status == MR_OK)
        status = request->id == 0 ? restore_newest(a) : restore_one(a, request->id);
    ps_parameter_load_destroy(a->parameters);
    free(a->names);
    free(a);
    return status;
}

static void log_restored(const struct ps_restore_request *request, const char *directory,
                         const struct ps_checkpoint_view *view, const struct ps_restored *restored)
{
    char step[64] = "";
    if (restored->step != 0) {
        snprintf(step, sizeof(step), " of step %llu%s", (unsigned long long)restored->step,
                 restored->is_at_step ? ", cut at that step," : "");
    }
    mr_log_with(
        MR_LOG_INFO,
        MR_LOG_FIELDS({"checkpoint", .number = restored->id}, {"directory", .text = directory},
                      {"bytes", .number = view->bytes_total}, {"ms", .number = view->duration_us / 1000}),
        "restored", "restored %scheckpoint %llu%s from %s: %llu MiB in %llu ms",
        request->name_count > 0 ? "some of " : "", (unsigned long long)restored->id, step, directory,
        (unsigned long long)(view->bytes_total >> 20), (unsigned long long)(view->duration_us / 1000));
}

static enum mr_status check_possible(const struct ps_control *c, const struct ps_restore_request *request,
                                     char *text)
{
    if (c->gate == PS_GATE_BROKEN && request->name_count > 0) {
        snprintf(text, PS_CONTROL_TEXT_BYTES,
                 "the node holds half a checkpoint: restore a whole one before single tables");
        return c->broken_status;
    }
    if (ps_control_log_is_on(c) && request->name_count > 0) {
        snprintf(
            text, PS_CONTROL_TEXT_BYTES,
            "single tables cannot be restored into a node with a log, which could not repeat it: restore "
            "the whole checkpoint, or set checkpoint.durability = checkpoint and start the node again");
        return MR_UNSUPPORTED;
    }
    return ps_control_check_idle(c, text);
}

bool ps_control_goes_back(struct ps_control *c, struct ps_restore_request *request)
{
    if (!ps_history_goes_back(&c->history, ps_control_own_newest(c)))
        return false;
    const bool is_own = strcmp(c->history.back_directory, PS_HISTORY_OWN) == 0;
    *request = (struct ps_restore_request){.directory = is_own ? c->node->config->checkpoint_directory
                                                               : c->history.back_directory,
                                           .is_own = true,
                                           .goes_on = true,
                                           .id = c->history.back_id};
    return true;
}

enum mr_status ps_control_restore(struct ps_control *c, const struct ps_restore_request *request,
                                  struct ps_restored *restored, char *text)
{
    struct ps_checkpoint_view view = c->view;
    const enum mr_node_state state_before = (enum mr_node_state)atomic_load(&c->node->state);
    enum mr_status status = check_possible(c, request, text);
    if (status != MR_OK)
        return status;
    char directory[PS_DIRECTORY_BYTES];
    if (request->is_own)
        snprintf(directory, sizeof(directory), "%s", request->directory);
    else
        status = ps_control_check_source(c->node->config, request->directory, directory, text);
    if (status != MR_OK)
        return status;
    view.state = PS_VIEW_LOADING;
    view.id = request->id;
    view.bytes_done = view.bytes_total = 0;
    atomic_store(&c->load_progress, 0);
    ps_control_set_view(c, &view);
    if (request->name_count == 0)
        ps_node_set_state(c->node, MR_NODE_RESTORING);
    uint64_t start_us = dp_now_us();
    text[0] = '\0';
    status = restore_to_view(c, request, directory, &view, restored, text);
    view.state = PS_VIEW_IDLE;
    view.bytes_done = atomic_load(&c->load_progress);
    view.duration_us = dp_now_us() - start_us;
    view.last_status = status;
    view.last_errno = 0;
    snprintf(view.text, sizeof(view.text), "%s", status == MR_OK ? "" : text);
    ps_control_set_view(c, &view);
    if (c->gate == PS_GATE_BROKEN)
        ps_node_set_state(c->node, MR_NODE_FAILED);
    else if (state_before != MR_NODE_FAILED) /* else until the gate opens */
        ps_node_set_state(c->node, state_before);
    if (status == MR_OK)
        log_restored(request, directory, &view, restored);
    else
        mr_log_error("restore_failed", "restore failed: %s", text);
    return status;
}

enum mr_status ps_control_read_features(struct ps_control *c, const char *directory, uint64_t id,
                                        struct ps_catalog *features, char *text)
{
    struct ps_checkpoint_view view = {.id = id};
    const struct ps_restore_request request = {.directory = directory};
    struct ps_restore_attempt *a = make_attempt(c, &request, directory, &view, text);
    if (a == NULL)
        return MR_NO_MEMORY;
    struct opening opening = {.attempt = a, .id = id};
    opening.status = ps_stores_place(c->stores, directory, PS_PLACE_READ, &a->place, text);
    if (opening.status == MR_OK)
        ps_control_await(c, &a->place, open_unread, &opening);
    if (opening.status == MR_OK)
        opening.status = ps_restore_read_catalog(opening.reader, &a->held, text);
    if (opening.status == MR_OK)
        opening.status = ps_restore_check_partial(a, opening.reader);
    if (opening.status == MR_OK)
        *features = a->held;
    if (opening.reader != NULL)
        ps_reader_close(opening.reader);
    free(a);
    return opening.status;
}
