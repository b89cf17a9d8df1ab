/* A factorization machine (Rendle, ICDM 2010) over pooled embeddings, and its gradients.
 *
 * A row of the table is {first-order weight, factors...}. With x(s, j) the sum of the rows in bag j of sample
 * s,
 *   score(s) = bias + dense(s) . dense weights + sum_j x(s, j)[0] + sum_{i < j} <x(s, i)[1..], x(s, j)[1..]>
 * Slots interact, keys within one bag do not. The loss is the sum over the samples (not the mean) of the log
 * loss, so that a row's gradient does not depend on the batch size. Pure, any thread.
 */
#ifndef EXAMPLES_FM_MODEL_H
#define EXAMPLES_FM_MODEL_H

#include <stdint.h>

#define FM_FACTORS_MAX 64u

struct fm_shape {
    uint32_t samples, slots, factors, dense;
};

struct fm_parameters {
    float bias;
    const float *dense_weights; /* [dense] */
};

/* pooled: [samples, slots, 1 + factors]; dense: [samples, dense]; scores: [samples], log odds. */
void fm_scores(const struct fm_shape *shape, const struct fm_parameters *parameters, const float *pooled,
               const float *dense, float *scores);

struct fm_gradients {
    float *pooled; /* [samples, slots, 1 + factors] */
    float bias;
    float *dense_weights; /* [dense] */
};
/* Overwrites `gradients`; returns the loss. */
double fm_backward(const struct fm_shape *shape, const struct fm_parameters *parameters, const float *pooled,
                   const float *dense, const float *labels, struct fm_gradients *gradients);

#endif
