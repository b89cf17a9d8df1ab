/* References between workers: made, passed, fetched, released, and what becomes of them when somebody
 * dies. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/rpc/base/rpc.h"
#include "dataplane/rpc/rref/rref_count_internal.h"
#include "dataplane/rpc/rref/rref_internal.h"
#include "rref_functions.h"
#include "tests/test.h"
#include "tests/wait.h"

static struct mr_rpc_result *to_here(struct mr_rref *rref)
{
    struct mr_rpc_result *result;
    if (mr_rref_to_here(rref, 0, &result) != MR_OK)
        fail_msg("%s", mr_rpc_last_error());
    return result;
}

static void expect_i64(struct mr_rref *rref, int64_t expected)
{
    struct mr_rpc_result *result = to_here(rref);
    assert_int_equal(mr_rpc_result_count(result), 1);
    assert_int_equal(mr_rpc_result_value(result, 0)->kind, MR_VALUE_I64);
    assert_int_equal(mr_rpc_result_value(result, 0)->i64, expected);
    mr_rpc_result_free(result);
}

/* ---- made ---- */

TEST(values_of_our_own_are_at_hand, setup, net_teardown)
{
    float floats[3] = {1, 2, 3};
    struct mr_rpc *rpc = worker(state, 0);
    const struct mr_value *value;
    struct mr_rref *rref;
    made(mr_rref_create(rpc, mr_value_tensor(mr_tensor_1d(MR_F32, 3, floats)), NULL, &rref));
    floats[1] = 7;
    assert_int_equal(mr_rref_owner(rref), 0);
    assert_true(mr_rref_is_owner(rref));
    assert_ptr_equal(mr_rref_value_now(rref)->tensor.data, mr_rref_value_now(rref)->tensor.data);
    assert_int_equal(mr_rref_local_value(rref, 0, &value), MR_OK);
    assert_true(((const float *)value->tensor.data)[1] == 2);
    assert_int_equal(mr_rref_confirm(rref, 0), MR_OK);
    struct mr_rpc_result *copy = to_here(rref);

    mr_rref_release(rref);
    assert_true(((const float *)mr_rpc_result_value(copy, 0)->tensor.data)[2] == 3);
    mr_rpc_result_free(copy);
}

/* A copy holds what is in it by itself: freeing it takes nothing from the value. */
TEST(a_copy_of_our_own_value_holds_its_references, setup, net_teardown)
{
    struct mr_rpc *rpc = worker(state, 0);
    struct mr_rref *inner, *outer;
    made(mr_rref_create(rpc, mr_value_i64(7), NULL, &inner));
    made(mr_rref_create(rpc, mr_value_rref(inner), NULL, &outer));
    mr_rref_release(inner);
    for (uint32_t i = 0; i < 3; i++) {
        struct mr_rpc_result *copy = to_here(outer);
        expect_i64(mr_rpc_result_value(copy, 0)->rref, 7);
        mr_rpc_result_free(copy);
    }
    mr_rref_release(outer);
}

TEST(a_value_made_elsewhere_is_fetched, setup, net_teardown)
{
    for (uint32_t from = 0; from < 3; from++) {
        for (uint32_t to = 0; to < 3; to++) {
            for (uint32_t inlined = 0; inlined < 2; inlined++) {
                struct mr_value value = mr_value_i64(from * 10 + to);
                struct mr_rref *rref;
                made(mr_remote(worker(state, from), to, inlined ? "mirror_inline" : "mirror", &value, 1, NULL,
                               &rref));
                assert_int_equal(mr_rref_owner(rref), to);
                assert_int_equal(mr_rref_is_owner(rref), from == to);
                assert_int_equal(mr_rref_id(rref) >> MR_RPC_ID_SHIFT, from);
                expect_i64(rref, from * 10 + to);
                assert_int_equal(mr_rref_confirm(rref, 0), MR_OK);
                mr_rref_release(rref);
            }
        }
    }
    await_nothing_held(state);
}

TEST(all_kinds_of_values_are_fetched, setup, net_teardown)
{
    static float large[1 << 16];
    struct mr_value in[] = {mr_value_string("text"), mr_value_f64(0.5), mr_value_none(),
                            mr_value_tensor(mr_tensor_1d(MR_F32, 1 << 16, large))};
    struct mr_rref *rref;
    large[1234] = 5;
    made(mr_remote(worker(state, 0), 1, "mirror", in, 4, NULL, &rref));
    struct mr_rpc_result *result = to_here(rref);

    assert_int_equal(mr_rpc_result_count(result), 4);
    assert_string_equal(mr_rpc_result_value(result, 0)->string.text, "text");
    assert_true(mr_rpc_result_value(result, 1)->f64 == 0.5);
    assert_int_equal(mr_rpc_result_value(result, 2)->kind, MR_VALUE_NONE);
    assert_memory_equal(mr_rpc_result_value(result, 3)->tensor.data, large, sizeof(large));
    mr_rpc_result_free(result);
    mr_rref_release(rref);
    await_nothing_held(state);
}

TEST(a_function_without_results_leaves_none, setup, net_teardown)
{
    for (uint32_t to = 0; to < 2; to++) {
        const struct mr_value *value;
        struct mr_rref *rref;
        made(mr_remote(worker(state, 0), to, "nothing", NULL, 0, NULL, &rref));
        struct mr_rpc_result *result = to_here(rref);

        assert_int_equal(mr_rpc_result_count(result), 0);
        mr_rpc_result_free(result);
        if (to == 0) {
            assert_int_equal(mr_rref_local_value(rref, 0, &value), MR_OK);
            assert_int_equal(value->kind, MR_VALUE_NONE);
        }
        mr_rref_release(rref);
    }
    await_nothing_held(state);
}

TEST(a_function_that_fails_fails_whoever_asks, setup, net_teardown)
{
    for (uint32_t to = 0; to < 2; to++) {
        struct mr_rpc_result *result;
        struct mr_rref *rref;
        made(mr_remote(worker(state, 0), to, "fails", NULL, 0, NULL, &rref));
        expect_error(MR_FUNCTION_FAILED, mr_rref_to_here(rref, 0, &result), "mr_rref_to_here",
                     "row 17 is missing");
        assert_int_equal(mr_rref_confirm(rref, 0), MR_OK);
        struct mr_value argument = mr_value_rref(rref);

        expect_error(MR_FUNCTION_FAILED,
                     mr_rpc_sync(worker(state, 0), 2, "read", &argument, 1, NULL, &result),
                     "row 17 is missing");
        mr_rref_release(rref);
    }
    await_nothing_held(state);
}

/* Nobody runs such a call, and its arguments are taken all the same. */
TEST(a_refused_call_leaves_a_reason, setup, net_teardown)
{
    struct mr_rpc *rpc = worker(state, 0);
    struct mr_rpc_result *result;
    struct mr_rref *value, *rref;
    made(mr_rref_create(rpc, mr_value_i64(1), NULL, &value));
    struct mr_value arguments[2] = {mr_value_rref(value), mr_value_rref(value)};

    made(mr_remote(rpc, 1, "no_such", arguments, 2, NULL, &rref));
    expect_error(MR_UNKNOWN_FUNCTION, mr_rref_to_here(rref, 0, &result), "no function of that name",
                 "worker \"w1\" (rank 1)");
    mr_rref_release(rref);
    made(mr_remote(rpc, 1, "nothing", arguments, 2, NULL, &rref));
    expect_error(MR_WRONG_SIGNATURE, mr_rref_to_here(rref, 0, &result), "it was called with (ref, ref)");
    mr_rref_release(rref);
    assert_int_equal(mr_rpc_sync(rpc, 1, "no_such", arguments, 2, NULL, NULL), MR_UNKNOWN_FUNCTION);
    assert_int_equal(mr_rpc_sync(rpc, 1, "nothing", arguments, 2, NULL, NULL), MR_WRONG_SIGNATURE);
    /* At once where it is known at once. */
    expect_error(MR_UNKNOWN_FUNCTION, mr_remote(rpc, 0, "no_such", arguments, 2, NULL, &rref), "mr_remote");
    expect_error(MR_UNKNOWN_WORKER, mr_remote(rpc, 9, "nothing", NULL, 0, NULL, &rref), "rank 9");
    mr_rref_release(value);
    await_nothing_held(state);
}

/* ---- objects ---- */

TEST(objects_stay_with_their_owner, setup, net_teardown)
{
    for (uint32_t to = 0; to < 2; to++) {
        struct counted object = {.value = 40};
        struct mr_value arguments[2] = {mr_value_i64((intptr_t)&object), mr_value_i64(2)};
        struct mr_rpc_result *result;
        struct mr_rref *rref;
        made(mr_remote(worker(state, 0), to, "make_object", arguments, 1, NULL, &rref));
        expect_error(MR_INVALID_ARGUMENT, mr_rref_to_here(rref, 0, &result), "object",
                     "stays with its owner");
        arguments[0] = mr_value_rref(rref);
        assert_int_equal(mr_rpc_sync(worker(state, 0), to, "add_to_object", arguments, 2, NULL, &result),
                         MR_OK);
        assert_int_equal(mr_rpc_result_value(result, 0)->i64, 42);
        mr_rpc_result_free(result);
        assert_int_equal(atomic_load(&object.destroyed), 0);
        mr_rref_release(rref);
        await_destroyed(&object, 1);
    }
    await_nothing_held(state);
}

TEST(an_object_of_our_own_is_destroyed_once, setup, net_teardown)
{
    struct counted object = {.value = 1};
    struct mr_value value = {.kind = MR_VALUE_OBJECT, .object = &object};
    const struct mr_value *seen;
    struct mr_rref *rref;
    made(mr_rref_create(worker(state, 0), value, destroy_counted, &rref));
    assert_int_equal(mr_rref_local_value(rref, 0, &seen), MR_OK);
    assert_ptr_equal(seen->object, &object);
    mr_rref_retain(rref);
    mr_rref_release(rref);
    struct mr_value arguments[2] = {mr_value_rref(rref), mr_value_i64(5)};

    assert_int_equal(mr_rpc_sync(worker(state, 0), 0, "add_to_object", arguments, 2, NULL, NULL), MR_OK);
    assert_int_equal(mr_rpc_sync(worker(state, 0), 1, "keep", arguments, 1, NULL, NULL), MR_OK);
    mr_rref_release(rref);
    assert_int_equal(mr_rpc_sync(worker(state, 1), 1, "drop", NULL, 0, NULL, NULL), MR_OK);
    await_destroyed(&object, 1);
    await_nothing_held(state);
    assert_int_equal(object.value, 6);
}

TEST(an_object_that_nobody_asked_for_is_destroyed, setup, net_teardown)
{
    struct counted object = {.value = 1};
    struct mr_value argument = mr_value_i64((intptr_t)&object);
    for (uint32_t to = 0; to < 2; to++) {
        assert_int_equal(mr_rpc_sync(worker(state, 0), to, "make_object", &argument, 1, NULL, NULL),
                         MR_INVALID_ARGUMENT);
        await_destroyed(&object, to + 1);
    }
}

/* An object whose function fails after it has returned it. */
struct refused {
    enum mr_status status;
    pthread_t destroyed_on;
    _Atomic uint32_t destroyed;
};

static void destroy_refused(void *object)
{
    struct refused *refused = object;
    refused->destroyed_on = pthread_self();
    atomic_fetch_add(&refused->destroyed, 1);
}

static enum mr_status make_refused(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t count)
{
    struct refused *refused = mr_rpc_user(call);
    enum mr_status status = mr_rpc_return_object(call, refused, destroy_refused);
    return status == MR_OK ? refused->status : status;
}

/* What destroys it may block and call others, which nobody inside may. */
TEST(an_object_of_a_function_that_failed_is_destroyed_outside, setup, net_teardown)
{
    struct net *net = *state;
    static struct refused refused;
    for (uint32_t to = 0; to < 2; to++) {
        net_function(worker(state, to), "make_refused", "", "object", make_refused, &refused, 0);
        net_function(worker(state, to), "make_wrong", "", "i64", make_refused, &refused, 0);
        for (uint32_t wrong = 0; wrong < 2; wrong++) {
            struct mr_rpc_result *result;
            struct mr_rref *rref;
            refused = (struct refused){.status = wrong ? MR_OK : MR_FUNCTION_FAILED};
            made(
                mr_remote(worker(state, 0), to, wrong ? "make_wrong" : "make_refused", NULL, 0, NULL, &rref));
            assert_int_equal(mr_rref_to_here(rref, 0, &result),
                             wrong ? MR_WRONG_SIGNATURE : MR_FUNCTION_FAILED);
            mr_rref_release(rref);
            await_nothing_held(state);
            assert_int_equal(atomic_load(&refused.destroyed), 1);
            assert_false(pthread_equal(refused.destroyed_on, net->thread));
        }
    }
}

/* ---- passed on ---- */

TEST(a_reference_goes_to_a_third_worker_and_back, setup, net_teardown)
{
    for (uint32_t owner = 0; owner < 3; owner++) {
        struct mr_value value = mr_value_i64(owner);
        struct mr_rpc_result *result, *inner;
        struct mr_rref *rref;
        made(mr_remote(worker(state, 0), owner, "mirror", &value, 1, NULL, &rref));
        value = mr_value_rref(rref);
        for (uint32_t to = 0; to < 3; to++) {
            assert_int_equal(mr_rpc_sync(worker(state, 0), to, "read", &value, 1, NULL, &result), MR_OK);
            assert_int_equal(mr_rpc_result_value(result, 0)->i64, owner);
            mr_rpc_result_free(result);
            /* On through all of them, and back here. */
            assert_int_equal(mr_rpc_sync(worker(state, 0), to, "pass_around", &value, 1, NULL, &result),
                             MR_OK);
            struct mr_rref *back = mr_rpc_result_value(result, 0)->rref;

            assert_int_equal(mr_rref_id(back), mr_rref_id(rref));
            assert_int_equal(mr_rref_owner(back), owner);
            mr_rref_retain(back);
            mr_rpc_result_free(result);
            inner = to_here(back);
            assert_int_equal(mr_rpc_result_value(inner, 0)->i64, owner);
            mr_rpc_result_free(inner);
            assert_int_equal(mr_rref_confirm(back, 0), MR_OK);
            mr_rref_release(back);
        }
        mr_rref_release(rref);
    }
    await_nothing_held(state);
}

/* Before the call that makes the value has run, or even been sent. */
TEST(a_reference_may_be_passed_on_and_released_at_once, setup, net_teardown)
{
    struct mr_value value = mr_value_i64(0);
    struct mr_rpc_future *futures[32];
    for (uint32_t i = 0; i < 32; i++) {
        struct mr_rref *rref;
        value = mr_value_i64(i);
        made(mr_remote(worker(state, 0), 1 + i % 2, "mirror", &value, 1, NULL, &rref));
        value = mr_value_rref(rref);
        assert_int_equal(mr_rpc_async(worker(state, 0), i % 3, "read", &value, 1, NULL, &futures[i]), MR_OK);
        mr_rref_release(rref);
    }
    for (uint32_t i = 0; i < 32; i++) {
        struct mr_rpc_result *result;
        assert_int_equal(mr_rpc_wait(futures[i], &result), MR_OK);
        assert_int_equal(mr_rpc_result_value(result, 0)->i64, i);
        mr_rpc_result_free(result);
        mr_rpc_future_destroy(futures[i]);
    }
    await_nothing_held(state);
}

TEST(references_may_refer_to_references, setup, net_teardown)
{
    struct mr_rref *inner, *outer;
    made(mr_rref_create(worker(state, 0), mr_value_i64(9), NULL, &inner));
    made(mr_rref_create(worker(state, 0), mr_value_rref(inner), NULL, &outer));
    mr_rref_release(inner);
    struct mr_value value = mr_value_rref(outer);
    struct mr_rpc_result *result;

    assert_int_equal(mr_rpc_sync(worker(state, 0), 1, "read_inner", &value, 1, NULL, &result), MR_OK);
    assert_int_equal(mr_rpc_result_value(result, 0)->i64, 9);
    mr_rpc_result_free(result);
    mr_rref_release(outer);
    await_nothing_held(state);
}

TEST(a_reference_kept_by_a_function_outlives_its_call, setup, net_teardown)
{
    struct counted object = {.value = 3};
    struct mr_value argument = mr_value_i64((intptr_t)&object);
    struct mr_rref *rref;
    made(mr_remote(worker(state, 0), 1, "make_object", &argument, 1, NULL, &rref));
    argument = mr_value_rref(rref);
    assert_int_equal(mr_rpc_sync(worker(state, 0), 2, "keep", &argument, 1, NULL, NULL), MR_OK);
    mr_rref_release(rref);
    net_skip(*state, 1000000);
    assert_int_equal(atomic_load(&object.destroyed), 0);
    assert_int_equal(mr_rpc_sync(worker(state, 0), 2, "drop", NULL, 0, NULL, NULL), MR_OK);
    await_destroyed(&object, 1);
    await_nothing_held(state);
}

/* ---- waiting ---- */

TEST(waits_end_at_their_time_out, setup, net_teardown)
{
    struct mr_rpc_call_options patient = {.timeout_ms = UINT32_MAX};
    static struct gate gate;
    for (uint32_t to = 0; to < 2; to++) {
        const struct mr_value *value;
        struct mr_rpc_result *result;
        struct mr_rref *rref;
        struct mr_rpc *rpc = worker(state, 0);
        gate_init(&gate);
        net_function(worker(state, to), "gate", "", "i64", pass_gate, &gate, 0);
        made(mr_remote(rpc, to, "gate", NULL, 0, &patient, &rref));
        gate_wait_begun(&gate, 1);
        expect_error(MR_DEADLINE_EXCEEDED, mr_rref_to_here(rref, 1, &result), "mr_rref_to_here", "time-out");
        if (to == 0)
            expect_error(MR_DEADLINE_EXCEEDED, mr_rref_local_value(rref, 1, &value), "mr_rref_local_value");
        else
            expect_error(MR_INVALID_ARGUMENT, mr_rref_local_value(rref, 1, &value), "worker \"w1\" (rank 1)");
        gate_open(&gate);
        expect_i64(rref, 1);
        mr_rref_release(rref);
    }
    await_nothing_held(state);
}

struct reader {
    pthread_t thread;
    struct mr_rref *rref;
    struct gate *gate;
    enum mr_status status;
};

static void *read_and_open(void *arg)
{
    struct mr_rpc_result *result = NULL;
    struct reader *reader = arg;
    reader->status = mr_rref_to_here(reader->rref, UINT32_MAX, &result);
    mr_rpc_result_free(result);
    gate_open(reader->gate);
    return NULL;
}

static bool somebody_waits(struct net *net, const struct mr_rref *rref)
{
    pthread_mutex_lock(&net->lock);
    bool waits = rref->handle != NULL && !mr_list_empty(&rref->handle->owned->waiters);
    pthread_mutex_unlock(&net->lock);
    return waits;
}

/* Even when the function that makes the value waits in turn for who waits for it: a worker comes to its
 * end. */
TEST(waits_end_when_the_worker_does, setup, net_teardown)
{
    struct mr_rpc_call_options patient = {.timeout_ms = UINT32_MAX};
    struct net *net = *state;
    struct gate gate;
    struct reader reader = {.gate = &gate};
    gate_init(&gate);
    net_function(worker(state, 0), "gate", "", "i64", pass_gate, &gate, 0);
    made(mr_remote(worker(state, 0), 0, "gate", NULL, 0, &patient, &reader.rref));
    gate_wait_begun(&gate, 1);
    assert_int_equal(pthread_create(&reader.thread, NULL, read_and_open, &reader), 0);
    WAIT_UNTIL(somebody_waits(net, reader.rref));
    net_end(net, 0);
    pthread_join(reader.thread, NULL);
    assert_int_equal(reader.status, MR_SHUTTING_DOWN);
    mr_rref_release(reader.rref);
}

/* What the answer brings is taken, and let go, also when nobody waits for it any more. */
TEST(an_answer_that_comes_late_leaves_nothing, setup, net_teardown)
{
    struct mr_rpc_call_options options = {.timeout_ms = 30000}; /* not reached by itself */
    struct counted object = {.value = 1};
    static struct gate gate;
    struct mr_rpc_future *future;
    gate_init(&gate);
    gate.object = &object;
    net_function(worker(state, 1), "gate", "...", "ref", pass_gate, &gate, 0);
    for (uint32_t i = 0; i < 2; i++) {
        struct mr_rref *rref;
        struct mr_value argument;
        made(mr_rref_create(worker(state, 0), mr_value_i64(3), NULL, &rref));
        argument = mr_value_rref(rref);
        assert_int_equal(mr_rpc_async(worker(state, 0), 1, "gate", &argument, 1, &options, &future), MR_OK);
        mr_rref_release(rref);
        gate_wait_begun(&gate, 1);
        if (i == 0)
            net_skip(*state, 31000000);
        else
            mr_rpc_cancel(future);
        assert_int_equal(mr_rpc_wait(future, NULL), i == 0 ? MR_DEADLINE_EXCEEDED : MR_CANCELLED);
        mr_rpc_future_destroy(future);
        gate_open(&gate);
        await_destroyed(&object, i + 1);
        gate_close(&gate);
    }
    await_nothing_held(state);
}

/* A window of calls is over there; what waits here behind them can still be withdrawn, with its
 * references. */
TEST(a_call_that_never_left_takes_its_references_back, setup, net_teardown)
{
    enum { WINDOW = 64 };
    struct mr_rpc_call_options patient = {.timeout_ms = UINT32_MAX}, hasty = {.timeout_ms = 500};
    struct mr_rpc_future *futures[WINDOW], *late, *cancelled;
    struct counted object = {.value = 1};
    struct mr_value value = {.kind = MR_VALUE_OBJECT, .object = &object};
    struct mr_rpc *rpc = worker(state, 0);
    static struct gate gate;
    struct mr_rref *rref, *never;
    struct mr_rpc_result *result;

    gate_init(&gate);
    net_function(worker(state, 1), "gate", "...", "i64", pass_gate, &gate, 0);
    made(mr_rref_create(rpc, value, destroy_counted, &rref));
    value = mr_value_rref(rref);
    for (uint32_t i = 0; i < WINDOW; i++)
        assert_int_equal(mr_rpc_async(rpc, 1, "gate", NULL, 0, &patient, &futures[i]), MR_OK);
    assert_int_equal(mr_rpc_async(rpc, 1, "gate", &value, 1, &hasty, &late), MR_OK);
    assert_int_equal(mr_rpc_async(rpc, 1, "gate", &value, 1, &patient, &cancelled), MR_OK);
    made(mr_remote(rpc, 1, "gate", &value, 1, &hasty, &never));
    mr_rref_release(rref);
    mr_rpc_cancel(cancelled);
    net_skip(*state, 600000);
    assert_int_equal(mr_rpc_wait(cancelled, NULL), MR_CANCELLED);
    assert_int_equal(mr_rpc_wait(late, NULL), MR_DEADLINE_EXCEEDED);
    await_destroyed(&object, 1);
    expect_error(MR_DEADLINE_EXCEEDED, mr_rref_to_here(never, 0, &result), "never left");
    mr_rref_release(never);
    mr_rpc_future_destroy(late);
    mr_rpc_future_destroy(cancelled);
    gate_open(&gate);
    for (uint32_t i = 0; i < WINDOW; i++) {
        assert_int_equal(mr_rpc_wait(futures[i], NULL), MR_OK);
        mr_rpc_future_destroy(futures[i]);
    }
    assert_int_equal(gate.begun, WINDOW);
    await_nothing_held(state);
}

/* ---- mistakes ---- */

TEST(a_released_reference_is_an_error, setup, net_teardown)
{
    struct mr_rpc *rpc = worker(state, 0);
    const struct mr_value *seen;
    struct mr_rpc_result *result;
    struct mr_rref *rref, *other;
    for (uint32_t to = 0; to < 2; to++) {
        struct mr_value value = mr_value_i64(1);
        made(mr_remote(rpc, to, "mirror", &value, 1, NULL, &rref));
        mr_rref_release(rref);
        expect_error(MR_INVALID_ARGUMENT, mr_rref_to_here(rref, 0, &result), "mr_rref_to_here",
                     "released before");
        expect_error(MR_INVALID_ARGUMENT, mr_rref_local_value(rref, 0, &seen), "released before");
        expect_error(MR_INVALID_ARGUMENT, mr_rref_confirm(rref, 0), "released before");
        value = mr_value_rref(rref);
        for (uint32_t callee = 0; callee < 2; callee++)
            expect_error(MR_INVALID_ARGUMENT, mr_rpc_sync(rpc, callee, "read", &value, 1, NULL, &result),
                         "read: argument 1 is a reference that was released before");
        expect_error(MR_INVALID_ARGUMENT, mr_rref_create(rpc, value, NULL, &other), "released before");
        mr_rref_release(rref);
        assert_non_null(strstr(mr_rpc_last_error(), "mr_rref_release: this reference was released before"));
        mr_rref_retain(rref);
        assert_non_null(strstr(mr_rpc_last_error(), "mr_rref_retain: this reference was released before"));
    }
    assert_int_equal(mr_rref_to_here(NULL, 0, &result), MR_INVALID_ARGUMENT);
    mr_rref_release(NULL);
    /* Those released long ago have made room. */
    for (uint32_t i = 0; i < 3000; i++) {
        made(mr_rref_create(rpc, mr_value_i64(i), NULL, &rref));
        mr_rref_release(rref);
    }
    assert_int_equal(mr_rref_to_here(rref, 0, &result), MR_INVALID_ARGUMENT);
    await_nothing_held(state);
}

TEST(references_belong_to_one_worker, setup, net_teardown)
{
    struct mr_value value;
    struct mr_rref *rref;
    made(mr_rref_create(worker(state, 0), mr_value_i64(1), NULL, &rref));
    value = mr_value_rref(rref);
    expect_error(MR_INVALID_ARGUMENT, mr_rpc_sync(worker(state, 1), 2, "read", &value, 1, NULL, NULL),
                 "another worker's");
    value = (struct mr_value){.kind = (enum mr_value_kind)99};
    struct mr_rref *none;

    expect_error(MR_INVALID_ARGUMENT, mr_rref_create(worker(state, 0), value, NULL, &none), "no value");
    mr_rref_release(rref);
}

/* ---- leaving ---- */

/* A thread that has answered may still be at the end of its work, which is named first. */
static enum mr_status shut_down_at_rest(struct mr_rpc *rpc)
{
    enum mr_status status;
    uint32_t tries = 0;
    do
        status = mr_rpc_shutdown(rpc, 1);
    while (status == MR_DEADLINE_EXCEEDED && strstr(mr_rpc_last_error(), ") has calls in flight;") != NULL &&
           ++tries < 10000);
    return status;
}

TEST(who_holds_what_is_named_when_leaving, setup, net_teardown)
{
    struct mr_value value = mr_value_i64(1);
    struct mr_rref *rref;
    made(mr_remote(worker(state, 1), 0, "mirror", &value, 1, NULL, &rref));
    assert_int_equal(mr_rref_confirm(rref, 0), MR_OK);
    expect_error(MR_DEADLINE_EXCEEDED, shut_down_at_rest(worker(state, 0)),
                 "worker \"w0\" (rank 0) owns 1 value held by worker \"w1\" (rank 1)");
    expect_error(MR_DEADLINE_EXCEEDED, shut_down_at_rest(worker(state, 1)),
                 "worker \"w1\" (rank 1) holds 1 value of worker \"w0\" (rank 0)");
    mr_rref_release(rref);
    await_nothing_held(state);
}
