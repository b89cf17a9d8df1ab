#include "dataplane/rpc/base/id_map.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static uint32_t bucket_of(const struct mr_id_map *map, uint64_t id)
{
    uint64_t mixed = (id ^ (id >> 32)) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(mixed >> 32) & (map->bucket_count - 1);
}

void mr_id_map_init(struct mr_id_map *map)
{
    memset(map, 0, sizeof(*map));
    map->buckets = map->first_buckets;
    map->bucket_count = MR_ID_MAP_BUCKETS_MIN;
}

void mr_id_map_destroy(struct mr_id_map *map)
{
    if (map->buckets != map->first_buckets)
        free(map->buckets);
    mr_id_map_init(map);
}

static void link_in(struct mr_id_map *map, struct mr_id_node *node)
{
    struct mr_id_node **bucket = &map->buckets[bucket_of(map, node->id)];
    node->next = *bucket;
    *bucket = node;
}

static void id_map_grow(struct mr_id_map *map)
{
    uint32_t count = map->bucket_count;
    struct mr_id_node **old = map->buckets;
    struct mr_id_node **buckets = calloc((size_t)count * 4, sizeof(struct mr_id_node *));
    if (buckets == NULL)
        return;
    map->buckets = buckets;
    map->bucket_count = count * 4;
    for (uint32_t i = 0; i < count; i++) {
        while (old[i] != NULL) {
            struct mr_id_node *node = old[i];
            old[i] = node->next;
            link_in(map, node);
        }
    }
    if (old != map->first_buckets)
        free(old);
}

void mr_id_map_put(struct mr_id_map *map, struct mr_id_node *node)
{
    assert(mr_id_map_get(map, node->id) == NULL);
    if (map->count >= map->bucket_count && map->bucket_count < (UINT32_C(1) << 28))
        id_map_grow(map);
    link_in(map, node);
    map->count++;
}

struct mr_id_node *mr_id_map_get(const struct mr_id_map *map, uint64_t id)
{
    struct mr_id_node *node = map->buckets[bucket_of(map, id)];
    while (node != NULL && node->id != id)
        node = node->next;
    return node;
}

void mr_id_map_remove(struct mr_id_map *map, struct mr_id_node *node)
{
    struct mr_id_node **at = &map->buckets[bucket_of(map, node->id)];
    while (*at != node) {
        assert(*at != NULL);
        at = &(*at)->next;
    }
    *at = node->next;
    node->next = NULL;
    map->count--;
}

struct mr_id_node *mr_id_map_next(const struct mr_id_map *map, const struct mr_id_node *node)
{
    if (node != NULL && node->next != NULL)
        return node->next;
    for (uint32_t i = node == NULL ? 0 : bucket_of(map, node->id) + 1; i < map->bucket_count; i++)
        if (map->buckets[i] != NULL)
            return map->buckets[i];
    return NULL;
}

void mr_id_map_free(struct mr_id_map *map)
{
    MR_ID_MAP_EACH(node, map)
        free(node);
    mr_id_map_destroy(map);
}
