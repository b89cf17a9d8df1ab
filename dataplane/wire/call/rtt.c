#include "dataplane/wire/call/rtt.h"

#define BACKOFF_SHIFT_MAX 16u

void mr_rtt_sample(struct mr_rtt *rtt, uint32_t sample_us)
{
    if (sample_us > MR_RTT_SAMPLE_MAX_US)
        return;
    if (sample_us == 0)
        sample_us = 1;
    if (rtt->smoothed_us == 0) {
        rtt->smoothed_us = sample_us;
        rtt->variation_us = sample_us / 2;
        return;
    }
    uint32_t off = sample_us > rtt->smoothed_us ? sample_us - rtt->smoothed_us : rtt->smoothed_us - sample_us;
    rtt->variation_us = (3 * rtt->variation_us + off) / 4;
    rtt->smoothed_us = (7 * rtt->smoothed_us + sample_us + 4) / 8;
}

uint32_t mr_rtt_pto_us(const struct mr_rtt *rtt, uint32_t probes_in_a_row)
{
    uint64_t pto_us = MR_PTO_FIRST_US;
    if (rtt->smoothed_us != 0) {
        uint32_t room_us = 4 * rtt->variation_us;
        pto_us = rtt->smoothed_us + (room_us > MR_PTO_GRANULARITY_US ? room_us : MR_PTO_GRANULARITY_US);
    }
    pto_us <<= probes_in_a_row < BACKOFF_SHIFT_MAX ? probes_in_a_row : BACKOFF_SHIFT_MAX;
    return (uint32_t)(pto_us < MR_PTO_MAX_US ? pto_us : MR_PTO_MAX_US);
}
