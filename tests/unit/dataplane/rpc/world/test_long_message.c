/* Messages that go in parts: whole and once, whatever is lost; given up in the middle; and what they take of
 * memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/rpc/base/rpc.h"
#include "dataplane/rpc/rref/rref_count_internal.h"
#include "dataplane/rpc/rref/rref_internal.h"
#include "rref_functions.h"
#include "tests/test.h"
#include "tests/wait.h"

#define KIB     1024u
#define MIB     (1024u * KIB)
#define FLOATS  (3 * MIB / 4)
#define IN_PART 60u /* packets: some parts of such a message have come by then, and not all, */
/* however slow the machine is; then the tests skip this time-out */
#define IN_PART_MS 10000u

static float *floats_new(uint32_t count, uint32_t seed)
{
    float *floats = malloc(count * sizeof(*floats));
    assert_non_null(floats);
    for (uint32_t i = 0; i < count; i++)
        floats[i] = (float)((i * 2654435761u + seed) % 65536u);
    return floats;
}

static int setup_long(void **state)
{
    int result = setup(state);
    for (uint32_t i = 0; i < 3; i++) {
        struct mr_agent_config *config = &worker(state, i)->config;
        config->long_from_bytes = 64 * KIB;
        config->long_bytes_max = 16 * MIB;
        config->long_memory_bytes = 24 * MIB;
    }
    return result;
}

static uint64_t long_bytes(void **state, uint32_t rank)
{
    return atomic_load(&worker(state, rank)->longs.bytes);
}

static uint32_t unfinished(void **state, uint32_t rank)
{
    struct net *net = *state;
    pthread_mutex_lock(&net->lock);
    uint32_t left = mr_longs_unfinished(worker(state, rank));
    pthread_mutex_unlock(&net->lock);
    return left;
}

/* Nothing of long messages is left on that worker. */
static void await_none(void **state, uint32_t rank)
{
    WAIT_UNTIL(long_bytes(state, rank) == 0 && unfinished(state, rank) == 0);
}

static bool is_silent(struct net *net, uint32_t rank)
{
    pthread_mutex_lock(&net->lock);
    const bool silent = net->workers[rank].silent;
    pthread_mutex_unlock(&net->lock);
    return silent;
}

static bool message_waits(struct net *net, uint32_t rank)
{
    pthread_mutex_lock(&net->lock);
    const bool waits = !mr_list_empty(&net->workers[rank].rpc->longs.in);
    pthread_mutex_unlock(&net->lock);
    return waits;
}

static struct mr_value tensor(const float *floats, uint32_t count)
{
    return mr_value_tensor(mr_tensor_1d(MR_F32, count, floats));
}

static struct mr_rpc_future *long_message_begin(void **state, uint32_t to, const char *function,
                                                const struct mr_value *values, uint32_t count,
                                                uint32_t timeout_ms)
{
    struct mr_rpc_call_options options = {.timeout_ms = timeout_ms};
    struct mr_rpc_future *future;
    made(mr_rpc_async(worker(state, 0), to, function, values, count, &options, &future));
    return future;
}

static _Atomic uint32_t runs;

static enum mr_status count_runs(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t count)
{
    atomic_fetch_add(&runs, 1);
    return count == 0 ? MR_OK : mr_rpc_return(call, arguments[0]);
}

static enum mr_status runs_now(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t count)
{
    return mr_rpc_return(call, mr_value_i64(atomic_load(&runs)));
}

/* A tensor of so many bytes, all 7. */
static enum mr_status make_bytes(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t count)
{
    uint32_t bytes = (uint32_t)arguments[0].i64;
    void *data;
    enum mr_status status = mr_rpc_return_tensor(call, MR_U8, 1, &bytes, &data);
    if (status == MR_OK)
        memset(data, 7, bytes);
    else
        (void)mr_rpc_fail(call, "%s", mr_rpc_last_error());
    return status;
}

static void add_functions(void **state)
{
    atomic_store(&runs, 0);
    for (uint32_t i = 0; i < 3; i++) {
        net_function(worker(state, i), "count_runs", "...", "...", count_runs, NULL, 0);
        net_function(worker(state, i), "runs_now", "", "i64", runs_now, NULL, MR_RPC_INLINE);
        net_function(worker(state, i), "make_bytes", "i64", "u8[?]", make_bytes, NULL, 0);
    }
}

/* ---- whole, and once ---- */

static void mirror_all(void **state, const char *function, uint32_t floats_count)
{
    float *floats = floats_new(floats_count, 5);
    char *text = malloc(200 * KIB);
    memset(text, 'x', 200 * KIB - 1);
    text[200 * KIB - 1] = 0;
    struct mr_value values[] = {mr_value_i64(-3), tensor(floats, floats_count), mr_value_string(text),
                                tensor(floats, 17), tensor(floats, 0)};
    struct mr_rpc_result *result;
    made(mr_rpc_sync(worker(state, 0), 1, function, values, 5, NULL, &result));
    assert_int_equal(mr_rpc_result_count(result), 5);
    assert_int_equal(mr_rpc_result_value(result, 0)->i64, -3);
    const struct mr_tensor *back = &mr_rpc_result_value(result, 1)->tensor;
    assert_int_equal(back->bytes, floats_count * sizeof(*floats));
    assert_int_equal((uintptr_t)back->data % 64, 0);
    assert_memory_equal(back->data, floats, back->bytes);
    assert_string_equal(mr_rpc_result_value(result, 2)->string.text, text);
    assert_memory_equal(mr_rpc_result_value(result, 3)->tensor.data, floats, 17 * sizeof(*floats));
    assert_int_equal(mr_rpc_result_value(result, 4)->tensor.bytes, 0);
    assert_true(long_bytes(state, 0) >= floats_count * sizeof(*floats)); /* the result looks into it */
    mr_rpc_result_free(result);
    await_none(state, 0);
    await_none(state, 1);
    free(text);
    free(floats);
}

TEST(long_messages_go_there_and_back, setup_long, net_teardown)
{
    mirror_all(state, "mirror", FLOATS);
    mirror_all(state, "mirror_inline", FLOATS);
    mirror_all(state, "mirror", 100001);
    assert_int_equal(mr_agent_counters(worker(state, 0))->long_messages, 3);
    assert_int_equal(mr_agent_counters(worker(state, 1))->long_messages, 3);
}

TEST(losses_and_repeats_change_nothing, setup_long, net_teardown)
{
    float *floats = floats_new(200000, 9);
    struct mr_value value = tensor(floats, 200000);
    add_functions(state);
    net_loss(*state, 20, 20, 11);
    for (uint32_t i = 1; i <= 4; i++) {
        struct mr_rpc_result *result;
        made(mr_rpc_sync(worker(state, 0), 1, "count_runs", &value, 1, NULL, &result));
        assert_memory_equal(mr_rpc_result_value(result, 0)->tensor.data, floats, value.tensor.bytes);
        assert_int_equal(atomic_load(&runs), i);
        mr_rpc_result_free(result);
    }
    net_loss(*state, 0, 0, 0);
    await_none(state, 0);
    await_none(state, 1);
    free(floats);
}

TEST(arguments_may_change_once_the_call_has_begun, setup_long, net_teardown)
{
    float *floats = floats_new(FLOATS, 1);
    struct mr_value value = tensor(floats, FLOATS);
    struct mr_rpc_future *future = long_message_begin(state, 1, "mirror", &value, 1, 0);
    struct mr_rpc_result *result;
    float first = floats[0], last = floats[FLOATS - 1];
    memset(floats, 0, FLOATS * sizeof(*floats));
    free(floats);
    made(mr_rpc_wait(future, &result));
    const float *back = mr_rpc_result_value(result, 0)->tensor.data;
    assert_true(back[0] == first && back[FLOATS - 1] == last);
    mr_rpc_result_free(result);
    mr_rpc_future_destroy(future);
}

/* Begun after it, in the same turn, and there before it. */
TEST(small_calls_go_past_long_ones, setup_long, net_teardown)
{
    struct net *net = *state;
    float *floats = floats_new(FLOATS, 2);
    struct mr_value value = tensor(floats, FLOATS);
    struct mr_rpc_result *result;
    add_functions(state);
    pthread_mutex_lock(&net->lock);
    struct mr_rpc_future *slow = long_message_begin(state, 1, "count_runs", &value, 1, 0);
    struct mr_rpc_future *fast = long_message_begin(state, 1, "runs_now", NULL, 0, 0);
    pthread_mutex_unlock(&net->lock);
    made(mr_rpc_wait(fast, &result));
    assert_int_equal(mr_rpc_result_value(result, 0)->i64, 0);
    mr_rpc_result_free(result);
    made(mr_rpc_wait(slow, NULL));
    mr_rpc_future_destroy(fast);
    mr_rpc_future_destroy(slow);
    free(floats);
}

/* More at a time than memory is for where they come: those wait for each other. */
TEST(many_at_a_time_wait_for_memory, setup_long, net_teardown)
{
    enum { CALLS = 6 };
    struct mr_rpc_future *futures[CALLS];
    float *floats = floats_new(FLOATS, 3);
    struct mr_value value = tensor(floats, FLOATS);
    worker(state, 1)->config.long_bytes_max = worker(state, 1)->config.long_memory_bytes = 4 * MIB;
    worker(state, 0)->config.long_memory_bytes = 2 * CALLS * 4 * MIB; /* all arguments, and all results */
    add_functions(state);
    for (uint32_t i = 0; i < CALLS; i++)
        futures[i] = long_message_begin(state, 1, "count_runs", &value, 1, 0);
    for (uint32_t i = 0; i < CALLS; i++) {
        made(mr_rpc_wait(futures[i], NULL));
        mr_rpc_future_destroy(futures[i]);
        assert_true(long_bytes(state, 1) <= 4 * MIB);
    }
    assert_int_equal(atomic_load(&runs), CALLS);
    await_none(state, 0);
    free(floats);
}

/* ---- limits ---- */

TEST(what_is_too_long_is_refused_at_once, setup_long, net_teardown)
{
    float *floats = floats_new(17 * MIB / 4, 4);
    struct mr_value value = tensor(floats, 17 * MIB / 4), bytes = mr_value_i64(17 * MIB);
    struct mr_rpc *rpc = worker(state, 0);
    add_functions(state);
    expect_error(MR_TOO_LARGE, mr_rpc_sync(rpc, 1, "count_runs", &value, 1, NULL, NULL), "count_runs",
                 "18 MiB", "16 MiB", "message_bytes");
    expect_error(MR_TOO_LARGE, mr_rpc_sync(rpc, 1, "make_bytes", &bytes, 1, NULL, NULL), "17 MiB", "16 MiB",
                 "message_bytes");
    value.tensor = mr_tensor_1d(MR_F32, FLOATS, floats);
    worker(state, 2)->config.long_bytes_max = 2 * MIB;
    expect_error(MR_TOO_LARGE, mr_rpc_sync(rpc, 2, "count_runs", &value, 1, NULL, NULL), "worker \"w2\"",
                 "4 MiB", "2 MiB", "message_bytes");
    rpc->config.long_bytes_max = 2 * MIB;
    bytes = mr_value_i64(3 * MIB);
    expect_error(MR_TOO_LARGE, mr_rpc_sync(rpc, 1, "make_bytes", &bytes, 1, NULL, NULL), "4 MiB", "2 MiB",
                 "\"w0\"");
    assert_int_equal(atomic_load(&runs), 0);
    for (uint32_t i = 0; i < 3; i++)
        await_none(state, i);
    free(floats);
}

/* What is taken is in results that the program holds, so that waiting might not help. */
TEST(without_memory_it_is_said_at_once, setup_long, net_teardown)
{
    struct mr_value bytes = mr_value_i64(5 * MIB);
    struct mr_rpc *rpc = worker(state, 0);
    struct mr_rpc_result *held, *result;
    float *floats = floats_new(FLOATS, 4);
    struct mr_value value = tensor(floats, FLOATS);
    rpc->config.long_bytes_max = rpc->config.long_memory_bytes = 6 * MIB;
    add_functions(state);
    made(mr_rpc_sync(rpc, 1, "make_bytes", &bytes, 1, NULL, &held));
    expect_error(MR_NO_MEMORY, mr_rpc_sync(rpc, 1, "make_bytes", &bytes, 1, NULL, &result), "5 MiB", "6 MiB",
                 "long_memory_bytes");
    expect_error(MR_NO_MEMORY, mr_rpc_sync(rpc, 1, "count_runs", &value, 1, NULL, &result), "3 MiB", "6 MiB",
                 "long_memory_bytes");
    assert_int_equal(((const uint8_t *)mr_rpc_result_value(held, 0)->tensor.data)[5 * MIB - 1], 7);
    mr_rpc_result_free(held);
    await_none(state, 0);
    made(mr_rpc_sync(rpc, 1, "make_bytes", &bytes, 1, NULL, &result));
    mr_rpc_result_free(result);
    await_none(state, 0);
    await_none(state, 1);
    free(floats);
}

/* ---- given up in the middle ---- */

/* The worker falls silent, for ever, when parts of the request, or (`answer`) of the answer, have come. */
static void die_in_the_middle(void **state, uint32_t who, bool answer)
{
    struct net *net = *state;
    float *floats = floats_new(FLOATS, 6);
    struct mr_value values[] = {tensor(floats, FLOATS)}, bytes = mr_value_i64(3 * MIB);
    add_functions(state);
    net_silence_after(net, who, IN_PART);
    struct mr_rpc_future *future = answer ? long_message_begin(state, 1, "make_bytes", &bytes, 1, 0)
                                          : long_message_begin(state, 1, "count_runs", values, 1, 0);
    WAIT_UNTIL(is_silent(net, who));
    uint32_t other = 1 - who;
    assert_int_not_equal(unfinished(state, other), 0);
    net_skip(net, 30000000);
    await_none(state, other);
    assert_int_equal(mr_rpc_wait(future, NULL), MR_WORKER_DIED);
    assert_int_equal(atomic_load(&runs), 0);
    mr_rpc_future_destroy(future);
    free(floats);
}

TEST(the_caller_dies_in_the_middle_of_a_request, setup_long, net_teardown)
{
    die_in_the_middle(state, 0, false);
}

TEST(the_callee_dies_in_the_middle_of_a_request, setup_long, net_teardown)
{
    die_in_the_middle(state, 1, false);
}

TEST(the_caller_dies_in_the_middle_of_an_answer, setup_long, net_teardown)
{
    die_in_the_middle(state, 0, true);
}

TEST(the_callee_dies_in_the_middle_of_an_answer, setup_long, net_teardown)
{
    die_in_the_middle(state, 1, true);
}

/* Silent for less than it takes to be dead: the call has been given up meanwhile, and its references are
 * where they were. */
static void give_up_in_the_middle(void **state, const char *function, bool cancels)
{
    struct net *net = *state;
    float *floats = floats_new(FLOATS, 7);
    struct counted object = {.value = 1};
    struct mr_rref *rref, *own;
    struct mr_value address = mr_value_i64((intptr_t)&object);
    made(mr_remote(worker(state, 0), 2, "make_object", &address, 1, NULL, &rref));
    made(mr_rref_confirm(rref, 0));
    made(mr_rref_create(worker(state, 0), mr_value_i64(7), NULL, &own));
    struct mr_value values[] = {tensor(floats, FLOATS), mr_value_rref(rref), mr_value_rref(own)};
    add_functions(state);
    net_die_late(*state);
    net_silence_after(net, 1, IN_PART);
    struct mr_rpc_future *future =
        long_message_begin(state, 1, function, values, 3, cancels ? 60000 : IN_PART_MS);
    WAIT_UNTIL(is_silent(net, 1));
    if (cancels)
        mr_rpc_cancel(future);
    net_skip(net, (IN_PART_MS + 1000) * 1000u);
    assert_int_equal(mr_rpc_wait(future, NULL), cancels ? MR_CANCELLED : MR_DEADLINE_EXCEEDED);
    net_silence(net, 1, false);
    await_none(state, 0);
    await_none(state, 1);
    assert_int_equal(atomic_load(&runs), 0);
    mr_rpc_future_destroy(future);
    mr_rref_release(own);
    mr_rref_release(rref);
    await_destroyed(&object, 1);
    await_nothing_held(state);
    free(floats);
}

TEST(a_timeout_in_the_middle_gives_all_back, setup_long, net_teardown)
{
    give_up_in_the_middle(state, "count_runs", false);
}

TEST(a_cancelled_request_gives_all_back, setup_long, net_teardown)
{
    give_up_in_the_middle(state, "count_runs", true);
}

/* A function's results, with references, of which the caller wants none any more. */
static enum mr_status make_both(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t count)
{
    struct counted *object = mr_rpc_user(call);
    struct mr_rref *rref;
    struct mr_value bytes = mr_value_i64(3 * MIB);
    struct mr_value value = {.kind = MR_VALUE_OBJECT, .object = object};
    enum mr_status status = make_bytes(call, &bytes, 1);
    if (status == MR_OK)
        status = mr_rref_create(mr_rpc_of(call), value, destroy_counted, &rref);
    if (status != MR_OK)
        return status;
    status = mr_rpc_return(call, mr_value_rref(rref));
    mr_rref_release(rref);
    return status;
}

TEST(references_in_an_answer_come_or_go, setup_long, net_teardown)
{
    struct net *net = *state;
    struct counted object = {.value = 1};
    struct mr_rpc_result *result;
    net_function(worker(state, 1), "make_both", "", "u8[?], ref", make_both, &object, 0);
    made(mr_rpc_sync(worker(state, 0), 1, "make_both", NULL, 0, NULL, &result));
    assert_int_equal(atomic_load(&object.destroyed), 0);
    struct mr_value value = *mr_rpc_result_value(result, 1);
    made(mr_rpc_sync(worker(state, 0), 1, "use", &value, 1, NULL, NULL));
    mr_rpc_result_free(result);
    await_destroyed(&object, 1);
    net_die_late(*state);
    net_silence_after(net, 1, IN_PART);
    struct mr_rpc_future *future = long_message_begin(state, 1, "make_both", NULL, 0, IN_PART_MS);
    WAIT_UNTIL(is_silent(net, 1));
    net_skip(net, (IN_PART_MS + 1000) * 1000u);
    assert_int_equal(mr_rpc_wait(future, NULL), MR_DEADLINE_EXCEEDED);
    net_silence(net, 1, false);
    await_destroyed(&object, 2);
    await_none(state, 0);
    await_none(state, 1);
    assert_int_equal(object.used_late, 0);
    assert_int_equal(mr_agent_counters(worker(state, 0))->long_messages,
                     1); /* not the one that nobody wanted */
    mr_rpc_future_destroy(future);
    await_nothing_held(state);
}

/* Its caller falls silent when some of the answer has come. */
static enum mr_status mirror_to_the_silent(struct mr_rpc_call *call, const struct mr_value *arguments,
                                           uint32_t count)
{
    net_silence_after(mr_rpc_user(call), 0, IN_PART);
    return mr_rpc_return(call, arguments[0]);
}

TEST(arguments_are_freed_before_the_answer_is_fetched, setup_long, net_teardown)
{
    struct net *net = *state;
    float *floats = floats_new(FLOATS, 7);
    struct mr_value value = tensor(floats, FLOATS);
    struct mr_rpc_result *result;
    net_function(worker(state, 1), "mirror_to_the_silent", "...", "...", mirror_to_the_silent, net, 0);
    struct mr_rpc_future *future = long_message_begin(state, 1, "mirror_to_the_silent", &value, 1, 0);
    WAIT_UNTIL(is_silent(net, 0));
    assert_int_not_equal(unfinished(state, 1), 0);
    assert_int_equal(long_bytes(state, 1), 0);
    net_silence(net, 0, false);
    made(mr_rpc_wait(future, &result));
    mr_rpc_result_free(result);
    mr_rpc_future_destroy(future);
    free(floats);
}

/* It waits for memory that another call has, and its caller dies. */
TEST(what_waits_for_memory_goes_with_its_caller, setup_long, net_teardown)
{
    struct net *net = *state;
    float *floats = floats_new(FLOATS, 7);
    struct mr_value value = tensor(floats, FLOATS);
    struct mr_rpc_future *futures[2];
    static struct gate gate;
    gate_init(&gate);
    worker(state, 1)->config.long_bytes_max = worker(state, 1)->config.long_memory_bytes = 4 * MIB;
    net_function(worker(state, 1), "gate", "...", "i64", pass_gate, &gate, 0);
    for (uint32_t i = 0; i < 2; i++)
        futures[i] = long_message_begin(state, 1, "gate", &value, 1, 0);
    gate_wait_begun(&gate, 1);
    WAIT_UNTIL(message_waits(net, 1));
    net_silence(net, 0, true);
    net_skip(net, 30000000);
    pthread_mutex_lock(&net->lock);
    bool left = !mr_list_empty(&worker(state, 1)->longs.in);
    pthread_mutex_unlock(&net->lock);
    gate_open(&gate);
    assert_false(left);
    await_none(state, 1);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(mr_rpc_wait(futures[i], NULL), MR_WORKER_DIED);
        mr_rpc_future_destroy(futures[i]);
    }
    free(floats);
}

/* The receiver has no room: it never looked at the references, which stay the caller's. */
TEST(a_refused_request_gives_its_references_back, setup_long, net_teardown)
{
    float *floats = floats_new(FLOATS, 7);
    struct counted object = {.value = 1};
    struct mr_rref *rref;
    struct mr_value address = mr_value_i64((intptr_t)&object);
    made(mr_remote(worker(state, 0), 2, "make_object", &address, 1, NULL, &rref));
    struct mr_value values[] = {tensor(floats, FLOATS), mr_value_rref(rref)};
    add_functions(state);
    worker(state, 1)->config.long_bytes_max = 2 * MIB;
    assert_int_equal(mr_rpc_sync(worker(state, 0), 1, "count_runs", values, 2, NULL, NULL), MR_TOO_LARGE);
    mr_rref_release(rref);
    await_destroyed(&object, 1);
    await_nothing_held(state);
    assert_int_equal(atomic_load(&runs), 0);
    free(floats);
}

/* ---- values that stay ---- */

TEST(values_are_made_and_fetched_in_parts, setup_long, net_teardown)
{
    float *floats = floats_new(FLOATS, 8);
    struct mr_value value = tensor(floats, FLOATS);
    struct mr_rref *rref;
    struct mr_rpc_result *result;
    made(mr_remote(worker(state, 0), 1, "mirror", &value, 1, NULL, &rref));
    for (uint32_t i = 0; i < 2; i++) {
        made(mr_rref_to_here(rref, 0, &result));
        assert_memory_equal(mr_rpc_result_value(result, 0)->tensor.data, floats, value.tensor.bytes);
        mr_rpc_result_free(result);
    }
    mr_rref_release(rref);
    await_nothing_held(state);
    await_none(state, 0);
    await_none(state, 1);
    free(floats);
}

struct fetching {
    struct mr_rref *rref;
    enum mr_status status;
};

static void *fetch(void *arg)
{
    struct fetching *fetching = arg;
    struct mr_rpc_result *result = NULL;
    fetching->status = mr_rref_to_here(fetching->rref, IN_PART_MS, &result);
    mr_rpc_result_free(result);
    return NULL;
}

/* The owner's value is let go of by all while parts of it are asked for. */
TEST(a_value_that_is_released_lasts_until_nobody_reads_it, setup_long, net_teardown)
{
    struct net *net = *state;
    float *floats = floats_new(FLOATS, 8);
    struct mr_value value = tensor(floats, FLOATS);
    struct fetching fetching;
    pthread_t thread;
    made(mr_remote(worker(state, 0), 1, "mirror", &value, 1, NULL, &fetching.rref));
    made(mr_rref_confirm(fetching.rref, 0));
    net_die_late(*state);
    net_silence_after(net, 0, IN_PART);
    assert_int_equal(pthread_create(&thread, NULL, fetch, &fetching), 0);
    WAIT_UNTIL(is_silent(net, 0));
    net_skip(net, (IN_PART_MS + 1000) * 1000u);
    pthread_join(thread, NULL);
    assert_int_equal(fetching.status, MR_DEADLINE_EXCEEDED);
    mr_rref_release(fetching.rref);
    net_silence(net, 0, false);
    await_nothing_held(state);
    await_none(state, 0);
    await_none(state, 1);
    free(floats);
}

struct reading {
    struct mr_rref *rref;
    const float *expected;
    bool is_right;
};

static void *read_all(void *arg)
{
    struct reading *reading = arg;
    struct mr_rpc_result *result;
    if (mr_rref_to_here(reading->rref, 0, &result) != MR_OK)
        return NULL;
    const struct mr_tensor *t = &mr_rpc_result_value(result, 0)->tensor;
    reading->is_right =
        t->bytes == FLOATS * sizeof(float) && memcmp(t->data, reading->expected, t->bytes) == 0;
    mr_rpc_result_free(result);
    return NULL;
}

/* A worker that says too early that it has released it harms nobody. */
TEST(a_value_that_is_given_away_is_read_to_its_end, setup_long, net_teardown)
{
    struct net *net = *state;
    float *floats = floats_new(FLOATS, 8);
    struct mr_value value = tensor(floats, FLOATS);
    struct reading reading = {.expected = floats};
    pthread_t thread;
    made(mr_remote(worker(state, 0), 1, "mirror", &value, 1, NULL, &reading.rref));
    made(mr_rref_confirm(reading.rref, 0));
    WAIT_UNTIL(long_bytes(state, 0) == 0); /* it has been made */
    net_silence_after(net, 0, IN_PART);
    assert_int_equal(pthread_create(&thread, NULL, read_all, &reading), 0);
    WAIT_UNTIL(is_silent(net, 0));
    pthread_mutex_lock(&net->lock);
    struct mr_reference_message deleted = {.kind = MR_REFERENCE_DELETED,
                                           .reference = reading.rref->id,
                                           .fork = reading.rref->handle->by_fork.id};
    assert_int_equal(mr_references_receive(worker(state, 1)->rrefs->refs, 0, &deleted), MR_OK);
    pthread_mutex_unlock(&net->lock);
    net_silence(net, 0, false);
    pthread_join(thread, NULL);
    assert_true(reading.is_right);
    mr_rref_release(reading.rref);
    await_nothing_held(state);
    await_none(state, 1);
    free(floats);
}

/* ---- hostile ---- */

struct raw {
    struct mr_agent_call call;
    _Atomic int status;
};

static bool raw_ended(struct mr_rpc *agent, struct mr_agent_call *call, enum mr_status status,
                      const struct mr_message *reply)
{
    atomic_store(&MR_CONTAINER(call, struct raw, call)->status, (int)status);
    return false;
}

static enum mr_status ask_raw(void **state, uint8_t op, uint64_t *words, uint32_t count)
{
    struct net *net = *state;
    struct raw raw = {.call = {.to = 1, .op = op, .deadline_us = UINT64_MAX, .ended = raw_ended},
                      .status = -1};
    struct mr_tensor tensor = mr_tensor_1d(MR_U64, count, words);
    pthread_mutex_lock(&net->lock);
    made(mr_agent_begin(worker(state, 0), &raw.call, &tensor, 1));
    mr_agent_send(worker(state, 0), &raw.call);
    pthread_mutex_unlock(&net->lock);
    WAIT_UNTIL(atomic_load(&raw.status) != -1);
    return (enum mr_status)atomic_load(&raw.status);
}

TEST(parts_and_notes_of_nothing_are_refused, setup_long, net_teardown)
{
    assert_int_equal(ask_raw(state, MR_OP_RPC_PART, (uint64_t[]){77, 0, 100}, 3), MR_CANCELLED);
    assert_int_equal(ask_raw(state, MR_OP_RPC_PART, (uint64_t[]){77, 1, 0}, 3), MR_OK);
    assert_int_equal(ask_raw(state, MR_OP_RPC_PART, (uint64_t[]){77, 1}, 2), MR_BAD_MESSAGE);
    assert_int_equal(ask_raw(state, MR_OP_RPC_CALL, (uint64_t[]){77, UINT64_MAX}, 2), MR_TOO_LARGE);
    assert_int_equal(ask_raw(state, MR_OP_RPC_CALL, (uint64_t[]){77, 1 * MIB}, 2), MR_CANCELLED);
    assert_int_equal(ask_raw(state, MR_OP_RPC_BACKWARD, (uint64_t[]){77, 0}, 2), MR_NO_MEMORY);
    assert_int_equal(ask_raw(state, MR_OP_RPC_FETCH, (uint64_t[]){77}, 1), MR_BAD_MESSAGE);
    await_none(state, 1);
}

/* A part of a message that is there, and reaches beyond it; and one of somebody else's message. */
TEST(parts_beyond_a_message_are_refused, setup_long, net_teardown)
{
    struct net *net = *state;
    float *floats = floats_new(FLOATS, 8);
    uint64_t words[MR_LONG_NOTE_WORDS];
    for (uint32_t to = 0; to < 3; to += 2) {
        struct mr_tensor one = mr_tensor_1d(MR_F32, FLOATS, floats);
        pthread_mutex_lock(&net->lock);
        struct mr_long_out *out = mr_long_out_new(worker(state, 1), to, MR_OP_RPC_CALL, &one, 1, words);
        pthread_mutex_unlock(&net->lock);
        assert_int_equal(ask_raw(state, MR_OP_RPC_PART, (uint64_t[]){words[0], words[1] - 8, 8}, 3),
                         to == 0 ? MR_OK : MR_CANCELLED);
        enum mr_status beyond = to == 0 ? MR_BAD_MESSAGE : MR_CANCELLED;
        assert_int_equal(ask_raw(state, MR_OP_RPC_PART, (uint64_t[]){words[0], words[1] - 8, 9}, 3), beyond);
        assert_int_equal(ask_raw(state, MR_OP_RPC_PART, (uint64_t[]){words[0], UINT64_MAX, 9}, 3), beyond);
        assert_int_equal(ask_raw(state, MR_OP_RPC_PART, (uint64_t[]){words[0], 0, MR_LONG_PART_BYTES + 1}, 3),
                         beyond);
        pthread_mutex_lock(&net->lock);
        mr_long_out_end(worker(state, 1), out, false);
        pthread_mutex_unlock(&net->lock);
    }
    free(floats);
}
