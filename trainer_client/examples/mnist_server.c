/* Rank 0: the network, and the count of who is done. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include "trainer_client/examples/common/layers.h"
#include "trainer_client/examples/mnist.h"

#define THREADS_MAX 16

struct server {
    const struct mnist_options *options;
    pthread_mutex_t lock; /* of what is below */
    pthread_cond_t is_ready;
    bool ready, failed; /* the network is there, or never will be */
    struct mr_rref *network;
    struct mr_rpc_result *parameter;
    uint32_t trained; /* trainers that are done */
    double began_s, ended_s;
    int64_t images, right, tested;
};

/* ---- functions ---- */

static enum mr_status mnist_server_begin(struct mr_rpc_call *call, const struct mr_value *arguments,
                                         uint32_t argument_count)
{
    struct server *s = mr_rpc_user(call);
    (void)arguments;
    (void)argument_count;
    pthread_mutex_lock(&s->lock);
    while (!s->ready && !s->failed)
        pthread_cond_wait(&s->is_ready, &s->lock);
    if (s->began_s <= 0)
        s->began_s = example_now_s();
    pthread_mutex_unlock(&s->lock);
    if (s->failed)
        return mr_rpc_fail(call, "the server has no network");
    enum mr_status status = mr_rpc_return(call, mr_value_rref(s->network));
    return status == MR_OK ? mr_rpc_return(call, *mr_rpc_result_value(s->parameter, 0)) : status;
}

static enum mr_status trained(struct mr_rpc_call *call, const struct mr_value *arguments,
                              uint32_t argument_count)
{
    struct server *s = mr_rpc_user(call);
    (void)argument_count;
    pthread_mutex_lock(&s->lock);
    s->trained++;
    s->images += arguments[0].i64;
    s->ended_s = example_now_s();
    uint32_t left = s->options->worker.world_size - 1 - s->trained;
    pthread_mutex_unlock(&s->lock);
    return mr_rpc_return(call, mr_value_i64(left));
}

static enum mr_status tested(struct mr_rpc_call *call, const struct mr_value *arguments,
                             uint32_t argument_count)
{
    struct server *s = mr_rpc_user(call);
    (void)argument_count;
    pthread_mutex_lock(&s->lock);
    s->right = arguments[0].i64;
    s->tested = arguments[1].i64;
    pthread_mutex_unlock(&s->lock);
    return MR_OK;
}

/* ---- the server ---- */

static uint32_t threads_of(const struct mnist_options *o)
{
    cpu_set_t cpus;
    if (o->threads != 0)
        return o->threads;
    int count = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
    return (uint32_t)(count > THREADS_MAX ? THREADS_MAX : count);
}

static int make_network(struct server *s, struct mr_rpc *rpc)
{
    const struct mr_value arguments[] = {mr_value_string("convnet"), mr_value_i64(s->options->seed)};
    char parts[32], error[256];
    snprintf(parts, sizeof(parts), "parts %u", threads_of(s->options));
    if (example_start_layers(rpc, parts, error, sizeof(error)) != MR_OK)
        return cli_fail(s->options->worker.program, "rank 0: %s", error);
    if (mr_remote(rpc, 0, "layers.network", arguments, 2, NULL, &s->network) != MR_OK)
        return example_failed(&s->options->worker, "layers.network");
    const struct mr_value network = mr_value_rref(s->network);
    if (mr_rpc_sync(rpc, 0, "layers.parameter", &network, 1, NULL, &s->parameter) != MR_OK)
        return example_failed(&s->options->worker, "layers.parameter");
    return 0;
}

/* Who ended before it was done. */
static int name_missing(const struct server *s, struct mr_rpc *rpc)
{
    for (uint32_t rank = 1; rank < s->options->worker.world_size; rank++) {
        struct mr_rpc_worker worker;
        if (mr_worker_info(rpc, rank, &worker) == MR_OK && worker.is_dead)
            fprintf(stderr, "mnist: rank 0: %s (rank %u) ended before it was done\n", worker.name, rank);
    }
    fprintf(stderr, "mnist: rank 0: %u of %u trainers were done, the model was%s tested\n", s->trained,
            s->options->worker.world_size - 1, s->tested == 0 ? " not" : "");
    return 1;
}

static int report(const struct server *s)
{
    double accuracy = (double)s->right / (double)s->tested;
    if (accuracy < (double)s->options->accuracy) {
        fprintf(stderr, "mnist: rank 0: accuracy=%.4f is below %.4f\n", accuracy,
                (double)s->options->accuracy);
        return 1;
    }
    printf("mnist: ok accuracy=%.4f images_per_s=%.0f trainers=%u\n", accuracy,
           (double)s->images / (s->ended_s - s->began_s), s->options->worker.world_size - 1);
    return 0;
}

int mnist_serve(const struct mnist_options *o)
{
    static struct server s = {.lock = PTHREAD_MUTEX_INITIALIZER, .is_ready = PTHREAD_COND_INITIALIZER};
    const struct mr_rpc_function functions[] = {
        {.name = "mnist.begin", .results = "ref, ref", .run = mnist_server_begin, .user = &s},
        {.name = "mnist.trained", .arguments = "i64", .results = "i64", .run = trained, .user = &s},
        {.name = "mnist.tested", .arguments = "i64, i64", .run = tested, .user = &s}};
    struct mr_rpc_options options = {.functions = functions, .function_count = 3};
    s.options = o;
    struct mr_rpc *rpc = example_join(&o->worker, "parameter_server", &options);
    int failed = make_network(&s, rpc);
    pthread_mutex_lock(&s.lock);
    s.ready = failed == 0;
    s.failed = failed != 0;
    pthread_cond_broadcast(&s.is_ready);
    pthread_mutex_unlock(&s.lock);
    /* Trainers come and go; this returns once all have left. */
    if (failed == 0 && mr_rpc_shutdown(rpc, UINT32_MAX) != MR_OK)
        failed = example_failed(&o->worker, "shutdown");
    if (failed == 0)
        failed = s.tested == 0 ? name_missing(&s, rpc) : report(&s);
    mr_rpc_result_free(s.parameter);
    mr_rref_release(s.network);
    mr_rpc_destroy(rpc);
    return failed;
}
