#include <math.h>
#include "dataplane/optimizer/fixed_math.h"
#include "tests/test.h"

#define POINTS 20000

TEST(test_logarithm)
{
    for (int i = 0; i < POINTS; i++) {
        double x = exp(-80 + 160.0 * i / POINTS), expected = log(x);
        assert_true(fabs(mr_fixed_log(x) - expected) <= 4e-16 * fmax(1, fabs(expected)));
    }
    assert_true(mr_fixed_log(1) == 0);
}

TEST(test_exponential_function)
{
    for (int i = 0; i <= POINTS; i++) {
        double x = -700 + 1400.0 * i / POINTS;
        /* the argument's reduction loses as many bits as the multiple of log 2 has */
        assert_true(fabs(mr_fixed_exp(x) / exp(x) - 1) <= 1e-15 + 4e-16 * fabs(x));
    }
    assert_true(mr_fixed_exp(0) == 1);
}

TEST(test_cosine)
{
    for (int i = 0; i <= POINTS; i++) {
        double t = (double)i / POINTS;
        assert_true(fabs(mr_fixed_cos_pi(t) - cos(3.14159265358979323846 * t)) <= 1e-15);
    }
    assert_true(mr_fixed_cos_pi(0.5) == 0);
}
