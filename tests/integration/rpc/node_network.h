/* A network of the module of layers on a node, which a worker makes there and trains. For cmocka tests. */
#ifndef TESTS_NODE_NETWORK_H
#define TESTS_NODE_NETWORK_H

#include <stdint.h>
#include "millrace_rpc.h"

struct node_network {
    struct mr_rpc *rpc;
    uint32_t rank; /* the node's */
    struct mr_rref *network;
    struct mr_rpc_result *parameter;
    struct mr_dist_optimizer *optimizer;
};

/* With a name for the parameter, and one for the optimizer; or NULL. */
void node_network_make(struct node_network *n, struct mr_rpc *rpc, uint32_t rank, const char *name);
/* A step over a batch in which the class of a sample is where its one stands. Returns the loss. */
float node_network_train(struct node_network *n, int64_t step);
void node_network_let_go(struct node_network *n);

#endif
