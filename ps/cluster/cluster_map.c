#include "ps/cluster/cluster_map.h"

#include <string.h>
#include "ps/cluster/copies.h"

void ps_cluster_map_init(struct ps_cluster_map *map, uint32_t partition_count)
{
    *map = (struct ps_cluster_map){.partition_count = partition_count, .replication = 1};
    memset(map->owner, 0xff, sizeof(map->owner));
    memset(map->backup, 0xff, sizeof(map->backup));
}

uint32_t ps_cluster_map_find(const struct ps_cluster_map *map, const char *name)
{
    for (uint32_t i = 0; i < map->node_count; i++)
        if (strcmp(map->nodes[i].name, name) == 0)
            return i;
    return PS_CLUSTER_NO_NODE;
}

const struct ps_cluster_move *ps_cluster_map_move(const struct ps_cluster_map *map, uint64_t id)
{
    for (uint32_t i = 0; i < map->move_count; i++)
        if (map->moves[i].id == id)
            return &map->moves[i];
    return NULL;
}

uint32_t ps_cluster_map_load(const struct ps_cluster_map *map, uint32_t node)
{
    uint32_t load = 0;
    for (uint32_t p = 0; p < map->partition_count; p++)
        load += map->owner[p] == node;
    for (uint32_t i = 0; i < map->move_count; i++) {
        load += map->moves[i].to == node ? map->moves[i].count : 0;
        load -= map->moves[i].from == node ? map->moves[i].count : 0;
    }
    return load;
}

bool ps_cluster_map_owns_any(const struct ps_cluster_map *map, uint32_t node)
{
    for (uint32_t p = 0; p < map->partition_count; p++)
        if (map->owner[p] == node)
            return true;
    return false;
}

static void remove_move(struct ps_cluster_map *map, uint32_t at)
{
    map->move_count--;
    memmove(&map->moves[at], &map->moves[at + 1], (map->move_count - at) * sizeof(map->moves[0]));
}

void ps_cluster_map_end_copy(struct ps_cluster_map *map, uint32_t p)
{
    map->backup[p] = PS_CLUSTER_NO_NODE;
    map->backup_grant[p] = 0;
    map->in_sync[p] = false;
}

void ps_cluster_map_end_work(struct ps_cluster_map *map, uint32_t node)
{
    for (uint32_t i = map->move_count; i-- > 0;)
        if (map->moves[i].from == node || map->moves[i].to == node)
            remove_move(map, i);
    map->cut = 0;
}

/* What the node's process had in memory is gone. */
static void forget_process(struct ps_cluster_map *map, uint32_t node)
{
    ps_cluster_map_end_work(map, node);
    for (uint32_t p = 0; p < map->partition_count; p++)
        if (map->owner[p] == node || map->backup[p] == node)
            ps_cluster_map_end_copy(map, p);
}

/* A partition has another owner, and no backup yet. */
static void grant_to(struct ps_cluster_map *map, uint32_t p, uint32_t node, uint64_t grant)
{
    map->owner[p] = (uint16_t)node;
    map->grant[p] = grant;
    ps_cluster_map_end_copy(map, p);
}

static_assert(MR_CLUSTER_FEW_NODES < MR_CLUSTER_NO_NODE && PS_CLUSTER_NODES_MAX < PS_CLUSTER_NO_NODE,
              "nobody");

/* Whether the node and all others of the map have a version that knows spares. */
static bool know_spares(const struct ps_cluster_map *map, const struct ps_cluster_node *node)
{
    uint64_t common = node->version.capabilities;
    for (uint32_t i = 0; i < map->node_count; i++)
        if (strcmp(map->nodes[i].name, node->name) != 0)
            common &= map->nodes[i].version.capabilities;
    return (common & MR_CAN(TAKE_OVER)) != 0;
}

enum ps_cluster_refusal ps_cluster_map_admits(const struct ps_cluster_map *map,
                                              const struct ps_cluster_node *node)
{
    const uint64_t many = MR_CAN(MANY_NODES);
    if ((map->needs & ~node->version.capabilities) != 0)
        return PS_CLUSTER_LACKS_USED;
    if (node->is_spare && !know_spares(map, node))
        return PS_CLUSTER_NO_SPARES;
    if (ps_cluster_map_find(map, node->name) != PS_CLUSTER_NO_NODE)
        return PS_CLUSTER_ADMITS;
    if (map->node_count == PS_CLUSTER_NODES_MAX)
        return PS_CLUSTER_IS_FULL;
    const bool may_be_many =
        (many & ~node->version.capabilities) == 0 && ps_cluster_map_lacking(map, many) == PS_CLUSTER_NO_NODE;
    return map->node_count < MR_CLUSTER_FEW_NODES || may_be_many ? PS_CLUSTER_ADMITS : PS_CLUSTER_NOT_SO_MANY;
}

bool ps_cluster_map_join(struct ps_cluster_map *map, const struct ps_cluster_node *node)
{
    const uint32_t known = ps_cluster_map_find(map, node->name);
    if (ps_cluster_map_admits(map, node) != PS_CLUSTER_ADMITS)
        return false;
    if (known == PS_CLUSTER_NO_NODE) {
        map->nodes[map->node_count++] = *node;
        map->balances_when_asked = false;
        if (map->node_count > MR_CLUSTER_FEW_NODES)
            map->needs |= MR_CAN(MANY_NODES);
    } else {
        const bool is_same_process = map->nodes[known].start_id == node->start_id;
        if (is_same_process && map->nodes[known].session == node->session &&
            map->nodes[known].session_ms == node->session_ms &&
            memcmp(&map->nodes[known].version, &node->version, sizeof(node->version)) == 0)
            return false;
        map->nodes[known] = *node;
        if (!is_same_process) {
            forget_process(map, known);
            map->balances_when_asked = false;
        }
    }
    if (node->is_spare)
        map->needs |= MR_CAN(TAKE_OVER);
    map->epoch++;
    return true;
}

uint32_t ps_cluster_map_session_ms(const struct ps_cluster_map *map)
{
    uint32_t shortest = 0;
    for (uint32_t i = 0; i < map->node_count; i++)
        if (map->nodes[i].session_ms != 0 && (shortest == 0 || map->nodes[i].session_ms < shortest))
            shortest = map->nodes[i].session_ms;
    return shortest;
}

bool ps_cluster_map_forget(struct ps_cluster_map *map, uint32_t node)
{
    if (node >= map->node_count || ps_cluster_map_owns_any(map, node))
        return false;
    for (uint32_t i = 0; i < map->move_count; i++)
        if (map->moves[i].from == node || map->moves[i].to == node)
            return false;
    for (uint32_t p = 0; p < map->partition_count; p++)
        if (map->backup[p] == node)
            return false;
    const uint32_t after = --map->node_count - node;
    memmove(&map->nodes[node], &map->nodes[node + 1], after * sizeof(map->nodes[0]));
    memmove(&map->drained[node], &map->drained[node + 1], after * sizeof(map->drained[0]));
    map->nodes[map->node_count] = (struct ps_cluster_node){0};
    map->drained[map->node_count] = false;
    for (uint32_t p = 0; p < map->partition_count; p++) {
        if (map->owner[p] != PS_CLUSTER_NO_NODE && map->owner[p] > node)
            map->owner[p]--;
        if (map->backup[p] != PS_CLUSTER_NO_NODE && map->backup[p] > node)
            map->backup[p]--;
    }
    for (uint32_t i = 0; i < map->move_count; i++) {
        if (map->moves[i].from > node)
            map->moves[i].from--;
        if (map->moves[i].to > node)
            map->moves[i].to--;
    }
    map->epoch++;
    return true;
}

uint32_t ps_cluster_map_lacking(const struct ps_cluster_map *map, uint64_t needs)
{
    for (uint32_t i = 0; i < map->node_count; i++)
        if ((needs & ~map->nodes[i].version.capabilities) != 0)
            return i;
    return PS_CLUSTER_NO_NODE;
}

/* Puts capabilities into use, if all nodes of the map have them. */
static bool comes_into_use(struct ps_cluster_map *map, uint64_t needs)
{
    if (ps_cluster_map_lacking(map, needs) != PS_CLUSTER_NO_NODE)
        return false;
    map->needs |= needs;
    return true;
}

bool ps_cluster_map_use(struct ps_cluster_map *map, uint64_t needs)
{
    if ((needs & ~map->needs) == 0 || !comes_into_use(map, needs))
        return false;
    map->epoch++;
    return true;
}

/* Who gets partitions, and which. */
struct granting {
    uint32_t from;          /* all of this owner, or PS_CLUSTER_NO_NODE's */
    const uint64_t *grants; /* by partition: only those that it has by this grant; NULL: all */
    const bool *present;    /* who may get some */
    const uint32_t *room;   /* by node: so many at most; NULL: any number */
};

static bool is_granted(const struct ps_cluster_map *map, const struct granting *g, uint32_t p)
{
    return map->owner[p] == g->from &&
           (g->grants == NULL || (g->grants[p] != 0 && g->grants[p] == map->grant[p]));
}

/* The node with the fewest partitions for its cores, of those that have room for one more. */
static uint32_t least_loaded(const struct ps_cluster_map *map, const uint32_t load[PS_CLUSTER_NODES_MAX],
                             const uint32_t to_each[PS_CLUSTER_NODES_MAX], const struct granting *g)
{
    uint32_t best = PS_CLUSTER_NO_NODE;
    for (uint32_t i = 0; i < map->node_count; i++) {
        if (!g->present[i] || map->nodes[i].core_count == 0 || (g->room != NULL && to_each[i] >= g->room[i]))
            continue;
        if (best == PS_CLUSTER_NO_NODE ||
            (uint64_t)load[i] * map->nodes[best].core_count < (uint64_t)load[best] * map->nodes[i].core_count)
            best = i;
    }
    return best;
}

/* Grants the partitions to the nodes that are present, as equally as their cores are; false, and the map
 * is as it was, if there are none, or no room for all. */
static bool grant_all(struct ps_cluster_map *map, const struct granting *g)
{
    uint32_t load[PS_CLUSTER_NODES_MAX];
    uint32_t to_each[PS_CLUSTER_NODES_MAX] = {0};
    uint32_t count = 0;
    for (uint32_t i = 0; i < map->node_count; i++)
        load[i] = ps_cluster_map_load(map, i);
    for (uint32_t p = 0; p < map->partition_count; p++)
        count += is_granted(map, g, p);
    if (count == 0)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t to = least_loaded(map, load, to_each, g);
        if (to == PS_CLUSTER_NO_NODE)
            return false;
        load[to]++;
        to_each[to]++;
    }
    /* in runs: neighbours go to the same node */
    uint32_t to = 0;
    map->last_id++;
    for (uint32_t p = 0; p < map->partition_count; p++) {
        if (!is_granted(map, g, p))
            continue;
        while (to_each[to] == 0)
            to++;
        to_each[to]--;
        grant_to(map, p, to, map->last_id);
    }
    return true;
}

/* Those present that are not drained: spares, or all but these. Returns whether there are any. */
static bool find_takers(const struct ps_cluster_map *map, const bool *present, bool are_spares,
                        bool takers[PS_CLUSTER_NODES_MAX])
{
    bool any = false;
    for (uint32_t i = 0; i < map->node_count; i++) {
        takers[i] = present[i] && !map->drained[i] && map->nodes[i].is_spare == are_spares;
        any |= takers[i];
    }
    return any;
}

bool ps_cluster_map_spread(struct ps_cluster_map *map, const bool present[PS_CLUSTER_NODES_MAX])
{
    bool takers[PS_CLUSTER_NODES_MAX];
    const struct granting all = {.from = PS_CLUSTER_NO_NODE, .present = takers};
    if (!find_takers(map, present, false, takers) || !grant_all(map, &all))
        return false;
    map->cut = 0;
    map->epoch++;
    return true;
}

bool ps_cluster_map_set_take_over(struct ps_cluster_map *map, uint32_t take_over_s)
{
    if (map->take_over_s == take_over_s || map->node_count == 0 || !comes_into_use(map, MR_CAN(TAKE_OVER)))
        return false;
    map->take_over_s = take_over_s;
    map->epoch++;
    return true;
}

/* Grants partitions to nodes that load them from the newest checkpoint. False: as above, or a node cannot
 * read that. */
static bool grant_restored(struct ps_cluster_map *map, const struct granting *g)
{
    const uint64_t last_id = map->last_id;
    if (ps_cluster_map_lacking(map, MR_CAN(TAKE_OVER)) != PS_CLUSTER_NO_NODE || !grant_all(map, g))
        return false;
    map->needs |= MR_CAN(TAKE_OVER);
    map->epoch++;
    for (uint32_t p = 0; p < map->partition_count; p++) {
        if (map->grant[p] <= last_id)
            continue;
        map->restored_in[p] = map->epoch;
        map->restored_from[p] = map->committed;
    }
    return true;
}

/* The same to spares alone, else to those that are not drained, else to all that are present: the first of
 * these that have room. False, and the map is as it was: none has. */
static bool grant_to_takers(struct ps_cluster_map *map, const struct granting *to)
{
    struct granting g = *to;
    bool spares[PS_CLUSTER_NODES_MAX], others[PS_CLUSTER_NODES_MAX];
    const bool *const candidates[] = {spares, others, to->present};
    (void)find_takers(map, to->present, true, spares);
    (void)find_takers(map, to->present, false, others);
    for (uint32_t i = 0; i < map->node_count; i++)
        others[i] |= spares[i];
    for (uint32_t i = 0; i < sizeof(candidates) / sizeof(*candidates); i++) {
        g.present = candidates[i];
        if (grant_restored(map, &g))
            return true;
    }
    return false;
}

bool ps_cluster_map_take_over(struct ps_cluster_map *map, uint32_t dead,
                              const bool present[PS_CLUSTER_NODES_MAX], const uint32_t *room)
{
    const struct granting all = {.from = dead, .present = present, .room = room};
    if (dead >= map->node_count || present[dead])
        return false;
    struct ps_cluster_map next = *map;
    forget_process(&next, dead);
    if (!grant_to_takers(&next, &all))
        return false;
    *map = next;
    return true;
}

bool ps_cluster_map_pass_on(struct ps_cluster_map *map, uint32_t from, const uint64_t *grants,
                            const bool present[PS_CLUSTER_NODES_MAX], const uint32_t *room)
{
    bool others[PS_CLUSTER_NODES_MAX] = {false};
    const struct granting failed = {.from = from, .grants = grants, .present = others, .room = room};
    if (from >= map->node_count || map->cut != 0)
        return false;
    for (uint32_t i = 0; i < map->node_count; i++)
        others[i] = present[i] && i != from;
    struct ps_cluster_map next = *map;
    for (uint32_t i = next.move_count; i-- > 0;) /* they wait until it has loaded them */
        if (next.moves[i].from == from)
            remove_move(&next, i);
    if (!grant_to_takers(&next, &failed))
        return false;
    *map = next;
    return true;
}

/* The first node that owns something and whose presence is this; PS_CLUSTER_NO_NODE: there is none. */
static uint32_t find_owner(const struct ps_cluster_map *map, const bool present[PS_CLUSTER_NODES_MAX],
                           bool is_present)
{
    for (uint32_t p = 0; p < map->partition_count; p++)
        if (map->owner[p] != PS_CLUSTER_NO_NODE && present[map->owner[p]] == is_present)
            return map->owner[p];
    return PS_CLUSTER_NO_NODE;
}

/* The first node whose partitions the others that are present have no room for; PS_CLUSTER_NO_NODE: they have
 * it for those of each. */
static uint32_t find_roomless(const struct ps_cluster_map *map, const bool present[PS_CLUSTER_NODES_MAX],
                              const uint32_t room[PS_CLUSTER_NODES_MAX])
{
    uint64_t all = 0;
    for (uint32_t i = 0; i < map->node_count; i++)
        all += present[i] ? room[i] : 0;
    for (uint32_t i = 0; i < map->node_count; i++)
        if (present[i] && ps_cluster_map_load(map, i) > all - room[i])
            return i;
    return PS_CLUSTER_NO_NODE;
}

enum mr_tolerance ps_cluster_map_tolerance(const struct ps_cluster_map *map,
                                           const bool present[PS_CLUSTER_NODES_MAX],
                                           const uint32_t room[PS_CLUSTER_NODES_MAX], uint32_t *node)
{
    uint32_t others = 0;
    for (uint32_t i = 0; i < map->node_count; i++)
        others += present[i];
    *node = ps_cluster_map_lacking(map, MR_CAN(TAKE_OVER));
    if (*node != PS_CLUSTER_NO_NODE)
        return MR_TOLERANCE_VERSION;
    if (map->take_over_s == 0 && map->replication < 2)
        return MR_TOLERANCE_OFF;
    *node = find_owner(map, present, false);
    if (*node != PS_CLUSTER_NO_NODE)
        return MR_TOLERANCE_AWAY;
    if (others <= 1)
        return MR_TOLERANCE_ALONE;
    if (map->replication > 1)
        return ps_copies_tolerance(map, present, node);
    if (map->committed == 0)
        return MR_TOLERANCE_UNSAVED;
    if (room == NULL)
        return MR_TOLERANCE_UNKNOWN;
    *node = find_roomless(map, present, room);
    return *node != PS_CLUSTER_NO_NODE ? MR_TOLERANCE_ROOM : MR_TOLERATES_ONE;
}

bool ps_cluster_map_moves(const struct ps_cluster_map *map, uint32_t first, uint32_t count)
{
    for (uint32_t i = 0; i < map->move_count; i++)
        if (first < map->moves[i].first + (uint32_t)map->moves[i].count &&
            map->moves[i].first < first + count)
            return true;
    return false;
}

bool ps_cluster_map_begin_move(struct ps_cluster_map *map, uint32_t first, uint32_t count, uint32_t to)
{
    if (map->cut != 0 || map->move_count == PS_CLUSTER_MOVES_MAX || count == 0 || to >= map->node_count ||
        first >= map->partition_count || count > map->partition_count - first ||
        ps_cluster_map_moves(map, first, count))
        return false;
    const uint16_t from = map->owner[first];
    if (from == PS_CLUSTER_NO_NODE || from == to)
        return false;
    for (uint32_t p = first; p < first + count; p++)
        if (map->owner[p] != from)
            return false;
    for (uint32_t p = first; p < first + count; p++)
        if (map->backup[p] == to)
            ps_cluster_map_end_copy(map, p);
    map->moves[map->move_count++] = (struct ps_cluster_move){
        .id = ++map->last_id,
        .first = (uint16_t)first,
        .count = (uint16_t)count,
        .from = from,
        .to = (uint16_t)to,
    };
    map->epoch++;
    return true;
}

/* The index of a move; move_count: there is none. */
static uint32_t move_index(const struct ps_cluster_map *map, uint64_t id)
{
    const struct ps_cluster_move *move = ps_cluster_map_move(map, id);
    return move == NULL ? map->move_count : (uint32_t)(move - map->moves);
}

bool ps_cluster_map_finish_move(struct ps_cluster_map *map, uint64_t id)
{
    const uint32_t at = move_index(map, id);
    if (at == map->move_count)
        return false;
    const struct ps_cluster_move *move = &map->moves[at];
    for (uint32_t p = move->first; p < (uint32_t)move->first + move->count; p++)
        grant_to(map, p, move->to, id);
    remove_move(map, at);
    map->epoch++;
    return true;
}

bool ps_cluster_map_cancel_move(struct ps_cluster_map *map, uint64_t id)
{
    const uint32_t at = move_index(map, id);
    if (at == map->move_count)
        return false;
    remove_move(map, at);
    map->epoch++;
    return true;
}

bool ps_cluster_map_begin_cut(struct ps_cluster_map *map, uint64_t step)
{
    if (map->cut != 0 || map->move_count > 0 || map->node_count == 0)
        return false;
    for (uint32_t p = 0; p < map->partition_count; p++)
        if (map->owner[p] == PS_CLUSTER_NO_NODE)
            return false;
    map->cut = map->last_cut = ++map->last_id;
    map->cut_step = step;
    map->epoch++;
    return true;
}

bool ps_cluster_map_commit_cut(struct ps_cluster_map *map, uint64_t cut)
{
    if (cut == 0 || map->cut != cut)
        return false;
    map->committed = cut;
    map->committed_step = map->cut_step;
    map->cut = 0;
    map->epoch++;
    return true;
}

bool ps_cluster_map_cancel_cut(struct ps_cluster_map *map, uint64_t cut)
{
    if (cut == 0 || map->cut != cut)
        return false;
    map->cut = 0;
    map->epoch++;
    return true;
}

static bool is_to_be_empty(const struct ps_cluster_map *map, const bool drained[PS_CLUSTER_NODES_MAX],
                           uint32_t node)
{
    return drained[node] || map->nodes[node].is_spare;
}

/* How many partitions each node should have, of those that the present ones own: its cores' share, rounded
 * down, and one more for the first nodes. An absent node should have what it has. */
static void find_shares(const struct ps_cluster_map *map, const uint32_t load[PS_CLUSTER_NODES_MAX],
                        const bool drained[PS_CLUSTER_NODES_MAX], const bool present[PS_CLUSTER_NODES_MAX],
                        uint32_t share[PS_CLUSTER_NODES_MAX])
{
    uint64_t cores = 0;
    uint32_t all = 0;
    for (uint32_t i = 0; i < map->node_count; i++) {
        cores += is_to_be_empty(map, drained, i) || !present[i] ? 0 : map->nodes[i].core_count;
        all += present[i] ? load[i] : 0;
    }
    uint32_t rest = all;
    for (uint32_t i = 0; i < map->node_count; i++) {
        const uint64_t own = is_to_be_empty(map, drained, i) ? 0 : map->nodes[i].core_count;
        share[i] = !present[i] ? load[i] : cores == 0 ? 0 : (uint32_t)(all * own / cores);
        rest -= present[i] ? share[i] : 0;
    }
    for (uint32_t i = 0; i < map->node_count && rest > 0 && cores > 0; i++) {
        if (is_to_be_empty(map, drained, i) || !present[i] || map->nodes[i].core_count == 0)
            continue;
        share[i]++;
        rest--;
    }
}

uint32_t ps_cluster_map_longest_run(const struct ps_cluster_map *map, uint32_t node, uint32_t count,
                                    uint32_t *first)
{
    uint32_t best = 0;
    uint32_t run = 0;
    for (uint32_t p = 0; p < map->partition_count && best < count; p++) {
        run = map->owner[p] == node && !ps_cluster_map_moves(map, p, 1) ? run + 1 : 0;
        if (run > best) {
            best = run;
            *first = p + 1 - run;
        }
    }
    return best;
}

bool ps_cluster_map_next_move(const struct ps_cluster_map *map, const bool drained[PS_CLUSTER_NODES_MAX],
                              const bool present[PS_CLUSTER_NODES_MAX], uint32_t *first, uint32_t *count,
                              uint32_t *to)
{
    uint32_t load[PS_CLUSTER_NODES_MAX];
    uint32_t share[PS_CLUSTER_NODES_MAX];
    uint32_t most = 0;
    uint32_t least = 0;
    int64_t most_over = 0;
    int64_t most_under = 0;
    for (uint32_t i = 0; i < map->node_count; i++)
        load[i] = ps_cluster_map_load(map, i);
    find_shares(map, load, drained, present, share);
    for (uint32_t i = 0; i < map->node_count; i++) {
        const int64_t over = (int64_t)load[i] - share[i];
        if (over > most_over) {
            most_over = over;
            most = i;
        }
        if (-over > most_under) {
            most_under = -over;
            least = i;
        }
    }
    if (most_over == 0 || most_under == 0)
        return false;
    *to = least;
    *count = ps_cluster_map_longest_run(map, most,
                                        (uint32_t)(most_over < most_under ? most_over : most_under), first);
    return *count > 0;
}
