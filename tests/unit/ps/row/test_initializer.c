#include <math.h>
#include <string.h>
#include "ps/row/initializer.h"
#include "tests/test.h"

#define COUNT 200000u

static struct ps_initializer initializer_make(uint32_t kind, float a, float b, uint64_t seed)
{
    struct mr_feature f = mr_feature_table("t", 4);
    f.initializer = kind;
    f.init_a = a;
    f.init_b = b;
    f.seed = seed;
    struct ps_initializer init;
    const char *what = NULL;
    assert_int_equal(ps_initializer_init(&f, &init, &what), MR_OK);
    return init;
}

TEST(test_an_unknown_kind_is_refused_by_name)
{
    struct mr_feature f = mr_feature_table("t", 4);
    struct ps_initializer init;
    const char *what = NULL;
    f.initializer = 99;
    assert_int_equal(ps_initializer_init(&f, &init, &what), MR_UNSUPPORTED);
    assert_non_null(strstr(what, "initializer"));
}

TEST(test_constant)
{
    struct ps_initializer init = initializer_make(MR_INIT_CONSTANT, 0.25f, 0, 1);
    float out[5] = {0};
    ps_initializer_fill(&init, 77, out, 5);
    for (uint32_t i = 0; i < 5; i++)
        assert_true(out[i] == 0.25f);
}

/* Computed by an independent implementation: Python, with statistics.NormalDist. A change here would give the
 * keys of every running system other values. */
TEST(test_golden_values)
{
    static const struct {
        uint64_t key, seed;
        float uniform[4], normal[4], truncated[4];
    } golden[] = {
        {0,
         7,
         {-0x1.88ebf6p-5f, 0x1.7fe6p-9f, -0x1.7046p-6f, -0x1.752ebep-5f},
         {-0x1.4f47a2p-6f, 0x1.814346p-11f, -0x1.874f06p-8f, -0x1.16b88ap-6f},
         {0x1.18ae8ep-3f, 0x1.08fa26p+0f, 0x1.6eeb3ap-1f, 0x1.f307c2p-3f}},
        {UINT64_MAX,
         7,
         {0x1.638484p-6f, -0x1.6cdb06p-6f, -0x1.ca7d8p-8f, -0x1.14a9ecp-5f},
         {0x1.7820a4p-8f, -0x1.833878p-8f, -0x1.ce1674p-10f, -0x1.42d032p-7f},
         {0x1.45c206p+0f, 0x1.706aaep-1f, 0x1.d4f28ap-1f, 0x1.135b54p-1f}},
        {123456789,
         0,
         {0x1.59bd4ap-5f, 0x1.b47018p-7f, -0x1.9866p-5f, -0x1.05c3p-7f},
         {0x1.d0f74cp-7f, 0x1.be0ebep-9f, -0x1.e75ca8p-6f, -0x1.083c12p-9f},
         {0x1.a62222p+0f, 0x1.29816ap+0f, 0x1.9e3d6p-7f, 0x1.cec50ep-1f}},
    };
    for (uint32_t i = 0; i < sizeof(golden) / sizeof(golden[0]); i++) {
        float out[4];
        struct ps_initializer init = initializer_make(MR_INIT_UNIFORM, -0.05f, 0.05f, golden[i].seed);
        ps_initializer_fill(&init, golden[i].key, out, 4);
        assert_memory_equal(out, golden[i].uniform, sizeof(out));
        init = initializer_make(MR_INIT_NORMAL, 0, 0.01f, golden[i].seed);
        ps_initializer_fill(&init, golden[i].key, out, 4);
        assert_memory_equal(out, golden[i].normal, sizeof(out));
        init = initializer_make(MR_INIT_TRUNCATED_NORMAL, 1, 0.5f, golden[i].seed);
        ps_initializer_fill(&init, golden[i].key, out, 4);
        assert_memory_equal(out, golden[i].truncated, sizeof(out));
    }
}

TEST(test_an_element_does_not_depend_on_how_many_there_are)
{
    static const uint32_t kinds[] = {MR_INIT_UNIFORM, MR_INIT_NORMAL, MR_INIT_TRUNCATED_NORMAL};
    for (uint32_t k = 0; k < 3; k++) {
        struct ps_initializer init = initializer_make(kinds[k], 0, 1, 3);
        float all[1024], some[1024];
        ps_initializer_fill(&init, 5, all, 1024);
        for (size_t n = 1; n < 1024; n = n * 2 + 1) {
            ps_initializer_fill(&init, 5, some, n);
            assert_memory_equal(some, all, n * sizeof(float));
        }
    }
}

TEST(test_seed_and_key_both_count)
{
    struct ps_initializer one = initializer_make(MR_INIT_UNIFORM, 0, 1, 1),
                          two = initializer_make(MR_INIT_UNIFORM, 0, 1, 2);
    float a[8], b[8], c[8];
    ps_initializer_fill(&one, 1, a, 8);
    ps_initializer_fill(&two, 1, b, 8);
    ps_initializer_fill(&one, 2, c, 8);
    assert_memory_not_equal(a, b, sizeof(a));
    assert_memory_not_equal(a, c, sizeof(a));
}

struct moments {
    double mean, deviation, skew, kurtosis, least, most, neighbours;
};

/* Of COUNT values: the first eight elements of consecutive keys. */
static struct moments moments_of(const struct ps_initializer *init)
{
    static float x[COUNT];
    struct moments m = {.least = INFINITY, .most = -INFINITY};
    for (uint32_t i = 0; i < COUNT; i += 8)
        ps_initializer_fill(init, i, x + i, 8);
    for (uint32_t i = 0; i < COUNT; i++) {
        m.mean += (double)x[i] / COUNT;
        m.least = fmin(m.least, (double)x[i]);
        m.most = fmax(m.most, (double)x[i]);
    }
    for (uint32_t i = 0; i < COUNT; i++)
        m.deviation += pow((double)x[i] - m.mean, 2) / COUNT;
    m.deviation = sqrt(m.deviation);
    for (uint32_t i = 0; i < COUNT; i++) {
        double z = ((double)x[i] - m.mean) / m.deviation;
        m.skew += z * z * z / COUNT;
        m.kurtosis += z * z * z * z / COUNT;
        m.neighbours += z * (((double)x[(i + 1) % COUNT] - m.mean) / m.deviation) / COUNT;
    }
    return m;
}

static void assert_near(double value, double expected, double tolerance)
{
    if (!(fabs(value - expected) <= tolerance))
        fail_msg("%.6f is not within %.6f of %.6f", value, tolerance, expected);
}

/* Tolerances: five standard errors at this count. The values are fixed, so either they always pass or
 * never. */
TEST(test_uniform_is_uniform)
{
    struct ps_initializer init = initializer_make(MR_INIT_UNIFORM, -1, 3, 11);
    struct moments m = moments_of(&init);
    assert_near(m.mean, 1, 0.013);
    assert_near(m.deviation, 4 / sqrt(12), 0.006);
    assert_near(m.skew, 0, 0.02);
    assert_near(m.kurtosis, 1.8, 0.02);
    assert_near(m.neighbours, 0, 0.012);
    assert_true(m.least >= -1 && m.least < -0.999);
    assert_true(m.most <= 3 && m.most > 2.999);
}

TEST(test_normal_is_normal)
{
    struct ps_initializer init = initializer_make(MR_INIT_NORMAL, 2, 0.5f, 11);
    struct moments m = moments_of(&init);
    assert_near(m.mean, 2, 0.006);
    assert_near(m.deviation, 0.5, 0.004);
    assert_near(m.skew, 0, 0.03);
    assert_near(m.kurtosis, 3, 0.06);
    assert_near(m.neighbours, 0, 0.012);
    assert_true(m.most > 2 + 4 * 0.5 && m.least < 2 - 4 * 0.5);
}

TEST(test_truncated_normal_ends_at_two_deviations)
{
    struct ps_initializer init = initializer_make(MR_INIT_TRUNCATED_NORMAL, 2, 0.5f, 11);
    struct moments m = moments_of(&init);
    assert_near(m.mean, 2, 0.005);
    assert_near(m.deviation, 0.5 * 0.879625, 0.003); /* sqrt(1 - 4 pdf(2) / (cdf(2) - cdf(-2))) */
    assert_near(m.skew, 0, 0.02);
    assert_true(m.least >= 1 && m.most <= 3);
    assert_true(m.least < 1.001 && m.most > 2.999);
}

/* The quantile of the distribution function is where it started; erfc is libm's. */
TEST(test_quantile_inverts_the_distribution)
{
    for (uint32_t i = 0; i < 1100; i++) {
        double p = i < 100 ? exp2(-(double)i / 3 - 1) : ((double)i - 99.5) / 1000.5;
        double z = ps_normal_quantile(p);
        assert_near(0.5 * erfc(-z / sqrt(2)) / p, 1, 1e-12);
        if (p > 1e-3)
            assert_near(ps_normal_quantile(1 - p), -z, 1e-11);
    }
    assert_near(ps_normal_quantile(0.975), 1.959963984540054, 1e-14);
    assert_near(ps_normal_quantile(1e-10), -6.361340902404056, 1e-12);
    assert_true(ps_normal_quantile(0.5) == 0);
}
