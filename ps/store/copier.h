/* Copies a node's checkpoints from its disk to a store, on a thread of its own: each one that is
 * published on the disk and newer than all that are there, the oldest first, each after those that it is
 * based on. One that is damaged is passed over for a newer one. Then it removes old chains there as on the
 * disk. What fails is tried again until it succeeds, with pauses; a node that was stopped goes on where it
 * was, because what is there says what is missing. The disk and training wait for nothing of this. A copy
 * that is interrupted goes on within the checkpoint. Partial checkpoints follow the whole ones, from the
 * folder PS_PARTIAL_NAME to the one of that name there. The node's `history` goes there, too, once the store
 * has all checkpoints: what it says of them holds there then.
 */
#ifndef PS_STORE_COPIER_H
#define PS_STORE_COPIER_H

#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/base/counter_set.h"
#include "ps/checkpoint/checkpoint.h"
#include "ps/store/remote_store.h"

#define PS_COPIER_PAUSE_S_MIN 1u /* after a failure; twice as long after each further one */
#define PS_COPIER_PAUSE_S_MAX 60u
#define PS_COPIER_IDS_MAX     4096u /* checkpoints of the disk that are looked at: the newest */
#define PS_COPIER_TEXT_BYTES  256u
#define PS_COPIER_COPIED_MAX  64u /* copies that it remembers the time of: the newest */

enum ps_copier_state { PS_COPIER_OFF, PS_COPIER_IDLE, PS_COPIER_COPYING, PS_COPIER_FAILING };

/* X(name, kind, unit, help): counters of the node, shown with those of core 0. Written by the copier's
 * threads. */
#define PS_COPIER_COUNTER_LIST(X)                                                                            \
    X(state, GAUGE, NONE,                                                                                    \
      "0: there is no checkpoint.remote, 1: all is copied, 2: copying, 3: the last try failed")              \
    X(last_id, GAUGE, NONE,                                                                                  \
      "the newest checkpoint that is in the store; 0: none is, or it is not known yet")                      \
    X(behind, GAUGE, NONE, "checkpoints on the disk that are not in the store yet")                          \
    X(behind_s, GAUGE, SECONDS,                                                                              \
      "time since the first checkpoint that is not in the store was found to be missing there")              \
    X(copies_good, COUNTER, NONE, "checkpoints copied to the store")                                         \
    X(copies_failed, COUNTER, NONE, "tries to copy a checkpoint that failed")                                \
    X(bytes, COUNTER, BYTES, "bytes copied, those of failed tries among them")                               \
    X(bytes_kept, COUNTER, BYTES,                                                                            \
      "bytes that a copy which was interrupted had left there, and that were not sent again")                \
    X(bytes_again, COUNTER, BYTES, "of the bytes copied, those sent again because a copy was interrupted")   \
    X(last_status, GAUGE, NONE, "how the last try to copy ended: an mr_status, 0 is good; the log says more")

struct ps_copier_counters {
    PS_COPIER_COUNTER_LIST(MR_COUNTER_FIELD)
};

struct ps_copier_options {
    const char *directory; /* of the disk */
    const char *url;
    const char *credentials;       /* file; "": from the environment */
    struct ps_retention retention; /* of what is there */
    uint64_t bytes_per_s_max;      /* 0: no limit */
    uint32_t pause_ms_max;         /* between two tries of a request; 0: PS_HTTP_PAUSE_MS_MAX */
    const int *avoid_cpus;         /* see ps/base/cpu_affinity.h */
    uint32_t avoid_cpu_count;
    struct ps_copier_counters *counters;
    sem_t *copied; /* posted whenever last_id is set; NULL: nobody waits for that */
};

struct ps_copier;

/* Starts the thread; strings and counters must outlive it. On failure `text` (PS_TEXT_BYTES) says why: a
 * URL or credentials that cannot be right. A store that does not answer is no failure. */
enum mr_status ps_copier_start(const struct ps_copier_options *options, struct ps_copier **out, char *text);
/* What became of a checkpoint that the node has published in its directory, or among the partial ones of
 * it. */
enum ps_copied {
    PS_COPIED_NO_STORE, /* there is nowhere to copy it to; of a copier's answers it is none */
    PS_COPIED_NOT_YET,
    PS_COPIED_THERE,
    PS_COPIED_NEVER, /* it was removed from the disk before, and newer ones are there */
};
/* Looks up a checkpoint that was published since the copier's start; of one that is there, *at_ms is when it
 * was, in milliseconds since 1970. Any thread. */
enum ps_copied ps_copier_look(struct ps_copier *c, bool is_partial, uint64_t id, uint64_t *at_ms);
/* A checkpoint has been published, or the history was written. Any thread. */
void ps_copier_wake(struct ps_copier *c);
/* Changes what is kept there, and the rate, from the next checkpoint on. NULL is fine. Any thread. */
void ps_copier_set_limits(struct ps_copier *c, const struct ps_retention *retention,
                          uint64_t bytes_per_s_max);
/* Waits until all is copied, but no longer than that, and not for a store that fails; then ends the
 * thread. NULL is fine. */
void ps_copier_stop(struct ps_copier *c, uint32_t wait_s);

/* Copies a checkpoint with its chain from the store to the disk: `*id`, or, if that is 0, the newest of the
 * store, which then is `*id`; 0: there is none. Errors as those of ps_copy_chain(). The newest partial one
 * comes, too, so that their numbers go on; if it cannot be copied, a line in the log says so. */
enum mr_status ps_copier_fetch(const struct ps_copier_options *options, uint64_t *id, char *text);

/* Copies the node's history from the store to the disk; *is_there: there is one. MR_IO_ERROR, MR_NO_MEMORY,
 * MR_INVALID_ARGUMENT: `text` says why not. */
enum mr_status ps_copier_fetch_history(const struct ps_copier_options *options, bool *is_there, char *text);

#endif
