/* The loops over floats, compiled for several vector widths and chosen at run time.
 *
 * Every width gives the same bits: sums keep the order of the rows, norms are summed in eight fixed lanes, and the file is
 * compiled without contraction to fused multiply-add. Pointers need the alignment of a float. Any thread.
 */
#ifndef PS_KERNELS_H
#define PS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ps_optimizer;

#define PS_OPTIMIZER_KINDS 9u /* enum mr_optimizer, from 1 on */

/* As ps_optimizer_apply(). */
typedef uint32_t ps_optimizer_kernel(const struct ps_optimizer *o, float learning_rate, float *const *values,
                                     float *const *states, const float *const *gradients, uint32_t row_count,
                                     size_t count);

/* rows[r]: `dim` values of the type that the kernel is for. Copying: out[r] = rows[r], out is [row_count, dim]. Adding:
 * out += rows[0], then rows[1], ... */
typedef void ps_rows_kernel(float *out, const void *const *rows, uint32_t row_count, size_t dim);

/* out += weights[0] * rows[0], then weights[1] * rows[1], ...; the products are rounded. */
typedef void ps_weighted_rows_kernel(float *out, const void *const *rows, const float *weights,
                                     uint32_t row_count, size_t dim);

/* Rows of a 16-bit type. */
struct ps_half_kernels {
    ps_rows_kernel *copy_rows, *add_rows;
    ps_weighted_rows_kernel *add_weighted_rows;
    /* rows[r] = values[r] rounded stochastically; values is [row_count, dim], seeds[r] is of ps_rounding_seed() (ps/rounding.h). */
    void (*round_rows)(void *const *rows, const float *values, const uint64_t *seeds, uint32_t row_count,
                       size_t dim);
};

struct ps_kernels {
    const char *name;                           /* "avx512", "avx2", "baseline" */
    ps_rows_kernel *copy_rows, *add_rows;       /* of f32 rows */
    ps_weighted_rows_kernel *add_weighted_rows; /* of f32 rows */
    /* out = in * factor; may be the same place */
    void (*scale)(float *out, const float *in, float factor, size_t count);
    /* out = in / divisor, where x / 0 is 0; may be the same place */
    void (*divide)(float *out, const float *in, float divisor, size_t count);
    /* No NaN and no Inf. */
    bool (*all_finite)(const float *in, size_t count);
    /* out += in, unless `in` holds NaN or Inf: then false, and `out` is as it was. */
    bool (*add_finite)(float *out, const float *in, size_t count);
    /* By enum mr_optimizer; NULL where there is none. */
    ps_optimizer_kernel *const *optimize;
    const struct ps_half_kernels *f16, *bf16;
};

/* The widest that this processor runs. */
const struct ps_kernels *ps_kernels_best(void);
/* All that this processor runs, the widest first; NULL when `index` is beyond them. For tests. */
const struct ps_kernels *ps_kernels_at(uint32_t index);
/* What ps_kernels_best() gives from now on; NULL: the widest again. For tests, in their only thread. */
void ps_kernels_force(const struct ps_kernels *kernels);

#endif
