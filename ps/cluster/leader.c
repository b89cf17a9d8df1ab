#include "ps/cluster/leader.h"

#include <string.h>
#include "ps/cluster/copies.h"

/* Of a move that balances the nodes: so that progress is made in steps. */
#define MOVE_PARTITIONS_MAX 256u

/* Which nodes of `next`, which has those of the map and perhaps more, have a session. Returns how many of
 * them are no spares. */
static uint32_t find_present(const struct ps_leader_view *view, const struct ps_cluster_map *next,
                             bool present[PS_CLUSTER_NODES_MAX])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < next->node_count; i++) {
        present[i] = i >= view->map->node_count || view->absent_us[i] == 0;
        count += present[i] && !next->nodes[i].is_spare;
    }
    return count;
}

/* ---- copies ---- */

/* Of the processes that the map names: those that have a session; those that are gone, as others have come
 * under their names; and those that are away for so short a time that others wait for what they had. */
struct processes {
    bool there[PS_CLUSTER_NODES_MAX], are_gone[PS_CLUSTER_NODES_MAX], may_return[PS_CLUSTER_NODES_MAX];
};

static void find_processes(const struct ps_leader_view *view, struct processes *p)
{
    const struct ps_cluster_map *map = view->map;
    memset(p, 0, sizeof(*p));
    for (uint32_t i = 0; i < view->registered_count; i++) {
        const uint32_t node = ps_cluster_map_find(map, view->registered[i].name);
        if (node == PS_CLUSTER_NO_NODE)
            continue;
        p->there[node] = map->nodes[node].start_id == view->registered[i].start_id;
        p->are_gone[node] = !p->there[node];
    }
    for (uint32_t i = 0; i < map->node_count; i++)
        p->may_return[i] = !p->there[i] && !p->are_gone[i] && view->absent_us[i] <= view->take_over_us;
}

/* The backups of a node whose session has ended go on with what it owned. */
static bool promote(const struct ps_leader_view *view, struct ps_cluster_map *next)
{
    struct processes p;
    if (next->replication < 2)
        return false;
    find_processes(view, &p);
    for (uint32_t i = 0; i < next->node_count; i++)
        if (ps_copies_promote(next, i, p.there))
            return true;
    return false;
}

/* A backup that is away has all of what a node owned, and others would go on from a checkpoint: they wait for
 * it as long as for an owner. */
static bool waits_for_backup(const struct ps_leader_view *view, const struct ps_cluster_map *map,
                             uint32_t owner)
{
    struct processes p;
    if (map->replication < 2 || owner >= view->map->node_count)
        return false;
    find_processes(view, &p);
    return ps_copies_is_kept(map, owner, p.may_return);
}

/* Ends copies at nodes that are away or drained, and assigns others, also in place of those that a change of
 * owners has ended. */
static bool renew_copies(const struct ps_leader_view *view, struct ps_cluster_map *next)
{
    struct processes p;
    if (next->replication < 2)
        return false;
    find_processes(view, &p);
    for (uint32_t i = 0; i < next->node_count; i++)
        if ((p.are_gone[i] || view->absent_us[i] > view->drop_us) && ps_copies_drop(next, i, p.there))
            return true;
    return ps_copies_assign(next, p.there, view->room_for_copies) ||
           ps_copies_leave(next, p.there, view->room_for_copies);
}

/* ---- settings ---- */

static void settings_compare(const struct ps_cluster_node *nodes[2], const struct ps_cluster_node *first,
                             const struct ps_cluster_node *node, bool differ)
{
    if (differ) {
        nodes[0] = first;
        nodes[1] = node;
    }
}

struct ps_leader_differs ps_leader_settings(struct ps_leader_view *view)
{
    const struct ps_cluster_map *map = view->map;
    struct ps_leader_differs differs = {.take_over = {NULL}};
    const struct ps_cluster_node *first = NULL;
    bool is_away = false;
    for (uint32_t i = 0; i < view->registered_count; i++) {
        const struct ps_cluster_node *node = &view->registered[i];
        if (node->replication == 0)
            continue;
        if (first == NULL)
            first = node;
        settings_compare(differs.take_over, first, node, node->take_over_s != first->take_over_s);
        settings_compare(differs.replication, first, node, node->replication != first->replication);
        settings_compare(differs.copies, first, node, node->answers_wait != first->answers_wait);
    }
    for (uint32_t i = 0; i < map->node_count; i++)
        is_away |= view->absent_us[i] > 0 && ps_cluster_map_owns_any(map, i);
    const bool is_open = first != NULL && !is_away;
    view->take_over_s = is_open && differs.take_over[0] == NULL ? first->take_over_s : map->take_over_s;
    view->replication = is_open && differs.replication[0] == NULL ? first->replication : map->replication;
    view->answers_wait = is_open && differs.copies[0] == NULL ? first->answers_wait : map->answers_wait;
    return differs;
}

/* ---- nodes ---- */

/* Admits all that are there and spreads what nobody owns, in one change: each costs a write by a majority of
 * the coordinator's servers. A node that went away before there was anything to own, perhaps to come back
 * under another name, stays in the map and gets nothing. */
static bool admit(const struct ps_leader_view *view, struct ps_cluster_map *next)
{
    bool present[PS_CLUSTER_NODES_MAX];
    bool is_changed = false;
    for (uint32_t i = 0; i < view->registered_count; i++) {
        const struct ps_cluster_node *node = &view->registered[i];
        const uint32_t known = ps_cluster_map_find(view->map, node->name);
        const bool has_restarted =
            known != PS_CLUSTER_NO_NODE && view->map->nodes[known].start_id != node->start_id;
        if (!has_restarted || !waits_for_backup(view, view->map, known))
            is_changed |= ps_cluster_map_join(next, node);
    }
    if (find_present(view, next, present) >= view->nodes_wanted)
        is_changed |= ps_cluster_map_spread(next, present);
    if (next->owner[0] !=
        PS_CLUSTER_NO_NODE) { /* before, an older node would be refused if it comes second */
        is_changed |= ps_cluster_map_set_take_over(next, view->take_over_s);
        is_changed |= ps_copies_set_replication(next, view->replication);
        is_changed |= ps_copies_set_answers(next, view->answers_wait);
    }
    next->epoch = view->map->epoch + (is_changed ? 1 : 0);
    return is_changed;
}

/* A move whose source or target is away would hold up checkpoints. */
static bool cancel_moves(const struct ps_leader_view *view, struct ps_cluster_map *next)
{
    for (uint32_t i = 0; i < next->move_count; i++)
        if (view->absent_us[next->moves[i].from] > 0 || view->absent_us[next->moves[i].to] > 0)
            return ps_cluster_map_cancel_move(next, next->moves[i].id);
    return false;
}

static bool replace_dead(const struct ps_leader_view *view, struct ps_cluster_map *next)
{
    bool present[PS_CLUSTER_NODES_MAX];
    (void)find_present(view, next, present);
    if (view->take_over_us == 0 || view->may_not_take_over)
        return false;
    for (uint32_t i = 0; i < next->node_count; i++)
        if (view->absent_us[i] > view->take_over_us && !waits_for_backup(view, next, i) &&
            ps_cluster_map_take_over(next, i, present, view->room))
            return true;
    return false;
}

/* Names that nobody uses any more take places in the map. */
static bool forget_departed(const struct ps_leader_view *view, struct ps_cluster_map *next)
{
    for (uint32_t i = 0; i < next->node_count && view->forget_us > 0; i++)
        if (view->absent_us[i] > view->forget_us && ps_cluster_map_forget(next, i))
            return true;
    return false;
}

static bool balance(const struct ps_leader_view *view, struct ps_cluster_map *next)
{
    bool present[PS_CLUSTER_NODES_MAX];
    uint32_t first;
    uint32_t count;
    uint32_t to;
    (void)find_present(view, next, present);
    return view->wants_balance &&
           ps_cluster_map_next_move(next, view->drained, present, &first, &count, &to) &&
           ps_cluster_map_begin_move(next, first, count < MOVE_PARTITIONS_MAX ? count : MOVE_PARTITIONS_MAX,
                                     to);
}

/* A node that has come, or come back after others took its partitions over, gets its share: all moves
 * until the loads are as they should be, as if an operator had asked for them. What an operator has moved
 * stays where it is as long as no node is without partitions. */
static bool begin_balance(const struct ps_leader_view *view, struct ps_cluster_map *next)
{
    bool present[PS_CLUSTER_NODES_MAX];
    uint32_t first;
    uint32_t count;
    uint32_t to;
    if (!view->rebalances || next->balances || next->balances_when_asked || next->move_count > 0)
        return false;
    (void)find_present(view, next, present);
    for (uint32_t i = 0; i < next->node_count; i++)
        if (present[i] && !view->drained[i] && !next->nodes[i].is_spare &&
            !ps_cluster_map_owns_any(next, i) &&
            ps_cluster_map_next_move(next, view->drained, present, &first, &count, &to)) {
            next->balances = true;
            next->balance_mib_s = 0; /* as its target is configured */
            next->epoch++;
            return true;
        }
    return false;
}

enum ps_leader_action ps_leader_next(const struct ps_leader_view *view, struct ps_cluster_map *next)
{
    const uint64_t cut = view->map->cut;
    *next = *view->map;
    if (cut != 0 && view->cut_is_committed)
        return ps_cluster_map_commit_cut(next, cut) ? PS_LEADER_WRITES_MAP : PS_LEADER_WAITS;
    if (cut != 0 && view->cut_is_unknown) /* the restart of a node would end one that is there */
        return PS_LEADER_WAITS;
    if (promote(view, next) || admit(view, next) || cancel_moves(view, next) || replace_dead(view, next) ||
        forget_departed(view, next) || renew_copies(view, next))
        return PS_LEADER_WRITES_MAP;
    if (cut != 0 && view->parts_are_written)
        return PS_LEADER_COMMITS_CUT;
    if (cut != 0)
        return view->cut_is_late && ps_cluster_map_cancel_cut(next, cut) ? PS_LEADER_WRITES_MAP
                                                                         : PS_LEADER_WAITS;
    if (view->wants_cut) /* moves end first, and none begins */
        return ps_cluster_map_begin_cut(next, view->cut_step) ? PS_LEADER_WRITES_MAP : PS_LEADER_WAITS;
    return begin_balance(view, next) || balance(view, next) ? PS_LEADER_WRITES_MAP : PS_LEADER_WAITS;
}
