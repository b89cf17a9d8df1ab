/* A cluster's map as the JSON that the coordinator keeps, which operators may read there. Runs of partitions
 * with one owner and one grant are one entry, so a map of 256 nodes takes some 50 KB. Any thread. */
#ifndef PS_CLUSTER_MAP_JSON_H
#define PS_CLUSTER_MAP_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include "ps/cluster/cluster_map.h"
#include "ps/cluster/report.h"

/* The caller frees it; NULL: no memory. */
char *ps_cluster_map_json(const struct ps_cluster_map *map);

/* Reads a map. False if it is none, or one that this program cannot read: `text` says why, and *map has no
 * meaning. */
bool ps_cluster_map_parse(const char *json, size_t bytes, struct ps_cluster_map *map,
                          char text[PS_CLUSTER_TEXT_BYTES]);

/* A node by itself, without its session, as it registers, and what it says of its work. */
char *ps_cluster_node_json(const struct ps_cluster_node *node, const struct ps_cluster_report *report);
/* Reads what ps_cluster_node_json() made; its name and its session stand elsewhere and are set to nothing.
 * Errors as ps_cluster_map_parse(). */
bool ps_cluster_node_parse(const char *json, size_t bytes, struct ps_cluster_node *node,
                           struct ps_cluster_report *report, char text[PS_CLUSTER_TEXT_BYTES]);

#endif
