#include "dataplane/wire/call/window.h"

#include <string.h>

/* The share of the excess delay by which the window shrinks: 4/5, like Swift's beta. */
#define DECREASE_NUMERATOR   4u
#define DECREASE_DENOMINATOR 5u
#define DECREASE_MOST        2u /* at most to 1/2 at once */

uint32_t mr_base_delay_sample(struct mr_base_delay *base, uint64_t now_us, uint32_t rtt_us)
{
    uint64_t interval = now_us / MR_BASE_INTERVAL_US;
    uint64_t passed = interval - base->interval;
    uint32_t *least = &base->least_us[interval % MR_BASE_INTERVALS];
    if (passed >= MR_BASE_INTERVALS)
        memset(base->least_us, 0, sizeof(base->least_us));
    for (uint64_t i = 1; i <= passed && i < MR_BASE_INTERVALS; i++)
        base->least_us[(base->interval + i) % MR_BASE_INTERVALS] = 0;
    base->interval = interval;
    if (*least == 0 || rtt_us < *least)
        *least = rtt_us;
    if (passed > 0 || base->base_us == 0 || rtt_us < base->base_us) {
        base->base_us = *least;
        for (uint32_t i = 0; i < MR_BASE_INTERVALS; i++)
            if (base->least_us[i] != 0 && base->least_us[i] < base->base_us)
                base->base_us = base->least_us[i];
    }
    return rtt_us - base->base_us;
}

void mr_window_init(struct mr_window *w, uint32_t max_bytes, uint32_t segment_bytes)
{
    uint32_t least_bytes = MR_WINDOW_SEGMENTS_LEAST * segment_bytes;
    memset(w, 0, sizeof(*w));
    w->segment_bytes = segment_bytes;
    w->max_bytes = max_bytes > least_bytes ? max_bytes : least_bytes;
    w->bytes = w->max_bytes;
}

void mr_window_resize(struct mr_window *w, uint32_t segment_bytes)
{
    uint32_t least_bytes = MR_WINDOW_SEGMENTS_LEAST * segment_bytes;
    w->segment_bytes = segment_bytes;
    if (w->max_bytes < least_bytes)
        w->max_bytes = least_bytes;
    if (w->bytes < least_bytes)
        w->bytes = least_bytes;
}

static bool shrink(struct mr_window *w, uint64_t now_us, uint32_t round_us, uint64_t by_bytes)
{
    uint32_t least_bytes = MR_WINDOW_SEGMENTS_LEAST * w->segment_bytes;
    w->calm = 0;
    w->segments = 0;
    w->lost = 0;
    if (now_us < w->no_decrease_before_us || w->bytes == least_bytes)
        return false;
    w->no_decrease_before_us = now_us + round_us;
    uint32_t room_bytes = w->bytes - least_bytes;
    w->bytes -= by_bytes < room_bytes ? (uint32_t)by_bytes : room_bytes;
    return true;
}

static void window_grow(struct mr_window *w)
{
    w->calm++;
    uint64_t step_bytes = (uint64_t)w->calm * w->segment_bytes;
    uint32_t room_bytes = w->max_bytes - w->bytes;
    w->bytes += step_bytes < room_bytes ? (uint32_t)step_bytes : room_bytes;
}

uint32_t mr_window_target_us(const struct mr_window *w)
{
    uint32_t segments = w->bytes / w->segment_bytes;
    return MR_QUEUE_TARGET_US / 2 + 2 * MR_QUEUE_TARGET_US * MR_SMALL_WINDOW_SEGMENTS /
                                        (MR_SMALL_WINDOW_SEGMENTS - MR_WINDOW_SEGMENTS_LEAST + segments);
}

static bool judge(struct mr_window *w, uint64_t now_us, uint32_t round_us)
{
    uint32_t queue_us = w->queue_us, target_us = mr_window_target_us(w);
    if (queue_us <= target_us) {
        window_grow(w);
        return false;
    }
    uint64_t by_bytes = (uint64_t)w->bytes * DECREASE_NUMERATOR * (queue_us - target_us) /
                        ((uint64_t)DECREASE_DENOMINATOR * queue_us);
    uint64_t most_bytes = w->bytes / DECREASE_MOST;
    return shrink(w, now_us, round_us, by_bytes < most_bytes ? by_bytes : most_bytes);
}

/* A round is longer than a round trip by the target: a queue that outlasts it is a standing queue. */
static uint32_t round_us_of(uint32_t rtt_us)
{
    return rtt_us + MR_QUEUE_TARGET_US;
}

/* Returns a time that is not too soon, at a multiple of about `every_us`. Longer steps are multiples of
 * shorter ones, so all sessions of one clock slow down at the same time, and measure only others' queues. */
static uint64_t next_step_us(uint64_t now_us, uint64_t every_us)
{
    uint32_t bits = 64 - (uint32_t)__builtin_clzll(every_us | 1);
    return (((now_us + every_us / 2) >> bits) + 1) << bits;
}

/* Begins or ends a slowdown when that is due. Returns true while it lasts: the queue does not reflect the
 * window then. */
static bool slows_down(struct mr_window *w, uint64_t now_us, uint32_t rtt_us)
{
    uint32_t least_bytes = MR_WINDOW_SEGMENTS_LEAST * w->segment_bytes;
    uint64_t lasts_us = MR_SLOWDOWN_ROUND_TRIPS * (uint64_t)rtt_us;
    bool paused = now_us - w->used_us > lasts_us + MR_QUEUE_TARGET_US;
    if (w->kept_bytes == 0 &&
        (paused || w->bytes == least_bytes)) /* a pause or the least window is as good as a slowdown */
        w->slowdown_us = next_step_us(now_us, MR_SLOWDOWN_FIRST * (lasts_us + MR_QUEUE_TARGET_US));
    if (now_us < w->slowdown_us)
        return w->kept_bytes != 0;
    if (w->kept_bytes == 0) {
        w->kept_bytes = w->bytes;
        w->bytes = least_bytes;
        w->slowdown_us = now_us + lasts_us;
        return true;
    }
    w->bytes = w->kept_bytes;
    w->kept_bytes = 0;
    w->round_ends_us = 0;
    w->slowdown_us = next_step_us(now_us, MR_SLOWDOWN_SHARE * lasts_us);
    return false;
}

bool mr_window_delay(struct mr_window *w, uint64_t now_us, uint32_t rtt_us, uint32_t queue_us)
{
    uint32_t round_us = round_us_of(rtt_us);
    bool shrank = false;
    if (now_us - w->used_us >= MR_WINDOW_FORGET_US)
        mr_window_init(w, w->max_bytes, w->segment_bytes);
    if (slows_down(w, now_us, rtt_us)) {
        w->used_us = now_us;
        return false;
    }
    if (w->round_ends_us > now_us) {
        queue_us = queue_us < w->queue_us ? queue_us : w->queue_us;
    } else {
        shrank = w->round_ends_us != 0 && judge(w, now_us, round_us);
        w->round_ends_us = now_us + round_us;
    }
    w->queue_us = queue_us;
    w->used_us = now_us;
    return shrank;
}

bool mr_window_segments(struct mr_window *w, uint64_t now_us, uint32_t rtt_us, uint32_t arrived,
                        uint32_t lost)
{
    w->segments += arrived + lost;
    w->lost += lost;
    if (lost > 0 && w->lost > MR_LOSS_SEGMENTS && w->lost > w->segments / MR_LOSS_SHARE)
        return shrink(w, now_us, round_us_of(rtt_us), w->bytes / DECREASE_MOST);
    if (w->segments >= MR_LOSS_SEGMENTS_JUDGED) {
        w->segments = 0;
        w->lost = 0;
    }
    return false;
}

bool mr_window_collapse(struct mr_window *w)
{
    bool shrank = shrink(w, w->no_decrease_before_us, 0, w->bytes);
    w->kept_bytes = 0;
    return shrank;
}
