/* Leaving a world, together or alone, and what workers say of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "net.h"
#include "dataplane/rpc/base/rpc.h"
#include "dataplane/rpc/world/world.h"
#include "tests/test.h"
#include "tests/wait.h"

#define SECOND_US 1000000u

struct leaver {
    struct mr_rpc *rpc;
    uint32_t timeout_ms;
    enum mr_status status;
    char error[512];
    pthread_t thread;
};

static void *leave(void *arg)
{
    struct leaver *leaver = arg;
    leaver->status = mr_rpc_shutdown(leaver->rpc, leaver->timeout_ms);
    snprintf(leaver->error, sizeof(leaver->error), "%s", leaver->status == MR_OK ? "" : mr_rpc_last_error());
    return NULL;
}

static bool is_leaving(struct net *net, const struct mr_rpc *rpc)
{
    pthread_mutex_lock(&net->lock);
    const bool is = rpc->leaving.step != MR_LEAVING_NOT;
    pthread_mutex_unlock(&net->lock);
    return is;
}

/* Returns once it has begun to leave: the time of its first try runs from now on. */
static void leave_begin(struct leaver *leaver, struct net *net, uint32_t worker, uint32_t timeout_ms)
{
    *leaver = (struct leaver){.rpc = net->workers[worker].rpc, .timeout_ms = timeout_ms};
    assert_int_equal(pthread_create(&leaver->thread, NULL, leave, leaver), 0);
    WAIT_UNTIL(is_leaving(net, leaver->rpc));
}

static void leave_end(struct leaver *leavers, uint32_t count, enum mr_status expected)
{
    for (uint32_t i = 0; i < count; i++) {
        pthread_join(leavers[i].thread, NULL);
        assert_int_equal(leavers[i].status, expected);
    }
}

/* ---- what a worker says by hand ---- */

enum { RENDEZVOUS = UINT16_MAX };

struct said {
    struct mr_work work;
    struct mr_agent_call call;
    struct mr_tensor tensor;
    uint32_t to, tensor_count;
    _Atomic uint32_t done;
    enum mr_status status;
    uint64_t words[2];
    char text[256];
};

static bool said_ended(struct mr_rpc *agent, struct mr_agent_call *call, enum mr_status status,
                       const struct mr_message *reply)
{
    struct said *said = MR_CONTAINER(call, struct said, call);
    said->status = status;
    if (reply != NULL && reply->preamble.tensor_count == 2 && status == MR_OK)
        memcpy(said->words, reply->tensors[0].data, sizeof(said->words));
    else if (reply != NULL && reply->preamble.tensor_count == 1)
        snprintf(said->text, sizeof(said->text), "%.*s", (int)reply->tensors[0].bytes,
                 (const char *)reply->tensors[0].data);
    (void)mr_agent_done(&said->done);
    return false;
}

static void say_inside(struct mr_rpc *agent, struct mr_work *work)
{
    struct said *said = MR_CONTAINER(work, struct said, work);
    struct mr_member *to = said->to == RENDEZVOUS ? &agent->rendezvous : &agent->members[said->to];
    if (mr_member_begin(agent, to, &said->call, &said->tensor, said->tensor_count) == MR_OK)
        mr_agent_send(agent, &said->call);
}

/* And the answer. */
static struct said say_to(struct mr_rpc *rpc, uint32_t to, uint8_t op, struct mr_tensor tensor,
                          uint32_t tensor_count)
{
    struct said said = {.work = {.run = say_inside},
                        .call = {.op = op, .control = true, .deadline_us = UINT64_MAX, .ended = said_ended},
                        .tensor = tensor,
                        .to = to,
                        .tensor_count = tensor_count};
    struct mr_agent_driver *driver = mr_agent_driver(rpc);
    mr_agent_submit(rpc, &said.work);
    assert_true(driver->wait(driver->self, &said.done, mr_agent_now(rpc) + 60 * SECOND_US));
    return said;
}

static struct said leave_say(struct mr_rpc *rpc, uint8_t op, const void *bytes, uint32_t count)
{
    return say_to(rpc, RENDEZVOUS, op, mr_tensor_1d(MR_U8, count, bytes), 1);
}

/* Says in an epoch until the next has begun, or all may go, which is returned. */
static bool say_quiet(struct mr_rpc *rpc, uint64_t *epoch, bool quiet, uint64_t activity)
{
    struct mr_leave_wire wire = {
        .phase = MR_LEAVE_CALLED, .epoch = *epoch, .quiet = quiet, .activity = activity};
    uint64_t until_us = mr_agent_now(rpc) + 60 * SECOND_US;
    struct said said;
    do {
        said = leave_say(rpc, MR_OP_RPC_LEAVE, &wire, sizeof(wire));
        assert_int_equal(said.status, MR_OK);
    } while (said.words[0] == *epoch && said.words[1] == 0 && mr_agent_now(rpc) < until_us);
    assert_true(said.words[1] != 0 || said.words[0] == *epoch + 1);
    *epoch = said.words[0];
    return said.words[1] != 0;
}

/* Rank 0 leaves, and is quiet; what rank 1 says, epoch after epoch. */
TEST(one_quiet_count_does_not_suffice, net_setup, net_teardown)
{
    struct {
        bool quiet;
        uint64_t activity;
        bool may_go;
    } says[][4] = {
        {{true, 5, false}, {true, 5, true}},                    /* twice the same */
        {{true, 5, false}, {true, 6, false}, {true, 6, true}},  /* something began in between */
        {{false, 5, false}, {true, 5, false}, {true, 5, true}}, /* something was in flight */
        {{true, 5, false}, {false, 5, false}, {true, 5, false}, {true, 5, true}},
    };
    for (size_t i = 0; i < sizeof(says) / sizeof(says[0]); i++) {
        struct net *net = malloc(sizeof(*net));
        struct leaver *leaver = malloc(sizeof(*leaver));
        uint64_t epoch = 1;
        bool may_go = false;
        net_world(net, 2);
        leave_begin(leaver, net, 0, 0);
        for (uint32_t k = 0; k < 4 && !may_go; k++) {
            may_go = say_quiet(net->workers[1].rpc, &epoch, says[i][k].quiet, says[i][k].activity);
            assert_int_equal(may_go, says[i][k].may_go);
        }
        net_skip(net, 3 * SECOND_US);
        pthread_join(leaver->thread, NULL);
        assert_int_equal(leaver->status, MR_OK);
        net_stop(net);
        free(leaver);
        free(net);
    }
    net_start(*state, 1);
}

/* To one that is not the rendezvous, or of another size: nobody counts it. */
TEST(what_is_no_leave_is_refused, net_setup, net_teardown)
{
    struct net *net = *state;
    struct leaver leaver;
    uint64_t epoch = 1;
    struct mr_leave_wire wire = {.phase = MR_LEAVE_CALLED, .epoch = epoch, .quiet = true, .activity = 5};
    net_world(net, 2);
    leave_begin(&leaver, net, 0, 0);
    struct mr_rpc *first = net->workers[0].rpc, *second = net->workers[1].rpc;
    struct mr_tensor whole = mr_tensor_1d(MR_U8, sizeof(wire), &wire),
                     cut = mr_tensor_1d(MR_U8, sizeof(wire) - 1, &wire);
    assert_int_equal(say_to(first, 1, MR_OP_RPC_LEAVE, whole, 1).status, MR_BAD_MESSAGE);
    assert_int_equal(say_to(first, 1, MR_OP_RPC_LEAVE, whole, 0).status, MR_BAD_MESSAGE);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(say_to(second, RENDEZVOUS, MR_OP_RPC_LEAVE, cut, 1).status, MR_BAD_MESSAGE);
        assert_int_equal(say_to(second, RENDEZVOUS, MR_OP_RPC_LEAVE, whole, 0).status, MR_BAD_MESSAGE);
    }
    assert_false(say_quiet(second, &epoch, true, 5));
    assert_int_equal(epoch, 2);
    assert_true(say_quiet(second, &epoch, true, 5));
    net_skip(net, 3 * SECOND_US);
    pthread_join(leaver.thread, NULL);
    assert_int_equal(leaver.status, MR_OK);
}

/* Between two counts, when another has not spoken yet. */
TEST(what_begins_within_an_epoch_counts, net_setup, net_teardown)
{
    struct net *net = *state;
    struct leaver leaver;
    uint64_t epoch = 1;
    net_world(net, 3);
    leave_begin(&leaver, net, 0, 0);
    for (uint32_t round = 0; round < 2;
         round++) { /* in the second, rank 1 speaks twice, and has begun something */
        struct mr_leave_wire wire = {.phase = MR_LEAVE_CALLED, .epoch = epoch, .quiet = true, .activity = 5};
        assert_int_equal(leave_say(net->workers[1].rpc, MR_OP_RPC_LEAVE, &wire, sizeof(wire)).words[0],
                         epoch);
        wire.activity += round;
        struct said said = leave_say(net->workers[1].rpc, MR_OP_RPC_LEAVE, &wire, sizeof(wire));
        assert_int_equal(said.words[0], epoch);
        assert_int_equal(said.words[1], 0);
        assert_false(say_quiet(net->workers[2].rpc, &epoch, true, 9));
    }
    for (uint32_t round = 0; round < 2; round++) {
        struct mr_leave_wire wire = {.phase = MR_LEAVE_CALLED, .epoch = epoch, .quiet = true, .activity = 6};
        (void)leave_say(net->workers[1].rpc, MR_OP_RPC_LEAVE, &wire, sizeof(wire));
        if (say_quiet(net->workers[2].rpc, &epoch, true, 9))
            break;
    }
    net_skip(net, 3 * SECOND_US);
    pthread_join(leaver.thread, NULL);
    assert_int_equal(leaver.status, MR_OK);
}

/* Whoever asks while the rendezvous watches over the end of a world is for the next one. */
TEST(who_asks_at_the_end_of_a_world_waits, net_setup, net_teardown)
{
    struct net *net = *state;
    uint64_t epoch = 1;
    struct leaver leaver;
    net_world(net, 2);
    leave_begin(&leaver, net, 0, 0);
    for (uint32_t tries = 0; tries < 1000 && !say_quiet(net->workers[1].rpc, &epoch, true, 1); tries++)
        net_skip(net, 10000);
    (void)net_add(net, "new", 1);
    net_skip(net, SECOND_US);
    assert_int_equal(atomic_load(&net->workers[2].rpc->joined) & MR_DONE, 0);
    net_skip(net, 3 * SECOND_US);
    pthread_join(leaver.thread, NULL);
    assert_int_equal(leaver.status, MR_OK);
    assert_int_equal(atomic_load(&net->workers[2].rpc->joined) & MR_DONE, 0);
}

/* One process is one worker. */
TEST(nobody_takes_two_ranks, net_setup, net_teardown)
{
    struct net *net = *state;
    struct mr_join_wire join = {.name = "more", .rank = 2, .world_size = 3, .incarnation = 7};
    net_start(net, 3);
    (void)net_add(net, "a", 0);
    (void)net_add(net, "b", 1);
    net_skip(net, SECOND_US);
    struct said said = leave_say(net->workers[1].rpc, MR_OP_RPC_JOIN, &join, sizeof(join));
    assert_int_equal(said.status, MR_INVALID_ARGUMENT);
    assert_says(said.text, "rank 1 is taken by worker \"b\"");
}

/* All were stopped, as by a suspended machine: nobody takes the others for dead for the time in which he did
 * not look. */
TEST(a_pause_of_all_kills_nobody, net_setup, net_teardown)
{
    struct net *net = *state;
    net_world(net, 3);
    for (uint32_t i = 0; i < 3; i++)
        net_function(net->workers[i].rpc, "f", "", "", net_nothing, NULL, 0);
    net_skip(net, 2 * SECOND_US);
    pthread_mutex_lock(&net->lock);
    __atomic_fetch_add(&net->skipped_us, 100 * (uint64_t)SECOND_US, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&net->lock);
    net_skip(net, SECOND_US);
    for (uint32_t i = 0; i < 3; i++)
        made(mr_rpc_sync(net->workers[i].rpc, (i + 1) % 3, "f", NULL, 0, NULL, NULL));
}

/* ---- leaving ---- */

TEST(all_leave_together, net_setup, net_teardown)
{
    struct net *net = *state;
    struct leaver leavers[3];
    net_world(net, 3);
    for (uint32_t i = 0; i < 3; i++)
        net_function(net->workers[i].rpc, "f", "", "", net_nothing, NULL, 0);
    assert_int_equal(mr_rpc_sync(net->workers[1].rpc, 2, "f", NULL, 0, NULL, NULL), MR_OK);
    for (uint32_t i = 0; i < 3; i++)
        leave_begin(&leavers[i], net, i, 0);
    for (uint32_t i = 0; i < 3; i++) {
        pthread_join(leavers[i].thread, NULL);
        if (leavers[i].status != MR_OK)
            fail_msg("%s", leavers[i].error);
        assert_int_equal(mr_rpc_shutdown(leavers[i].rpc, 0), MR_INVALID_ARGUMENT);
        assert_says(mr_rpc_last_error(), "has left already");
        assert_int_equal(mr_rpc_sync(leavers[i].rpc, (i + 1) % 3, "f", NULL, 0, NULL, NULL),
                         MR_SHUTTING_DOWN);
    }
}

TEST(who_has_not_left_is_named_and_serves_on, net_setup, net_teardown)
{
    struct net *net = *state;
    struct leaver leavers[3];
    net_world(net, 3);
    for (uint32_t i = 0; i < 3; i++)
        net_function(net->workers[i].rpc, "f", "", "", net_nothing, NULL, 0);
    for (uint32_t i = 0; i < 2; i++)
        leave_begin(&leavers[i], net, i, 5000);
    net_skip(net, 6 * SECOND_US);
    for (uint32_t i = 0; i < 2; i++) {
        pthread_join(leavers[i].thread, NULL);
        assert_int_equal(leavers[i].status, MR_DEADLINE_EXCEEDED);
        assert_says(leavers[i].error, "worker \"w2\" (rank 2) has not called mr_rpc_shutdown");
        assert_null(strstr(leavers[i].error, "rank 0"));
        assert_int_equal(mr_rpc_staying(net->workers[i].rpc), 1);
    }
    assert_int_not_equal(mr_rpc_staying(net->workers[2].rpc), 0);
    /* They are members still, and may try again. */
    assert_int_equal(mr_rpc_sync(net->workers[2].rpc, 1, "f", NULL, 0, NULL, NULL), MR_OK);
    for (uint32_t i = 0; i < 3; i++)
        leave_begin(&leavers[i], net, i, 0);
    leave_end(leavers, 3, MR_OK);
}

/* Their time is up, and they leave with the last one before they ask again: then it is reported to them. */
TEST(who_has_left_after_its_time_is_told_once, net_setup, net_teardown)
{
    struct net *net = *state;
    struct leaver leavers[3];
    net_world(net, 3);
    for (uint32_t i = 0; i < 2; i++)
        leave_begin(&leavers[i], net, i, 5000);
    net_skip(net, 6 * SECOND_US);
    leave_end(leavers, 2, MR_DEADLINE_EXCEEDED);
    assert_int_equal(mr_rpc_shutdown(net->workers[2].rpc, 0), MR_OK);
    net_skip(net, 3 * SECOND_US);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(mr_rpc_shutdown(net->workers[i].rpc, 0), MR_OK);
        assert_int_equal(mr_rpc_shutdown(net->workers[i].rpc, 0), MR_INVALID_ARGUMENT);
    }
}

/* A worker whose functions still run, and call, keeps the others. */
static enum mr_status block_then_call(struct mr_rpc_call *call, const struct mr_value *arguments,
                                      uint32_t count)
{
    (void)gate_pass_call(call, arguments, count);
    return mr_rpc_sync(mr_rpc_of(call), 0, "f", NULL, 0, NULL, NULL);
}

TEST(nobody_leaves_while_a_call_is_under_way, net_setup, net_teardown)
{
    struct net *net = *state;
    static struct gate gate;
    struct leaver leavers[3];
    struct mr_rpc_future *future;
    net_world(net, 3);
    net_function(net->workers[0].rpc, "f", "", "", net_nothing, NULL, 0);
    gate_init(&gate);
    net_function(net->workers[2].rpc, "block", "", "", block_then_call, &gate, 0);
    assert_int_equal(mr_rpc_async(net->workers[1].rpc, 2, "block", NULL, 0, NULL, &future), MR_OK);
    for (uint32_t i = 0; i < 3; i++)
        leave_begin(&leavers[i], net, i, 5000);
    net_skip(net, 6 * SECOND_US);
    for (uint32_t i = 0; i < 3; i++) {
        pthread_join(leavers[i].thread, NULL);
        assert_int_equal(leavers[i].status, MR_DEADLINE_EXCEEDED);
        assert_says(leavers[i].error, "(rank 1) has calls in flight");
    }
    for (uint32_t i = 0; i < 3; i++)
        leave_begin(&leavers[i], net, i, 0);
    net_skip(net, SECOND_US);
    gate_open(&gate);
    assert_int_equal(mr_rpc_wait(future, NULL), MR_OK); /* and its call back to rank 0 came through */
    mr_rpc_future_destroy(future);
    leave_end(leavers, 3, MR_OK);
}

/* Nobody waits for it any more, and yet it runs, and may call. */
TEST(nobody_leaves_while_a_function_runs, net_setup, net_teardown)
{
    struct net *net = *state;
    static struct gate gate;
    struct mr_rpc_call_options options = {.timeout_ms = 30000}; /* not reached by itself */
    struct leaver leavers[2];
    struct mr_rpc_future *future;
    net_world(net, 2);
    gate_init(&gate);
    net_function(net->workers[1].rpc, "block", "", "", gate_pass_call, &gate, 0);
    assert_int_equal(mr_rpc_async(net->workers[0].rpc, 1, "block", NULL, 0, &options, &future), MR_OK);
    gate_wait_begun(&gate, 1);
    net_skip(net, 31 * SECOND_US);
    assert_int_equal(mr_rpc_wait(future, NULL), MR_DEADLINE_EXCEEDED);
    mr_rpc_future_destroy(future);
    for (uint32_t i = 0; i < 2; i++)
        leave_begin(&leavers[i], net, i, 5000);
    net_skip(net, 6 * SECOND_US);
    for (uint32_t i = 0; i < 2; i++)
        pthread_join(leavers[i].thread, NULL);
    gate_open(&gate);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(leavers[i].status, MR_DEADLINE_EXCEEDED);
        assert_says(leavers[i].error, "(rank 1) has calls in flight");
    }
    for (uint32_t i = 0; i < 2; i++)
        leave_begin(&leavers[i], net, i, 0);
    leave_end(leavers, 2, MR_OK);
}

/* Neither the rendezvous nor another worker calls after it has left, whoever is still there. */
TEST(who_has_left_calls_nobody, net_setup, net_teardown)
{
    struct net *net = *state;
    struct leaver leavers[2];
    net_world(net, 2);
    for (uint32_t i = 0; i < 2; i++)
        net_function(net->workers[i].rpc, "f", "", "", net_nothing, NULL, 0);
    for (uint32_t i = 0; i < 2; i++)
        leave_begin(&leavers[i], net, i, 0);
    leave_end(leavers, 2, MR_OK);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(mr_rpc_sync(net->workers[i].rpc, 1 - i, "f", NULL, 0, NULL, NULL), MR_SHUTTING_DOWN);
        assert_says(mr_rpc_last_error(), "this worker has left the world");
    }
}

TEST(the_dead_are_not_waited_for, net_setup, net_teardown)
{
    struct net *net = *state;
    struct leaver leavers[2];
    net_world(net, 3);
    net_silence(net, 2, true);
    for (uint32_t i = 0; i < 2; i++)
        leave_begin(&leavers[i], net, i, 0);
    net_skip(net, 15 * SECOND_US);
    leave_end(leavers, 2, MR_OK);
}

/* Calls that nobody waited for end when the worker goes away; functions of its that wait for calls, too. */
static enum mr_status call_blocked(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t count)
{
    return mr_rpc_sync(mr_rpc_of(call), 1, "block", NULL, 0, NULL, NULL);
}

TEST(destroying_ends_calls, net_setup, net_teardown)
{
    struct net *net = *state;
    static struct gate gate;
    struct mr_rpc_future *futures[2];
    net_world(net, 2);
    gate_init(&gate);
    net_function(net->workers[1].rpc, "block", "", "", gate_pass_call, &gate, 0);
    net_function(net->workers[0].rpc, "call", "", "", call_blocked, NULL, 0);
    assert_int_equal(mr_rpc_async(net->workers[0].rpc, 0, "call", NULL, 0, NULL, &futures[0]), MR_OK);
    assert_int_equal(mr_rpc_async(net->workers[0].rpc, 1, "block", NULL, 0, NULL, &futures[1]), MR_OK);
    gate_wait_begun(&gate, 1);
    pthread_mutex_lock(&net->lock);
    mr_agent_close(net->workers[0].rpc);
    pthread_mutex_unlock(&net->lock);
    assert_int_equal(mr_rpc_wait(futures[1], NULL), MR_SHUTTING_DOWN);
    assert_int_equal(mr_rpc_wait(futures[0], NULL), MR_SHUTTING_DOWN);
    for (uint32_t i = 0; i < 2; i++)
        mr_rpc_future_destroy(futures[i]);
    gate_open(&gate);
}
