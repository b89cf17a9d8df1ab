#include "ps/core/step_clock.h"

void ps_step_clock_set(struct ps_step_clock *clock, uint64_t step)
{
    *clock = (struct ps_step_clock){.step = step, .ignored = clock->ignored};
}

static void forget_far(struct ps_step_clock *clock)
{
    clock->ignored += clock->far_count;
    clock->far_count = 0;
}

static bool is_sent_again(const struct ps_step_clock *clock, uint64_t session_id, uint64_t call_id)
{
    return clock->far_count > 0 && clock->session_id == session_id && clock->call_id == call_id;
}

static void count_far(struct ps_step_clock *clock, uint64_t step, bool is_ahead)
{
    if (clock->far_count == 0 || clock->is_far_ahead != is_ahead) {
        forget_far(clock);
        clock->far_step = step;
        clock->is_far_ahead = is_ahead;
    }
    bool is_nearer = is_ahead ? step < clock->far_step : step > clock->far_step;
    clock->far_step = is_nearer ? step : clock->far_step;
    if (++clock->far_count >= (is_ahead ? PS_STEPS_AHEAD : PS_STEPS_BEHIND))
        ps_step_clock_set(clock, clock->far_step);
}

static bool is_near(const struct ps_step_clock *clock, uint64_t step)
{
    return (step > clock->step ? step - clock->step : clock->step - step) <= PS_STEP_NEAR;
}

void ps_step_clock_hold(struct ps_step_clock *clock, uint64_t step)
{
    if (is_near(clock, step))
        forget_far(clock);
}

void ps_step_clock_see(struct ps_step_clock *clock, uint64_t step, uint64_t session_id, uint64_t call_id)
{
    if (step == 0)
        return;
    bool is_ahead = step > clock->step;
    if (is_near(clock, step)) {
        forget_far(clock);
        clock->step = is_ahead ? step : clock->step;
        return;
    }
    if (!is_sent_again(clock, session_id, call_id)) {
        clock->session_id = session_id;
        clock->call_id = call_id;
        count_far(clock, step, is_ahead);
    }
}
