/* Which packets a capture records.
 *
 * Operations stand in the first packet of a message alone; so the filter remembers the calls whose messages
 * began with one that is wanted, and knows later segments, acknowledgements and answers by their call.
 * One thread. */
#ifndef DP_CAPTURE_FILTER_H
#define DP_CAPTURE_FILTER_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/capture.h"

#define DP_FILTER_CALLS 4096u

struct dp_filter_call {
    uint64_t session_id, call_id;
};

struct dp_filter {
    uint8_t ip[16]; /* all zero: any peer */
    uint16_t port;  /* 0: any */
    bool has_ip, has_ops;
    uint64_t ops[MR_CAPTURE_OP_WORDS];
    struct dp_filter_call
        *calls; /* [DP_FILTER_CALLS], the newest of each place; zero at first; with has_ops */
};

/* Whether a packet from or to that peer is wanted. ip NULL: it has none. payload NULL: it is no datagram. */
bool dp_filter_wants(struct dp_filter *filter, const uint8_t *ip, uint16_t port, const uint8_t *payload,
                     uint32_t payload_bytes);

#endif
