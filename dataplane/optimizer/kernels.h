/* The loops over floats, compiled for several vector widths and chosen at run time.
 *
 * Every width gives the same bits: sums keep the order of the rows, norms are summed in eight fixed lanes,
 * and the file is compiled without contraction to fused multiply-add. Pointers need the alignment of a float.
 * Any thread.
 */
#ifndef MR_KERNELS_H
#define MR_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/base/vector.h"

struct mr_rule;
struct mr_rule_push;

#define MR_OPTIMIZER_KINDS 10u /* enum mr_optimizer, from 1 on */

/* As mr_rule_apply(). */
typedef uint32_t mr_rule_kernel(const struct mr_rule *o, const struct mr_rule_push *push,
                                float *const *values, float *const *states, const float *const *gradients,
                                uint32_t row_count, size_t count);

/* rows[r]: `dim` values of the type that the kernel is for. Copying: out[r] = rows[r], out is [row_count,
 * dim]; copying sums: out[r] = 0 + rows[r], so that a -0 becomes 0. Adding: out += rows[0], then rows[1],
 * ... */
typedef void mr_rows_kernel(float *out, const void *const *rows, uint32_t row_count, size_t dim);

/* out += weights[0] * rows[0], then weights[1] * rows[1], ...; the products are rounded. */
typedef void mr_weighted_rows_kernel(float *out, const void *const *rows, const float *weights,
                                     uint32_t row_count, size_t dim);

/* out[0] = a[0] + b[0], then out[1] = a[1] + b[1], ..., of `dim` values each; out[i] may be a[i], or an input
 * of a later pair. Ends before the first sum that holds NaN or Inf: returns the number of pairs that were
 * added. */
typedef uint32_t mr_pairs_kernel(float *const *out, const float *const *a, const float *const *b,
                                 uint32_t count, size_t dim);

/* Rows of a 16-bit type. */
struct mr_half_kernels {
    mr_rows_kernel *copy_rows, *add_rows;
    mr_weighted_rows_kernel *add_weighted_rows;
    /* rows[r] = values[r] rounded stochastically; values is [row_count, dim], seeds[r] is of
     * mr_rounding_seed() (rounding.h). */
    void (*round_rows)(void *const *rows, const float *values, const uint64_t *seeds, uint32_t row_count,
                       size_t dim);
};

struct mr_kernels {
    const char *name; /* "avx512", "avx2", "baseline" */
    enum mr_vector_set vectors;
    mr_rows_kernel *copy_rows, *copy_sums, *add_rows; /* of f32 rows */
    mr_weighted_rows_kernel *add_weighted_rows;       /* of f32 rows */
    /* out = in * factor; may be the same place */
    void (*scale)(float *out, const float *in, float factor, size_t count);
    /* out = in / divisor, where x / 0 is 0; may be the same place */
    void (*divide)(float *out, const float *in, float divisor, size_t count);
    /* No NaN and no Inf. */
    bool (*all_finite)(const float *in, size_t count);
    /* out += in, unless `in` holds NaN or Inf: then false, and `out` is as it was. */
    bool (*add_finite)(float *out, const float *in, size_t count);
    mr_pairs_kernel *add_pairs;
    /* By enum mr_optimizer; NULL where there is none. */
    mr_rule_kernel *const *optimize;
    const struct mr_half_kernels *f16, *bf16;
};

/* The widest that this processor runs. */
const struct mr_kernels *mr_kernels_best(void);
/* All that this processor runs, the widest first; NULL when `index` is beyond them. For tests. */
const struct mr_kernels *mr_kernels_at(uint32_t index);
/* What mr_kernels_best() gives from now on; NULL: the widest again. For tests, in their only thread. */
void mr_kernels_force(const struct mr_kernels *kernels);

#endif
