#include "ps/row/initializer.h"

#include <assert.h>
#include <math.h>
#include <string.h>
#include "dataplane/optimizer/fixed_math.h"
#include "ps/base/key_hash.h"

/* Truncated normal: no value lies beyond two standard deviations, where the distribution function is this. */
#define NORMAL_CUT_P 0.02275013194817921

enum mr_status ps_initializer_init(const struct mr_feature *feature, struct ps_initializer *out,
                                   const char **what)
{
    switch (feature->initializer) {
    case MR_INIT_CONSTANT:
    case MR_INIT_UNIFORM:
    case MR_INIT_NORMAL:
    case MR_INIT_TRUNCATED_NORMAL:
        break;
    default:
        *what = "initializer of an unknown number";
        return MR_UNSUPPORTED;
    }
    *out = (struct ps_initializer){
        .kind = feature->initializer, .a = feature->init_a, .b = feature->init_b, .seed = feature->seed};
    return MR_OK;
}

/* splitmix64 (Steele, Lea, Flood, OOPSLA 2014), as a function of the place in its sequence. */
static inline uint64_t random_at(uint64_t start, uint64_t place)
{
    uint64_t z = start + (place + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* 32 random bits for an element: two elements share one step. */
static inline uint32_t random_bits(uint64_t start, size_t element)
{
    return (uint32_t)(random_at(start, element / 2) >> (element % 2 * 32));
}

static double ratio(const double *numerator, const double *denominator, double r)
{
    double n = numerator[7], d = denominator[7];
    for (int i = 6; i >= 0; i--) {
        n = n * r + numerator[i];
        d = d * r + denominator[i];
    }
    return n / d;
}

/* Algorithm AS 241, PPND16 (Wichura, Applied Statistics 37, 1988). */
double ps_normal_quantile(double p)
{
    static const double a[8] = {3.3871328727963666080e0,  1.3314166789178437745e+2, 1.9715909503065514427e+3,
                                1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4,
                                3.3430575583588128105e+4, 2.5090809287301226727e+3};
    static const double b[8] = {1.0,
                                4.2313330701600911252e+1,
                                6.8718700749205790830e+2,
                                5.3941960214247511077e+3,
                                2.1213794301586595867e+4,
                                3.9307895800092710610e+4,
                                2.8729085735721942674e+4,
                                5.2264952788528545610e+3};
    static const double c[8] = {1.42343711074968357734e0,  4.63033784615654529590e0,
                                5.76949722146069140550e0,  3.64784832476320460504e0,
                                1.27045825245236838258e0,  2.41780725177450611770e-1,
                                2.27238449892691845833e-2, 7.74545014278341407640e-4};
    static const double d[8] = {1.0,
                                2.05319162663775882187e0,
                                1.67638483018380384940e0,
                                6.89767334985100004550e-1,
                                1.48103976427480074590e-1,
                                1.51986665636164571966e-2,
                                5.47593808499534494600e-4,
                                1.05075007164441684324e-9};
    static const double e[8] = {6.65790464350110377720e0,  5.46378491116411436990e0,
                                1.78482653991729133580e0,  2.96560571828504891230e-1,
                                2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                2.71155556874348757815e-5, 2.01033439929228813265e-7};
    static const double f[8] = {1.0,
                                5.99832206555887937690e-1,
                                1.36929880922735805310e-1,
                                1.48753612908506148525e-2,
                                7.86869131145613259100e-4,
                                1.84631831751005468180e-5,
                                1.42151175831644588870e-7,
                                2.04426310338993978564e-15};
    assert(p > 0 && p < 1);
    double q = p - 0.5;
    if (fabs(q) <= 0.425)
        return q * ratio(a, b, 0.180625 - q * q);
    double r = sqrt(-mr_fixed_log(q < 0 ? p : 1 - p));
    double z = r <= 5 ? ratio(c, d, r - 1.6) : ratio(e, f, r - 5);
    return q < 0 ? -z : z;
}

static void fill_uniform(const struct ps_initializer *init, uint64_t start, size_t first, float *out,
                         size_t count)
{
    float low = init->a, width = init->b - init->a;
    for (size_t i = 0; i < count; i++) {
        float u = (float)(random_bits(start, first + i) >> 8) * 0x1p-24f; /* [0, 1), every value exact */
        out[i] = low + width * u;
    }
}

static void fill_normal(const struct ps_initializer *init, uint64_t start, double p_low, double p_width,
                        size_t first, float *out, size_t count)
{
    double mean = (double)init->a, deviation = (double)init->b;
    for (size_t i = 0; i < count; i++) {
        double u = ((double)random_bits(start, first + i) + 0.5) * 0x1p-32; /* (0, 1) */
        out[i] = (float)(mean + deviation * ps_normal_quantile(p_low + p_width * u));
    }
}

void ps_initializer_fill(const struct ps_initializer *init, uint64_t key, float *out, size_t count)
{
    ps_initializer_fill_from(init, key, 0, out, count);
}

void ps_initializer_fill_from(const struct ps_initializer *init, uint64_t key, size_t first, float *out,
                              size_t count)
{
    /* Not the index's hash: a row's values must not follow from its place. */
    uint64_t start = ps_key_hash(key, ~init->seed);
    switch (init->kind) {
    case MR_INIT_UNIFORM:
        fill_uniform(init, start, first, out, count);
        break;
    case MR_INIT_NORMAL:
        fill_normal(init, start, 0, 1, first, out, count);
        break;
    case MR_INIT_TRUNCATED_NORMAL:
        fill_normal(init, start, NORMAL_CUT_P, 1 - 2 * NORMAL_CUT_P, first, out, count);
        break;
    default:
        for (size_t i = 0; i < count; i++)
            out[i] = init->a;
    }
}
