/* The distributed optimizer: over parameters on several workers, from several trainers, and what goes
 * wrong. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "dataplane/rpc/autograd/context.h"
#include "dataplane/rpc/base/rpc.h"
#include "dataplane/rpc/rref/rref.h"
#include "dataplane/rpc/dist_optimizer/owned_optimizer.h"
#include "line_model.h"
#include "net.h"
#include "tests/test.h"
#include "tests/wait.h"

#define WORKERS    3u
#define FLOATS     5u
#define PARAMETERS (WORKERS + 200u) /* more than a call takes */

/* Workers that each have a model, and a handle of each model's parameter at worker 0. */
struct world {
    struct net net;
    struct line_model models[WORKERS];
    struct mr_rref *parameters[WORKERS];
};

/* Whoever changes an optimizer has its worker's lock: of these. */
static struct net *_Atomic locking_net;
static _Atomic uint32_t unlocked;

static void expect_locked(void)
{
    struct net *net = atomic_load(&locking_net);
    bool locked = net == NULL;
    for (uint32_t i = 0; !locked && i < WORKERS; i++) {
        struct mr_rpc *rpc = net->workers[i].rpc;
        locked = pthread_mutex_trylock(rpc->stepping) != 0;
        if (!locked)
            pthread_mutex_unlock(rpc->stepping);
    }
    atomic_fetch_add(&unlocked, !locked);
}

enum mr_status __real_mr_owned_optimizer_add(struct mr_owned_optimizer *o,
                                             const struct mr_owned_parameter *parameters, uint32_t count,
                                             char *error, size_t error_bytes);
enum mr_status __wrap_mr_owned_optimizer_add(struct mr_owned_optimizer *o,
                                             const struct mr_owned_parameter *parameters, uint32_t count,
                                             char *error, size_t error_bytes);
enum mr_status __real_mr_owned_optimizer_step(struct mr_owned_optimizer *o, mr_gradient_of *gradient_of,
                                              void *context, char *error, size_t error_bytes);
enum mr_status __wrap_mr_owned_optimizer_step(struct mr_owned_optimizer *o, mr_gradient_of *gradient_of,
                                              void *context, char *error, size_t error_bytes);

enum mr_status __wrap_mr_owned_optimizer_add(struct mr_owned_optimizer *o,
                                             const struct mr_owned_parameter *parameters, uint32_t count,
                                             char *error, size_t error_bytes)
{
    expect_locked();
    return __real_mr_owned_optimizer_add(o, parameters, count, error, error_bytes);
}

enum mr_status __wrap_mr_owned_optimizer_step(struct mr_owned_optimizer *o, mr_gradient_of *gradient_of,
                                              void *context, char *error, size_t error_bytes)
{
    expect_locked();
    return __real_mr_owned_optimizer_step(o, gradient_of, context, error, error_bytes);
}

static struct mr_rref *parameter_of(struct mr_rpc *rpc, uint32_t stream)
{
    float values[FLOATS];
    struct mr_rref *rref = NULL;
    for (uint32_t i = 0; i < FLOATS; i++)
        values[i] = line_drawn(stream, i);
    const struct mr_tensor initial = mr_tensor_1d(MR_F32, FLOATS, values);
    made(mr_parameter_create(rpc, &initial, &rref));
    return rref;
}

static struct mr_rref *fetch_parameter(struct mr_rpc *rpc, uint32_t from)
{
    struct mr_rpc_result *result;
    made(mr_rpc_sync(rpc, from, "line.parameter", NULL, 0, NULL, &result));
    struct mr_rref *rref = mr_rpc_result_value(result, 0)->rref;
    mr_rref_retain(rref);
    mr_rpc_result_free(result);
    return rref;
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    *state = w;
    net_world(&w->net, WORKERS);
    atomic_store(&unlocked, 0);
    atomic_store(&locking_net, &w->net);
    for (uint32_t i = 0; i < WORKERS; i++) {
        struct mr_rpc_function functions[LINE_FUNCTIONS];
        line_functions(&w->models[i], functions);
        for (uint32_t f = 0; f < LINE_FUNCTIONS; f++)
            made(mr_rpc_register(w->net.workers[i].rpc, &functions[f]));
        w->models[i].parameter = parameter_of(w->net.workers[i].rpc, i);
    }
    for (uint32_t i = 0; i < WORKERS; i++)
        w->parameters[i] = fetch_parameter(w->net.workers[0].rpc, i);
    return 0;
}

/* All messages on ends of contexts and on releases have arrived. */
static bool nothing_held(struct net *net)
{
    bool nothing = true;
    pthread_mutex_lock(&net->lock);
    for (uint32_t i = 0; i < net->count; i++) {
        struct mr_rpc *rpc = net->workers[i].rpc;
        if (net->workers[i].silent)
            continue;
        nothing = nothing && !mr_agent_has_work(rpc) && mr_executor_load(rpc->executor) == 0 &&
                  contexts_known(rpc->contexts) == 0 && !mr_rrefs_held(rpc->rrefs, NULL, 0);
    }
    pthread_mutex_unlock(&net->lock);
    return nothing;
}

static int teardown(void **state)
{
    struct world *w = *state;
    for (uint32_t i = 0; i < WORKERS; i++) {
        mr_rref_release(w->parameters[i]);
        mr_rref_release(w->models[i].parameter);
        mr_rrefs_release_named(w->net.workers[i].rpc->rrefs);
    }
    WAIT_UNTIL(nothing_held(&w->net));
    atomic_store(&locking_net, NULL);
    assert_int_equal(atomic_load(&unlocked), 0);
    net_stop(&w->net);
    free(w);
    return 0;
}

static struct mr_dist_optimizer *optimizer_of(struct mr_rpc *rpc, struct mr_rref *const *parameters,
                                              uint32_t count, struct mr_dist_optimizer_options options)
{
    struct mr_dist_optimizer *optimizer = NULL;
    made(mr_dist_optimizer_create(rpc, &options, parameters, count, &optimizer));
    return optimizer;
}

static void values_of(struct mr_rref *own, float values[FLOATS])
{
    struct mr_parameter_version *version;
    made(mr_parameter_read(own, &version));
    memcpy(values, mr_parameter_tensor(version)->data, FLOATS * sizeof(*values));
    mr_parameter_done(version);
}

/* ---- steps ---- */

TEST(a_step_reaches_every_owner, setup, teardown)
{
    struct world *w = *state;
    struct mr_rpc *rpc = worker(state, 0);
    const struct mr_dist_optimizer_options sgd = {
        .kind = MR_DIST_SGD, .learning_rate = 0.1f, .momentum = 0.5f};
    struct mr_dist_optimizer *optimizer = optimizer_of(rpc, w->parameters, WORKERS, sgd);
    double plain[WORKERS][FLOATS], velocity[WORKERS][FLOATS] = {{0}};
    for (uint32_t p = 0; p < WORKERS; p++)
        for (uint32_t i = 0; i < FLOATS; i++)
            plain[p][i] = (double)line_drawn(p, i);
    for (uint32_t step = 0; step < 10; step++) {
        float x[FLOATS], t = line_drawn(100 + step, FLOATS), got[FLOATS];
        double loss, expected = 0;
        struct mr_autograd *context;
        for (uint32_t i = 0; i < FLOATS; i++)
            x[i] = line_drawn(100 + step, i);
        made(mr_autograd_begin(rpc, &context));
        made(line_backward(rpc, 0, WORKERS, mr_tensor_1d(MR_F32, FLOATS, x), (double)t, context, &loss));
        made(mr_dist_optimizer_step(optimizer, context, 0));
        mr_autograd_end(context);
        for (uint32_t p = 0; p < WORKERS; p++) {
            double off = -(double)t;
            for (uint32_t i = 0; i < FLOATS; i++)
                off += plain[p][i] * (double)x[i];
            expected += off * off;
            values_of(w->models[p].parameter, got);
            for (uint32_t i = 0; i < FLOATS; i++) {
                velocity[p][i] = 0.5 * velocity[p][i] + 2 * off * (double)x[i];
                plain[p][i] -= (double)0.1f * velocity[p][i];
                assert_true(fabs((double)got[i] - plain[p][i]) < 1e-5);
            }
        }
        assert_true(fabs(loss - expected) < 1e-4);
    }
    mr_dist_optimizer_destroy(optimizer);
    mr_dist_optimizer_destroy(NULL);
}

/* Parameters without a gradient in the context stay, and so does all else. */
TEST(a_step_changes_what_the_context_has_gradients_of, setup, teardown)
{
    struct world *w = *state;
    struct mr_rpc *rpc = worker(state, 0);
    const struct mr_dist_optimizer_options sgd = {.kind = MR_DIST_SGD, .learning_rate = 1};
    struct mr_dist_optimizer *optimizer = optimizer_of(rpc, w->parameters, WORKERS, sgd);
    struct mr_autograd *context, *empty;
    const float x[FLOATS] = {1, 2, 3, 4, 5};
    double loss;
    float got[FLOATS];
    made(mr_autograd_begin(rpc, &context));
    made(mr_autograd_begin(rpc, &empty));
    made(line_backward(rpc, 1, 2, mr_tensor_1d(MR_F32, FLOATS, x), 0, context, &loss));
    made(mr_dist_optimizer_step(optimizer, empty, 0));
    made(mr_dist_optimizer_step(optimizer, context, 0));
    mr_autograd_end(context);
    mr_autograd_end(empty);
    for (uint32_t p = 0; p < WORKERS; p++) {
        bool changed = false;
        values_of(w->models[p].parameter, got);
        for (uint32_t i = 0; i < FLOATS; i++)
            changed = changed || got[i] != line_drawn(p, i);
        assert_int_equal(changed, p == 1);
    }
    mr_dist_optimizer_destroy(optimizer);
}

TEST(more_parameters_than_a_call_takes, setup, teardown)
{
    struct world *w = *state;
    struct mr_rref *parameters[PARAMETERS];
    const struct mr_dist_optimizer_options adam = {.kind = MR_DIST_ADAM};
    for (uint32_t i = 0; i < PARAMETERS; i++)
        parameters[i] = i < 100             ? parameter_of(worker(state, 0), i)
                        : i - 100 < WORKERS ? w->parameters[i - 100]
                                            : parameter_of(worker(state, 0), i);
    struct mr_dist_optimizer *optimizer = optimizer_of(worker(state, 0), parameters, PARAMETERS, adam);
    struct mr_autograd *context;
    const float x[FLOATS] = {1, 0, 0, 0, 0};
    double loss;
    float got[FLOATS];
    made(mr_autograd_begin(worker(state, 0), &context));
    made(line_backward(worker(state, 0), 0, WORKERS, mr_tensor_1d(MR_F32, FLOATS, x), 9, context, &loss));
    made(mr_dist_optimizer_step(optimizer, context, 0));
    mr_autograd_end(context);
    for (uint32_t p = 0; p < WORKERS; p++) { /* Adam's first step is the learning rate */
        values_of(w->models[p].parameter, got);
        assert_true(fabsf(got[0] - line_drawn(p, 0) - 0.001f) < 1e-6f);
    }
    mr_dist_optimizer_destroy(optimizer);
    for (uint32_t i = 0; i < PARAMETERS; i++)
        if (i < 100 || i - 100 >= WORKERS)
            mr_rref_release(parameters[i]);
}

/* ---- several trainers ---- */

#define TRAINERS 6u
#define ROUNDS   15u

struct trainer {
    pthread_t thread;
    struct mr_rpc *rpc;
    struct mr_rref *parameters[2];
    const char *failed;
    double sum[FLOATS]; /* of what it has added to worker 1's parameter */
};

/* Each on two workers' parameters. With x = 0 but for one element the gradient of that one is what it is at
 * the version that was read. */
static void *train(void *arg)
{
    struct trainer *t = arg;
    const struct mr_dist_optimizer_options options = {.kind = MR_DIST_SGD, .learning_rate = 0.01f};
    struct mr_dist_optimizer *optimizer;
    if (mr_dist_optimizer_create(t->rpc, &options, t->parameters, 2, &optimizer) != MR_OK) {
        t->failed = "create";
        return NULL;
    }
    for (uint32_t round = 0; round < ROUNDS && t->failed == NULL; round++) {
        struct mr_autograd *context;
        float x[FLOATS] = {0};
        double loss;
        x[round % FLOATS] = 1;
        if (mr_autograd_begin(t->rpc, &context) != MR_OK ||
            line_backward(t->rpc, 1, 3, mr_tensor_1d(MR_F32, FLOATS, x), 3, context, &loss) != MR_OK)
            t->failed = "backward";
        struct mr_rpc_result *pairs = NULL;
        if (t->failed == NULL && mr_autograd_gradients(context, 1, &pairs) != MR_OK)
            t->failed = "gradients";
        if (pairs != NULL)
            t->sum[round % FLOATS] +=
                (double)((const float *)mr_rpc_result_value(pairs, 1)->tensor.data)[round % FLOATS];
        mr_rpc_result_free(pairs);
        if (t->failed == NULL && mr_dist_optimizer_step(optimizer, context, 0) != MR_OK)
            t->failed = "step";
        mr_autograd_end(context);
    }
    mr_dist_optimizer_destroy(optimizer);
    return NULL;
}

/* Every step of every trainer is there once. */
TEST(trainers_step_at_the_same_time, setup, teardown)
{
    struct world *w = *state;
    struct trainer trainers[TRAINERS];
    float got[FLOATS];
    struct mr_parameter_version *version;
    for (uint32_t i = 0; i < TRAINERS; i++) {
        trainers[i] = (struct trainer){.rpc = worker(state, i % WORKERS)};
        for (uint32_t p = 0; p < 2; p++)
            trainers[i].parameters[p] = fetch_parameter(trainers[i].rpc, 1 + p);
        assert_int_equal(pthread_create(&trainers[i].thread, NULL, train, &trainers[i]), 0);
    }
    double expected[FLOATS];
    for (uint32_t i = 0; i < FLOATS; i++)
        expected[i] = (double)line_drawn(1, i);
    for (uint32_t i = 0; i < TRAINERS; i++) {
        pthread_join(trainers[i].thread, NULL);
        assert_null(trainers[i].failed);
        for (uint32_t e = 0; e < FLOATS; e++)
            expected[e] -= (double)0.01f * trainers[i].sum[e];
        for (uint32_t p = 0; p < 2; p++)
            mr_rref_release(trainers[i].parameters[p]);
    }
    values_of(w->models[1].parameter, got);
    for (uint32_t i = 0; i < FLOATS; i++)
        assert_true(fabs((double)got[i] - expected[i]) < 1e-4);
    made(mr_parameter_read(w->models[1].parameter, &version));
    assert_int_equal(mr_parameter_number(version), 1 + TRAINERS * ROUNDS);
    mr_parameter_done(version);
}

struct stepper {
    pthread_t thread;
    struct mr_dist_optimizer *optimizer;
    struct mr_autograd *context;
    enum mr_status status;
    _Atomic bool done;
};

static void *step_once(void *arg)
{
    struct stepper *s = arg;
    s->status = mr_dist_optimizer_step(s->optimizer, s->context, 0);
    atomic_store(&s->done, true);
    return NULL;
}

/* Whether another thread waits for a mutex that this one has: glibc's mark of it. */
static bool is_waited_for(const pthread_mutex_t *mutex)
{
    return __atomic_load_n(&mutex->__data.__lock, __ATOMIC_RELAXED) > 1;
}

/* What the owner is at, another step waits for. */
TEST(an_owner_makes_one_step_at_a_time, setup, teardown)
{
    struct world *w = *state;
    struct mr_rpc *rpc = worker(state, 0), *owner = worker(state, 1);
    const struct mr_dist_optimizer_options sgd = {.kind = MR_DIST_SGD, .learning_rate = 0.01f};
    struct mr_dist_optimizer *optimizer = optimizer_of(rpc, &w->parameters[1], 1, sgd);
    struct mr_parameter_version *version;
    float x[FLOATS] = {1};
    double loss;
    struct stepper stepper = {.optimizer = optimizer};
    made(mr_autograd_begin(rpc, &stepper.context));
    made(line_backward(rpc, 1, 2, mr_tensor_1d(MR_F32, FLOATS, x), 3, stepper.context, &loss));
    pthread_mutex_lock(owner->stepping); /* as another step that goes on */
    assert_int_equal(pthread_create(&stepper.thread, NULL, step_once, &stepper), 0);
    WAIT_UNTIL(is_waited_for(owner->stepping) || atomic_load(&stepper.done));
    assert_false(atomic_load(&stepper.done));
    made(mr_parameter_read(w->models[1].parameter, &version));
    assert_int_equal(mr_parameter_number(version), 1);
    mr_parameter_done(version);
    pthread_mutex_unlock(owner->stepping);
    pthread_join(stepper.thread, NULL);
    assert_int_equal(stepper.status, MR_OK);
    made(mr_parameter_read(w->models[1].parameter, &version));
    assert_int_equal(mr_parameter_number(version), 2);
    mr_parameter_done(version);
    mr_autograd_end(stepper.context);
    mr_dist_optimizer_destroy(optimizer);
}

/* ---- names ---- */

static struct mr_rref *open_parameter(struct mr_rpc *rpc, const char *name, float first)
{
    float values[FLOATS] = {first};
    struct mr_rref *rref = NULL;
    const struct mr_tensor initial = mr_tensor_1d(MR_F32, FLOATS, values);
    made(mr_parameter_open(rpc, name, &initial, &rref));
    return rref;
}

/* Gradients of a parameter that several opened add up, and its optimizer finds them. */
TEST(names_find_parameters_and_optimizers_again, setup, teardown)
{
    struct world *w = *state;
    struct mr_rpc *rpc = worker(state, 0), *owner = worker(state, 1);
    struct mr_dist_optimizer_options sgd = {
        .kind = MR_DIST_SGD, .learning_rate = 0.1f, .momentum = 0.9f, .name = "t0"};
    float x[FLOATS] = {1}, first[FLOATS], second[FLOATS];
    double loss;
    uint64_t steps;
    struct mr_rref *mine = open_parameter(owner, "line/a", 5), *same = open_parameter(owner, "line/a", 9);
    assert_ptr_equal(mine, same);
    mr_rref_release(same);
    mr_rref_release(w->models[1].parameter);
    mr_rref_release(w->parameters[1]);
    w->models[1].parameter = mine;
    w->parameters[1] = fetch_parameter(rpc, 1);
    values_of(mine, first);
    assert_true(first[0] == 5);
    for (uint32_t i = 0; i < 2; i++) { /* the second goes on where the first was */
        struct mr_dist_optimizer *optimizer = optimizer_of(rpc, &w->parameters[1], 1, sgd);
        struct mr_autograd *context;
        made(mr_dist_optimizer_steps(optimizer, &steps));
        assert_int_equal(steps, i);
        made(mr_autograd_begin(rpc, &context));
        made(line_backward(rpc, 1, 2, mr_tensor_1d(MR_F32, FLOATS, x), 3, context, &loss));
        made(mr_dist_optimizer_step(optimizer, context, 0));
        mr_autograd_end(context);
        made(mr_dist_optimizer_steps(optimizer, &steps));
        assert_int_equal(steps, i + 1);
        mr_dist_optimizer_destroy(optimizer);
    }
    values_of(mine, second);
    assert_true(second[0] != first[0]);

    struct mr_dist_optimizer *optimizer = NULL;
    struct mr_rref *unnamed = w->parameters[2];
    expect_error(MR_INVALID_ARGUMENT, mr_dist_optimizer_create(rpc, &sgd, &unnamed, 1, &optimizer), "\"w2\"",
                 "parameter 0 has no name");
    sgd.name = "no name";
    expect_error(MR_INVALID_ARGUMENT, mr_dist_optimizer_create(rpc, &sgd, &w->parameters[1], 1, &optimizer),
                 "options.name \"no name\" is no name");
    sgd.name = NULL;
    optimizer = optimizer_of(rpc, &w->parameters[1], 1, sgd);
    expect_error(MR_INVALID_ARGUMENT, mr_dist_optimizer_steps(optimizer, &steps), "has no name");
    mr_dist_optimizer_destroy(optimizer);
    const struct mr_tensor wrong = mr_tensor_1d(MR_F32, FLOATS - 1, x);
    expect_error(MR_WRONG_SHAPE, mr_parameter_open(owner, "line/a", &wrong, &same), "shape [5], not [4]");
    expect_error(MR_INVALID_ARGUMENT, mr_parameter_open(owner, "", &wrong, &same), "is no name");
}

/* ---- what goes wrong ---- */

TEST(what_cannot_be_made_is_named, setup, teardown)
{
    struct world *w = *state;
    struct mr_rpc *rpc = worker(state, 0);
    struct mr_dist_optimizer_options options = {.kind = MR_DIST_SGD};
    struct mr_dist_optimizer *optimizer = NULL;
    expect_error(MR_INVALID_ARGUMENT,
                 mr_dist_optimizer_create(rpc, &options, w->parameters, WORKERS, &optimizer),
                 "mr_dist_optimizer_create: ", "options.learning_rate");
    options.learning_rate = 1;
    expect_error(MR_INVALID_ARGUMENT, mr_dist_optimizer_create(rpc, &options, w->parameters, 0, &optimizer),
                 "no parameter");
    struct mr_rref *parameters[4] = {w->parameters[0], w->parameters[1], w->parameters[2], NULL};
    expect_error(MR_INVALID_ARGUMENT, mr_dist_optimizer_create(rpc, &options, parameters, 4, &optimizer),
                 "parameter 3 is NULL");
    parameters[3] = w->parameters[1];
    expect_error(MR_INVALID_ARGUMENT, mr_dist_optimizer_create(rpc, &options, parameters, 4, &optimizer),
                 "\"w1\"", "parameters 1 and 3 are the same");
    made(mr_rref_create(rpc, mr_value_i64(1), NULL, &parameters[3]));
    expect_error(MR_FUNCTION_FAILED, mr_dist_optimizer_create(rpc, &options, parameters, 4, &optimizer),
                 "\"w0\"", "parameter 3 is none of this worker's");
    mr_rref_release(parameters[3]);
    assert_null(optimizer);
}

TEST(calls_by_hand_do_no_harm, setup, teardown)
{
    struct world *w = *state;
    struct mr_rpc *rpc = worker(state, 0);
    const float numbers[7] = {1};
    const uint32_t which[2] = {0, 1};
    struct mr_autograd *context;
    struct mr_rpc_result *made_one;
    made(mr_autograd_begin(rpc, &context));
    const struct mr_rpc_call_options in_context = {.context = context};
    struct mr_value options[3] = {mr_value_i64(77), mr_value_i64(0),
                                  mr_value_tensor(mr_tensor_1d(MR_F32, 7, numbers))};
    expect_error(MR_INVALID_ARGUMENT, mr_rpc_sync(rpc, 1, "mr.optimizer", options, 3, NULL, NULL),
                 "options.kind");
    options[0] = mr_value_i64(MR_DIST_SGD);
    made(mr_rpc_sync(rpc, 1, "mr.optimizer", options, 3, NULL, &made_one));
    const struct mr_value optimizer = *mr_rpc_result_value(made_one, 0);
    struct mr_value add[3] = {optimizer, mr_value_tensor(mr_tensor_1d(MR_U32, 2, which)),
                              mr_value_rref(w->parameters[1])};
    expect_error(MR_FUNCTION_FAILED, mr_rpc_sync(rpc, 1, "mr.optimizer_add", add, 3, NULL, NULL),
                 "2 numbers for 1 parameter");
    add[2] = mr_value_i64(1);
    add[1] = mr_value_tensor(mr_tensor_1d(MR_U32, 1, which));
    expect_error(MR_FUNCTION_FAILED, mr_rpc_sync(rpc, 1, "mr.optimizer_add", add, 3, NULL, NULL),
                 "parameter 0 is none of this worker's");
    add[0] = add[2] = mr_value_rref(w->parameters[1]);
    expect_error(MR_FUNCTION_FAILED, mr_rpc_sync(rpc, 1, "mr.optimizer_add", add, 3, NULL, NULL),
                 "no optimizer");
    expect_error(MR_FUNCTION_FAILED, mr_rpc_sync(rpc, 1, "mr.optimizer_step", add, 1, &in_context, NULL),
                 "no optimizer");
    expect_error(MR_FUNCTION_FAILED, mr_rpc_sync(rpc, 1, "mr.optimizer_step", &optimizer, 1, NULL, NULL),
                 "in no context");
    mr_rpc_result_free(made_one);
    mr_autograd_end(context);
}

static enum mr_status answer_nothing(struct mr_rpc_call *call, const struct mr_value *arguments,
                                     uint32_t count)
{
    return MR_OK;
}

static enum mr_status answer_a_number(struct mr_rpc_call *call, const struct mr_value *arguments,
                                      uint32_t count)
{
    return mr_rpc_return(call, mr_value_i64(1));
}

/* A reference to a value of the caller's. */
static enum mr_status answer_anothers(struct mr_rpc_call *call, const struct mr_value *arguments,
                                      uint32_t count)
{
    return mr_rpc_return(call, mr_value_rref(((struct world *)mr_rpc_user(call))->parameters[2]));
}

/* A worker of another program may answer anything. */
TEST(an_owner_that_answers_nonsense_is_named, setup, teardown)
{
    static const mr_rpc_run answers[] = {answer_nothing, answer_a_number, answer_anothers};
    static const char *const results[] = {"", "i64", "ref"};
    struct world *w = *state;
    const struct mr_dist_optimizer_options sgd = {.kind = MR_DIST_SGD, .learning_rate = 0.1f};
    struct mr_dist_optimizer *optimizer = NULL;
    struct mr_function *theirs = mr_functions_find(&worker(state, 0)->functions, "mr.optimizer");
    const struct mr_function before = {.run = theirs->run, .user = theirs->user, .results = theirs->results};
    theirs->user = w;
    for (uint32_t i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof(name), "nonsense%u", i);
        net_function(worker(state, 0), name, "", results[i], answers[i], NULL, 0);
        theirs->results = mr_functions_find(&worker(state, 0)->functions, name)->results;
        theirs->run = answers[i];
        expect_error(MR_BAD_MESSAGE,
                     mr_dist_optimizer_create(worker(state, 0), &sgd, w->parameters, WORKERS, &optimizer),
                     "rank 0", "mr.optimizer");
        assert_null(optimizer);
    }
    theirs->run = before.run;
    theirs->user = before.user;
    theirs->results = before.results;
}

/* The other owners' updates are made, and the dead one is named. */
TEST(a_dead_owner_is_named, setup, teardown)
{
    struct world *w = *state;
    struct mr_rpc *rpc = worker(state, 0);
    const struct mr_dist_optimizer_options sgd = {.kind = MR_DIST_SGD, .learning_rate = 0.1f};
    struct mr_dist_optimizer *optimizer = optimizer_of(rpc, w->parameters, WORKERS, sgd), *another = NULL;
    struct mr_autograd *context;
    const float x[FLOATS] = {1, 1, 1, 1, 1};
    double loss;
    float got[FLOATS];
    made(mr_autograd_begin(rpc, &context));
    made(line_backward(rpc, 0, WORKERS, mr_tensor_1d(MR_F32, FLOATS, x), 2, context, &loss));
    expect_error(MR_INVALID_ARGUMENT, mr_dist_optimizer_step(optimizer, NULL, 0), "the context is NULL");
    net_silence(&w->net, 2, true);
    net_skip(&w->net, 60000000);
    expect_error(MR_WORKER_DIED, mr_dist_optimizer_step(optimizer, context, 0),
                 "mr_dist_optimizer_step: ", "\"w2\"");
    for (uint32_t p = 0; p < 2; p++) {
        values_of(w->models[p].parameter, got);
        for (uint32_t i = 0; i < FLOATS; i++)
            assert_true(got[i] != line_drawn(p, i));
    }
    expect_error(MR_WORKER_DIED, mr_dist_optimizer_create(rpc, &sgd, w->parameters, WORKERS, &another),
                 "\"w2\"");
    assert_null(another);
    mr_autograd_end(context);
    mr_dist_optimizer_destroy(optimizer);
}
