/* Without memory for answers and messages nothing is lost: they are sent later, or the worker that misses one
 * is as if dead. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/rpc/base/rpc.h"
#include "dataplane/rpc/rref/rref_internal.h"
#include "rref_functions.h"
#include "tests/test.h"
#include "tests/wait.h"

#define MANY 40u /* messages of references: more than there is room for at first */

/* ---- what fails ---- */

static struct mr_endpoint *_Atomic full; /* has no memory for answers with values */
static _Atomic uint32_t refused;
static _Atomic bool no_realloc;
static _Atomic uint32_t no_later; /* so many requests find no memory to be answered later */

bool __real_mr_reply_begin(struct mr_endpoint *ep, struct mr_call_ref ref, enum mr_status status,
                           struct mr_tensor *tensors, uint32_t count);
bool __wrap_mr_reply_begin(struct mr_endpoint *ep, struct mr_call_ref ref, enum mr_status status,
                           struct mr_tensor *tensors, uint32_t count);
void *__real_realloc(void *old, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);

bool __wrap_mr_reply_begin(struct mr_endpoint *ep, struct mr_call_ref ref, enum mr_status status,
                           struct mr_tensor *tensors, uint32_t count)
{
    bool is_values = count > 0 && tensors[0].bytes >= sizeof(struct mr_rpc_head);
    bool is_note = count == 1 && tensors[0].dtype == MR_U64; /* in place of values */
    if (ep == atomic_load(&full) && (is_values || is_note)) {
        atomic_fetch_add(&refused, 1);
        return false;
    }
    return __real_mr_reply_begin(ep, ref, status, tensors, count);
}

const struct mr_request *__real_mr_reply_later(struct mr_endpoint *ep, const struct mr_request *request);
const struct mr_request *__wrap_mr_reply_later(struct mr_endpoint *ep, const struct mr_request *request);
const struct mr_request *__wrap_mr_reply_later(struct mr_endpoint *ep, const struct mr_request *request)
{
    if (atomic_load(&no_later) == 0)
        return __real_mr_reply_later(ep, request);
    atomic_fetch_sub(&no_later, 1);
    return NULL;
}

void *__wrap_realloc(void *old, size_t bytes)
{
    return atomic_load(&no_realloc) ? NULL : __real_realloc(old, bytes);
}

static int setup_full(void **state)
{
    atomic_store(&full, NULL);
    atomic_store(&refused, 0);
    atomic_store(&no_realloc, false);
    atomic_store(&no_later, 0);
    return setup(state);
}

static bool is_destroyed(void *object)
{
    return atomic_load(&((struct counted *)object)->destroyed) == 1;
}

static bool was_refused(void *arg)
{
    return atomic_load(&refused) >= 3;
}

/* ---- answers ---- */

static enum mr_status make_reference(struct mr_rpc_call *call, const struct mr_value *arguments,
                                     uint32_t count)
{
    struct mr_value object = {.kind = MR_VALUE_OBJECT, .object = mr_rpc_user(call)};
    struct mr_rref *rref;
    enum mr_status status = mr_rref_create(mr_rpc_of(call), object, destroy_counted, &rref);
    if (status != MR_OK)
        return status;
    status = mr_rpc_return(call, mr_value_rref(rref));
    mr_rref_release(rref);
    return status;
}

/* It is passed out at each try, and taken back where that failed. */
TEST(a_reference_in_an_answer_that_waits_is_passed_out_once, setup_full, net_teardown)
{
    struct net *net = *state;
    struct counted object = {.value = 1};
    struct mr_rpc_future *future;
    struct mr_rpc_result *result;
    net_function(worker(state, 1), "make_reference", "", "ref", make_reference, &object, 0);
    atomic_store(&full, net->workers[1].ep);
    made(mr_rpc_async(worker(state, 0), 1, "make_reference", NULL, 0, NULL, &future));
    WAIT_UNTIL(was_refused(NULL));
    assert_false(mr_rpc_done(future));
    atomic_store(&full, NULL);
    made(mr_rpc_wait(future, &result));
    struct mr_value value = *mr_rpc_result_value(result, 0);
    made(mr_rpc_sync(worker(state, 0), 1, "use", &value, 1, NULL, NULL));
    assert_int_equal(object.used_late, 0);
    mr_rpc_result_free(result);
    mr_rpc_future_destroy(future);
    WAIT_UNTIL(is_destroyed(&object));
}

/* The owner is busy so often, and has the request again each time. */
TEST(a_fetch_is_asked_again, setup_full, net_teardown)
{
    struct mr_value in = mr_value_i64(7);
    struct mr_rref *rref;
    struct mr_rpc_result *result;
    made(mr_remote(worker(state, 0), 1, "mirror", &in, 1, NULL, &rref));
    made(mr_rref_confirm(rref, 0));
    atomic_store(&no_later, 3);
    made(mr_rref_to_here(rref, 0, &result));
    assert_int_equal(atomic_load(&no_later), 0);
    assert_int_equal(mr_rpc_result_value(result, 0)->i64, 7);
    mr_rpc_result_free(result);
    mr_rref_release(rref);
}

struct idle {
    struct net *net;
    struct mr_rpc *rpc;
    uint32_t unfinished;
};

/* No function runs or waits. */
static bool runs_nothing(void *arg)
{
    struct idle *idle = arg;
    pthread_mutex_lock(&idle->net->lock);
    bool none = mr_executor_load(idle->rpc->executor) == 0 && idle->rpc->job_count == 0 &&
                !mr_agent_has_work(idle->rpc) && atomic_load(&refused) > 0;
    idle->unfinished = mr_agent_unfinished(idle->rpc);
    pthread_mutex_unlock(&idle->net->lock);
    return none;
}

static bool is_finished(void *arg)
{
    struct idle *idle = arg;
    return runs_nothing(idle) && idle->unfinished == 0;
}

/* Else a node that is stopped would go, and its caller learn of a death instead of its result. */
TEST(answers_that_wait_keep_a_node_from_going, setup_full, net_teardown)
{
    struct net *net = *state;
    struct idle idle = {.net = net, .rpc = worker(state, 1)};
    struct mr_value value = mr_value_i64(7);
    struct mr_rpc_future *future;
    struct mr_rpc_result *result;
    atomic_store(&full, net->workers[1].ep);
    made(mr_rpc_async(worker(state, 0), 1, "mirror", &value, 1, NULL, &future));
    WAIT_UNTIL(was_refused(NULL));
    pthread_mutex_lock(&net->lock);
    mr_agent_retire(idle.rpc);
    pthread_mutex_unlock(&net->lock);
    WAIT_UNTIL(runs_nothing(&idle));
    assert_true(idle.unfinished > 0);
    atomic_store(&full, NULL);
    made(mr_rpc_wait(future, &result));
    assert_int_equal(mr_rpc_result_value(result, 0)->i64, 7);
    WAIT_UNTIL(is_finished(&idle));
    mr_rpc_result_free(result);
    mr_rpc_future_destroy(future);
}

/* ---- answers that are malformed ---- */

/* A good reference, and one of an owner that there is not. */
static struct mr_rref *passed;

static void serve_malformed(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request)
{
    struct mr_value values[2] = {mr_value_rref(passed), mr_value_rref(passed)};
    uint64_t words[2 * MR_RREF_WORDS] = {0};
    struct mr_rpc_head head = {.context = 0};
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, (uint32_t)mr_values_head_bytes(NULL, values, 2), NULL);
    assert_int_equal(mr_values_pass(values, 1, &agent->hooks, from->rank, words), MR_OK);
    words[MR_RREF_WORDS] = 99;
    assert_true(mr_reply_begin(agent->config.endpoint, request->ref, MR_OK, &tensor, 1));
    mr_values_write(tensor.data, &head, NULL, values, 2, words);
    mr_reply_end(agent->config.endpoint, request->ref);
}

TEST(the_references_of_a_malformed_answer_are_released, setup_full, net_teardown)
{
    struct net *net = *state;
    struct counted object = {.value = 1};
    struct mr_value value = {.kind = MR_VALUE_OBJECT, .object = &object}, number = mr_value_i64(7);
    struct mr_rref *own, *remote;
    struct mr_rpc_result *result;
    made(mr_rref_create(worker(state, 1), value, destroy_counted, &own));
    made(mr_remote(worker(state, 0), 1, "mirror", &number, 1, NULL, &remote));
    made(mr_rref_confirm(remote, 0));
    pthread_mutex_lock(&net->lock);
    mr_agent_serve served[MR_OP_COUNT];
    memcpy(served, worker(state, 1)->served, sizeof(served));
    served[MR_OP_RPC_FETCH] = serve_malformed;
    const mr_agent_serve *before = worker(state, 1)->served;
    passed = own;
    worker(state, 1)->served = served;
    pthread_mutex_unlock(&net->lock);
    assert_int_equal(mr_rref_to_here(remote, 0, &result), MR_BAD_MESSAGE);
    pthread_mutex_lock(&net->lock);
    worker(state, 1)->served = before;
    pthread_mutex_unlock(&net->lock);
    mr_rref_release(remote);
    mr_rref_release(own);
    WAIT_UNTIL(is_destroyed(&object));
    await_nothing_held(state);
}

/* ---- messages ---- */

/* All calls have ended, which held what they made. */
static bool calls_are_over(void *arg)
{
    struct idle *idle = arg;
    pthread_mutex_lock(&idle->net->lock);
    bool over = atomic_load(&idle->rpc->in_flight) == 0;
    pthread_mutex_unlock(&idle->net->lock);
    return over;
}

static bool is_dead(void *rpc)
{
    struct mr_rpc_worker info;
    return mr_worker_info(rpc, 1, &info) == MR_OK && info.is_dead;
}

/* The owner would keep the values for ever: it is as if it had died, for all. */
TEST(a_worker_that_misses_a_message_is_dead, setup_full, net_teardown)
{
    struct net *net = *state;
    static struct counted objects[MANY];
    struct mr_rref *rrefs[MANY];
    for (uint32_t i = 0; i < MANY; i++) {
        struct mr_value address = mr_value_i64((intptr_t)&objects[i]);
        made(mr_remote(worker(state, 0), 1, "make_object", &address, 1, NULL, &rrefs[i]));
        made(mr_rref_confirm(rrefs[i], 0));
    }
    WAIT_UNTIL(calls_are_over(&(struct idle){.net = net, .rpc = worker(state, 0)}));
    pthread_mutex_lock(&net->lock); /* so that all go at once */
    atomic_store(&no_realloc, true);
    for (uint32_t i = 0; i < MANY; i++)
        mr_rref_release(rrefs[i]);
    (void)mr_agent_poll(worker(state, 0), mr_agent_now(worker(state, 0)));
    atomic_store(&no_realloc, false);
    pthread_mutex_unlock(&net->lock);
    WAIT_UNTIL(is_dead(worker(state, 0)));
    assert_int_equal(mr_rpc_sync(worker(state, 0), 1, "nothing", NULL, 0, NULL, NULL), MR_WORKER_DIED);
    made(mr_rpc_sync(worker(state, 0), 2, "nothing", NULL, 0, NULL, NULL));
    WAIT_UNTIL(is_dead(worker(state, 2)));
    net_silence(net, 1, true); /* its values end with it */
}

/* It is answered at once, and kept nowhere. */
TEST(what_runs_inline_needs_no_memory_for_its_request, setup_full, net_teardown)
{
    struct mr_value value = mr_value_i64(17);
    struct mr_rpc_result *result;
    if (getenv("TEST_LONG_FROM_BYTES") != NULL)
        skip(); /* what comes in parts is kept until it is whole */
    atomic_store(&no_later, 1);
    made(mr_rpc_sync(worker(state, 0), 1, "mirror_inline", &value, 1, NULL, &result));
    assert_int_equal(mr_rpc_result_value(result, 0)->i64, 17);
    assert_int_equal(atomic_load(&no_later), 1);
    mr_rpc_result_free(result);
    atomic_store(&no_later, 0);
}
