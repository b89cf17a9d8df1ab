/* What the tests of layers share: drawn numbers, networks with all that a run needs, and a plain network in
 * double precision. */
#ifndef LAYERS_FIXTURE_H
#define LAYERS_FIXTURE_H

#include <stdbool.h>
#include "ps/modules/layers/network.h"
#include "training.h"
#include "tests/test.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Streams of drawn numbers: to be added to a number that tells them apart. */
#define DRAWN_INPUT     (UINT64_C(1) << 40)
#define DRAWN_GRADIENT  (UINT64_C(2) << 40)
#define DRAWN_LABEL     (UINT64_C(3) << 40)
#define DRAWN_PARAMETER (UINT64_C(4) << 40)

#define DROP_SEED 7u

/* Of [-1, 1), as data/layers_torch.py draws it. */
float drawn(uint64_t stream, uint64_t element);
/* calloc() for tests: never NULL. */
void *zeros(size_t count, size_t bytes);

/* The network of the MNIST example. */
#define CONV_NET_LAYERS 12u
extern const struct ps_shape conv_net_sample;
void conv_net_layers(struct ps_layer layers[CONV_NET_LAYERS]);

/* A network for one size of batch, and all buffers. */
struct machine {
    struct ps_network *network;
    struct parameters *parameters;
    struct ps_saved *saved;
    uint32_t batch;
    size_t in_floats, out_floats, parameter_floats; /* of the batch, the batch, all */
    float *input, *output, *output_gradient, *input_gradient, *gradients;
};

/* With drawn parameters, as data/layers_torch.py has them. */
void machine_init(struct machine *m, const struct ps_layer *layers, uint32_t layer_count,
                  const struct ps_shape *sample, uint32_t batch);
void machine_free(struct machine *m);
void machine_draw_input(struct machine *m, uint64_t step);
void machine_draw_output_gradient(struct machine *m, uint64_t step);
/* Of the newest version. */
void machine_forward(struct machine *m, bool training, uint64_t step);
void machine_backward(struct machine *m);

#endif
