/* How much one direction of one session may have in flight, from the delay that its packets find (and from
 * loss, where a buffer is too short for delay to tell). Two of them belong to a session, both kept by the
 * side that calls: one limits its requests, the other paces the grants of its replies. The serving side keeps
 * none.
 *
 * The window starts at all that the receiver's buffer takes, so that nothing is slower on an idle network.
 * Once in each round trip it is judged by the least queueing delay seen during it: a burst, or a process that
 * was not scheduled, makes some packets late, a standing queue all of them. Above the target it shrinks by
 * how far the delay is above (at most to half); below it grows, by one segment more with each calm round trip
 * in a row.
 *
 * After Swift (Kumar et al., SIGCOMM 2020, section 3: target delay, decrease in proportion to the excess, one
 * decrease a round trip) and TIMELY (Mittal et al., SIGCOMM 2015: faster growth after calm rounds); the least
 * delay of a round as in CoDel (RFC 8289, section 3.2); base delay after LEDBAT (RFC 6817, section 3.4.2),
 * kept at the receiver as in rLEDBAT (RFC 9840); persistent loss after RFC 9002, section 7.6. ADR 0009 says
 * why these numbers.
 *
 * Fairness: windows scale their target by their size, and slow down together now and then to see the path
 * without their own queue (LEDBAT++, draft-irtf-iccrg-ledbat-plus-plus); ADR 0036.
 *
 * Pure: no clock, no memory of its own. All times are microseconds of one monotonic clock. */
#ifndef MR_WINDOW_H
#define MR_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

/* A queue of this length is what it aims at. 256 KiB, a default receive window, take 210 us through 10 Gb/s,
 * so that a single transfer on an idle network stays below; it is half of the least time that a probe waits
 * (MR_PTO_GRANULARITY_US), so that a queue at the target makes none fire; and a switch port with 1 MB to
 * itself holds about as much at 10 to 25 Gb/s. */
#define MR_QUEUE_TARGET_US 500u

/* A window aims at a queue of half of that and, the smaller it is, more: at the least two and a half times of
 * it, at so many segments once and a half (see mr_window_target_us). Of two that share a link the smaller one
 * still grows when the larger one has to shrink, until they are about equal (Swift, section 3.1, scaling with
 * the number of flows). */
#define MR_SMALL_WINDOW_SEGMENTS 32u

#define MR_BASE_INTERVALS   10u       /* the base delay is the least of so many ... */
#define MR_BASE_INTERVAL_US 60000000u /* ... intervals of this length */
/* A transfer that goes on and on slows down to the least for so many round trips, and does so again after so
 * many times that: its queue drains, and whoever shares the link sees the path's own round trip (LEDBAT++,
 * draft-irtf-iccrg-ledbat-plus-plus, section 4.4). The first comes early, as who came late has taken the
 * others' queue for the path. */
#define MR_SLOWDOWN_ROUND_TRIPS  2u
#define MR_SLOWDOWN_SHARE        50u
#define MR_SLOWDOWN_FIRST        20u
#define MR_WINDOW_SEGMENTS_LEAST 4u
#define MR_LOSS_SEGMENTS         4u /* so many lost are bad luck, */
#define MR_LOSS_SHARE                                                                                        \
    25u /* and so is one of so many: a cable that loses 1 % stays below; more is a full buffer */
#define MR_LOSS_SEGMENTS_JUDGED 256u /* counted over so many, then from 0 again */
#define MR_LOSS_PERSISTENT      3u /* probes in a row and most of what was in flight lost: it is persistent */
#define MR_WINDOW_FORGET_US     10000000u /* unused for so long, what it knows is no longer so */

/* The path's own round trip: the least of the last ten minutes, because a longer path must be believed at
 * last. */
struct mr_base_delay {
    uint64_t interval;                    /* number of the current one */
    uint32_t least_us[MR_BASE_INTERVALS]; /* by interval modulo MR_BASE_INTERVALS; 0 = none */
    uint32_t base_us;
};

/* Take in one round trip, at least 1 us. Returns its share of queueing. */
uint32_t mr_base_delay_sample(struct mr_base_delay *base, uint64_t now_us, uint32_t rtt_us);

struct mr_window {
    uint32_t bytes; /* may be in flight */
    uint32_t max_bytes, segment_bytes;
    uint32_t queue_us; /* least of this round trip */
    uint32_t calm;     /* round trips in a row below the target */
    uint32_t segments, lost;
    uint64_t round_ends_us; /* 0: none has begun */
    uint64_t used_us;
    uint64_t no_decrease_before_us;
    uint64_t slowdown_us; /* when the next slowdown is due, or the one it is in ends; 0: not in use yet */
    uint32_t kept_bytes;  /* in a slowdown: what it goes back to; else 0 */
};

/* The queue that it aims at. */
uint32_t mr_window_target_us(const struct mr_window *w);
/* Starts with all of `max_bytes`, which never grows. */
void mr_window_init(struct mr_window *w, uint32_t max_bytes, uint32_t segment_bytes);
/* Segments are of another size now. */
void mr_window_resize(struct mr_window *w, uint32_t segment_bytes);
/* A packet came while this direction was in use, and found a queue of `queue_us`; the smoothed round trip is
 * `rtt_us`. These three return true when the window shrank. */
bool mr_window_delay(struct mr_window *w, uint64_t now_us, uint32_t rtt_us, uint32_t queue_us);
/* So many segments have arrived for the first time, so many others were found to be lost. Halves the window
 * when more are lost than by chance. */
bool mr_window_segments(struct mr_window *w, uint64_t now_us, uint32_t rtt_us, uint32_t arrived,
                        uint32_t lost);
/* Nothing of what was sent over several probe time-outs arrived: start from the least. */
bool mr_window_collapse(struct mr_window *w);

#endif
