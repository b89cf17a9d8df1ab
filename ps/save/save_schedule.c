#include "ps/save/save_schedule.h"

static uint64_t multiple_above(const struct ps_save_schedule *s, uint64_t step)
{
    uint64_t next;
    if (s->every_steps == 0 || __builtin_mul_overflow(step / s->every_steps + 1, s->every_steps, &next)) {
        return UINT64_MAX;
    }
    return next;
}

void ps_save_schedule_start(struct ps_save_schedule *s, uint64_t every_steps, uint64_t every_us,
                            uint64_t step, uint64_t now_us)
{
    *s = (struct ps_save_schedule){.every_steps = every_steps, .every_us = every_us};
    ps_save_schedule_began(s, step, now_us);
}

void ps_save_schedule_began(struct ps_save_schedule *s, uint64_t step, uint64_t now_us)
{
    s->next_step = multiple_above(s, step);
    s->next_us = now_us + s->every_us;
}

bool ps_save_schedule_step_is_due(struct ps_save_schedule *s, uint64_t step)
{
    if (s->every_steps == 0) {
        return false;
    }
    uint64_t above = multiple_above(s, step);
    s->next_step = above < s->next_step ? above : s->next_step;
    return step >= s->next_step;
}

bool ps_save_schedule_time_is_due(const struct ps_save_schedule *s, uint64_t now_us)
{
    return s->every_us != 0 && now_us >= s->next_us;
}
