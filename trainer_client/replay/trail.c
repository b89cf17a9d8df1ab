#include "trainer_client/replay/trail.h"

void mrc_trail_init(struct mrc_trail *trail)
{
    *trail = (struct mrc_trail){.skip = 1};
}

/* Half of the notes go when the trail is full: the steps that it tells are the wider apart the longer it
 * is. */
void mrc_trail_note(struct mrc_trail *trail, uint64_t number, uint64_t step)
{
    if (++trail->skipped < trail->skip)
        return;
    trail->skipped = 0;
    if (trail->count == MRC_REPLAY_TRAIL) {
        for (uint32_t i = 0; i < MRC_REPLAY_TRAIL / 2; i++) {
            trail->numbers[i] = trail->numbers[2 * i];
            trail->steps[i] = trail->steps[2 * i];
        }
        trail->count = MRC_REPLAY_TRAIL / 2;
        trail->skip *= 2;
    }
    trail->numbers[trail->count] = number;
    trail->steps[trail->count++] = step;
}

void mrc_trail_cut(struct mrc_trail *trail, uint64_t number)
{
    while (trail->count > 0 && trail->numbers[trail->count - 1] > number)
        trail->count--;
}

uint64_t mrc_trail_step(const struct mrc_trail *trail, uint64_t number)
{
    uint64_t step = trail->count > 0 ? trail->steps[0] : 0;

    for (uint32_t i = 0; i < trail->count && trail->numbers[i] <= number; i++)
        step = trail->steps[i];
    return step;
}
