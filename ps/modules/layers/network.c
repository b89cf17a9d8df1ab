#include "ps/modules/layers/network.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ps/modules/layers/plan.h"
#include "ps/row/initializer.h"

const struct ps_shape *ps_network_input(const struct ps_network *n)
{
    return &n->shapes[0];
}

const struct ps_shape *ps_network_output(const struct ps_network *n)
{
    return &n->shapes[n->layer_count];
}

uint32_t ps_network_parameter_count(const struct ps_network *n)
{
    return n->parameter_count;
}

const struct ps_parameter_info *ps_network_parameter(const struct ps_network *n, uint32_t index)
{
    return index < n->parameter_count ? &n->parameters[index] : NULL;
}

uint64_t ps_network_parameter_floats(const struct ps_network *n)
{
    return n->parameter_floats;
}

void ps_parameters_first_values(const struct ps_network *network, uint64_t seed, float *values)
{
    memset(values, 0, network->parameter_floats * sizeof(float));
    for (uint32_t i = 0; i < network->parameter_count; i++) {
        const struct ps_parameter_info *info = &network->parameters[i];
        const float bound = (float)(1 / sqrt((double)info->shape.fan_in));
        const struct ps_initializer uniform = {
            .kind = MR_INIT_UNIFORM, .a = -bound, .b = bound, .seed = seed};
        ps_initializer_fill(&uniform, ((uint64_t)network->first_number << 32) + i, values + info->first,
                            info->shape.count);
    }
}

struct mr_tensor ps_parameters_tensor(const struct ps_network *network, const float *values)
{
    const uint32_t row = PS_LAYERS_ALIGN / sizeof(float); /* parameters begin at multiples of it */
    return mr_tensor_2d(MR_F32, (uint32_t)(network->parameter_floats / row), row, values);
}

static void add_parameters(struct ps_network *n, uint32_t layer)
{
    for (uint32_t i = 0; i < 2; i++) {
        struct ps_layer_parameter shape = ps_layer_parameter(&n->layers[layer], i);
        if (shape.count == 0)
            continue;
        struct ps_parameter_info *info = &n->parameters[n->parameter_count++];
        info->shape = shape;
        info->first = n->parameter_floats;
        snprintf(info->name, sizeof(info->name), "%" PRIu32 ".%s", n->first_number + layer,
                 i == 0 ? "weight" : "bias");
        n->parameter_floats += ps_layers_round(shape.count * sizeof(float)) / sizeof(float);
    }
}

static enum mr_status check_sample(const struct ps_shape *sample, char *error, size_t error_bytes)
{
    bool is_good = sample->rank >= 1 && sample->rank <= PS_SAMPLE_RANK_MAX;
    for (uint32_t i = 0; is_good && i < sample->rank; i++)
        is_good = sample->dims[i] >= 1 && sample->dims[i] <= PS_LAYER_SIZE_MAX;
    if (is_good && ps_shape_floats(sample) <= PS_SAMPLE_FLOATS_MAX)
        return MR_OK;
    snprintf(error, error_bytes, "a sample has 1..%u dims of 1..%u, and at most %" PRIu64 " floats",
             PS_SAMPLE_RANK_MAX, PS_LAYER_SIZE_MAX, PS_SAMPLE_FLOATS_MAX);
    return MR_INVALID_ARGUMENT;
}

static enum mr_status take_layers(struct ps_network *n, char *error, size_t error_bytes)
{
    char why[160];
    for (uint32_t i = 0; i < n->layer_count; i++) {
        enum mr_status status =
            ps_layer_output(&n->layers[i], &n->shapes[i], &n->shapes[i + 1], why, sizeof(why));
        if (status != MR_OK) {
            snprintf(error, error_bytes, "layer %" PRIu32 ": %s", n->first_number + i, why);
            return status;
        }
        add_parameters(n, i);
    }
    return MR_OK;
}

static bool has_room(const struct ps_network *n)
{
    return n->layers != NULL && n->shapes != NULL && n->parameters != NULL;
}

enum mr_status ps_network_create(const struct ps_layer *layers, uint32_t layer_count,
                                 const struct ps_shape *sample, const struct ps_network_options *options,
                                 struct ps_network **out, char *error, size_t error_bytes)
{
    if (layer_count < 1 || layer_count > PS_NETWORK_LAYERS_MAX) {
        snprintf(error, error_bytes, "a network has 1..%u layers", PS_NETWORK_LAYERS_MAX);
        return MR_INVALID_ARGUMENT;
    }
    enum mr_status status = check_sample(sample, error, error_bytes);
    if (status != MR_OK)
        return status;
    struct ps_network *n = calloc(1, sizeof(*n));
    if (n == NULL)
        goto no_memory;
    pthread_mutex_init(&n->lock, NULL);
    n->threads = options != NULL && options->threads > 0 ? options->threads : 1;
    n->first_number = options != NULL ? options->first_number : 0;
    n->layer_count = layer_count;
    n->layers = calloc(layer_count, sizeof(*n->layers));
    n->shapes = calloc((size_t)layer_count + 1, sizeof(*n->shapes));
    n->parameters = calloc(2 * (size_t)layer_count, sizeof(*n->parameters));
    if (!has_room(n) || ps_layers_engine() == NULL)
        goto no_memory;
    memcpy(n->layers, layers, layer_count * sizeof(*layers));
    n->shapes[0] = *sample;
    status = take_layers(n, error, error_bytes);
    if (status == MR_OK)
        *out = n;
    else
        ps_network_destroy(n);
    return status;
no_memory:
    snprintf(error, error_bytes, "no memory left");
    ps_network_destroy(n);
    return MR_NO_MEMORY;
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
    free(n->layers);
    free(n->shapes);
    free(n->parameters);
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
        status = ps_plan_create(n, batch, &plan);
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
