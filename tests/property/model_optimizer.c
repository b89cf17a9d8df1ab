/* SGD, Adagrad and what sets rows as they are written down, one float at a time, in single precision;
 * compiled without contraction. */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "model.h"
#include "dataplane/optimizer/kernels.h"

void model_optimizer_init(struct model *m)
{
    const char *what;
    enum mr_status status = mr_rule_init(&m->feature, &m->optimizer, &what);
    assert(status == MR_OK);
    (void)status;
    for (uint32_t i = 0; mr_kernels_at(i) != NULL; i++)
        m->optimizer.kernels = mr_kernels_at(i); /* the plain ones are the last */
    m->state_floats = (uint32_t)mr_rule_state_floats(&m->optimizer, m->dim);
}

void model_state_init(const struct model *m, struct model_row *row)
{
    if (m->feature.optimizer != MR_OPT_ADAGRAD) {
        mr_rule_state_init(&m->optimizer, row->floats, row->floats + m->dim, m->dim);
        return;
    }
    for (uint32_t i = 0; i < m->dim; i++)
        row->floats[m->dim + i] = m->feature.optimizer_args[0];
}

static float clipped(const struct mr_feature *f, float g)
{
    if (f->clip_value > 0)
        g = g > f->clip_value ? f->clip_value : g < -f->clip_value ? -f->clip_value : g;
    return g;
}

/* By what a gradient is multiplied for its norm to be at most clip_norm. Element i's square goes to lane i %
 * 8. */
static float norm_scale(const struct model *m, const float *gradient)
{
    const struct mr_feature *f = &m->feature;
    double lanes[8] = {0};
    if (f->clip_norm <= 0)
        return 1.0f;
    for (uint32_t i = 0; i < m->dim; i++) {
        double g = (double)clipped(f, gradient[i]);
        lanes[i % 8] += g * g;
    }
    double norm = sqrt(((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
                       ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7])));
    return norm > (double)f->clip_norm ? (float)((double)f->clip_norm / norm) : 1.0f;
}

static void sgd(float *w, float g, float learning_rate)
{
    *w -= learning_rate * g;
}

static void adagrad(const struct mr_feature *f, float *w, float *state, float g, float learning_rate)
{
    float sum = *state + g * g;
    *state = sum < FLT_MAX ? sum : FLT_MAX;
    *w -= learning_rate * g / (sqrtf(*state) + f->optimizer_args[1]);
}

static void plain_step(const struct model *m, struct model_row *row, const float *gradient,
                       float learning_rate)
{
    const struct mr_feature *f = &m->feature;
    float *w = row->floats, *state = w + m->dim;
    bool transforms = f->weight_decay > 0 || f->clip_value > 0 || f->clip_norm > 0;
    float scale = norm_scale(m, gradient);
    for (uint32_t i = 0; i < m->dim; i++) {
        float g = gradient[i];
        if (transforms)
            g = clipped(f, g) * scale + f->weight_decay * w[i];
        if (f->optimizer == MR_OPT_ASSIGN)
            w[i] = g;
        else if (f->optimizer == MR_OPT_ADAGRAD)
            adagrad(f, &w[i], &state[i], g, learning_rate);
        else
            sgd(&w[i], g, learning_rate);
    }
}

/* False when the row would come to hold NaN or Inf, or more than its type does: it is as it was then. */
static bool model_optimizer_step(const struct model *m, struct model_row *row, const float *gradient,
                                 const struct mr_rule_push *push)
{
    float *values = row->floats, *state = values + m->dim;
    uint32_t optimizer = m->feature.optimizer;
    if (optimizer != MR_OPT_ASSIGN && optimizer != MR_OPT_SGD && optimizer != MR_OPT_ADAGRAD)
        return mr_rule_apply(&m->optimizer, push, &values, &state, &gradient, 1, m->dim) == 1;
    size_t bytes = (m->dim + m->state_floats) * sizeof(float);
    float *before = malloc(bytes);
    memcpy(before, values, bytes);
    plain_step(m, row, gradient, push->learning_rate);
    bool stays = model_all_finite(values, m->dim) &&
                 (!model_is_half(m) || optimizer == MR_OPT_ASSIGN || model_holds(m, values));
    if (!stays)
        memcpy(values, before, bytes);
    free(before);
    return stays;
}

bool model_step(const struct model *m, struct model_row *row, const float *gradient,
                const struct mr_rule_push *push)
{
    if (!model_all_finite(gradient, m->dim))
        return false;
    if (!model_optimizer_step(m, row, gradient, push))
        return false;
    if (model_is_half(m) && m->feature.optimizer == MR_OPT_ASSIGN)
        model_set(m, row);
    else if (model_is_half(m))
        model_round(m, row);
    return true;
}
