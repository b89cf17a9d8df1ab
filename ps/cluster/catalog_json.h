/* A cluster's catalogue as the JSON that the coordinator keeps. Each feature is its number, its name, and the
 * rest of its descriptor as it travels (mr_feature.h), in hexadecimal digits. That is less than 500 bytes, so
 * PS_CLUSTER_FEATURES_MAX of them stay below 1 MB, ZooKeeper's limit of a znode. Any thread. */
#ifndef PS_CLUSTER_CATALOG_JSON_H
#define PS_CLUSTER_CATALOG_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include "ps/cluster/catalog.h"
#include "ps/cluster/cluster_map.h"

/* The caller frees it; NULL: no memory. */
char *ps_cluster_catalog_json(const struct ps_cluster_catalog *catalog);

/* Reads a catalogue. False if it is none, or one that this program cannot read: `text` says why, and
 * *catalog has no meaning. */
bool ps_cluster_catalog_parse(const char *json, size_t bytes, struct ps_cluster_catalog *catalog,
                              char text[PS_CLUSTER_TEXT_BYTES]);

#endif
