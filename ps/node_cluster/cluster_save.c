#include "ps/node_cluster/cluster_save.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/log.h"
#include "ps/checkpoint/cluster_retain.h"
#include "ps/control/control_internal.h"

#define PROGRESS_US 1000000u /* between two reports of the same part */

/* ---- the leader ---- */

/* What a node of the map says of its work; NULL: it has no session. */
static const struct ps_cluster_report *entry_of(const struct ps_zookeeper_view *view, uint32_t node)
{
    const struct ps_cluster_node *wanted = &view->map->nodes[node];
    for (uint32_t i = 0; i < view->registered_count; i++)
        if (strcmp(view->registered[i].name, wanted->name) == 0 &&
            view->registered[i].session == wanted->session)
            return &view->reports[i];
    return NULL;
}

/* What it says of the map's cut; NULL: nothing yet. */
static const struct ps_cluster_cut_report *report_of(const struct ps_zookeeper_view *view, uint32_t node)
{
    const struct ps_cluster_report *entry = entry_of(view, node);
    return entry != NULL && entry->cut.id == view->map->cut ? &entry->cut : NULL;
}

__attribute__((format(printf, 2, 3))) static void give_up(struct ps_leader_view *out, const char *format, ...)
{
    char why[PS_TEXT_BYTES + PS_CLUSTER_NAME_BYTES];
    va_list arguments;
    if (out->cut_is_late)
        return;
    va_start(arguments, format);
    (void)vsnprintf(why, sizeof(why), format, arguments);
    va_end(arguments);
    mr_log_with(MR_LOG_WARNING, MR_LOG_FIELDS({"checkpoint", .number = out->map->cut}),
                "cluster_save_given_up", "checkpoint %" PRIu64 " of the cluster is given up: %s",
                out->map->cut, why);
    out->cut_is_late = true;
}

/* A node that owns nothing has nothing to write: once it is away, nobody waits for it. */
static void count_parts(const struct ps_zookeeper_view *view, struct ps_leader_view *out)
{
    out->parts_are_written = true;
    for (uint32_t i = 0; i < view->map->node_count; i++) {
        const struct ps_cluster_cut_report *part = report_of(view, i);
        const bool is_absent = out->absent_us[i] > 0, owns = ps_cluster_map_owns_any(view->map, i);
        out->parts_are_written &= part != NULL ? part->status == MR_OK : is_absent && !owns;
        if (part != NULL && part->status != MR_OK)
            give_up(out, "node %.63s: %s", view->map->nodes[i].name, part->text);
    }
    /* What such a node held in memory is in no part any more. */
    for (uint32_t i = 0; i < view->map->node_count && !out->parts_are_written; i++)
        if (out->absent_us[i] > 0 && ps_cluster_map_owns_any(view->map, i))
            give_up(out, "node %.63s is away", view->map->nodes[i].name);
}

/* A node may be there and never write its part: it cannot serve, or its store hangs. */
static void look_for_stalls(struct ps_cluster_save *s, const struct ps_zookeeper_view *view, uint64_t now_us,
                            struct ps_leader_view *out)
{
    for (uint32_t i = 0; i < view->map->node_count; i++) {
        const struct ps_cluster_report *entry = entry_of(view, i);
        const struct ps_cluster_part_progress now =
            entry != NULL ? entry->part : (struct ps_cluster_part_progress){0};
        struct ps_cluster_stall *stall = &s->stalls[i];
        if (stall->cut != view->map->cut || stall->part.id != now.id || stall->part.bytes != now.bytes ||
            now.waits || report_of(view, i) != NULL)
            *stall = (struct ps_cluster_stall){.cut = view->map->cut, .part = now, .since_us = now_us};
        else if (now_us - stall->since_us >= PS_CLUSTER_STALL_US)
            give_up(out, "node %.63s has not come further with its part for %u s%s", view->map->nodes[i].name,
                    PS_CLUSTER_STALL_US / 1000000u, now.id == 0 ? ": it has not begun" : "");
    }
}

/* Whether a trainer asked for the map's cut; whether its step has not come yet. */
static bool is_trainers(const struct ps_zookeeper_view *view, bool *waits)
{
    bool is = false;
    *waits = false;
    for (uint32_t i = 0; i < view->registered_count && view->map->cut != 0; i++) {
        is |= view->reports[i].trainer_cut == view->map->cut;
        *waits |= view->reports[i].part.id == view->map->cut && view->reports[i].part.waits;
    }
    return is;
}

/* What becomes of the cut is for the store to say, for so long. */
static void wait_for_store(struct ps_cluster_save *s, const struct ps_zookeeper_view *view, uint64_t now_us,
                           const char *why, struct ps_leader_view *out)
{
    if (s->unknown_cut != view->map->cut) {
        s->unknown_cut = view->map->cut;
        s->unknown_since_us = now_us;
    }
    out->cut_is_unknown = now_us - s->unknown_since_us < PS_CLUSTER_STALL_US;
    if (!out->cut_is_unknown)
        give_up(out, "the store has not answered for %u s%s%s", PS_CLUSTER_STALL_US / 1000000u,
                why[0] != '\0' ? ": " : "", why);
}

static void look_at_cut(struct ps_cluster_save *s, const struct ps_zookeeper_view *view, uint64_t now_us,
                        struct ps_leader_view *out)
{
    char why[PS_TEXT_BYTES] = "";
    if (s->commit == NULL) { /* others may have a directory, but this node cannot commit */
        give_up(out, "the leader has no checkpoint.directory: set one that all nodes see");
        return;
    }
    const enum ps_commit_state state = ps_cluster_commit_state(s->commit, view->map->cut, why);
    if (state == PS_COMMIT_UNKNOWN || state == PS_COMMIT_FAILED) /* whether the file was written */
        ps_cluster_commit_look(s->commit, view->map->cut);
    if (state == PS_COMMIT_FAILED)
        s->has_failed = view->map->cut;
    if (state == PS_COMMIT_THERE) {
        out->cut_is_committed = true;
        return;
    }
    if (state != PS_COMMIT_ABSENT) {
        wait_for_store(s, view, now_us, why, out);
        return;
    }
    s->unknown_cut = 0;
    count_parts(view, out);
    look_for_stalls(s, view, now_us, out);
    if (s->has_failed == view->map->cut) {
        out->parts_are_written = false;
        out->cut_is_late = true;
    }
}

void ps_cluster_save_look(struct ps_cluster_save *s, const struct ps_zookeeper_view *view, uint64_t now_us,
                          struct ps_leader_view *out)
{
    bool waits;
    if (s->last_us == 0 || (view->map->cut != 0 && s->is_due))
        s->last_us = now_us;
    if (view->map->cut != 0) {
        look_at_cut(s, view, now_us, out);
        if (s->every_us != 0 && now_us - s->last_us >= s->every_us && is_trainers(view, &waits) && waits)
            give_up(out,
                    "a trainer asked for it, its step %" PRIu64 " has not come, and the cluster's own is due",
                    view->map->cut_step);
        return;
    }
    if (s->commit != NULL && view->map->committed != s->retained) {
        s->retained = view->map->committed;
        ps_cluster_commit_retain(s->commit, view->map->committed);
    }
    /* Checkpoints that were asked for do not put it off: trainers could do so for ever. */
    s->is_due = s->commit != NULL && s->every_us != 0 && now_us - s->last_us >= s->every_us;
    out->wants_cut = s->is_due;
}

void ps_cluster_save_see(struct ps_cluster_save *s, const struct ps_zookeeper_view *view)
{
    s->seen_cut = view->map->cut;
    s->view_is_whole = view->is_whole;
    s->trainer_cut = is_trainers(view, &s->trainer_cut_waits) ? view->map->cut : 0;
    for (uint32_t i = 0; i < view->registered_count; i++) {
        const struct ps_cluster_cut_report *part = &view->reports[i].cut;
        if (part->id == 0 || part->status == MR_OK || part->id == s->failed_cut ||
            (part->id != view->map->cut && part->id != s->asked))
            continue;
        s->failed_cut = part->id;
        (void)snprintf(s->failed_why, sizeof(s->failed_why), "node %s: %s", view->registered[i].name,
                       part->text);
    }
}

void ps_cluster_save_commit(struct ps_cluster_save *s, const struct ps_zookeeper_view *view)
{
    const struct ps_cluster_map *map = view->map;
    struct ps_cluster_manifest m = {.id = map->cut,
                                    .step = map->cut_step,
                                    .is_at_step = map->cut_step != 0,
                                    .time_s = (uint64_t)time(NULL)};
    uint8_t part_of[PS_CLUSTER_NODES_MAX] = {0};
    for (uint32_t i = 0; i < map->node_count; i++) {
        const struct ps_cluster_cut_report *report = report_of(view, i);
        struct ps_cluster_part *part = &m.parts[m.part_count];
        if (report == NULL && !ps_cluster_map_owns_any(map, i))
            continue;
        if (report == NULL || report->status != MR_OK)
            return;
        memcpy(part->name, map->nodes[i].name, sizeof(part->name));
        part->core_count = map->nodes[i].core_count;
        part->manifest_hash = (struct ps_hash){.low = report->hash_low, .high = report->hash_high};
        part_of[i] = (uint8_t)m.part_count++;
        m.step = report->step > m.step ? report->step : m.step;
    }
    for (uint32_t slot = 0; slot < MR_PARTITION_COUNT; slot++)
        m.owner[ps_cluster_slot(slot)] = part_of[map->owner[slot]];
    ps_cluster_commit_write(s->commit, &m);
}

bool ps_cluster_save_propose(struct ps_cluster_save *s, const struct ps_cluster_map *map,
                             struct ps_cluster_map *next)
{
    *next = *map;
    if (s->cancelled != 0 && ps_cluster_map_cancel_cut(next, s->cancelled))
        return true;
    s->cancelled = 0;
    if (!s->is_wanted)
        return false;
    if (map->cut != 0 && !s->is_by_trainer && !s->view_is_whole)
        return false; /* whose that is the next view tells */
    const bool is_lesser = map->cut != 0 && map->cut == s->trainer_cut && !s->is_by_trainer;
    if (is_lesser && s->trainer_cut_waits && ps_cluster_map_cancel_cut(next, map->cut)) {
        mr_log_with(MR_LOG_WARNING, MR_LOG_FIELDS({"checkpoint", .number = map->cut}),
                    "cluster_save_given_up",
                    "checkpoint %" PRIu64 " of the cluster, which a trainer asked for at step %" PRIu64
                    ", is given up for one that an operator asks for",
                    map->cut, map->cut_step);
        return true;
    }
    /* It is this one, or one like it. Trainers' are removed as such, so no operator's is among them. */
    if (map->cut != 0 && map->cut_step == s->wanted_step && !is_lesser) {
        s->asked = map->cut;
        s->is_wanted = false;
    }
    const bool begins = s->is_wanted && ps_cluster_map_begin_cut(next, s->wanted_step);
    s->proposed = begins ? next->cut : s->proposed;
    return begins;
}

void ps_cluster_save_proposed(struct ps_cluster_save *s, uint64_t cut, bool is_written)
{
    if (cut == 0 || cut != s->proposed)
        return;
    s->proposed = 0;
    s->own = is_written ? cut : s->own;
}

/* ---- the node's part ---- */

static void report_failed(struct ps_cluster_save *s, uint64_t cut, enum mr_status status, const char *text)
{
    s->part = (struct ps_cluster_cut_report){.id = cut, .status = status};
    (void)snprintf(s->part.text, sizeof(s->part.text), "%.150s", text);
}

static bool begin_part(struct ps_cluster_save *s, struct ps_control *control,
                       const struct ps_cluster_cut *now)
{
    char text[PS_CONTROL_TEXT_BYTES] = "";
    uint64_t id;
    struct ps_save_request request = {
        .part = now->cut, .is_automatic = true, .is_by_trainer = now->is_by_trainer, .step = now->step};
    s->cut = now->cut;
    s->part_number = 0;
    s->progress = (struct ps_cluster_part_progress){.id = now->cut};
    if (s->directory[0] == '\0') {
        report_failed(s, now->cut, MR_INVALID_ARGUMENT,
                      "it has no checkpoint.directory: set one that all nodes see");
        return true;
    }
    if (control->saves.chain.last_id != now->committed)
        ps_save_chain_break(&control->saves.chain,
                            "the last checkpoint is not one of the whole cluster: save a full one first");
    const enum mr_status status = ps_control_save(control, &request, &id, text);
    s->part_number = request.number;
    if (status != MR_OK)
        report_failed(s, now->cut, status, text);
    return true;
}

/* Whether there is more of it to report. */
static bool follow_progress(struct ps_cluster_save *s, const struct ps_save_entry *entry, uint64_t bytes)
{
    const uint64_t now_us = mr_clock_boot_us();
    const struct ps_cluster_part_progress now = {
        .id = s->cut, .waits = entry->state == PS_SAVE_WAITS_FOR_STEP, .bytes = bytes};
    if (now_us - s->progress_us < PROGRESS_US ||
        (now.bytes == s->progress.bytes && now.waits == s->progress.waits))
        return false;
    s->progress = now;
    s->progress_us = now_us;
    return true;
}

/* Whether there is something new to report. */
static bool follow_part(struct ps_cluster_save *s, struct ps_control *control)
{
    struct ps_save_entry entry = {.state = PS_SAVE_WRITING};
    if (s->part.id == s->cut)
        return false;
    pthread_mutex_lock(&control->view_lock);
    const struct ps_save_entry *found = ps_save_log_find(&control->saves.log, s->part_number);
    if (found != NULL)
        entry = *found;
    const uint64_t bytes = entry.state == PS_SAVE_WRITING ? control->view.bytes_done : 0;
    pthread_mutex_unlock(&control->view_lock);
    if (entry.state != PS_SAVE_ENDED)
        return follow_progress(s, &entry, bytes);
    if (entry.status != MR_OK) {
        report_failed(s, s->cut, entry.status, entry.text);
        return true;
    }
    if (s->copies_have != NULL && !s->copies_have(s->context, s->cut)) {
        entry.state = PS_SAVE_WRITING; /* clients forget what is in it: backups must have that, too */
        return follow_progress(s, &entry, bytes);
    }
    const struct ps_hash hash = control->saves.chain.last_hash;
    s->part = (struct ps_cluster_cut_report){
        .id = s->cut, .status = MR_OK, .step = entry.step, .hash_low = hash.low, .hash_high = hash.high};
    return true;
}

struct retaining {
    const struct ps_place *whole;
    const char *folder;
    uint64_t committed;
};

static void retain(void *arg)
{
    const struct retaining *r = arg;
    ps_cluster_retain_parts(r->whole->store, r->whole->path, r->folder, r->committed);
}

/* The map has another cut than the one that this part is of, or none: it was committed, or given up. */
static void end_part(struct ps_cluster_save *s, struct ps_control *control, uint64_t committed)
{
    char text[PS_CONTROL_TEXT_BYTES];
    struct ps_place place;
    const bool is_good = s->part.id == s->cut && s->part.status == MR_OK;
    if (committed == s->cut && is_good) {
        mr_log_with(MR_LOG_INFO, MR_LOG_FIELDS({"checkpoint", .number = s->cut}), "cluster_saved",
                    "checkpoint %" PRIu64 " of the cluster is committed", s->cut);
        ps_control_published(control, s->cut);
        if (ps_stores_place(control->stores, s->directory, PS_PLACE_READ, &place, text) == MR_OK) {
            struct retaining r = {&place, control->own.path, committed};
            ps_control_await(control, &place, retain, &r);
        }
    } else {
        mr_log_with(MR_LOG_WARNING, MR_LOG_FIELDS({"checkpoint", .number = s->cut}), "cluster_save_given_up",
                    "checkpoint %" PRIu64 " of the cluster was given up", s->cut);
        if (!is_good && s->part_number != 0)
            (void)ps_control_save_cancel(control, s->part_number, false, text);
        ps_save_chain_break(&control->saves.chain,
                            "the last checkpoint of the cluster was given up: save a full one first");
    }
    s->cut = 0;
    s->progress = (struct ps_cluster_part_progress){0};
}

/* ---- what a client has asked for ---- */

static void end_asked(struct ps_cluster_save *s, struct ps_control *control, struct ps_cluster_cut *now)
{
    if (now->asked == 0 || now->asked == now->map_cut || now->asked == now->seen_cut)
        return;
    if (now->committed >= now->asked) {
        const struct ps_save_entry entry = {.state = PS_SAVE_ENDED,
                                            .id = now->asked,
                                            .is_at_step = s->wanted_step != 0,
                                            .step = s->part.step,
                                            .duration_us = dp_now_us() - s->begun_us,
                                            .committed_ms = mr_clock_unix_ms()};
        ps_control_note_entry(control, s->number, &entry);
    } else if (s->is_cancelled) {
        ps_control_save_cancelled(control, s->number);
    } else {
        char text[PS_CONTROL_TEXT_BYTES];
        const bool is_own = s->part.id == now->asked && s->part.status != MR_OK;
        (void)snprintf(
            text, sizeof(text), "checkpoint %" PRIu64 " of the cluster was given up: %s", now->asked,
            is_own ? s->part.text
            : now->why != NULL
                ? now->why
                : "a node went away, its part took too long, or another one goes before it; the nodes' logs "
                  "say which");
        ps_control_save_failed(control, s->number, is_own ? s->part.status : MR_CANCELLED, text);
    }
    now->asked_ended = true;
}

enum mr_status ps_cluster_save_cancel(struct ps_cluster_save *s, struct ps_control *control,
                                      pthread_mutex_t *lock, uint64_t number, bool is_by_trainer, char *text)
{
    pthread_mutex_lock(lock);
    const bool is_asked =
        number == s->number && (s->is_wanted || s->asked != 0) && (!is_by_trainer || s->is_by_trainer);
    const bool has_begun = is_asked && s->asked != 0;
    const bool is_part = number == s->part_number && s->cut != 0 && !is_by_trainer;
    if (is_asked || is_part)
        s->cancelled = has_begun ? s->asked : is_part ? s->cut : 0;
    if (is_asked)
        s->is_wanted = false;
    pthread_mutex_unlock(lock);
    s->is_cancelled |= has_begun;
    if (is_asked && !has_begun)
        ps_control_save_cancelled(control, number);
    return is_asked || is_part ? MR_OK : ps_control_save_cancel(control, number, is_by_trainer, text);
}

bool ps_cluster_save_poll(struct ps_cluster_save *s, struct ps_control *control, struct ps_cluster_cut *now)
{
    bool is_new = false;
    if (s->cut != 0)
        is_new = follow_part(s, control);
    if (s->cut != 0 && s->cut != now->map_cut) {
        end_part(s, control, now->committed);
        is_new = true;
    }
    if (now->map_cut != 0 && s->part.id != now->map_cut && now->owns && control->gate == PS_GATE_BROKEN) {
        char text[PS_CONTROL_TEXT_BYTES] = ""; /* others need not wait until it is late */
        const enum mr_status status = ps_control_check_whole(control, text);
        report_failed(s, now->map_cut, status, text);
        is_new = true;
    }
    if (s->cut == 0 && now->cut != 0 && now->may_begin)
        is_new |= begin_part(s, control, now);
    end_asked(s, control, now);
    return is_new;
}
