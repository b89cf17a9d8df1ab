/* Frees what a core has of partitions that are no longer its own, a little at a time: rows, filters and
 * variables. Belongs to the core's thread. */
#ifndef PS_CLEANUP_H
#define PS_CLEANUP_H

#include <stdbool.h>
#include "ps/base/partition_set.h"

struct ps_core;
struct ps_node;

/* Begins to free the core's share of these partitions, but for those that it serves. */
void ps_cleanup_add(struct ps_core *core, const struct ps_partition_set *partitions);
/* Frees a little. True when there is more to do right now: while a cut is in progress nothing is freed. */
bool ps_cleanup_step(struct ps_core *core);
/* Is anything of these partitions left to be freed? */
bool ps_cleanup_has(const struct ps_core *core, const struct ps_partition_set *partitions);

/* The same on all cores of the node, which it waits for. The control thread. */
void ps_cleanup_add_everywhere(struct ps_node *node, const struct ps_partition_set *partitions);
bool ps_cleanup_has_anywhere(struct ps_node *node, const struct ps_partition_set *partitions);

#endif
