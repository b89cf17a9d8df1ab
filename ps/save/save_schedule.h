/* When the next automatic checkpoint is due: every so many steps, or every so many seconds, or both. Pure;
 * one thread.
 *
 * Steps are those of ps/core/step_clock.h, over the node. Each checkpoint, asked for or automatic, is where
 * both count from. One that takes longer than the interval is followed by one more, however many were due
 * meanwhile.
 */
#ifndef PS_SAVE_SCHEDULE_H
#define PS_SAVE_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

struct ps_save_schedule {
    uint64_t every_steps, every_us; /* 0: off */
    uint64_t next_step;             /* the next multiple of every_steps */
    uint64_t next_us;
};

void ps_save_schedule_start(struct ps_save_schedule *s, uint64_t every_steps, uint64_t every_us,
                            uint64_t step, uint64_t now_us);
static inline bool ps_save_schedule_is_on(const struct ps_save_schedule *s)
{
    return s->every_steps != 0 || s->every_us != 0;
}
/* A checkpoint has begun at this step and time, or the node holds another state. */
void ps_save_schedule_began(struct ps_save_schedule *s, uint64_t step, uint64_t now_us);
/* Steps may fall: a training begins anew. */
bool ps_save_schedule_step_is_due(struct ps_save_schedule *s, uint64_t step);
bool ps_save_schedule_time_is_due(const struct ps_save_schedule *s, uint64_t now_us);

#endif
