/* How large a session's datagrams may be: packetization layer path MTU discovery (RFC 8899), for both
 * directions at once.
 *
 * The calling side asks with a datagram of a size whether that size gets through, and the serving side
 * answers with one of the same length: the answer proves both ways. A session starts with what every path
 * must carry, asks for the most that both ends take, and searches between the two when that fails. When calls
 * go unanswered it asks for the present size again, and when that fails it goes back to the least and
 * searches once more. What routers say (ICMP) is only ever a hint of what to ask for next, so that a forged
 * one costs a question.
 *
 * A size has failed when MR_PATH_TRIES questions got no answer while something else was heard.
 *
 * Pure: no clock, no memory of its own, no packets. All sizes are bytes of UDP payload, all times
 * microseconds of one monotonic clock. */
#ifndef MR_PATH_H
#define MR_PATH_H

#include <stdbool.h>
#include <stdint.h>

#define MR_PATH_TRIES     3u
#define MR_PATH_RAISE_US  600000000u /* after so long the path may have become wider (RFC 8899, 5.1.1) */
#define MR_PATH_DOUBT_US  20000u     /* what was asked so lately is not asked again */
#define MR_PATH_NARROW_US 1000000u   /* between questions whether it carries the least by now */

struct mr_path {
    uint64_t at_us;        /* when there is something to do; 0 = nothing */
    uint64_t asked_us;     /* the first question for the last size went out */
    uint64_t number;       /* of the last question */
    uint64_t first_number; /* of this size */
    uint32_t max_bytes;    /* agreed */
    uint32_t bytes;        /* datagrams are made no longer than this */
    uint32_t failed_bytes; /* the least known to fail; above max_bytes: none is */
    uint32_t asked_bytes;  /* the size in question; 0 = none */
    uint32_t hint_bytes;   /* to be asked for next; 0 = none */
    uint32_t tries;        /* questions for this size */
    bool confirmed;        /* `bytes` got through, and nothing has been said against it since */
    bool narrow;           /* not even the least gets through */
};

/* Whether datagrams are made of another size now, or `confirmed` or `narrow` have become true. */
enum mr_path_change { MR_PATH_SAME, MR_PATH_CHANGED };

/* Nothing is known of the path: the first question is due now. */
void mr_path_begin(struct mr_path *path, uint32_t max_bytes, uint64_t now_us);
/* at_us has come; the peer was last heard at `heard_us`. When asked_bytes is not 0 afterwards and at_us has
 * still come, a question is to be sent: then call mr_path_sent(). */
enum mr_path_change mr_path_due(struct mr_path *path, uint64_t heard_us, uint64_t now_us);
/* A question of asked_bytes goes out under the number returned; the next one is due in `wait_us`. */
uint64_t mr_path_sent(struct mr_path *path, uint64_t now_us, uint32_t wait_us);
/* An answer of `bytes` came to question `number`. One to no question that is open changes nothing. */
enum mr_path_change mr_path_answered(struct mr_path *path, uint64_t number, uint32_t bytes, uint64_t now_us);
/* Calls go unanswered: the path may have become narrower. True: a question is due; else it is open already,
 * or was answered just now. */
bool mr_path_doubt(struct mr_path *path, uint64_t now_us);
/* Somebody says that no more than `bytes` get through. */
void mr_path_hint(struct mr_path *path, uint32_t bytes, uint64_t now_us);

#endif
