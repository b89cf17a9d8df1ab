/* Scores against the sum over pairs, gradients against differences of the loss, and that it learns. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "trainer_client/examples/common/fm_model.h"
#include "trainer_client/examples/common/metrics.h"
#include "tests/test.h"

enum { SAMPLES = 5, SLOTS = 4, FACTORS = 3, DENSE = 2, DIM = 1 + FACTORS, FLOATS = SAMPLES * SLOTS * DIM };

static const struct fm_shape shape = {SAMPLES, SLOTS, FACTORS, DENSE};

struct problem {
    float pooled[FLOATS], dense[SAMPLES * DENSE], labels[SAMPLES], weights[DENSE], bias;
};

static float uniform(unsigned int *random)
{
    return (float)rand_r(random) / (float)RAND_MAX * 2 - 1;
}

static struct problem make_problem(unsigned int seed)
{
    struct problem p;
    for (int i = 0; i < FLOATS; i++)
        p.pooled[i] = uniform(&seed);
    for (int i = 0; i < SAMPLES * DENSE; i++)
        p.dense[i] = uniform(&seed);
    for (int i = 0; i < SAMPLES; i++)
        p.labels[i] = (float)(i % 2);
    p.weights[0] = 0.5f;
    p.weights[1] = -0.3f;
    p.bias = 0.2f;
    return p;
}

/* As the model is defined. */
static double score_by_pairs(const struct problem *p, int s)
{
    const float *x = p->pooled + s * SLOTS * DIM;
    double score = (double)p->bias;
    for (int d = 0; d < DENSE; d++)
        score += (double)p->dense[s * DENSE + d] * (double)p->weights[d];
    for (int i = 0; i < SLOTS; i++) {
        score += (double)x[i * DIM];
        for (int j = 0; j < i; j++)
            for (int k = 1; k < DIM; k++)
                score += (double)x[i * DIM + k] * (double)x[j * DIM + k];
    }
    return score;
}

static double loss_of(const struct problem *p)
{
    double loss = 0;
    for (int s = 0; s < SAMPLES; s++) {
        double margin = score_by_pairs(p, s) * (p->labels[s] > 0.5f ? 1 : -1);
        loss += log1p(exp(-margin));
    }
    return loss;
}

TEST(scores_are_the_sum_over_pairs)
{
    for (unsigned int seed = 1; seed < 20; seed++) {
        struct problem p = make_problem(seed);
        const struct fm_parameters parameters = {p.bias, p.weights};
        float scores[SAMPLES];
        fm_scores(&shape, &parameters, p.pooled, p.dense, scores);
        for (int s = 0; s < SAMPLES; s++)
            assert_true(fabs((double)scores[s] - score_by_pairs(&p, s)) < 1e-5);
    }
}

static void assert_slope(struct problem *p, float *place, float gradient)
{
    const float step = 1e-3f, before = *place;
    *place = before + step;
    double above = loss_of(p), up = (double)*place;
    *place = before - step;
    double below = loss_of(p), down = (double)*place;
    *place = before;
    assert_true(fabs((above - below) / (up - down) - (double)gradient) < 1e-3);
}

TEST(gradients_are_the_slopes_of_the_loss)
{
    struct problem p = make_problem(3);
    const struct fm_parameters parameters = {p.bias, p.weights};
    float pooled[FLOATS], weights[DENSE] = {9, 9};
    struct fm_gradients g = {.pooled = pooled, .dense_weights = weights};
    double loss = fm_backward(&shape, &parameters, p.pooled, p.dense, p.labels, &g);
    assert_true(fabs(loss - loss_of(&p)) < 1e-4);
    for (int i = 0; i < FLOATS; i++)
        assert_slope(&p, &p.pooled[i], pooled[i]);
    for (int d = 0; d < DENSE; d++)
        assert_slope(&p, &p.weights[d], weights[d]);
    assert_slope(&p, &p.bias, g.bias);
}

TEST(without_dense_values)
{
    struct problem p = make_problem(4);
    const struct fm_shape sparse = {SAMPLES, SLOTS, FACTORS, 0};
    const struct fm_parameters parameters = {p.bias, NULL};
    float pooled[FLOATS], scores[SAMPLES];
    struct fm_gradients g = {.pooled = pooled, .dense_weights = scores};
    p.weights[0] = p.weights[1] = 0;
    fm_scores(&sparse, &parameters, p.pooled, p.dense, scores);
    assert_true(fabs((double)scores[1] - score_by_pairs(&p, 1)) < 1e-5);
    assert_true(fabs(fm_backward(&sparse, &parameters, p.pooled, p.dense, p.labels, &g) - loss_of(&p)) <
                1e-4);
}

TEST(descent_learns_an_interaction)
{
    /* label = (key of slot 0 == key of slot 1): first-order weights alone cannot tell. */
    enum { KEYS = 4, PAIRS = KEYS * KEYS };
    const struct fm_shape pairs = {PAIRS, 2, FACTORS, 0};
    float rows[2][KEYS][DIM], pooled[PAIRS * 2 * DIM], gradient[PAIRS * 2 * DIM] = {0}, labels[PAIRS],
                                                                            bias = 0, none;
    unsigned int seed = 1;
    for (int i = 0; i < 2 * KEYS * DIM; i++)
        ((float *)rows)[i] = uniform(&seed) * 0.5f;
    double loss = 0;
    for (int step = 0; step < 2000; step++) {
        for (int n = 0; n < PAIRS; n++) {
            memcpy(pooled + (n * 2) * DIM, rows[0][n / KEYS], sizeof(rows[0][0]));
            memcpy(pooled + (n * 2 + 1) * DIM, rows[1][n % KEYS], sizeof(rows[0][0]));
            labels[n] = n / KEYS == n % KEYS ? 1.0f : 0.0f;
        }
        const struct fm_parameters parameters = {bias, NULL};
        struct fm_gradients g = {.pooled = gradient, .dense_weights = &none};
        loss = fm_backward(&pairs, &parameters, pooled, pooled, labels, &g) / PAIRS;
        bias -= 0.1f * g.bias;
        for (int n = 0; n < PAIRS; n++) {
            for (int k = 0; k < DIM; k++) {
                rows[0][n / KEYS][k] -= 0.1f * gradient[(n * 2) * DIM + k];
                rows[1][n % KEYS][k] -= 0.1f * gradient[(n * 2 + 1) * DIM + k];
            }
        }
    }
    assert_true(loss < 0.05); /* the best constant has 0.56 */
}
