/* Contexts as such: who knows them, and when they are over. */
#include <stdio.h>
#include <string.h>
#include "dataplane/rpc/autograd/context.h"
#include "dataplane/rpc/base/rpc.h"
#include "graph.h"
#include "math_functions.h"
#include "net.h"
#include "tests/test.h"
#include "tests/wait.h"

enum { WORKERS = 4, ELEMENTS = 4, SECOND_US = 1000000, MANY = 50 };

static const float xs[ELEMENTS] = {1, 2, 3, 4};

static int setup(void **state)
{
    return math_world(state, WORKERS);
}

static struct mr_contexts *contexts_of(void **state, uint32_t rank)
{
    return worker(state, rank)->contexts;
}

static uint32_t context_count(void **state, uint32_t rank)
{
    return contexts_known(contexts_of(state, rank));
}

/* Ends are reported in the background. */
static void wait_for_none(void **state, uint32_t rank)
{
    while (context_count(state, rank) != 0)
        net_skip(*state, 20000);
}

/* square on w3, by w2, by w1. */
static void call_far(struct graph *g)
{
    struct mr_value arguments[] = {mr_value_i64(2), mr_value_string("on"), mr_value_i64(3),
                                   mr_value_string("square"), graph_leaf(g, xs, ELEMENTS)};
    (void)graph_call_n(g, 1, "on", arguments, 5, 0);
}

TEST(who_is_reached_knows_it_until_its_end, setup, math_world_end)
{
    struct graph *g = graph_new(worker(state, 0)), *second = graph_new(worker(state, 0));
    assert_int_equal(mr_autograd_id(g->context), 1);
    assert_int_equal(mr_autograd_id(second->context), 2);
    assert_int_equal(context_count(state, 0), 2);
    call_far(g);
    call_far(second);
    for (uint32_t i = 0; i < WORKERS; i++)
        assert_int_equal(context_count(state, i), 2);
    assert_int_equal(math_saved(), 2);
    graph_end(g);
    assert_int_equal(context_count(state, 0), 1);
    while (context_count(state, 3) != 1 || math_saved() != 1)
        net_skip(*state, 20000);
    graph_end(second);
    for (uint32_t i = 0; i < WORKERS; i++)
        wait_for_none(state, i);
    while (math_saved() != 0) /* freed by an executor's thread */
        net_skip(*state, 20000);
}

TEST(a_call_that_comes_after_the_end_is_refused, setup, math_world_end)
{
    struct mr_contexts *contexts = contexts_of(state, 1);
    struct mr_autograd *c;
    /* Of w2's contexts 1 to MANY the even ones have ended, the others have not. */
    for (uint64_t i = 2; i <= MANY; i += 2)
        mr_contexts_heard(contexts, (UINT64_C(2) << MR_RPC_ID_SHIFT) | i, 1);
    for (uint64_t i = 1; i <= MANY; i++) {
        enum mr_status expected = i % 2 == 0 ? MR_INVALID_ARGUMENT : MR_OK;
        assert_int_equal(mr_context_get(contexts, (UINT64_C(2) << MR_RPC_ID_SHIFT) | i, 0, &c), expected);
        if (expected == MR_OK)
            mr_context_put(c, false);
        else
            assert_non_null(strstr(mr_rpc_last_error(), "of worker \"w2\" (rank 2) has ended"));
    }
    assert_int_equal(contexts_known(contexts), MANY / 2);
    assert_int_equal(contexts->creators[2].over.count, MANY / 2);
    /* Later a message says that all up to there have: an end that was lost is made up for, and nothing is
     * kept of them. */
    mr_contexts_heard(contexts, (UINT64_C(2) << MR_RPC_ID_SHIFT) | 1, MANY + 1);
    assert_int_equal(contexts_known(contexts), 0);
    assert_int_equal(contexts->creators[2].over.count, 0);
    for (uint64_t i = 1; i <= MANY; i++)
        assert_int_equal(mr_context_get(contexts, (UINT64_C(2) << MR_RPC_ID_SHIFT) | i, 0, &c),
                         MR_INVALID_ARGUMENT);
    assert_int_equal(mr_context_get(contexts, (UINT64_C(2) << MR_RPC_ID_SHIFT) | (MANY + 1), 0, &c), MR_OK);
    mr_context_put(c, false);
    /* Ids that nobody can have made. */
    static const uint64_t nobodys[] = {UINT64_C(77) << MR_RPC_ID_SHIFT | 1,
                                       (uint64_t)WORKERS << MR_RPC_ID_SHIFT | 1,
                                       UINT64_C(2) << MR_RPC_ID_SHIFT};
    for (uint32_t i = 0; i < sizeof(nobodys) / sizeof(*nobodys); i++)
        expect_error(MR_INVALID_ARGUMENT, mr_context_get(contexts, nobodys[i], 0, &c),
                     "there is no autograd context");
    assert_int_equal(mr_context_get(contexts, UINT64_C(1) << MR_RPC_ID_SHIFT | 5, 0, &c),
                     MR_INVALID_ARGUMENT);
    mr_contexts_heard(contexts, UINT64_C(77) << MR_RPC_ID_SHIFT | 1, 5);
    mr_contexts_heard(contexts, (uint64_t)WORKERS << MR_RPC_ID_SHIFT | 1, 5);
    mr_contexts_heard(contexts, UINT64_C(1) << MR_RPC_ID_SHIFT | 1, 5);
}

/* Little is kept of contexts that have ended, however many there were beside one that goes on. */
TEST(what_is_kept_of_ended_ones, setup, math_world_end)
{
    struct graph *first = graph_new(worker(state, 0));
    call_far(first);
    for (uint32_t i = 0; i < MANY; i++) {
        struct graph *g = graph_new(worker(state, 0));
        (void)graph_call1(g, 1, "square", graph_leaf(g, xs, ELEMENTS));
        graph_end(g);
    }
    while (context_count(state, 1) != 1)
        net_skip(*state, 20000);
    graph_end(first);
    wait_for_none(state, 1);
    assert_int_equal(contexts_of(state, 1)->creators[0].over_below, MANY + 2);
    assert_int_equal(contexts_of(state, 1)->creators[0].over.count, 0);
}

TEST(they_die_with_their_creator, setup, math_world_end)
{
    struct graph *g = graph_new(worker(state, 3));
    struct mr_value arguments[] = {mr_value_i64(2), mr_value_string("square"), graph_leaf(g, xs, ELEMENTS)};
    struct mr_autograd *c;
    uint64_t id = mr_autograd_id(g->context);
    (void)graph_call_n(g, 1, "on", arguments, 3, 0);
    assert_int_equal(context_count(state, 1), 1);
    assert_int_equal(context_count(state, 2), 1);
    net_silence(*state, 3, true);
    net_skip(*state, 25 * SECOND_US);
    wait_for_none(state, 1);
    wait_for_none(state, 2);
    assert_int_equal(mr_context_get(contexts_of(state, 2), id, 0, &c), MR_WORKER_DIED);
    assert_non_null(strstr(mr_rpc_last_error(), "ended when its worker died"));
    graph_end(g);
}

/* w1, which reached w2 and would tell it of the end, dies: the creator does, when it ends the context after
 * that or before. */
TEST(the_end_goes_around_the_dead, setup, math_world_end)
{
    struct net *net = *state;
    struct graph *before = graph_new(worker(state, 0)), *after = graph_new(worker(state, 0));
    struct mr_value arguments[] = {mr_value_i64(2), mr_value_string("square"),
                                   graph_leaf(before, xs, ELEMENTS)};
    (void)graph_call_n(before, 1, "on", arguments, 3, 0);
    (void)graph_call_n(after, 1, "on", arguments, 3, 0);
    assert_int_equal(context_count(state, 2), 2);
    net_silence(net, 1, true);
    graph_end(before);
    net_skip(net, 25 * SECOND_US);
    while (context_count(state, 2) != 1)
        net_skip(net, 20000);
    graph_end(after);
    wait_for_none(state, 2);
}

/* ---- a thread that is busy until the test lets it go ---- */

/* No time is skipped: threads have yet to run, and calls their time-outs. */
static void wait_for_load(void **state, uint32_t rank, uint32_t load)
{
    WAIT_UNTIL(mr_executor_load(worker(state, rank)->executor) == load);
}

/* w1's call comes to w2, and waits for its thread until everybody knows that w1 is dead: it brings no context
 * any more, as nobody would tell of its end. */
TEST(a_call_of_the_dead_brings_none, setup, math_world_end)
{
    struct net *net = *state;
    struct graph *g = graph_new(worker(state, 0));
    struct mr_value arguments[] = {mr_value_i64(2), mr_value_string("square"), graph_leaf(g, xs, ELEMENTS)};
    struct mr_rpc_call_options options = {.context = g->context};
    struct mr_rpc_future *busy, *call;
    struct gate gate;
    gate_init(&gate);
    net_function(worker(state, 2), "gate", "", "", gate_pass_call, &gate, 0);
    assert_int_equal(mr_rpc_async(worker(state, 0), 2, "gate", NULL, 0, NULL, &busy), MR_OK);
    wait_for_load(state, 2, 1);
    assert_int_equal(mr_rpc_async(worker(state, 0), 1, "on", arguments, 3, &options, &call), MR_OK);
    wait_for_load(state, 2, 2);
    net_silence(net, 1, true);
    net_skip(net, 25 * SECOND_US);
    assert_int_equal(mr_rpc_wait(call, NULL), MR_WORKER_DIED);
    gate_open(&gate);
    wait_for_load(state, 2, 0);
    assert_int_equal(context_count(state, 2), 0);
    mr_rpc_future_destroy(call);
    mr_rpc_future_destroy(busy);
    graph_end(g);
}

TEST(only_the_creator_ends_it, setup, math_world_end)
{
    struct graph *g = graph_new(worker(state, 0));
    struct mr_autograd *c;
    (void)graph_call1(g, 1, "square", graph_leaf(g, xs, ELEMENTS));
    assert_int_equal(mr_context_get(contexts_of(state, 1), mr_autograd_id(g->context), MR_RPC_NO_RANK, &c),
                     MR_OK);
    mr_autograd_end(c); /* a function that ends the context of its call */
    mr_context_put(c, false);
    assert_int_equal(context_count(state, 1), 1);
    mr_autograd_end(NULL);
    graph_end(g);
    wait_for_none(state, 1);
}

/* One that is ended after its worker; what others have of it goes with them. */
TEST(a_forgotten_one, setup, math_world_end)
{
    struct graph *g = graph_new(worker(state, 0));
    struct mr_autograd *forgotten = g->context;
    call_far(g);
    g->context = NULL;
    graph_end(g);
    net_end(*state, 0);
    assert_false(net_is_gone(*state, 0));
    mr_autograd_end(forgotten);
    assert_true(net_is_gone(*state, 0));
}

/* Of those that are never ended there is an end. */
TEST(too_many_open_ones_are_refused, setup, math_world_end)
{
    static struct mr_autograd *contexts[MR_CONTEXTS_BEGUN_MAX];
    struct mr_rpc *rpc = worker(state, 0);
    struct mr_contexts_use use;
    struct mr_autograd *more;
    for (uint32_t i = 0; i < MR_CONTEXTS_BEGUN_MAX; i++)
        made(mr_autograd_begin(rpc, &contexts[i]));
    expect_error(MR_NO_MEMORY, mr_autograd_begin(rpc, &more), "4096 contexts", "mr_autograd_end()");
    net_skip(*state, 3000000);
    mr_contexts_use(contexts_of(state, 0), &use);
    assert_int_equal(use.begun, MR_CONTEXTS_BEGUN_MAX);
    assert_int_equal(use.known, MR_CONTEXTS_BEGUN_MAX);
    assert_true(use.oldest_us >= 3000000);
    mr_autograd_end(contexts[7]);
    made(mr_autograd_begin(rpc, &contexts[7]));
    for (uint32_t i = 0; i < MR_CONTEXTS_BEGUN_MAX; i++)
        mr_autograd_end(contexts[i]);
    mr_contexts_use(contexts_of(state, 0), &use);
    assert_int_equal(use.begun + use.known + use.oldest_us, 0);
}

/* Of another's: it is known there, and none of its own. */
TEST(others_are_counted_apart, setup, math_world_end)
{
    struct graph *g = graph_new(worker(state, 0));
    struct mr_contexts_use use;
    call_far(g);
    mr_contexts_use(contexts_of(state, 1), &use);
    assert_int_equal(use.begun, 0);
    assert_int_equal(use.known, 1);
    assert_int_equal(use.oldest_us, 0);
    graph_end(g);
    wait_for_none(state, 1);
}
