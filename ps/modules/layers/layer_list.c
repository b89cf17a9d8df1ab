#include "ps/modules/layers/layer_list.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ps/modules/layers/engine.h"

static void add_parameters(struct ps_layer_list *l, uint32_t layer)
{
    for (uint32_t i = 0; i < 2; i++) {
        struct ps_layer_parameter shape = ps_layer_parameter(&l->layers[layer], i);
        if (shape.count == 0)
            continue;
        struct ps_parameter_info *info = &l->parameters[l->parameter_count++];
        info->shape = shape;
        info->first = l->parameter_floats;
        snprintf(info->name, sizeof(info->name), "%" PRIu32 ".%s", l->first_number + layer,
                 i == 0 ? "weight" : "bias");
        l->parameter_floats += ps_layers_round(shape.count * sizeof(float)) / sizeof(float);
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

static enum mr_status take_layers(struct ps_layer_list *l, char *error, size_t error_bytes)
{
    char why[160];
    for (uint32_t i = 0; i < l->layer_count; i++) {
        enum mr_status status =
            ps_layer_output(&l->layers[i], &l->shapes[i], &l->shapes[i + 1], why, sizeof(why));
        if (status != MR_OK) {
            snprintf(error, error_bytes, "layer %" PRIu32 ": %s", l->first_number + i, why);
            return status;
        }
        add_parameters(l, i);
    }
    return MR_OK;
}

static bool has_room(const struct ps_layer_list *l)
{
    return l->layers != NULL && l->shapes != NULL && l->parameters != NULL;
}

enum mr_status ps_layer_list_init(struct ps_layer_list *list, const struct ps_layer *layers,
                                  uint32_t layer_count, const struct ps_shape *sample, uint32_t first_number,
                                  char *error, size_t error_bytes)
{
    if (layer_count < 1 || layer_count > PS_NETWORK_LAYERS_MAX) {
        snprintf(error, error_bytes, "a network has 1..%u layers", PS_NETWORK_LAYERS_MAX);
        return MR_INVALID_ARGUMENT;
    }
    enum mr_status status = check_sample(sample, error, error_bytes);
    if (status != MR_OK)
        return status;
    struct ps_layer_list made = {.layer_count = layer_count,
                                 .first_number = first_number,
                                 .layers = calloc(layer_count, sizeof(*made.layers)),
                                 .shapes = calloc((size_t)layer_count + 1, sizeof(*made.shapes)),
                                 .parameters = calloc(2 * (size_t)layer_count, sizeof(*made.parameters))};
    if (!has_room(&made)) {
        ps_layer_list_free(&made);
        snprintf(error, error_bytes, "no memory left");
        return MR_NO_MEMORY;
    }
    memcpy(made.layers, layers, layer_count * sizeof(*layers));
    made.shapes[0] = *sample;
    status = take_layers(&made, error, error_bytes);
    if (status == MR_OK)
        *list = made;
    else
        ps_layer_list_free(&made);
    return status;
}

void ps_layer_list_free(struct ps_layer_list *list)
{
    free(list->layers);
    free(list->shapes);
    free(list->parameters);
}

const struct ps_parameter_info *ps_layer_list_parameter(const struct ps_layer_list *list, uint32_t index)
{
    return index < list->parameter_count ? &list->parameters[index] : NULL;
}
