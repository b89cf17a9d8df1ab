#include "trainer_client/replay/trim.h"

/* ---- the trail ---- */

/* When the trail is full, half of the notes are dropped: the longer it is, the wider apart are its notes. */
static void trim_note(struct mrc_trail *trail, uint64_t number, uint64_t step)
{
    if (++trail->skipped < trail->skip)
        return;
    trail->skipped = 0;
    if (trail->count == MRC_TRAIL_NOTES) {
        for (uint32_t i = 0; i < MRC_TRAIL_NOTES / 2; i++) {
            trail->numbers[i] = trail->numbers[2 * i];
            trail->steps[i] = trail->steps[2 * i];
        }
        trail->count = MRC_TRAIL_NOTES / 2;
        trail->skip *= 2;
    }
    trail->numbers[trail->count] = number;
    trail->steps[trail->count++] = step;
}

/* Forgets what is above `number`. */
static void cut(struct mrc_trail *trail, uint64_t number)
{
    while (trail->count > 0 && trail->numbers[trail->count - 1] > number)
        trail->count--;
}

/* `trail` begins no later than `other`, whose notes of higher numbers it takes over. */
static void take_over(struct mrc_trail *trail, const struct mrc_trail *other)
{
    const uint64_t last = trail->numbers[trail->count - 1];
    for (uint32_t i = 0; i < other->count; i++)
        if (other->numbers[i] > last)
            trim_note(trail, other->numbers[i], other->steps[i]);
}

static struct mrc_trail trim_join(const struct mrc_trail *a, const struct mrc_trail *b)
{
    const bool a_first = b->count == 0 || (a->count > 0 && a->numbers[0] <= b->numbers[0]);
    struct mrc_trail trail = a_first ? *a : *b;
    if (trail.count > 0)
        take_over(&trail, a_first ? b : a);
    return trail;
}

/* Returns the step of the newest push noted up to `number`; of the oldest one noted if there is none. */
static uint64_t step_of(const struct mrc_trail *trail, uint64_t number)
{
    uint64_t step = trail->count > 0 ? trail->steps[0] : 0;
    for (uint32_t i = 0; i < trail->count && trail->numbers[i] <= number; i++)
        step = trail->steps[i];
    return step;
}

/* ---- what was trimmed ---- */

void mrc_trim_init(struct mrc_trim *trim)
{
    *trim = (struct mrc_trim){.trail.skip = 1};
}

void mrc_trim_add(struct mrc_trim *trim, uint64_t number, uint64_t step, uint32_t restores)
{
    if (number <= trim->to)
        return;
    trim->to = number;
    trim->to_step = step;
    trim->restores = restores;
    trim_note(&trim->trail, number, step);
}

void mrc_trim_saved(struct mrc_trim *trim, uint64_t number)
{
    if (number >= trim->given_up_to)
        trim->given_up_to = 0;
}

/* What is trimmed later was on disk with the server of that time. */
void mrc_trim_suspect(struct mrc_trim *trim)
{
    trim->is_suspect |= trim->to > 0;
}

struct mrc_loss mrc_trim_compare(struct mrc_trim *trim, uint64_t floor)
{
    const uint64_t needed_to = trim->is_suspect ? trim->to : trim->given_up_to;
    struct mrc_loss loss = {.pushes = 0};
    if (needed_to > floor)
        loss = (struct mrc_loss){.pushes = needed_to - floor,
                                 .from_step = step_of(&trim->trail, floor + 1),
                                 .to_step = trim->to_step};
    if (needed_to > floor && trim->is_suspect) {
        /* Next time it may come back from an even older one. */
        trim->to = floor;
        trim->to_step = step_of(&trim->trail, floor);
        cut(&trim->trail, floor);
    }
    trim->given_up_to = 0;
    trim->is_suspect = false;
    return loss;
}

void mrc_trim_restored(struct mrc_trim *trim, uint32_t whole)
{
    if (trim->to != 0 && trim->restores < whole)
        mrc_trim_init(trim);
}

static uint64_t higher(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

void mrc_trim_move(struct mrc_trim *to, struct mrc_trim *from)
{
    *to = (struct mrc_trim){
        .to = higher(to->to, from->to),
        .to_step = higher(to->to_step, from->to_step),
        .given_up_to = higher(to->given_up_to, from->given_up_to),
        .restores = (uint32_t)higher(to->restores, from->restores),
        .is_suspect = to->is_suspect || from->is_suspect,
        .trail = trim_join(&to->trail, &from->trail),
    };
    mrc_trim_init(from);
}
