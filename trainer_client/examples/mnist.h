/* The example mnist: what its command line says, and its two kinds of processes. See docs/mnist.md. */
#ifndef EXAMPLES_MNIST_H
#define EXAMPLES_MNIST_H

#include <stdbool.h>
#include <stdint.h>
#include "trainer_client/examples/common/worker.h"

#define MNIST_TRAINERS_MAX 16u
#define MNIST_BATCH_MAX    4096u

struct mnist_options {
    struct example_worker worker;
    const char *data;
    uint32_t batch, epochs, seed, threads, gpus;
    float learning_rate, momentum, accuracy;
    bool node; /* rank 0 is a node with the module layers.so, and no process of this program */
};

/* Functions of rank 0 that trainers call besides layers.* (docs/layers.md):
 *   mnist.begin() -> network ref, parameter ref
 *   mnist.trained(images i64) -> i64     how many trainers remain: the one that gets 0 tests the model
 *   mnist.tested(right i64, images i64)
 */

/* Each returns the exit code. */
int mnist_serve(const struct mnist_options *options);
int mnist_train(const struct mnist_options *options);

#endif
