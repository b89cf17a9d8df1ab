#include "tools/bench/zipf.h"

#include <math.h>
#include "tools/bench/random.h"

#define NEARLY_0 1e-8 /* below it the first two terms of a series are as exact as a double is */

/* log(1 + x) / x, and (exp(x) - 1) / x, also at 0: so that an exponent of 1 is like any other. */
static double log_ratio(double x)
{
    return fabs(x) > NEARLY_0 ? log1p(x) / x : 1 - x / 2;
}

static double exp_ratio(double x)
{
    return fabs(x) > NEARLY_0 ? expm1(x) / x : 1 + x / 2;
}

/* The integral of x^-exponent from 1, and its inverse. */
static double integral(const struct tool_zipf *z, double x)
{
    const double l = log(x);
    return exp_ratio((1 - z->exponent) * l) * l;
}

static double integral_inverse(const struct tool_zipf *z, double y)
{
    const double t = fmax(y * (1 - z->exponent), -1); /* below -1 by rounding only */
    return exp(log_ratio(t) * y);
}

void tool_zipf_init(struct tool_zipf *z, uint64_t count, double exponent)
{
    *z = (struct tool_zipf){.count = (double)count, .exponent = exponent};
    z->low = integral(z, 1.5) - 1;
    z->high = integral(z, z->count + 0.5);
    z->always = 2 - integral_inverse(z, integral(z, 2.5) - pow(2, -exponent));
}

uint64_t tool_zipf_draw(const struct tool_zipf *z, uint64_t *random)
{
    for (;;) {
        const double area = z->high + tool_random_unit(random) * (z->low - z->high);
        const double x = integral_inverse(z, area);
        const double rank = fmin(fmax(floor(x + 0.5), 1), z->count);
        if (rank - x <= z->always || area >= integral(z, rank + 0.5) - pow(rank, -z->exponent))
            return (uint64_t)rank - 1;
    }
}
