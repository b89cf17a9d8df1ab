#include "dataplane/optimizer/missed_steps.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ---- rates ---- */

/* Of a step that has none of its own: `rate` is that of the nearest one that has. */
static float rate_between(const struct mr_rates *schedule, uint64_t step, uint64_t nearest, float rate)
{
    return rate == mr_rates_at(schedule, nearest) ? mr_rates_at(schedule, step) : rate;
}

static void note_late(struct mr_step_rates *r, uint64_t step, float rate)
{
    const uint64_t behind = r->last - step;
    if (behind >= MR_MISSED_STEPS_MAX)
        *r = (struct mr_step_rates){.last = step, .count = 1};
    if (behind < r->count || r->last == step)
        r->rates[step % MR_MISSED_STEPS_MAX] = rate;
}

void mr_step_rates_note(struct mr_step_rates *r, const struct mr_rates *schedule, uint64_t step, float rate)
{
    if (step <= r->last) {
        note_late(r, step, rate);
        return;
    }
    const uint64_t more = r->count == 0 ? 1 : step - r->last;
    r->rates[step % MR_MISSED_STEPS_MAX] = rate;
    for (uint64_t i = 1; i < more && i < MR_MISSED_STEPS_MAX; i++)
        r->rates[(step - i) % MR_MISSED_STEPS_MAX] = rate_between(schedule, step - i, step, rate);
    r->count = more < MR_MISSED_STEPS_MAX - r->count ? r->count + (uint32_t)more : MR_MISSED_STEPS_MAX;
    r->last = step;
}

float mr_step_rates_at(const struct mr_step_rates *r, const struct mr_rates *schedule, uint64_t step)
{
    if (r->count == 0)
        return mr_rates_at(schedule, step);
    const uint64_t first = r->last - r->count + 1;
    const uint64_t nearest = step > r->last ? r->last : step < first ? first : step;
    const float rate = r->rates[nearest % MR_MISSED_STEPS_MAX];
    return nearest == step ? rate : rate_between(schedule, step, nearest, rate);
}

/* ---- rows ---- */

static float *last_step_of(const struct mr_rule *o, float *state, size_t count)
{
    return state + mr_rule_state_floats(o, count) - 1;
}

void mr_rule_went_through(const struct mr_rule *o, uint64_t step, float *state, size_t count)
{
    uint32_t is, now = step < UINT32_MAX ? (uint32_t)step : UINT32_MAX;
    memcpy(&is, last_step_of(o, state, count), sizeof(is));
    if (now > is)
        memcpy(last_step_of(o, state, count), &now, sizeof(now));
}

/* Whether steps without a gradient will not change values any more. */
static bool is_at_rest(const struct mr_rule *o, const float *state, size_t count)
{
    if (o->weight_decay > 0 || o->decoupled_decay > 0)
        return false;
    const bool has_momentum = o->kind == MR_OPT_MOMENTUM || o->kind == MR_OPT_ADAM || o->kind == MR_OPT_ADAMW;
    for (size_t i = 0; i < count && has_momentum; i++) /* velocity, and m of both Adams */
        if (fabsf(state[i]) >= FLT_MIN)
            return false;
    return true;
}

static void scale(float *x, double factor, size_t count)
{
    for (size_t i = 0; i < count; i++)
        x[i] = (float)((double)x[i] * factor);
}

/* The state of a row after more steps that do not change values. */
static void state_skip(const struct mr_rule *o, uint64_t steps, float *state, size_t count)
{
    if (o->kind == MR_OPT_MOMENTUM)
        scale(state, pow((double)o->momentum, (double)steps), count);
    if (o->kind != MR_OPT_ADAM && o->kind != MR_OPT_ADAMW)
        return;
    uint32_t updates;
    scale(state, pow((double)o->beta1, (double)steps), count);
    scale(state + count, pow((double)o->beta2, (double)steps), count);
    memcpy(&updates, state + 2 * count, sizeof(updates));
    updates = steps < UINT32_MAX - updates ? updates + (uint32_t)steps : UINT32_MAX;
    memcpy(state + 2 * count, &updates, sizeof(updates));
}

uint32_t mr_rule_catch_up(const struct mr_rule *o, const struct mr_step_rates *rates, uint64_t step,
                          float *values, float *state, size_t count)
{
    static const float zeros[MR_DIM_MAX];
    const float *const gradient = zeros;
    uint32_t last;
    memcpy(&last, last_step_of(o, state, count), sizeof(last));
    if (step > UINT32_MAX)
        step = UINT32_MAX;
    if (step <= last)
        return 0;
    const uint64_t end = step - last > MR_MISSED_STEPS_MAX ? last + MR_MISSED_STEPS_MAX : step;
    uint64_t at = last;
    do {
        at++;
        const struct mr_rule_push push = {.learning_rate = mr_step_rates_at(rates, &o->schedule, at),
                                          .step = at};
        (void)mr_rule_apply(o, &push, &values, &state, &gradient, 1, count);
    } while (at < end && !is_at_rest(o, state, count));
    if (at < step)
        state_skip(o, step - at, state, count);
    mr_rule_went_through(o, step, state, count);
    return (uint32_t)(at - last);
}
