#include "trainer_client/call/shard_map.h"

#include <stdlib.h>
#include <string.h>
#include "trainer_client/call/call_hooks.h"
#include "trainer_client/call/client.h"

struct mrc_shard_map *mrc_shard_map_hold(struct mr_client *client)
{
    if (mrc_is_inherited(client))
        return NULL;
    pthread_mutex_lock(&client->lock);
    struct mrc_shard_map *map = client->shard_map;

    atomic_fetch_add_explicit(&map->holders, 1, memory_order_relaxed);
    pthread_mutex_unlock(&client->lock);
    return map;
}

void mrc_shard_map_release(struct mrc_shard_map *map)
{
    if (map != NULL && atomic_fetch_sub_explicit(&map->holders, 1, memory_order_acq_rel) == 1)
        free(map);
}

uint32_t mrc_shard_map_count(struct mr_client *client, uint32_t *generation)
{
    *generation = UINT32_MAX;
    if (mrc_is_inherited(client))
        return 1;
    pthread_mutex_lock(&client->lock);
    const uint32_t count = client->shard_map->count;

    *generation = client->shard_map->generation;
    pthread_mutex_unlock(&client->lock);
    return count;
}

/* Returns the node that owns a partition; without a map the first that has told its cores. */
static const struct mrc_node *node_of(const struct mr_client *client, uint32_t partition)
{
    if (client->cluster.epoch != 0)
        return client->nodes[client->cluster.owner[partition]];
    for (uint32_t n = 0; n < client->node_count; n++)
        if (client->nodes[n]->core_count > 0)
            return client->nodes[n];
    return client->nodes[0];
}

/* Lists the nodes that have partitions, in the order of the map. Returns how many they are. */
static uint32_t sort_nodes(const struct mr_client *client, struct mrc_node *sorted[MRC_NODES_MAX])
{
    uint32_t count = 0;
    for (uint32_t n = 0; n < client->node_count; n++) {
        struct mrc_node *node = client->nodes[n];
        uint32_t at = count;
        if (node->core_count == 0)
            continue;
        for (; at > 0 && sorted[at - 1]->place > node->place; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = node;
        count++;
    }
    return count;
}

static struct mrc_link *link_of(const struct mrc_shard_map *map, uint32_t partition)
{
    const struct mrc_shard *o = &map->shards[map->of_partition[partition]];
    return o->core < o->node->link_count ? o->node->links[o->core] : NULL;
}

/* What is kept for cores that have got or lost partitions belongs to others. What was taken over from a
 * checkpoint has been others' meanwhile, even if it is where it was. */
static void regroup(struct mr_client *client, const struct mrc_shard_map *before,
                    const struct mrc_shard_map *now)
{
    uint64_t *restored = client->cluster.restored;
    bool any_restored = false;
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++) {
        struct mrc_link *from = link_of(before, p), *to = link_of(now, p);
        const bool is_restored = (restored[p / 64] >> (p % 64) & 1) != 0;
        any_restored |= is_restored;
        if (from == to && !is_restored)
            continue;
        if (from != NULL)
            from->regrouped = true;
        if (to != NULL)
            to->regrouped = true;
    }
    if (any_restored)
        mrc_call_hooks.restored(client, restored);
    memset(restored, 0, sizeof(client->cluster.restored));
}

bool mrc_shard_map_renew(struct mr_client *client)
{
    struct mrc_node *nodes[MRC_NODES_MAX];
    uint32_t first[MRC_NODES_MAX] = {0}, count = 0;
    const uint32_t node_count = sort_nodes(client, nodes);
    for (uint32_t n = 0; n < node_count; n++)
        count += nodes[n]->core_count;
    struct mrc_shard_map *map = calloc(1, sizeof(*map) + count * sizeof(*map->shards));

    if (map == NULL)
        return false;
    atomic_init(&map->holders, 1);
    map->generation = client->shard_map == NULL ? 0 : client->shard_map->generation + 1;
    map->count = count;
    for (uint32_t n = 0, o = 0; n < node_count; n++) {
        first[nodes[n]->index] = o;
        for (uint32_t core = 0; core < nodes[n]->core_count; core++)
            map->shards[o++] = (struct mrc_shard){.node = nodes[n], .core = (uint16_t)core};
    }
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++) {
        const struct mrc_node *node = node_of(client, p);
        map->of_partition[p] = (uint16_t)(first[node->index] + node->partition_core[p]);
    }
    struct mrc_shard_map *before = client->shard_map;
    client->shard_map = map;
    if (before != NULL)
        regroup(client, before, map);
    mrc_shard_map_release(before);
    return true;
}

struct mrc_link *mrc_shard_map_link(const struct mr_client *client, uint32_t shard)
{
    if (client->shard_map == NULL || shard >= client->shard_map->count)
        return NULL;
    const struct mrc_shard *o = &client->shard_map->shards[shard];

    return o->core < o->node->link_count ? o->node->links[o->core] : NULL;
}

struct mrc_link *mrc_shard_map_control(const struct mr_client *client)
{
    for (uint32_t o = 0; client->shard_map != NULL && o < client->shard_map->count; o++) {
        const struct mrc_shard *owner = &client->shard_map->shards[o];
        if (owner->core == 0 && mrc_node_is_up(owner->node) && !owner->node->links[0]->held)
            return owner->node->links[0];
    }
    return mrc_shard_map_link(client, 0);
}

uint64_t mrc_shard_map_start_id(const struct mr_client *client)
{
    uint64_t start_id = 0;
    for (uint32_t o = 0; o < client->shard_map->count; o++)
        if (client->shard_map->shards[o].core == 0)
            start_id += client->shard_map->shards[o].node->start_id;
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        start_id += client->cluster.restored_in[p];
    return start_id;
}

uint32_t mrc_shard_map_generation(const struct mr_client *client)
{
    return client->shard_map == NULL ? 0 : client->shard_map->generation;
}
