#include "dataplane/optimizer/kernels.h"

#include <float.h>
#include "dataplane/optimizer/kernels_internal.h"

/* Rows copied, as they are or as sums that begin with 0, added up, and added up with weights: a vector at a
 * time, then four, then one. `zero` is what is added: -0 leaves every value as it is. */
#define ROWS(set, ...)                                                                                       \
    __VA_ARGS__ INLINE void copy_body_##set(float *out, const void *const *rows, uint32_t row_count,         \
                                            size_t dim, float zero)                                          \
    {                                                                                                        \
        if (dim == 16) { /* without loops */                                                                 \
            for (uint32_t r = 0; r < row_count; r++)                                                         \
                for (uint32_t i = 0; i < 16; i += MR_LANES_##set)                                            \
                    *(floats_##set *)(out + r * 16 + i) =                                                    \
                        *(const floats_##set *)((const float *)rows[r] + i) + zero;                          \
            return;                                                                                          \
        }                                                                                                    \
        for (uint32_t r = 0; r < row_count; r++, out += dim) {                                               \
            const float *row = rows[r];                                                                      \
            size_t i = 0;                                                                                    \
            for (; i + MR_LANES_##set <= dim; i += MR_LANES_##set)                                           \
                *(floats_##set *)(out + i) = *(const floats_##set *)(row + i) + zero;                        \
            for (; i + 4 <= dim; i += 4)                                                                     \
                *(floats4 *)(out + i) = *(const floats4 *)(row + i) + zero;                                  \
            for (; i < dim; i++)                                                                             \
                out[i] = row[i] + zero;                                                                      \
        }                                                                                                    \
    }                                                                                                        \
    __VA_ARGS__ static void copy_rows_##set(float *out, const void *const *rows, uint32_t row_count,         \
                                            size_t dim)                                                      \
    {                                                                                                        \
        copy_body_##set(out, rows, row_count, dim, -0.0f);                                                   \
    }                                                                                                        \
    __VA_ARGS__ static void copy_sums_##set(float *out, const void *const *rows, uint32_t row_count,         \
                                            size_t dim)                                                      \
    {                                                                                                        \
        copy_body_##set(out, rows, row_count, dim, 0.0f);                                                    \
    }                                                                                                        \
    __VA_ARGS__ static void add_rows_##set(float *out, const void *const *rows, uint32_t row_count,          \
                                           size_t dim)                                                       \
    {                                                                                                        \
        size_t i = 0;                                                                                        \
        for (; i + MR_LANES_##set <= dim; i += MR_LANES_##set) {                                             \
            floats_##set sum = *(const floats_##set *)(out + i);                                             \
            for (uint32_t r = 0; r < row_count; r++)                                                         \
                sum += *(const floats_##set *)((const float *)rows[r] + i);                                  \
            *(floats_##set *)(out + i) = sum;                                                                \
        }                                                                                                    \
        for (; i + 4 <= dim; i += 4) {                                                                       \
            floats4 sum = *(const floats4 *)(out + i);                                                       \
            for (uint32_t r = 0; r < row_count; r++)                                                         \
                sum += *(const floats4 *)((const float *)rows[r] + i);                                       \
            *(floats4 *)(out + i) = sum;                                                                     \
        }                                                                                                    \
        for (; i < dim; i++) {                                                                               \
            float sum = out[i];                                                                              \
            for (uint32_t r = 0; r < row_count; r++)                                                         \
                sum += ((const float *)rows[r])[i];                                                          \
            out[i] = sum;                                                                                    \
        }                                                                                                    \
    }                                                                                                        \
    __VA_ARGS__ static void add_weighted_rows_##set(float *out, const void *const *rows,                     \
                                                    const float *weights, uint32_t row_count, size_t dim)    \
    {                                                                                                        \
        size_t i = 0;                                                                                        \
        for (; i + MR_LANES_##set <= dim; i += MR_LANES_##set) {                                             \
            floats_##set sum = *(const floats_##set *)(out + i);                                             \
            for (uint32_t r = 0; r < row_count; r++)                                                         \
                sum += *(const floats_##set *)((const float *)rows[r] + i) * weights[r];                     \
            *(floats_##set *)(out + i) = sum;                                                                \
        }                                                                                                    \
        for (; i < dim; i++) {                                                                               \
            float sum = out[i];                                                                              \
            for (uint32_t r = 0; r < row_count; r++)                                                         \
                sum += ((const float *)rows[r])[i] * weights[r];                                             \
            out[i] = sum;                                                                                    \
        }                                                                                                    \
    }

INLINE void scale_body(float *out, const float *in, float factor, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = in[i] * factor;
}

INLINE void divide_body(float *out, const float *in, float divisor, size_t count)
{
    if (divisor == 0) {
        memset(out, 0, count * sizeof(*out));
        return;
    }
    for (size_t i = 0; i < count; i++)
        out[i] = in[i] / divisor;
}

INLINE bool add_finite_body(float *restrict out, const float *restrict in, size_t count, uint32_t lanes)
{
    if (!all_finite_body(in, count, lanes))
        return false;
    for (size_t i = 0; i < count; i++)
        out[i] += in[i];
    return true;
}

/* Looks at the whole sum before any of it is stored. */
#define ADD_PAIRS(set, name, ...)                                                                            \
    __VA_ARGS__ static inline bool add_pair_##set(float *out, const float *a, const float *b, size_t dim)    \
    {                                                                                                        \
        ints_##set infinite = {0};                                                                           \
        uint32_t rest = 0;                                                                                   \
        size_t i = 0;                                                                                        \
        for (; i + MR_LANES_##set <= dim; i += MR_LANES_##set)                                               \
            infinite |= ((ints_##set)(*(const floats_##set *)(a + i) + *(const floats_##set *)(b + i)) &     \
                         MR_F32_EXPONENT) == MR_F32_EXPONENT;                                                \
        for (; i < dim; i++) {                                                                               \
            float sum = a[i] + b[i];                                                                         \
            uint32_t bits;                                                                                   \
            memcpy(&bits, &sum, sizeof(bits));                                                               \
            rest |= (bits & MR_F32_EXPONENT) == MR_F32_EXPONENT;                                             \
        }                                                                                                    \
        for (uint32_t lane = 0; lane < MR_LANES_##set; lane++)                                               \
            rest |= infinite[lane] != 0;                                                                     \
        if (rest != 0)                                                                                       \
            return false;                                                                                    \
        for (i = 0; i + MR_LANES_##set <= dim; i += MR_LANES_##set)                                          \
            *(floats_##set *)(out + i) = *(const floats_##set *)(a + i) + *(const floats_##set *)(b + i);    \
        for (; i < dim; i++)                                                                                 \
            out[i] = a[i] + b[i];                                                                            \
        return true;                                                                                         \
    }                                                                                                        \
    __VA_ARGS__ static uint32_t name(float *const *out, const float *const *a, const float *const *b,        \
                                     uint32_t count, size_t dim)                                             \
    {                                                                                                        \
        uint32_t done = 0;                                                                                   \
        while (done < count && add_pair_##set(out[done], a[done], b[done], dim))                             \
            done++;                                                                                          \
        return done;                                                                                         \
    }

/* One set of kernels: the bodies above, inlined into functions with the attributes that follow. CHECKS are
 * those that a set may have of its own. */
#define CHECKS(set, ...)                                                                                     \
    __VA_ARGS__ static bool all_finite_##set(const float *in, size_t count)                                  \
    {                                                                                                        \
        return all_finite_body(in, count, MR_LANES_##set);                                                   \
    }                                                                                                        \
    __VA_ARGS__ static bool add_finite_##set(float *out, const float *in, size_t count)                      \
    {                                                                                                        \
        return add_finite_body(out, in, count, MR_LANES_##set);                                              \
    }

#define KERNELS(set, vector_set, ...)                                                                        \
    ROWS(set, __VA_ARGS__)                                                                                   \
    __VA_ARGS__ static void scale_##set(float *out, const float *in, float factor, size_t count)             \
    {                                                                                                        \
        scale_body(out, in, factor, count);                                                                  \
    }                                                                                                        \
    __VA_ARGS__ static void divide_##set(float *out, const float *in, float divisor, size_t count)           \
    {                                                                                                        \
        divide_body(out, in, divisor, count);                                                                \
    }                                                                                                        \
    static const struct mr_kernels set = {.name = #set,                                                      \
                                          .vectors = vector_set,                                             \
                                          .copy_rows = copy_rows_##set,                                      \
                                          .copy_sums = copy_sums_##set,                                      \
                                          .add_rows = add_rows_##set,                                        \
                                          .add_weighted_rows = add_weighted_rows_##set,                      \
                                          .scale = scale_##set,                                              \
                                          .divide = divide_##set,                                            \
                                          .all_finite = all_finite_##set,                                    \
                                          .add_finite = add_finite_##set,                                    \
                                          .add_pairs = add_pairs_##set,                                      \
                                          .optimize = mr_rule_kernels_##set,                                 \
                                          .f16 = &mr_f16_kernels_##set,                                      \
                                          .bf16 = &mr_bf16_kernels_##set};

CHECKS(baseline)

#ifdef __aarch64__
ADD_PAIRS(baseline, add_pairs_of_any_dim_baseline)

/* All lanes are set where both are finite numbers. */
static inline uint32x4_t finite_lanes(float32x4_t a, float32x4_t b)
{
    const float32x4_t most = vdupq_n_f32(FLT_MAX);
    return vandq_u32(vcaleq_f32(a, most), vcaleq_f32(b, most));
}

static uint32_t add_pairs_baseline(float *const *out, const float *const *a, const float *const *b,
                                   uint32_t count, size_t dim)
{
    uint32_t done = 0;
    if (dim < 8 || dim > 16)
        return add_pairs_of_any_dim_baseline(out, a, b, count, dim);
    const size_t at[4] = {0, 4, dim - 8, dim - 4}; /* some values may be of two vectors */
    for (; done < count; done++) {
        float32x4_t sums[4];
        for (uint32_t v = 0; v < 4; v++)
            sums[v] = vaddq_f32(vld1q_f32(a[done] + at[v]), vld1q_f32(b[done] + at[v]));
        if (vminvq_u32(vandq_u32(finite_lanes(sums[0], sums[1]), finite_lanes(sums[2], sums[3]))) == 0)
            break;
        for (uint32_t v = 0; v < 4; v++)
            vst1q_f32(out[done] + at[v], sums[v]);
    }
    return done;
}
#else
ADD_PAIRS(baseline, add_pairs_baseline)
#endif

KERNELS(baseline, MR_VECTOR_BASELINE)
#ifdef __x86_64__
CHECKS(avx2, MR_TARGET_AVX2)
ADD_PAIRS(avx2, add_pairs_of_any_dim_avx2, MR_TARGET_AVX2)

/* NaN or Inf in any of eight lanes. */
MR_TARGET_AVX2 static inline bool has_not_finite(__m256 a, __m256 b)
{
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff)),
                 most = _mm256_set1_ps(FLT_MAX);
    return _mm256_movemask_ps(_mm256_or_ps(_mm256_cmp_ps(_mm256_and_ps(a, magnitude), most, _CMP_NLE_UQ),
                                           _mm256_cmp_ps(_mm256_and_ps(b, magnitude), most, _CMP_NLE_UQ))) !=
           0;
}

MR_TARGET_AVX2 static uint32_t add_pairs_avx2(float *const *out, const float *const *a, const float *const *b,
                                              uint32_t count, size_t dim)
{
    const size_t last = dim - 8; /* the last eight values; some may be of the first eight, too */
    uint32_t done = 0;
    if (dim < 8 || dim > 16)
        return add_pairs_of_any_dim_avx2(out, a, b, count, dim);
    for (; done < count; done++) {
        __m256 low = _mm256_add_ps(_mm256_loadu_ps(a[done]), _mm256_loadu_ps(b[done]));
        __m256 high = _mm256_add_ps(_mm256_loadu_ps(a[done] + last), _mm256_loadu_ps(b[done] + last));
        if (__builtin_expect(has_not_finite(low, high), 0))
            break;
        _mm256_storeu_ps(out[done], low);
        _mm256_storeu_ps(out[done] + last, high);
    }
    return done;
}

KERNELS(avx2, MR_VECTOR_AVX2, MR_TARGET_AVX2)

/* With masks, values that fill no whole vector cost no loop: rows of fewer than 16 values have no others. */
MR_TARGET_AVX512 static bool all_finite_avx512(const float *in, size_t count)
{
    const __mmask16 rest = mr_rest_mask(count);
    size_t i = 0;
    __mmask16 infinite = 0;
    for (; i + 16 <= count; i += 16)
        infinite |= mr_not_finite(_mm512_loadu_ps(in + i));
    return (infinite | mr_not_finite(_mm512_maskz_loadu_ps(rest, in + i))) == 0;
}

MR_TARGET_AVX512 static bool add_finite_avx512(float *out, const float *in, size_t count)
{
    const __mmask16 rest = mr_rest_mask(count);
    size_t i = 0;
    if (!all_finite_avx512(in, count))
        return false;
    for (; i + 16 <= count; i += 16)
        _mm512_storeu_ps(out + i, _mm512_add_ps(_mm512_loadu_ps(out + i), _mm512_loadu_ps(in + i)));
    if (rest != 0) {
        __m512 sum = _mm512_add_ps(_mm512_maskz_loadu_ps(rest, out + i), _mm512_maskz_loadu_ps(rest, in + i));
        _mm512_mask_storeu_ps(out + i, rest, sum);
    }
    return true;
}

MR_TARGET_AVX512 static inline bool add_pair_avx512(float *out, const float *a, const float *b, size_t dim)
{
    const __mmask16 rest = mr_rest_mask(dim);
    size_t i = 0;
    __mmask16 infinite = 0;
    for (; i + 16 <= dim; i += 16)
        infinite |= mr_not_finite(_mm512_add_ps(_mm512_loadu_ps(a + i), _mm512_loadu_ps(b + i)));
    __m512 sum = _mm512_add_ps(_mm512_maskz_loadu_ps(rest, a + i), _mm512_maskz_loadu_ps(rest, b + i));
    if ((infinite | mr_not_finite(sum)) != 0)
        return false;
    _mm512_mask_storeu_ps(out + i, rest, sum);
    for (i = 0; i + 16 <= dim; i += 16)
        _mm512_storeu_ps(out + i, _mm512_add_ps(_mm512_loadu_ps(a + i), _mm512_loadu_ps(b + i)));
    return true;
}

MR_TARGET_AVX512 static uint32_t add_pairs_avx512(float *const *out, const float *const *a,
                                                  const float *const *b, uint32_t count, size_t dim)
{
    uint32_t done = 0;
    if (dim == 16) {
        for (; done < count; done++) {
            __m512 sum = _mm512_add_ps(_mm512_loadu_ps(a[done]), _mm512_loadu_ps(b[done]));
            if (__builtin_expect(mr_not_finite(sum) != 0, 0))
                break;
            _mm512_storeu_ps(out[done], sum);
        }
        return done;
    }
    while (done < count && add_pair_avx512(out[done], a[done], b[done], dim))
        done++;
    return done;
}

KERNELS(avx512, MR_VECTOR_AVX512, MR_TARGET_AVX512)
#endif

const struct mr_kernels *mr_kernels_at(uint32_t index)
{
    static const struct mr_kernels *const sets[MR_VECTOR_SETS] = {
        [MR_VECTOR_BASELINE] = &baseline,
#ifdef __x86_64__
        [MR_VECTOR_AVX2] = &avx2,
        [MR_VECTOR_AVX512] = &avx512,
#endif
    };
    uint32_t widest = mr_vector_widest();
    return index <= widest ? sets[widest - index] : NULL;
}

static const struct mr_kernels *forced;

void mr_kernels_force(const struct mr_kernels *kernels)
{
    forced = kernels;
}

const struct mr_kernels *mr_kernels_best(void)
{
    return forced != NULL ? forced : mr_kernels_at(0);
}
