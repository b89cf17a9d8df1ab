/* A congestion window: how much one direction of a session may have in flight, judged by the delay of its
 * packets (and by loss, where a buffer is too short for delay to show). The calling side keeps two of them
 * for a session: one limits its requests, the other paces the grants of its replies. The serving side keeps
 * none.
 *
 * The window starts at the size of the receiver's buffer, so that nothing is slower on an idle network. Once
 * in each round trip it is judged by the least queueing delay seen in that time: a burst, or a process that
 * was not scheduled, makes some packets late, but a standing queue delays all of them. If the delay is above
 * the target, the window shrinks in proportion to the excess (at most to half); if it is below, the window
 * grows, by one segment more with each calm round trip in a row.
 *
 * After Swift (Kumar et al., SIGCOMM 2020, section 3: target delay, decrease in proportion to the excess, one
 * decrease a round trip) and TIMELY (Mittal et al., SIGCOMM 2015: faster growth after calm rounds); the least
 * delay of a round as in CoDel (RFC 8289, section 3.2); base delay after LEDBAT (RFC 6817, section 3.4.2),
 * kept at the receiver as in rLEDBAT (RFC 9840); persistent loss after RFC 9002, section 7.6. ADR 0009 says
 * why these numbers.
 *
 * Fairness: windows scale their target by their size, and slow down together from time to time to measure the
 * path without their own queue (LEDBAT++, draft-irtf-iccrg-ledbat-plus-plus); see ADR 0036.
 *
 * Pure: no clock, no memory of its own. All times are microseconds of one monotonic clock. */
#ifndef MR_WINDOW_H
#define MR_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

/* The target length of the queue. 256 KiB, a default receive window, take 210 us at 10 Gb/s, so a single
 * transfer on an idle network stays below it; it is half of the least time that a probe waits
 * (MR_PTO_GRANULARITY_US), so a queue at the target makes no probe fire; and a switch port with 1 MB of
 * buffer holds about as much at 10 to 25 Gb/s. */
#define MR_QUEUE_TARGET_US 500u

/* A window's own target is at least half of that, and larger the smaller the window is: two and a half times
 * of it for the least window, and one and a half times of it at this many segments (see mr_window_target_us).
 * Of two windows that share a link, the smaller one still grows when the larger one has to shrink, until they
 * are about equal (Swift, section 3.1, scaling with the number of flows). */
#define MR_SMALL_WINDOW_SEGMENTS 32u

#define MR_BASE_INTERVALS   10u       /* the base delay is the least of so many ... */
#define MR_BASE_INTERVAL_US 60000000u /* ... intervals of this length */
/* A long transfer slows down to the least window for MR_SLOWDOWN_ROUND_TRIPS, and does so again after
 * MR_SLOWDOWN_SHARE times that: its queue drains, and all who share the link see the path's own round trip
 * (LEDBAT++, draft-irtf-iccrg-ledbat-plus-plus, section 4.4). The first slowdown comes early, because a late
 * starter has taken the others' queue for a part of the path. */
#define MR_SLOWDOWN_ROUND_TRIPS  2u
#define MR_SLOWDOWN_SHARE        50u
#define MR_SLOWDOWN_FIRST        20u
#define MR_WINDOW_SEGMENTS_LEAST 4u
#define MR_LOSS_SEGMENTS         4u /* so many lost segments are chance, */
#define MR_LOSS_SHARE                                                                                        \
    25u /* and so is one in so many: a cable that loses 1 % stays below; more means a full buffer */
#define MR_LOSS_SEGMENTS_JUDGED 256u /* counted over so many segments, then from 0 again */
#define MR_LOSS_PERSISTENT                                                                                   \
    3u /* loss is persistent after so many probes in a row, with most of what was in flight lost */
#define MR_WINDOW_FORGET_US 10000000u /* what an unused window knows no longer holds after this time */

/* The path's own round trip: the least of the last ten minutes, so that a path that has become longer is
 * believed eventually. */
struct mr_base_delay {
    uint64_t interval;                    /* number of the current one */
    uint32_t least_us[MR_BASE_INTERVALS]; /* by interval modulo MR_BASE_INTERVALS; 0 = none */
    uint32_t base_us;
};

/* Adds a round trip of at least 1 us. Returns how much of it is queueing. */
uint32_t mr_base_delay_sample(struct mr_base_delay *base, uint64_t now_us, uint32_t rtt_us);

struct mr_window {
    uint32_t bytes; /* that may be in flight */
    uint32_t max_bytes, segment_bytes;
    uint32_t queue_us; /* the least of this round trip */
    uint32_t calm;     /* round trips in a row below the target */
    uint32_t segments, lost;
    uint64_t round_ends_us; /* 0: none has begun */
    uint64_t used_us;
    uint64_t no_decrease_before_us;
    uint64_t slowdown_us; /* when the next slowdown is due, or the current one ends; 0: not used yet */
    uint32_t kept_bytes;  /* in a slowdown: the size to return to; else 0 */
};

/* Returns the window's target for the length of the queue. */
uint32_t mr_window_target_us(const struct mr_window *w);
/* Initializes a window with its greatest size, `max_bytes`. */
void mr_window_init(struct mr_window *w, uint32_t max_bytes, uint32_t segment_bytes);
/* Adjusts the window to another length of segments. */
void mr_window_resize(struct mr_window *w, uint32_t segment_bytes);
/* Reports a packet that found a queue of `queue_us` while this direction was in use; the smoothed round trip
 * is `rtt_us`. This function and the next two return true when the window shrank. */
bool mr_window_delay(struct mr_window *w, uint64_t now_us, uint32_t rtt_us, uint32_t queue_us);
/* Reports segments that have arrived for the first time, and others that were found to be lost. Halves the
 * window when more are lost than by chance. */
bool mr_window_segments(struct mr_window *w, uint64_t now_us, uint32_t rtt_us, uint32_t arrived,
                        uint32_t lost);
/* Starts again from the least window, because nothing that was sent during several probe time-outs
 * arrived. */
bool mr_window_collapse(struct mr_window *w);

#endif
