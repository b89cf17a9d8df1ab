/* One server holds parameters, workers push gradients to it by calls: each has a part of the samples of a
 * linear regression. A round is over when every worker's gradient is there; the server then takes a step
 * along their mean, and answers all with what came of it. See docs/update-parameters.md.
 *
 *   update_parameters --rank 0 --world-size 3 &       # server
 *   update_parameters --rank 1 --world-size 3 &       # workers
 *   update_parameters --rank 2 --world-size 3
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "trainer_client/examples/common/worker.h"

#define DIM           8u
#define SAMPLES       256u /* of each worker */
#define WORLD_MAX     17u
#define CALL_LIMIT_MS 10000u
#define NOISE         0.1f

/* ---- the server ---- */

struct server {
    uint32_t workers;
    float learning_rate;
    pthread_mutex_t lock; /* of what is below */
    pthread_cond_t round_over;
    uint32_t round, pushed_count;
    bool pushed[WORLD_MAX];
    float gradients[WORLD_MAX][DIM], parameters[DIM];
};

static void update_parameters_step(struct server *s)
{
    for (uint32_t d = 0; d < DIM; d++) {
        float sum = 0;
        for (uint32_t worker = 1; worker <= s->workers; worker++) /* in this order, whoever came first */
            sum += s->gradients[worker][d];
        s->parameters[d] -= s->learning_rate * sum / (float)s->workers;
    }
    memset(s->pushed, 0, sizeof(s->pushed));
    s->pushed_count = 0;
    s->round++;
    pthread_cond_broadcast(&s->round_over);
}

/* The lock is held. Until the round is over, or the caller is about to give up. */
static enum mr_status await_others(struct server *s, struct mr_rpc_call *call)
{
    uint32_t round = s->round;
    uint64_t wait_us = mr_rpc_time_left_us(call) / 2; /* the rest is for the answer */
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(wait_us / 1000000);
    until.tv_nsec += (long)(wait_us % 1000000) * 1000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    while (s->round == round) {
        if (pthread_cond_timedwait(&s->round_over, &s->lock, &until) == 0)
            continue;
        for (uint32_t worker = 1; worker <= s->workers; worker++)
            if (!s->pushed[worker])
                return mr_rpc_fail(call, "round %u: no gradient from rank %u", round, worker);
    }
    return MR_OK;
}

/* A gradient of this round; the parameters of the next. */
static enum mr_status update(struct mr_rpc_call *call, const struct mr_value *arguments,
                             uint32_t argument_count)
{
    struct server *s = mr_rpc_user(call);
    uint32_t from = mr_rpc_caller(call);
    float parameters[DIM];
    enum mr_status status = MR_OK;
    (void)argument_count;
    if (from < 1 || from > s->workers)
        return mr_rpc_fail(call, "rank %u is no worker", from);
    pthread_mutex_lock(&s->lock);
    if (s->pushed[from] || arguments[0].i64 != s->round)
        status = mr_rpc_fail(call, "rank %u pushed for round %lld, this is round %u", from,
                             (long long)arguments[0].i64, s->round);
    if (status == MR_OK) {
        memcpy(s->gradients[from], arguments[1].tensor.data, sizeof(s->gradients[from]));
        s->pushed[from] = true;
        if (++s->pushed_count == s->workers)
            update_parameters_step(s);
        else
            status = await_others(s, call);
    }
    memcpy(parameters, s->parameters, sizeof(parameters));
    pthread_mutex_unlock(&s->lock);
    if (status != MR_OK)
        return status;
    return mr_rpc_return(call, mr_value_tensor(mr_tensor_1d(MR_F32, DIM, parameters)));
}

static int serve(const struct example_worker *worker, float learning_rate, uint32_t rounds)
{
    static struct server s;
    pthread_condattr_t monotonic;
    struct mr_rpc_function function = {
        .name = "update", .arguments = "i64, f32[8]", .results = "f32[8]", .run = update, .user = &s};
    struct mr_rpc_options options = {
        .functions = &function, .function_count = 1, .executor_threads = WORLD_MAX};
    s.workers = worker->world_size - 1;
    s.learning_rate = learning_rate;
    pthread_mutex_init(&s.lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&s.round_over, &monotonic);
    struct mr_rpc *rpc = example_join(worker, "server", &options);
    int code = example_leave(worker, rpc, UINT32_MAX, 0);
    if (code == 0 && s.round != rounds) {
        fprintf(stderr, "update_parameters: %u of %u rounds were done\n", s.round, rounds);
        code = 1;
    }
    if (code == 0)
        printf("update_parameters: ok rounds=%u workers=%u\n", s.round, s.workers);
    return code;
}

/* ---- a worker ---- */

struct samples {
    float x[SAMPLES][DIM], y[SAMPLES];
};

/* -1 to 1. */
static float draw(uint64_t *state)
{
    return 2 * example_draw(state) - 1;
}

static void draw_samples(struct samples *s, uint64_t seed)
{
    for (uint32_t i = 0; i < SAMPLES; i++) {
        s->y[i] = NOISE * draw(&seed);
        for (uint32_t d = 0; d < DIM; d++) {
            s->x[i][d] = draw(&seed);
            s->y[i] += (float)(d + 1) * s->x[i][d]; /* what is to be found: 1, 2, 3 ... */
        }
    }
}

/* The mean square error, and its gradient. */
static float update_parameters_look(const struct samples *s, const float parameters[DIM], float gradient[DIM])
{
    double loss = 0;
    memset(gradient, 0, DIM * sizeof(*gradient));
    for (uint32_t i = 0; i < SAMPLES; i++) {
        float error = -s->y[i];
        for (uint32_t d = 0; d < DIM; d++)
            error += parameters[d] * s->x[i][d];
        for (uint32_t d = 0; d < DIM; d++)
            gradient[d] += 2 * error * s->x[i][d] / (float)SAMPLES;
        loss += (double)(error * error) / SAMPLES;
    }
    return (float)loss;
}

static int work(const struct example_worker *worker, struct mr_rpc *rpc, uint32_t rounds)
{
    static struct samples samples;
    const struct mr_rpc_call_options limit = {.timeout_ms = CALL_LIMIT_MS};
    float parameters[DIM] = {0}, gradient[DIM];
    struct mr_rpc_result *result;
    draw_samples(&samples, worker->rank);
    float first = update_parameters_look(&samples, parameters, gradient);
    for (uint32_t round = 0; round < rounds; round++) {
        struct mr_value arguments[2] = {mr_value_i64(round),
                                        mr_value_tensor(mr_tensor_1d(MR_F32, DIM, gradient))};
        if (mr_rpc_sync(rpc, 0, "update", arguments, 2, &limit, &result) != MR_OK)
            return example_failed(worker, "update");
        memcpy(parameters, mr_rpc_result_value(result, 0)->tensor.data, sizeof(parameters));
        mr_rpc_result_free(result);
        (void)update_parameters_look(&samples, parameters, gradient);
    }
    printf("update_parameters: rank %u: loss %.4f -> %.4f\n", worker->rank, (double)first,
           (double)update_parameters_look(&samples, parameters, gradient));
    printf("update_parameters: parameters");
    for (uint32_t d = 0; d < DIM; d++)
        printf(" %.6f", (double)parameters[d]);
    printf("\n");
    return 0;
}

int main(int argc, char **argv)
{
    struct example_worker worker = EXAMPLE_WORKER("update_parameters", 3);
    uint32_t rounds = 100;
    float learning_rate = 0.5f;
    const struct cli_option options[] = {
        EXAMPLE_WORKER_OPTIONS(&worker, WORLD_MAX, "default 3"),
        {"rounds", CLI_U32_IN(1, 1e6), &rounds, "N", "steps of the server, the same everywhere; default 100"},
        {"learning-rate", CLI_FLOAT_IN(0, 1e6), &learning_rate, "X", "of the server; default 0.5"}};
    const struct cli_usage usage = {.program = worker.program,
                                    .synopsis = "--rank N [options]",
                                    .summary =
                                        "Rank 0 holds parameters; the others push gradients to it by calls.",
                                    CLI_OPTIONS(options)};
    struct mr_rpc_options rpc_options = {0};
    char name[32];
    (void)cli_parse(&usage, argc, argv, NULL);
    if (worker.world_size < 2)
        cli_refuse(usage.program, "--world-size 1 is a server without workers");
    if (worker.rank == 0)
        return serve(&worker, learning_rate, rounds);
    snprintf(name, sizeof(name), "worker_%u", worker.rank);
    struct mr_rpc *rpc = example_join(&worker, name, &rpc_options);
    return example_leave(&worker, rpc, 0, work(&worker, rpc, rounds));
}
