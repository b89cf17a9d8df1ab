#include "trainer_client/examples/common/fm_model.h"

#include <string.h>
#include "trainer_client/examples/common/metrics.h"

/* The score of one sample; `sums` receives the sum of the factors over the slots. Pairs cost one pass by the
 * identity sum_{i < j} <a_i, a_j> = (|sum a_i|^2 - sum |a_i|^2) / 2. */
static float score_one(const struct fm_shape *shape, const struct fm_parameters *parameters,
                       const float *pooled, const float *dense, float sums[FM_FACTORS_MAX])
{
    float score = parameters->bias, squares = 0;
    memset(sums, 0, shape->factors * sizeof(*sums));
    for (uint32_t slot = 0; slot < shape->slots; slot++) {
        const float *x = pooled + (size_t)slot * (1 + shape->factors);
        score += x[0];
        for (uint32_t k = 0; k < shape->factors; k++) {
            sums[k] += x[1 + k];
            squares += x[1 + k] * x[1 + k];
        }
    }
    for (uint32_t k = 0; k < shape->factors; k++)
        score += 0.5f * sums[k] * sums[k];
    for (uint32_t d = 0; d < shape->dense; d++)
        score += dense[d] * parameters->dense_weights[d];
    return score - 0.5f * squares;
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
    const size_t sample_floats = (size_t)shape->slots * (1 + shape->factors);
    float sums[FM_FACTORS_MAX];
    double loss = 0;
    gradients->bias = 0;
    memset(gradients->dense_weights, 0, shape->dense * sizeof(float));
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
        for (uint32_t slot = 0; slot < shape->slots; slot++) {
            *g++ = residual;
            x++;
            for (uint32_t k = 0; k < shape->factors; k++)
                *g++ = residual * (sums[k] - *x++);
        }
    }
    return loss;
}
