/* Reads a node's checkpoints again on a schedule, on a thread of its own, so that a damaged one is found
 * before a restore needs it: every block of every chain in the directory, and of the partial checkpoints in
 * it, past the page cache where the file system can do that. It changes nothing on the disk.
 */
#ifndef PS_SCRUBBER_H
#define PS_SCRUBBER_H

#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/base/counter_set.h"
#include "dataplane/wire/format/mr_status.h"

struct ps_store; /* ps/io/store.h */

#define PS_SCRUBBER_IDS_MAX 4096u /* checkpoints that are looked at: the newest */

/* X(name, kind, unit, help): counters of the node, shown with those of core 0. Written by the scrubber's
 * thread. */
#define PS_SCRUBBER_COUNTER_LIST(X)                                                                          \
    X(rounds, COUNTER, NONE, "times that all checkpoints on the disk were read again")                       \
    X(bytes, COUNTER, BYTES, "bytes of checkpoints on the disk read again")                                  \
    X(last_s, GAUGE, TIMESTAMP, "when the last round ended; 0: none has")                                    \
    X(damaged, GAUGE, NONE, "checkpoints that the last round could not read; the log says which")            \
    X(damaged_id, GAUGE, NONE, "the newest checkpoint, if a round could not read it; 0: none was found so")

struct ps_scrubber_counters {
    PS_SCRUBBER_COUNTER_LIST(MR_COUNTER_FIELD)
};

struct ps_scrubber_options {
    const struct ps_store *store; /* NULL: the local files */
    const char *directory;
    /* True cuts the store's requests off, and is what the end sets. NULL: it needs none. */
    _Atomic bool *stop;
    uint64_t every_us; /* from the end of a round to the next; the first begins so long after the start */
    uint64_t bytes_per_s_max; /* 0: no limit */
    const int *avoid_cpus;    /* see ps/base/cpu_affinity.h */
    uint32_t avoid_cpu_count;
    struct ps_scrubber_counters *counters;
    sem_t *found; /* posted when damaged_id has changed */
};

struct ps_scrubber;

/* Starts the thread; store, directory, stop, counters and `found` must outlive it. NULL: no memory. */
struct ps_scrubber *ps_scrubber_start(const struct ps_scrubber_options *options);
/* Changes the rate, at once. NULL is fine. Any thread. */
void ps_scrubber_set_rate(struct ps_scrubber *s, uint64_t bytes_per_s_max);
/* Ends it, in the middle of a round and of a request, too. NULL is fine. */
void ps_scrubber_stop(struct ps_scrubber *s);

#endif
