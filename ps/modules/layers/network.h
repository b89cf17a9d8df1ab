/* A network: a sequence of layers, run forward and backward for a batch. It computes with versions of its
 * parameters (dataplane/optimizer/versions.h); what it remembers for the backward lies in a `struct ps_saved`
 * that the caller holds.
 *
 * Threads: a network does not change once made, any number of threads may run it at once, each with a
 * ps_saved of its own. A ps_saved belongs to one thread at a time, and may be handed on between a forward and
 * its backward. Each run computes with `threads` threads of OpenMP (1 unless said): what the caller has set
 * for its thread stays as it is.
 *
 * All inputs are copied, all outputs written before the call returns: no pointer is kept. Pointers need the
 * alignment of a float.
 */
#ifndef PS_NETWORK_H
#define PS_NETWORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"
#include "dataplane/wire/format/mr_tensor.h"
#include "ps/modules/layers/layer.h"

#define PS_BATCH_MAX 65536u /* samples of a run */

struct ps_network;
struct ps_saved;
struct mr_parameter_version;

struct ps_network_options {
    uint32_t threads; /* of OpenMP per run; 0 = 1 */
    /* of layers[0]: in names of parameters and for dropout. For the second half of a network cut in two */
    uint32_t first_number;
};

/* `layers` and `options` (NULL: defaults) are copied. `sample`: shape of one sample of the input. On failure
 * *out is as it was and `error` holds a line with the layer's number and what is wrong. */
enum mr_status ps_network_create(const struct ps_layer *layers, uint32_t layer_count,
                                 const struct ps_shape *sample, const struct ps_network_options *options,
                                 struct ps_network **out, char *error, size_t error_bytes);
/* After its ps_saved and ps_parameters. NULL is fine. */
void ps_network_destroy(struct ps_network *network);

const struct ps_shape *ps_network_input(const struct ps_network *network);  /* of one sample */
const struct ps_shape *ps_network_output(const struct ps_network *network); /* of one sample */

/* Parameters in torch's order: layer after layer, weight, then bias. */
uint32_t ps_network_parameter_count(const struct ps_network *network);
/* NULL beyond the last. */
const struct ps_parameter_info *ps_network_parameter(const struct ps_network *network, uint32_t index);
/* Of all parameters together; between them are some floats of padding, which are 0 in values and
 * gradients. */
uint64_t ps_network_parameter_floats(const struct ps_network *network);

/* Sets the first values as torch's conv2d and linear do: uniform in +-1 / sqrt(fan_in), a function of `seed`,
 * parameter and element alone. values: ps_network_parameter_floats(). */
void ps_parameters_first_values(const struct ps_network *network, uint64_t seed, float *values);
/* The values as one tensor, which mr_parameter_create() takes. */
struct mr_tensor ps_parameters_tensor(const struct ps_network *network, const float *values);

/* Room for a forward and its backward; grows with the largest batch, and is used again by the next. */
enum mr_status ps_saved_create(struct ps_network *network, struct ps_saved **out);
void ps_saved_destroy(struct ps_saved *saved); /* NULL is fine */
/* Forgets the forward, and lets its version go. Keeps the memory. */
void ps_saved_reset(struct ps_saved *saved);
size_t ps_saved_bytes(const struct ps_saved *saved);

/* input: [batch, sample], output: [batch, ps_network_output()]. Holds `version` until the backward is done,
 * or ps_saved_reset(). What was saved before is forgotten. MR_INVALID_ARGUMENT (batch 0 or beyond
 * PS_BATCH_MAX, a version of another number of floats), MR_NO_MEMORY, MR_INTERNAL: `saved` is empty. */
enum mr_status ps_network_forward(struct ps_network *network, struct mr_parameter_version *version,
                                  const struct ps_forward *how, const float *input, uint32_t batch,
                                  struct ps_saved *saved, float *output);

/* Once per forward. output_gradient: [batch, ps_network_output()]; input_gradient: [batch, sample], NULL when
 * not wanted; parameter_gradients: ps_network_parameter_floats(), written, not added to; NULL when not
 * wanted. Afterwards `saved` is empty. MR_NOT_READY: there is no forward to go back from. */
enum mr_status ps_network_backward(struct ps_network *network, struct ps_saved *saved,
                                   const float *output_gradient, float *input_gradient,
                                   float *parameter_gradients);

#endif
