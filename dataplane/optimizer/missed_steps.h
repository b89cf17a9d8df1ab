/* Dense optimizers: each row goes through each step, as in torch, where an embedding is one parameter with a
 * gradient for all of its rows (nn.EmbeddingBag with sparse=False). In steps that have no gradient for a row,
 * it is 0: momentum and moments go on moving values and decay, and weight decay applies.
 *
 * A row knows the last step that it went through, and goes through those that it has missed when somebody
 * wants it: with gradients of 0, and with the learning rates that these steps had. Once its momentum is gone,
 * nothing is left to do but for weight decay. Of more than MR_MISSED_STEPS_MAX missed steps, those after the
 * first so many do not change values, so that no row takes long. A row's state is that of
 * mr_rule_state_floats(), of which the last is that step, a u32; from 2^32 on, no step is missed.
 */
#ifndef MR_MISSED_STEPS_H
#define MR_MISSED_STEPS_H

#include <stddef.h>
#include <stdint.h>
#include "dataplane/optimizer/rule.h"

#define MR_MISSED_STEPS_MAX 4096u

/* The learning rates of the last steps. One thread. */
struct mr_step_rates {
    uint64_t last;  /* step that a rate is known of; 0: none is */
    uint32_t count; /* of them and those before, in a row */
    float rates[MR_MISSED_STEPS_MAX];
};

/* A push of step `step`, from 1 on, had this rate, whatever others of that step had. Steps in between that
 * had none get it, too, or, if it is the schedule's, what the schedule has for them. A step further back than
 * there are rates begins again with its own. */
void mr_step_rates_note(struct mr_step_rates *r, const struct mr_rates *schedule, uint64_t step, float rate);
/* What step `step` had; where that is not known, what the nearest step had that is: or, if that was the
 * schedule's, what the schedule has. */
float mr_step_rates_at(const struct mr_step_rates *r, const struct mr_rates *schedule, uint64_t step);

/* A row of a dense optimizer goes through the steps up to `step` that it has not gone through yet. Returns
 * how often the optimizer ran for it. */
uint32_t mr_rule_catch_up(const struct mr_rule *o, const struct mr_step_rates *rates, uint64_t step,
                          float *values, float *state, size_t count);
/* It has gone through that step, which had a gradient for it, or has been set to what it is then. */
void mr_rule_went_through(const struct mr_rule *o, uint64_t step, float *state, size_t count);

#endif
