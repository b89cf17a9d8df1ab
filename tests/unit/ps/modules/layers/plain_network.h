/* A network in double precision, as plain loops: what the formulas say, and nothing else. Dropout drops
 * nothing. */
#ifndef PLAIN_NETWORK_H
#define PLAIN_NETWORK_H

#include <stdint.h>
#include "ps/modules/layers/network.h"

/* The sum over the batch of weights[i] * output[i]. parameters: in the network's layout, in double. */
double plain_network(const struct ps_network *network, const struct ps_layer *layers, uint32_t layer_count,
                     uint32_t batch, const double *input, const double *parameters, const double *weights);

#endif
