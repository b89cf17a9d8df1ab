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
    struct mnist_options o = {.worker = {.program = "mnist",
                                         .rank = EXAMPLE_NOT_GIVEN,
                                         .world_size = 2,
                                         .master_addr = "127.0.0.1",
                                         .master_port = 29500},
                              .data = "build/data/mnist",
                              .batch = 32,
                              .epochs = 1,
                              .seed = 1,
                              .learning_rate = 0.01f,
                              .momentum = 0.9f};
    const struct example_option options[] = {
        EXAMPLE_WORKER_OPTIONS(&o.worker, MNIST_TRAINERS_MAX + 1),
        {"data", "directory of MNIST's files, for trainers", EXAMPLE_TEXT, &o.data, 0, 0},
        {"batch", "images of a step", EXAMPLE_NUMBER, &o.batch, 1, MNIST_BATCH_MAX},
        {"epochs", "passes of all trainers together over the training set", EXAMPLE_NUMBER, &o.epochs, 1,
         1000},
        {"seed", "of shuffling, first values and dropout", EXAMPLE_NUMBER, &o.seed, 0, 4e9},
        {"learning-rate", "of the optimizer, SGD", EXAMPLE_REAL, &o.learning_rate, 0, 1e6},
        {"momentum", "of the optimizer", EXAMPLE_REAL, &o.momentum, 0, 1},
        {"accuracy", "rank 0 fails when the test set's is below", EXAMPLE_REAL, &o.accuracy, 0, 1},
        {"threads", "rank 0: for a batch; 0: as many as CPUs", EXAMPLE_NUMBER, &o.threads, 0, 16},
        {"num-gpus", "as in torch's example; only 0 works", EXAMPLE_NUMBER, &o.gpus, 0, 64}};
    const struct example_program program = {
        "mnist",
        "Rank 0 holds the network of torch's MNIST example, the others train it by calling its forward.\n"
        "Together the trainers go over the training set once in each epoch.",
        options, sizeof(options) / sizeof(options[0])};
    o.program = &program;
    example_options_read(&program, argc, argv);
    if (o.gpus != 0)
        example_usage_error(&program, "--num-gpus %u: layers are computed on CPUs only", o.gpus);
    if (o.worker.world_size < 2)
        example_usage_error(&program, "--world-size 1 is a server without trainers");
    return o.worker.rank == 0 ? mnist_serve(&o) : mnist_train(&o);
}
