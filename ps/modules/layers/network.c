#include "ps/modules/layers/network_internal.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ps/modules/layers/plan.h"
#include "ps/row/initializer.h"

const struct ps_shape *ps_network_input(const struct ps_network *n)
{
    return &n->list.shapes[0];
}

const struct ps_shape *ps_network_output(const struct ps_network *n)
{
    return &n->list.shapes[n->list.layer_count];
}

uint32_t ps_network_parameter_count(const struct ps_network *n)
{
    return n->list.parameter_count;
}

const struct ps_parameter_info *ps_network_parameter(const struct ps_network *n, uint32_t index)
{
    return ps_layer_list_parameter(&n->list, index);
}

uint64_t ps_network_parameter_floats(const struct ps_network *n)
{
    return n->list.parameter_floats;
}

void ps_parameters_first_values(const struct ps_network *network, uint64_t seed, float *values)
{
    memset(values, 0, network->list.parameter_floats * sizeof(float));
    for (uint32_t i = 0; i < network->list.parameter_count; i++) {
        const struct ps_parameter_info *info = &network->list.parameters[i];
        const float bound = (float)(1 / sqrt((double)info->shape.fan_in));
        const struct ps_initializer uniform = {
            .kind = MR_INIT_UNIFORM, .a = -bound, .b = bound, .seed = seed};
        ps_initializer_fill(&uniform, ((uint64_t)network->list.first_number << 32) + i, values + info->first,
                            info->shape.count);
    }
}

struct mr_tensor ps_parameters_tensor(const struct ps_network *network, const float *values)
{
    const uint32_t row = PS_LAYERS_ALIGN / sizeof(float); /* parameters begin at multiples of it */
    return mr_tensor_2d(MR_F32, (uint32_t)(network->list.parameter_floats / row), row, values);
}

enum mr_status ps_network_create(const struct ps_layer *layers, uint32_t layer_count,
                                 const struct ps_shape *sample, const struct ps_network_options *options,
                                 struct ps_network **out, char *error, size_t error_bytes)
{
    struct ps_network *n = calloc(1, sizeof(*n));
    if (n == NULL || ps_layers_engine() == NULL) {
        free(n);
        snprintf(error, error_bytes, "no memory left");
        return MR_NO_MEMORY;
    }
    pthread_mutex_init(&n->lock, NULL);
    n->threads = options != NULL && options->threads > 0 ? options->threads : 1;
    enum mr_status status =
        ps_layer_list_init(&n->list, layers, layer_count, sample, options != NULL ? options->first_number : 0,
                           error, error_bytes);
    if (status == MR_OK)
        *out = n;
    else
        ps_network_destroy(n);
    return status;
}

void ps_network_destroy(struct ps_network *n)
{
    if (n == NULL)
        return;
    for (uint32_t i = 0; i < PS_PLANS_KEPT; i++) {
        assert(n->plans[i] == NULL || n->plans[i]->users == 0);
        ps_plan_destroy(n->plans[i]);
    }
    pthread_mutex_destroy(&n->lock);
    ps_layer_list_free(&n->list);
    free(n);
}

/* ---- plans: those of the sizes of batch used last ---- */

/* The plan for `batch`, or where one can be put: none is there, or the one not in use for longest; NULL: all
 * are in use. */
static struct ps_plan **find_place(struct ps_network *n, uint32_t batch)
{
    struct ps_plan **place = NULL;
    for (uint32_t i = 0; i < PS_PLANS_KEPT; i++) {
        struct ps_plan **at = &n->plans[i];
        if (*at != NULL && (*at)->batch == batch)
            return at;
        if (*at != NULL && (*at)->users > 0)
            continue;
        if (place == NULL || (*place != NULL && (*at == NULL || (*at)->used_last < (*place)->used_last)))
            place = at;
    }
    return place;
}

enum mr_status ps_network_take_plan(struct ps_network *n, uint32_t batch, struct ps_plan **out)
{
    enum mr_status status = MR_OK;
    pthread_mutex_lock(&n->lock);
    struct ps_plan **place = find_place(n, batch), *plan = place != NULL ? *place : NULL;
    if (plan == NULL || plan->batch != batch) {
        status = ps_plan_create(&n->list, n->threads, batch, &plan);
        if (status == MR_OK && place != NULL) {
            ps_plan_destroy(*place);
            *place = plan;
        }
    }
    if (status == MR_OK) {
        plan->is_kept = place != NULL;
        plan->users++;
        plan->used_last = ++n->plan_uses;
        *out = plan;
    }
    pthread_mutex_unlock(&n->lock);
    return status;
}

void ps_network_give_plan_back(struct ps_network *n, struct ps_plan *plan)
{
    pthread_mutex_lock(&n->lock);
    bool is_last = --plan->users == 0 && !plan->is_kept;
    pthread_mutex_unlock(&n->lock);
    if (is_last)
        ps_plan_destroy(plan);
}
