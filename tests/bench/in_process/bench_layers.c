/* Training steps of the MNIST example's network, one thread: forward, loss, backward, momentum. For each line
 * that is read, a round of so many steps; answers with the processor time of the round in seconds.
 * tests/bench/layers.py has torch take turns with it.
 *
 * bench_layers [BATCH]   default: 32 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "ps/modules/layers/network.h"
#include "tests/unit/ps/modules/layers/training.h"

#define IMAGE_FLOATS 784u
#define CLASSES      10u

struct bench {
    uint32_t batch;
    struct ps_network *network;
    struct parameters *parameters;
    struct parameters_optimizer *optimizer;
    struct ps_saved *saved;
    float *images, *output, *gradients;
    uint32_t *labels;
    uint64_t step;
    float loss;
};

static void layers_check(enum mr_status status, const char *what)
{
    if (status == MR_OK)
        return;
    fprintf(stderr, "bench_layers: %s: %s\n", what, mr_status_text(status));
    exit(1);
}

static void *allocate(size_t count)
{
    void *p = calloc(count, sizeof(float));
    if (p == NULL)
        layers_check(MR_NO_MEMORY, "buffers");
    return p;
}

static void make_network(struct bench *b)
{
    const struct ps_layer layers[] = {
        ps_conv2d(1, 32, 3),     ps_relu(),       ps_conv2d(32, 64, 3), ps_relu(), ps_max_pool2d(2),
        ps_dropout(0.25f),       ps_flatten(),    ps_linear(9216, 128), ps_relu(), ps_dropout(0.5f),
        ps_linear(128, CLASSES), ps_log_softmax()};
    const struct ps_shape sample = {3, {1, 28, 28}};
    const uint32_t one = 1;
    struct mr_feature learning = mr_feature_variable("learning", 1, &one);
    const char *what = "optimizer";
    char error[200] = "";
    mr_feature_set_optimizer(&learning, MR_OPT_MOMENTUM);
    learning.optimizer_args[0] = 0.5f;
    learning.learning_rate = 0.03f;
    layers_check(ps_network_create(layers, sizeof(layers) / sizeof(layers[0]), &sample, NULL, &b->network,
                                   error, sizeof(error)),
                 error);
    layers_check(parameters_create(b->network, 1, &b->parameters), "parameters");
    layers_check(parameters_optimizer_create(b->parameters, &learning, &b->optimizer, &what), what);
    layers_check(ps_saved_create(b->network, &b->saved), "saved");
    b->images = allocate((size_t)b->batch * IMAGE_FLOATS);
    b->output = allocate((size_t)b->batch * CLASSES);
    b->labels = allocate(b->batch);
    b->gradients = allocate(ps_network_parameter_floats(b->network));
}

/* Strokes of ones on zeros, as digits are: about a fifth of the picture. */
static void draw_images(struct bench *b)
{
    uint64_t state = 1;
    for (uint32_t i = 0; i < b->batch; i++) {
        b->labels[i] = i % CLASSES;
        for (uint32_t stroke = 0; stroke < 8; stroke++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            uint32_t at = (uint32_t)(state >> 40) % (IMAGE_FLOATS - 4 * 28 - 20);
            for (uint32_t j = 0; j < 60; j++)
                b->images[(size_t)i * IMAGE_FLOATS + at + j / 15 * 28 + j % 15] = 1;
        }
    }
}

static void train(struct bench *b)
{
    const struct ps_forward how = {.training = true, .seed = 1, .step = ++b->step};
    struct mr_parameter_version *version = parameters_hold(b->parameters);
    layers_check(ps_network_forward(b->network, version, &how, b->images, b->batch, b->saved, b->output),
                 "forward");
    mr_version_release(version);
    layers_check(nll_loss(b->output, b->labels, b->batch, CLASSES, &b->loss, b->output), "loss");
    layers_check(ps_network_backward(b->network, b->saved, b->output, NULL, b->gradients), "backward");
    layers_check(parameters_step(b->optimizer, b->gradients, b->step, 0, NULL), "step");
}

static double processor_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    struct bench b = {.batch = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 32};
    char line[32];
    if (b.batch < 1 || b.batch > PS_BATCH_MAX) {
        fprintf(stderr, "bench_layers: the batch is 1..%u\n", PS_BATCH_MAX);
        return 2;
    }
    make_network(&b);
    draw_images(&b);
    while (fgets(line, sizeof(line), stdin) != NULL) {
        double start = processor_s();
        for (unsigned long steps = strtoul(line, NULL, 10); steps > 0; steps--)
            train(&b);
        printf("%.6f %.6f\n", processor_s() - start, (double)b.loss);
        fflush(stdout);
    }
    ps_saved_destroy(b.saved);
    parameters_optimizer_destroy(b.optimizer);
    parameters_destroy(b.parameters);
    ps_network_destroy(b.network);
    free(b.images);
    free(b.output);
    free(b.labels);
    free(b.gradients);
    return 0;
}
