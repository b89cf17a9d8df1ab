/* What a node that is a member of a cluster adds to the answer to NODE_INFO, and epochs in requests. */
#ifndef MR_CLUSTER_H
#define MR_CLUSTER_H

#include <assert.h>
#include <stdint.h>
#include "dataplane/wire/format/bodies.h"
#include "dataplane/wire/format/mr_tolerance.h"

#define MR_CLUSTER_NODES_MAX  256u
#define MR_CLUSTER_NAME_BYTES 64u
/* A map of so many nodes at most is told as versions without MR_CAPABILITY_MANY_NODES read it. */
#define MR_CLUSTER_FEW_NODES       32u
#define MR_CLUSTER_NO_NODE         0xffu   /* of few: nobody owns the partition yet */
#define MR_CLUSTER_NO_NODE_OF_MANY 0xffffu /* the same of more nodes */

/* The tensors after those of a node by itself: MR_BODY_CLUSTER, u8[n, sizeof(struct mr_cluster_node)],
 * u8[MR_PARTITION_COUNT], with more than MR_CLUSTER_FEW_NODES nodes u16[MR_PARTITION_COUNT]: the index of the
 * node that owns each partition, or MR_CLUSTER_NO_NODE, MR_CLUSTER_NO_NODE_OF_MANY. */
#define MR_CLUSTER_TENSORS 3u
/* And one more, to a client that has MR_CAN(TAKE_OVER), if any partition was taken over:
 * u32[MR_PARTITION_COUNT] the epoch in which each partition went last to an owner that loaded it from a
 * checkpoint of the cluster, 0: never. If it is another one than before, the pushes that are not durable are
 * to be sent again. */
#define MR_CLUSTER_RESTORED_TENSORS 1u
/* Behind that, which is there then, to a client that has MR_CAN(COPIES), if replication is 2:
 * MR_BODY_COPIES[n], about the copies of each node. */
#define MR_CLUSTER_COPIES_TENSORS 1u

enum mr_cluster_node_flag {
    MR_CLUSTER_NODE_PRESENT = 1u << 0, /* it has a session with the coordinator */
    MR_CLUSTER_NODE_SPARE = 1u << 1,   /* it owns nothing but what it takes over from dead nodes */
};

/* MR_CLUSTER_TOLERANCE: enum mr_tolerance, and from this bit on the index of the node that it is about. */
#define MR_TOLERANCE_NODE_SHIFT 8u

struct mr_cluster_node {
    char name[MR_CLUSTER_NAME_BYTES];    /* NUL-padded */
    char address[MR_CLUSTER_NAME_BYTES]; /* HOST:PORT of core 0; core i has that port plus i */
    uint32_t core_count;
    uint32_t flags;    /* enum mr_cluster_node_flag */
    uint64_t start_id; /* as in ACCEPT */
    char version[16];  /* of the process, for people; zeros: before 0.3.0 */
};
static_assert(sizeof(struct mr_cluster_node) == 160, "cluster node size");

/* Returns the epoch whose low 16 bits a request carries: of all such, the one nearest to an epoch that the
 * reader knows. */
static inline uint64_t mr_epoch_near(uint16_t low, uint64_t known)
{
    const int16_t distance = (int16_t)(uint16_t)(low - (uint16_t)known);
    return distance < 0 && (uint64_t)-distance > known ? low : known + (uint64_t)(int64_t)distance;
}

#endif
