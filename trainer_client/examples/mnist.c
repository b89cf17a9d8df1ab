/* torch's tutorial of a parameter server: rank 0 holds a ConvNet, trainers call its forward; distributed
 * autograd and optimizer do the rest.
 *
 *   mnist --world-size 3 --rank 0 --data build/data/mnist &      # server
 *   mnist --world-size 3 --rank 1 --data build/data/mnist &      # trainers
 *   mnist --world-size 3 --rank 2 --data build/data/mnist
 */
#include "trainer_client/examples/mnist.h"

int main(int argc, char **argv)
{
    struct mnist_options o = {.worker = EXAMPLE_WORKER("mnist", 2),
                              .data = "build/data/mnist",
                              .batch = 32,
                              .epochs = 1,
                              .seed = 1,
                              .learning_rate = 0.01f,
                              .momentum = 0.9f};
    const struct cli_option options[] = {
        EXAMPLE_WORKER_OPTIONS(&o.worker, MNIST_TRAINERS_MAX + 1, "default 2"),
        {"data", CLI_STRING, &o.data, "TEXT",
         "directory of MNIST's files, for trainers; default build/data/mnist"},
        {"batch", CLI_U32_IN(1, MNIST_BATCH_MAX), &o.batch, "N", "images of a step; default 32"},
        {"epochs", CLI_U32_IN(1, 1000), &o.epochs, "N",
         "passes of all trainers together over the training set; default 1"},
        {"seed", CLI_U32_IN(0, 4e9), &o.seed, "N", "of shuffling, first values and dropout; default 1"},
        {"learning-rate", CLI_FLOAT_IN(0, 1e6), &o.learning_rate, "X", "of the optimizer, SGD; default 0.01"},
        {"momentum", CLI_FLOAT_IN(0, 1), &o.momentum, "X", "of the optimizer; default 0.9"},
        {"accuracy", CLI_FLOAT_IN(0, 1), &o.accuracy, "X",
         "rank 0 (on a node: rank 1) fails when the test set's is below; default 0"},
        {"node", CLI_FLAG, &o.node, NULL,
         "rank 0 is a node with layers.so; trainers go on when it was killed and started again"},
        {"threads", CLI_U32_IN(0, 16), &o.threads, "N", "rank 0: for a batch; 0: as many as CPUs (default)"},
        {"num-gpus", CLI_U32_IN(0, 64), &o.gpus, "N", "as in torch's example; only 0 works"}};
    const struct cli_usage usage = {
        .program = o.worker.program,
        .synopsis = "--rank N [options]",
        .summary =
            "Rank 0 holds the network of torch's MNIST example, the others train it by calling its forward.\n"
            "Together the trainers go over the training set once in each epoch.",
        CLI_OPTIONS(options)};
    (void)cli_parse(&usage, argc, argv, NULL);
    if (o.gpus != 0)
        cli_refuse(usage.program, "--num-gpus %u: layers are computed on CPUs only", o.gpus);
    if (o.worker.world_size < 2)
        cli_refuse(usage.program, "--world-size 1 is a server without trainers");
    if (o.node && o.worker.rank == 0)
        cli_refuse(usage.program, "--rank 0 is the node's: start millraced with rpc.rank=0");
    return o.worker.rank == 0 ? mnist_serve(&o) : mnist_train(&o);
}
