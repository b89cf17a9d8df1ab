/* Numbered pushes: what mr_preamble.sequence holds, and how far apart numbers may be. docs/protocol.md,
 * section 9, numbered pushes.
 *
 * A client counts its pushes to a core, so that it can send any of them again and each is applied once. The
 * numbers of one client and one lane make one row. A lane is a core of a certain map: what was numbered for a
 * core keeps that core's lane when the number of cores changes. Pure functions, any thread.
 */
#ifndef MR_PUSH_NUMBER_H
#define MR_PUSH_NUMBER_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/packet.h"

#define MR_PUSH_WINDOW                                                                                       \
    1024u /* numbers that the server tells apart, above the highest one below which none is missing */
#define MR_PUSH_NUMBER_BITS 48
#define MR_PUSH_NUMBER_MAX  ((UINT64_C(1) << MR_PUSH_NUMBER_BITS) - 1)

/* Lane 0 on the wire stands for the lane of the receiving core in the current map. */
static inline uint64_t mr_push_sequence(uint16_t lane, uint64_t number)
{
    return (uint64_t)lane << MR_PUSH_NUMBER_BITS | number;
}

static inline uint16_t mr_push_lane(uint64_t sequence)
{
    return (uint16_t)(sequence >> MR_PUSH_NUMBER_BITS);
}

static inline uint64_t mr_push_number(uint64_t sequence)
{
    return sequence & MR_PUSH_NUMBER_MAX;
}

/* Returns the lane of core `core` in a map of `core_count` cores; never 0. */
static inline uint16_t mr_push_lane_of(uint32_t core_count, uint32_t core)
{
    return (uint16_t)(core_count << 8 | core);
}

static inline uint32_t mr_push_lane_cores(uint16_t lane)
{
    return lane >> 8;
}

static inline uint32_t mr_push_lane_core(uint16_t lane)
{
    return lane & 0xff;
}

/* Returns whether there can be such a core. */
static inline bool mr_push_lane_is_valid(uint16_t lane)
{
    return mr_push_lane_core(lane) < mr_push_lane_cores(lane) && mr_push_lane_cores(lane) <= MR_CORE_MAX;
}

#endif
