/* The state of a node as a member of a cluster, and what the files of this folder offer each other. Three
 * threads meet here: the coordinator's (membership.c, leadership.c), the control thread (serving.c,
 * node_save.c, migrations.c), and main, which starts and stops it. */
#ifndef PS_NODE_CLUSTER_INTERNAL_H
#define PS_NODE_CLUSTER_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "ps/cluster/member.h"
#include "ps/cluster/migration_request.h"
#include "ps/cluster/zookeeper.h"
#include "ps/control/control_internal.h"
#include "ps/core/ownership.h"
#include "ps/move/copy_source.h"
#include "ps/move/migration_target.h"
#include "ps/move/take_over.h"
#include "ps/node_cluster/cluster_load.h"
#include "ps/node_cluster/cluster_save.h"
#include "ps/node_cluster/copies_pace.h"
#include "ps/node_cluster/node_cluster.h"

#define PS_NODE_CLUSTER_CREDENTIALS_BYTES 256u
#define PS_NODE_CLUSTER_REFUSED_MAX       64u /* processes whose refusal the log has */

/* What migrations need beside the member's table of them. */
struct ps_node_migrations {
    /* what targets have said last, by ids; a core's thread writes it */
    _Atomic uint64_t fence_asked, installed;
    /* with the lock of the node's cluster */
    struct ps_partition_set cleanup; /* partitions to be freed */
    bool has_cleanup;
    struct ps_cluster_move_report progress[PS_CLUSTER_NODES_MAX]; /* by the map's nodes, which are targets */
    struct ps_migration_request request;                          /* a client's */
    enum ps_migration_request_state request_state;
    uint64_t request_epoch; /* of the map that it was compared with last */
    char request_text[PS_CLUSTER_TEXT_BYTES];
    /* the control thread's own */
    struct ps_migration_target *target; /* of the migration to this node that is in progress; NULL: none */
    struct ps_command *command;         /* that is answered when the request has ended; NULL: none */
    uint64_t command_until_us;
    uint64_t reported, reported_us; /* the migration that the node's entry is about, and since when */
};

/* Partitions that this node loads beside what it serves. */
struct ps_node_take_over {
    /* with the lock of the node's cluster: of slots, the grants under which they could not be loaded */
    bool has_failed;
    uint64_t failed[MR_PARTITION_COUNT];
    /* the control thread's own */
    enum {
        PS_NODE_TAKES_NOTHING,
        PS_NODE_TAKES_CLEANS, /* what the cores still have of them is being freed */
        PS_NODE_TAKES_LOADS
    } state;
    struct ps_take_over *load;           /* NULL: none */
    _Atomic bool *stop;                  /* of its store; NULL: that is this machine's */
    uint64_t checkpoint;                 /* 0: they begin as the cluster did */
    uint64_t grants[MR_PARTITION_COUNT]; /* of slots, under which they are loaded; 0: they are not */
    uint32_t count;
    uint64_t retry_us;    /* none begins before: the last one has failed */
    uint64_t reported_us; /* when the entry was last compared with the memory that is free */
};

#define PS_NODE_COPIES_MAX PS_COPY_SOURCES_MAX

/* Copies of this node's partitions, and those that it keeps of others (copies.c): by their assignments'
 * numbers. */
struct ps_node_copies {
    /* with the lock of the node's cluster: what the map is to say of the backups of this node's partitions */
    uint32_t wish_count;
    struct ps_copies_wish {
        uint64_t id;
        bool is_in_sync;
    } wishes[PS_NODE_COPIES_MAX];
    /* assignments that are to end: this node, their backup, has lost what it had, or has no memory for it */
    uint32_t give_up_count;
    uint64_t give_ups[PS_NODE_COPIES_MAX];
    /* the control thread's own */
    bool waits;   /* something is to be looked at soon */
    uint64_t cut; /* of which cut_end are the ends */
    /* this node lacked memory for copies, so often in a row; it is no backup until then (mr_clock_us(), 0: it
     * may be one), or until so much is free */
    struct ps_copies_retry memory;
    uint64_t refuses_until;
    uint64_t refuses_below_mib; /* 0: what was given up is being freed */
    uint32_t feed_count, follower_count;
    struct ps_copies_feed {
        uint64_t id;
        struct ps_partition_set partitions;
        uint64_t epoch;                 /* of the map by which it was begun */
        bool is_begun, said;            /* on the cores; the log has why it cannot */
        bool waits;                     /* answers do, until the backup has what is applied (copies = sync) */
        bool said_behind, said_in_sync; /* since it last changed: the log has it */
        struct {
            uint64_t applied, moved_us; /* by the backup; since when it has not gone on */
        } progress[DP_CORES_MAX];
        uint64_t looked_us;           /* when it was looked at last */
        struct ps_copies_retry retry; /* it does not begin before */
        struct ps_copies_lag lag;
        uint64_t cut_end[DP_CORES_MAX];  /* of the streams, at the last part of a checkpoint */
        uint64_t wait_end[DP_CORES_MAX]; /* the same, since when answers wait */
        struct ps_copy_status *status;   /* by core */
    } feeds[PS_NODE_COPIES_MAX];
    struct ps_copies_follower {
        uint64_t id;
        struct ps_partition_set partitions;
        struct ps_cluster_node peer; /* the owner */
        enum {
            PS_FOLLOWER_CLEANS, /* what the cores still have of the partitions is being freed */
            PS_FOLLOWER_COPIES,
            PS_FOLLOWER_FOLLOWS
        } state;
        struct ps_migration_target *target; /* NULL: none */
        struct ps_copies_retry retry;
        bool ends; /* the map is to end the assignment */
    } followers[PS_NODE_COPIES_MAX];
};

struct ps_node_cluster {
    struct ps_node *node;
    char credentials[PS_NODE_CLUSTER_CREDENTIALS_BYTES];
    struct ps_zookeeper_options options;
    pthread_mutex_t lock; /* of what follows, up to `is_changed` */
    struct ps_zookeeper *zookeeper;
    struct ps_member member;
    bool present[PS_CLUSTER_NODES_MAX]; /* the map's nodes that have a session */
    struct absence {
        char name[PS_CLUSTER_NAME_BYTES];
        uint64_t since_us;            /* 0: it has one */
    } absences[PS_CLUSTER_NODES_MAX]; /* of the map's nodes */
    uint64_t session;                 /* that was registered last */
    uint64_t features_session; /* under which the node has the catalogue's features; 0: it lacks some */
    bool is_stopped;
    bool is_changed; /* the control thread has something to do */
    struct ps_cluster_report report;
    uint64_t wants; /* capabilities that are to be put into use */
    uint32_t
        said_session_ms; /* the shortest session, of which the log says that others are longer; 0: none */
    uint32_t outside;    /* nodes with a session that the map lacks */
    uint64_t tolerance;  /* MR_CLUSTER_TOLERANCE */
    uint32_t room[PS_CLUSTER_NODES_MAX];            /* of the nodes of the last view that was whole, */
    uint32_t room_for_copies[PS_CLUSTER_NODES_MAX]; /* and likewise */
    bool said_take_over, said_replication,
        said_copies;             /* the log has that nodes are configured differently */
    bool said_replication_waits; /* and that an older one stands in the way */
    uint64_t said_not_taken;     /* the dead process of which the log has why nobody takes over; 0: none */
    uint32_t refused_count;      /* processes that were not admitted, by this node as leader */
    uint64_t refused_start_ids[PS_NODE_CLUSTER_REFUSED_MAX];
    struct ps_cluster_save save;
    struct ps_node_migrations migrations;
    /* the control thread's own */
    uint64_t
        served[MR_PARTITION_COUNT]; /* of slots: the grant by which the cores serve them; 0: they do not */
    uint32_t since[MR_PARTITION_COUNT]; /* as in ps_owned, calls that wait left aside */
    struct ps_owned owned;
    struct ps_cluster_info *info; /* that the cores have */
    uint32_t said_served, said_nodes;
    bool said_superseded;
    struct ps_cluster_load load;
    struct ps_node_take_over take_over;
    struct ps_node_copies copies;
};

/* Has the coordinator's thread put c->report into the node's entry (node_cluster.c). Caller holds c->lock. */
void ps_node_cluster_report(struct ps_node_cluster *c);

/* ---- membership.c ---- */

extern const struct ps_member_ops ps_node_cluster_member_ops;

/* Lets calls in for as long as the member's lease lasts, or for no time. Caller holds c->lock. */
void ps_node_cluster_renew_lease(struct ps_node_cluster *c);
/* Wakes the control thread, which is to look at the member. Caller holds c->lock. */
void ps_node_cluster_note_change(struct ps_node_cluster *c);

/* ---- leadership.c ---- */

/* How many partitions each node of the map can take over, and be the backup of, by what their entries say. */
void ps_node_cluster_find_room(struct ps_node_cluster *c, const struct ps_zookeeper_view *view);
/* Whether c->room is of this view. If not, all entries are read in the next round. With the lock. */
bool ps_node_cluster_knows_room(struct ps_node_cluster *c, const struct ps_zookeeper_view *view);
/* Proposes the next change of the map: the leader's, and what any member may propose (a capability that comes
 * into use, a snapshot, a move that a client has asked for). Coordinator's thread; caller holds c->lock. */
void ps_node_cluster_propose(struct ps_node_cluster *c, const struct ps_zookeeper_view *view);

/* ---- the control thread: struct ps_control_cluster_ops ---- */

/* serving.c: loads what the node owns by the map, and tells the cores what they serve. */
void ps_node_cluster_apply_map(struct ps_node_cluster *c);

/* Has the node something that it serves, so that what comes to it is loaded beside that? */
bool ps_node_cluster_loads_beside(struct ps_node_cluster *c);

/* cluster_take_over.c: does that. */
void ps_node_cluster_poll_take_over(struct ps_node_cluster *c);
/* Must it be polled although nobody wakes the thread? */
bool ps_node_cluster_is_taking_over(struct ps_node_cluster *c);
/* After the control thread has ended. */
void ps_node_cluster_end_take_over(struct ps_node_cluster *c);

/* copies.c: begins, follows and ends copies, and has the owner say which are in sync. */
void ps_node_cluster_poll_copies(struct ps_node_cluster *c);
/* Takes in what this node has kept of partitions that are its own now: before the cores are told. */
void ps_node_cluster_promote_copies(struct ps_node_cluster *c);
/* Does this node keep copies of some of these partitions? Then they are freed when it looks at its copies by
 * the newest map: whatever else brings them here begins after that. The control thread. */
bool ps_node_cluster_copies_keep(const struct ps_node_cluster *c, const struct ps_partition_set *partitions);
/* Has each backup that is in sync, or may be, what this node's part of the cut has? */
bool ps_node_cluster_copies_have(struct ps_node_cluster *c, uint64_t cut);
/* After the control thread has ended. */
void ps_node_cluster_end_copies(struct ps_node_cluster *c);
/* The coordinator's thread; caller holds c->lock: the map that says which backups are in sync. */
void ps_node_cluster_propose_copies(struct ps_node_cluster *c, const struct ps_zookeeper_view *view);

/* node_save.c: begins, follows and ends this node's part of the cluster's checkpoint. */
void ps_node_cluster_poll_save(struct ps_node_cluster *c);
enum mr_status ps_node_cluster_save(void *context, const struct ps_command *command, uint64_t *number,
                                    char *text);

/* migrations.c: does the work of the migrations of this node, state by state. */
void ps_node_cluster_poll_migrations(struct ps_node_cluster *c);
/* Takes what a target has asked for into the source's state. Caller holds c->lock. */
void ps_node_cluster_advance_source(struct ps_node_cluster *c);
/* Must the migrations be polled although nobody wakes the thread? */
bool ps_node_cluster_is_migrating(struct ps_node_cluster *c);
/* Do the cores have anything of a migration? A snapshot waits for its end. Caller holds c->lock. */
bool ps_node_cluster_has_begun_migrations(const struct ps_node_cluster *c);
/* A client's request, which ps_node_cluster_answer_move() answers when it has ended. */
bool ps_node_cluster_move(void *context, struct ps_command *command);
void ps_node_cluster_answer_move(struct ps_node_cluster *c);
void ps_node_cluster_show_moves(void *context, struct ps_command *command);

/* ---- migrations.c, the coordinator's thread; caller holds c->lock ---- */

/* As in struct ps_member_ops. */
void ps_node_cluster_migration_changed(void *context, const struct ps_migration *migration);
bool ps_node_cluster_install(void *context, uint32_t slot, uint64_t migration);
void ps_node_cluster_cleanup(void *context, uint32_t slot);
/* Notes what the nodes say of the migrations that they are the targets of. */
void ps_node_cluster_note_progress(struct ps_node_cluster *c, const struct ps_zookeeper_view *view);
/* The map that cancels what has failed, or has what a client asks for. False: there is nothing to be
 * proposed. */
bool ps_node_cluster_next_migrations(struct ps_node_cluster *c, const struct ps_zookeeper_view *view,
                                     struct ps_cluster_map *next);

/* node_cluster.c: has the coordinator's thread read what all nodes say. Any thread. */
void ps_node_cluster_wake(void *context);

#endif
