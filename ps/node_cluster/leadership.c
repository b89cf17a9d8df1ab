/* What a node proposes: the next change of the map while it leads, and what any member may propose. The
 * coordinator's thread, with the lock. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/log.h"
#include "dataplane/wire/base/plural.h"
#include "ps/cluster/copies.h"
#include "ps/cluster/leader.h"
#include "ps/node_cluster/node_cluster_internal.h"

#define FORGET_US UINT64_C(86400000000) /* a node that is away and owns nothing keeps its name for a day */
#define DROP_US   UINT64_C(10000000)    /* a backup that is away for longer is made elsewhere */

/* What was to move is where it should be, but for what absent nodes own. */
static void log_absent_owners(const struct ps_node_cluster *c, const struct ps_cluster_map *map)
{
    for (uint32_t i = 0; i < map->node_count; i++) {
        const uint32_t load = c->present[i] ? 0 : ps_cluster_map_load(map, i);
        if (load == 0)
            continue;
        mr_log_with(MR_LOG_WARNING,
                    MR_LOG_FIELDS({"node", .text = map->nodes[i].name}, {"partitions", .number = load}),
                    "moves_without_absent",
                    "cluster %s: node %.63s is away and keeps its %u partition%s: the others are balanced "
                    "without it",
                    c->options.cluster, map->nodes[i].name, load, mr_plural(load));
    }
}

/* Keys are spread evenly over the partitions: each takes as much memory here as elsewhere. Nothing goes to a
 * node that could not load what it was given. */
void ps_node_cluster_find_room(struct ps_node_cluster *c, const struct ps_zookeeper_view *view)
{
    const struct ps_cluster_map *map = view->map;
    uint32_t *room = c->room;
    uint64_t each_kib = 0;
    memset(c->room, 0, sizeof(c->room));
    memset(c->room_for_copies, 0, sizeof(c->room_for_copies));
    for (uint32_t k = 0; k < view->registered_count; k++) {
        const uint32_t node = ps_cluster_map_find(map, view->registered[k].name);
        uint32_t has = 0; /* as their owner, or as their backup */
        for (uint32_t p = 0; node != PS_CLUSTER_NO_NODE && p < map->partition_count; p++)
            has += map->owner[p] == node || map->backup[p] == node;
        const uint64_t kib = has != 0 ? view->reports[k].room.used_mib * 1024 / has : 0;
        each_kib = kib > each_kib ? kib : each_kib;
    }
    for (uint32_t k = 0; k < view->registered_count; k++) {
        const struct ps_cluster_room_report *r = &view->reports[k].room;
        const uint32_t node = ps_cluster_map_find(map, view->registered[k].name);
        if (node == PS_CLUSTER_NO_NODE || !r->is_known || (r->failed != 0 && r->failed == map->committed))
            continue;
        const uint64_t count = each_kib == 0 ? map->partition_count : r->free_mib * 1024 / each_kib;
        room[node] = count < map->partition_count ? (uint32_t)count : map->partition_count;
        c->room_for_copies[node] = r->refuses_copies ? 0 : room[node];
    }
}

bool ps_node_cluster_knows_room(struct ps_node_cluster *c, const struct ps_zookeeper_view *view)
{
    if (!view->is_whole && c->zookeeper != NULL)
        ps_zookeeper_read_all(c->zookeeper);
    return view->is_whole;
}

/* Why nobody takes over what a node owns that is away for long enough. */
static void log_not_taken_over(struct ps_node_cluster *c, const struct ps_leader_view *all, uint32_t node)
{
    const struct ps_cluster_map *map = all->map;
    const uint32_t count = ps_cluster_map_load(map, node),
                   older = ps_cluster_map_lacking(map, MR_CAN(TAKE_OVER));
    char why[PS_CLUSTER_TEXT_BYTES];
    uint64_t room = 0;
    bool absent[PS_CLUSTER_NODES_MAX] = {false};
    for (uint32_t i = 0; i < map->node_count; i++) {
        room += all->absent_us[i] == 0 ? all->room[i] : 0;
        absent[i] = all->absent_us[i] > 0;
    }
    if (ps_copies_is_kept(map, node, absent))
        (void)snprintf(why, sizeof(why),
                       "a backup that has all of them is away, too, and is waited for as long: start either");
    else if (all->may_not_take_over)
        (void)snprintf(why, sizeof(why),
                       "this node, which leads, has no checkpoint.directory: set one that all nodes see");
    else if (older != PS_CLUSTER_NO_NODE)
        (void)snprintf(why, sizeof(why), "node %.63s has a version that cannot take over: upgrade it",
                       map->nodes[older].name);
    else
        (void)snprintf(why, sizeof(why),
                       "those that are there have room for %" PRIu64 " (their entries say how much memory is "
                       "free, and what they could not load): raise memory.limit_mib, or start it",
                       room);
    mr_log_with(
        MR_LOG_ERROR, MR_LOG_FIELDS({"node", .text = map->nodes[node].name}, {"partitions", .number = count}),
        "not_taken_over", "cluster %s: node %.63s is away, and nobody takes over its %u partition%s: %s",
        c->options.cluster, map->nodes[node].name, count, mr_plural(count), why);
}

/* The first of them, once. */
static void look_for_not_taken_over(struct ps_node_cluster *c, const struct ps_leader_view *all)
{
    const struct ps_cluster_map *map = all->map;
    uint64_t start_id = 0;
    for (uint32_t i = 0; i < map->node_count && all->take_over_us > 0 && start_id == 0; i++) {
        if (all->absent_us[i] <= all->take_over_us || !ps_cluster_map_owns_any(map, i))
            continue;
        start_id = map->nodes[i].start_id;
        if (start_id != c->said_not_taken)
            log_not_taken_over(c, all, i);
    }
    c->said_not_taken = start_id;
}

static void propose_map(struct ps_node_cluster *c, const struct ps_cluster_map *map,
                        const struct ps_cluster_map *next)
{
    if (!ps_member_propose(&c->member, next))
        return;
    if (next->balances && !map->balances)
        mr_log_info("rebalance_begins",
                    "cluster %s: a node is there that owns nothing: partitions are moved to it "
                    "(cluster.rebalance = auto; millrace ctl moves)",
                    c->options.cluster);
    for (uint32_t i = 0; i < map->node_count && next->node_count < map->node_count; i++)
        if (ps_cluster_map_find(next, map->nodes[i].name) == PS_CLUSTER_NO_NODE)
            mr_log_with(MR_LOG_INFO, MR_LOG_FIELDS({"node", .text = map->nodes[i].name}), "node_forgotten",
                        "cluster %s: node %.63s, which is away and owns nothing, leaves the map",
                        c->options.cluster, map->nodes[i].name);
}

/* The nodes whose partitions others have after the change. */
static void log_taken_over(const struct ps_node_cluster *c, const struct ps_cluster_map *map,
                           const struct ps_cluster_map *next)
{
    uint32_t count[PS_CLUSTER_NODES_MAX] = {0}, promoted[PS_CLUSTER_NODES_MAX] = {0};
    for (uint32_t p = 0; p < map->partition_count; p++) {
        if (next->restored_in[p] == map->restored_in[p])
            continue;
        if (map->in_sync[p] && next->grant[p] == map->backup_grant[p])
            promoted[map->owner[p]]++;
        else
            count[map->owner[p]]++;
    }
    for (uint32_t i = 0; i < map->node_count; i++) {
        if (promoted[i] > 0)
            mr_log_with(
                MR_LOG_WARNING,
                MR_LOG_FIELDS({"node", .text = map->nodes[i].name}, {"partitions", .number = promoted[i]}),
                "backups_go_on",
                "cluster %s: node %.63s is away: its %u partition%s go on at their backups, in map epoch "
                "%" PRIu64,
                c->options.cluster, map->nodes[i].name, promoted[i], mr_plural(promoted[i]), next->epoch);
        if (count[i] > 0)
            mr_log_with(
                MR_LOG_WARNING,
                MR_LOG_FIELDS({"node", .text = map->nodes[i].name}, {"partitions", .number = count[i]}),
                "takes_from_dead",
                "cluster %s: node %.63s is away: its %u partition%s go to the others, in map epoch "
                "%" PRIu64,
                c->options.cluster, map->nodes[i].name, count[i], mr_plural(count[i]), next->epoch);
    }
}

/* Says it once that two nodes are configured differently: with these values. */
static void log_differs(const struct ps_node_cluster *c, bool *said, const char *key, const char *of_map,
                        const struct ps_cluster_node *const nodes[2], const char *first, const char *second)
{
    if (nodes[0] != NULL && !*said)
        mr_log_with(MR_LOG_WARNING, MR_LOG_FIELDS({"node", .text = nodes[1]->name}, {"key", .text = key}),
                    "settings_differ",
                    "cluster %s: node %.63s has cluster.%s = %s, and node %.63s %s: it stays %s, until all "
                    "nodes have the same",
                    c->options.cluster, nodes[0]->name, key, first, nodes[1]->name, second, of_map);
    *said = nodes[0] != NULL;
}

static void log_numbers_differ(const struct ps_node_cluster *c, bool *said, const char *key, uint32_t of_map,
                               const struct ps_cluster_node *const nodes[2], uint32_t first, uint32_t second)
{
    char text[3][12];
    (void)snprintf(text[0], sizeof(text[0]), "%" PRIu32, of_map);
    (void)snprintf(text[1], sizeof(text[1]), "%" PRIu32, first);
    (void)snprintf(text[2], sizeof(text[2]), "%" PRIu32, second);
    log_differs(c, said, key, text[0], nodes, text[1], text[2]);
}

static const char *copies_text(bool answers_wait)
{
    return answers_wait ? "sync" : "async";
}

/* Chooses what the map is to have of what the nodes are configured with. */
static void log_settings(struct ps_node_cluster *c, const struct ps_cluster_map *map,
                         struct ps_leader_view *all)
{
    const struct ps_leader_differs differs = ps_leader_settings(all);
    const struct ps_cluster_node *const *t = differs.take_over, *const *r = differs.replication,
                                        *const *a = differs.copies;
    log_numbers_differ(c, &c->said_take_over, "take_over_s", map->take_over_s, t,
                       t[0] != NULL ? t[0]->take_over_s : 0, t[1] != NULL ? t[1]->take_over_s : 0);
    log_numbers_differ(c, &c->said_replication, "replication", map->replication, r,
                       r[0] != NULL ? r[0]->replication : 0, r[1] != NULL ? r[1]->replication : 0);
    log_differs(c, &c->said_copies, "copies", copies_text(map->answers_wait), a,
                copies_text(a[0] != NULL && a[0]->answers_wait),
                copies_text(a[1] != NULL && a[1]->answers_wait));
    const uint32_t older = all->replication > map->replication
                               ? ps_cluster_map_lacking(map, MR_CAN(TAKE_OVER) | MR_CAN(COPIES))
                               : PS_CLUSTER_NO_NODE;
    if (older != PS_CLUSTER_NO_NODE && !c->said_replication_waits) {
        char version[MR_VERSION_TEXT_BYTES];
        mr_version_name(&map->nodes[older].version, version);
        mr_log_with(MR_LOG_WARNING, MR_LOG_FIELDS({"node", .text = map->nodes[older].name}),
                    "replication_waits",
                    "cluster %s: cluster.replication = %u comes into use once node %.63s is upgraded, which "
                    "has version %s",
                    c->options.cluster, all->replication, map->nodes[older].name, version);
    }
    c->said_replication_waits = older != PS_CLUSTER_NO_NODE;
}

/* What the leader does next, if this node leads. */
static void lead(struct ps_node_cluster *c, const struct ps_zookeeper_view *view)
{
    const uint64_t now_us = mr_clock_boot_us();
    uint64_t absent_us[PS_CLUSTER_NODES_MAX] = {0};
    struct ps_cluster_map next;
    if (!view->leads || c->member.writes || c->is_stopped)
        return;
    for (uint32_t i = 0; i < view->map->node_count; i++)
        absent_us[i] = c->absences[i].since_us == 0 ? 0 : now_us - c->absences[i].since_us + 1;
    struct ps_leader_view all = {.map = view->map,
                                 .registered = view->registered,
                                 .registered_count = view->registered_count,
                                 .absent_us = absent_us,
                                 .nodes_wanted = (uint32_t)c->node->config->cluster_nodes,
                                 .take_over_us = view->map->take_over_s * UINT64_C(1000000),
                                 .drop_us = DROP_US,
                                 .room = c->room, /* a leader's view is whole */
                                 .room_for_copies = c->room_for_copies,
                                 .may_not_take_over = c->save.commit == NULL,
                                 .forget_us = FORGET_US,
                                 .rebalances = c->node->config->cluster_rebalance == PS_REBALANCE_AUTO,
                                 .wants_balance = view->map->balances && view->map->move_count == 0,
                                 .drained = view->map->drained};
    log_settings(c, view->map, &all);
    for (uint32_t i = 0; i < view->registered_count; i++)
        all.wants_balance &=
            !view->reports[i].wants_cut; /* the next move waits for the cut, not it for all */
    all.wants_balance &= !c->save.is_wanted;
    ps_cluster_save_look(&c->save, view, now_us, &all);
    const enum ps_leader_action action = ps_leader_next(&all, &next);
    if (action == PS_LEADER_COMMITS_CUT)
        ps_cluster_save_commit(&c->save, view);
    if (action != PS_LEADER_WRITES_MAP) {
        if (action == PS_LEADER_WAITS && view->map->cut == 0)
            look_for_not_taken_over(c, &all);
        if (action != PS_LEADER_WAITS || !ps_migration_balance_ends(view->map, c->present, &next))
            return;
        log_absent_owners(c, view->map);
    }
    if (next.move_count > view->map->move_count)
        next.moves[next.move_count - 1].mib_s = next.balance_mib_s;
    log_taken_over(c, view->map, &next);
    propose_map(c, view->map, &next);
}

/* What this node could not load goes to others, if any can. */
static void propose_pass_on(struct ps_node_cluster *c, const struct ps_zookeeper_view *view)
{
    const struct ps_member *m = &c->member;
    struct ps_node_take_over *o = &c->take_over;
    bool any = false;
    for (uint32_t slot = 0; slot < MR_PARTITION_COUNT && o->has_failed; slot++) {
        o->failed[slot] = m->loading[slot] == o->failed[slot] ? o->failed[slot] : 0;
        any |= o->failed[slot] != 0;
    }
    o->has_failed = any;
    if (!any || c->is_stopped || !ps_node_cluster_knows_room(c, view))
        return;
    struct ps_cluster_map next = *view->map;
    if (!ps_cluster_map_pass_on(&next, ps_cluster_map_find(view->map, c->options.self.name), o->failed,
                                c->present, c->room) ||
        !ps_member_propose(&c->member, &next))
        return;
    mr_log_with(MR_LOG_WARNING, MR_LOG_FIELDS({"epoch", .number = next.epoch}), "passed_on",
                "cluster %s: what this node could not load goes to other nodes, in map epoch %" PRIu64,
                c->options.cluster, next.epoch);
}

/* Anybody may put capabilities into use that all nodes have. */
static void propose_use(struct ps_node_cluster *c, const struct ps_zookeeper_view *view)
{
    struct ps_cluster_map next = *view->map;
    c->wants &= ~view->map->needs;
    if (!c->is_stopped && c->wants != 0 && ps_cluster_map_use(&next, c->wants))
        (void)ps_member_propose(&c->member, &next);
}

/* Whether the log has it already that this process is not admitted; else it has it from now on. */
static bool is_refusal_logged(struct ps_node_cluster *c, uint64_t start_id)
{
    for (uint32_t i = 0; i < PS_NODE_CLUSTER_REFUSED_MAX; i++)
        if (c->refused_start_ids[i] == start_id)
            return true;
    c->refused_start_ids[c->refused_count++ % PS_NODE_CLUSTER_REFUSED_MAX] = start_id;
    return false;
}

/* A node that lacks what is in use stays outside: it would misread tables, or the map. */
static void log_refused(struct ps_node_cluster *c, const struct ps_zookeeper_view *view)
{
    const struct ps_cluster_map *map = view->map;
    for (uint32_t i = 0; i < view->registered_count && view->leads; i++) {
        const struct ps_cluster_node *node = &view->registered[i];
        char version[MR_VERSION_TEXT_BYTES], lacks[128], why[PS_CLUSTER_TEXT_BYTES];
        const enum ps_cluster_refusal refusal = ps_cluster_map_admits(map, node);
        if (refusal == PS_CLUSTER_ADMITS || is_refusal_logged(c, node->start_id))
            continue;
        mr_version_name(&node->version, version);
        mr_capability_text(map->needs & ~node->version.capabilities, lacks, sizeof(lacks));
        if (refusal == PS_CLUSTER_LACKS_USED)
            (void)snprintf(why, sizeof(why),
                           "it has version %s, which lacks %.90s that the cluster's tables or its size need: "
                           "install version %s there",
                           version, lacks, mr_version_text());
        else if (refusal == PS_CLUSTER_NO_SPARES)
            (void)snprintf(
                why, sizeof(why),
                "it is a spare (cluster.role), and not all nodes have a version that knows spares: "
                "upgrade them (millrace ctl nodes)");
        else if (refusal == PS_CLUSTER_NOT_SO_MANY)
            (void)snprintf(why, sizeof(why),
                           "it or another node has a version that knows no clusters of more than %u nodes: "
                           "upgrade all nodes (millrace ctl nodes)",
                           MR_CLUSTER_FEW_NODES);
        else
            (void)snprintf(
                why, sizeof(why),
                "the map has %u nodes, which is all that it can have: take out those that have left "
                "(millrace ctl forget)",
                map->node_count);
        mr_log_with(MR_LOG_ERROR, MR_LOG_FIELDS({"node", .text = node->name}), "node_not_admitted",
                    "cluster %s: node %.63s is not admitted: %s", c->options.cluster, node->name, why);
    }
}

/* Clients compare how late an answer is with one lease, whichever node it comes from: the shortest. */
static void log_sessions(struct ps_node_cluster *c, const struct ps_zookeeper_view *view)
{
    const struct ps_cluster_map *map = view->map;
    const uint32_t shortest = ps_cluster_map_session_ms(map);
    const struct ps_cluster_node *has_it = NULL, *other = NULL;
    for (uint32_t i = 0; i < map->node_count; i++)
        if (map->nodes[i].session_ms == shortest)
            has_it = &map->nodes[i];
        else if (map->nodes[i].session_ms != 0)
            other = &map->nodes[i];
    if (!view->leads || (other != NULL && c->said_session_ms == shortest))
        return;
    c->said_session_ms = other != NULL ? shortest : 0;
    if (other != NULL)
        mr_log_with(
            MR_LOG_WARNING, MR_LOG_FIELDS({"node", .text = other->name}), "sessions_differ",
            "cluster %s: node %.63s has a session of %u ms, and node %.63s of %u ms: clients take the "
            "shorter for all; give all nodes one cluster.session_ms",
            c->options.cluster, has_it->name, shortest, other->name, other->session_ms);
}

/* Anybody may begin a cut; the map decides. */
static void propose_cut(struct ps_node_cluster *c, const struct ps_zookeeper_view *view)
{
    struct ps_cluster_map next;
    if (!c->is_stopped && ps_cluster_save_propose(&c->save, view->map, &next) &&
        !ps_member_propose(&c->member, &next))
        ps_cluster_save_proposed(&c->save, next.cut, false);
    if (c->report.wants_cut != c->save.is_wanted && c->zookeeper != NULL) {
        c->report.wants_cut = c->save.is_wanted;
        ps_zookeeper_report(c->zookeeper, &c->report);
    }
}

void ps_node_cluster_propose(struct ps_node_cluster *c, const struct ps_zookeeper_view *view)
{
    struct ps_cluster_map next;
    log_refused(c, view);
    log_sessions(c, view);
    lead(c, view);
    propose_use(c, view);
    propose_cut(c, view);
    propose_pass_on(c, view);
    ps_node_cluster_propose_copies(c, view);
    if (!c->is_stopped && ps_node_cluster_next_migrations(c, view, &next))
        propose_map(c, view->map, &next);
}
