/* Notes in a timeline how far the servers' clocks are ahead, so that `millrace timeline` can put the files of
 * several machines on one clock. For programs of this project; the trace and the client belong to the caller.
 */
#ifndef MRC_TRACE_CLOCKS_H
#define MRC_TRACE_CLOCKS_H

#include <string.h>
#include "dataplane/wire/base/trace.h"
#include "millrace.h"
#include "millrace_observe.h"

#define MRC_TRACE_CLOCKS_NS UINT64_C(2000000000) /* from one round of questions to the next */
#define MRC_TRACE_CLOCKS_MS 200u                 /* a server that does not answer by then is left out */

/* Asks each node that `client` reaches. Without a trace it does nothing. */
static inline void mrc_trace_clocks(struct mr_trace *trace, struct mr_client *client)
{
    const struct mr_options options = {.deadline_ms = MRC_TRACE_CLOCKS_MS};
    struct mr_core_place place, before = {0};
    const uint32_t cores = trace == NULL ? 0 : mr_client_core_count(client);
    for (uint32_t core = 0; core < cores; core++) {
        struct mr_clock_offset offset;
        const bool is_member = mr_client_core_place(client, core, &place);
        if (core > 0 && (!is_member || strcmp(place.node, before.node) == 0))
            continue;
        before = place;
        if (mr_clock_offset(client, &options, core, &offset) == MR_OK)
            mr_trace_clock(trace, offset.peer_clock, offset.at_ns, offset.offset_ns, offset.error_ns);
    }
}

/* Does so when it is due; *next_ns is 0 at first. */
static inline void mrc_trace_clocks_now_and_then(struct mr_trace *trace, struct mr_client *client,
                                                 uint64_t *next_ns)
{
    if (trace == NULL || mr_clock_ns() < *next_ns)
        return;
    mrc_trace_clocks(trace, client);
    *next_ns = mr_clock_ns() + MRC_TRACE_CLOCKS_NS;
}

#endif
