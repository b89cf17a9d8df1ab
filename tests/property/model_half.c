/* Numbers of 16 bits, by their value and not by their bits. Only where the random bits come from is the
 * table's own. */
#include <math.h>
#include "model.h"
#include "dataplane/optimizer/rounding.h"

/* What a type of 16 bits is made of. */
struct half_type {
    int mantissa_bits; /* without the leading one */
    int exponent_min;  /* of normal numbers */
    double largest;
    int random_bits; /* of the 16, that normal numbers are rounded by */
};
static const struct half_type f16 = {10, -14, 65504.0, 13};
static const struct half_type bf16 = {7, -126, 0x1.fep127, 16};

static const struct half_type *type_of(const struct model *m)
{
    return m->feature.dtype == MR_F16 ? &f16 : &bf16;
}

static int exponent_of(const struct half_type *t, double magnitude)
{
    int exponent;
    (void)frexp(magnitude, &exponent);
    return exponent - 1 < t->exponent_min ? t->exponent_min : exponent - 1;
}

/* The lower neighbour, or the upper one if the rest, in fractions of the step between them, and the random
 * bits make one. */
static float round_by(const struct half_type *t, float x, uint32_t random)
{
    double magnitude = fabs((double)x);
    if (!isfinite(x))
        return x;
    int exponent = exponent_of(t, magnitude);
    double steps = ldexp(magnitude, t->mantissa_bits - exponent);
    bool is_denormal = magnitude < ldexp(1, t->exponent_min);
    int bits = is_denormal ? 16 : t->random_bits;
    double rest = floor(ldexp(steps - floor(steps), bits)); /* what lies below the last bit is cut off */
    double up = rest + (double)(random >> (16 - bits)) >= ldexp(1, bits) ? 1 : 0;
    double rounded = ldexp(floor(steps) + up, exponent - t->mantissa_bits);
    return copysignf((float)fmin(rounded, t->largest), x);
}

void model_round(const struct model *m, struct model_row *row)
{
    uint64_t seed = mr_rounding_seed(mr_key_hash(row->key, m->feature.seed), row->updates++);
    for (uint32_t i = 0; i < m->dim; i++)
        row->floats[i] = round_by(type_of(m), row->floats[i], mr_rounding_bits(seed, i));
}

bool model_holds(const struct model *m, const float *values)
{
    for (uint32_t i = 0; i < m->dim; i++)
        if (fabs((double)values[i]) > type_of(m)->largest)
            return false;
    return true;
}

void model_set(const struct model *m, struct model_row *row)
{
    row->updates++;
    model_nearest(m, row->floats);
}

void model_nearest(const struct model *m, float *values)
{
    const struct half_type *t = type_of(m);
    for (uint32_t i = 0; i < m->dim; i++) {
        double magnitude = fabs((double)values[i]);
        int exponent = exponent_of(t, magnitude);
        double rounded =
            ldexp(rint(ldexp(magnitude, t->mantissa_bits - exponent)), exponent - t->mantissa_bits);
        values[i] = copysignf((float)fmin(rounded, t->largest), values[i]);
    }
}
