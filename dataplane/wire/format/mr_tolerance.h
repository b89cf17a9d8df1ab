/* Whether a cluster would serve on if one more node died now, and if not, why: what its leader works out, a
 * member tells in NODE_INFO, and tools and clients show. */
#ifndef MR_TOLERANCE_H
#define MR_TOLERANCE_H

enum mr_tolerance {
    MR_TOLERANCE_UNKNOWN, /* the node that answers does not say: it is older, has no map, or does not lead */
    MR_TOLERATES_ONE,     /* whichever dies, the others serve on what it owns */
    MR_TOLERANCE_OFF,     /* cluster.take_over_s is 0: its partitions wait for it */
    MR_TOLERANCE_ALONE,   /* no other node is there */
    MR_TOLERANCE_AWAY,    /* a node that owns something is away already */
    MR_TOLERANCE_UNSAVED, /* the cluster has no checkpoint */
    MR_TOLERANCE_ROOM,    /* the others have no room for what a node owns: raise memory.limit_mib */
    MR_TOLERANCE_VERSION, /* a node has a version that cannot take over */
    MR_TOLERANCE_BACKUP,  /* replication is 2, and what a node owns has no backup */
    MR_TOLERANCE_SYNC,    /* replication is 2, and a backup of what a node owns lacks some of it */
    MR_TOLERANCE_COUNT
};

#endif
