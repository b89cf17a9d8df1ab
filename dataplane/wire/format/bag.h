/* How a bag's rows become one, in the server and in the client: sum(w * x) / divisor, where w are the keys'
 * weights (1 where a call has none) and the divisor is 1 (sum), sum(w) (mean) or sqrt(sum(w^2)) (sqrtn), as
 * in TensorFlow's embedding_lookup_sparse; torch's EmbeddingBag takes weights with sums only. x / 0 counts as
 * 0: a bag whose divisor is 0 is all zeros, and so are the gradients of its rows. A row's gradient is (g /
 * divisor) * w, rounded in that order, whoever divides. Pure; any thread.
 */
#ifndef WIRE_BAG_H
#define WIRE_BAG_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_feature.h"

/* Returns whether bags are divided by something that depends on their keys. */
static inline bool mr_pooling_averages(uint32_t pooling)
{
    return pooling == MR_POOL_MEAN || pooling == MR_POOL_SQRTN;
}

/* Returns the divisor of a bag with these weights, or of `count` keys if they are NULL; 1 for no keys. It is
 * summed in f64, in order: a product of two f32 is exact there, so the result does not depend on whether the
 * compiler fuses operations. */
static inline float mr_bag_divisor(uint32_t pooling, const float *weights, uint32_t count)
{
    if (!mr_pooling_averages(pooling) || count == 0)
        return 1.0f;
    bool is_mean = pooling == MR_POOL_MEAN;
    if (weights == NULL)
        return is_mean ? (float)count : sqrtf((float)count);
    double sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += (double)weights[i] * (is_mean ? 1.0 : (double)weights[i]);
    return (float)(is_mean ? sum : sqrt(sum));
}

#endif
