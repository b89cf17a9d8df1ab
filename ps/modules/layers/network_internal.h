/* A network from the inside, for the files of ps/modules/layers/ only. */
#ifndef PS_LAYERS_NETWORK_INTERNAL_H
#define PS_LAYERS_NETWORK_INTERNAL_H

#include <pthread.h>
#include "ps/modules/layers/layer_list.h"
#include "ps/modules/layers/network.h"

struct ps_plan;

#define PS_PLANS_KEPT 8u /* sizes of batch */

struct ps_network {
    struct ps_layer_list list;
    uint32_t threads;
    pthread_mutex_t lock; /* of what is below */
    struct ps_plan *plans[PS_PLANS_KEPT];
    uint64_t plan_uses;
};

/* The plan for `batch` samples, made if there is none, until it is given back. The network's threads are
 * taken. */
enum mr_status ps_network_take_plan(struct ps_network *network, uint32_t batch, struct ps_plan **out);
void ps_network_give_plan_back(struct ps_network *network, struct ps_plan *plan);

#endif
