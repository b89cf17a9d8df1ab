/* Which steps the pushes were of that are no longer in a replay buffer: some of them, the more rarely noted
 * the more there are. Pure. */
#ifndef MRC_TRAIL_H
#define MRC_TRAIL_H

#include <stdint.h>

#define MRC_REPLAY_TRAIL 64u

/* What is no longer here: enough numbers and steps to say which steps a loss concerns. */
struct mrc_trail {
    uint64_t numbers[MRC_REPLAY_TRAIL], steps[MRC_REPLAY_TRAIL];
    uint32_t count;
    uint64_t skip, skipped; /* every skip-th is noted */
};

/* Empty. */
void mrc_trail_init(struct mrc_trail *trail);
/* In rising order of the numbers. */
void mrc_trail_note(struct mrc_trail *trail, uint64_t number, uint64_t step);
/* Forgets what is above `number`. */
void mrc_trail_cut(struct mrc_trail *trail, uint64_t number);
/* Of the newest push noted up to `number`; of the oldest noted where there is none. */
uint64_t mrc_trail_step(const struct mrc_trail *trail, uint64_t number);

#endif
