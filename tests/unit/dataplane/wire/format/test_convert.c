/* All vector widths that this processor runs: every number of the 16-bit types, every halfway case between
 * two of them, and f32 numbers from everywhere, against a slow reference; i8 rows against the promise of
 * their error. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "dataplane/wire/format/convert.h"
#include "tests/test.h"

#define ALL16 65536u

/* f16 or bf16: what differs between the two. */
struct half_type {
    const char *name;
    uint32_t mantissa_bits;
    int exponent_bias;
    uint16_t infinity, quiet_bit;
};

static const struct half_type f16 = {"f16", 10, 15, 0x7c00, 0x200};
static const struct half_type bf16 = {"bf16", 7, 127, 0x7f80, 0x40};

static void to_half(const struct mr_converters *c, const struct half_type *t, uint16_t *out, const float *in,
                    size_t count)
{
    (t == &f16 ? c->f16_from_f32 : c->bf16_from_f32)(out, in, count);
}

static void from_half(const struct mr_converters *c, const struct half_type *t, float *out,
                      const uint16_t *in, size_t count)
{
    (t == &f16 ? c->f32_from_f16 : c->f32_from_bf16)(out, in, count);
}

/* What the number means, by the definition. Not NaN; the infinities count as the number that would follow. */
static double value_of(const struct half_type *t, uint16_t x)
{
    uint32_t magnitude = x & 0x7fffu, mantissa = magnitude & ((1u << t->mantissa_bits) - 1);
    int exponent = (int)(magnitude >> t->mantissa_bits);
    double whole = exponent == 0 ? mantissa : mantissa + (1u << t->mantissa_bits);
    int shift = (exponent == 0 ? 1 : exponent) - t->exponent_bias - (int)t->mantissa_bits;
    return (x & 0x8000u ? -1 : 1) * ldexp(whole, shift);
}

static bool is_nan(const struct half_type *t, uint16_t x)
{
    return (x & 0x7fffu) > t->infinity;
}

/* By search over all numbers: their order is that of their magnitudes' bits. */
static uint16_t nearest(const struct half_type *t, float x)
{
    if (isnan(x))
        return 0xffff; /* any */
    double wanted = fabs((double)x);
    uint32_t low = 0, high = t->infinity;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (value_of(t, (uint16_t)middle) <= wanted)
            low = middle;
        else
            high = middle;
    }
    double below = wanted - value_of(t, (uint16_t)low), above = value_of(t, (uint16_t)high) - wanted;
    uint32_t best = below < above || (below == above && (low & 1) == 0) ? low : high;
    return (uint16_t)(best | (signbit(x) ? 0x8000u : 0u));
}

static void check_to_half(const struct half_type *t, const float *in, size_t count)
{
    uint16_t *first = malloc(count * sizeof(*first)), *out = malloc(count * sizeof(*out));
    assert_true(first != NULL && out != NULL);
    to_half(mr_converters_best(), t, first, in, count);
    for (size_t i = 0; i < count; i++) {
        bool good = isnan(in[i]) ? is_nan(t, first[i]) && (first[i] & t->quiet_bit) != 0 &&
                                       !signbit(in[i]) == !(first[i] >> 15)
                                 : first[i] == nearest(t, in[i]);
        if (!good)
            fail_msg("%a becomes %s 0x%04x", (double)in[i], t->name, first[i]);
    }
    const struct mr_converters *c;
    for (uint32_t k = 1; (c = mr_converters_at(k)) != NULL; k++) {
        to_half(c, t, out, in, count);
        assert_memory_equal(out, first, count * sizeof(*out));
    }
    for (size_t i = 0; i < count; i++)
        assert_int_equal(t == &f16 ? mr_f16_from_f32(in[i]) : mr_bf16_from_f32(in[i]), first[i]);
    free(first);
    free(out);
}

static void all_of_type(const struct half_type *t)
{
    static uint16_t in[ALL16], back[ALL16];
    static float out[ALL16];
    for (uint32_t i = 0; i < ALL16; i++)
        in[i] = (uint16_t)i;
    const struct mr_converters *c;
    for (uint32_t k = 0; (c = mr_converters_at(k)) != NULL; k++) {
        memset(out, 0xaa, sizeof(out));
        from_half(c, t, out, in, ALL16);
        to_half(c, t, back, out, ALL16);
        for (uint32_t i = 0; i < ALL16; i++) {
            float one = t == &f16 ? mr_f32_from_f16(in[i]) : mr_f32_from_bf16(in[i]);
            assert_int_equal(mr_f32_bits(out[i]), mr_f32_bits(one));
            float alone; /* as the rest of a row is converted */
            uint16_t alone_back;
            from_half(c, t, &alone, in + i, 1);
            to_half(c, t, &alone_back, out + i, 1);
            assert_int_equal(mr_f32_bits(alone), mr_f32_bits(one));
            assert_int_equal(alone_back, back[i]);
            assert_int_equal(!signbit(out[i]), !(i >> 15));
            if (is_nan(t, in[i])) {
                assert_true(isnan(out[i]));
                assert_int_equal(back[i], i | t->quiet_bit);
                continue;
            }
            if ((i & 0x7fffu) == t->infinity)
                assert_true(isinf(out[i]));
            else
                assert_true((double)out[i] == value_of(t, in[i]));
            assert_int_equal(back[i], i);
        }
    }
}

TEST(every_number_goes_there_and_back)
{
    all_of_type(&f16);
    all_of_type(&bf16);
}

/* Between each two neighbours, the last finite number and infinity included: halfway, and an f32 step to
 * either side. */
static void halfway_of_type(const struct half_type *t)
{
    static float in[ALL16 * 3];
    size_t count = 0;
    for (uint32_t sign = 0; sign < 2; sign++)
        for (uint32_t x = 0; x < t->infinity; x++) {
            double middle = (value_of(t, (uint16_t)x) + value_of(t, (uint16_t)(x + 1))) / 2;
            float half = (float)middle;
            assert_true((double)half == middle);
            float step = sign ? -half : half;
            in[count++] = nextafterf(step, 0.0f);
            in[count++] = step;
            in[count++] = nextafterf(step, sign ? -INFINITY : INFINITY);
        }
    check_to_half(t, in, count);
}

TEST(halfway_goes_to_the_even_neighbour)
{
    halfway_of_type(&f16);
    halfway_of_type(&bf16);
}

/* Over all bits of f32, in steps that meet every exponent and end bits of all kinds; and NaNs. */
TEST(numbers_from_everywhere)
{
    enum { COUNT = 1 << 20 };
    float *in = malloc(COUNT * sizeof(*in));
    assert_non_null(in);
    for (uint32_t i = 0; i < COUNT; i++)
        in[i] = mr_f32_of_bits(i * 4099u + (i >> 7));
    static const uint32_t special[] = {0,          0x80000000, 0x7f800000, 0xff800000,
                                       0x7f800001, 0xff800001, 0x7fc00000, 0x7fffffff,
                                       0xffffffff, 0x7f7fffff, 0x00000001, 0x807fffff};
    for (uint32_t i = 0; i < sizeof(special) / sizeof(special[0]); i++)
        in[i] = mr_f32_of_bits(special[i]);
    check_to_half(&f16, in, COUNT);
    check_to_half(&bf16, in, COUNT);
    free(in);
}

/* ---- i8 ---- */

static uint64_t seed;

static uint32_t random32(void)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(seed >> 32);
}

static float random_float(float largest)
{
    return ((float)(int32_t)random32() * 0x1p-31f) * largest;
}

#define ROWS    7u
#define DIM_MAX 131u

struct i8_rows {
    int8_t q[ROWS * DIM_MAX + 1];
    float scales[ROWS];
    float back[ROWS * DIM_MAX];
};

static void check_row(const float *in, const int8_t *q, float scale, const float *back, uint32_t dim)
{
    float largest = 0;
    for (uint32_t i = 0; i < dim; i++)
        largest = fmaxf(largest, fabsf(in[i]));
    float expected = largest < 127 * FLT_MIN ? 0.0f : largest / 127;
    assert_int_equal(mr_f32_bits(scale), mr_f32_bits(expected));
    for (uint32_t i = 0; i < dim; i++) {
        assert_true(q[i] >= -127);
        assert_int_equal(mr_f32_bits(back[i]), mr_f32_bits((float)q[i] * scale));
        double error = fabs((double)back[i] - (double)in[i]);
        assert_true(scale == 0 ? q[i] == 0 && error < 127 * (double)FLT_MIN
                               : error <= (double)scale * 0.50002);
        if (scale != 0 && fabsf(in[i]) == largest)
            assert_int_equal(q[i], in[i] < 0 ? -127 : 127);
    }
}

TEST(random_rows_keep_the_promised_error)
{
    static struct i8_rows first, other;
    static float in[ROWS * DIM_MAX];
    static const float sizes[ROWS] = {1.0f, 1e-3f, FLT_MAX, 0.0f, 1e-35f, 1e-36f, 1e-44f};
    const struct mr_converters *c;
    for (uint32_t dim = 1; dim <= DIM_MAX; dim++) {
        seed = dim;
        for (uint32_t i = 0; i < ROWS * dim; i++)
            in[i] = random_float(sizes[i / dim]);
        mr_converters_best()->i8_from_f32(first.q, first.scales, in, ROWS, dim);
        mr_converters_best()->f32_from_i8(first.back, first.q, first.scales, ROWS, dim);
        for (uint32_t r = 0; r < ROWS; r++)
            check_row(in + r * dim, first.q + r * dim, first.scales[r], first.back + r * dim, dim);
        for (uint32_t k = 1; (c = mr_converters_at(k)) != NULL; k++) {
            memset(&other, 0x55, sizeof(other));
            c->i8_from_f32(other.q, other.scales, in, ROWS, dim);
            c->f32_from_i8(other.back, other.q, other.scales, ROWS, dim);
            assert_memory_equal(other.q, first.q, ROWS * dim);
            assert_int_equal(other.q[ROWS * dim], 0x55);
            assert_memory_equal(other.scales, first.scales, sizeof(first.scales));
            assert_memory_equal(other.back, first.back, ROWS * dim * sizeof(float));
        }
    }
}

/* With 127 as the largest, the scale is 1 and halves are ties. */
TEST(ties_of_i8_go_to_even)
{
    static const float in[] = {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 126.5f, -126.5f, 0.499f, -0.501f, -127};
    static const int8_t expected[] = {127, 0, 2, 2, 0, -2, 126, -126, 0, -1, -127};
    enum { COUNT = sizeof(expected) };
    const struct mr_converters *c;
    for (uint32_t k = 0; (c = mr_converters_at(k)) != NULL; k++) {
        int8_t q[COUNT];
        float scale;
        c->i8_from_f32(q, &scale, in, 1, COUNT);
        assert_true(scale == 1.0f);
        assert_memory_equal(q, expected, COUNT);
    }
}

TEST(nan_and_inf_make_their_row_nan)
{
    enum { DIM = 19 };
    const struct mr_converters *c;
    static const uint32_t bad[] = {0x7f800000, 0xff800000, 0x7f800001, 0xffffffff};
    for (uint32_t k = 0; (c = mr_converters_at(k)) != NULL; k++)
        for (uint32_t b = 0; b < 4; b++)
            for (uint32_t at = 0; at < DIM; at++) {
                float in[3 * DIM], back[3 * DIM], scales[3];
                int8_t q[3 * DIM], zeros[DIM] = {0};
                for (uint32_t i = 0; i < 3 * DIM; i++)
                    in[i] = 1.0f;
                in[DIM + at] = mr_f32_of_bits(bad[b]);
                c->i8_from_f32(q, scales, in, 3, DIM);
                c->f32_from_i8(back, q, scales, 3, DIM);
                assert_true(isnan(scales[1]));
                assert_memory_equal(q + DIM, zeros, DIM);
                for (uint32_t i = 0; i < 3 * DIM; i++)
                    assert_int_equal(isnan(back[i]) != 0, i / DIM == 1);
            }
}

/* ---- by dtype ---- */

TEST(conversion_by_dtype)
{
    enum { COUNT = 3, DIM = 5 };
    static const enum mr_dtype dtypes[] = {MR_F32, MR_F16, MR_BF16, MR_I8};
    static const double errors[] = {0, 0x1p-11, 0x1p-8, 0.5 / 127 + 1e-6}; /* of the row's largest */
    float in[COUNT * DIM], back[COUNT * DIM], scales[COUNT];
    seed = 3;
    for (uint32_t i = 0; i < COUNT * DIM; i++)
        in[i] = random_float(1.0f);
    for (uint32_t d = 0; d < 4; d++) {
        uint8_t stored[COUNT * DIM * sizeof(float)] __attribute__((aligned(4)));
        memset(scales, 0, sizeof(scales));
        assert_true(mr_convert_knows(dtypes[d]));
        mr_convert_from_f32(dtypes[d], stored, scales, in, COUNT, DIM);
        mr_convert_to_f32(dtypes[d], back, stored, scales, COUNT, DIM);
        for (uint32_t i = 0; i < COUNT * DIM; i++)
            assert_true(fabs((double)back[i] - (double)in[i]) <= errors[d]);
        uint32_t equal = 0;
        for (uint32_t i = 0; i < COUNT * DIM; i++)
            equal += mr_f32_bits(back[i]) == mr_f32_bits(in[i]);
        assert_int_equal(equal == COUNT * DIM, dtypes[d] == MR_F32);
        mr_convert_from_f32(dtypes[d], NULL, NULL, NULL, 0, DIM); /* no row: nothing is touched */
        mr_convert_to_f32(dtypes[d], NULL, NULL, NULL, 0, DIM);
    }
    for (uint32_t other = 0; other <= MR_DTYPE_COUNT; other++)
        if (other != MR_F32 && other != MR_F16 && other != MR_BF16 && other != MR_I8)
            assert_false(mr_convert_knows((enum mr_dtype)other));
}

/* Every length and alignment: what lies after stays as it was. */
TEST(lengths_and_alignments)
{
    enum { LENGTH = 40 };
    float in[LENGTH + 1];
    seed = 1;
    for (uint32_t i = 0; i <= LENGTH; i++)
        in[i] = random_float(10.0f);
    const struct mr_converters *c;
    for (uint32_t k = 0; (c = mr_converters_at(k)) != NULL; k++)
        for (uint32_t length = 0; length <= LENGTH; length++)
            for (uint32_t b = 0; b < 2; b++) {
                const struct half_type *t = b ? &bf16 : &f16;
                uint16_t half[LENGTH + 3];
                float back[LENGTH + 3];
                memset(half, 0x77, sizeof(half));
                memset(back, 0x77, sizeof(back));
                to_half(c, t, half + 1, in + 1, length);
                from_half(c, t, back + 1, half + 1, length);
                assert_int_equal(half[length + 1], 0x7777);
                assert_int_equal(mr_f32_bits(back[length + 1]), 0x77777777);
                for (uint32_t i = 0; i < length; i++) {
                    assert_int_equal(half[i + 1], nearest(t, in[i + 1]));
                    assert_true((double)back[i + 1] == value_of(t, half[i + 1]));
                }
            }
}

int main(void)
{
    uint32_t count = 0;
    while (mr_converters_at(count) != NULL)
        printf("%s\n", mr_converters_at(count++)->name);
    return tests_run(NULL, NULL);
}
