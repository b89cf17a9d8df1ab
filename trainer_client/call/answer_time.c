#include "trainer_client/call/answer_time.h"

#define NOTED_US_MIN   50u  /* shorter calls end while the driver spins anyway */
#define NEW_SHARE      4u   /* a new time counts for a quarter of the average */
#define OUTLIER_TIMES  4u   /* a time that is longer than this many averages counts as so many */
#define WATCH_US       100u /* on each side of the expected end, and an eighth of the call's time more */
#define WATCH_SHARE    8u
#define CROWDED_US_MIN 50000u
#define CROWDED_US_MAX 6400000u

static uint32_t size_of(uint32_t request_bytes)
{
    return request_bytes == 0 ? 0 : 31u - (uint32_t)__builtin_clz(request_bytes);
}

void mrc_answer_note(struct mrc_answer_times *t, uint32_t op, uint32_t request_bytes, uint64_t took_us)
{
    uint32_t *average = &t->took_us[op][size_of(request_bytes)];
    if (*average == 0) {
        if (took_us >= NOTED_US_MIN)
            *average = took_us < MRC_ANSWER_US_MAX ? (uint32_t)took_us : MRC_ANSWER_US_MAX;
        return;
    }
    uint64_t most_us = (uint64_t)OUTLIER_TIMES * *average;
    uint64_t counted_us = took_us < most_us ? took_us : most_us;
    uint64_t sum_us = (uint64_t)(NEW_SHARE - 1) * *average + counted_us;
    *average = sum_us / NEW_SHARE >= NOTED_US_MIN ? (uint32_t)(sum_us / NEW_SHARE) : 0;
}

struct mrc_answer_watch mrc_answer_watch(const struct mrc_answer_times *t, uint32_t op,
                                         uint32_t request_bytes, uint64_t sent_us)
{
    uint32_t took_us = t->took_us[op][size_of(request_bytes)];
    uint32_t around_us = WATCH_US + took_us / WATCH_SHARE;
    if (took_us == 0 || took_us >= MRC_ANSWER_US_MAX)
        return (struct mrc_answer_watch){0, 0};
    uint64_t end_us = sent_us + took_us;
    return (struct mrc_answer_watch){end_us > around_us ? end_us - around_us : 0, end_us + around_us};
}

void mrc_answer_yielded(struct mrc_answer_times *t, uint64_t now_us, uint64_t away_us)
{
    if (t->crowded_us < CROWDED_US_MIN)
        t->crowded_us = CROWDED_US_MIN;
    if (away_us <= MRC_ANSWER_YIELD_US_MAX) {
        t->crowded_us = CROWDED_US_MIN;
        return;
    }
    t->crowded_until_us = now_us + t->crowded_us;
    t->crowded_us = t->crowded_us < CROWDED_US_MAX / 2 ? 2 * t->crowded_us : CROWDED_US_MAX;
}
