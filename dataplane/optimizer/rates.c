#include "dataplane/optimizer/rates.h"

#include "dataplane/optimizer/fixed_math.h"

struct mr_rates mr_rates_of(const struct mr_feature *feature)
{
    struct mr_rates s = {.kind = feature->schedule,
                         .warmup_steps = feature->schedule_warmup_steps,
                         .steps = feature->schedule_steps,
                         .start = (double)feature->learning_rate,
                         .end = (double)feature->learning_rate_end};
    if (s.kind == MR_SCHEDULE_EXPONENTIAL)
        s.log_ratio = mr_fixed_log(s.end / s.start);
    return s;
}

static double rate_at(const struct mr_rates *s, double t)
{
    double share; /* of `start` */
    switch (s->kind) {
    case MR_SCHEDULE_LINEAR:
        share = 1 - t;
        break;
    case MR_SCHEDULE_COSINE:
        share = 0.5 * (1 + mr_fixed_cos_pi(t));
        break;
    default: /* MR_SCHEDULE_EXPONENTIAL */
        return s->start * mr_fixed_exp(s->log_ratio * t);
    }
    return s->start * share + s->end * (1 - share);
}

float mr_rates_at(const struct mr_rates *s, uint64_t step)
{
    if (step < s->warmup_steps)
        return (float)(s->start * (double)(step + 1) / (double)s->warmup_steps);
    if (s->kind == MR_SCHEDULE_CONSTANT)
        return (float)s->start;
    step -= s->warmup_steps;
    if (step >= s->steps)
        return (float)s->end;
    return (float)rate_at(s, (double)step / (double)s->steps);
}
