/* Loads a checkpoint over all cores: in the place of all that the node holds, or single features. */
#include "ps/control/control_restore.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/log.h"
#include "ps/checkpoint/checkpoint_chain.h"
#include "ps/core/alter.h"

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
    enum mr_status status = ps_staging_begin(core, order->plan->whole, order->clock_s);
    if (status != MR_OK) {
        snprintf(text, PS_CORE_TEXT_BYTES,
                 "core %u has no memory left for another record of batches and pushes", core->index);
    }
    for (uint32_t i = 0; i < order->plan->count && status == MR_OK; i++) {
        const struct ps_restore_entry *e = &order->plan->entries[i];
        status = ps_staging_add(core, e->checkpoint_id, e->id, &e->feature, text);
    }
    order->status[core->index] = status;
}

static void end_on_core(struct ps_core *core, void *arg)
{
    ps_staging_end(core);
}

/* Batches that were fed belong to the tables that were there before. */
static void keep_on_core(struct ps_core *core, void *arg)
{
    ps_batch_cache_clear(core->batches);
    ps_save_marks_lost(core); /* the caller may know which checkpoint the marks count from */
    ps_staging_end(core);
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
        ps_staging_move(core, plan->entries[i].checkpoint_id);
    if (replaces)
        ps_batch_cache_clear(core->batches);
    ps_save_marks_lost(core); /* rows that were moved in have no marks */
    ps_staging_end(core);
}

/* ---- what is restored ---- */

const struct ps_manifest *ps_restore_own_manifest(const struct ps_restore_attempt *a,
                                                  const struct ps_reader *reader)
{
    const struct ps_chain *chain = ps_reader_chain(reader);
    return a->share.own_part < chain->part_count ? &ps_chain_part_last(chain, a->share.own_part)->manifest
                                                 : ps_chain_manifest(chain);
}

enum mr_status ps_restore_check_partial(const struct ps_restore_attempt *a, const struct ps_reader *reader)
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

/* The log has drops and alterations in their order among the pushes. */
static bool goes_on_alone(const struct ps_restore_attempt *a)
{
    return a->request->goes_on && !ps_control_log_follows(a->c);
}

/* What stands above a checkpoint: in a cluster its catalogue; on a node that goes on after a start, what
 * it has noted since. */
static bool is_dropped(const struct ps_restore_attempt *a, uint32_t id, const char *name)
{
    const struct ps_cluster_catalog *catalog = ps_control_cluster_catalog(a->c);
    if (catalog == NULL)
        return goes_on_alone(a) && ps_history_is_dropped(&a->c->history, id);
    const uint32_t at = ps_cluster_catalog_find_id(catalog, id);
    return at == catalog->count || strncmp(catalog->features[at].feature.name, name, MR_NAME_BYTES) != 0;
}

/* NULL: it is as the checkpoint has it. */
static const struct mr_feature *find_noted(const struct ps_restore_attempt *a, uint32_t id)
{
    const struct ps_cluster_catalog *catalog = ps_control_cluster_catalog(a->c);
    if (catalog == NULL)
        return goes_on_alone(a) ? ps_history_find_altered(&a->c->history, id) : NULL;
    return &catalog->features[ps_cluster_catalog_find_id(catalog, id)].feature;
}

static void leave_out_dropped(struct ps_restore_attempt *a)
{
    a->skipped = 0;
    for (uint32_t i = a->held.count; i > 0; i--) {
        const uint32_t id = a->held.ids[i - 1];
        if (is_dropped(a, id, a->held.features[i - 1].name)) {
            ps_catalog_remove(&a->held, id);
            a->skipped++;
        }
    }
    if (a->skipped > 0)
        mr_log_with(MR_LOG_INFO, MR_LOG_FIELDS({"count", .number = a->skipped}), "restore_without_dropped",
                    "restore: %u of the checkpoint's features %s dropped since, and left out", a->skipped,
                    a->skipped == 1 ? "was" : "were");
}

/* And with the options that features were given since. */
static void alter_as_noted(struct ps_restore_attempt *a)
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

static bool is_ended(const char *name)
{
    return memchr(name, '\0', MR_NAME_BYTES) != NULL;
}

/* Copies the names, those that only a parameter has in this checkpoint after the others. */
static enum mr_status sort_names(struct ps_restore_attempt *a, const struct ps_reader *reader)
{
    const uint32_t count = a->request->name_count;
    uint32_t features = 0;
    a->parameter_names = 0;
    if (a->names == NULL && (a->names = malloc((count + 1u) * sizeof(*a->names))) == NULL) {
        snprintf(a->text, PS_CONTROL_TEXT_BYTES, "no memory left");
        return MR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct mr_restore_pair *pair = &a->request->names[i];
        const bool is_parameter = a->c->node->parameters != NULL && is_ended(pair->name) &&
                                  is_ended(pair->new_name) &&
                                  ps_catalog_find(&a->held, pair->name) == a->held.count &&
                                  ps_parameter_is_listed(ps_restore_own_manifest(a, reader), pair->name);
        a->names[is_parameter ? count - ++a->parameter_names : features++] = *pair;
    }
    return MR_OK;
}

static bool replaces(const struct ps_restore_attempt *a)
{
    return a->plan.whole || a->request->replace;
}

/* Makes room for the checkpoint's parameters, or for those that are named. */
static enum mr_status begin_parameters(struct ps_restore_attempt *a, const struct ps_reader *reader)
{
    struct mr_named_parameters *node = a->c->node->parameters;
    const uint32_t count = a->parameter_names, features = a->request->name_count - count;
    ps_parameter_load_destroy(a->parameters);
    a->parameters = NULL;
    if (node == NULL || (!a->plan.whole && count == 0))
        return MR_OK;
    enum mr_status status =
        ps_parameter_load_create(ps_restore_own_manifest(a, reader),
                                 a->plan.whole ? NULL : a->names + features, count, &a->parameters, a->text);
    return status == MR_OK ? ps_parameter_load_fits(a->parameters, node, replaces(a), a->text) : status;
}

/* ---- loading ---- */

/* Creates the plan's features in the staging state of every core, empty. */
static enum mr_status stage(struct ps_restore_attempt *a, const struct ps_reader *reader)
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

/* Loads the plan's features and parameters into the staging states of all cores; on failure none is left. A
 * checkpoint of tables that filled the memory must fit again: the second time with tables as small as can
 * be. */
static enum mr_status load_staging(struct ps_restore_attempt *a, struct ps_reader *reader)
{
    for (bool makes_room = true;; makes_room = false) {
        atomic_store(&a->c->load_progress, 0);
        enum mr_status status = begin_parameters(a, reader);
        if (status == MR_OK)
            status = stage(a, reader);
        if (status == MR_OK) {
            const bool leaves_out = a->skipped > 0 || ps_chain_drops(ps_reader_chain(reader));
            status = ps_restore_load(a->c->node, reader, &a->share, a->plan.whole, leaves_out, makes_room,
                                     a->parameters, &a->c->load_progress, a->text);
        }
        if (status == MR_OK)
            return MR_OK;
        ps_node_each_core(a->c->node, end_on_core, NULL);
        ps_pending_free_wait(a->c->node); /* the memory may be needed at once */
        if (status != MR_OUT_OF_MEMORY || !makes_room)
            return status;
        mr_log_warning(
            "restore_in_little_memory",
            "restore: memory is short (%.120s): once more, with tables as small as can be, which takes "
            "longer",
            a->text);
    }
}

/* Loads the checkpoint in place of the old state, when there is no memory for both. It is verified before the
 * old state is freed; if it cannot be loaded after all, the node refuses data calls. */
static enum mr_status load_instead(struct ps_restore_attempt *a)
{
    struct ps_reader *reader;
    char why[PS_CORE_TEXT_BYTES];
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
    ps_pending_free_wait(a->c->node);
    a->c->catalog.count = 0;
    status = load_staging(a, reader);
    ps_reader_close(reader);
    if (status == MR_OK)
        return MR_OK;
    snprintf(why, sizeof(why), "restore of checkpoint %llu failed half way (%.120s): restore another",
             (unsigned long long)a->view->id, a->text);
    ps_control_gate_broken(a->c, status, why);
    snprintf(a->text, PS_CONTROL_TEXT_BYTES, "%s; until then the node serves no data", why);
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
static bool fits_beside(const struct ps_restore_attempt *a, const struct ps_reader *reader)
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

/* Calls wait meanwhile, but not for a store that sends nothing, as long as there is a state to go on with. */
static enum mr_status load_whole(struct ps_restore_attempt *a, struct ps_reader *reader)
{
    struct ps_control *c = a->c;
    const bool has_state = c->catalog.count > 0, was_broken = c->gate == PS_GATE_BROKEN;
    enum mr_status status = MR_OUT_OF_MEMORY;
    if (!was_broken)
        ps_control_gate(c, PS_GATE_BUSY);
    if (!has_state || fits_beside(a, reader)) {
        if (a->request->by_call && !was_broken)
            ps_control_watch_gives_up(a->watch);
        status = load_staging(a, reader);
        if (ps_control_watch_gave_up(a->watch) && status != MR_OK) {
            status = MR_IO_ERROR;
            snprintf(a->text, PS_CONTROL_TEXT_BYTES,
                     "the store sent nothing of checkpoint %llu for %llu ms (checkpoint.store_wait_ms) while "
                     "calls waited: the node serves what it had; restore again once the store answers",
                     (unsigned long long)a->view->id,
                     (unsigned long long)c->node->config->checkpoint_store_wait_ms);
        }
    }
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
static enum mr_status load_named(struct ps_restore_attempt *a, struct ps_reader *reader)
{
    struct ps_control *c = a->c;
    enum mr_status status = load_staging(a, reader);
    if (status != MR_OK)
        return status;
    enum ps_gate gate = c->gate;
    if (gate == PS_GATE_OPEN && a->request->replace)
        ps_control_gate(c, PS_GATE_BUSY);
    a->reopens = c->gate != gate;
    ps_node_each_core(c->node, move_on_core, &a->plan);
    return MR_OK;
}

/* ---- what the node notes ---- */

static void set_restores_on_core(struct ps_core *core, void *arg)
{
    mr_endpoint_set_restores(core->ep, *(const uint32_t *)arg);
}

/* Counts a restore that takes back pushes that were answered: clients must learn of it before the gate opens,
 * and after the next start as well. */
static void count_restore(struct ps_restore_attempt *a)
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

static enum mr_status note_history(struct ps_restore_attempt *a)
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
    for (uint32_t i = 0; a->plan.whole && !ps_control_log_follows(a->c) && i < a->plan.count; i++)
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

enum mr_status ps_restore_attempt_load(struct ps_restore_attempt *a, struct ps_reader *reader)
{
    enum mr_status status = ps_restore_read_catalog(reader, &a->held, a->text);
    if (status == MR_OK)
        status = ps_restore_check_partial(a, reader);
    if (status != MR_OK)
        return status;
    leave_out_dropped(a);
    alter_as_noted(a);
    status = sort_names(a, reader);
    if (status != MR_OK)
        return status;
    const uint32_t features = a->request->name_count - a->parameter_names;
    a->plan.count = 0;
    a->plan.whole = false;
    if (features > 0 || a->parameter_names == 0) /* parameters' names alone are not a restore of everything */
        status = ps_restore_plan_make(&a->held, &a->c->catalog, a->names, features, a->request->replace,
                                      a->c->history.last_feature + 1, &a->plan, a->text);
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
