/* Numbered pushes: what mr_preamble.sequence holds, and how far apart numbers may be. docs/protocol.md,
 * section 9, numbered pushes.
 *
 * A client counts its pushes to a core, so that it can send any of them again and each is applied once. The
 * numbers of one client and one push stream make one row. There are two kinds of push streams. One that the
 * client chose holds pushes to one core, which are sent to others under the same push stream when partitions
 * have moved. A core's push stream belongs to a core of a certain map of one node: what was numbered for a
 * core keeps that core's push stream when the number of cores changes. Pure functions, any thread.
 *
 * The two kinds share 64 bits: 1 and 23 bits of a chosen push stream and a number of 40 bits, or 0 and 15
 * bits of a core's push stream and a number of 48 bits.
 */
#ifndef MR_PUSH_NUMBER_H
#define MR_PUSH_NUMBER_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/packet.h"

#define MR_PUSH_WINDOW                                                                                       \
    1024u /* numbers that the server tells apart, above the highest one below which none is missing */
#define MR_PUSH_NUMBER_BITS        48
#define MR_PUSH_NUMBER_MAX         ((UINT64_C(1) << MR_PUSH_NUMBER_BITS) - 1)
#define MR_PUSH_CHOSEN_NUMBER_BITS 40
#define MR_PUSH_CHOSEN_NUMBER_MAX  ((UINT64_C(1) << MR_PUSH_CHOSEN_NUMBER_BITS) - 1)
#define MR_PUSH_CHOSEN             (UINT32_C(1) << 23) /* bit of a push stream that its client chose */
#define MR_PUSH_CHOSEN_MAX         (MR_PUSH_CHOSEN - 1)

/* Returns the push stream that a client calls `index`, 0..MR_PUSH_CHOSEN_MAX. */
static inline uint32_t mr_push_stream_chosen(uint32_t index)
{
    return MR_PUSH_CHOSEN | index;
}

static inline bool mr_push_stream_is_chosen(uint32_t stream_id)
{
    return (stream_id & MR_PUSH_CHOSEN) != 0;
}

static inline uint64_t mr_push_number_max(uint32_t stream_id)
{
    return mr_push_stream_is_chosen(stream_id) ? MR_PUSH_CHOSEN_NUMBER_MAX : MR_PUSH_NUMBER_MAX;
}

/* Push stream 0 on the wire stands for the push stream of the receiving core in the current map. */
static inline uint64_t mr_push_sequence(uint32_t stream_id, uint64_t number)
{
    const uint32_t bits =
        mr_push_stream_is_chosen(stream_id) ? MR_PUSH_CHOSEN_NUMBER_BITS : MR_PUSH_NUMBER_BITS;
    return (uint64_t)stream_id << bits | number;
}

static inline uint32_t mr_push_stream_id(uint64_t sequence)
{
    const uint32_t chosen = (uint32_t)(sequence >> MR_PUSH_CHOSEN_NUMBER_BITS);
    return mr_push_stream_is_chosen(chosen) ? chosen : (uint32_t)(sequence >> MR_PUSH_NUMBER_BITS);
}

static inline uint64_t mr_push_number(uint64_t sequence)
{
    return sequence & mr_push_number_max(mr_push_stream_id(sequence));
}

/* Returns the push stream of core `core` in a map of `core_count` cores; never 0. */
static inline uint32_t mr_push_stream_of_core(uint32_t core_count, uint32_t core)
{
    return core_count << 8 | core;
}

/* Of a core's push stream. */
static inline uint32_t mr_push_stream_cores(uint32_t stream_id)
{
    return stream_id >> 8;
}

/* Of a core's push stream. */
static inline uint32_t mr_push_stream_core(uint32_t stream_id)
{
    return stream_id & 0xff;
}

/* Returns whether there can be such a push stream. */
static inline bool mr_push_stream_is_valid(uint32_t stream_id)
{
    return mr_push_stream_is_chosen(stream_id)
               ? stream_id < 2 * MR_PUSH_CHOSEN
               : mr_push_stream_core(stream_id) < mr_push_stream_cores(stream_id) &&
                     mr_push_stream_cores(stream_id) <= MR_CORE_MAX;
}

#endif
