/* A server holds a model, here logistic regression, and scores samples that trainers send it, a batch a call:
 * no gradient, many calls in flight, a bounded number of them. See docs/score.md.
 *
 *   score --rank 0 --world-size 2 &       # server
 *   score --rank 1 --world-size 2         # asks
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "trainer_client/examples/common/worker.h"

#define DIM             64u
#define WORLD_MAX       17u
#define BATCH_MAX       65536u
#define IN_FLIGHT_MAX   1024u
#define MODEL_SEED      1u
#define SAMPLES_SEED(r) (1000u + (uint64_t)(r))

static float logistic(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

struct model {
    float weights[DIM], bias;
};

static void make_model(struct model *m)
{
    uint64_t seed = MODEL_SEED;
    for (uint32_t d = 0; d < DIM; d++)
        m->weights[d] = example_draw(&seed) - 0.5f;
    m->bias = example_draw(&seed) - 0.5f;
}

static float score_one(const struct model *m, const float *x)
{
    float sum = m->bias;
    for (uint32_t d = 0; d < DIM; d++)
        sum += m->weights[d] * x[d];
    return logistic(sum);
}

/* ---- the server ---- */

static enum mr_status score(struct mr_rpc_call *call, const struct mr_value *arguments,
                            uint32_t argument_count)
{
    const struct model *model = mr_rpc_user(call);
    const struct mr_tensor *samples = &arguments[0].tensor;
    const float *x = samples->data;
    void *scores;
    enum mr_status status = mr_rpc_return_tensor(call, MR_F32, 1, samples->dims, &scores);
    (void)argument_count;
    for (uint32_t i = 0; status == MR_OK && i < samples->dims[0]; i++)
        ((float *)scores)[i] = score_one(model, x + (size_t)i * DIM);
    return status;
}

static int serve(const struct example_worker *worker)
{
    static struct model model;
    const struct mr_rpc_function function = {
        .name = "score", .arguments = "f32[?,64]", .results = "f32[?]", .run = score, .user = &model};
    struct mr_rpc_options options = {.functions = &function, .function_count = 1};
    make_model(&model);
    return example_leave(worker, example_join(worker, "server", &options), UINT32_MAX, 0);
}

/* ---- a trainer ---- */

struct request {
    struct mr_rpc_future *future; /* NULL: none in flight */
    float *labels;                /* of its samples */
};

struct stream {
    const struct example_worker *worker;
    struct mr_rpc *rpc;
    uint32_t requests, batch, in_flight;
    struct model truth; /* by which labels are drawn */
    uint64_t seed;
    float *samples; /* of the request that is made; a call has copied them when it returns */
    struct request *window;
    double loss;
    uint64_t right;
};

static int send_request(struct stream *s, struct request *request)
{
    for (uint32_t i = 0; i < s->batch; i++) {
        float *x = s->samples + (size_t)i * DIM;
        for (uint32_t d = 0; d < DIM; d++)
            x[d] = 2 * example_draw(&s->seed) - 1;
        request->labels[i] = example_draw(&s->seed) < score_one(&s->truth, x) ? 1.0f : 0.0f;
    }
    struct mr_value argument = mr_value_tensor(mr_tensor_2d(MR_F32, s->batch, DIM, s->samples));
    if (mr_rpc_async(s->rpc, 0, "score", &argument, 1, NULL, &request->future) != MR_OK)
        return example_failed(s->worker, "score");
    return 0;
}

static int take_answer(struct stream *s, struct request *request)
{
    struct mr_rpc_result *result = NULL;
    enum mr_status status = mr_rpc_wait(request->future, &result);
    mr_rpc_future_destroy(request->future);
    request->future = NULL;
    if (status != MR_OK)
        return example_failed(s->worker, "score");
    const float *scores = mr_rpc_result_value(result, 0)->tensor.data;
    for (uint32_t i = 0; i < s->batch; i++) {
        float p = fminf(fmaxf(scores[i], 1e-6f), 1 - 1e-6f);
        s->loss -= log((double)(request->labels[i] > 0 ? p : 1 - p));
        s->right += (scores[i] > 0.5f) == (request->labels[i] > 0.5f);
    }
    mr_rpc_result_free(result);
    return 0;
}

/* The oldest request is answered before the next is made in its place. */
static int run_stream(struct stream *s)
{
    int failed = 0;
    for (uint32_t i = 0; failed == 0 && i < s->requests; i++) {
        struct request *request = &s->window[i % s->in_flight];
        if (request->future != NULL)
            failed = take_answer(s, request);
        if (failed == 0)
            failed = send_request(s, request);
    }
    for (uint32_t i = 0; i < s->in_flight; i++) {
        struct request *request = &s->window[(s->requests + i) % s->in_flight];
        if (request->future != NULL && failed == 0)
            failed = take_answer(s, request);
        mr_rpc_future_destroy(request->future);
    }
    return failed;
}

static int score_ask(struct stream *s)
{
    uint64_t samples = (uint64_t)s->requests * s->batch;
    float *labels = calloc((size_t)s->in_flight * s->batch, sizeof(*labels));
    s->samples = calloc((size_t)s->batch * DIM, sizeof(*s->samples));
    s->window = calloc(s->in_flight, sizeof(*s->window));
    int failed = labels == NULL || s->samples == NULL || s->window == NULL;
    if (failed != 0)
        fprintf(stderr, "score: no memory for %u requests of %u samples\n", s->in_flight, s->batch);
    for (uint32_t i = 0; failed == 0 && i < s->in_flight; i++)
        s->window[i].labels = labels + (size_t)i * s->batch;
    make_model(&s->truth);
    double start = example_now_s();
    if (failed == 0)
        failed = run_stream(s);
    if (failed == 0)
        printf("score: ok samples=%llu logloss=%.4f accuracy=%.4f samples_per_s=%.0f\n",
               (unsigned long long)samples, s->loss / (double)samples, (double)s->right / (double)samples,
               (double)samples / (example_now_s() - start));
    free(labels);
    free(s->samples);
    free(s->window);
    return failed;
}

int main(int argc, char **argv)
{
    struct example_worker worker = EXAMPLE_WORKER("score", 2);
    struct stream stream = {.worker = &worker, .requests = 1000, .batch = 64, .in_flight = 32};
    const struct cli_option options[] = {
        EXAMPLE_WORKER_OPTIONS(&worker, WORLD_MAX, "default 2"),
        {"requests", CLI_U32_IN(1, 1e9), &stream.requests, "N", "calls that a trainer makes; default 1000"},
        {"batch", CLI_U32_IN(1, BATCH_MAX), &stream.batch, "N", "samples of a call; default 64"},
        {"in-flight", CLI_U32_IN(1, IN_FLIGHT_MAX), &stream.in_flight, "N",
         "calls in flight at a time; default 32"}};
    const struct cli_usage usage = {
        .program = worker.program,
        .synopsis = "--rank N [options]",
        .summary = "Rank 0 holds a model; the others have it score samples, many calls in flight.",
        CLI_OPTIONS(options)};
    struct mr_rpc_options rpc_options = {0};
    char name[32];
    (void)cli_parse(&usage, argc, argv, NULL);
    if (worker.rank == 0)
        return serve(&worker);
    snprintf(name, sizeof(name), "trainer_%u", worker.rank);
    stream.rpc = example_join(&worker, name, &rpc_options);
    stream.seed = SAMPLES_SEED(worker.rank);
    return example_leave(&worker, stream.rpc, 0, score_ask(&stream));
}
