#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "dataplane/optimizer/fixed_math.h"

#define POINTS 20000

static void test_logarithm(void **state)
{
    for (int i = 0; i < POINTS; i++) {
        double x = exp(-80 + 160.0 * i / POINTS), expected = log(x);
        assert_true(fabs(mr_fixed_log(x) - expected) <= 4e-16 * fmax(1, fabs(expected)));
    }
    assert_true(mr_fixed_log(1) == 0);
}

static void test_exponential_function(void **state)
{
    for (int i = 0; i <= POINTS; i++) {
        double x = -700 + 1400.0 * i / POINTS;
        /* the argument's reduction loses as many bits as the multiple of log 2 has */
        assert_true(fabs(mr_fixed_exp(x) / exp(x) - 1) <= 1e-15 + 4e-16 * fabs(x));
    }
    assert_true(mr_fixed_exp(0) == 1);
}

static void test_cosine(void **state)
{
    for (int i = 0; i <= POINTS; i++) {
        double t = (double)i / POINTS;
        assert_true(fabs(mr_fixed_cos_pi(t) - cos(3.14159265358979323846 * t)) <= 1e-15);
    }
    assert_true(mr_fixed_cos_pi(0.5) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logarithm),
        cmocka_unit_test(test_exponential_function),
        cmocka_unit_test(test_cosine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
