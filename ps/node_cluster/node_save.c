/* Checkpoints of the cluster, on the control thread: this node's part, and what its clients ask for. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "ps/node_cluster/node_cluster_internal.h"

void ps_node_cluster_poll_save(struct ps_node_cluster *c)
{
    struct ps_control *control = c->node->control;
    char why[sizeof(c->save.failed_why)];
    pthread_mutex_lock(&c->lock);
    const struct ps_member *m = &c->member;
    memcpy(why, c->save.failed_why, sizeof(why));
    struct ps_cluster_cut now = {.cut = m->cut,
                                 .step = m->map.cut_step,
                                 .map_cut = m->map.cut,
                                 .seen_cut = c->save.seen_cut,
                                 .committed = m->map.committed,
                                 .asked = c->save.asked,
                                 .why = c->save.asked == c->save.failed_cut ? why : NULL,
                                 .owns = m->index != PS_CLUSTER_NO_NODE &&
                                         ps_cluster_map_owns_any(&m->map, m->index),
                                 .is_by_trainer = c->save.is_by_trainer && c->save.own == m->cut,
                                 .may_begin = control->gate == PS_GATE_OPEN && !c->is_changed &&
                                              !ps_node_cluster_has_begun_migrations(c)};
    pthread_mutex_unlock(&c->lock);
    const bool is_new = ps_cluster_save_poll(&c->save, control, &now);
    if (!is_new && !now.asked_ended)
        return;
    pthread_mutex_lock(&c->lock);
    c->save.asked = now.asked_ended ? 0 : c->save.asked;
    c->report.cut = c->save.part;
    c->report.part = c->save.progress;
    if (is_new && c->zookeeper != NULL)
        ps_zookeeper_report(c->zookeeper, &c->report);
    pthread_mutex_unlock(&c->lock);
}

/* What an absent node owns would be in no part: the checkpoint would be given up as soon as it has begun. */
static bool has_absent_owner(struct ps_node_cluster *c, char *text)
{
    const struct ps_cluster_map *map = &c->member.map;
    uint32_t absent = 0;
    pthread_mutex_lock(&c->lock);
    while (absent < map->node_count && (c->present[absent] || !ps_cluster_map_owns_any(map, absent)))
        absent++;
    const bool has_absent = absent < map->node_count;
    if (has_absent)
        (void)snprintf(
            text, PS_CONTROL_TEXT_BYTES,
            "node %.63s is away, and a checkpoint of the cluster needs its %u partitions: start it, "
            "and save again",
            map->nodes[absent].name, ps_cluster_map_load(map, absent));
    pthread_mutex_unlock(&c->lock);
    return has_absent;
}

enum mr_status ps_node_cluster_save(void *context, const struct ps_command *command, uint64_t *number,
                                    char *text)
{
    struct ps_node_cluster *c = context;
    struct ps_control *control = c->node->control;
    const char *wrong = NULL;
    struct ps_save_request request = command->save;
    const enum mr_status whole = ps_control_check_whole(control, text);
    if (whole != MR_OK)
        return whole;
    if (command->cancel_number != 0) {
        *number = command->cancel_number;
        const enum mr_status status = ps_cluster_save_cancel(
            &c->save, control, &c->lock, command->cancel_number, request.is_by_trainer, text);
        ps_node_cluster_wake(c);
        return status;
    }
    if (command->name_list_count > 0 || request.directory[0] != '\0')
        wrong = "a cluster saves all tables, to checkpoint.directory: name neither";
    else if (request.trainers > 0 && request.step == 0)
        wrong = "a cut at a step of a cluster needs the step (ctl save --step)";
    else if (c->save.directory[0] == '\0')
        wrong = "this node has no checkpoint.directory: set one that all nodes see";
    if (wrong != NULL) {
        (void)snprintf(text, PS_CONTROL_TEXT_BYTES, "%s", wrong);
        return MR_INVALID_ARGUMENT;
    }
    if (has_absent_owner(c, text))
        return MR_CANCELLED;
    pthread_mutex_lock(&c->lock);
    const bool is_free = !c->save.is_wanted && c->save.asked == 0;
    if (is_free) {
        c->save.is_wanted = true;
        c->save.wanted_step = request.step;
        c->save.is_by_trainer = request.is_by_trainer;
        c->save.is_cancelled = false;
        c->report.wants_cut = true;
    }
    if (is_free && c->zookeeper != NULL) {
        ps_zookeeper_read_all(c->zookeeper); /* whose the cut is that may be under way */
        ps_zookeeper_report(c->zookeeper, &c->report);
    }
    pthread_mutex_unlock(&c->lock);
    if (!is_free) {
        (void)snprintf(text, PS_CONTROL_TEXT_BYTES,
                       "save %" PRIu64 " of the whole cluster is in progress; wait for its end",
                       c->save.number);
        return MR_CHECKPOINT_RUNNING;
    }
    ps_control_note_save(control, &request, PS_SAVE_QUEUED);
    c->save.begun_us = dp_now_us();
    c->save.number = *number = request.number;
    return MR_OK;
}
