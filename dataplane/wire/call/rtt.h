/* The round-trip time of one session, and the probe time-out that follows from it (RFC 9002, sections 5.3 and
 * 6.2). */
#ifndef MR_RTT_H
#define MR_RTT_H

#include <stdint.h>

#define MR_PTO_FIRST_US       20000u /* before the first sample */
#define MR_PTO_GRANULARITY_US 1000u /* least allowance for variation: that of a scheduler, not of a network */
#define MR_PTO_MAX_US         200000u /* so that a server that has come back is found quickly */
#define MR_RTT_SAMPLE_MAX_US  10000000u

struct mr_rtt {
    uint32_t smoothed_us; /* 0 = no sample yet */
    uint32_t variation_us;
};

/* Adds a measured round trip. One above MR_RTT_SAMPLE_MAX_US is the echo of something else, and is
 * ignored. */
void mr_rtt_sample(struct mr_rtt *rtt, uint32_t sample_us);
/* Returns how long to wait before the n-th (from 0) probe in a row; at most MR_PTO_MAX_US. */
uint32_t mr_rtt_pto_us(const struct mr_rtt *rtt, uint32_t probes_in_a_row);

#endif
