#include "dataplane/wire/call/latency.h"

#include <stdlib.h>

void mr_latencies_destroy(struct mr_latencies *l)
{
    for (uint32_t op = 0; op < MR_OP_COUNT; op++)
        free(l->ops[op]);
}

const struct mr_histogram *mr_latencies_of(const struct mr_latencies *l, uint32_t op,
                                           enum mr_latency_phase phase)
{
    const struct mr_op_latency *of_op = __atomic_load_n(&l->ops[op], __ATOMIC_ACQUIRE);
    return of_op != NULL ? &of_op->phases[phase] : NULL;
}

/* Returns how many calls the next one counts for; 0: it is not timed. */
static uint32_t weight(struct mr_latencies *l)
{
    if (l->burst_calls++ < MR_LATENCY_FIRST)
        return 1;
    return ++l->turn % MR_LATENCY_STRIDE == 0 ? MR_LATENCY_STRIDE : 0;
}

/* False: there is no memory for its histograms, and the operation is not counted. */
static bool latency_make(struct mr_latencies *l, uint32_t op)
{
    struct mr_op_latency *made = calloc(1, sizeof(*made));
    __atomic_store_n(&l->ops[op], made, __ATOMIC_RELEASE);
    return made != NULL;
}

static uint64_t stamp_of(uint64_t ns, uint32_t times)
{
    return (ns & MR_LATENCY_STAMP_MASK) | (uint64_t)times << MR_LATENCY_STAMP_BITS;
}

uint64_t mr_latency_began(struct mr_latencies *l, uint32_t op)
{
    if (l->clock_ns == NULL)
        return 0;
    const uint32_t times = weight(l);
    if (times == 0 || op >= MR_OP_COUNT || (l->ops[op] == NULL && !latency_make(l, op)))
        return stamp_of(l->burst_ns, 0);
    return mr_latency_ended(l, op, MR_LATENCY_WAIT, stamp_of(l->burst_ns, times));
}

uint64_t mr_latency_ended(struct mr_latencies *l, uint32_t op, enum mr_latency_phase phase, uint64_t stamp)
{
    const uint64_t now_ns = l->clock_ns();
    const uint32_t times = (uint32_t)(stamp >> MR_LATENCY_STAMP_BITS);
    mr_histogram_add(&l->ops[op]->phases[phase], (now_ns - stamp) & MR_LATENCY_STAMP_MASK, times);
    return stamp_of(now_ns, times);
}
