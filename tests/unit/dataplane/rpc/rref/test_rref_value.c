/* Parameters: made, read in versions on their owner, fetched as copies elsewhere. */
#include <stdlib.h>
#include <string.h>
#include "dataplane/rpc/rref/rref.h"
#include "rref_functions.h"
#include "tests/test.h"

#define FLOATS 6u

static struct mr_rref *parameter_of(struct mr_rpc *rpc, float value)
{
    float values[FLOATS];
    struct mr_rref *rref = NULL;
    for (uint32_t i = 0; i < FLOATS; i++)
        values[i] = value;
    const struct mr_tensor initial = mr_tensor_2d(MR_F32, 2, 3, values);
    made(mr_parameter_create(rpc, &initial, &rref));
    return rref;
}

static void add_one(void *context, float *values)
{
    (void)context;
    for (uint32_t i = 0; i < FLOATS; i++)
        values[i] += 1;
}

static void change(struct mr_rref *parameter)
{
    assert_int_equal(mr_versions_change(mr_parameter_versions(parameter), add_one, NULL), MR_OK);
}

static void expect_tensor(const struct mr_tensor *tensor, float value)
{
    assert_int_equal(tensor->dtype, MR_F32);
    assert_int_equal(tensor->rank, 2);
    assert_int_equal(tensor->dims[0], 2);
    assert_int_equal(tensor->dims[1], 3);
    for (uint32_t i = 0; i < FLOATS; i++)
        assert_true(((const float *)tensor->data)[i] == value);
}

static void expect_here(struct mr_rref *parameter, float value)
{
    struct mr_rpc_result *result;
    made(mr_rref_to_here(parameter, 0, &result));
    assert_int_equal(mr_rpc_result_count(result), 1);
    assert_int_equal(mr_rpc_result_value(result, 0)->kind, MR_VALUE_TENSOR);
    expect_tensor(&mr_rpc_result_value(result, 0)->tensor, value);
    mr_rpc_result_free(result);
}

TEST(versions_stay_while_they_are_read, setup, net_teardown)
{
    struct mr_rref *parameter = parameter_of(worker(state, 1), 5);
    struct mr_parameter_version *first, *second;
    made(mr_parameter_read(parameter, &first));
    assert_int_equal(mr_parameter_number(first), 1);
    change(parameter);
    made(mr_parameter_read(parameter, &second));
    assert_int_equal(mr_parameter_number(second), 2);
    expect_tensor(mr_parameter_tensor(first), 5);
    expect_tensor(mr_parameter_tensor(second), 6);
    expect_here(parameter, 6);
    mr_parameter_done(first);
    mr_parameter_done(second);
    change(parameter);
    expect_here(parameter, 7);
    mr_rref_release(parameter);
    await_nothing_held(state);
}

TEST(a_version_outlives_its_parameter, setup, net_teardown)
{
    struct mr_rref *parameter = parameter_of(worker(state, 0), 2);
    struct mr_parameter_version *version;
    made(mr_parameter_read(parameter, &version));
    mr_rref_release(parameter);
    expect_tensor(mr_parameter_tensor(version), 2);
    mr_parameter_done(version);
    mr_parameter_done(NULL);
    await_nothing_held(state);
}

/* "keep_parameter": the last one that came. */
static _Atomic(struct mr_rref *) kept;

static enum mr_status keep_parameter(struct mr_rpc_call *call, const struct mr_value *arguments,
                                     uint32_t count)
{
    (void)call;
    (void)count;
    mr_rref_retain(arguments[0].rref);
    atomic_store(&kept, arguments[0].rref);
    return MR_OK;
}

TEST(others_get_copies_of_the_newest, setup, net_teardown)
{
    struct mr_rref *parameter = parameter_of(worker(state, 0), 1);
    struct mr_value value = mr_value_rref(parameter);
    struct mr_parameter_version *version;
    net_function(worker(state, 2), "keep_parameter", "ref", "", keep_parameter, NULL, 0);
    made(mr_rpc_sync(worker(state, 0), 2, "keep_parameter", &value, 1, NULL, NULL));
    struct mr_rref *there = atomic_load(&kept);
    assert_null(mr_parameter_versions(there));
    expect_error(MR_INVALID_ARGUMENT, mr_parameter_read(there, &version), "mr_parameter_read",
                 "another worker's", "mr_rref_to_here()");
    for (uint32_t round = 1; round < 4; round++) {
        expect_here(there, (float)round);
        change(parameter);
    }
    made(mr_parameter_read(parameter, &version));
    change(parameter);
    expect_here(there, 5);
    mr_parameter_done(version);
    mr_rref_release(parameter); /* the other one holds it */
    expect_here(there, 5);
    mr_rref_release(there);
    await_nothing_held(state);
}

struct late {
    struct gate gate;
    struct mr_versions *versions;
    struct mr_rref *there;
};

static void change_at_the_gate(void *context, float *values)
{
    gate_pass(context);
    add_one(NULL, values);
}

static void *change_late(void *arg)
{
    struct late *late = arg;
    return (void *)(uintptr_t)mr_versions_change(late->versions, change_at_the_gate, &late->gate);
}

static void *fetch_late(void *arg)
{
    struct late *late = arg;
    struct mr_rpc_result *result;
    enum mr_status status = mr_rref_to_here(late->there, 0, &result);
    if (status == MR_OK) {
        if (((const float *)mr_rpc_result_value(result, 0)->tensor.data)[0] != 2)
            status = MR_INTERNAL;
        mr_rpc_result_free(result);
    }
    return (void *)(uintptr_t)status;
}

/* The thread that drives the owner's agent does not wait for an optimizer: it answers others meanwhile. */
TEST(a_copy_waits_for_a_change_and_nobody_else_does, setup, net_teardown)
{
    struct mr_rref *parameter = parameter_of(worker(state, 0), 1);
    struct mr_value value = mr_value_rref(parameter);
    struct late late = {.versions = mr_parameter_versions(parameter)};
    pthread_t changing, fetching;
    void *status;
    net_function(worker(state, 1), "keep_parameter", "ref", "", keep_parameter, NULL, 0);
    made(mr_rpc_sync(worker(state, 0), 1, "keep_parameter", &value, 1, NULL, NULL));
    late.there = atomic_load(&kept);
    gate_init(&late.gate);
    assert_int_equal(pthread_create(&changing, NULL, change_late, &late), 0);
    gate_wait_begun(&late.gate, 1);
    assert_int_equal(pthread_create(&fetching, NULL, fetch_late, &late), 0);
    for (uint32_t i = 0; i < 20; i++)
        made(mr_rpc_sync(worker(state, 2), 0, "mirror_inline", NULL, 0, NULL, NULL));
    gate_open(&late.gate);
    pthread_join(changing, &status);
    assert_int_equal((uintptr_t)status, MR_OK);
    pthread_join(fetching, &status);
    assert_int_equal((uintptr_t)status, MR_OK);
    mr_rref_release(late.there);
    mr_rref_release(parameter);
    await_nothing_held(state);
}

static struct late unanswered;
static pthread_t unanswered_changing;

static int teardown_during_a_change(void **state)
{
    void *status;
    (void)net_teardown(state);
    gate_open(&unanswered.gate);
    pthread_join(unanswered_changing, &status);
    mr_versions_release(unanswered.versions);
    return (uintptr_t)status == MR_OK ? 0 : -1;
}

/* The owner ends while an answer waits for a change. */
TEST(an_owner_may_end_during_a_change, setup, teardown_during_a_change)
{
    struct mr_rref *parameter = parameter_of(worker(state, 0), 1);
    struct mr_value value = mr_value_rref(parameter);
    struct mr_rpc_result *result;
    unanswered = (struct late){.versions = mr_parameter_versions(parameter)};
    mr_versions_retain(unanswered.versions);
    net_function(worker(state, 1), "keep_parameter", "ref", "", keep_parameter, NULL, 0);
    made(mr_rpc_sync(worker(state, 0), 1, "keep_parameter", &value, 1, NULL, NULL));
    gate_init(&unanswered.gate);
    assert_int_equal(pthread_create(&unanswered_changing, NULL, change_late, &unanswered), 0);
    gate_wait_begun(&unanswered.gate, 1);
    struct mr_rref *there = atomic_load(&kept);
    assert_int_equal(mr_rref_to_here(there, 50, &result), MR_DEADLINE_EXCEEDED);
    made(mr_rpc_sync(worker(state, 1), 0, "nothing", NULL, 0, NULL, NULL)); /* so the other has arrived */
    net_silence(*state, 0, true); /* it believes to the end that the other worker holds the parameter */
    mr_rref_release(there);
    mr_rref_release(parameter);
}

TEST(errors_say_what_is_wrong, setup, net_teardown)
{
    struct mr_rpc *rpc = worker(state, 0);
    float value = 1;
    struct mr_tensor tensor = mr_tensor_1d(MR_F16, 2, &value);
    struct mr_rref *rref = NULL;
    struct mr_parameter_version *version;
    expect_error(MR_INVALID_ARGUMENT, mr_parameter_create(rpc, &tensor, &rref), "mr_parameter_create", "f16");
    tensor = mr_tensor_1d(MR_F32, 0, &value);
    expect_error(MR_INVALID_ARGUMENT, mr_parameter_create(rpc, &tensor, &rref), "at least one element");
    tensor = mr_tensor_1d(MR_F32, 1, NULL);
    expect_error(MR_INVALID_ARGUMENT, mr_parameter_create(rpc, &tensor, &rref), "without data");
    assert_null(rref);
    made(mr_rref_create(rpc, mr_value_i64(1), NULL, &rref));
    expect_error(MR_INVALID_ARGUMENT, mr_parameter_read(rref, &version), "no parameter",
                 "mr_parameter_create()");
    mr_rref_release(rref);
    expect_error(MR_INVALID_ARGUMENT, mr_parameter_read(rref, &version), "mr_parameter_read",
                 "released before");
    expect_error(MR_INVALID_ARGUMENT, mr_parameter_read(NULL, &version), "mr_parameter_read", "NULL");
    /* An object of the program's is none, whatever it is. */
    struct counted object = {.value = 1};
    made(mr_rref_create(rpc, (struct mr_value){.kind = MR_VALUE_OBJECT, .object = &object}, destroy_counted,
                        &rref));
    expect_error(MR_INVALID_ARGUMENT, mr_parameter_read(rref, &version), "no parameter");
    mr_rref_release(rref);
    await_destroyed(&object, 1);
    tensor = mr_tensor_0d(MR_F32, &value);
    made(mr_parameter_create(rpc, &tensor, &rref)); /* a scalar is one */
    made(mr_parameter_read(rref, &version));
    assert_int_equal(mr_parameter_tensor(version)->rank, 0);
    mr_parameter_done(version);
    mr_rref_release(rref);
    await_nothing_held(state);
}
