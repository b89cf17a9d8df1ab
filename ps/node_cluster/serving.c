/* The control thread's part of the map: loads what the node owns, and tells the cores what they serve. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/log.h"
#include "ps/cluster/copies.h"
#include "ps/node_cluster/node_cluster_internal.h"

bool ps_node_cluster_loads_beside(struct ps_node_cluster *c)
{
    bool has_any = c->node->control->gate == PS_GATE_OPEN;
    pthread_mutex_lock(&c->lock);
    for (uint32_t slot = 0; slot < MR_PARTITION_COUNT && !has_any; slot++)
        has_any = c->member.have[slot] != 0;
    pthread_mutex_unlock(&c->lock);
    return has_any;
}

/* Loads the slots that the member has asked for when the node begins, as far as it can now. What comes to it
 * later is loaded by cluster_take_over.c: a restore replaces all that the node has. */
static void load_own(struct ps_node_cluster *c)
{
    struct ps_cluster_load_now now;
    const bool is_beside = ps_node_cluster_loads_beside(c);
    pthread_mutex_lock(&c->lock);
    const struct ps_cluster_map *map = &c->member.map;
    now.epoch = map->epoch;
    now.committed = map->committed;
    now.last_cut = map->last_cut;
    memcpy(now.grants, c->member.loading, sizeof(now.grants));
    pthread_mutex_unlock(&c->lock);
    if (is_beside) /* it may still have to see that the cluster has begun */
        memset(now.grants, 0, sizeof(now.grants));
    if (!ps_cluster_load_look(&c->load, c->node->control, &now))
        return;
    pthread_mutex_lock(&c->lock);
    for (uint32_t slot = 0; slot < MR_PARTITION_COUNT; slot++)
        if (now.grants[slot] != 0)
            ps_member_loaded(&c->member, slot, now.grants[slot]);
    pthread_mutex_unlock(&c->lock);
}

/* With the lock: since when each partition is served. Returns whether the node can serve: somebody owns each
 * partition, and this node has all that it owns. */
static bool find_owned(struct ps_node_cluster *c)
{
    const struct ps_member *m = &c->member;
    bool has_all = m->index != PS_CLUSTER_NO_NODE;
    c->owned.epoch = (uint32_t)m->map.epoch;
    for (uint32_t slot = 0; slot < MR_PARTITION_COUNT; slot++) {
        uint32_t *since = &c->since[ps_cluster_slot(slot)];
        const bool is_own = m->index != PS_CLUSTER_NO_NODE && m->map.owner[slot] == m->index;
        const uint64_t grant = is_own && m->have[slot] == m->map.grant[slot] ? m->have[slot] : 0;
        has_all &= m->map.owner[slot] != PS_CLUSTER_NO_NODE && (!is_own || grant != 0);
        if (grant == 0)
            *since = PS_NOT_OWNED;
        else if (grant != c->served[slot])
            *since = c->owned.epoch;
        c->served[slot] = grant;
        c->owned.since[ps_cluster_slot(slot)] = is_own && grant == 0                        ? PS_LOADING
                                                : m->fenced[slot] && *since != PS_NOT_OWNED ? PS_FENCED
                                                                                            : *since;
    }
    return has_all;
}

/* With the lock: the cluster as NODE_INFO shows it. */
static void describe(const struct ps_node_cluster *c, struct ps_cluster_info *out)
{
    const struct ps_member *m = &c->member;
    const struct ps_cluster_map *map = &m->map;
    const uint64_t shortest_us = ps_cluster_map_session_ms(map) * UINT64_C(1000);
    const uint64_t lease_us =
        (shortest_us != 0 && shortest_us < m->session_us ? shortest_us : m->session_us) / 2;
    const bool is_few = map->node_count <= MR_CLUSTER_FEW_NODES;
    const uint64_t self = m->index == PS_CLUSTER_NO_NODE && is_few ? MR_CLUSTER_NO_NODE : m->index;
    *out = (struct ps_cluster_info){.words = {[MR_CLUSTER_EPOCH] = map->epoch,
                                              [MR_CLUSTER_SELF] = self,
                                              [MR_CLUSTER_NODES] = map->node_count,
                                              [MR_CLUSTER_LEASE_US] = lease_us,
                                              [MR_CLUSTER_OUTSIDE] = c->outside,
                                              [MR_CLUSTER_TOLERANCE] = c->tolerance,
                                              [MR_CLUSTER_ANSWERS_WAIT] = map->answers_wait},
                                    .node_count = map->node_count};
    for (uint32_t i = 0; i < map->node_count; i++) {
        out->nodes[i] =
            (struct mr_cluster_node){.core_count = map->nodes[i].core_count,
                                     .flags = (c->present[i] ? MR_CLUSTER_NODE_PRESENT : 0) |
                                              (map->nodes[i].is_spare ? MR_CLUSTER_NODE_SPARE : 0),
                                     .start_id = map->nodes[i].start_id};
        memcpy(out->nodes[i].name, map->nodes[i].name, sizeof(out->nodes[i].name));
        memcpy(out->nodes[i].address, map->nodes[i].address, sizeof(out->nodes[i].address));
        memcpy(out->nodes[i].version, map->nodes[i].version.text, sizeof(out->nodes[i].version));
    }
    out->has_copies = map->replication > 1;
    for (uint32_t i = 0; i < map->node_count && out->has_copies; i++) {
        out->copies[i][MR_COPIES_BACKUPS] = ps_copies_held(map, i);
        out->copies[i][MR_COPIES_UNCOPIED] = ps_copies_lacking(map, i);
    }
    for (uint32_t slot = 0; slot < MR_PARTITION_COUNT; slot++) {
        const uint32_t p = ps_cluster_slot(slot);
        out->owner[p] = map->owner[slot];
        out->restored_in[p] = (uint32_t)map->restored_in[slot];
        out->any_restored |= map->restored_in[slot] != 0;
        out->owner_of_few[p] =
            map->owner[slot] == PS_CLUSTER_NO_NODE ? MR_CLUSTER_NO_NODE : (uint8_t)map->owner[slot];
    }
}

struct order {
    const struct ps_owned *owned;
    _Atomic enum mr_status status;
    char texts[DP_CORES_MAX][PS_CORE_TEXT_BYTES];
};

static void own(struct ps_core *core, void *arg)
{
    struct order *order = arg;
    const enum mr_status status = ps_core_own(core, order->owned, order->texts[core->index]);
    if (status != MR_OK)
        atomic_store(&order->status, status);
}

/* Tells the cores what they serve, at one instant. */
static enum mr_status tell_cores(struct ps_node_cluster *c, struct order *order, char *text)
{
    order->owned = &c->owned;
    ps_node_each_core_at_once(c->node, own, order);
    for (uint32_t i = 0; i < c->node->core_count; i++)
        if (order->texts[i][0] != '\0')
            memcpy(text, order->texts[i], PS_CORE_TEXT_BYTES);
    return atomic_load(&order->status);
}

/* Returns how many partitions the cores serve. */
static uint32_t count_partitions(struct ps_node_cluster *c)
{
    struct ps_cluster_counters *counters = &c->node->cluster_counters;
    uint32_t served = 0, loading = 0, fenced = 0;
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++) {
        served += ps_since_is_owned(c->owned.since[p]);
        loading += c->owned.since[p] == PS_LOADING;
        fenced += c->owned.since[p] == PS_FENCED;
    }
    ps_counter_set(&counters->partitions, served);
    ps_counter_set(&counters->partitions_loading, loading);
    ps_counter_set(&counters->partitions_fenced, fenced);
    const uint64_t self = c->info->words[MR_CLUSTER_SELF];
    const bool has_copies = c->info->has_copies && self < c->info->node_count;
    ps_counter_set(&counters->partitions_backed_up,
                   has_copies ? c->info->copies[self][MR_COPIES_BACKUPS] : 0);
    ps_counter_set(&counters->partitions_uncopied,
                   has_copies ? c->info->copies[self][MR_COPIES_UNCOPIED] : 0);
    return served;
}

static void say_state(struct ps_node_cluster *c, bool has_all)
{
    const struct ps_cluster_info *info = c->info;
    const uint64_t wanted = c->node->config->cluster_nodes;
    const uint32_t served = count_partitions(c);
    uint32_t present = 0;
    for (uint32_t i = 0; i < info->node_count; i++)
        present += (info->nodes[i].flags & MR_CLUSTER_NODE_PRESENT) != 0;
    if (info->owner[0] == PS_CLUSTER_NO_NODE && present < wanted) {
        if (c->said_nodes != present)
            mr_log_with(
                MR_LOG_INFO, MR_LOG_FIELDS({"nodes", .number = present}, {"wanted", .number = wanted}),
                "waits_for_nodes",
                "cluster %s: %u of %" PRIu64 " nodes %s there (cluster.nodes): waiting for the others",
                c->options.cluster, present, wanted, present == 1 ? "is" : "are");
        c->said_nodes = present;
    } else if (has_all && c->said_served != served) {
        mr_log_with(MR_LOG_INFO,
                    MR_LOG_FIELDS({"epoch", .number = c->owned.epoch}, {"partitions", .number = served}),
                    "serves_partitions", "cluster %s: map epoch %u: this node serves %u of %u partitions",
                    c->options.cluster, c->owned.epoch, served, MR_PARTITION_COUNT);
        c->said_served = served;
    }
}

/* Tells the cores what has changed. */
static void tell_changes(struct ps_node_cluster *c, struct ps_cluster_info *info, struct order *order)
{
    struct ps_control *control = c->node->control;
    char text[PS_CORE_TEXT_BYTES] = "";
    ps_control_cluster_sync(control); /* what came with the map says which features are to be loaded */
    ps_node_cluster_promote_copies(c);
    load_own(c);
    pthread_mutex_lock(&c->lock);
    const bool has_all = find_owned(c) && c->features_session != 0;
    describe(c, info);
    pthread_mutex_unlock(&c->lock);
    c->owned.info = info;
    const enum mr_status status = tell_cores(c, order, text);
    free(c->info); /* no core has it any more */
    c->info = info;
    if (status != MR_OK) {
        mr_log_error("cannot_serve", "cluster %s: this node cannot serve what it owns: %s",
                     c->options.cluster, text);
        ps_control_gate_broken(control, status, text);
    } else if (has_all && control->gate == PS_GATE_BUSY) {
        ps_control_gate(control, PS_GATE_OPEN);
    }
    say_state(c, has_all);
}

/* What another process has taken over never comes back to this one. Its calls wait, as without a lease, until
 * clients have the map in which the other one is: an answer of failure would reach trainers. */
static void look_if_superseded(struct ps_node_cluster *c)
{
    char why[PS_WHY_BYTES];
    pthread_mutex_lock(&c->lock);
    const bool is_superseded = c->member.is_superseded;
    pthread_mutex_unlock(&c->lock);
    if (!is_superseded || c->said_superseded)
        return;
    c->said_superseded = true;
    (void)snprintf(why, sizeof(why), "another process is node %.63s of the cluster now: stop this one",
                   c->options.self.name);
    ps_node_fail(c->node, why);
}

/* Takes what has changed, if anything has. Without memory it stays until there is some. */
static void take_changes(struct ps_node_cluster *c)
{
    struct ps_cluster_info *info = NULL;
    struct order *order = NULL;
    pthread_mutex_lock(&c->lock);
    ps_node_cluster_advance_source(c);
    c->is_changed |= c->load.waits;
    if (c->is_changed) {
        info = malloc(sizeof(*info));
        order = calloc(1, sizeof(*order));
    }
    const bool takes = info != NULL && order != NULL;
    c->is_changed &= !takes;
    pthread_mutex_unlock(&c->lock);
    if (takes)
        tell_changes(c, info, order);
    else
        free(info);
    free(order);
}

void ps_node_cluster_apply_map(struct ps_node_cluster *c)
{
    take_changes(c);
    look_if_superseded(c);
}
