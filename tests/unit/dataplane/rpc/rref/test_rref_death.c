/* References when workers die, and over a network that loses and repeats packets. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/rpc/base/rpc.h"
#include "dataplane/rpc/rref/rref.h"
#include "rref_functions.h"
#include "tests/test.h"

/* All that live know of it. */
static void kill_worker(void **state, uint32_t rank)
{
    struct net *net = *state;
    bool known = false;
    net_silence(net, rank, true);
    while (!known) {
        net_skip(net, 1000000);
        known = true;
        for (uint32_t i = 0; i < net->count; i++) {
            struct mr_rpc_worker info;
            assert_int_equal(mr_worker_info(worker(state, i), rank, &info), MR_OK);
            known = known && (net->workers[i].silent || info.is_dead);
        }
    }
}

static void make_object(void **state, uint32_t from, uint32_t owner, struct counted *object,
                        struct mr_rref **rref)
{
    struct mr_value argument = mr_value_i64((intptr_t)object);
    made(mr_remote(worker(state, from), owner, "make_object", &argument, 1, NULL, rref));
    made(mr_rref_confirm(*rref, 0));
}

static void let_keep(void **state, uint32_t from, uint32_t to, struct mr_rref *rref)
{
    struct mr_value argument = mr_value_rref(rref);
    made(mr_rpc_sync(worker(state, from), to, "keep", &argument, 1, NULL, NULL));
}

static void let_drop(void **state, uint32_t from, uint32_t to)
{
    made(mr_rpc_sync(worker(state, from), to, "drop", NULL, 0, NULL, NULL));
}

/* ---- deaths ---- */

TEST(what_a_dead_user_held_is_freed, setup, net_teardown)
{
    struct counted object = {.value = 1};
    struct mr_rref *rref;
    make_object(state, 1, 0, &object, &rref);
    let_keep(state, 1, 2, rref);
    mr_rref_release(rref);
    net_skip(*state, 1000000);
    assert_int_equal(atomic_load(&object.destroyed), 0);
    kill_worker(state, 2);
    await_destroyed(&object, 1);
    await_nothing_held(state);
    forget_kept(state, 2);
}

TEST(a_dead_owner_is_an_error, setup, net_teardown)
{
    static struct counted object = {.value = 1}; /* until the dead worker is taken down */
    struct mr_rpc_result *result;
    struct mr_value argument;
    struct mr_rref *rref, *other;
    make_object(state, 1, 0, &object, &rref);
    let_keep(state, 1, 2, rref);
    kill_worker(state, 0);
    expect_error(MR_WORKER_DIED, mr_rref_to_here(rref, 0, &result), "mr_rref_to_here",
                 "worker \"w0\" (rank 0)");
    expect_error(MR_WORKER_DIED, mr_rref_confirm(rref, 0), "mr_rref_confirm", "worker \"w0\" (rank 0)");
    argument = mr_value_rref(rref);
    expect_error(MR_WORKER_DIED, mr_rpc_sync(worker(state, 1), 2, "keep", &argument, 1, NULL, NULL),
                 "cannot be passed on: worker \"w0\" (rank 0) died");
    expect_error(MR_WORKER_DIED, mr_remote(worker(state, 1), 0, "nothing", NULL, 0, NULL, &other),
                 "mr_remote");
    mr_rref_release(rref);
    let_drop(state, 1, 2);
    await_nothing_held(state);
}

/* It passed the reference on, and died before the owner could have heard of it from anybody else. */
TEST(who_passed_it_on_may_die, setup, net_teardown)
{
    struct counted object = {.value = 1};
    struct mr_rref *rref;
    make_object(state, 1, 0, &object, &rref);
    net_mute(*state, 0, 2, true); /* the owner does not hear of the new holder */
    let_keep(state, 1, 2, rref);
    net_silence(*state, 1, true);
    mr_rref_release(rref); /* which nobody hears */
    net_mute(*state, 0, 2, false);
    kill_worker(state, 1);
    assert_int_equal(atomic_load(&object.destroyed), 0);
    let_drop(state, 0, 2);
    await_destroyed(&object, 1);
    await_nothing_held(state);
}

TEST(a_fetch_that_waits_ends_when_the_owner_dies, setup, net_teardown)
{
    struct mr_rpc_call_options patient = {.timeout_ms = UINT32_MAX};
    struct mr_rpc_future *future;
    static struct gate gate;
    struct mr_rref *rref;
    gate_init(&gate);
    net_function(worker(state, 0), "gate", "", "i64", pass_gate, &gate, 0);
    made(mr_remote(worker(state, 1), 0, "gate", NULL, 0, &patient, &rref));
    struct mr_value argument = mr_value_rref(rref);

    gate_wait_begun(&gate, 1);
    made(mr_rpc_async(worker(state, 1), 2, "read", &argument, 1, &patient, &future));
    mr_rref_release(rref);
    kill_worker(state, 0);
    expect_error(MR_WORKER_DIED, mr_rpc_wait(future, NULL), "worker \"w0\" (rank 0)");
    mr_rpc_future_destroy(future);
    gate_open(&gate);
    await_nothing_held(state);
}

/* Who was to make the value died before its call came: who was given the reference learns of it. */
TEST(a_value_that_will_never_be_made_is_an_error, setup, net_teardown)
{
    struct mr_value argument = mr_value_i64(1);
    struct mr_rpc_future *future;
    struct mr_rref *rref;
    net_mute(*state, 1, 0, true);
    made(mr_remote(worker(state, 1), 0, "mirror", &argument, 1, NULL, &rref));
    argument = mr_value_rref(rref);
    made(mr_rpc_async(worker(state, 1), 2, "read", &argument, 1, NULL, &future));
    let_keep(state, 1, 2, rref);
    mr_rref_release(rref);
    kill_worker(state, 1);
    mr_rpc_future_destroy(future);
    expect_error(MR_WORKER_DIED, mr_rpc_sync(worker(state, 0), 2, "read_kept", NULL, 0, NULL, NULL), "died");
    let_drop(state, 0, 2);
    await_nothing_held(state);
}

/* ---- all of it, at random ---- */

enum { ROUNDS = 60, MORTAL = 2 };

struct player {
    void **state;
    pthread_t thread;
    uint32_t rank;
    uint64_t random;
    struct counted *objects; /* [ROUNDS], of this one's making */
    uint32_t made;
    bool mortal; /* one of the others is about to die: calls may fail */
    bool wrong;
};

static uint32_t below(struct player *p, uint32_t n)
{
    p->random = p->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((p->random >> 33) % n);
}

static bool may_fail(const struct player *p, enum mr_status status)
{
    if (status == MR_OK || (p->mortal && status == MR_WORKER_DIED))
        return true;
    fprintf(stderr, "worker %u: %s\n", p->rank, mr_rpc_last_error());
    return false;
}

/* Through two others, each of which uses it, while we let it go. */
static bool send_round(struct player *p, struct mr_rref *rref)
{
    struct mr_value argument = mr_value_rref(rref);
    struct mr_rpc_future *futures[3];
    bool right = true;
    for (uint32_t i = 0; i < 3; i++) {
        futures[i] = NULL;
        right = may_fail(p, mr_rpc_async(worker(p->state, p->rank), below(p, 3),
                                         i == 0 ? "pass_around" : "use", &argument, 1, NULL, &futures[i])) &&
                right;
    }
    mr_rref_release(rref);
    for (uint32_t i = 0; i < 3; i++) {
        enum mr_status status = futures[i] == NULL ? MR_WORKER_DIED : mr_rpc_wait(futures[i], NULL);
        right = ((p->mortal && status == MR_FUNCTION_FAILED) || may_fail(p, status)) && right;
        mr_rpc_future_destroy(futures[i]);
    }
    return right;
}

static void *play(void *arg)
{
    struct player *p = arg;
    for (uint32_t i = 0; i < ROUNDS && !p->wrong; i++) {
        struct counted *object = &p->objects[p->made];
        struct mr_value argument = mr_value_i64((intptr_t)object);
        struct mr_rref *rref;
        object->value = below(p, 3);
        enum mr_status status = mr_remote(worker(p->state, p->rank), (uint32_t)object->value, "make_object",
                                          &argument, 1, NULL, &rref);

        p->made += status == MR_OK;
        p->wrong = !may_fail(p, status) || (status == MR_OK && !send_round(p, rref));
    }
    return NULL;
}

static void play_all(void **state, uint64_t seed, bool one_dies)
{
    static struct counted objects[3][ROUNDS];
    struct player players[3];
    memset(objects, 0, sizeof(objects));
    for (uint32_t i = 0; i < 3; i++) {
        players[i] = (struct player){
            .state = state, .rank = i, .random = seed + i, .objects = objects[i], .mortal = one_dies};
        if (!one_dies || i != MORTAL)
            assert_int_equal(pthread_create(&players[i].thread, NULL, play, &players[i]), 0);
    }
    if (one_dies)
        kill_worker(state, MORTAL);
    for (uint32_t i = 0; i < 3; i++) {
        if (!one_dies || i != MORTAL) {
            pthread_join(players[i].thread, NULL);
            assert_false(players[i].wrong);
        }
    }
    await_nothing_held(state);
    for (uint32_t i = 0; i < 3; i++) {
        for (uint32_t o = 0; o < players[i].made; o++) {
            if (!one_dies || objects[i][o].value != MORTAL)
                assert_int_equal(atomic_load(&objects[i][o].destroyed), 1);
            assert_int_equal(atomic_load(&objects[i][o].used_late), 0);
        }
    }
}

TEST(nothing_is_lost_or_freed_early_over_a_bad_network, setup, net_teardown)
{
    net_loss(*state, 30, 30, 5);
    play_all(state, 5, false);
    net_loss(*state, 0, 0, 0);
}

TEST(nothing_stays_when_one_dies_in_the_middle, setup, net_teardown)
{
    play_all(state, 7, true);
}
