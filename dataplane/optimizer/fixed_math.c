#include "dataplane/optimizer/fixed_math.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

#define LOG_2     0.69314718055994530942
#define PI        3.14159265358979323846
#define BIAS      1023 /* of a double's exponent */
#define EXP_TERMS 14   /* |r| <= log 2 / 2: the next term is below 1e-18 */
#define SIN_TERMS 23   /* |x| <= pi / 2: the next term is below 1e-20 */

/* log x = exponent * log 2 + 2 artanh((m - 1) / (m + 1)) with the mantissa m in [sqrt 1/2, sqrt 2). */
double mr_fixed_log(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    int exponent = (int)(bits >> 52) - BIAS;
    bits = (bits & 0xfffffffffffffu) | (uint64_t)BIAS << 52;
    double m;
    memcpy(&m, &bits, sizeof(m));
    if (m > 1.4142135623730951) {
        m *= 0.5;
        exponent++;
    }
    double s = (m - 1) / (m + 1);
    double s2 = s * s;
    double sum = 0;
    for (int k = 21; k >= 1; k -= 2) /* |s| < 0.1716: the next term is below 1e-18 */
        sum = sum * s2 + 1.0 / k;
    return exponent * LOG_2 + 2 * s * sum;
}

/* e^x = 2^n e^r with |r| <= log 2 / 2, and the series of e^r. */
double mr_fixed_exp(double x)
{
    assert(x >= -700 && x <= 700);
    int n = (int)(x / LOG_2 + (x < 0 ? -0.5 : 0.5));
    double r = x - n * LOG_2;
    double sum = 1;
    for (int k = EXP_TERMS; k >= 1; k--)
        sum = 1 + sum * r / k;
    uint64_t bits = (uint64_t)(n + BIAS) << 52;
    double power;
    memcpy(&power, &bits, sizeof(power));
    return power * sum;
}

/* cos(pi t) = sin(pi (1/2 - t)), and the series of the sine. */
double mr_fixed_cos_pi(double t)
{
    assert(t >= 0 && t <= 1);
    double x = PI * (0.5 - t);
    double x2 = x * x;
    double sum = 1;
    for (int k = SIN_TERMS; k >= 3; k -= 2)
        sum = 1 - sum * x2 / (k * (k - 1));
    return x * sum;
}
