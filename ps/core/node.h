/* One node: what its cores, its control thread and main share. Fields without a note are set at start and
 * then only read.
 */
#ifndef PS_NODE_H
#define PS_NODE_H

#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "dataplane/dataplane.h"
#include "dataplane/wire/format/mr_feature.h"
#include "dataplane/wire/format/op.h"
#include "ps/base/key_hash.h"
#include "ps/config/config.h"
#include "ps/cluster/cluster_counters.h"
#include "ps/save/save_policy.h"
#include "ps/checkpoint/scrubber.h"
#include "ps/io/write_pool.h"
#include "ps/store/copier.h"

struct ps_core;
struct ps_control;
struct ps_node_cluster;
struct ps_prefault;
struct ps_rpc;
struct mr_named_parameters;
struct mr_trace;

#define PS_SERVES_BYTES 256
#define PS_WHY_BYTES    256

struct ps_node {
    const struct ps_config *config;
    struct dp *dp;
    const dp_handler *dispatch; /* by enum mr_op: a long call is handed to its handler again */
    uint32_t core_count;
    uint32_t incarnation;
    uint64_t start_id;               /* random */
    struct ps_key_secret key_secret; /* random: of the hash tables whose keys clients choose */
    uint32_t message_bytes_max;
    uint64_t started_us;
    uint16_t partition_core[MR_PARTITION_COUNT]; /* which core owns a partition */
    struct ps_core *cores[DP_CORES_MAX];         /* each set by its own thread before dp_start returns */
    int cpus[DP_CORES_MAX];                      /* of the cores, which other threads avoid */
    uint32_t cpu_count;                          /* 0: the cores have none of their own */
    bool is_member;                              /* of a cluster */
    /* of a member: until when it may serve what it owns (mr_clock_boot_us()); written by the coordinator's
     * thread */
    _Atomic uint64_t lease_end_us;
    struct ps_node_cluster *cluster; /* of a member */
    struct ps_control *control;
    sem_t *control_wake; /* posted when the control thread has something to look at; NULL: there is none */
    struct ps_prefault *prefault;           /* prefaults the arenas' memory; NULL: nothing is prefaulted */
    struct ps_facts *_Atomic facts;         /* NULL: nothing is known yet */
    struct ps_annotations *annotations;     /* NULL: none are kept */
    struct mr_trace *trace;                 /* of long calls; NULL: none */
    struct ps_rpc *rpc;                     /* core 0's; NULL: the node takes no part in remote calls */
    struct mr_named_parameters *parameters; /* of remote calls, with names; NULL: none are kept */
    bool is_read_only; /* it serves a checkpoint, and nothing changes; set before the first data call */
    char serves[PS_SERVES_BYTES];                      /* then: which */
    _Atomic uint32_t state;                            /* enum mr_node_state; see ps_node_set_state() */
    char why[PS_WHY_BYTES];                            /* of MR_NODE_FAILED; by ps_node_state() only */
    struct ps_checkpoint_counters checkpoint_counters; /* written by the control thread */
    struct ps_cluster_counters cluster_counters;       /* zeros: it is no member */
    struct ps_uring_counters uring_counters;           /* written by the writer's thread */
    struct ps_scrubber_counters scrubber_counters;     /* written by the scrubber's thread */
    struct ps_copier *_Atomic copier;                  /* to checkpoint.remote; NULL: there is none */
    struct ps_copier_counters copier_counters;         /* written by its threads */
    _Atomic uint64_t control_turns;                    /* of the control thread: it goes on */
    _Atomic uint32_t restores; /* as in struct ps_history; written by the control thread */
    /* Seconds between automatic saves, as the configuration in use has them; that belongs to the control
     * thread. */
    _Atomic uint64_t checkpoint_every_s;
    /* HELLOs of other protocol versions, for the log: a core writes while `is_new` is not set, the control
     * thread reads while it is */
    struct ps_heard_version {
        _Atomic bool is_new;
        struct mr_other_version last;
    } heard_versions[DP_CORES_MAX];
    /* each core's ps_drop_stats_sum() of all features; written by it */
    _Atomic uint64_t drop_stats[DP_CORES_MAX];
    /* each core's ps_pushes_lost(); written by it */
    _Atomic uint64_t push_streams_lost[DP_CORES_MAX];
};

/* Has the control thread look after saves, and what cores report, soon. Any thread. */
void ps_node_wake_control(const struct ps_node *node);

/* By the control thread, and by main, which sets MR_NODE_STOPPING: a node that stops keeps that state. */
void ps_node_set_state(struct ps_node *node, enum mr_node_state state);
/* From now on the node serves nothing, for this reason, which everything shows that shows the state: what is
 * to be put right, and how. The control thread, by ps_control_gate_broken(). */
void ps_node_fail(struct ps_node *node, const char *why);
/* Returns the state, and in MR_NODE_FAILED the reason, else "". Any thread. */
enum mr_node_state ps_node_state(const struct ps_node *node, char why[PS_WHY_BYTES]);
/* "serving", "saving", "restoring", "stopping", "read_only", "failed" */
const char *ps_node_state_name(enum mr_node_state state);

/* The control thread goes on. */
static inline void ps_node_note_turn(struct ps_node *node)
{
    atomic_fetch_add_explicit(&node->control_turns, 1, memory_order_relaxed);
}

/* The core that owns a partition, on a node of so many: contiguous slices, as even as possible. */
static inline uint32_t ps_node_core_of(uint32_t core_count, uint32_t partition)
{
    return partition * core_count / MR_PARTITION_COUNT;
}
void ps_node_map_partitions(struct ps_node *node, uint32_t core_count);

/* Work for every core's own thread, and how far it has come. */
struct ps_node_round {
    sem_t done;
    uint32_t core_count;
    struct ps_core_task {
        struct dp_task task;
        void (*run)(struct ps_core *core, void *arg);
        void *arg;
        sem_t *done;
        _Atomic uint32_t *missing; /* cores that have not come yet; NULL: each by itself */
    } tasks[DP_CORES_MAX];
};

/* Gives run(core, arg) to every core and returns; a core does what it was given one after the other. `round`
 * stays where it is until it was waited for. Any thread but a core's. */
void ps_node_begin(struct ps_node *node, struct ps_node_round *round,
                   void (*run)(struct ps_core *core, void *arg), void *arg);
void ps_node_wait(struct ps_node_round *round); /* until the last core is done */
/* Runs run(core, arg) on every core's own thread, all at the same time, and waits for the last. Any thread
 * but a core's. */
void ps_node_each_core(struct ps_node *node, void (*run)(struct ps_core *core, void *arg), void *arg);
/* The same at one instant: no core begins before all have arrived, and a core that has arrived does nothing
 * else meanwhile. So what a client does after an answer, on whatever core, lies on the same side of that
 * instant or after it. Cores wait for the last one, which first completes the long call that it is doing:
 * run() and what precedes it must be short. By the control thread, or while there is none. */
void ps_node_each_core_at_once(struct ps_node *node, void (*run)(struct ps_core *core, void *arg), void *arg);

#endif
