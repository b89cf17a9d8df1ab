/* Restore over all cores: the checkpoint is loaded beside the state that serves (ps/core/shadow.h) until all
 * of it is there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/log.h"
#include "ps/checkpoint/checkpoint_chain.h"
#include "ps/control/control_internal.h"
#include "ps/restore/restore.h"
#include "ps/restore/restore_plan.h"
#include "ps/store/store_url.h"
#include "ps/table/alter.h"

/* One restore, and the checkpoint that is being tried. */
struct attempt {
    struct ps_control *c;
    const struct ps_restore_request *request;
    const char *directory;
    struct ps_place place; /* of that directory */
    struct ps_store_watch *watch;
    struct ps_checkpoint_view *view;
    struct ps_catalog held; /* by the checkpoint */
    struct ps_restore_plan plan;
    struct mr_restore_pair *names;        /* the request's, those of parameters after the others */
    uint32_t parameter_names;             /* how many of them */
    struct ps_parameter_load *parameters; /* NULL: none are restored */
    struct ps_restored *restored;
    struct ps_restore_share share;
    bool is_damaged;   /* why it failed */
    bool reopens;      /* the gate was closed for a moment */
    uint32_t left_out; /* features of the checkpoint that were dropped since */
    char *text;        /* of the caller */
};

/* ---- on the cores ---- */

struct stage_order {
    const struct ps_restore_plan *plan;
    uint32_t clock_s; /* of the checkpoint */
    enum mr_status status[DP_CORES_MAX];
    char text[DP_CORES_MAX][PS_CORE_TEXT_BYTES];
};

static void stage_on_core(struct ps_core *core, void *arg)
{
    struct stage_order *order = arg;
    char *text = order->text[core->index];
    enum mr_status status = ps_shadow_begin(core, order->plan->whole, order->clock_s);
    if (status != MR_OK) {
        snprintf(text, PS_CORE_TEXT_BYTES,
                 "core %u has no memory left for another record of batches and pushes", core->index);
    }
    for (uint32_t i = 0; i < order->plan->count && status == MR_OK; i++) {
        const struct ps_restore_entry *e = &order->plan->entries[i];
        status = ps_shadow_add(core, e->checkpoint_id, e->id, &e->feature, text);
    }
    order->status[core->index] = status;
}

static void end_on_core(struct ps_core *core, void *arg)
{
    ps_shadow_end(core);
}

/* Batches that were fed belong to the tables that were there before. */
static void keep_on_core(struct ps_core *core, void *arg)
{
    ps_batch_cache_clear(core->batches);
    ps_save_marks_lost(core); /* the caller may know which checkpoint the marks count from */
    ps_shadow_end(core);
}

static void clear_on_core(struct ps_core *core, void *arg)
{
    ps_core_clear(core);
}

static void move_on_core(struct ps_core *core, void *arg)
{
    const struct ps_restore_plan *plan = arg;
    bool replaces = false;
    for (uint32_t i = 0; i < plan->count; i++) {
        replaces |= plan->entries[i].replaced_id != 0;
        ps_core_remove_feature(core, plan->entries[i].replaced_id);
    }
    for (uint32_t i = 0; i < plan->count; i++)
        ps_shadow_move(core, plan->entries[i].checkpoint_id);
    if (replaces)
        ps_batch_cache_clear(core->batches);
    ps_save_marks_lost(core); /* rows that were moved in have no marks */
    ps_shadow_end(core);
}

/* ---- parameters ---- */

static bool replaces(const struct attempt *a)
{
    return a->plan.whole || a->request->replace;
}

static bool is_ended(const char *name)
{
    return memchr(name, '\0', MR_NAME_BYTES) != NULL;
}

/* Says whose parameters are taken: of a cluster's checkpoint those of the node's own part, or none. */
static const struct ps_manifest *own_manifest(const struct attempt *a, const struct ps_reader *reader)
{
    const struct ps_chain *chain = ps_reader_chain(reader);
    return a->share.own_part < chain->part_count ? &ps_chain_part_last(chain, a->share.own_part)->manifest
                                                 : ps_chain_manifest(chain);
}

static bool means_parameter(const struct attempt *a, const struct ps_reader *reader,
                            const struct mr_restore_pair *pair)
{
    return a->c->node->parameters != NULL && is_ended(pair->name) && is_ended(pair->new_name) &&
           ps_catalog_find(&a->held, pair->name) == a->held.count &&
           ps_parameter_is_listed(own_manifest(a, reader), pair->name);
}

/* Copies the names, those that only a parameter has in this checkpoint after the others. */
static enum mr_status sort_names(struct attempt *a, const struct ps_reader *reader)
{
    const uint32_t count = a->request->name_count;
    uint32_t features = 0, parameters = 0;
    if (a->names == NULL && (a->names = malloc((count + 1u) * sizeof(*a->names))) == NULL) {
        snprintf(a->text, PS_CONTROL_TEXT_BYTES, "no memory left");
        return MR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct mr_restore_pair *pair = &a->request->names[i];
        const uint32_t at = means_parameter(a, reader, pair) ? count - ++parameters : features++;
        a->names[at] = *pair;
    }
    a->parameter_names = parameters;
    return MR_OK;
}

/* ---- one checkpoint ---- */

/* Creates the plan's features in the shadow of every core, empty. */
static enum mr_status stage(struct attempt *a, const struct ps_reader *reader)
{
    const struct ps_manifest *last = ps_reader_manifest(reader);
    struct stage_order order = {.plan = &a->plan, .clock_s = last->clock_s};
    ps_node_each_core(a->c->node, stage_on_core, &order);
    for (uint32_t i = 0; i < a->c->node->core_count; i++) {
        if (order.status[i] != MR_OK) {
            snprintf(a->text, PS_CONTROL_TEXT_BYTES, "%s", order.text[i]);
            return order.status[i];
        }
    }
    return MR_OK;
}

/* Makes room for the checkpoint's parameters, or for those that are named. */
static enum mr_status begin_parameters(struct attempt *a, const struct ps_reader *reader)
{
    struct mr_named_parameters *node = a->c->node->parameters;
    const uint32_t count = a->parameter_names, features = a->request->name_count - count;
    ps_parameter_load_destroy(a->parameters);
    a->parameters = NULL;
    if (node == NULL || (!a->plan.whole && count == 0))
        return MR_OK;
    enum mr_status status = ps_parameter_load_create(
        own_manifest(a, reader), a->plan.whole ? NULL : a->names + features, count, &a->parameters, a->text);
    return status == MR_OK ? ps_parameter_load_fits(a->parameters, node, replaces(a), a->text) : status;
}

static enum mr_status try_load_shadow(struct attempt *a, struct ps_reader *reader, bool makes_room)
{
    atomic_store(&a->c->load_progress, 0);
    enum mr_status status = begin_parameters(a, reader);
    if (status == MR_OK)
        status = stage(a, reader);
    if (status == MR_OK) {
        const bool leaves_out = a->left_out > 0 || ps_chain_drops(ps_reader_chain(reader));
        status = ps_restore_load(a->c->node, reader, &a->share, a->plan.whole, leaves_out, makes_room,
                                 a->parameters, &a->c->load_progress, a->text);
    }
    if (status != MR_OK) {
        ps_node_each_core(a->c->node, end_on_core, NULL);
        ps_leaving_wait(a->c->node); /* the memory may be needed at once */
    }
    return status;
}

/* On failure no shadow is left. A checkpoint of tables that filled the memory must fit again. */
static enum mr_status load_shadow(struct attempt *a, struct ps_reader *reader)
{
    enum mr_status status = try_load_shadow(a, reader, true);
    if (status == MR_OUT_OF_MEMORY) {
        mr_log_warning(
            "restore_in_little_memory",
            "restore: memory is short (%.120s): once more, with tables as small as can be, which takes "
            "longer",
            a->text);
        status = try_load_shadow(a, reader, false);
    }
    return status;
}

/* Refuses data calls: the old state is gone, and the new one could not be loaded. */
static void break_node(struct attempt *a, enum mr_status status)
{
    char why[PS_CORE_TEXT_BYTES];
    snprintf(why, sizeof(why), "restore of checkpoint %llu failed half way (%.120s): restore another",
             (unsigned long long)a->view->id, a->text);
    ps_control_gate_broken(a->c, status, why);
    snprintf(a->text, PS_CONTROL_TEXT_BYTES, "%s; until then the node serves no data", why);
}

/* Loads the checkpoint in place of the old state, when there is no memory for both. It is verified before the
 * old state is freed. */
static enum mr_status load_instead(struct attempt *a)
{
    struct ps_reader *reader;
    mr_log_with(
        MR_LOG_WARNING, MR_LOG_FIELDS({"checkpoint", .number = a->view->id}), "restore_in_place",
        "restore: no memory for checkpoint %llu beside what is there: it is verified, and then takes its "
        "place",
        (unsigned long long)a->view->id);
    enum mr_status status = ps_reader_open(a->place.store, a->place.path, a->view->id, &reader, a->text);
    if (status != MR_OK) {
        a->is_damaged = status == MR_CHECKPOINT_CORRUPT || status == MR_CHECKPOINT_NOT_FOUND;
        return status;
    }
    ps_node_each_core(a->c->node, clear_on_core, NULL);
    ps_leaving_wait(a->c->node);
    a->c->catalog.count = 0;
    status = load_shadow(a, reader);
    ps_reader_close(reader);
    if (status != MR_OK)
        break_node(a, status);
    return status;
}

struct room {
    uint64_t bytes[DP_CORES_MAX];
};

static void room_on_core(struct ps_core *core, void *arg)
{
    struct room *room = arg;
    uint64_t limit = ps_arena_limit_bytes(core->arena), mapped = ps_arena_mapped_bytes(core->arena);
    room->bytes[core->index] = limit > mapped ? limit - mapped : 0;
}

/* Whether there is room beside the old state for tables of the checkpoint's size, with their index and unused
 * room. Trying does not answer that: tables that are short of memory may drop rows instead of failing. */
static bool fits_beside(const struct attempt *a, const struct ps_reader *reader)
{
    const struct ps_node *node = a->c->node;
    struct room room;
    uint64_t need = ps_chain_bytes(ps_reader_chain(reader)) / node->core_count * 5 / 4;
    ps_node_each_core(a->c->node, room_on_core, &room);
    for (uint32_t i = 0; i < node->core_count; i++)
        if (room.bytes[i] < need)
            return false;
    return true;
}

/* Loads while calls wait, but not for a store that sends nothing, as long as there is a state to go on
 * with. */
static enum mr_status load_beside(struct attempt *a, struct ps_reader *reader)
{
    struct ps_control *c = a->c;
    if (a->request->by_call && c->gate != PS_GATE_BROKEN)
        ps_control_watch_gives_up(a->watch);
    enum mr_status status = load_shadow(a, reader);
    const bool gave_up = ps_control_watch_gave_up(a->watch);
    if (status != MR_OK && gave_up) {
        status = MR_IO_ERROR;
        snprintf(
            a->text, PS_CONTROL_TEXT_BYTES,
            "the store sent nothing of checkpoint %llu for %llu ms (checkpoint.store_wait_ms) while calls "
            "waited: the node serves what it had; restore again once the store answers",
            (unsigned long long)a->view->id, (unsigned long long)c->node->config->checkpoint_store_wait_ms);
    }
    return status;
}

static enum mr_status load_whole(struct attempt *a, struct ps_reader *reader)
{
    struct ps_control *c = a->c;
    bool has_state = c->catalog.count > 0, was_broken = c->gate == PS_GATE_BROKEN;
    enum mr_status status = MR_OUT_OF_MEMORY;
    if (!was_broken)
        ps_control_gate(c, PS_GATE_BUSY);
    if (!has_state || fits_beside(a, reader))
        status = load_beside(a, reader);
    if (status == MR_OUT_OF_MEMORY && has_state)
        status = load_instead(a);
    if (status != MR_OK)
        return status;
    ps_node_each_core(c->node, keep_on_core, NULL);
    if (was_broken)
        ps_control_gate(c, PS_GATE_BUSY);
    return MR_OK;
}

/* Data calls continue; only while features are replaced are they answered BUSY, for a moment. */
static enum mr_status load_named(struct attempt *a, struct ps_reader *reader)
{
    struct ps_control *c = a->c;
    enum mr_status status = load_shadow(a, reader);
    if (status != MR_OK)
        return status;
    enum ps_gate gate = c->gate;
    if (gate == PS_GATE_OPEN && a->request->replace)
        ps_control_gate(c, PS_GATE_BUSY);
    a->reopens = c->gate != gate;
    ps_node_each_core(c->node, move_on_core, &a->plan);
    return MR_OK;
}

static void set_restores_on_core(struct ps_core *core, void *arg)
{
    mr_endpoint_set_restores(core->ep, *(const uint32_t *)arg);
}

/* Counts a restore that takes back pushes that were answered: clients must learn of it before the gate opens,
 * and after the next start as well. */
static void count_restore(struct attempt *a)
{
    struct ps_history *h = &a->c->history;
    const struct ps_restore_plan *plan = &a->plan;
    const char *own = a->c->node->config->checkpoint_directory;
    bool counted = false;
    if (plan->whole) {
        const uint64_t newest = ps_control_own_newest(a->c);
        const bool is_own = strcmp(own, a->directory) == 0;
        const bool is_newest = newest == a->view->id && is_own;
        ps_history_restored(h, is_own ? PS_HISTORY_OWN : a->directory, is_newest ? 0 : a->view->id, newest);
        return;
    }
    for (uint32_t i = 0; i < plan->count; i++) {
        if (plan->entries[i].replaced_id != 0) {
            h->restores += !counted;
            counted = true;
            ps_history_replaced(h, plan->entries[i].replaced_id);
        }
    }
}

static enum mr_status note_history(struct attempt *a)
{
    struct ps_control *c = a->c;
    struct ps_history *h = &c->history;
    char error[PS_CONTROL_TEXT_BYTES];
    const uint32_t restores = h->restores, last_feature = h->last_feature, dropped = h->dropped_count,
                   altered = h->altered_count;
    uint32_t highest = ps_catalog_last_id(&c->catalog);
    h->last_feature = highest > last_feature ? highest : last_feature;
    if (a->request->by_call)
        count_restore(a);
    for (uint32_t i = 0; a->plan.whole && i < a->plan.count; i++)
        ps_history_brought_back(h, a->plan.entries[i].id);
    if (a->plan.whole && !a->request->goes_on)
        h->altered_count = 0; /* the options are the checkpoint's */
    for (uint32_t i = 0; i < a->plan.count; i++)
        if (a->plan.entries[i].replaced_id != 0)
            ps_history_not_altered(h, a->plan.entries[i].replaced_id);
    if (h->restores == restores && h->last_feature == last_feature && h->dropped_count == dropped &&
        h->altered_count == altered)
        return MR_OK;
    atomic_store(&c->node->restores, h->restores);
    ps_node_each_core(c->node, set_restores_on_core, &h->restores);
    enum mr_status status = ps_control_write_history(c, h, error);
    if (status != MR_OK) {
        snprintf(
            a->text, PS_CONTROL_TEXT_BYTES,
            "checkpoint %llu is restored, but %.200s: after the node's next start clients would bring back "
            "what it took: make room and restore again",
            (unsigned long long)a->view->id, error);
    }
    return status;
}

/* A partial checkpoint is not a state that a node can have, and gives its features by their names only. */
static enum mr_status check_partial(const struct attempt *a, const struct ps_reader *reader)
{
    const struct ps_manifest *m = ps_reader_manifest(reader);
    if (!m->is_partial || a->request->name_count > 0)
        return MR_OK;
    const uint32_t parameters = ps_parameters_listed(m);
    const char *first = a->held.count > 0 ? a->held.features[0].name : "none";
    if (a->held.count == 0 && parameters > 0)
        first = m->parameters[0].name;
    snprintf(
        a->text, PS_CONTROL_TEXT_BYTES,
        "checkpoint %llu of %.160s is partial: it has %u tables and variables and %u parameters, the first "
        "is %.63s; name those to restore (ctl restore --table NAME)",
        (unsigned long long)a->view->id, a->directory, a->held.count, parameters, first);
    return MR_INVALID_ARGUMENT;
}

/* Names alone are not a restore of everything, even if all of them are of parameters. */
static enum mr_status make_plan(struct attempt *a)
{
    const uint32_t features = a->request->name_count - a->parameter_names;
    if (features == 0 && a->parameter_names > 0) {
        a->plan.whole = false;
        a->plan.count = 0;
        return MR_OK;
    }
    return ps_restore_plan_make(&a->held, &a->c->catalog, a->names, features, a->request->replace,
                                a->c->history.last_feature + 1, &a->plan, a->text);
}

/* What stands above a checkpoint: in a cluster its catalogue; on a node that goes on after a start, what
 * it has noted since. */
static bool is_dropped(const struct attempt *a, uint32_t id, const char *name)
{
    const struct ps_cluster_catalog *catalog = ps_control_cluster_catalog(a->c);
    if (catalog == NULL)
        return a->request->goes_on && ps_history_is_dropped(&a->c->history, id);
    const uint32_t at = ps_cluster_catalog_find_id(catalog, id);
    return at == catalog->count || strncmp(catalog->features[at].feature.name, name, MR_NAME_BYTES) != 0;
}

/* NULL: it is as the checkpoint has it. */
static const struct mr_feature *find_noted(const struct attempt *a, uint32_t id)
{
    const struct ps_cluster_catalog *catalog = ps_control_cluster_catalog(a->c);
    if (catalog == NULL)
        return a->request->goes_on ? ps_history_find_altered(&a->c->history, id) : NULL;
    return &catalog->features[ps_cluster_catalog_find_id(catalog, id)].feature;
}

static void leave_out_dropped(struct attempt *a)
{
    a->left_out = 0;
    for (uint32_t i = a->held.count; i > 0; i--) {
        const uint32_t id = a->held.ids[i - 1];
        if (is_dropped(a, id, a->held.features[i - 1].name)) {
            ps_catalog_remove(&a->held, id);
            a->left_out++;
        }
    }
    if (a->left_out > 0)
        mr_log_with(MR_LOG_INFO, MR_LOG_FIELDS({"count", .number = a->left_out}), "restore_without_dropped",
                    "restore: %u of the checkpoint's features %s dropped since, and left out", a->left_out,
                    a->left_out == 1 ? "was" : "were");
}

/* And with the options that features were given since. */
static void alter_as_noted(struct attempt *a)
{
    char ignored[PS_RESTORE_TEXT_BYTES];
    for (uint32_t i = 0; i < a->held.count; i++) {
        struct mr_feature *held = &a->held.features[i], after = *held;
        const struct mr_feature *noted = find_noted(a, a->held.ids[i]);
        if (noted != NULL && mr_feature_alter(&after, held, noted) == NULL &&
            ps_alter_check(held, &after, ignored, sizeof(ignored)))
            *held = after;
    }
}

static enum mr_status control_restore_load(struct attempt *a, struct ps_reader *reader)
{
    enum mr_status status = ps_restore_read_catalog(reader, &a->held, a->text);
    if (status == MR_OK)
        status = check_partial(a, reader);
    if (status == MR_OK) {
        leave_out_dropped(a);
        alter_as_noted(a);
    }
    if (status == MR_OK)
        status = sort_names(a, reader);
    if (status == MR_OK)
        status = make_plan(a);
    if (status == MR_OK)
        status = begin_parameters(a, reader); /* refused before anything is cleared */
    if (status == MR_OK)
        status = a->plan.whole ? load_whole(a, reader) : load_named(a, reader);
    if (status != MR_OK)
        return status;
    ps_restore_plan_apply(&a->plan, &a->c->catalog);
    status = note_history(a);
    ps_control_cluster_restored(a->c);
    if (status == MR_OK && a->parameters != NULL)
        status = ps_parameter_load_give(a->parameters, a->c->node->parameters, replaces(a), a->text);
    if (a->reopens)
        ps_control_gate(a->c, PS_GATE_OPEN);
    return status;
}

/* ---- after it ---- */

static void begin_marks(struct ps_core *core, void *arg)
{
    ps_save_is_as_saved(core);
}

static void restored_on_core(struct ps_core *core, void *arg)
{
    ps_core_set_step(core, *(const uint64_t *)arg);
    mr_endpoint_set_checkpoint(core->ep, 0);
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

static void restored_some(struct ps_control *c)
{
    ps_save_chain_break(&c->saves.chain,
                        "single tables were restored since the last checkpoint: save a full one first");
}

static void restored_whole(const struct attempt *a, const struct ps_reader *reader)
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
    ps_ancestry_begin(&c->ancestry, &own_manifest(a, reader)->ancestry, c->node->start_id,
                      is_own ? last->id : 0);
    ps_node_each_core(c->node, restored_on_core, &step);
    c->durable = (struct ps_durable){0};
    follow(c, directory, reader);
    c->clock_offset_us = last->clock_s * UINT64_C(1000000) - dp_now_us();
    ps_counter_set(&counters->restored_id, last->id);
    ps_counter_set(&counters->restored_step, step);
    ps_counter_set(&counters->restored_at_step, last->is_at_step);
    ps_control_schedule_start(c);
}

static void note_restored(const struct attempt *a, const struct ps_reader *reader)
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

/* NULL: no memory, and `text` says so. To be freed. */
static struct attempt *make_attempt(struct ps_control *c, const struct ps_restore_request *request,
                                    const char *directory, struct ps_checkpoint_view *view, char *text)
{
    struct attempt *a = calloc(1, sizeof(*a));
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
    struct attempt *attempt;
    uint64_t id;
    struct ps_reader *reader;
    enum mr_status status;
};

/* Reads the MANIFESTs of its chain. */
static void open_unread(void *arg)
{
    struct opening *o = arg;
    struct attempt *a = o->attempt;
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
static void choose_share(struct attempt *a, const struct ps_chain *chain)
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

/* Restores checkpoint `id`. Each block is read once, and verified as it is loaded. */
static enum mr_status restore_one(struct attempt *a, uint64_t id)
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
    status = control_restore_load(a, reader);
    ps_control_unwatch_store(a->watch);
    a->is_damaged |= ps_reader_is_damaged(reader);
    if (status == MR_OK) {
        note_restored(a, reader);
        ps_control_log_not_finite(a->c, &a->plan, a->view->id);
    }
    if (status == MR_OK && a->plan.whole)
        restored_whole(a, reader);
    else if (status == MR_OK)
        restored_some(a->c);
    ps_reader_close(reader);
    return status;
}

enum mr_status ps_control_read_features(struct ps_control *c, const char *directory, uint64_t id,
                                        struct ps_catalog *features, char *text)
{
    struct ps_checkpoint_view view = {.id = id};
    const struct ps_restore_request request = {.directory = directory};
    struct attempt *a = make_attempt(c, &request, directory, &view, text);
    if (a == NULL)
        return MR_NO_MEMORY;
    struct opening opening = {.attempt = a, .id = id};
    opening.status = ps_stores_place(c->stores, directory, PS_PLACE_READ, &a->place, text);
    if (opening.status == MR_OK)
        ps_control_await(c, &a->place, open_unread, &opening);
    if (opening.status == MR_OK)
        opening.status = ps_restore_read_catalog(opening.reader, &a->held, text);
    if (opening.status == MR_OK)
        opening.status = check_partial(a, opening.reader);
    if (opening.status == MR_OK)
        *features = a->held;
    if (opening.reader != NULL)
        ps_reader_close(opening.reader);
    free(a);
    return opening.status;
}

static enum mr_status try_one(void *arg, uint64_t id, bool *is_damaged, char *text)
{
    struct attempt *a = arg;
    enum mr_status status = restore_one(a, id);
    *is_damaged = a->is_damaged;
    snprintf(text, PS_RESTORE_TEXT_BYTES, "%s", a->text);
    return status;
}

struct finding {
    struct attempt *attempt;
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

static enum mr_status restore_newest(struct attempt *a)
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
    struct attempt *a = make_attempt(c, request, directory, view, text);
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
