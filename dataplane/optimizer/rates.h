/* Learning rates by training step: enum mr_schedule, with a linear warm-up before it. A rate is a pure
 * function of the descriptor and the step, computed in double with fixed_math.h and rounded to float once:
 * the same bits on every node. Any thread.
 */
#ifndef MR_RATES_H
#define MR_RATES_H

#include <stdint.h>
#include "dataplane/wire/format/mr_feature.h"

struct mr_rates {
    uint32_t kind; /* enum mr_schedule */
    uint32_t warmup_steps, steps;
    double start, end; /* learning rates */
    double log_ratio;  /* exponential: log(end / start) */
};

/* `feature` has passed mr_feature_check(). */
struct mr_rates mr_rates_of(const struct mr_feature *feature);
/* As mr_feature.h says for enum mr_schedule. */
float mr_rates_at(const struct mr_rates *s, uint64_t step);

#endif
