/* The other ranks: each takes its share of the batches, and whoever is done last tests the model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "trainer_client/examples/common/mnist_data.h"
#include "trainer_client/examples/common/nll_loss.h"
#include "trainer_client/examples/mnist.h"
#include "trainer_client/examples/mnist_node.h"

#define SAY_EVERY  5u /* batches */
#define TEST_BATCH 250u
#define TRIES_MAX  5u /* without a step in between */

struct trainer {
    const struct mnist_options *options;
    struct mr_rpc *rpc;
    struct mnist_data train, test;
    uint32_t *order;              /* of the training set, the same for all trainers in an epoch */
    float *pictures;              /* of a batch */
    uint32_t *labels;             /* of a batch */
    struct mr_rpc_result *served; /* network and parameter; on a node: the parameter */
    struct mr_rref *network;
    struct mr_dist_optimizer *optimizer;
    struct mnist_node node;
    uint64_t steps; /* that the node has kept of this trainer */
    uint32_t right; /* of the test set */
};

static struct mr_value network(const struct trainer *t)
{
    return mr_value_rref(t->network);
}

/* ---- batches ---- */

static uint64_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static void shuffle(struct trainer *t, uint64_t seed)
{
    for (uint32_t i = 0; i < t->train.count; i++)
        t->order[i] = i;
    for (uint32_t i = t->train.count; i > 1; i--) {
        uint32_t j = (uint32_t)(draw(&seed) % i), other = t->order[j];
        t->order[j] = t->order[i - 1];
        t->order[i - 1] = other;
    }
}

/* Samples [first, first + count) of `data`, in `order` (NULL: as they lie). */
static void mnist_trainer_fill(struct trainer *t, const struct mnist_data *data, const uint32_t *order,
                               uint32_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t sample = order == NULL ? first + i : order[first + i];
        mnist_data_picture(data, sample, t->pictures + (size_t)i * MNIST_PIXELS);
        t->labels[i] = data->labels[sample];
    }
}

/* [count, 1, 28, 28] */
static struct mr_value pictures_of(const struct trainer *t, uint32_t count)
{
    return mr_value_tensor((struct mr_tensor){.dtype = MR_F32,
                                              .rank = 4,
                                              .dims = {count, 1, MNIST_SIDE, MNIST_SIDE},
                                              .bytes = (uint64_t)count * MNIST_PIXELS * sizeof(float),
                                              .data = t->pictures});
}

/* ---- training ---- */

/* Forward on the server, loss here, backward through both, and a step on the server. */
static int mnist_trainer_step(struct trainer *t, struct mr_autograd *context, uint64_t number, uint32_t count,
                              float *loss_value)
{
    const struct mr_rpc_call_options in_context = {.context = context};
    const struct mr_value forward[] = {network(t), mr_value_i64((int64_t)number), pictures_of(t, count)};
    struct mr_rpc_result *output = NULL, *loss = NULL;
    const char *what = "layers.forward";
    enum mr_status status = mr_rpc_sync(t->rpc, 0, what, forward, 3, &in_context, &output);
    if (status == MR_OK) {
        const struct mr_value arguments[] = {*mr_rpc_result_value(output, 0),
                                             mr_value_tensor(mr_tensor_1d(MR_U32, count, t->labels))};
        what = "nll_loss";
        status = mr_autograd_apply(context, what, arguments, 2, &loss);
    }
    if (status == MR_OK) {
        *loss_value = *(const float *)mr_rpc_result_value(loss, 0)->tensor.data;
        what = "backward";
        status = mr_autograd_backward(context, mr_rpc_result_value(loss, 0), 1, false);
    }
    if (status == MR_OK) {
        what = "the optimizer's step";
        status = mr_dist_optimizer_step(t->optimizer, context, 0);
    }
    if (status != MR_OK)
        (void)example_failed(&t->options->worker, what);
    mr_rpc_result_free(loss);
    mr_rpc_result_free(output);
    return status == MR_OK ? 0 : 1;
}

static int train_batch(struct trainer *t, uint64_t number, uint32_t count, float *loss)
{
    struct mr_autograd *context;
    if (mr_autograd_begin(t->rpc, &context) != MR_OK)
        return example_failed(&t->options->worker, "mr_autograd_begin");
    int failed = mnist_trainer_step(t, context, number, count, loss);
    mr_autograd_end(context);
    return failed;
}

/* This trainer's share of the batches, without those that the node has kept the steps of. *images: how many
 * it was trained on. */
static int train(struct trainer *t, int64_t *images)
{
    const struct mnist_options *o = t->options;
    const uint32_t trainers = o->worker.world_size - 1, batches = (t->train.count + o->batch - 1) / o->batch;
    for (uint32_t epoch = 0, said = 0; epoch < o->epochs; epoch++) {
        shuffle(t, (uint64_t)o->seed << 32 | epoch);
        for (uint32_t b = o->worker.rank - 1; b < batches; b += trainers, said++) {
            uint32_t first = b * o->batch, left = t->train.count - first;
            uint32_t count = left < o->batch ? left : o->batch;
            float loss = 0;
            if (said < t->steps)
                continue;
            mnist_trainer_fill(t, &t->train, t->order, first, count);
            if (train_batch(t, (uint64_t)epoch * batches + b, count, &loss) != 0)
                return 1;
            *images += count;
            if (said % SAY_EVERY == 0) {
                printf("Rank %u training batch %u loss %.4f\n", o->worker.rank, said, (double)loss);
                (void)fflush(stdout);
            }
        }
    }
    return 0;
}

/* ---- testing ---- */

static uint32_t count_right(const struct mr_tensor *rows, const uint32_t *labels)
{
    const float *row = rows->data;
    uint32_t right = 0;
    for (uint32_t i = 0; i < rows->dims[0]; i++, row += MNIST_CLASSES) {
        uint32_t best = 0;
        for (uint32_t c = 1; c < MNIST_CLASSES; c++)
            best = row[c] > row[best] ? c : best;
        right += best == labels[i];
    }
    return right;
}

static int test(struct trainer *t)
{
    int64_t right = 0;
    for (uint32_t first = 0; first < t->test.count; first += TEST_BATCH) {
        uint32_t left = t->test.count - first, count = left < TEST_BATCH ? left : TEST_BATCH;
        struct mr_rpc_result *output;
        mnist_trainer_fill(t, &t->test, NULL, first, count);
        const struct mr_value arguments[] = {network(t), pictures_of(t, count)};
        if (mr_rpc_sync(t->rpc, 0, "layers.evaluate", arguments, 2, NULL, &output) != MR_OK)
            return example_failed(&t->options->worker, "layers.evaluate");
        right += count_right(&mr_rpc_result_value(output, 0)->tensor, t->labels);
        mr_rpc_result_free(output);
    }
    printf("Rank %u: accuracy %.4f\n", t->options->worker.rank, (double)right / t->test.count);
    t->right = (uint32_t)right;
    if (t->options->node)
        return 0;
    const struct mr_value reported[] = {mr_value_i64(right), mr_value_i64(t->test.count)};
    if (mr_rpc_sync(t->rpc, 0, "mnist.tested", reported, 2, NULL, NULL) != MR_OK)
        return example_failed(&t->options->worker, "mnist.tested");
    return 0;
}

/* ---- the trainer ---- */

/* Training is over for this one; the last tests. */
static int mnist_trainer_finish(struct trainer *t, int64_t images)
{
    const struct mr_value reported = mr_value_i64(images);
    struct mr_rpc_result *left;
    if (mr_rpc_sync(t->rpc, 0, "mnist.trained", &reported, 1, NULL, &left) != MR_OK)
        return example_failed(&t->options->worker, "mnist.trained");
    bool last = mr_rpc_result_value(left, 0)->i64 == 0;
    mr_rpc_result_free(left);
    return last ? test(t) : 0;
}

static int mnist_trainer_run(struct trainer *t)
{
    const struct mr_dist_optimizer_options sgd = {
        .kind = MR_DIST_SGD, .learning_rate = t->options->learning_rate, .momentum = t->options->momentum};
    int64_t images = 0;
    if (mr_rpc_sync(t->rpc, 0, "mnist.begin", NULL, 0, NULL, &t->served) != MR_OK)
        return example_failed(&t->options->worker, "mnist.begin");
    t->network = mr_rpc_result_value(t->served, 0)->rref;
    mr_rref_retain(t->network);
    struct mr_rref *parameter = mr_rpc_result_value(t->served, 1)->rref;
    if (mr_dist_optimizer_create(t->rpc, &sgd, &parameter, 1, &t->optimizer) != MR_OK)
        return example_failed(&t->options->worker, "the optimizer");
    int failed = train(t, &images);
    return failed != 0 ? failed : mnist_trainer_finish(t, images);
}

static int prepare(struct trainer *t)
{
    const struct mnist_options *o = t->options;
    char error[1200];
    uint32_t batch = o->batch > TEST_BATCH ? o->batch : TEST_BATCH;
    if (!mnist_data_read(o->data, "train", &t->train, error, sizeof(error)) ||
        !mnist_data_read(o->data, "t10k", &t->test, error, sizeof(error))) {
        fprintf(stderr, "mnist: rank %u: %s\n", o->worker.rank, error);
        return 1;
    }
    t->order = calloc(t->train.count, sizeof(*t->order));
    t->pictures = calloc((size_t)batch * MNIST_PIXELS, sizeof(*t->pictures));
    t->labels = calloc(batch, sizeof(*t->labels));
    if (t->order != NULL && t->pictures != NULL && t->labels != NULL)
        return 0;
    fprintf(stderr, "mnist: rank %u: no memory\n", o->worker.rank);
    return 1;
}

static void let_go(struct trainer *t)
{
    mr_dist_optimizer_destroy(t->optimizer);
    mr_rpc_result_free(t->served);
    mr_rref_release(t->network);
    t->optimizer = NULL;
    t->served = NULL;
    t->network = NULL;
}

static int train_at_server(struct trainer *t, const char *name)
{
    const struct mnist_options *o = t->options;
    struct mr_rpc_options options = {.functions = &example_nll_loss, .function_count = 1};
    t->rpc = example_join(&o->worker, name, &options);
    int failed = mnist_trainer_run(t);
    let_go(t);
    return example_leave(&o->worker, t->rpc, UINT32_MAX, failed);
}

/* ---- the network lies on a node ---- */

/* In one world: from the step that the node has kept to the end. */
static int run_on_node(struct trainer *t, const char *name)
{
    const struct mnist_options *o = t->options;
    const struct mr_dist_optimizer_options sgd = {
        .kind = MR_DIST_SGD, .learning_rate = o->learning_rate, .momentum = o->momentum, .name = name};
    int64_t images = 0;
    if (mnist_node_network(t->rpc, o, &t->network, &t->served) != 0)
        return 1;
    struct mr_rref *parameter = mr_rpc_result_value(t->served, 0)->rref;
    if (mr_dist_optimizer_create(t->rpc, &sgd, &parameter, 1, &t->optimizer) != MR_OK ||
        mr_dist_optimizer_steps(t->optimizer, &t->steps) != MR_OK)
        return example_failed(&o->worker, "the optimizer");
    if (t->steps > 0)
        printf("Rank %u goes on after batch %llu\n", o->worker.rank, (unsigned long long)t->steps - 1);
    if (train(t, &images) != 0)
        return 1;
    if (o->worker.rank != 1)
        return mnist_node_tell(t->rpc, &o->worker);
    return mnist_node_wait(&t->node, t->rpc, &o->worker) != 0 ? 1 : test(t);
}

static int report(const struct trainer *t, double seconds)
{
    const struct mnist_options *o = t->options;
    double accuracy = (double)t->right / (double)t->test.count;
    if (accuracy < (double)o->accuracy)
        return cli_fail(o->worker.program, "rank 1: accuracy=%.4f is below %.4f", accuracy,
                        (double)o->accuracy);
    printf("mnist: ok accuracy=%.4f images_per_s=%.0f trainers=%u\n", accuracy,
           (double)t->train.count * o->epochs / seconds, o->worker.world_size - 1);
    return 0;
}

/* Joins again whenever the world has ended before the work was done: the node was killed. */
static int train_on_node(struct trainer *t, const char *name)
{
    const struct mnist_options *o = t->options;
    const double began_s = example_now_s();
    uint64_t steps = UINT64_MAX;
    int failed = 1;
    mnist_node_init(&t->node);
    for (uint32_t tries = 0; failed != 0 && tries < TRIES_MAX; tries++) {
        mnist_node_begin(&t->node);
        t->rpc = mnist_node_join(&t->node, &o->worker, name, &example_nll_loss);
        if (t->rpc == NULL)
            return 1;
        failed = run_on_node(t, name);
        mnist_node_end(&t->node, failed == 0);
        let_go(t);
        if (failed == 0 && mr_rpc_shutdown(t->rpc, UINT32_MAX) != MR_OK)
            (void)example_failed(&o->worker, "shutdown"); /* the work is done all the same */
        mr_rpc_destroy(t->rpc);
        if (t->steps != steps)
            tries = 0;
        steps = t->steps;
    }
    return failed != 0 || o->worker.rank != 1 ? failed : report(t, example_now_s() - began_s);
}

int mnist_train(const struct mnist_options *o)
{
    struct trainer t = {.options = o};
    char name[32];
    int failed = prepare(&t);
    snprintf(name, sizeof(name), "trainer_%u", o->worker.rank);
    if (failed == 0)
        failed = o->node ? train_on_node(&t, name) : train_at_server(&t, name);
    mnist_data_free(&t.train);
    mnist_data_free(&t.test);
    free(t.order);
    free(t.pictures);
    free(t.labels);
    return failed;
}
