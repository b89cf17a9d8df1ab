/* Networks as text, as callers of a module name them:
 *
 *   input 1 28 28; conv2d 1 32 3; relu; conv2d 32 64 3; relu; max_pool2d 2; dropout 0.25; flatten; linear
 *   9216 128; relu; ...
 *
 * Statements are separated by ';'. The first is `input` with the shape of one sample; `number N` after it is
 * the number of the first layer, for the second half of a network cut in two (struct ps_network_options).
 * Then come layers:
 *
 *   conv2d IN OUT KERNEL [stride N] [pad N]     linear IN OUT     max_pool2d KERNEL [stride N] [pad N]
 *   dropout PROBABILITY     relu     flatten     log_softmax
 *
 * "convnet" alone is the network of torch's MNIST example. Pure, any thread.
 */
#ifndef PS_MODEL_TEXT_H
#define PS_MODEL_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"
#include "ps/modules/layers/network.h"

#define PS_MODEL_TEXT_BYTES 16384u /* at most */

struct ps_model_text {
    struct ps_shape sample;
    uint32_t first_number, layer_count;
    struct ps_layer layers[PS_NETWORK_LAYERS_MAX];
};

/* MR_INVALID_ARGUMENT: `error` gets a line with the statement and what is wrong with it. Whether the layers
 * fit together is ps_network_create()'s to say. */
enum mr_status ps_model_read(const char *text, struct ps_model_text *out, char *error, size_t error_bytes);

#endif
