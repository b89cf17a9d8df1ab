/* Intrusive hash map from 64-bit ids, which need not be random, to the structs that have them. Insertion
 * never fails: without memory for more buckets, the chains get longer. For one thread. */
#ifndef MR_ID_MAP_H
#define MR_ID_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MR_ID_MAP_BUCKETS_MIN 16u

struct mr_id_node {
    struct mr_id_node *next;
    uint64_t id;
};

struct mr_id_map {
    struct mr_id_node **buckets;
    uint32_t bucket_count, count;
    struct mr_id_node *first_buckets[MR_ID_MAP_BUCKETS_MIN];
};

void mr_id_map_init(struct mr_id_map *map);
/* Frees the map's own memory, but not its nodes. */
void mr_id_map_destroy(struct mr_id_map *map);
/* Frees its nodes, too: they begin malloc()ed blocks. */
void mr_id_map_free(struct mr_id_map *map);
/* `node->id` must not be in the map. */
void mr_id_map_put(struct mr_id_map *map, struct mr_id_node *node);
struct mr_id_node *mr_id_map_get(const struct mr_id_map *map, uint64_t id); /* NULL: none */
/* The node must be in the map. */
void mr_id_map_remove(struct mr_id_map *map, struct mr_id_node *node);
/* Returns the node after `node`, in no particular order: the first after NULL, and NULL after the last. */
struct mr_id_node *mr_id_map_next(const struct mr_id_map *map, const struct mr_id_node *node);
/* Goes through all nodes. The body may remove and free `node`, but must not put anything in. */
// NOLINTBEGIN(bugprone-macro-parentheses): a name to declare cannot stand in any
#define MR_ID_MAP_EACH(node, map)                                                                            \
    for (struct mr_id_node *node = mr_id_map_next(map, NULL), *node##_next;                                  \
         node != NULL && (node##_next = mr_id_map_next(map, node), true); node = node##_next)
// NOLINTEND(bugprone-macro-parentheses)

#endif
