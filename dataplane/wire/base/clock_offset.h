/* How far a peer's clock is ahead, from one exchange: a request that leaves at begin_ns, an answer with what
 * the peer's clock showed meanwhile, which is here at end_ns (RFC 5905, section 8). Pure. */
#ifndef MR_CLOCK_OFFSET_H
#define MR_CLOCK_OFFSET_H

#include <stdint.h>

/* Writes the peer's clock minus the own one, taking both ways as equally long, and by how much that is wrong
 * at most, however the time divides between them: half of it. */
static inline void mr_clock_exchange(uint64_t begin_ns, uint64_t peer_ns, uint64_t end_ns, int64_t *offset_ns,
                                     uint64_t *error_ns)
{
    const uint64_t round_trip_ns = end_ns - begin_ns;
    *offset_ns = (int64_t)(peer_ns - begin_ns - round_trip_ns / 2);
    *error_ns = round_trip_ns - round_trip_ns / 2;
}

#endif
