/* Calls between workers: values, errors, futures. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/rpc/base/rpc.h"
#include "net.h"
#include "tests/test.h"
#include "tests/wait.h"

static int setup(void **state)
{
    if (net_setup(state) != 0)
        return -1;
    net_world(*state, 3);
    return 0;
}

/* ---- functions ---- */

static enum mr_status fails_silently(struct mr_rpc_call *call, const struct mr_value *arguments,
                                     uint32_t count)
{
    return MR_IO_ERROR;
}

static enum mr_status who_calls(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t count)
{
    assert(mr_rpc_time_left_us(call) > 0);
    return mr_rpc_return(call, mr_value_i64(mr_rpc_caller(call) * 100 + mr_rpc_rank(mr_rpc_of(call))));
}

static enum mr_status returns_object(struct mr_rpc_call *call, const struct mr_value *arguments,
                                     uint32_t count)
{
    return mr_rpc_return_object(call, malloc(1), free);
}

/* Calls the caller back, which calls us, ... as deep as the argument says. */
static enum mr_status ping_pong(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t count)
{
    struct mr_value less = mr_value_i64(arguments[0].i64 - 1);
    struct mr_rpc_result *result;
    if (arguments[0].i64 == 0)
        return mr_rpc_return(call, mr_value_i64(0));
    enum mr_status status =
        mr_rpc_sync(mr_rpc_of(call), mr_rpc_caller(call), "ping_pong", &less, 1, NULL, &result);
    if (status != MR_OK)
        return mr_rpc_fail(call, "%s", mr_rpc_last_error());
    status = mr_rpc_return(call, mr_value_i64(mr_rpc_result_value(result, 0)->i64 + 1));
    mr_rpc_result_free(result);
    return status;
}

/* ---- values there and back ---- */

static void check_mirror(struct mr_rpc *from, uint32_t to)
{
    float floats[6] = {1, 2, 3, 4, 5, 6};
    struct mr_value in[] = {mr_value_tensor(mr_tensor_2d(MR_F32, 2, 3, floats)), mr_value_i64(-5),
                            mr_value_f64(0.25), mr_value_string("text"), mr_value_none()};
    struct mr_rpc_result *result;
    assert_int_equal(mr_rpc_sync(from, to, "mirror", in, 5, NULL, &result), MR_OK);
    assert_int_equal(mr_rpc_result_count(result), 5);
    assert_memory_equal(mr_rpc_result_value(result, 0)->tensor.data, floats, sizeof(floats));
    assert_int_equal(mr_rpc_result_value(result, 0)->tensor.dims[1], 3);
    assert_int_equal(mr_rpc_result_value(result, 1)->i64, -5);
    assert_true(mr_rpc_result_value(result, 2)->f64 == 0.25);
    assert_string_equal(mr_rpc_result_value(result, 3)->string.text, "text");
    assert_int_equal(mr_rpc_result_value(result, 4)->kind, MR_VALUE_NONE);
    assert_null(mr_rpc_result_value(result, 5));
    mr_rpc_result_free(result);
}

TEST(values_come_back_from_anywhere, setup, net_teardown)
{
    for (uint32_t rank = 0; rank < 3; rank++)
        net_function(worker(state, rank), "mirror", "...", "...", net_mirror, NULL,
                     rank == 2 ? MR_RPC_INLINE : 0);
    for (uint32_t from = 0; from < 3; from++)
        for (uint32_t to = 0; to < 3; to++)
            check_mirror(worker(state, from), to);
}

static enum mr_status return_nothing(struct mr_rpc_call *call, const struct mr_value *arguments,
                                     uint32_t count)
{
    return MR_OK;
}

/* Nor is there a result, from here or there. */
TEST(functions_may_return_nothing, setup, net_teardown)
{
    for (uint32_t to = 0; to < 2; to++) {
        struct mr_rpc_result *result = (struct mr_rpc_result *)state;
        struct mr_rpc_future *futures[8];
        net_function(worker(state, to), "nothing", "", "", return_nothing, NULL, 0);
        assert_int_equal(mr_rpc_sync(worker(state, 0), to, "nothing", NULL, 0, NULL, &result), MR_OK);
        assert_null(result);
        assert_int_equal(mr_rpc_result_count(result), 0);
        assert_null(mr_rpc_result_value(result, 0));
        for (uint32_t i = 0; i < 8; i++)
            assert_int_equal(mr_rpc_async(worker(state, 0), to, "nothing", NULL, 0, NULL, &futures[i]),
                             MR_OK);
        for (uint32_t i = 0; i < 4; i++)
            assert_int_equal(mr_rpc_wait(futures[i], &result), MR_OK);
        mr_rpc_futures_destroy(futures, 8); /* of the others the outcomes, too */
    }
}

TEST(many_and_large_values, setup, net_teardown)
{
    net_function(worker(state, 1), "mirror", "...", "...", net_mirror, NULL, 0);
    static float large[1 << 18];
    for (uint32_t i = 0; i < 1 << 18; i++)
        large[i] = (float)i;
    struct mr_value in[MR_RPC_ARGUMENTS_MAX];
    for (uint32_t i = 0; i < MR_RPC_ARGUMENTS_MAX; i++)
        in[i] = i % 2 == 0 ? mr_value_i64(i) : mr_value_tensor(mr_tensor_1d(MR_F32, i, large + i));
    in[1] = mr_value_tensor(mr_tensor_1d(MR_F32, 1 << 18, large));
    for (uint32_t to = 0; to < 2; to++) {
        struct mr_rpc_result *result;
        if (to == 0)
            net_function(worker(state, 0), "mirror", "...", "...", net_mirror, NULL, 0);
        assert_int_equal(mr_rpc_sync(worker(state, 0), to, "mirror", in, MR_RPC_ARGUMENTS_MAX, NULL, &result),
                         MR_OK);
        assert_int_equal(mr_rpc_result_count(result), MR_RPC_ARGUMENTS_MAX);
        assert_memory_equal(mr_rpc_result_value(result, 1)->tensor.data, large, sizeof(large));
        assert_int_equal((uintptr_t)mr_rpc_result_value(result, 1)->tensor.data % 64, 0);
        assert_int_equal(mr_rpc_result_value(result, 94)->i64, 94);
        assert_memory_equal(mr_rpc_result_value(result, 95)->tensor.data, large + 95, 95 * 4);
        mr_rpc_result_free(result);
    }
}

TEST(a_function_knows_its_caller, setup, net_teardown)
{
    struct mr_rpc_result *result;
    net_function(worker(state, 2), "who", "", "i64", who_calls, NULL, 0);
    assert_int_equal(mr_rpc_sync(worker(state, 1), 2, "who", NULL, 0, NULL, &result), MR_OK);
    assert_int_equal(mr_rpc_result_value(result, 0)->i64, 102);
    mr_rpc_result_free(result);
    assert_int_equal(mr_rpc_sync(worker(state, 2), 2, "who", NULL, 0, NULL, &result), MR_OK);
    assert_int_equal(mr_rpc_result_value(result, 0)->i64, 202);
    mr_rpc_result_free(result);
}

/* There is one executor thread on each side: each wait must free it for the next. */
TEST(calls_back_and_forth_use_up_no_threads, setup, net_teardown)
{
    struct mr_value depth = mr_value_i64(20);
    struct mr_rpc_result *result;
    for (uint32_t rank = 0; rank < 2; rank++)
        net_function(worker(state, rank), "ping_pong", "i64", "i64", ping_pong, NULL, 0);
    assert_int_equal(mr_rpc_sync(worker(state, 0), 1, "ping_pong", &depth, 1, NULL, &result), MR_OK);
    assert_int_equal(mr_rpc_result_value(result, 0)->i64, 20);
    mr_rpc_result_free(result);
}

/* More than there are places for calls between two workers, each of which calls back and so on: none waits
 * for another's place. */
TEST(many_calls_back_and_forth_end, setup, net_teardown)
{
    enum { CALLS = 150 };
    struct mr_rpc_future *futures[CALLS];
    struct mr_value depth = mr_value_i64(5);
    for (uint32_t rank = 0; rank < 2; rank++)
        net_function(worker(state, rank), "ping_pong", "i64", "i64", ping_pong, NULL, 0);
    for (uint32_t i = 0; i < CALLS; i++)
        made(mr_rpc_async(worker(state, 0), 1, "ping_pong", &depth, 1, NULL, &futures[i]));
    for (uint32_t i = 0; i < CALLS; i++) {
        struct mr_rpc_result *result;
        made(mr_rpc_wait(futures[i], &result));
        assert_int_equal(mr_rpc_result_value(result, 0)->i64, 5);
        mr_rpc_result_free(result);
        mr_rpc_future_destroy(futures[i]);
    }
}

/* Deeper than there are threads and places for: some are refused with a line that says why, and none waits
 * for its time-out. */
TEST(too_many_too_deep_are_refused, setup, net_teardown)
{
    enum { CALLS = 150, DEPTH = 9 };
    struct mr_rpc_future *futures[CALLS];
    struct mr_value depth = mr_value_i64(DEPTH);
    uint32_t refused = 0;
    net_die_late(*state); /* the others may have no processor for long */
    for (uint32_t rank = 0; rank < 2; rank++)
        net_function(worker(state, rank), "ping_pong", "i64", "i64", ping_pong, NULL, 0);
    for (uint32_t i = 0; i < CALLS; i++)
        made(mr_rpc_async(worker(state, 0), 1, "ping_pong", &depth, 1, NULL, &futures[i]));
    for (uint32_t i = 0; i < CALLS; i++) {
        struct mr_rpc_result *result = NULL;
        enum mr_status status = mr_rpc_wait(futures[i], &result);
        if (status != MR_OK) {
            refused++;
            assert_int_equal(status, MR_FUNCTION_FAILED); /* of the functions that called it */
            if (strstr(mr_rpc_last_error(), "calls that functions wait for") == NULL)
                fail_msg("%s", mr_rpc_last_error());
        } else {
            assert_int_equal(mr_rpc_result_value(result, 0)->i64, DEPTH);
        }
        mr_rpc_result_free(result);
        mr_rpc_future_destroy(futures[i]);
    }
    assert_true(refused < CALLS); /* those that were not in the way of others went through */
}

/* ---- errors ---- */

TEST(errors_say_what_and_where, setup, net_teardown)
{
    struct mr_rpc *rpc = worker(state, 0);
    float floats[2] = {0};
    struct mr_value wrong[] = {mr_value_tensor(mr_tensor_1d(MR_F32, 2, floats)), mr_value_string("x")};
    struct mr_value object = {.kind = MR_VALUE_OBJECT};
    for (uint32_t rank = 0; rank < 2; rank++) {
        net_function(worker(state, rank), "takes", "f32[3]", "", net_nothing, NULL, 0);
        net_function(worker(state, rank), "lies", "", "i64", net_nothing, NULL, 0);
        net_function(worker(state, rank), "fails", "", "", net_fails, NULL, 0);
        net_function(worker(state, rank), "silent", "", "", fails_silently, NULL, 0);
        net_function(worker(state, rank), "object", "", "object", returns_object, NULL, 0);
    }
    expect_error(MR_UNKNOWN_WORKER, mr_rpc_sync(rpc, 3, "takes", NULL, 0, NULL, NULL), "rank 3", "3 workers");
    expect_error(MR_INVALID_ARGUMENT, mr_rpc_sync(rpc, 1, "", NULL, 0, NULL, NULL), "1 to 63 bytes");
    expect_error(MR_INVALID_ARGUMENT, mr_rpc_sync(rpc, 1, "takes", &object, 1, NULL, NULL),
                 "stays with its owner");
    expect_error(MR_INVALID_ARGUMENT, mr_rpc_sync(rpc, 1, "takes", NULL, 1, NULL, NULL), "arguments");
    for (uint32_t to = 0; to < 2; to++) {
        const char *who = to == 0 ? "" : "worker \"w1\" (rank 1)";
        expect_error(MR_UNKNOWN_FUNCTION, mr_rpc_sync(rpc, to, "no_such", NULL, 0, NULL, NULL), "no_such",
                     who, "no function of that name");
        expect_error(MR_WRONG_SIGNATURE, mr_rpc_sync(rpc, to, "takes", wrong, 2, NULL, NULL), "takes", who,
                     "(f32[2], string)", "(f32[3])");
        expect_error(MR_WRONG_SIGNATURE, mr_rpc_sync(rpc, to, "lies", NULL, 0, NULL, NULL), "lies", who, "()",
                     "(i64)");
        expect_error(MR_FUNCTION_FAILED, mr_rpc_sync(rpc, to, "fails", NULL, 0, NULL, NULL),
                     "fails on worker", "row 17 is missing");
        expect_error(MR_IO_ERROR, mr_rpc_sync(rpc, to, "silent", NULL, 0, NULL, NULL), "silent on worker",
                     mr_status_text(MR_IO_ERROR));
        assert_int_not_equal(mr_rpc_sync(rpc, to, "object", NULL, 0, NULL, NULL), MR_OK);
    }
}

TEST(too_much_is_refused, setup, net_teardown)
{
    static uint8_t bytes[NET_MEMORY];
    struct mr_value huge =
        mr_value_tensor(mr_tensor_1d(MR_U8, UINT32_MAX, bytes)); /* which is not looked at */
    expect_error(MR_TOO_LARGE, mr_rpc_sync(worker(state, 0), 1, "f", &huge, 1, NULL, NULL), "4097 MiB",
                 "1024 MiB");
    struct mr_value fits = mr_value_tensor(mr_tensor_1d(MR_U8, NET_MEMORY, bytes));
    worker(state, 0)->config.long_from_bytes = SIZE_MAX; /* as one message of the transport's */
    expect_error(MR_NO_MEMORY, mr_rpc_sync(worker(state, 0), 1, "f", &fits, 1, NULL, NULL), "memory_bytes");
}

TEST(workers_are_known_by_rank_and_name, setup, net_teardown)
{
    struct mr_rpc_worker info;
    assert_int_equal(mr_rpc_rank(worker(state, 2)), 2);
    assert_int_equal(mr_rpc_world_size(worker(state, 2)), 3);
    assert_int_equal(mr_worker_info(worker(state, 2), 1, &info), MR_OK);
    assert_string_equal(info.name, "w1");
    assert_int_equal(info.rank, 1);
    assert_false(info.is_dead);
    assert_false(info.is_node);
    assert_int_equal(mr_worker_by_name(worker(state, 1), "w0", &info), MR_OK);
    assert_int_equal(info.rank, 0);
    expect_error(MR_UNKNOWN_WORKER, mr_worker_by_name(worker(state, 1), "w7", &info), "\"w7\"");
    expect_error(MR_UNKNOWN_WORKER, mr_worker_info(worker(state, 1), 3, &info), "rank 3");
}

/* ---- futures ---- */

TEST(futures_are_waited_for_in_any_order, setup, net_teardown)
{
    struct mr_rpc_future *futures[100];
    net_function(worker(state, 1), "mirror", "...", "...", net_mirror, NULL, 0);
    for (int64_t i = 0; i < 100; i++) {
        struct mr_value value = mr_value_i64(i);
        assert_int_equal(mr_rpc_async(worker(state, 0), 1, "mirror", &value, 1, NULL, &futures[i]), MR_OK);
    }
    for (int64_t i = 99; i >= 0; i--) {
        struct mr_rpc_result *result;
        assert_int_equal(mr_rpc_wait(futures[i], &result), MR_OK);
        assert_true(mr_rpc_done(futures[i]));
        assert_int_equal(mr_rpc_result_value(result, 0)->i64, i);
        mr_rpc_result_free(result);
        mr_rpc_future_destroy(futures[i]);
    }
}

TEST(a_future_may_be_dropped_before_its_end, setup, net_teardown)
{
    static struct gate gate;
    gate_init(&gate);
    for (uint32_t to = 0; to < 2; to++) {
        struct mr_rpc_future *future;
        net_function(worker(state, to), "gate", "", "", gate_pass_call, &gate, 0);
        assert_int_equal(mr_rpc_async(worker(state, 0), to, "gate", NULL, 0, NULL, &future), MR_OK);
        assert_false(mr_rpc_done(future));
        mr_rpc_future_destroy(future);
    }
    mr_rpc_future_destroy(NULL);
    gate_wait_begun(&gate, 2);
    gate_open(&gate); /* teardown finds that nothing is left */
}

TEST(arguments_are_copied_before_a_call_returns, setup, net_teardown)
{
    static struct gate gate;
    struct mr_rpc_future *futures[3];
    char text[] = "before";
    float floats[400];
    gate_init(&gate);
    for (uint32_t i = 0; i < 400; i++)
        floats[i] = 1;
    struct mr_value values[] = {mr_value_string(text), mr_value_tensor(mr_tensor_1d(MR_F32, 400, floats))};
    for (uint32_t i = 0; i < 3; i++) {
        net_function(worker(state, i), "gate", "", "", gate_pass_call, &gate, 0);
        net_function(worker(state, i), "mirror", "...", "...", net_mirror, NULL, 0);
        assert_int_equal(mr_rpc_async(worker(state, i), i, "gate", NULL, 0, NULL, &futures[i]), MR_OK);
        gate_wait_begun(&gate, i + 1);
        mr_rpc_future_destroy(futures[i]);
        assert_int_equal(mr_rpc_async(worker(state, 0), i, "mirror", values, 2, NULL, &futures[i]), MR_OK);
    }
    memset(text, 'x', 6);
    memset(floats, 0, sizeof(floats));
    gate_open(&gate);
    for (uint32_t i = 0; i < 3; i++) {
        struct mr_rpc_result *result;
        assert_int_equal(mr_rpc_wait(futures[i], &result), MR_OK);
        assert_string_equal(mr_rpc_result_value(result, 0)->string.text, "before");
        assert_true(((const float *)mr_rpc_result_value(result, 1)->tensor.data)[399] == 1);
        mr_rpc_result_free(result);
        mr_rpc_future_destroy(futures[i]);
    }
}

struct then_seen {
    struct gate gate;
    enum mr_status status;
    int64_t value;
    char error[256];
};

static void note_then(void *user, enum mr_status status, const char *error, struct mr_rpc_result *result)
{
    struct then_seen *seen = user;
    pthread_mutex_lock(&seen->gate.lock);
    seen->status = status;
    snprintf(seen->error, sizeof(seen->error), "%s", error);
    seen->value = result == NULL ? -1 : mr_rpc_result_value(result, 0)->i64;
    mr_rpc_result_free(result);
    seen->gate.begun++;
    pthread_cond_broadcast(&seen->gate.changed);
    pthread_mutex_unlock(&seen->gate.lock);
}

TEST(then_runs_once_before_or_after_the_end, setup, net_teardown)
{
    struct mr_value value = mr_value_i64(7);
    static struct then_seen seen;
    static struct gate gate;
    struct mr_rpc_future *future;
    gate_init(&seen.gate);
    gate_init(&gate);
    for (uint32_t to = 0; to < 2; to++)
        net_function(worker(state, to), "mirror", "...", "...", net_mirror, NULL, 0);
    net_function(worker(state, 1), "gate", "", "", gate_pass_call, &gate, 0);
    net_function(worker(state, 1), "fails", "", "", net_fails, NULL, 0);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(mr_rpc_async(worker(state, 0), i % 2, "mirror", &value, 1, NULL, &future), MR_OK);
        if (i >= 2)
            WAIT_UNTIL(mr_rpc_done(future));
        assert_int_equal(mr_rpc_then(future, note_then, &seen), MR_OK);
        gate_wait_begun(&seen.gate, i + 1);
        assert_int_equal(seen.status, MR_OK);
        assert_int_equal(seen.value, 7);
    }
    assert_int_equal(mr_rpc_async(worker(state, 0), 1, "fails", NULL, 0, NULL, &future), MR_OK);
    assert_int_equal(mr_rpc_then(future, note_then, &seen), MR_OK);
    gate_wait_begun(&seen.gate, 5);
    assert_int_equal(seen.status, MR_FUNCTION_FAILED);
    assert_non_null(strstr(seen.error, "row 17 is missing"));
    assert_int_equal(mr_rpc_async(worker(state, 0), 1, "mirror", &value, 1, NULL, &future), MR_OK);
    expect_error(MR_INVALID_ARGUMENT, mr_rpc_then(future, NULL, NULL), "NULL");
    mr_rpc_future_destroy(future);
}

/* The first occupies the one executor thread, so the second has not begun. */
TEST(a_cancelled_call_that_has_not_begun_is_not_run, setup, net_teardown)
{
    for (uint32_t to = 0; to < 2; to++) {
        struct mr_rpc_future *first, *second, *third;
        static struct gate gate, second_gate;
        struct mr_rpc_result *result;
        struct mr_value value = mr_value_i64(1);
        gate_init(&gate);
        gate_init(&second_gate);
        second_gate.open = true;
        net_function(worker(state, to), "gate", "", "", gate_pass_call, &gate, 0);
        net_function(worker(state, to), "second", "", "", gate_pass_call, &second_gate, 0);
        net_function(worker(state, to), "mirror", "...", "...", net_mirror, NULL, 0);
        assert_int_equal(mr_rpc_async(worker(state, 0), to, "gate", NULL, 0, NULL, &first), MR_OK);
        gate_wait_begun(&gate, 1);
        assert_int_equal(mr_rpc_async(worker(state, 0), to, "second", NULL, 0, NULL, &second), MR_OK);
        net_skip(*state, 100000); /* it has arrived over there */
        mr_rpc_cancel(second);
        mr_rpc_cancel(second);
        expect_error(MR_CANCELLED, mr_rpc_wait(second, NULL), "second on worker");
        net_skip(*state, 100000);
        gate_open(&gate);
        assert_int_equal(mr_rpc_wait(first, NULL), MR_OK);
        mr_rpc_cancel(first); /* it has ended: nothing */
        assert_int_equal(mr_rpc_async(worker(state, 0), to, "mirror", &value, 1, NULL, &third), MR_OK);
        assert_int_equal(mr_rpc_wait(third, &result), MR_OK);
        mr_rpc_result_free(result);
        assert_int_equal(second_gate.begun, 0);
        mr_rpc_future_destroy(first);
        mr_rpc_future_destroy(second);
        mr_rpc_future_destroy(third);
    }
}

TEST(a_running_call_may_be_cancelled, setup, net_teardown)
{
    for (uint32_t to = 0; to < 2; to++) {
        struct mr_rpc_future *future;
        static struct gate gate;
        gate_init(&gate);
        net_function(worker(state, to), "gate", "", "", gate_pass_call, &gate, 0);
        assert_int_equal(mr_rpc_async(worker(state, 0), to, "gate", NULL, 0, NULL, &future), MR_OK);
        gate_wait_begun(&gate, 1);
        mr_rpc_cancel(future);
        assert_int_equal(mr_rpc_wait(future, NULL), MR_CANCELLED);
        mr_rpc_future_destroy(future);
        gate_open(&gate);
    }
}

/* A time-out that is not reached by itself, however slow the machine is: tests skip it. */
#define LONG_MS 30000u

TEST(calls_end_at_their_time_out, setup, net_teardown)
{
    for (uint32_t to = 0; to < 2; to++) {
        struct mr_rpc_call_options options = {.timeout_ms = LONG_MS};
        struct mr_rpc_future *future, *patient;
        static struct gate gate;
        gate_init(&gate);
        net_function(worker(state, to), "gate", "", "", gate_pass_call, &gate, 0);
        net_function(worker(state, to), "queued", "", "", gate_pass_call, &gate, 0);
        assert_int_equal(mr_rpc_async(worker(state, 0), to, "gate", NULL, 0, &options, &future), MR_OK);
        options.timeout_ms = UINT32_MAX;
        assert_int_equal(mr_rpc_async(worker(state, 0), to, "queued", NULL, 0, &options, &patient), MR_OK);
        gate_wait_begun(&gate, 1);
        net_skip(*state, (LONG_MS + 1000) * 1000u);
        expect_error(MR_DEADLINE_EXCEEDED, mr_rpc_wait(future, NULL), "gate on worker", "time-out");
        mr_rpc_future_destroy(future);
        net_skip(*state, 5000000);
        assert_false(mr_rpc_done(patient));
        gate_open(&gate);
        assert_int_equal(mr_rpc_wait(patient, NULL), MR_OK);
        mr_rpc_future_destroy(patient);
        assert_int_equal(gate.ended, 2);
    }
}

/* One that had not begun by its caller's deadline is not run any more. */
TEST(a_call_whose_time_is_up_does_not_begin, setup, net_teardown)
{
    for (uint32_t to = 0; to < 2; to++) {
        struct mr_rpc_call_options options = {.timeout_ms = 500};
        struct mr_rpc_future *first, *late;
        static struct gate gate, late_gate;
        gate_init(&gate);
        gate_init(&late_gate);
        late_gate.open = true;
        net_function(worker(state, to), "gate", "", "", gate_pass_call, &gate, 0);
        net_function(worker(state, to), "late", "", "", gate_pass_call, &late_gate, 0);
        assert_int_equal(mr_rpc_async(worker(state, 0), to, "gate", NULL, 0, NULL, &first), MR_OK);
        gate_wait_begun(&gate, 1);
        assert_int_equal(mr_rpc_async(worker(state, 0), to, "late", NULL, 0, &options, &late), MR_OK);
        net_skip(*state, 1000000);
        assert_int_equal(mr_rpc_wait(late, NULL), MR_DEADLINE_EXCEEDED);
        gate_open(&gate);
        assert_int_equal(mr_rpc_wait(first, NULL), MR_OK);
        assert_int_equal(mr_rpc_sync(worker(state, 0), to, "gate", NULL, 0, NULL, NULL), MR_OK);
        assert_int_equal(late_gate.begun, 0);
        mr_rpc_future_destroy(first);
        mr_rpc_future_destroy(late);
    }
}

/* ---- answered later ---- */

/* Calls whose functions have returned, or not, and that wait for the test to finish them. */
struct postponed {
    _Atomic uint32_t count;
    struct mr_rpc_call *calls[40];
};

static enum mr_status postpones(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t count)
{
    struct postponed *p = mr_rpc_user(call);
    enum mr_status once = mr_rpc_postpone(call), twice = mr_rpc_postpone(call);
    assert(once == MR_OK && twice == MR_INVALID_ARGUMENT);
    p->calls[arguments[0].i64] = call;
    p->count++;
    return MR_OK;
}

static enum mr_status finishes_at_once(struct mr_rpc_call *call, const struct mr_value *arguments,
                                       uint32_t count)
{
    enum mr_status status = mr_rpc_postpone(call);
    if (status == MR_OK)
        mr_rpc_finish(call, mr_rpc_return(call, arguments[0]));
    return status;
}

static void wait_postponed(struct postponed *p, uint32_t count)
{
    WAIT_UNTIL(p->count >= count);
}

/* There is one executor thread. */
TEST(postponed_calls_hold_no_thread, setup, net_teardown)
{
    for (uint32_t to = 0; to < 2; to++) {
        struct postponed p = {0};
        struct mr_rpc_future *futures[40];
        struct mr_rpc_result *result;
        net_function(worker(state, to), "later", "i64", "i64", postpones, &p, 0);
        net_function(worker(state, to), "nothing", "", "", net_nothing, NULL, 0);
        for (uint32_t i = 0; i < 40; i++) {
            struct mr_value number = mr_value_i64(i);
            assert_int_equal(mr_rpc_async(worker(state, 0), to, "later", &number, 1, NULL, &futures[i]),
                             MR_OK);
        }
        wait_postponed(&p, 40);
        assert_int_equal(mr_rpc_sync(worker(state, 0), to, "nothing", NULL, 0, NULL, NULL), MR_OK);
        for (uint32_t i = 0; i < 40; i++) {
            assert_false(mr_rpc_done(futures[39 - i]));
            enum mr_status status = i % 2 == 0 ? mr_rpc_return(p.calls[39 - i], mr_value_i64(39 - i))
                                               : mr_rpc_fail(p.calls[39 - i], "number %u is odd", i);
            mr_rpc_finish(p.calls[39 - i], status);
            assert_int_equal(mr_rpc_wait(futures[39 - i], &result), i % 2 == 0 ? MR_OK : MR_FUNCTION_FAILED);
            if (i % 2 == 0) {
                assert_int_equal(mr_rpc_result_value(result, 0)->i64, 39 - i);
                mr_rpc_result_free(result);
            } else {
                assert_non_null(strstr(mr_rpc_last_error(), "is odd"));
            }
            mr_rpc_future_destroy(futures[39 - i]);
        }
    }
}

TEST(a_postponed_call_may_be_finished_before_its_function_returns, setup, net_teardown)
{
    struct mr_value number = mr_value_i64(17);
    for (uint32_t to = 0; to < 2; to++) {
        struct mr_rpc_result *result;
        net_function(worker(state, to), "at_once", "i64", "i64", finishes_at_once, NULL, 0);
        assert_int_equal(mr_rpc_sync(worker(state, 0), to, "at_once", &number, 1, NULL, &result), MR_OK);
        assert_int_equal(mr_rpc_result_value(result, 0)->i64, 17);
        mr_rpc_result_free(result);
    }
}

TEST(what_is_finished_is_checked_against_the_signature, setup, net_teardown)
{
    struct postponed p = {0};
    struct mr_value number = mr_value_i64(0);
    struct mr_rpc_future *future;
    net_function(worker(state, 1), "later", "i64", "f64", postpones, &p, 0);
    assert_int_equal(mr_rpc_async(worker(state, 0), 1, "later", &number, 1, NULL, &future), MR_OK);
    wait_postponed(&p, 1);
    mr_rpc_finish(p.calls[0], mr_rpc_return(p.calls[0], number));
    assert_int_equal(mr_rpc_wait(future, NULL), MR_WRONG_SIGNATURE);
    mr_rpc_future_destroy(future);
}

TEST(an_inline_function_cannot_postpone, setup, net_teardown)
{
    struct mr_value number = mr_value_i64(1);
    for (uint32_t to = 0; to < 2; to++) {
        net_function(worker(state, to), "inline", "i64", "i64", finishes_at_once, NULL, MR_RPC_INLINE);
        assert_int_equal(mr_rpc_sync(worker(state, 0), to, "inline", &number, 1, NULL, NULL),
                         MR_INVALID_ARGUMENT);
    }
}

/* Its worker is destroyed meanwhile; the teardown checks that nothing is left. */
TEST(a_postponed_call_may_outlive_its_worker, setup, net_teardown)
{
    struct postponed p = {0};
    struct mr_rpc_future *futures[2];
    for (uint32_t from = 0; from < 2; from++) {
        struct mr_value number = mr_value_i64(from);
        if (from == 0)
            net_function(worker(state, 1), "later", "i64", "i64", postpones, &p, 0);
        assert_int_equal(mr_rpc_async(worker(state, from), 1, "later", &number, 1, NULL, &futures[from]),
                         MR_OK);
    }
    wait_postponed(&p, 2);
    net_end(*state, 1);
    assert_false(net_is_gone(*state, 1));
    assert_int_not_equal(mr_rpc_wait(futures[0], NULL), MR_OK);
    for (uint32_t i = 0; i < 2; i++) {
        mr_rpc_finish(p.calls[i], mr_rpc_return(p.calls[i], mr_value_i64(i)));
        mr_rpc_future_destroy(futures[i]);
    }
}
