#include "ps/cluster/migration_request.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "dataplane/wire/base/plural.h"
#include "ps/cluster/copies.h"

__attribute__((format(printf, 2, 3))) static enum ps_migration_request_state
request_fail(char *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, PS_CLUSTER_TEXT_BYTES, format, arguments);
    va_end(arguments);
    return PS_REQUEST_FAILED;
}

static enum ps_migration_request_state request_fail_unknown(const char *name, char *text)
{
    return request_fail(text, "no node of this cluster is called %s: millrace ctl nodes lists them", name);
}

/* ---- partitions from a node to another ---- */

/* The longest runs that the node owns and that do not move, as far as there is room for them in the map. */
static void request_plan_runs(const struct ps_cluster_map *map, struct ps_migration_request *r, uint32_t from,
                              uint32_t to, struct ps_cluster_map *scratch)
{
    uint32_t left = r->count == 0 ? map->partition_count : r->count;
    uint32_t first = 0;
    *scratch = *map;
    while (left > 0) {
        const uint32_t count = ps_cluster_map_longest_run(scratch, from, left, &first);
        if (count == 0 || !ps_cluster_map_begin_move(scratch, first, count, to))
            return;
        r->ranges[r->range_count++] = (struct ps_migration_range){(uint16_t)first, (uint16_t)count};
        left -= count;
    }
}

static bool request_plan_named(const struct ps_cluster_map *map, struct ps_migration_request *r,
                               uint32_t from, char *text)
{
    if (r->first >= map->partition_count || r->count == 0 || r->count > map->partition_count - r->first) {
        (void)request_fail(text, "partitions %u to %u: the map has 0 to %u", r->first,
                           r->first + r->count - 1, map->partition_count - 1);
        return false;
    }
    for (uint32_t slot = r->first; slot < r->first + r->count; slot++) {
        if (map->owner[slot] != from || ps_cluster_map_moves(map, slot, 1)) {
            (void)request_fail(text,
                               map->owner[slot] != from ? "partition %u is not node %s's"
                                                        : "partition %u of node %s moves already",
                               slot, r->from);
            return false;
        }
    }
    r->ranges[r->range_count++] = (struct ps_migration_range){(uint16_t)r->first, (uint16_t)r->count};
    return true;
}

/* All that was planned moves there, or is there. */
static bool request_is_made(const struct ps_cluster_map *map, const struct ps_migration_request *r,
                            uint32_t to)
{
    for (uint32_t i = 0; i < r->range_count; i++) {
        for (uint32_t slot = r->ranges[i].first; slot < (uint32_t)r->ranges[i].first + r->ranges[i].count;
             slot++)
            if (map->owner[slot] != to && !ps_cluster_map_moves(map, slot, 1))
                return false;
    }
    return true;
}

static enum ps_migration_request_state request_fail_absent(const struct ps_cluster_map *map, uint32_t node,
                                                           char *text)
{
    return request_fail(
        text,
        "node %s is away, and owns %u partition%s: what moves needs both nodes; start it, or leave it "
        "out (millrace ctl nodes)",
        map->nodes[node].name, ps_cluster_map_load(map, node), mr_plural(ps_cluster_map_load(map, node)));
}

static enum ps_migration_request_state request_move(const struct ps_cluster_map *map, const bool *present,
                                                    struct ps_migration_request *r,
                                                    struct ps_cluster_map *next, char *text)
{
    const uint32_t from = ps_cluster_map_find(map, r->from);
    const uint32_t to = ps_cluster_map_find(map, r->to);
    if (from == PS_CLUSTER_NO_NODE || to == PS_CLUSTER_NO_NODE)
        return request_fail_unknown(from == PS_CLUSTER_NO_NODE ? r->from : r->to, text);
    if (from == to)
        return request_fail(text, "the partitions of node %s are there already", r->to);
    if (map->drained[to])
        return request_fail(text, "node %s is drained: millrace ctl rebalance takes it in again", r->to);
    if (r->range_count > 0 && request_is_made(map, r, to))
        return PS_REQUEST_MADE;
    if (!present[from] || !present[to])
        return request_fail_absent(map, present[from] ? to : from, text);
    if (map->cut != 0 || map->move_count == PS_CLUSTER_MOVES_MAX)
        return PS_REQUEST_WAITS;
    if (r->range_count == 0 && r->has_first && !request_plan_named(map, r, from, text))
        return PS_REQUEST_FAILED;
    if (r->range_count == 0)
        request_plan_runs(map, r, from, to, next);
    if (r->range_count == 0)
        return request_fail(text, "node %s has no partitions that do not move already", r->from);
    *next = *map;
    for (uint32_t i = 0; i < r->range_count; i++) {
        if (!ps_cluster_map_begin_move(next, r->ranges[i].first, r->ranges[i].count, to))
            return request_fail(text, "the map has changed: ask again");
        next->moves[next->move_count - 1].mib_s = r->mib_s;
    }
    next->epoch = map->epoch + 1; /* it is one change */
    return PS_REQUEST_WRITES;
}

/* ---- nodes ---- */

static enum ps_migration_request_state request_drain(const struct ps_cluster_map *map, const bool *present,
                                                     const struct ps_migration_request *r,
                                                     struct ps_cluster_map *next, char *text)
{
    const uint32_t node = ps_cluster_map_find(map, r->from);
    uint32_t others = 0;
    if (node == PS_CLUSTER_NO_NODE)
        return request_fail_unknown(r->from, text);
    for (uint32_t i = 0; i < map->node_count; i++)
        others += i != node && present[i] && !map->drained[i] && !map->nodes[i].is_spare &&
                  map->nodes[i].core_count > 0;
    if (map->drained[node] && (map->balances || ps_cluster_map_load(map, node) == 0))
        return PS_REQUEST_MADE;
    if (others == 0)
        return request_fail(
            text, "node %s cannot be drained: no other node that is there is left to take its partitions",
            r->from);
    if (!present[node] && ps_cluster_map_load(map, node) > 0)
        return request_fail_absent(map, node, text);
    *next = *map;
    next->drained[node] = next->balances = true;
    next->balance_mib_s = r->mib_s;
    next->epoch++;
    return PS_REQUEST_WRITES;
}

/* Drained nodes that are away stay drained: nobody has said that they are to come back. */
static enum ps_migration_request_state request_balance(const struct ps_cluster_map *map, const bool *present,
                                                       const struct ps_migration_request *r,
                                                       struct ps_cluster_map *next)
{
    bool drained[PS_CLUSTER_NODES_MAX] = {false};
    uint32_t first;
    uint32_t count;
    uint32_t to;
    for (uint32_t i = 0; i < map->node_count; i++)
        drained[i] = map->drained[i] && !present[i];
    const bool takes_in = memcmp(map->drained, drained, sizeof(drained)) != 0;
    if (!takes_in && (map->balances || !ps_cluster_map_next_move(map, drained, present, &first, &count, &to)))
        return PS_REQUEST_MADE;
    *next = *map;
    memcpy(next->drained, drained, sizeof(drained));
    next->balances = true;
    next->balances_when_asked = false;
    next->balance_mib_s = r->mib_s;
    next->epoch++;
    return PS_REQUEST_WRITES;
}

/* Nodes that were drained and have left stay drained. The leader does not begin the same moves again by
 * itself. */
static enum ps_migration_request_state request_cancel(const struct ps_cluster_map *map, const bool *present,
                                                      const struct ps_migration_request *r,
                                                      struct ps_cluster_map *next)
{
    *next = *map;
    for (uint32_t i = 0; i < map->node_count; i++)
        next->drained[i] = map->drained[i] && !present[i] && !ps_cluster_map_owns_any(map, i);
    while (next->move_count > 0 && r->id == 0)
        (void)ps_cluster_map_cancel_move(next, next->moves[0].id);
    if (r->id != 0)
        (void)ps_cluster_map_cancel_move(next, r->id);
    if (next->move_count == map->move_count && !map->balances &&
        memcmp(map->drained, next->drained, sizeof(next->drained)) == 0)
        return PS_REQUEST_MADE;
    next->balances = false;
    next->balances_when_asked = true;
    next->epoch = map->epoch + 1;
    return PS_REQUEST_WRITES;
}

static enum ps_migration_request_state request_forget(const struct ps_cluster_map *map, const bool *present,
                                                      struct ps_migration_request *r,
                                                      struct ps_cluster_map *next, char *text)
{
    const uint32_t node = ps_cluster_map_find(map, r->from);
    if (node == PS_CLUSTER_NO_NODE && r->is_known)
        return PS_REQUEST_MADE;
    if (node == PS_CLUSTER_NO_NODE)
        return request_fail_unknown(r->from, text);
    const uint32_t load = ps_cluster_map_load(map, node);
    r->is_known = true;
    if (present[node])
        return request_fail(text, "node %s is there, and would come back at once: stop it first", r->from);
    if (ps_cluster_map_owns_any(map, node))
        return request_fail(
            text,
            "node %s owns %u partition%s, which nobody else has: start it again (and millrace ctl drain "
            "it), or let the others take them over from the newest checkpoint (millrace ctl take-over)",
            r->from, load, mr_plural(load));
    *next = *map;
    return ps_cluster_map_forget(next, node) ? PS_REQUEST_WRITES : PS_REQUEST_WAITS;
}

/* What is in the cut's way is away: the leader gives it up first. */
static enum ps_migration_request_state request_take_over(const struct ps_cluster_map *map,
                                                         const bool *present, struct ps_migration_request *r,
                                                         struct ps_cluster_map *next, char *text)
{
    const uint32_t node = ps_cluster_map_find(map, r->from);
    const uint32_t lacking = ps_cluster_map_lacking(map, MR_CAN(TAKE_OVER));
    if (node == PS_CLUSTER_NO_NODE)
        return request_fail_unknown(r->from, text);
    if (!ps_cluster_map_owns_any(map, node))
        return r->is_known ? PS_REQUEST_MADE : request_fail(text, "node %s owns nothing", r->from);
    if (present[node])
        return request_fail(text, "node %s is there: millrace ctl drain moves what it has to the others",
                            r->from);
    if (lacking != PS_CLUSTER_NO_NODE)
        return request_fail(text, "node %s has a version that cannot take over: upgrade it",
                            map->nodes[lacking].name);
    if (r->has_no_directory)
        return request_fail(
            text,
            "this node has no checkpoint.directory, so there is no checkpoint that the others "
            "could load what node %s owns from: set one that all nodes see, or start node %s",
            r->from, r->from);
    r->is_known = true;
    if (map->cut != 0 || ps_copies_is_kept(map, node, present)) /* the leader promotes its backups */
        return PS_REQUEST_WAITS;
    *next = *map;
    return ps_cluster_map_take_over(next, node, present, r->room)
               ? PS_REQUEST_WRITES
               : request_fail(
                     text,
                     "the nodes that are there have no room for the %u partition%s of node %s: raise "
                     "memory.limit_mib, or start it",
                     ps_cluster_map_load(map, node), mr_plural(ps_cluster_map_load(map, node)), r->from);
}

enum ps_migration_request_state ps_migration_request_propose(const struct ps_cluster_map *map,
                                                             const bool present[PS_CLUSTER_NODES_MAX],
                                                             struct ps_migration_request *r,
                                                             struct ps_cluster_map *next,
                                                             char text[PS_CLUSTER_TEXT_BYTES])
{
    text[0] = '\0';
    switch (r->kind) {
    case MR_MOVE_PARTITIONS:
        return request_move(map, present, r, next, text);
    case MR_MOVE_DRAIN:
        return request_drain(map, present, r, next, text);
    case MR_MOVE_BALANCE:
        return request_balance(map, present, r, next);
    case MR_MOVE_CANCEL:
        return request_cancel(map, present, r, next);
    case MR_MOVE_FORGET:
        return request_forget(map, present, r, next, text);
    case MR_MOVE_TAKE_OVER:
        return request_take_over(map, present, r, next, text);
    default:
        return request_fail(text, "unknown kind %u", (unsigned)r->kind);
    }
}

bool ps_migration_balance_ends(const struct ps_cluster_map *map, const bool present[PS_CLUSTER_NODES_MAX],
                               struct ps_cluster_map *next)
{
    uint32_t first;
    uint32_t count;
    uint32_t to;
    if (!map->balances || map->move_count > 0 ||
        ps_cluster_map_next_move(map, map->drained, present, &first, &count, &to))
        return false;
    *next = *map;
    next->balances = false;
    next->epoch++;
    return true;
}
