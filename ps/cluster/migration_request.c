#include "ps/cluster/migration_request.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "dataplane/wire/base/plural.h"

__attribute__((format(printf, 2, 3))) static enum ps_migration_request_state fail(char *text,
                                                                                  const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, PS_CLUSTER_TEXT_BYTES, format, arguments);
    va_end(arguments);
    return PS_REQUEST_FAILED;
}

static bool is_moving(const struct ps_cluster_map *map, uint32_t slot)
{
    for (uint32_t i = 0; i < map->move_count; i++)
        if (slot >= map->moves[i].first && slot < (uint32_t)map->moves[i].first + map->moves[i].count)
            return true;
    return false;
}

/* ---- partitions from a node to another ---- */

static bool is_planned(const struct ps_migration_request *w, uint32_t slot)
{
    for (uint32_t i = 0; i < w->range_count; i++)
        if (slot >= w->ranges[i].first && slot < (uint32_t)w->ranges[i].first + w->ranges[i].count)
            return true;
    return false;
}

/* The longest run that the node owns and that neither moves nor is planned. */
static uint32_t longest_run(const struct ps_cluster_map *map, const struct ps_migration_request *w,
                            uint32_t node, uint32_t count, uint32_t *first)
{
    uint32_t best = 0;
    uint32_t run = 0;
    for (uint32_t slot = 0; slot < map->partition_count && best < count; slot++) {
        run = map->owner[slot] == node && !is_moving(map, slot) && !is_planned(w, slot) ? run + 1 : 0;
        if (run > best) {
            best = run;
            *first = slot + 1 - run;
        }
    }
    return best;
}

static void plan(const struct ps_cluster_map *map, struct ps_migration_request *w, uint32_t from)
{
    uint32_t left = w->count == 0 ? map->partition_count : w->count;
    uint32_t first = 0;
    while (left > 0 && map->move_count + w->range_count < PS_CLUSTER_MOVES_MAX) {
        const uint32_t count = longest_run(map, w, from, left, &first);
        if (count == 0)
            return;
        w->ranges[w->range_count++] = (struct ps_migration_range){(uint16_t)first, (uint16_t)count};
        left -= count;
    }
}

static bool plan_named(const struct ps_cluster_map *map, struct ps_migration_request *w, uint32_t from,
                       char *text)
{
    if (w->first >= map->partition_count || w->count == 0 || w->count > map->partition_count - w->first) {
        (void)fail(text, "partitions %u to %u: the map has 0 to %u", w->first, w->first + w->count - 1,
                   map->partition_count - 1);
        return false;
    }
    for (uint32_t slot = w->first; slot < w->first + w->count; slot++) {
        if (map->owner[slot] != from || is_moving(map, slot)) {
            (void)fail(text,
                       map->owner[slot] != from ? "partition %u is not node %s's"
                                                : "partition %u of node %s moves already",
                       slot, w->from);
            return false;
        }
    }
    w->ranges[w->range_count++] = (struct ps_migration_range){(uint16_t)w->first, (uint16_t)w->count};
    return true;
}

/* All that was planned moves there, or is there. */
static bool is_made(const struct ps_cluster_map *map, const struct ps_migration_request *w, uint32_t to)
{
    for (uint32_t i = 0; i < w->range_count; i++) {
        for (uint32_t slot = w->ranges[i].first; slot < (uint32_t)w->ranges[i].first + w->ranges[i].count;
             slot++)
            if (map->owner[slot] != to && !is_moving(map, slot))
                return false;
    }
    return true;
}

static enum ps_migration_request_state fail_absent(const struct ps_cluster_map *map, uint32_t node,
                                                   char *text)
{
    return fail(
        text,
        "node %s is away, and owns %u partition%s: what moves needs both nodes; start it, or leave it "
        "out (millrace ctl nodes)",
        map->nodes[node].name, ps_cluster_map_load(map, node), mr_plural(ps_cluster_map_load(map, node)));
}

static enum ps_migration_request_state move_wish_move(const struct ps_cluster_map *map, const bool *present,
                                                      struct ps_migration_request *w,
                                                      struct ps_cluster_map *next, char *text)
{
    const uint32_t from = ps_cluster_map_find(map, w->from);
    const uint32_t to = ps_cluster_map_find(map, w->to);
    if (from == PS_CLUSTER_NO_NODE || to == PS_CLUSTER_NO_NODE)
        return fail(text, "no node of this cluster is called %s: millrace ctl nodes lists them",
                    from == PS_CLUSTER_NO_NODE ? w->from : w->to);
    if (from == to)
        return fail(text, "the partitions of node %s are there already", w->to);
    if (map->drained[to])
        return fail(text, "node %s is drained: millrace ctl rebalance takes it in again", w->to);
    if (w->range_count > 0 && is_made(map, w, to))
        return PS_REQUEST_MADE;
    if (!present[from] || !present[to])
        return fail_absent(map, present[from] ? to : from, text);
    if (map->cut != 0 || map->move_count == PS_CLUSTER_MOVES_MAX)
        return PS_REQUEST_WAITS;
    if (w->range_count == 0 && w->has_first && !plan_named(map, w, from, text))
        return PS_REQUEST_FAILED;
    if (w->range_count == 0)
        plan(map, w, from);
    if (w->range_count == 0)
        return fail(text, "node %s has no partitions that do not move already", w->from);
    *next = *map;
    for (uint32_t i = 0; i < w->range_count; i++) {
        if (!ps_cluster_map_begin_move(next, w->ranges[i].first, w->ranges[i].count, to))
            return fail(text, "the map has changed: ask again");
        next->moves[next->move_count - 1].mib_s = w->mib_s;
    }
    next->epoch = map->epoch + 1; /* it is one change */
    return PS_REQUEST_WRITES;
}

/* ---- nodes ---- */

static enum ps_migration_request_state drain(const struct ps_cluster_map *map, const bool *present,
                                             const struct ps_migration_request *w,
                                             struct ps_cluster_map *next, char *text)
{
    const uint32_t node = ps_cluster_map_find(map, w->from);
    uint32_t others = 0;
    if (node == PS_CLUSTER_NO_NODE)
        return fail(text, "no node of this cluster is called %s: millrace ctl nodes lists them", w->from);
    for (uint32_t i = 0; i < map->node_count; i++)
        others += i != node && present[i] && !map->drained[i] && map->nodes[i].core_count > 0;
    if (map->drained[node] && (map->balances || ps_cluster_map_load(map, node) == 0))
        return PS_REQUEST_MADE;
    if (others == 0)
        return fail(text,
                    "node %s cannot be drained: no other node that is there is left to take its partitions",
                    w->from);
    if (!present[node] && ps_cluster_map_load(map, node) > 0)
        return fail_absent(map, node, text);
    *next = *map;
    next->drained[node] = next->balances = true;
    next->balance_mib_s = w->mib_s;
    next->epoch++;
    return PS_REQUEST_WRITES;
}

/* Drained nodes that are away stay drained: nobody has said that they are to come back. */
static enum ps_migration_request_state balance(const struct ps_cluster_map *map, const bool *present,
                                               const struct ps_migration_request *w,
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
    next->balance_mib_s = w->mib_s;
    next->epoch++;
    return PS_REQUEST_WRITES;
}

/* Nodes that were drained and have left stay drained. */
static enum ps_migration_request_state cancel(const struct ps_cluster_map *map, const bool *present,
                                              const struct ps_migration_request *w,
                                              struct ps_cluster_map *next)
{
    *next = *map;
    for (uint32_t i = 0; i < map->node_count; i++)
        next->drained[i] = map->drained[i] && !present[i] && !ps_cluster_map_owns_any(map, i);
    while (next->move_count > 0 && w->id == 0)
        (void)ps_cluster_map_cancel_move(next, next->moves[0].id);
    if (w->id != 0)
        (void)ps_cluster_map_cancel_move(next, w->id);
    if (next->move_count == map->move_count && !map->balances &&
        memcmp(map->drained, next->drained, sizeof(next->drained)) == 0)
        return PS_REQUEST_MADE;
    next->balances = false;
    next->epoch = map->epoch + 1;
    return PS_REQUEST_WRITES;
}

static enum ps_migration_request_state forget(const struct ps_cluster_map *map, const bool *present,
                                              struct ps_migration_request *w, struct ps_cluster_map *next,
                                              char *text)
{
    const uint32_t node = ps_cluster_map_find(map, w->from);
    if (node == PS_CLUSTER_NO_NODE && w->is_known)
        return PS_REQUEST_MADE;
    if (node == PS_CLUSTER_NO_NODE)
        return fail(text, "no node of this cluster is called %s: millrace ctl nodes lists them", w->from);
    const uint32_t load = ps_cluster_map_load(map, node);
    w->is_known = true;
    if (present[node])
        return fail(text, "node %s is there, and would come back at once: stop it first", w->from);
    if (ps_cluster_map_owns_any(map, node))
        return fail(
            text,
            "node %s owns %u partition%s, which nobody else has: start it again (and millrace ctl drain "
            "it), or begin a new cluster with a checkpoint (cluster.init_from)",
            w->from, load, mr_plural(load));
    *next = *map;
    return ps_cluster_map_forget(next, node) ? PS_REQUEST_WRITES : PS_REQUEST_WAITS;
}

enum ps_migration_request_state ps_migration_request_propose(const struct ps_cluster_map *map,
                                                             const bool present[PS_CLUSTER_NODES_MAX],
                                                             struct ps_migration_request *w,
                                                             struct ps_cluster_map *next,
                                                             char text[PS_CLUSTER_TEXT_BYTES])
{
    text[0] = '\0';
    switch (w->kind) {
    case MR_MOVE_PARTITIONS:
        return move_wish_move(map, present, w, next, text);
    case MR_MOVE_DRAIN:
        return drain(map, present, w, next, text);
    case MR_MOVE_BALANCE:
        return balance(map, present, w, next);
    case MR_MOVE_CANCEL:
        return cancel(map, present, w, next);
    case MR_MOVE_FORGET:
        return forget(map, present, w, next, text);
    default:
        return fail(text, "kind %u is none", (unsigned)w->kind);
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
