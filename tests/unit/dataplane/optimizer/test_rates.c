#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>
#include "dataplane/optimizer/rates.h"
#include "tests/test.h"

#define PI_VALUE 3.14159265358979323846

static struct mr_feature scheduled(uint32_t kind, uint32_t warmup, uint32_t steps, float start, float end)
{
    struct mr_feature f = mr_feature_table("t", 4);
    f.schedule = kind;
    f.schedule_warmup_steps = warmup;
    f.schedule_steps = steps;
    f.learning_rate = start;
    f.learning_rate_end = end;
    assert_null(mr_feature_check(&f));
    return f;
}

/* The definition in mr_feature.h, with the C library's functions. */
static double expected_rate(const struct mr_feature *f, uint64_t step)
{
    double start = (double)f->learning_rate, end = (double)f->learning_rate_end;
    double warm = f->schedule_warmup_steps;
    if (step < f->schedule_warmup_steps)
        return start * ((double)step + 1) / warm;
    if (f->schedule == MR_SCHEDULE_CONSTANT)
        return start;
    double t = fmin(1, ((double)step - warm) / f->schedule_steps);
    if (f->schedule == MR_SCHEDULE_LINEAR)
        return start + (end - start) * t;
    if (f->schedule == MR_SCHEDULE_COSINE)
        return end + (start - end) * 0.5 * (1 + cos(PI_VALUE * t));
    return start * pow(end / start, t);
}

static void compare(const struct mr_feature *f)
{
    struct mr_rates s = mr_rates_of(f);
    uint64_t last = (uint64_t)f->schedule_warmup_steps + f->schedule_steps + 3;
    for (uint64_t step = 0; step < last; step++) {
        double expected = expected_rate(f, step);
        float rate = mr_rates_at(&s, step);
        /* rounded to float once; near a cosine's end what is left of the start cancels */
        assert_true(fabs((double)rate - expected) <=
                    expected * (double)FLT_EPSILON / 2 + 1e-15 * (double)f->learning_rate);
    }
}

TEST(test_rates_are_as_defined)
{
    for (uint32_t kind = MR_SCHEDULE_CONSTANT; kind <= MR_SCHEDULE_EXPONENTIAL; kind++)
        for (uint32_t warmup = 0; warmup < 30; warmup += 13) {
            bool constant = kind == MR_SCHEDULE_CONSTANT;
            struct mr_feature f = scheduled(kind, warmup, constant ? 0 : 1000, 0.3f, constant ? 0.0f : 1e-5f);
            compare(&f);
            f = scheduled(kind, warmup, constant ? 0 : 7, 0.01f, constant ? 0.0f : 2.0f);
            compare(&f);
        }
}

TEST(test_ends_are_exact)
{
    for (uint32_t kind = MR_SCHEDULE_LINEAR; kind <= MR_SCHEDULE_EXPONENTIAL; kind++) {
        struct mr_feature f = scheduled(kind, 10, 100, 0.3f, 0.007f);
        struct mr_rates s = mr_rates_of(&f);
        assert_true(mr_rates_at(&s, 9) == 0.3f);
        assert_true(mr_rates_at(&s, 10) == 0.3f);
        assert_true(mr_rates_at(&s, 110) == 0.007f);
        assert_true(mr_rates_at(&s, UINT64_MAX) == 0.007f);
    }
}

/* These bits were computed once; every build must find them. */
TEST(test_bits_are_fixed)
{
    static const struct {
        uint64_t step;
        uint32_t kind, bits;
    } fixed[] = {
        {3, MR_SCHEDULE_LINEAR, 0x3da3d70a},        {334, MR_SCHEDULE_LINEAR, 0x3d8a1837},
        {665, MR_SCHEDULE_LINEAR, 0x3d0df7a5},      {334, MR_SCHEDULE_COSINE, 0x3d9b4d6e},
        {665, MR_SCHEDULE_COSINE, 0x3cda57cc},      {996, MR_SCHEDULE_COSINE, 0x3a85aa4d},
        {334, MR_SCHEDULE_EXPONENTIAL, 0x3cb40c77}, {665, MR_SCHEDULE_EXPONENTIAL, 0x3b9cd667},
        {996, MR_SCHEDULE_EXPONENTIAL, 0x3a889e5f},
    };
    for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++) {
        struct mr_feature f = scheduled(fixed[i].kind, 5, 1000, 0.1f, 0.001f);
        struct mr_rates s = mr_rates_of(&f);
        float rate = mr_rates_at(&s, fixed[i].step);
        uint32_t bits;
        memcpy(&bits, &rate, sizeof(bits));
        assert_int_equal(bits, fixed[i].bits);
    }
}
