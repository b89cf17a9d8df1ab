/* The other ranks: each takes its share of the batches, and whoever is done last tests the model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "trainer_client/examples/common/mnist_data.h"
#include "trainer_client/examples/common/nll_loss.h"
#include "trainer_client/examples/mnist.h"

#define SAY_EVERY  5u /* batches */
#define TEST_BATCH 250u

struct trainer {
    const struct mnist_options *options;
    struct mr_rpc *rpc;
    struct mnist_data train, test;
    uint32_t *order;              /* of the training set, the same for all trainers in an epoch */
    float *pictures;              /* of a batch */
    uint32_t *labels;             /* of a batch */
    struct mr_rpc_result *served; /* network and parameter */
    struct mr_dist_optimizer *optimizer;
};

static struct mr_value network(const struct trainer *t)
{
    return *mr_rpc_result_value(t->served, 0);
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
static void fill(struct trainer *t, const struct mnist_data *data, const uint32_t *order, uint32_t first,
                 uint32_t count)
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
static int step(struct trainer *t, struct mr_autograd *context, uint64_t number, uint32_t count,
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
    int failed = step(t, context, number, count, loss);
    mr_autograd_end(context);
    return failed;
}

/* This trainer's share of the batches. *images: how many it was trained on. */
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
            fill(t, &t->train, t->order, first, count);
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
        fill(t, &t->test, NULL, first, count);
        const struct mr_value arguments[] = {network(t), pictures_of(t, count)};
        if (mr_rpc_sync(t->rpc, 0, "layers.evaluate", arguments, 2, NULL, &output) != MR_OK)
            return example_failed(&t->options->worker, "layers.evaluate");
        right += count_right(&mr_rpc_result_value(output, 0)->tensor, t->labels);
        mr_rpc_result_free(output);
    }
    printf("Rank %u: accuracy %.4f\n", t->options->worker.rank, (double)right / t->test.count);
    const struct mr_value reported[] = {mr_value_i64(right), mr_value_i64(t->test.count)};
    if (mr_rpc_sync(t->rpc, 0, "mnist.tested", reported, 2, NULL, NULL) != MR_OK)
        return example_failed(&t->options->worker, "mnist.tested");
    return 0;
}

/* ---- the trainer ---- */

/* Training is over for this one; the last tests. */
static int finish(struct trainer *t, int64_t images)
{
    const struct mr_value reported = mr_value_i64(images);
    struct mr_rpc_result *left;
    if (mr_rpc_sync(t->rpc, 0, "mnist.trained", &reported, 1, NULL, &left) != MR_OK)
        return example_failed(&t->options->worker, "mnist.trained");
    bool last = mr_rpc_result_value(left, 0)->i64 == 0;
    mr_rpc_result_free(left);
    return last ? test(t) : 0;
}

static int run(struct trainer *t)
{
    const struct mr_dist_optimizer_options sgd = {
        .kind = MR_DIST_SGD, .learning_rate = t->options->learning_rate, .momentum = t->options->momentum};
    int64_t images = 0;
    if (mr_rpc_sync(t->rpc, 0, "mnist.begin", NULL, 0, NULL, &t->served) != MR_OK)
        return example_failed(&t->options->worker, "mnist.begin");
    struct mr_rref *parameter = mr_rpc_result_value(t->served, 1)->rref;
    if (mr_dist_optimizer_create(t->rpc, &sgd, &parameter, 1, &t->optimizer) != MR_OK)
        return example_failed(&t->options->worker, "the optimizer");
    int failed = train(t, &images);
    return failed != 0 ? failed : finish(t, images);
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

int mnist_train(const struct mnist_options *o)
{
    struct trainer t = {.options = o};
    struct mr_rpc_options options = {.functions = &example_nll_loss, .function_count = 1};
    char name[32];
    int failed = prepare(&t);
    if (failed == 0) {
        snprintf(name, sizeof(name), "trainer_%u", o->worker.rank);
        t.rpc = example_join(&o->worker, name, &options);
        failed = run(&t);
        mr_dist_optimizer_destroy(t.optimizer);
        mr_rpc_result_free(t.served);
        failed = example_leave(&o->worker, t.rpc, UINT32_MAX, failed);
    }
    mnist_data_free(&t.train);
    mnist_data_free(&t.test);
    free(t.order);
    free(t.pictures);
    free(t.labels);
    return failed;
}
