/* What a node's entry at the coordinator says of its work. It ends with the node's session. */
#ifndef PS_CLUSTER_REPORT_H
#define PS_CLUSTER_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"

#ifndef PS_CLUSTER_FAILED_BYTES /* the simulator copies reports all the time */
#define PS_CLUSTER_FAILED_BYTES 160u
#endif

/* The node's part of a checkpoint of the cluster. */
struct ps_cluster_cut_report {
    uint64_t id; /* of the cut; 0: it has none to report */
    enum mr_status status;
    uint64_t step;                /* that the part was cut at */
    uint64_t hash_high, hash_low; /* of its MANIFEST */
    char text[PS_CLUSTER_FAILED_BYTES];
};

/* How far the part has come that the node is writing, as of the last second or so. */
struct ps_cluster_part_progress {
    uint64_t id; /* of the cut; 0: it writes none */
    bool waits;  /* for trainers to reach the step of the cut */
    uint64_t bytes;
};

/* How far the migration has come that the node is the target of, as of the last second or so. */
struct ps_cluster_move_report {
    uint64_t id; /* 0: it is the target of none */
    bool is_ending;
    uint64_t rows, bytes, left_bytes, us;
};

/* How far its features have come. */
struct ps_cluster_features_report {
    /* It has brought them to this version of the cluster's catalogue. Until it has any, it serves nothing,
     * and nobody waits for it. */
    bool has_catalog;
    enum mr_status failed_status;
    uint64_t catalog;
    /* Those that came with this version cannot be created on it; 0: all could. */
    uint64_t failed;
    char failed_text[PS_CLUSTER_FAILED_BYTES];
};

/* What it can take over of nodes that have died. */
struct ps_cluster_room_report {
    bool is_known;
    uint64_t free_mib, used_mib; /* of memory.limit_mib, all cores together */
    uint64_t failed;             /* it could not load what it was given from this checkpoint; 0: it could */
    bool refuses_copies;         /* it lacked memory for copies that it was given, and gets none now */
    char failed_text[PS_CLUSTER_FAILED_BYTES];
};

struct ps_cluster_report {
    struct ps_cluster_features_report features;
    struct ps_cluster_cut_report cut;
    struct ps_cluster_part_progress part;
    bool wants_cut;       /* a client has asked this node for a checkpoint: no move begins before it */
    uint64_t trainer_cut; /* the cut that this node has begun because a trainer asked for it; 0: none */
    struct ps_cluster_move_report move;
    struct ps_cluster_room_report room;
};

#endif
