/* Who wrote the records of a checkpoint: the cores of a node, or of the nodes of a cluster, and which
 * partitions each of them had. Writers are numbered over all nodes, a node's cores one after the other. Pure.
 */
#ifndef PS_SAVED_WRITERS_H
#define PS_SAVED_WRITERS_H

#include <stdbool.h>
#include <stdint.h>
#include "ps/base/partition_set.h"
#include "ps/checkpoint/checkpoint_chain.h"

#define PS_SAVED_NO_PART UINT32_MAX

struct ps_saved_writers {
    uint32_t count;
    uint32_t part_count;
    uint32_t first[PS_CLUSTER_PARTS_MAX + 1];  /* of each node, and after the last one */
    uint16_t of_partition[MR_PARTITION_COUNT]; /* who had it */
    bool *counts;                              /* [count]: it had partitions that are restored here */
    struct ps_partition_set *partitions;       /* [count]: all that it had */
    /* The node has the partitions and the cores that this part had: each core takes its own record.
     * PS_SAVED_NO_PART: no part is like it. */
    uint32_t own_part;
};

/* Of a node's checkpoint, written by `cores` cores. To be freed; NULL: no memory. */
struct ps_saved_writers *ps_saved_writers_of_node(uint32_t cores, uint32_t cores_here);
/* owns: the partitions that are restored here; NULL: all. own_part: the part that had just these, or
 * PS_SAVED_NO_PART. */
struct ps_saved_writers *ps_saved_writers_of_chain(const struct ps_chain *chain, const bool *owns,
                                                   uint32_t own_part, uint32_t cores_here);
/* NULL is fine. */
void ps_saved_writers_free(struct ps_saved_writers *w);

/* The writer of a record of core `core`, of `cores` in that part. w->count: there is none. */
uint32_t ps_saved_writer(const struct ps_saved_writers *w, uint32_t part, uint32_t core, uint32_t cores);
/* The writer whose record core `core` of this node takes as it is; w->count: records are merged. */
uint32_t ps_saved_writer_own(const struct ps_saved_writers *w, uint32_t core);

#endif
