/* A model cut over two workers: rank 1 has the first layers, rank 2 the rest, and rank 0 trains both, calling
 * one after the other. Gradients go the same way back, and one optimizer steps both halves. See
 * docs/pipeline.md.
 *
 *   pipeline --rank 0 &       # trainer
 *   pipeline --rank 1 &       # workers
 *   pipeline --rank 2
 */
#include <stdio.h>
#include "trainer_client/examples/common/layers.h"
#include "trainer_client/examples/common/nll_loss.h"
#include "trainer_client/examples/common/worker.h"

#define WORLD_SIZE 3u
#define HALVES     2u
#define BATCH      64u
#define TESTED     2048u
#define CLASSES    3u
#define SAY_EVERY  100u
#define SEED       7u
#define ACCURACY   0.95

/* The layers of rank 1 and 2. */
static const char *const halves[HALVES] = {
    "input 2; linear 2 64; relu; linear 64 64; relu",
    "input 64; number 4; linear 64 32; relu; linear 32 3; log_softmax",
};

struct trainer {
    const struct example_worker *worker;
    struct mr_rpc *rpc;
    struct mr_rref *networks[HALVES];
    struct mr_rpc_result *parameters[HALVES];
    struct mr_dist_optimizer *optimizer;
    uint64_t seed;
    float points[TESTED][2];
    uint32_t labels[TESTED];
};

/* Points of a square; the class says in which of three rings one lies. */
static void draw_points(struct trainer *t, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        float x = 2 * example_draw(&t->seed) - 1, y = 2 * example_draw(&t->seed) - 1, square = x * x + y * y;
        t->points[i][0] = x;
        t->points[i][1] = y;
        t->labels[i] = square < 0.25f ? 0 : square < 0.75f ? 1 : 2;
    }
}

/* ---- the trainer ---- */

/* Each half is made where it lies, and stays there: only references come here. */
static int make_halves(struct trainer *t)
{
    struct mr_rref *parameters[HALVES];
    const struct mr_dist_optimizer_options adam = {.kind = MR_DIST_ADAM, .learning_rate = 0.01f};
    for (uint32_t h = 0; h < HALVES; h++) {
        const struct mr_value arguments[] = {mr_value_string(halves[h]), mr_value_i64(SEED)};
        if (mr_rpc_sync(t->rpc, h + 1, "pipeline.start", NULL, 0, NULL, NULL) != MR_OK)
            return example_failed(t->worker, "pipeline.start");
        if (mr_remote(t->rpc, h + 1, "layers.network", arguments, 2, NULL, &t->networks[h]) != MR_OK)
            return example_failed(t->worker, "layers.network");
    }
    for (uint32_t h = 0; h < HALVES; h++) {
        const struct mr_value network = mr_value_rref(t->networks[h]);
        if (mr_rpc_sync(t->rpc, h + 1, "layers.parameter", &network, 1, NULL, &t->parameters[h]) != MR_OK)
            return example_failed(t->worker, "layers.parameter");
        parameters[h] = mr_rpc_result_value(t->parameters[h], 0)->rref;
    }
    if (mr_dist_optimizer_create(t->rpc, &adam, parameters, HALVES, &t->optimizer) != MR_OK)
        return example_failed(t->worker, "the optimizer");
    return 0;
}

/* Points through both halves: what comes out of the first goes into the second, with its place on the
 * tape. */
static enum mr_status forward(struct trainer *t, struct mr_autograd *context, uint32_t step,
                              struct mr_rpc_result *outputs[HALVES])
{
    const struct mr_rpc_call_options in_context = {.context = context};
    struct mr_value input = mr_value_tensor(mr_tensor_2d(MR_F32, BATCH, 2, t->points));
    for (uint32_t h = 0; h < HALVES; h++) {
        const struct mr_value arguments[] = {mr_value_rref(t->networks[h]), mr_value_i64(step), input};
        enum mr_status status =
            mr_rpc_sync(t->rpc, h + 1, "layers.forward", arguments, 3, &in_context, &outputs[h]);
        if (status != MR_OK)
            return status;
        input = *mr_rpc_result_value(outputs[h], 0);
    }
    return MR_OK;
}

static int train_step(struct trainer *t, uint32_t step, float *loss_value)
{
    struct mr_rpc_result *outputs[HALVES] = {NULL}, *loss = NULL;
    struct mr_autograd *context;
    draw_points(t, BATCH);
    if (mr_autograd_begin(t->rpc, &context) != MR_OK)
        return example_failed(t->worker, "mr_autograd_begin");
    enum mr_status status = forward(t, context, step, outputs);
    if (status == MR_OK) {
        const struct mr_value arguments[] = {*mr_rpc_result_value(outputs[HALVES - 1], 0),
                                             mr_value_tensor(mr_tensor_1d(MR_U32, BATCH, t->labels))};
        status = mr_autograd_apply(context, "nll_loss", arguments, 2, &loss);
    }
    if (status == MR_OK) {
        *loss_value = *(const float *)mr_rpc_result_value(loss, 0)->tensor.data;
        status = mr_autograd_backward(context, mr_rpc_result_value(loss, 0), 1, false);
    }
    if (status == MR_OK)
        status = mr_dist_optimizer_step(t->optimizer, context, 0);
    if (status != MR_OK)
        (void)example_failed(t->worker, "a step");
    mr_rpc_result_free(loss);
    for (uint32_t h = 0; h < HALVES; h++)
        mr_rpc_result_free(outputs[h]);
    mr_autograd_end(context);
    return status == MR_OK ? 0 : 1;
}

static uint32_t count_right(const struct trainer *t, const float *rows)
{
    uint32_t right = 0;
    for (uint32_t i = 0; i < TESTED; i++, rows += CLASSES) {
        uint32_t best = 0;
        for (uint32_t c = 1; c < CLASSES; c++)
            best = rows[c] > rows[best] ? c : best;
        right += best == t->labels[i];
    }
    return right;
}

/* Points that it was not trained on, without a context: nothing is kept for gradients. */
static int test(struct trainer *t, double *accuracy)
{
    struct mr_rpc_result *outputs[HALVES] = {NULL};
    enum mr_status status = MR_OK;
    draw_points(t, TESTED);
    struct mr_value input = mr_value_tensor(mr_tensor_2d(MR_F32, TESTED, 2, t->points));
    for (uint32_t h = 0; h < HALVES && status == MR_OK; h++) {
        const struct mr_value arguments[] = {mr_value_rref(t->networks[h]), input};
        status = mr_rpc_sync(t->rpc, h + 1, "layers.evaluate", arguments, 2, NULL, &outputs[h]);
        if (status == MR_OK)
            input = *mr_rpc_result_value(outputs[h], 0);
    }
    if (status == MR_OK)
        *accuracy = (double)count_right(t, input.tensor.data) / TESTED;
    else
        (void)example_failed(t->worker, "layers.evaluate");
    for (uint32_t h = 0; h < HALVES; h++)
        mr_rpc_result_free(outputs[h]);
    return status == MR_OK ? 0 : 1;
}

static int train(struct trainer *t, uint32_t steps)
{
    double accuracy = 0;
    int failed = make_halves(t);
    for (uint32_t step = 0; step < steps && failed == 0; step++) {
        float loss = 0;
        failed = train_step(t, step, &loss);
        if (failed == 0 && step % SAY_EVERY == 0)
            printf("pipeline: step %u loss %.4f\n", step, (double)loss);
    }
    if (failed == 0)
        failed = test(t, &accuracy);
    if (failed == 0 && accuracy < ACCURACY) {
        fprintf(stderr, "pipeline: accuracy=%.4f after %u steps is below %.2f\n", accuracy, steps, ACCURACY);
        failed = 1;
    }
    if (failed == 0)
        printf("pipeline: ok accuracy=%.4f steps=%u\n", accuracy, steps);
    mr_dist_optimizer_destroy(t->optimizer);
    for (uint32_t h = 0; h < HALVES; h++) {
        mr_rpc_result_free(t->parameters[h]);
        mr_rref_release(t->networks[h]);
    }
    return failed;
}

/* ---- a worker ---- */

static enum mr_status start_layers(struct mr_rpc_call *call, const struct mr_value *arguments,
                                   uint32_t argument_count)
{
    char error[256];
    (void)arguments;
    (void)argument_count;
    if (example_start_layers(mr_rpc_of(call), "", error, sizeof(error)) != MR_OK)
        return mr_rpc_fail(call, "%s", error);
    return MR_OK;
}

/* It joins and leaves; between, its functions are called. */
static int serve(const struct example_worker *worker)
{
    const struct mr_rpc_function function = {.name = "pipeline.start", .run = start_layers};
    struct mr_rpc_options options = {.functions = &function, .function_count = 1};
    struct mr_rpc *rpc = example_join(worker, worker->rank == 1 ? "first_half" : "second_half", &options);
    return example_leave(worker, rpc, UINT32_MAX, 0);
}

int main(int argc, char **argv)
{
    static struct example_worker worker = EXAMPLE_WORKER("pipeline", WORLD_SIZE);
    uint32_t steps = 600;
    const struct cli_option options[] = {
        EXAMPLE_WORKER_OPTIONS(&worker, WORLD_SIZE, "always 3"),
        {"steps", CLI_U32_IN(1, 1e6), &steps, "N", "of training, batches of 64; default 600"}};
    const struct cli_usage usage = {.program = worker.program,
                                    .synopsis = "--rank N [options]",
                                    .summary = "A model cut over ranks 1 and 2, which rank 0 trains.",
                                    CLI_OPTIONS(options)};
    struct mr_rpc_options rpc_options = {.functions = &example_nll_loss, .function_count = 1};
    static struct trainer trainer;
    (void)cli_parse(&usage, argc, argv, NULL);
    if (worker.world_size != WORLD_SIZE)
        cli_refuse(usage.program, "--world-size %u: it is a world of %u", worker.world_size, WORLD_SIZE);
    if (worker.rank != 0)
        return serve(&worker);
    trainer.worker = &worker;
    trainer.seed = SEED;
    trainer.rpc = example_join(&worker, "trainer", &rpc_options);
    return example_leave(&worker, trainer.rpc, UINT32_MAX, train(&trainer, steps));
}
