/* How long calls take on the serving side, by operation and phase, as histograms (docs/adr/0090). With no
 * clock in the endpoint's configuration nothing is counted.
 *
 * The first calls of each burst are timed. Of more than those in one burst, where reading a clock would be a
 * part of what is measured, one in MR_LATENCY_STRIDE is, and counts for as many. Of the others only the whole
 * time is known, for call_records.h.
 *
 * The endpoint's thread writes. mr_latencies_of() and what it returns may be read by any thread.
 */
#ifndef MR_LATENCY_H
#define MR_LATENCY_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/endpoint.h"
#include "dataplane/wire/format/mr_histogram.h"

#define MR_LATENCY_FIRST  4u
#define MR_LATENCY_STRIDE 8u

/* A slot's time stamp: nanoseconds, and in its highest byte how many calls this one counts for. That is 0 of
 * a call that is not timed, and whose stamp stays that of its arrival. A stamp of 0: there is no clock. */
#define MR_LATENCY_STAMP_BITS 56
#define MR_LATENCY_STAMP_MASK ((UINT64_C(1) << MR_LATENCY_STAMP_BITS) - 1)

struct mr_op_latency {
    struct mr_histogram phases[MR_LATENCY_PHASES];
};

struct mr_latencies {
    uint64_t (*clock_ns)(void); /* NULL: nothing is counted */
    uint64_t burst_us;          /* the running burst: when its datagrams were given to the endpoint, */
    uint64_t burst_ns;          /* the same by clock_ns, */
    uint64_t flush_ns;          /* when answers of the running flush were first sent; 0: not read yet */
    uint32_t burst_calls;       /* and calls of it so far */
    uint32_t turn;              /* of the calls beyond the first of their bursts */
    struct mr_op_latency *ops[MR_OP_COUNT]; /* made at an operation's first call */
};

void mr_latencies_destroy(struct mr_latencies *l);
/* NULL: no such call was timed so far. */
const struct mr_histogram *mr_latencies_of(const struct mr_latencies *l, uint32_t op,
                                           enum mr_latency_phase phase);

/* Notes that datagrams have arrived; those of one time are a burst. */
static inline void mr_latency_arrived(struct mr_latencies *l, uint64_t now_us)
{
    if (l->clock_ns == NULL || now_us == l->burst_us)
        return;
    l->burst_us = now_us;
    l->burst_ns = l->clock_ns();
    l->burst_calls = 0;
}

static inline bool mr_latency_is_timed(uint64_t stamp)
{
    return stamp >> MR_LATENCY_STAMP_BITS != 0;
}

/* Returns the time between two stamps. */
static inline uint64_t mr_latency_span_ns(uint64_t from, uint64_t to)
{
    return (to - from) & MR_LATENCY_STAMP_MASK;
}

/* Notes that answers are about to be sent. */
static inline void mr_latency_flush(struct mr_latencies *l)
{
    l->flush_ns = 0;
}

/* Returns when that was: one reading for all calls that are not timed. */
static inline uint64_t mr_latency_flush_ns(struct mr_latencies *l)
{
    if (l->flush_ns == 0)
        l->flush_ns = l->clock_ns();
    return l->flush_ns;
}

/* Notes that a call's work begins. Returns its stamp. */
uint64_t mr_latency_began(struct mr_latencies *l, uint32_t op);
/* Counts a phase that has ended now, of a call that is timed. Returns the stamp of the next phase. */
uint64_t mr_latency_ended(struct mr_latencies *l, uint32_t op, enum mr_latency_phase phase, uint64_t stamp);

#endif
