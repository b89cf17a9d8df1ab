/* What trainers do besides when the network lies on a node (mnist_node.c). */
#ifndef EXAMPLES_MNIST_NODE_H
#define EXAMPLES_MNIST_NODE_H

#include <pthread.h>
#include <stdbool.h>
#include "trainer_client/examples/mnist.h"

enum mnist_outcome { MNIST_OPEN, MNIST_TESTED, MNIST_FAILED };

/* At trainer 1: how many of the others are done in this world, and what they wait for. */
struct mnist_node {
    pthread_mutex_t lock; /* of what is below, except `function` */
    pthread_cond_t changed;
    uint32_t done;
    enum mnist_outcome outcome;
    struct mr_rpc_function function; /* mnist.done(): returns when the model has been tested */
};

void mnist_node_init(struct mnist_node *n);
/* A world begins, and ends. */
void mnist_node_begin(struct mnist_node *n);
void mnist_node_end(struct mnist_node *n, bool is_tested);
/* Joins, for as long as it takes a node to start again. NULL: a line says why not. */
struct mr_rpc *mnist_node_join(struct mnist_node *n, const struct example_worker *worker, const char *name,
                               const struct mr_rpc_function *more);
/* Makes the network of the name "mnist", with what it has learnt. 0, or exit code 1. */
int mnist_node_network(struct mr_rpc *rpc, const struct mnist_options *o, struct mr_rref **network,
                       struct mr_rpc_result **parameter);
/* Trainer 1: waits for the others. Others: tells trainer 1, and returns when it has tested. */
int mnist_node_wait(struct mnist_node *n, struct mr_rpc *rpc, const struct example_worker *worker);
int mnist_node_tell(struct mr_rpc *rpc, const struct example_worker *worker);

#endif
