/* What the files of networks and plans know of each other's objects. Inside ps/modules/layers/ only. */
#ifndef PS_LAYERS_NETWORK_INTERNAL_H
#define PS_LAYERS_NETWORK_INTERNAL_H

#include "ps/modules/layers/engine.h"
#include "ps/modules/layers/network.h"

struct ps_plan;

/* ---- of the network ---- */

uint32_t ps_network_layer_count(const struct ps_network *network);
const struct ps_layer *ps_network_layer(const struct ps_network *network, uint32_t index);
/* What goes into layer `index`; behind the last, what comes out. */
const struct ps_shape *ps_network_shape(const struct ps_network *network, uint32_t index);
uint32_t ps_network_first_number(const struct ps_network *network);
uint32_t ps_network_threads(const struct ps_network *network);

/* The plan for `batch` samples, made if there is none, until it is given back. The network's threads are
 * taken. */
enum mr_status ps_network_take_plan(struct ps_network *network, uint32_t batch, struct ps_plan **out);
void ps_network_give_plan_back(struct ps_network *network, struct ps_plan *plan);

#endif
