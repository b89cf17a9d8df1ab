/* The library's clock: microseconds of CLOCK_MONOTONIC. Any thread. */
#ifndef MRC_CLOCK_H
#define MRC_CLOCK_H

#include <stdint.h>
#include "dataplane/wire/base/clock.h"

#define MRC_NEVER_US UINT64_MAX

static inline uint64_t mrc_now_us(void)
{
    return mr_clock_us();
}

#endif
