/* What a node does as a member of a cluster: which partitions it may serve now, and its part in moves and
 * in checkpoints of the whole. It knows the map as it last heard of it, which may be old; what it does is
 * safe all the same, because nobody else becomes the owner of its partitions before
 * - it has agreed to: a migration ends by a change of the map that only the source proposes, after
 *   it has stopped to serve them; or
 * - its lease has ended and it has no session. The coordinator declares a session dead `session_us` after
 *   it last heard of it. The node serves for half as long, counted from the moment at which it *sent* the
 *   last request that was answered, by a clock that goes on while the machine sleeps. So clocks may run
 *   differently by a factor of two.
 *
 * A state machine without input or output: events go in by functions, what is to be done goes out through
 * struct ps_member_ops. One thread (the control thread), but for ps_member_serves(). */
#ifndef PS_CLUSTER_MEMBER_H
#define PS_CLUSTER_MEMBER_H

#include <stdbool.h>
#include <stdint.h>
#include "ps/cluster/migration.h"

/* All return at once, and call nothing of the member's. */
struct ps_member_ops {
    /* Writes the map if the coordinator's is still the one before it. Answered by ps_member_map_written(). */
    void (*write_map)(void *context, const struct ps_cluster_map *next);
    /* Loads a partition from a checkpoint of the cluster, 0: it is empty. Answered by ps_member_loaded(). */
    void (*load)(void *context, uint32_t partition, uint64_t checkpoint, uint64_t grant);
    /* A migration has been begun, or is in another state. A source copies rows to the target from `copying`
     * on, in rounds, and sends the rest from `fencing` on, when nothing changes any more. */
    void (*migration_changed)(void *context, const struct ps_migration *migration);
    /* Installs what came by a migration as a partition's state; false: not everything is here. */
    bool (*install)(void *context, uint32_t partition, uint64_t migration);
    /* Frees a partition's state. */
    void (*cleanup)(void *context, uint32_t partition);
    /* Writes this node's part of a checkpoint. */
    void (*cut)(void *context, uint64_t cut, uint64_t step);
    void (*cancel_cut)(void *context, uint64_t cut);
};

#define PS_MEMBER_MIGRATIONS_MAX (2 * PS_CLUSTER_MOVES_MAX) /* those of the map, and some that have ended */

struct ps_member {
    const struct ps_member_ops *ops;
    void *context;
    struct ps_cluster_node self;
    uint64_t session_us;   /* as the coordinator has granted it */
    uint64_t fence_us_max; /* a migration is given up when its calls wait for longer */
    struct ps_cluster_map map;
    uint64_t session;   /* with the coordinator; 0: none that it knows of */
    uint32_t index;     /* of the node in map; PS_CLUSTER_NO_NODE: this process is not in it */
    bool is_superseded; /* another process has the name: this one serves nothing any more */
    bool writes;        /* a change of the map is on its way */
    bool asks;          /* the map must be read, because a change's fate is not known */
    uint64_t lease_end_us;
    uint64_t cut;                                /* that was begun; 0: none */
    uint64_t have[PS_CLUSTER_PARTITIONS_MAX];    /* the grant under which its state is in memory; 0: none */
    uint64_t loading[PS_CLUSTER_PARTITIONS_MAX]; /* the grant for which it is being loaded */
    bool fenced[PS_CLUSTER_PARTITIONS_MAX];      /* a migration is ending: its calls wait */
    /* The epoch of the last change that it has made by which the partition's backup is in sync: until it
     * knows a map as new, that may be so. */
    uint64_t in_sync_from[PS_CLUSTER_PARTITIONS_MAX];
    uint32_t migration_count;
    struct ps_migration migrations[PS_MEMBER_MIGRATIONS_MAX]; /* in no order */
};

enum ps_member_answer {
    PS_MEMBER_SERVES,
    PS_MEMBER_WAIT,       /* later, or elsewhere if the map changes */
    PS_MEMBER_OTHER_OWNER /* the caller's map is not this node's */
};

void ps_member_init(struct ps_member *m, const struct ps_member_ops *ops, void *context,
                    const struct ps_cluster_node *self, uint64_t session_us, uint64_t fence_us_max,
                    uint32_t partition_count);

/* May a call be served, from a caller that believes the partition to be this process's under this grant?
 * To be asked before the call is executed. */
enum ps_member_answer ps_member_serves(const struct ps_member *m, uint32_t partition, uint64_t grant,
                                       uint64_t start_id, uint64_t now_us);

/* Must an answer for what was pushed wait until the partition's backup has it? So it is while the backup is
 * in sync, or may be without this node knowing it: whoever promotes it goes by the coordinator's map. */
bool ps_member_answer_waits(const struct ps_member *m, uint32_t partition);

/* ---- the coordinator ---- */

/* A request of this session was answered that had been sent at that time. */
void ps_member_confirmed(struct ps_member *m, uint64_t session, uint64_t sent_us);
/* The session is dead. */
void ps_member_expired(struct ps_member *m);
/* The coordinator's map, as it was read. An older one than is known changes nothing. */
void ps_member_take_map(struct ps_member *m, const struct ps_cluster_map *map);
/* The coordinator's map, as it was read before anything showed that the session is alive: it may be an old
 * one, and says nothing of a change whose fate is not known. It is taken only if a migration of this node has
 * ended by it, because calls wait for that. */
void ps_member_glimpse_map(struct ps_member *m, const struct ps_cluster_map *map);
/* A change of the map, its own or one that the process makes as leader: one at a time, as a second one would
 * take its place before it is written. False: another change is pending, and this one was not made. */
bool ps_member_propose(struct ps_member *m, const struct ps_cluster_map *next);
enum ps_member_written { PS_WRITTEN, PS_NOT_WRITTEN, PS_PERHAPS_WRITTEN };
/* What became of write_map(next). */
void ps_member_map_written(struct ps_member *m, const struct ps_cluster_map *next,
                           enum ps_member_written outcome);

/* ---- the node's own work ---- */

void ps_member_loaded(struct ps_member *m, uint32_t partition, uint64_t grant);
/* The migration of this id; NULL: there is none. */
struct ps_migration *ps_member_migration(struct ps_member *m, uint64_t id);
/* A migration goes on to a state, with what follows for the partitions: a source fences them, and proposes
 * the end once they are installed. False: there is no such migration, or it cannot go there. */
bool ps_member_migrate(struct ps_member *m, uint64_t id, enum ps_migration_state state, uint64_t now_us);
/* Nothing is left of a migration that has ended. One that ends while it waits needs no release. */
void ps_member_release(struct ps_member *m, uint64_t id);
/* Now and then: proposes what is due. */
void ps_member_tick(struct ps_member *m, uint64_t now_us);

#endif
