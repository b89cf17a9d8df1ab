/* Rows of f16 and bf16: read as f32, and written back rounded. Compiled for several vector widths like the
 * rest of the kernels (kernels.h). */
#include "dataplane/optimizer/kernels_internal.h"
#include "dataplane/optimizer/rounding.h"

#define BF16_VECTORS(lanes)                                                                                  \
    typedef uint32_t words##lanes __attribute__((vector_size(4 * (lanes))));                                 \
    typedef uint16_t halves##lanes __attribute__((vector_size(2 * (lanes)), aligned(2), may_alias));
BF16_VECTORS(4)
BF16_VECTORS(8)
BF16_VECTORS(16)

#define LOAD1_F16(p) mr_f32_from_f16(*(p))
#define LOAD_BF16(lanes, p)                                                                                  \
    ((floats##lanes)(__builtin_convertvector(*(const halves##lanes *)(p), words##lanes) << 16))
#define LOAD4_BF16(p)  LOAD_BF16(4, p)
#define LOAD8_BF16(p)  LOAD_BF16(8, p)
#define LOAD16_BF16(p) LOAD_BF16(16, p)

#define NO_WEIGHTS
#define TIMES_ONE
#define WEIGHTS      const float *weights,
#define TIMES_WEIGHT *weights[r]

/* Sums of rows; `weights` is a parameter or nothing, `times` a factor or nothing. */
#define ADD_ROWS(type, set, vector, width, load, load_one, name, weights, times, ...)                        \
    __VA_ARGS__ static void name##_##type##_##set(float *out, const void *const *rows,                       \
                                                  weights uint32_t row_count, size_t dim)                    \
    {                                                                                                        \
        size_t i = 0;                                                                                        \
        for (; i + (width) <= dim; i += (width)) {                                                           \
            vector sum = *(const vector *)(out + i);                                                         \
            for (uint32_t r = 0; r < row_count; r++)                                                         \
                sum += load((const uint16_t *)rows[r] + i) times;                                            \
            *(vector *)(out + i) = sum;                                                                      \
        }                                                                                                    \
        for (; i < dim; i++) {                                                                               \
            float sum = out[i];                                                                              \
            for (uint32_t r = 0; r < row_count; r++)                                                         \
                sum += load_one(((const uint16_t *)rows[r])[i]) times;                                       \
            out[i] = sum;                                                                                    \
        }                                                                                                    \
    }

/* The loops over rows of `type`, in one set: `width` values at a time through load(), the rest through
 * load_one(). */
#define READ_ROWS(type, set, vector, width, load, load_one, ...)                                             \
    __VA_ARGS__ static void copy_rows_##type##_##set(float *out, const void *const *rows,                    \
                                                     uint32_t row_count, size_t dim)                         \
    {                                                                                                        \
        for (uint32_t r = 0; r < row_count; r++, out += dim) {                                               \
            const uint16_t *row = rows[r];                                                                   \
            size_t i = 0;                                                                                    \
            for (; i + (width) <= dim; i += (width))                                                         \
                *(vector *)(out + i) = load(row + i);                                                        \
            for (; i < dim; i++)                                                                             \
                out[i] = load_one(row[i]);                                                                   \
        }                                                                                                    \
    }                                                                                                        \
    ADD_ROWS(type, set, vector, width, load, load_one, add_rows, NO_WEIGHTS, TIMES_ONE, __VA_ARGS__)         \
    ADD_ROWS(type, set, vector, width, load, load_one, add_weighted_rows, WEIGHTS, TIMES_WEIGHT, __VA_ARGS__)

#define ROUND_ROWS(type, set, ...)                                                                           \
    __VA_ARGS__ static void round_rows_##type##_##set(void *const *rows, const float *values,                \
                                                      const uint64_t *seeds, uint32_t row_count, size_t dim) \
    {                                                                                                        \
        for (uint32_t r = 0; r < row_count; r++) {                                                           \
            uint16_t *restrict row = rows[r];                                                                \
            const float *restrict in = values + r * dim;                                                     \
            const uint64_t seed = seeds[r];                                                                  \
            for (size_t i = 0; i < dim; i++)                                                                 \
                row[i] = mr_##type##_round(in[i], mr_rounding_bits(seed, (uint32_t)i));                      \
        }                                                                                                    \
    }

#define HALF_KERNELS(type, set)                                                                              \
    const struct mr_half_kernels mr_##type##_kernels_##set = {.copy_rows = copy_rows_##type##_##set,         \
                                                              .add_rows = add_rows_##type##_##set,           \
                                                              .add_weighted_rows =                           \
                                                                  add_weighted_rows_##type##_##set,          \
                                                              .round_rows = round_rows_##type##_##set};

#ifdef __aarch64__
#define LOAD4_F16(p) ((floats4)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))))
READ_ROWS(f16, baseline, floats4, 4, LOAD4_F16, mr_f32_from_f16)
#else
READ_ROWS(f16, baseline, float, 1, LOAD1_F16, mr_f32_from_f16)
#endif
READ_ROWS(bf16, baseline, floats4, 4, LOAD4_BF16, mr_f32_from_bf16)
ROUND_ROWS(f16, baseline)
ROUND_ROWS(bf16, baseline)
HALF_KERNELS(f16, baseline)
HALF_KERNELS(bf16, baseline)

#ifdef __x86_64__
#define LOAD8_F16(p)  _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define LOAD16_F16(p) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(p)))

READ_ROWS(f16, avx2, floats8, 8, LOAD8_F16, _cvtsh_ss, MR_TARGET_AVX2)
READ_ROWS(bf16, avx2, floats8, 8, LOAD8_BF16, mr_f32_from_bf16, MR_TARGET_AVX2)
ROUND_ROWS(f16, avx2, MR_TARGET_AVX2)
ROUND_ROWS(bf16, avx2, MR_TARGET_AVX2)
HALF_KERNELS(f16, avx2)
HALF_KERNELS(bf16, avx2)

READ_ROWS(f16, avx512, floats16, 16, LOAD16_F16, _cvtsh_ss, MR_TARGET_AVX512)
READ_ROWS(bf16, avx512, floats16, 16, LOAD16_BF16, mr_f32_from_bf16, MR_TARGET_AVX512)
ROUND_ROWS(f16, avx512, MR_TARGET_AVX512)
ROUND_ROWS(bf16, avx512, MR_TARGET_AVX512)
HALF_KERNELS(f16, avx512)
HALF_KERNELS(bf16, avx512)
#endif
