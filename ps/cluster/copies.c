#include "ps/cluster/copies.h"

#include <stdio.h>
#include <string.h>

void ps_copies_host(const struct ps_cluster_node *node, char host[PS_CLUSTER_NAME_BYTES])
{
    const char *port = strrchr(node->address, ':');
    const size_t bytes = port == NULL ? strlen(node->address) : (size_t)(port - node->address);
    if (node->host[0] != '\0')
        (void)snprintf(host, PS_CLUSTER_NAME_BYTES, "%s", node->host);
    else
        (void)snprintf(host, PS_CLUSTER_NAME_BYTES, "%.*s", (int)bytes, node->address);
}

static bool is_same_host(const struct ps_cluster_map *map, uint32_t a, uint32_t b)
{
    char of_a[PS_CLUSTER_NAME_BYTES], of_b[PS_CLUSTER_NAME_BYTES];
    ps_copies_host(&map->nodes[a], of_a);
    ps_copies_host(&map->nodes[b], of_b);
    return strcmp(of_a, of_b) == 0;
}

uint32_t ps_copies_held(const struct ps_cluster_map *map, uint32_t node)
{
    uint32_t count = 0;
    for (uint32_t p = 0; p < map->partition_count; p++)
        count += map->backup[p] == node;
    return count;
}

uint32_t ps_copies_lacking(const struct ps_cluster_map *map, uint32_t node)
{
    uint32_t count = 0;
    for (uint32_t p = 0; p < map->partition_count && map->replication > 1; p++)
        count += map->owner[p] == node && !map->in_sync[p];
    return count;
}

bool ps_copies_is_kept(const struct ps_cluster_map *map, uint32_t owner,
                       const bool backups[PS_CLUSTER_NODES_MAX])
{
    for (uint32_t p = 0; p < map->partition_count; p++)
        if (map->owner[p] == owner && map->in_sync[p] && backups[map->backup[p]])
            return true;
    return false;
}

bool ps_copies_set_replication(struct ps_cluster_map *map, uint32_t replication)
{
    const uint64_t needs = MR_CAN(TAKE_OVER) | MR_CAN(COPIES);
    if (map->replication == replication || map->node_count == 0 ||
        ps_cluster_map_lacking(map, needs) != PS_CLUSTER_NO_NODE)
        return false;
    map->needs |= needs;
    map->replication = replication;
    map->answers_wait = false;
    for (uint32_t p = 0; p < map->partition_count && replication < 2; p++)
        ps_cluster_map_end_copy(map, p);
    map->epoch++;
    return true;
}

bool ps_copies_set_answers(struct ps_cluster_map *map, bool answers_wait)
{
    if (map->replication < 2 || map->answers_wait == answers_wait)
        return false;
    map->answers_wait = answers_wait;
    map->epoch++;
    return true;
}

/* ---- who follows whom ---- */

static bool may_follow(const struct ps_cluster_map *map, uint32_t owner, uint32_t node, const bool *present)
{
    return node != owner && present[node] && !map->drained[node] && map->nodes[node].core_count > 0 &&
           !is_same_host(map, owner, node);
}

static bool lacks_backup(const struct ps_cluster_map *map, uint32_t owner, uint32_t p)
{
    return map->owner[p] == owner && map->backup[p] == PS_CLUSTER_NO_NODE && !ps_cluster_map_moves(map, p, 1);
}

/* The backups of one owner's partitions. */
struct followers {
    uint32_t count;
    struct {
        uint32_t node;
        uint32_t has, gets; /* of the owner's partitions */
    } at[PS_COPIES_BACKUPS_MAX];
};

static bool is_follower(const struct followers *f, uint32_t node)
{
    for (uint32_t i = 0; i < f->count; i++)
        if (f->at[i].node == node)
            return true;
    return false;
}

static void add_follower(struct followers *f, uint32_t node, uint32_t has)
{
    f->at[f->count].node = node;
    f->at[f->count].has = has;
    f->at[f->count++].gets = 0;
}

/* Those that the owner has, the one with most of its partitions first. */
static void find_followers(const struct ps_cluster_map *map, uint32_t owner, const bool *present,
                           struct followers *f)
{
    uint32_t has[PS_CLUSTER_NODES_MAX] = {0};
    f->count = 0;
    for (uint32_t p = 0; p < map->partition_count; p++)
        if (map->owner[p] == owner && map->backup[p] != PS_CLUSTER_NO_NODE)
            has[map->backup[p]]++;
    for (uint32_t most = 1; most != 0 && f->count < PS_COPIES_BACKUPS_MAX;) {
        uint32_t node = 0;
        most = 0;
        for (uint32_t i = 0; i < map->node_count; i++)
            if (has[i] > most && !is_follower(f, i) && may_follow(map, owner, i, present)) {
                most = has[i];
                node = i;
            }
        if (most > 0)
            add_follower(f, node, most);
    }
}

/* And more, with the fewest partitions for their cores, as far as there are any with room. */
static void choose_followers(const struct ps_cluster_map *map, uint32_t owner, const bool *present,
                             const uint32_t *room, struct followers *f)
{
    uint32_t load[PS_CLUSTER_NODES_MAX];
    for (uint32_t i = 0; i < map->node_count; i++)
        load[i] = ps_cluster_map_load(map, i) + ps_copies_held(map, i);
    while (f->count < PS_COPIES_BACKUPS_MAX) {
        uint32_t best = PS_CLUSTER_NO_NODE;
        for (uint32_t i = 0; i < map->node_count; i++) {
            if (room[i] == 0 || is_follower(f, i) || !may_follow(map, owner, i, present))
                continue;
            const bool is_first = best == PS_CLUSTER_NO_NODE;
            if (is_first || map->nodes[best].is_spare > map->nodes[i].is_spare ||
                (map->nodes[best].is_spare == map->nodes[i].is_spare &&
                 (uint64_t)load[i] * map->nodes[best].core_count <
                     (uint64_t)load[best] * map->nodes[i].core_count))
                best = i;
        }
        if (best == PS_CLUSTER_NO_NODE)
            return;
        add_follower(f, best, 0);
    }
}

/* Decides how many of the owner's partitions each gets, as equally as their cores are. Returns the sum. */
static uint32_t share_out(const struct ps_cluster_map *map, struct followers *f, uint32_t count,
                          uint32_t *room)
{
    for (uint32_t given = 0; given < count; given++) {
        uint32_t best = f->count;
        for (uint32_t i = 0; i < f->count; i++)
            if (room[f->at[i].node] > 0 &&
                (best == f->count || (uint64_t)f->at[i].has * map->nodes[f->at[best].node].core_count <
                                         (uint64_t)f->at[best].has * map->nodes[f->at[i].node].core_count))
                best = i;
        if (best == f->count)
            return given;
        f->at[best].has++;
        f->at[best].gets++;
        room[f->at[best].node]--;
    }
    return count;
}

static bool assign_of_owner(struct ps_cluster_map *map, uint32_t owner, const bool *present, uint32_t *room)
{
    struct followers f;
    uint32_t count = 0;
    for (uint32_t p = 0; p < map->partition_count; p++)
        count += lacks_backup(map, owner, p);
    if (count == 0)
        return false;
    find_followers(map, owner, present, &f);
    choose_followers(map, owner, present, room, &f);
    uint32_t left = share_out(map, &f, count, room);
    const bool any = left > 0;
    uint64_t grants[PS_COPIES_BACKUPS_MAX] = {0};
    for (uint32_t i = 0; i < f.count; i++)
        if (f.at[i].gets > 0)
            grants[i] = ++map->last_id;
    for (uint32_t p = 0, i = 0; p < map->partition_count && left > 0; p++) {
        if (!lacks_backup(map, owner, p))
            continue;
        while (f.at[i].gets == 0)
            i++;
        map->backup[p] = (uint16_t)f.at[i].node;
        map->backup_grant[p] = grants[i];
        f.at[i].gets--;
        left--;
    }
    return any;
}

bool ps_copies_assign(struct ps_cluster_map *map, const bool present[PS_CLUSTER_NODES_MAX],
                      const uint32_t *room)
{
    uint32_t left[PS_CLUSTER_NODES_MAX] = {0};
    bool any = false;
    for (uint32_t i = 0; i < map->node_count; i++)
        left[i] = room == NULL ? map->partition_count : room[i];
    for (uint32_t p = 0; p < map->partition_count && room != NULL; p++)
        if (map->backup[p] != PS_CLUSTER_NO_NODE && !map->in_sync[p] && left[map->backup[p]] > 0)
            left[map->backup[p]]--;
    for (uint32_t owner = 0; owner < map->node_count && map->replication > 1; owner++)
        any |= present[owner] && assign_of_owner(map, owner, present, left);
    map->epoch += any;
    return any;
}

bool ps_copies_set_sync(struct ps_cluster_map *map, uint32_t owner, const uint64_t *grants, bool is_in_sync)
{
    bool any = false;
    for (uint32_t p = 0; p < map->partition_count; p++) {
        if (grants[p] == 0 || grants[p] != map->backup_grant[p] || map->owner[p] != owner ||
            map->in_sync[p] == is_in_sync)
            continue;
        map->in_sync[p] = is_in_sync;
        any = true;
    }
    map->epoch += any;
    return any;
}

bool ps_copies_give_up(struct ps_cluster_map *map, uint32_t backup, const uint64_t *grants)
{
    bool any = false;
    for (uint32_t p = 0; p < map->partition_count; p++) {
        if (grants[p] == 0 || grants[p] != map->backup_grant[p] || map->backup[p] != backup)
            continue;
        ps_cluster_map_end_copy(map, p);
        any = true;
    }
    map->epoch += any;
    return any;
}

bool ps_copies_drop(struct ps_cluster_map *map, uint32_t backup, const bool owners[PS_CLUSTER_NODES_MAX])
{
    bool any = false;
    for (uint32_t p = 0; p < map->partition_count; p++) {
        if (map->backup[p] != backup || map->owner[p] == PS_CLUSTER_NO_NODE || !owners[map->owner[p]])
            continue;
        ps_cluster_map_end_copy(map, p);
        any = true;
    }
    map->epoch += any;
    return any;
}

bool ps_copies_leave(struct ps_cluster_map *map, const bool present[PS_CLUSTER_NODES_MAX],
                     const uint32_t *room)
{
    uint32_t count = 0;
    for (uint32_t p = 0; p < map->partition_count; p++)
        if (map->backup[p] != PS_CLUSTER_NO_NODE && !map->in_sync[p])
            return false;
    for (uint32_t p = 0; p < map->partition_count && count < PS_COPIES_LEAVE_MAX; p++) {
        if (map->backup[p] == PS_CLUSTER_NO_NODE || !map->drained[map->backup[p]] || !present[map->owner[p]])
            continue;
        bool has_other = false;
        for (uint32_t i = 0; i < map->node_count && !has_other; i++)
            has_other = (room == NULL || room[i] > 0) && may_follow(map, map->owner[p], i, present);
        if (has_other)
            ps_cluster_map_end_copy(map, p);
        count += has_other;
    }
    map->epoch += count > 0;
    return count > 0;
}

bool ps_copies_promote(struct ps_cluster_map *map, uint32_t dead, const bool there[PS_CLUSTER_NODES_MAX])
{
    if (dead >= map->node_count || there[dead] || !ps_copies_is_kept(map, dead, there))
        return false;
    ps_cluster_map_end_work(map, dead);
    map->epoch++;
    for (uint32_t p = 0; p < map->partition_count; p++) {
        if (map->owner[p] != dead || !map->in_sync[p] || !there[map->backup[p]])
            continue;
        map->owner[p] = map->backup[p];
        map->grant[p] = map->backup_grant[p];
        map->restored_in[p] = map->epoch;
        ps_cluster_map_end_copy(map, p);
    }
    return true;
}

/* ---- whether the cluster could lose a node ---- */

enum mr_tolerance ps_copies_tolerance(const struct ps_cluster_map *map,
                                      const bool present[PS_CLUSTER_NODES_MAX], uint32_t *node)
{
    enum mr_tolerance tolerance = MR_TOLERATES_ONE;
    for (uint32_t p = 0; p < map->partition_count && tolerance != MR_TOLERANCE_BACKUP; p++) {
        const uint32_t owner = map->owner[p], backup = map->backup[p];
        const bool has_backup = backup != PS_CLUSTER_NO_NODE && present[backup];
        if (owner == PS_CLUSTER_NO_NODE || (has_backup && map->in_sync[p]))
            continue;
        if (!has_backup || tolerance == MR_TOLERATES_ONE)
            *node = owner;
        tolerance = has_backup ? MR_TOLERANCE_SYNC : MR_TOLERANCE_BACKUP;
    }
    return tolerance;
}
