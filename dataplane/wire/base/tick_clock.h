/* A clock for spans of time that costs a few nanoseconds to read: the processor's time-stamp counter where it
 * ticks evenly, else CLOCK_MONOTONIC. Its zero is its own: only differences mean something, and only between
 * readings of one machine. Any thread.
 *
 * Source: Intel SDM volume 3B, 18.17.1 "Invariant TSC".
 */
#ifndef MR_TICK_CLOCK_H
#define MR_TICK_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/base/clock.h"

#ifdef __x86_64__
#include <x86intrin.h>
#endif

/* Nanoseconds a tick, times 2^32; 0: the ticks are not even, or mr_tick_clock_init() was not called. */
extern uint64_t mr_tick_scale;

/* Spans differ from CLOCK_MONOTONIC's by this share at most, unless the clocks could not be read together. */
#define MR_TICK_ERROR 0.002

/* Measures the ticks against CLOCK_MONOTONIC, which takes some 200 us the first time. Before mr_tick_ns(). */
void mr_tick_clock_init(void);

static inline uint64_t mr_tick_ns(void)
{
#ifdef __x86_64__
    if (mr_tick_scale != 0)
        return (uint64_t)(((unsigned __int128)__rdtsc() * mr_tick_scale) >> 32);
#endif
    return mr_clock_ns();
}

#endif
