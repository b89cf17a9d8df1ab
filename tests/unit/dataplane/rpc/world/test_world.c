/* Joining, dying and leaving. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "net.h"
#include "dataplane/rpc/base/rpc.h"
#include "dataplane/rpc/world/world.h"
#include "dataplane/wire/format/capability.h"
#include "tests/test.h"
#include "tests/wait.h"

#define SECOND_US 1000000u

static void expect_text(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", text, part);
}

/* ---- joining ---- */

TEST(a_world_of_one_is_complete_at_once, net_setup, net_teardown)
{
    struct net *net = *state;
    net_world(net, 1);
    net_function(net->workers[0].rpc, "f", "", "", net_nothing, NULL, 0);
    assert_int_equal(mr_rpc_sync(net->workers[0].rpc, 0, "f", NULL, 0, NULL, NULL), MR_OK);
    assert_int_equal(mr_rpc_shutdown(net->workers[0].rpc, 0), MR_OK);
}

/* It does not join: within a millisecond, or, when it is refused, ever. */
static void expect_not_joined(struct net *net, uint32_t i, enum mr_status expected, const char *text)
{
    char error[256] = "";
    uint64_t deadline_us = expected == MR_INVALID_ARGUMENT || expected == MR_VERSION_MISMATCH
                               ? UINT64_MAX
                               : mr_agent_now(net->workers[i].rpc) + 1000;
    assert_int_equal(mr_workers_wait_joined(net->workers[i].rpc, deadline_us, error, sizeof(error)),
                     expected);
    expect_text(error, text);
}

/* What worker `of` knows of another. */
static bool is_dead(struct net *net, uint32_t of, uint32_t worker)
{
    struct mr_rpc_worker info;
    assert_int_equal(mr_worker_info(net->workers[of].rpc, worker, &info), MR_OK);
    return info.is_dead;
}

/* Whichever side is of another version, joining fails at once, and says so. */
TEST(a_rendezvous_of_an_older_version_is_named, net_setup, net_teardown)
{
    struct net *net = *state;
    net_start(net, 2);
    net->say_no_version = true;
    (void)net_add(net, "a", 0);
    net->say_no_version = false;
    (void)net_add(net, "b", 1);
    expect_not_joined(net, 1, MR_VERSION_MISMATCH,
                      "the rendezvous has version before 0.3.0, and this worker ");
    expect_not_joined(net, 0, MR_DEADLINE_EXCEEDED, "1 of 2 workers");
}

TEST(a_worker_of_an_older_version_is_refused, net_setup, net_teardown)
{
    struct net *net = *state;
    char says[200];
    net_start(net, 2);
    (void)net_add(net, "a", 0);
    net->say_no_rpc = true;
    (void)net_add(net, "b", 1);
    (void)snprintf(says, sizeof(says), "version is another, and the rendezvous has version %s",
                   mr_version_text());
    expect_not_joined(net, 1, MR_VERSION_MISMATCH, says);
    expect_not_joined(net, 0, MR_DEADLINE_EXCEEDED, "somebody of another version than this worker's");
}

TEST(who_is_missing_is_named, net_setup, net_teardown)
{
    struct net *net = *state;
    net_start(net, 4);
    (void)net_add(net, "a", 0);
    (void)net_add(net, "c", 2);
    net_skip(net, SECOND_US);
    for (uint32_t i = 0; i < 2; i++)
        expect_not_joined(net, i, MR_DEADLINE_EXCEEDED, "2 of 4 workers have joined; missing: rank 1 3");
    assert_int_equal(mr_rpc_sync(net->workers[0].rpc, 1, "f", NULL, 0, NULL, NULL), MR_NOT_READY);
}

/* Worker 1 has asked, and does not hear that worker 2 completes the world. */
static void complete_without_1(struct net *net)
{
    net_start(net, 3);
    (void)net_add(net, "a", 0);
    (void)net_add(net, "b", 1);
    net_skip(net, SECOND_US);
    net_mute(net, 0, 1, true);
    (void)net_add(net, "c", 2);
    net_wait_joined(net, 2);
    net_skip(net, SECOND_US);
    assert_true(atomic_load(&net->workers[0].rpc->complete));
    assert_int_equal(atomic_load(&net->workers[0].rpc->joined) & MR_DONE, 0);
}

/* Its program might leave at once, and nobody else has the list. */
TEST(the_rendezvous_joins_after_all_have_the_list, net_setup, net_teardown)
{
    struct net *net = *state;
    complete_without_1(net);
    net_mute(net, 0, 1, false);
    net_wait_joined(net, 0);
    net_end(net, 0);
    net_wait_joined(net, 1);
}

TEST(the_rendezvous_does_not_wait_for_the_dead, net_setup, net_teardown)
{
    struct net *net = *state;
    complete_without_1(net);
    net_skip(net, 15 * SECOND_US);
    assert_int_not_equal(atomic_load(&net->workers[0].rpc->joined) & MR_DONE, 0);
    net_wait_joined(net, 0);
    assert_true(is_dead(net, 0, 1));
    net_mute(net, 0, 1, false);
}

/* Its time to join is over, and the world is there: it may be used. */
TEST(a_late_list_does_not_fail_the_rendezvous, net_setup, net_teardown)
{
    struct net *net = *state;
    char error[256] = "";
    complete_without_1(net);
    assert_int_equal(
        mr_workers_wait_joined(net->workers[0].rpc, mr_agent_now(net->workers[0].rpc), error, sizeof(error)),
        MR_OK);
    net_mute(net, 0, 1, false);
    net_wait_joined(net, 1);
}

TEST(nobody_at_the_rendezvous_is_said, net_setup, net_teardown)
{
    struct net *net = *state;
    net_start(net, 2);
    (void)net_add(net, "a", 0);
    net_silence(net, 0, true);
    (void)net_add(net, "b", 1);
    net_skip(net, SECOND_US);
    expect_not_joined(net, 1, MR_UNREACHABLE, "nobody answers at the rendezvous");
}

/* a and b have asked, and then comes one that does not fit: all learn why, and nobody joins. */
static void expect_no_world(void **state, const char *name, uint32_t rank, uint32_t world_size,
                            const char *text)
{
    struct net *net = *state;
    char why[300];
    net_start(net, 3);
    (void)net_add(net, "a", 0);
    (void)net_add(net, "b", 1);
    net_skip(net, SECOND_US);
    (void)net_add_with(net, name, rank, world_size, 0);
    expect_not_joined(net, 2, MR_INVALID_ARGUMENT, text);
    snprintf(why, sizeof(why), "cannot come together, since worker \"%s\" (rank %u) was refused: %s", name,
             rank, text);
    expect_not_joined(net, 1, MR_INVALID_ARGUMENT, why);
    expect_not_joined(net, 0, MR_INVALID_ARGUMENT, why);
}

TEST(a_rank_that_is_taken_ends_the_world, net_setup, net_teardown)
{
    expect_no_world(state, "other", 1, 3, "rank 1 is taken by worker \"b\"");
}

TEST(a_name_that_is_taken_ends_the_world, net_setup, net_teardown)
{
    expect_no_world(state, "b", 2, 3, "the name \"b\" is taken by rank 1");
}

TEST(another_world_size_ends_the_world, net_setup, net_teardown)
{
    expect_no_world(state, "c", 2, 4,
                    "worker \"c\" (rank 2) says that world_size is 4, and the rendezvous expects 3");
}

/* Also one that has not asked before. */
TEST(who_comes_after_a_refusal_learns_it, net_setup, net_teardown)
{
    struct net *net = *state;
    net_start(net, 4);
    (void)net_add(net, "a", 0);
    (void)net_add(net, "b", 1);
    net_skip(net, SECOND_US);
    (void)net_add(net, "a", 2);
    expect_not_joined(net, 2, MR_INVALID_ARGUMENT, "the name \"a\" is taken by rank 0");
    expect_not_joined(net, 1, MR_INVALID_ARGUMENT, "cannot come together");
    (void)net_add(net, "d", 3);
    expect_not_joined(net, 3, MR_INVALID_ARGUMENT, "cannot come together");
    expect_not_joined(net, 0, MR_INVALID_ARGUMENT, "cannot come together");
}

/* The rendezvous does not wait for ever for one that has asked, and does not ask again. */
TEST(a_refusal_that_one_does_not_learn_ends_the_world, net_setup, net_teardown)
{
    struct net *net = *state;
    net_start(net, 4);
    (void)net_add(net, "a", 0);
    (void)net_add(net, "b", 1);
    net_skip(net, SECOND_US);
    net_silence(net, 1, true);
    (void)net_add(net, "a", 2);
    expect_not_joined(net, 2, MR_INVALID_ARGUMENT, "the name \"a\" is taken by rank 0");
    net_skip(net, 6 * SECOND_US);
    expect_not_joined(net, 0, MR_INVALID_ARGUMENT, "the name \"a\" is taken by rank 0");
}

/* Another process of the same rank: the first one is not there too. */
TEST(one_that_was_started_again_is_not_refused, net_setup, net_teardown)
{
    struct net *net = *state;
    net_start(net, 3);
    (void)net_add(net, "a", 0);
    (void)net_add(net, "b", 1);
    net_skip(net, SECOND_US);
    net_silence(net, 1, true);
    (void)net_add(net, "b", 1);
    net_skip(net, SECOND_US);
    (void)net_add(net, "c", 2);
    net_skip(net, 6 * SECOND_US);
    net_wait_joined(net, 2);
    net_wait_joined(net, 0);
}

/* A node's world may be followed by another, for which it is worth waiting; a program's may not. */
TEST(the_rank_of_a_silent_one_is_taken_at_a_program, net_setup, net_teardown)
{
    struct net *net = *state;
    net_world(net, 2);
    net_silence(net, 1, true);
    net_skip(net, 3 * SECOND_US);
    (void)net_add(net, "w1", 1);
    net_skip(net, SECOND_US);
    expect_not_joined(net, 2, MR_INVALID_ARGUMENT, "rank 1 is taken by worker \"w1\"");
}

/* One that gave up before the world was complete makes room for its successor. */
TEST(one_who_gave_up_makes_room, net_setup, net_teardown)
{
    struct net *net = *state;
    net_start(net, 2);
    (void)net_add(net, "a", 0);
    net_silence(net, 0, true); /* so that it does not become complete */
    (void)net_add(net, "b", 1);
    net_skip(net, SECOND_US);
    net_silence(net, 1, true);
    net_silence(net, 0, false);
    net_skip(net, 6 * SECOND_US);
    (void)net_add(net, "b", 1);
    net_wait_joined(net, 2);
}

/* Nor does the world become complete with it. */
TEST(one_who_gave_up_is_missing, net_setup, net_teardown)
{
    struct net *net = *state;
    net_start(net, 3);
    (void)net_add(net, "a", 0);
    (void)net_add(net, "b", 1);
    net_skip(net, SECOND_US);
    net_silence(net, 1, true);
    net_skip(net, 6 * SECOND_US);
    (void)net_add(net, "c", 2);
    net_skip(net, SECOND_US);
    expect_not_joined(net, 2, MR_DEADLINE_EXCEEDED, "2 of 3 workers have joined; missing: rank 1");
    (void)net_add(net, "b", 1);
    net_wait_joined(net, 2);
}

TEST(a_bad_configuration_is_refused, net_setup, net_teardown)
{
    struct net *net = *state;
    struct mr_rpc *rpc;
    char error[256] = "";
    net_start(net, 1);
    (void)net_add(net, "a", 0);
    struct mr_agent_config config = {.name = "x", .rank = 2, .world_size = 2};
    assert_int_equal(mr_agent_create(&config, &rpc, error, sizeof(error)), MR_INVALID_ARGUMENT);
    expect_text(error, "the rank must be 0");
    config = (struct mr_agent_config){.name = "", .rank = 0, .world_size = 2};
    assert_int_equal(mr_agent_create(&config, &rpc, error, sizeof(error)), MR_INVALID_ARGUMENT);
    expect_text(error, "needs a name");
    config = (struct mr_agent_config){.name = "x", .rank = 0, .world_size = MR_RPC_WORLD_MAX + 1};
    assert_int_equal(mr_agent_create(&config, &rpc, error, sizeof(error)), MR_INVALID_ARGUMENT);
    expect_text(error, "1 to 1024");
}

/* ---- dying ---- */

static enum mr_status block(struct mr_rpc_call *call, const struct mr_value *arguments, uint32_t count)
{
    gate_pass(mr_rpc_user(call));
    return MR_OK;
}

TEST(calls_to_a_worker_that_dies_end_and_name_it, net_setup, net_teardown)
{
    struct net *net = *state;
    static struct gate gate;
    struct mr_rpc_call_options patient = {.timeout_ms = UINT32_MAX};
    struct mr_rpc_future *futures[2];
    net_world(net, 3);
    gate_init(&gate);
    net_function(net->workers[2].rpc, "block", "", "", block, &gate, 0);
    net_function(net->workers[1].rpc, "f", "", "", net_nothing, NULL, 0);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(mr_rpc_async(net->workers[i].rpc, 2, "block", NULL, 0, &patient, &futures[i]),
                         MR_OK);
    gate_wait_begun(&gate, 1);
    net_skip(net, 30 * SECOND_US); /* slow is not dead */
    assert_false(mr_rpc_done(futures[0]));
    net_silence(net, 2, true);
    net_skip(net, 15 * SECOND_US);
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(mr_rpc_done(futures[i]));
        assert_int_equal(mr_rpc_wait(futures[i], NULL), MR_WORKER_DIED);
        expect_text(mr_rpc_last_error(), "block on worker \"w2\" (rank 2)");
        mr_rpc_future_destroy(futures[i]);
        assert_int_equal(mr_rpc_sync(net->workers[i].rpc, 2, "block", NULL, 0, NULL, NULL), MR_WORKER_DIED);
        expect_text(mr_rpc_last_error(), "worker \"w2\" (rank 2) died");
        assert_true(is_dead(net, i, 2));
    }
    /* The rest go on, and may leave. */
    assert_int_equal(mr_rpc_sync(net->workers[0].rpc, 1, "f", NULL, 0, NULL, NULL), MR_OK);
    gate_open(&gate);
}

/* The same process, which has forgotten the session in which a call runs: what became of it, and of
 * references in it, is not known. */
TEST(a_worker_that_forgot_a_call_is_dead, net_setup, net_teardown)
{
    struct net *net = *state;
    static struct gate gate;
    struct mr_rpc_call_options patient = {.timeout_ms = UINT32_MAX};
    struct mr_rpc_future *future;
    net_start(net, 2);
    net->dead_after_ms = 3600000;
    (void)net_add(net, "w0", 0);
    (void)net_add(net, "w1", 1);
    for (uint32_t i = 0; i < 2; i++)
        net_wait_joined(net, i);
    gate_init(&gate);
    net_function(net->workers[1].rpc, "block", "", "", block, &gate, 0);
    assert_int_equal(mr_rpc_async(net->workers[0].rpc, 1, "block", NULL, 0, &patient, &future), MR_OK);
    gate_wait_begun(&gate, 1);
    net_mute(net, 0, 1, true);
    net_skip(net, 90 * SECOND_US);
    assert_false(mr_rpc_done(future));
    net_mute(net, 0, 1, false);
    net_skip(net, 90 * SECOND_US);
    gate_open(&gate);
    assert_true(mr_rpc_done(future));
    assert_int_equal(mr_rpc_wait(future, NULL), MR_WORKER_DIED);
    mr_rpc_future_destroy(future);
    assert_true(is_dead(net, 0, 1));
}

/* Nobody calls it: the rendezvous notices, and tells the others. */
TEST(an_idle_worker_that_dies_is_noticed_by_all, net_setup, net_teardown)
{
    struct net *net = *state;
    net_world(net, 4);
    net_silence(net, 3, true);
    net_skip(net, 15 * SECOND_US);
    for (uint32_t i = 0; i < 3; i++)
        assert_true(is_dead(net, i, 3));
    for (uint32_t i = 0; i < 3; i++)
        assert_false(is_dead(net, i, (i + 1) % 3));
}

TEST(the_rest_go_on_without_the_rendezvous, net_setup, net_teardown)
{
    struct net *net = *state;
    net_world(net, 4);
    for (uint32_t i = 0; i < 4; i++)
        net_function(net->workers[i].rpc, "f", "", "", net_nothing, NULL, 0);
    net_silence(net, 0, true);
    net_skip(net, 15 * SECOND_US);
    assert_int_equal(mr_rpc_sync(net->workers[1].rpc, 0, "f", NULL, 0, NULL, NULL), MR_WORKER_DIED);
    assert_int_equal(mr_rpc_sync(net->workers[1].rpc, 2, "f", NULL, 0, NULL, NULL), MR_OK);
    /* From now on they ask each other. */
    net_silence(net, 3, true);
    net_skip(net, 15 * SECOND_US);
    for (uint32_t i = 1; i < 3; i++) {
        assert_true(is_dead(net, i, 3));
        assert_false(is_dead(net, i, 3 - i));
    }
    assert_int_equal(mr_rpc_shutdown(net->workers[1].rpc, 0), MR_WORKER_DIED);
    expect_text(mr_rpc_last_error(), "the rendezvous died");
}

/* It was cut off for too long: the others do not take it back, and it says so. */
TEST(one_who_was_taken_for_dead_learns_of_it, net_setup, net_teardown)
{
    struct net *net = *state;
    net_world(net, 3);
    net_function(net->workers[2].rpc, "f", "", "", net_nothing, NULL, 0);
    net_function(net->workers[1].rpc, "f", "", "", net_nothing, NULL, 0);
    net_skip(net, 2 * SECOND_US);
    net_silence(net, 2, true);
    net_skip(net, 12 * SECOND_US);
    assert_true(is_dead(net, 0, 2));
    net_silence(net, 2, false);
    net_skip(net, 5 * SECOND_US);
    assert_int_equal(mr_rpc_sync(net->workers[2].rpc, 1, "f", NULL, 0, NULL, NULL), MR_WORKER_DIED);
}

TEST(a_short_silence_kills_nobody, net_setup, net_teardown)
{
    struct net *net = *state;
    net_world(net, 3);
    net_function(net->workers[2].rpc, "f", "", "", net_nothing, NULL, 0);
    for (uint32_t round = 0; round < 3; round++) {
        net_silence(net, 2, true);
        net_skip(net, 6 * SECOND_US);
        net_silence(net, 2, false);
        net_skip(net, 3 * SECOND_US);
    }
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(mr_rpc_sync(net->workers[i].rpc, 2, "f", NULL, 0, NULL, NULL), MR_OK);
}

/* The address answers, but it is another process that knows nothing of what the first promised. */
TEST(a_restarted_worker_is_a_dead_one, net_setup, net_teardown)
{
    struct net *net = *state;
    net_world(net, 3);
    net_function(net->workers[2].rpc, "f", "", "", net_nothing, NULL, 0);
    assert_int_equal(mr_rpc_sync(net->workers[1].rpc, 2, "f", NULL, 0, NULL, NULL), MR_OK);
    net_replace(net, 2);
    assert_int_equal(mr_rpc_sync(net->workers[1].rpc, 2, "f", NULL, 0, NULL, NULL), MR_WORKER_DIED);
}

/* Nobody had asked it for anything before, nor has the rendezvous heard of it. */
TEST(a_restarted_worker_is_known_by_its_first_answer, net_setup, net_teardown)
{
    struct net *net = *state;
    net_world(net, 3);
    net_replace(net, 2);
    net_mute(net, 0, 1, true); /* which has nothing to tell */
    expect_error(MR_WORKER_DIED, mr_rpc_sync(net->workers[1].rpc, 2, "f", NULL, 0, NULL, NULL), "w2");
    net_mute(net, 0, 1, false);
}

/* The same of the rendezvous, which nobody calls: what it knew of the world is gone. */
TEST(a_restarted_rendezvous_is_a_dead_one, net_setup, net_teardown)
{
    struct net *net = *state;
    net_world(net, 3);
    net_skip(net, 2 * SECOND_US);
    net_replace(net, 0);
    net_skip(net, 15 * SECOND_US);
    for (uint32_t i = 1; i < 3; i++)
        assert_true(is_dead(net, i, 0));
    assert_int_equal(mr_rpc_shutdown(net->workers[1].rpc, 1000), MR_WORKER_DIED);
}

/* ---- leaving ---- */

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

static struct said say(struct mr_rpc *rpc, uint8_t op, const void *bytes, uint32_t count)
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
        said = say(rpc, MR_OP_RPC_LEAVE, &wire, sizeof(wire));
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
        assert_int_equal(say(net->workers[1].rpc, MR_OP_RPC_LEAVE, &wire, sizeof(wire)).words[0], epoch);
        wire.activity += round;
        struct said said = say(net->workers[1].rpc, MR_OP_RPC_LEAVE, &wire, sizeof(wire));
        assert_int_equal(said.words[0], epoch);
        assert_int_equal(said.words[1], 0);
        assert_false(say_quiet(net->workers[2].rpc, &epoch, true, 9));
    }
    for (uint32_t round = 0; round < 2; round++) {
        struct mr_leave_wire wire = {.phase = MR_LEAVE_CALLED, .epoch = epoch, .quiet = true, .activity = 6};
        (void)say(net->workers[1].rpc, MR_OP_RPC_LEAVE, &wire, sizeof(wire));
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
    struct said said = say(net->workers[1].rpc, MR_OP_RPC_JOIN, &join, sizeof(join));
    assert_int_equal(said.status, MR_INVALID_ARGUMENT);
    expect_text(said.text, "rank 1 is taken by worker \"b\"");
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
        expect_text(mr_rpc_last_error(), "has left already");
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
        expect_text(leavers[i].error, "worker \"w2\" (rank 2) has not called mr_rpc_shutdown");
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
    (void)block(call, arguments, count);
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
        expect_text(leavers[i].error, "(rank 1) has calls in flight");
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
    net_function(net->workers[1].rpc, "block", "", "", block, &gate, 0);
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
        expect_text(leavers[i].error, "(rank 1) has calls in flight");
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
        expect_text(mr_rpc_last_error(), "this worker has left the world");
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
    net_function(net->workers[1].rpc, "block", "", "", block, &gate, 0);
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
