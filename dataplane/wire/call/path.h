/* How long a session's datagrams may be: packetization layer path MTU discovery (RFC 8899), for both
 * directions at once.
 *
 * The calling side sends a probe, a datagram of the size in question, and the serving side answers with one
 * of the same length: the answer proves both directions. A session starts with the size that every path must
 * carry, probes the largest that both ends take, and searches between the two when that fails. When calls
 * stay unanswered it probes the present size again, and when that fails it returns to the least and searches
 * once more. A router's report (ICMP) is only a hint of what to probe next, so that a forged one costs one
 * probe.
 *
 * A size has failed when MR_PATH_TRIES probes got no answer while something else was heard.
 *
 * Pure: no clock, no memory of its own, no packets. All sizes are bytes of UDP payload, all times
 * microseconds of one monotonic clock. */
#ifndef MR_PATH_H
#define MR_PATH_H

#include <stdbool.h>
#include <stdint.h>

#define MR_PATH_TRIES     3u
#define MR_PATH_RAISE_US  600000000u /* after this time the path may have become wider (RFC 8899, 5.1.1) */
#define MR_PATH_DOUBT_US  20000u     /* a size that was probed so recently is not probed again */
#define MR_PATH_NARROW_US 1000000u   /* between probes whether the path carries the least size again */

struct mr_path {
    uint64_t at_us;        /* when mr_path_due() is due; 0 = never */
    uint64_t asked_us;     /* when the last size was probed first */
    uint64_t number;       /* of the last probe */
    uint64_t first_number; /* of the first probe of this size */
    uint32_t max_bytes;    /* agreed */
    uint32_t bytes;        /* datagrams are at most this long */
    uint32_t failed_bytes; /* the least size known to fail; above max_bytes: none is */
    uint32_t asked_bytes;  /* the size being probed; 0 = none */
    uint32_t hint_bytes;   /* the size to probe next; 0 = none */
    uint32_t tries;        /* probes of this size */
    bool confirmed;        /* `bytes` got through, and nothing has spoken against it since */
    bool narrow;           /* not even the least size gets through */
};

/* Whether the size of datagrams has changed, or `confirmed` or `narrow` have become true. */
enum mr_path_change { MR_PATH_SAME, MR_PATH_CHANGED };

/* Initializes the state: nothing is known about the path, and the first probe is due now. */
void mr_path_begin(struct mr_path *path, uint32_t max_bytes, uint64_t now_us);
/* To be called at at_us; the peer was last heard at `heard_us`. If asked_bytes is not 0 afterwards and at_us
 * has still passed, send a probe and call mr_path_sent(). */
enum mr_path_change mr_path_due(struct mr_path *path, uint64_t heard_us, uint64_t now_us);
/* Notes that a probe of asked_bytes is sent, and returns its number; the next one is due in `wait_us`. */
uint64_t mr_path_sent(struct mr_path *path, uint64_t now_us, uint32_t wait_us);
/* Handles an answer of `bytes` to probe `number`. An answer to a probe that is no longer open changes
 * nothing. */
enum mr_path_change mr_path_answered(struct mr_path *path, uint64_t number, uint32_t bytes, uint64_t now_us);
/* Notes that calls stay unanswered, because the path may have become narrower. Returns true when a probe is
 * due; otherwise one is open already, or was answered just now. */
bool mr_path_doubt(struct mr_path *path, uint64_t now_us);
/* Handles a report that no more than `bytes` get through. */
void mr_path_hint(struct mr_path *path, uint32_t bytes, uint64_t now_us);

#endif
