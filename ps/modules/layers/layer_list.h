/* The layers of a network, what goes into each and comes out of it, and where their parameters lie. It does
 * not change once made. Inside ps/modules/layers/ only.
 */
#ifndef PS_LAYERS_LAYER_LIST_H
#define PS_LAYERS_LAYER_LIST_H

#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"
#include "ps/modules/layers/layer.h"

struct ps_layer_list {
    uint32_t layer_count, parameter_count, first_number;
    struct ps_layer *layers;
    struct ps_shape *shapes; /* [layer_count + 1]: the input of each layer, and the output of the last */
    struct ps_parameter_info *parameters;
    uint64_t parameter_floats;
};

/* As ps_network_create() takes them. On failure *list is as it was, and `error` holds one line. */
enum mr_status ps_layer_list_init(struct ps_layer_list *list, const struct ps_layer *layers,
                                  uint32_t layer_count, const struct ps_shape *sample, uint32_t first_number,
                                  char *error, size_t error_bytes);
void ps_layer_list_free(struct ps_layer_list *list); /* zeroed is fine */
/* NULL beyond the last. */
const struct ps_parameter_info *ps_layer_list_parameter(const struct ps_layer_list *list, uint32_t index);

#endif
