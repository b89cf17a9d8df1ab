#include "trainer_client/examples/common/fm_model.h"

#include <string.h>
#include "trainer_client/examples/common/metrics.h"

#define LANES 4u
typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));

/* The sums of the factors over the slots of one sample. Returns the score of its pairs, by the identity
 * sum_{i < j} <a_i, a_j> = (|sum a_i|^2 - sum |a_i|^2) / 2. Lanes of factors are summed in registers. */
static float sum_factors(const struct fm_shape *shape, const float *pooled, float sums[FM_FACTORS_MAX])
{
    const size_t row = 1 + shape->factors;
    const float *first = pooled + 1;
    float pairs = 0;
    uint32_t k = 0;
    for (; k + LANES <= shape->factors; k += LANES) {
        lanes sum = {0}, squares = {0};
        for (uint32_t slot = 0; slot < shape->slots; slot++) {
            lanes x = *(const lanes *)(first + slot * row + k);
            sum += x;
            squares += x * x;
        }
        *(lanes *)(sums + k) = sum;
        squares = sum * sum - squares;
        for (uint32_t lane = 0; lane < LANES; lane++)
            pairs += squares[lane];
    }
    for (; k < shape->factors; k++) {
        float sum = 0, squares = 0;
        for (uint32_t slot = 0; slot < shape->slots; slot++) {
            float x = first[slot * row + k];
            sum += x;
            squares += x * x;
        }
        sums[k] = sum;
        pairs += sum * sum - squares;
    }
    return 0.5f * pairs;
}

/* The score of one sample; `sums` as sum_factors() gives them. */
static float score_one(const struct fm_shape *shape, const struct fm_parameters *parameters,
                       const float *pooled, const float *dense, float sums[FM_FACTORS_MAX])
{
    float score = parameters->bias + sum_factors(shape, pooled, sums);
    for (uint32_t slot = 0; slot < shape->slots; slot++)
        score += pooled[(size_t)slot * (1 + shape->factors)];
    for (uint32_t d = 0; d < shape->dense; d++)
        score += dense[d] * parameters->dense_weights[d];
    return score;
}

/* The gradient of one slot's row. */
static void row_gradient(const struct fm_shape *shape, float residual, const float *restrict x,
                         const float sums[FM_FACTORS_MAX], float *restrict out)
{
    uint32_t k = 0;
    out[0] = residual;
    for (; k + LANES <= shape->factors; k += LANES)
        *(lanes *)(out + 1 + k) = residual * (*(const lanes *)(sums + k) - *(const lanes *)(x + 1 + k));
    for (; k < shape->factors; k++)
        out[1 + k] = residual * (sums[k] - x[1 + k]);
}

void fm_scores(const struct fm_shape *shape, const struct fm_parameters *parameters, const float *pooled,
               const float *dense, float *scores)
{
    const size_t sample_floats = (size_t)shape->slots * (1 + shape->factors);
    float sums[FM_FACTORS_MAX];
    for (uint32_t s = 0; s < shape->samples; s++) {
        scores[s] =
            score_one(shape, parameters, pooled + s * sample_floats, dense + (size_t)s * shape->dense, sums);
    }
}

double fm_backward(const struct fm_shape *shape, const struct fm_parameters *parameters, const float *pooled,
                   const float *dense, const float *labels, struct fm_gradients *gradients)
{
    const size_t row = 1 + shape->factors, sample_floats = shape->slots * row;
    float sums[FM_FACTORS_MAX];
    double loss = 0;
    gradients->bias = 0;
    for (uint32_t i = 0; i < shape->dense; i++)
        gradients->dense_weights[i] = 0;
    for (uint32_t s = 0; s < shape->samples; s++) {
        const float *x = pooled + s * sample_floats;
        const float *d = dense + (size_t)s * shape->dense;
        float *g = gradients->pooled + s * sample_floats;
        float score = score_one(shape, parameters, x, d, sums);
        float residual = metric_sigmoid(score) - labels[s];
        loss += metric_log_loss(score, labels[s]);
        gradients->bias += residual;
        for (uint32_t i = 0; i < shape->dense; i++)
            gradients->dense_weights[i] += residual * d[i];
        for (uint32_t slot = 0; slot < shape->slots; slot++)
            row_gradient(shape, residual, x + slot * row, sums, g + slot * row);
    }
    return loss;
}
