#include "ps/control/cluster_save.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/log.h"
#include "ps/checkpoint/cluster_retain.h"
#include "ps/control/control_internal.h"

/* ---- the leader ---- */

/* What a node of the map says of the map's cut; NULL: it has no session, or says nothing yet. */
static const struct ps_cluster_cut_report *report_of(const struct ps_zookeeper_view *view, uint32_t node)
{
    const struct ps_cluster_node *wanted = &view->map->nodes[node];
    for (uint32_t i = 0; i < view->registered_count; i++)
        if (strcmp(view->registered[i].name, wanted->name) == 0 &&
            view->registered[i].session == wanted->session && view->reports[i].cut.id == view->map->cut)
            return &view->reports[i].cut;
    return NULL;
}

static bool owns_any(const struct ps_cluster_map *map, uint32_t node)
{
    return memchr(map->owner, (int)node, map->partition_count) != NULL;
}

/* A node that owns nothing has nothing to write: once it is away, nobody waits for it. */
static void count_parts(const struct ps_zookeeper_view *view, struct ps_leader_view *out)
{
    bool is_owner_absent = false;
    out->parts_are_written = true;
    for (uint32_t i = 0; i < view->map->node_count; i++) {
        const struct ps_cluster_cut_report *part = report_of(view, i);
        const bool is_absent = out->absent_us[i] > 0, owns = owns_any(view->map, i);
        is_owner_absent |= is_absent && owns;
        out->parts_are_written &= part != NULL ? part->status == MR_OK : is_absent && !owns;
        if (part != NULL && part->status != MR_OK && !out->cut_is_late) {
            mr_log_with(MR_LOG_WARNING, MR_LOG_FIELDS({"checkpoint", .number = view->map->cut}),
                        "cluster_save_given_up",
                        "checkpoint %" PRIu64 " of the cluster is given up: node %.63s: %s", view->map->cut,
                        view->map->nodes[i].name, part->text);
            out->cut_is_late = true;
        }
    }
    /* What a node held that is gone is in no part any more. */
    out->cut_is_late |= !out->parts_are_written && is_owner_absent;
}

static bool look_at_cut(struct ps_cluster_save *s, const struct ps_zookeeper_view *view,
                        struct ps_leader_view *out)
{
    char why[PS_TEXT_BYTES];
    if (s->commit == NULL) { /* others may have a directory, but this node cannot commit */
        out->cut_is_late = true;
        return true;
    }
    switch (ps_cluster_commit_state(s->commit, view->map->cut, why)) {
    case PS_COMMIT_BUSY:
        return false;
    case PS_COMMIT_UNKNOWN:
        ps_cluster_commit_look(s->commit, view->map->cut);
        return false;
    case PS_COMMIT_THERE:
        out->cut_is_committed = true;
        return true;
    case PS_COMMIT_FAILED:
        /* Whether the file has been written is for the store to say. */
        ps_cluster_commit_look(s->commit, view->map->cut);
        s->has_failed = view->map->cut;
        return false;
    case PS_COMMIT_ABSENT:
        break;
    }
    count_parts(view, out);
    if (s->has_failed == view->map->cut) {
        out->parts_are_written = false;
        out->cut_is_late = true;
    }
    return true;
}

bool ps_cluster_save_look(struct ps_cluster_save *s, const struct ps_zookeeper_view *view, uint64_t now_us,
                          struct ps_leader_view *out)
{
    if (s->last_us == 0 || (view->map->cut != 0 && s->is_due))
        s->last_us = now_us;
    if (view->map->cut != 0)
        return look_at_cut(s, view, out);
    if (s->commit != NULL && view->map->committed != s->retained) {
        s->retained = view->map->committed;
        ps_cluster_commit_retain(s->commit, view->map->committed);
    }
    /* Checkpoints that were asked for do not put it off: trainers could do so for ever. */
    s->is_due = s->commit != NULL && s->every_us != 0 && now_us - s->last_us >= s->every_us;
    out->wants_cut = s->is_due;
    return true;
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
        if (report == NULL && !owns_any(map, i))
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
    if (!s->is_wanted)
        return false;
    if (map->cut != 0 && map->cut_step == s->wanted_step) { /* it is this one, or one like it */
        s->asked = map->cut;
        s->is_wanted = false;
    }
    *next = *map;
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
    return status != MR_OK;
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
    pthread_mutex_unlock(&control->view_lock);
    if (entry.state != PS_SAVE_ENDED)
        return false;
    if (entry.status != MR_OK) {
        report_failed(s, s->cut, entry.status, entry.text);
        return true;
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
}

/* ---- what a client has asked for ---- */

static void end_asked(struct ps_cluster_save *s, struct ps_control *control, struct ps_cluster_cut *now)
{
    if (now->asked == 0 || now->asked == now->map_cut)
        return;
    if (now->committed >= now->asked) {
        const struct ps_save_entry entry = {.state = PS_SAVE_ENDED,
                                            .id = now->asked,
                                            .is_at_step = s->wanted_step != 0,
                                            .step = s->part.step,
                                            .committed_ms = mr_clock_unix_ms()};
        ps_control_note_entry(control, s->number, &entry);
    } else {
        char text[PS_CONTROL_TEXT_BYTES];
        const bool is_own = s->part.id == now->asked && s->part.status != MR_OK;
        (void)snprintf(
            text, sizeof(text), "checkpoint %" PRIu64 " of the cluster was given up: %s", now->asked,
            is_own ? s->part.text : "a node's part failed, or a node went away; its log says which");
        ps_control_save_failed(control, s->number, is_own ? s->part.status : MR_CANCELLED, text);
    }
    now->asked_ended = true;
}

bool ps_cluster_save_poll(struct ps_cluster_save *s, struct ps_control *control, struct ps_cluster_cut *now)
{
    bool is_new = false;
    if (s->cut != 0)
        is_new = follow_part(s, control);
    if (s->cut != 0 && s->cut != now->map_cut)
        end_part(s, control, now->committed);
    if (s->cut == 0 && now->cut != 0 && now->may_begin)
        is_new |= begin_part(s, control, now);
    end_asked(s, control, now);
    return is_new;
}
