/* Trainers of a network that lies on a node: they find it by name, and go on where the node has saved when it
 * was killed and started again. Trainer 1 hears from the others when they are done, and tests. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "trainer_client/examples/mnist_node.h"

#define NODE            0u
#define FIRST           1u
#define DEAD_AFTER_MS   2000u
#define JOIN_AGAIN_S    120.0
#define LOOK_MS         50u
#define JOIN_TIMEOUT_MS 20000u

/* ---- who is done: trainer 1's ---- */

static enum mr_status mnist_node_done(struct mr_rpc_call *call, const struct mr_value *arguments,
                                      uint32_t argument_count)
{
    struct mnist_node *n = mr_rpc_user(call);
    (void)arguments;
    (void)argument_count;
    pthread_mutex_lock(&n->lock);
    n->done++;
    while (n->outcome == MNIST_OPEN)
        pthread_cond_wait(&n->changed, &n->lock);
    bool is_tested = n->outcome == MNIST_TESTED;
    pthread_mutex_unlock(&n->lock);
    return is_tested ? MR_OK : mr_rpc_fail(call, "the model was not tested");
}

void mnist_node_init(struct mnist_node *n)
{
    pthread_mutex_init(&n->lock, NULL);
    pthread_cond_init(&n->changed, NULL);
    n->function = (struct mr_rpc_function){.name = "mnist.done", .run = mnist_node_done, .user = n};
}

void mnist_node_begin(struct mnist_node *n)
{
    pthread_mutex_lock(&n->lock);
    n->done = 0;
    n->outcome = MNIST_OPEN;
    pthread_mutex_unlock(&n->lock);
}

void mnist_node_end(struct mnist_node *n, bool is_tested)
{
    pthread_mutex_lock(&n->lock);
    n->outcome = is_tested ? MNIST_TESTED : MNIST_FAILED;
    pthread_cond_broadcast(&n->changed);
    pthread_mutex_unlock(&n->lock);
}

static uint32_t done_by_now(struct mnist_node *n)
{
    pthread_mutex_lock(&n->lock);
    uint32_t count = n->done;
    pthread_mutex_unlock(&n->lock);
    return count;
}

/* A worker that has died, or NULL. */
static const char *dead_worker(struct mr_rpc *rpc, const struct example_worker *worker,
                               struct mr_rpc_worker *out)
{
    for (uint32_t rank = 0; rank < worker->world_size; rank++)
        if (mr_worker_info(rpc, rank, out) == MR_OK && out->is_dead)
            return out->name;
    return NULL;
}

int mnist_node_wait(struct mnist_node *n, struct mr_rpc *rpc, const struct example_worker *worker)
{
    struct mr_rpc_worker dead;
    while (done_by_now(n) + 2 < worker->world_size) { /* the node and this one are not among them */
        if (dead_worker(rpc, worker, &dead) != NULL)
            return cli_fail(worker->program, "rank %u: %s died", worker->rank, dead.name);
        nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
    }
    return 0;
}

int mnist_node_tell(struct mr_rpc *rpc, const struct example_worker *worker)
{
    const struct mr_rpc_call_options patient = {.timeout_ms = UINT32_MAX};
    if (mr_rpc_sync(rpc, FIRST, "mnist.done", NULL, 0, &patient, NULL) != MR_OK)
        return example_failed(worker, "mnist.done");
    return 0;
}

/* ---- the world ---- */

struct mr_rpc *mnist_node_join(struct mnist_node *n, const struct example_worker *worker, const char *name,
                               const struct mr_rpc_function *more)
{
    const struct mr_rpc_function functions[] = {n->function, *more};
    char address[300], error[512] = "";
    const struct mr_rpc_options options = {.rendezvous = address,
                                           .key_file = worker->key_file,
                                           .init_timeout_ms = JOIN_TIMEOUT_MS,
                                           .dead_after_ms = DEAD_AFTER_MS,
                                           .functions = functions,
                                           .function_count = 2};
    double until_s = example_now_s() + JOIN_AGAIN_S;
    struct mr_rpc *rpc;
    snprintf(address, sizeof(address), "%s:%u", worker->master_addr, worker->master_port);
    while (mr_rpc_init(name, worker->rank, worker->world_size, &options, &rpc, error, sizeof(error)) !=
           MR_OK) {
        if (example_now_s() > until_s) {
            (void)cli_fail(worker->program, "%s", error);
            return NULL;
        }
        nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
    }
    return rpc;
}

/* ---- the network ---- */

int mnist_node_network(struct mr_rpc *rpc, const struct mnist_options *o, struct mr_rref **network,
                       struct mr_rpc_result **parameter)
{
    const struct mr_value arguments[] = {mr_value_string("convnet"), mr_value_i64(o->seed),
                                         mr_value_string("mnist")};
    if (mr_remote(rpc, NODE, "layers.network", arguments, 3, NULL, network) != MR_OK)
        return example_failed(&o->worker, "layers.network");
    const struct mr_value value = mr_value_rref(*network);
    if (mr_rpc_sync(rpc, NODE, "layers.parameter", &value, 1, NULL, parameter) != MR_OK)
        return example_failed(&o->worker, "layers.parameter");
    return 0;
}
