#include "ps/cluster/leader.h"

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

/* Admits all that are there and spreads what nobody owns, in one change: each costs a write by a majority of
 * the coordinator's servers. A node that went away before there was anything to own, perhaps to come back
 * under another name, stays in the map and gets nothing. */
static bool admit(const struct ps_leader_view *view, struct ps_cluster_map *next)
{
    bool present[PS_CLUSTER_NODES_MAX];
    bool is_changed = false;
    for (uint32_t i = 0; i < view->registered_count; i++)
        is_changed |= ps_cluster_map_join(next, &view->registered[i]);
    if (find_present(view, next, present) >= view->nodes_wanted)
        is_changed |= ps_cluster_map_spread(next, present);
    is_changed |= ps_cluster_map_set_take_over(next, view->take_over_s);
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
        if (view->absent_us[i] > view->take_over_us && ps_cluster_map_take_over(next, i, present, view->room))
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
    if (admit(view, next) || cancel_moves(view, next) || replace_dead(view, next) ||
        forget_departed(view, next))
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
