/* Learning rates by training step: enum mr_schedule, with a linear warm-up before it. A rate is a pure function of the descriptor
 * and the step, computed in double with ps/fixed_math.h and rounded to float once: the same bits on every node. Any thread.
 */
#ifndef PS_SCHEDULE_H
#define PS_SCHEDULE_H

#include <stdint.h>
#include "dataplane/wire/mr_feature.h"

struct ps_schedule {
    uint32_t kind; /* enum mr_schedule */
    uint32_t warmup_steps, steps;
    double start, end; /* learning rates */
    double log_ratio;  /* exponential: log(end / start) */
};

/* `feature` has passed mr_feature_check(). */
struct ps_schedule ps_schedule_of(const struct mr_feature *feature);
/* As mr_feature.h says for enum mr_schedule. */
float ps_schedule_learning_rate(const struct ps_schedule *s, uint64_t step);

#endif
