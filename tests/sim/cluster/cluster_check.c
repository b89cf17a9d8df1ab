#include <string.h>
#include "cluster_world.h"

/* The map says which partitions went on from a checkpoint, and from which, and calls no move so. */
static void check_restored(struct world *w, const struct ps_cluster_map *map, uint32_t p)
{
    const struct ps_cluster_map *before = &w->maps[map->epoch - 1];
    const struct ps_cluster_move *move = ps_cluster_map_move(before, map->grant[p]);
    const bool is_first = before->owner[p] == PS_CLUSTER_NO_NODE;
    const bool is_moved = move != NULL && p >= move->first && p < (uint32_t)move->first + move->count;
    const bool is_promoted = before->in_sync[p] && map->grant[p] == before->backup_grant[p];
    const bool is_taken = !is_first && !is_moved && !is_promoted && map->grant[p] != before->grant[p];
    if (map->restored_in[p] != (is_taken || is_promoted ? map->epoch : before->restored_in[p]) ||
        map->restored_from[p] != (is_taken ? before->committed : before->restored_from[p]))
        fail(w, "map %llu says of partition %u that it was restored in %llu from %llu",
             (unsigned long long)map->epoch, p, (unsigned long long)map->restored_in[p],
             (unsigned long long)map->restored_from[p]);
    if ((map->restored_in[p] != 0 || map->take_over_s != 0) && (map->needs & MR_CAN(TAKE_OVER)) == 0)
        fail(w, "map %llu has take-overs, and does not say so", (unsigned long long)map->epoch);
    w->counts.take_overs += is_taken;
}

void check_map(struct world *w, const struct ps_cluster_map *map)
{
    for (uint32_t p = 0; p < w->partition_count && map->epoch > 0; p++) {
        check_restored(w, map, p);
        if (map->owner[p] != PS_CLUSTER_NO_NODE && map->nodes[map->owner[p]].is_spare &&
            map->restored_in[p] == 0)
            fail(w, "map %llu gives partition %u, which no dead node had, to a spare",
                 (unsigned long long)map->epoch, p);
    }
    for (uint32_t p = 0; p < w->partition_count; p++) {
        if (map->owner[p] == PS_CLUSTER_NO_NODE)
            continue;
        const struct generation now = {.grant = map->grant[p],
                                       .start_id = map->nodes[map->owner[p]].start_id};
        const uint32_t count = w->generation_count[p];
        if (count == 0 || w->generations[p][count - 1].grant != now.grant ||
            w->generations[p][count - 1].start_id != now.start_id)
            w->generations[p][w->generation_count[p]++] = now;
    }
    const struct ps_cluster_map *before = &w->maps[map->epoch - 1];
    if (map->committed < before->committed || map->committed_step < before->committed_step)
        fail(w, "the newest checkpoint became %llu of step %llu", (unsigned long long)map->committed,
             (unsigned long long)map->committed_step);
    if (map->committed != before->committed && map->committed_step != before->cut_step)
        fail(w, "checkpoint %llu is said to be of step %llu", (unsigned long long)map->committed,
             (unsigned long long)map->committed_step);
    versions_check_map(w, map);
    copies_check_map(w, map);
    w->counts.cuts += map->committed != before->committed;
    w->counts.moves += map->move_count > before->move_count;
    w->counts.cancelled += map->move_count < before->move_count && map->last_id == before->last_id &&
                           memcmp(map->owner, before->owner, sizeof(map->owner)) == 0;
}

void check_execution(struct world *w, uint32_t node, uint32_t partition, uint64_t grant, uint64_t start_id)
{
    for (uint32_t g = 0; g < w->generation_count[partition]; g++) {
        if (w->generations[partition][g].grant != grant || w->generations[partition][g].start_id != start_id)
            continue;
        if (g < w->served[partition])
            fail(w, "node %u serves partition %u, which is another's and was served there", node, partition);
        if (g != w->served[partition])
            w->answered[partition] = 0;
        w->served[partition] = g;
        return;
    }
    fail(w, "node %u serves partition %u, which was never its own", node, partition);
}

void check_push(struct world *w, uint32_t partition, uint32_t length)
{
    w->answered[partition] = length;
}

void check_installed(struct world *w, uint32_t partition, uint64_t grant, uint64_t start_id, uint32_t length)
{
    const uint32_t before = w->served[partition]; /* the source, if it served the partition at all */
    if (before + 1 < w->generation_count[partition] && w->generations[partition][before + 1].grant == grant &&
        w->generations[partition][before + 1].start_id == start_id && length < w->answered[partition])
        fail(w, "partition %u has moved with %u of %u pushes", partition, length, w->answered[partition]);
}

static bool has_exactly(const struct world *w, const struct state *s, uint32_t steps)
{
    uint8_t seen[CLIENTS_MAX][STEPS_MAX + 1] = {{0}};
    if (s->length != steps * w->client_count)
        return false;
    for (uint32_t i = 0; i < s->length; i++)
        seen[s->log[i].client][s->log[i].step]++;
    for (uint32_t c = 0; c < w->client_count; c++)
        for (uint32_t step = 1; step <= steps; step++)
            if (seen[c][step] != 1)
                return false;
    return true;
}

void check_cut(struct world *w, const struct ps_cluster_map *map)
{
    for (uint32_t p = 0; p < w->partition_count; p++) {
        uint32_t found = 0;
        for (uint32_t n = 0; n < w->node_count; n++) {
            const struct part *part = &w->parts[n][map->cut % CUTS_MAX];
            if (part->cut != map->cut || !part->has[p])
                continue;
            found++;
            if (!has_exactly(w, &part->states[p], (uint32_t)map->cut_step))
                fail(w, "checkpoint %llu has partition %u not as of step %llu", (unsigned long long)map->cut,
                     p, (unsigned long long)map->cut_step);
        }
        if (found != 1)
            fail(w, "checkpoint %llu has partition %u %u times", (unsigned long long)map->cut, p, found);
    }
}

void check_end(struct world *w)
{
    const struct ps_cluster_map *map = &w->maps[w->coordinator.epoch];
    for (uint32_t c = 0; c < w->client_count; c++)
        if (!client_is_done(w, c)) {
            fail(w, "client %u hangs at step %u of %u", c, w->clients[c].step, w->steps);
            return;
        }
    if (map->move_count > 0)
        fail(w, "a move never ends");
    if (map->cut != 0)
        fail(w, "a checkpoint never ends");
    for (uint32_t i = 0; i < w->node_count; i++)
        if (w->nodes[i].runs && w->nodes[i].member.map.epoch != map->epoch)
            fail(w, "node %u does not learn the map", i);
    uint32_t without;
    if (!copies_are_made(w, &without))
        fail(w, "partition %u has no copy in sync", without);
    for (uint32_t p = 0; p < w->partition_count; p++) {
        uint32_t owner = NOBODY;
        for (uint32_t i = 0; i < w->node_count; i++)
            if (w->nodes[i].runs && w->nodes[i].start_id == map->nodes[map->owner[p]].start_id)
                owner = i;
        if (owner == NOBODY)
            fail(w, "partition %u has no owner", p);
        else if (!has_exactly(w, &w->nodes[owner].states[p], w->steps))
            fail(w, "partition %u has %u pushes for %u, or one twice", p, w->nodes[owner].states[p].length,
                 w->steps * w->client_count);
    }
    features_check_end(w);
}
