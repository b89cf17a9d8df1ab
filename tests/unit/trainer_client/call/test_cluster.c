/* A client of a cluster of fake nodes: their map, calls over all of them, and nodes that die. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "dataplane/wire/base/clock.h"
#include "tests/test.h"
#include "tests/unit/trainer_client/fake_cluster.h"
#include "tests/unit/trainer_client/live_node.h"
#include "tests/unit/trainer_client/future_notice.h"
#include "tests/wait.h"
#include "trainer_client/call/client.h"
#include "trainer_client/millrace.h"
#include "trainer_client/millrace_admin.h"
#include "trainer_client/millrace_observe.h"

enum { DIM = 2, KEYS = 60, NODES = 3, CORES = 1 + 2 + 1 };
enum { TRIES_MAX = 100 }; /* of calls with short deadlines, in which somebody else has to run */

struct fixture {
    struct fake_cluster *cluster;
    struct mr_client *client;
    uint32_t table;
    uint64_t keys[KEYS];
    float expected[KEYS]; /* subtracted from each row so far */
};

static void start_among(uint32_t others, struct fixture *x, const char *servers, bool replay)
{
    struct mr_feature feature = mr_feature_table("t", DIM);
    struct mr_client_options options = {.deadline_ms = 60000, .replay = replay};
    char error[512] = "";
    memset(x, 0, sizeof(*x));
    x->cluster = fake_cluster_start_among(others, NODES, &feature);
    options.server = servers != NULL ? servers : fake_cluster_servers(x->cluster);
    if (mr_client_create(&options, &x->client, error, sizeof(error)) != MR_OK)
        fail_msg("%s", error);
    for (uint32_t i = 0; i < KEYS; i++)
        x->keys[i] = i * 7919u;
    assert_int_equal(mr_create(x->client, NULL, &feature, 1, &x->table), MR_OK);
}

static void cluster_start(struct fixture *x, const char *servers, bool replay)
{
    start_among(0, x, servers, replay);
}

static void fixture_stop(struct fixture *x)
{
    mr_client_destroy(x->client);
    fake_cluster_destroy(x->cluster);
}

/* Pushes 1 to keys [from, to). */
static enum mr_status cluster_push(struct fixture *x, const struct mr_options *options, uint32_t from,
                                   uint32_t to)
{
    float gradients[KEYS * DIM];
    for (uint32_t i = 0; i < KEYS * DIM; i++)
        gradients[i] = 1;
    for (uint32_t i = from; i < to; i++)
        x->expected[i] += 1;
    return mr_push_gradients(x->client, options, x->table, x->keys + from, to - from, DIM, gradients);
}

static void push_all(struct fixture *x, uint64_t step)
{
    const struct mr_options options = {.step = step};
    if (cluster_push(x, &options, 0, KEYS) != MR_OK)
        fail_msg("%s", mr_last_error());
}

static void check_reply(const struct fixture *x, const struct mr_reply *reply)
{
    const float *rows = mr_reply_tensor(reply, 0)->data;
    for (uint32_t i = 0; i < KEYS; i++)
        for (uint32_t d = 0; d < DIM; d++)
            assert_true(rows[i * DIM + d] == fake_initial(x->keys[i], d) - x->expected[i]);
}

static void check_rows(struct fixture *x)
{
    struct mr_reply *reply;
    if (mr_lookup(x->client, NULL, x->table, x->keys, KEYS, &reply) != MR_OK)
        fail_msg("%s", mr_last_error());
    check_reply(x, reply);
    mr_reply_free(reply);
}

static uint32_t place_of(const struct fixture *x, uint64_t key)
{
    const struct mr_feature *table = &x->cluster->nodes[0]->table->feature;
    return fake_cluster_owner(x->cluster, mr_partition_of(mr_key_hash(key, table->seed)));
}

/* The first key of this node; keys are pushed one by one to have one owner. */
static uint32_t key_of(const struct fixture *x, uint32_t place)
{
    uint32_t i = 0;
    while (place_of(x, x->keys[i]) != place)
        i++;
    return i;
}

TEST(test_calls_reach_all_nodes)
{
    struct fixture x;
    struct mr_core_state states[CORES];
    struct mr_feature_info *infos;
    uint32_t count;
    cluster_start(&x, NULL, false);
    assert_int_equal(mr_client_core_count(x.client), CORES);
    push_all(&x, 1);
    check_rows(&x);
    for (uint32_t n = 0; n < NODES; n++)
        assert_true(atomic_load(&x.cluster->nodes[n]->applied) > 0);
    assert_int_equal(mr_heartbeat(x.client, NULL, states), MR_OK);
    struct mr_core_place place;
    const char *const names[CORES] = {"node-0", "node-1", "node-1", "node-2"};
    for (uint32_t i = 0; i < CORES; i++) {
        assert_true(mr_client_core_place(x.client, i, &place));
        assert_string_equal(place.node, names[i]);
        assert_int_equal(place.core, i == 2 ? 1 : 0);
    }
    assert_false(mr_client_core_place(x.client, CORES, &place));
    for (uint32_t i = 0; i < CORES; i++)
        assert_int_equal(mr_echo(x.client, NULL, i, NULL, 0, NULL), MR_OK);
    assert_int_equal(mr_echo(x.client, NULL, CORES, NULL, 0, NULL), MR_INVALID_ARGUMENT);
    assert_int_equal(mr_list(x.client, NULL, &infos, &count), MR_OK);
    assert_int_equal(count, 1);
    assert_string_equal(infos[0].feature.name, "t");
    free(infos);
    fixture_stop(&x);
}

/* A member that is not able to take a call may have lost its lease; a node by itself has none. */
TEST(test_a_busy_member_may_have_lost_its_lease)
{
    const struct mr_options options = {.deadline_ms = 50};
    struct fixture x;
    cluster_start(&x, NULL, false);
    const uint32_t key = key_of(&x, 0);
    enum mr_status status = MR_UNKNOWN_OUTCOME; /* when an attempt was in flight at the deadline */
    atomic_store(&x.cluster->nodes[0]->busy, ~0u);
    while (status == MR_UNKNOWN_OUTCOME)
        status = cluster_push(&x, &options, key, key + 1);
    assert_int_equal(status, MR_BUSY);
    assert_non_null(
        strstr(mr_last_error(), "or had lost its lease, as without ZooKeeper (millrace ctl nodes"));
    atomic_store(&x.cluster->has_no_lease, true);
    do /* until it has been asked */
        (void)cluster_push(&x, &options, key, key + 1);
    while (strstr(mr_last_error(), "the server has no lease, and has not executed it") == NULL);
    fixture_stop(&x);
}

/* Any member tells of the others, and one that is named and away does no harm if it is none of them. */
TEST(test_one_server_is_enough)
{
    struct fixture x;
    struct mr_client *client;
    char servers[64];
    struct live_node *away = live_node_start_new(1);
    cluster_start(&x, NULL, false);
    struct mr_client_options options = {.server = servers};
    for (uint32_t n = 0; n < NODES; n++) {
        (void)snprintf(servers, sizeof(servers), "127.0.0.1:%u", atomic_load(&x.cluster->ports[n]));
        assert_int_equal(mr_client_create(&options, &client, NULL, 0), MR_OK);
        assert_int_equal(mr_client_core_count(client), CORES);
        struct mr_core_place place;
        assert_true(mr_client_core_place(client, CORES - 1, &place)); /* the same order whoever was named */
        assert_string_equal(place.node, "node-2");
        mr_client_destroy(client);
    }
    live_node_kill(away);
    (void)snprintf(servers, sizeof(servers), "%s,127.0.0.1:%u", live_node_address(away),
                   atomic_load(&x.cluster->ports[1]));
    assert_int_equal(mr_client_create(&options, &client, NULL, 0), MR_OK);
    assert_int_equal(mr_client_core_count(client), CORES);
    mr_client_destroy(client);
    live_node_destroy(away);
    fixture_stop(&x);
}

TEST(test_several_servers_without_a_cluster_are_refused)
{
    struct live_node *one = live_node_start_new(1), *two = live_node_start_new(2);
    struct mr_client *client = NULL;
    char servers[64], error[512];
    (void)snprintf(servers, sizeof(servers), "127.0.0.1:%u,127.0.0.1:%u", one->base_port, two->base_port);
    struct mr_client_options options = {.server = servers};
    assert_int_equal(mr_client_create(&options, &client, error, sizeof(error)), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(error, "is in no cluster, and several servers were named"));
    live_node_destroy(one);
    live_node_destroy(two);
}

TEST(test_a_cluster_without_a_map_is_waited_for)
{
    struct fixture x;
    struct mr_client *client = NULL;
    static const char says[] = "the cluster has no map of its partitions yet";
    char error[512] = "";
    cluster_start(&x, NULL, false);
    atomic_store(&x.cluster->epoch, 0);
    struct mr_client_options options = {.server = fake_cluster_servers(x.cluster), .connect_ms = 200};
    for (uint32_t tries = 0; tries < 8 && strstr(error, says) == NULL; tries++) {
        assert_int_equal(mr_client_create(&options, &client, error, sizeof(error)), MR_UNREACHABLE);
        options.connect_ms *= 2; /* no answer in time: a busy machine gets more */
    }
    if (strstr(error, says) == NULL)
        fail_msg("%s", error);
    fixture_stop(&x);
}

/* The same keys, and some of them once more, as calls for several tables have them. */
static void check_calls_for_tables(struct fixture *x)
{
    const struct mr_table_keys tables[2] = {{.table = x->table, .keys = x->keys, .key_count = KEYS},
                                            {.table = x->table, .keys = x->keys, .key_count = KEYS / 2}};
    float gradients[KEYS * DIM];
    struct mr_table_gradients pushed = {tables[0], DIM, gradients};
    struct mr_reply *reply;
    for (uint32_t i = 0; i < KEYS * DIM; i++)
        gradients[i] = 1;
    for (uint32_t n = 0; n < NODES; n++)
        fake_cluster_grant_again(x->cluster, n);
    if (mr_lookup_tables(x->client, NULL, tables, 2, &reply) != MR_OK)
        fail_msg("%s", mr_last_error());
    check_reply(x, reply);
    assert_memory_equal(mr_reply_tensor(reply, 1)->data, mr_reply_tensor(reply, 0)->data,
                        KEYS / 2 * DIM * sizeof(float));
    mr_reply_free(reply);
    for (uint32_t n = 0; n < NODES; n++)
        fake_cluster_grant_again(x->cluster, n);
    for (uint32_t i = 0; i < KEYS; i++)
        x->expected[i] += 1;
    if (mr_push_gradients_tables(x->client, NULL, &pushed, 1) != MR_OK)
        fail_msg("%s", mr_last_error());
    check_rows(x);
}

/* Lookups, pushes with and without numbers, and batches are made again by the newer map, and applied once. */
static void check_refused_calls(bool replay)
{
    struct fixture x;
    struct mr_future *future;
    struct mr_reply *reply;
    cluster_start(&x, NULL, replay);
    push_all(&x, 1);
    for (uint32_t n = 0; n < NODES; n++)
        fake_cluster_grant_again(x.cluster, n);
    check_rows(&x);
    for (uint32_t n = 0; n < NODES; n++)
        fake_cluster_grant_again(x.cluster, n);
    push_all(&x, 2);
    check_rows(&x);
    fake_cluster_grant_again(x.cluster, 1);
    const struct mr_options later = {.future = &future};

    assert_int_equal(mr_lookup(x.client, &later, x.table, x.keys, KEYS, NULL), MR_OK);
    WAIT_UNTIL(mr_future_done(future));
    assert_int_equal(mr_future_wait(future, &reply), MR_OK);
    check_reply(&x, reply);
    mr_reply_free(reply);
    mr_future_destroy(future);
    for (uint32_t n = 0; n < NODES; n++)
        assert_true(atomic_load(&x.cluster->nodes[n]->refused) > 0);
    if (replay) { /* a part of a numbered push is refused, and no part is applied twice */
        fake_cluster_grant_again(x.cluster, 2);
        push_all(&x, 3);
        check_rows(&x);
    }
    check_calls_for_tables(&x);
    fixture_stop(&x);
}

TEST(test_refused_calls_are_made_again)
{
    check_refused_calls(false);
}

TEST(test_refused_calls_are_made_again_with_replay)
{
    check_refused_calls(true);
}

static struct mr_replay_info replay_info(const struct fixture *x)
{
    struct mr_replay_info info;
    mr_client_replay_info(x->client, &info);
    return info;
}

static uint64_t known_to(const struct fixture *x, uint32_t node)
{
    return atomic_load(&x->cluster->nodes[node]->known);
}

/* What is kept for partitions goes with them to their new owner, which knows it already, and new pushes after
 * it. Nodes whose partitions stay are sent nothing again. */
TEST(test_partitions_move)
{
    struct fixture x;
    cluster_start(&x, NULL, true);
    for (uint64_t step = 1; step <= 20; step++)
        push_all(&x, step);
    fake_cluster_swap(x.cluster, 0, 1);
    push_all(&x, 21);
    check_rows(&x);
    assert_true(known_to(&x, 0) > 0 && known_to(&x, 1) > 0);
    assert_int_equal(known_to(&x, 2), 0);
    assert_int_equal(replay_info(&x).dropped, 0);
    fake_cluster_swap(x.cluster, 1, 2);
    push_all(&x, 22);
    fake_cluster_swap(x.cluster, 0, 1); /* what was the first one's is the last one's now */
    push_all(&x, 23);
    check_rows(&x);
    fixture_stop(&x);
}

/* Pushes in flight when partitions move are applied once, by whichever owner. */
TEST(test_partitions_move_under_pushes)
{
    enum { STEPS = 60 };
    struct fixture x;
    struct mr_future *futures[STEPS];
    cluster_start(&x, NULL, true);
    for (uint32_t i = 0; i < STEPS; i++) {
        const struct mr_options options = {.step = i + 1, .future = &futures[i]};
        assert_int_equal(cluster_push(&x, &options, 0, KEYS), MR_OK);
        if (i % 7 == 3)
            fake_cluster_swap(x.cluster, i % 3, (i + 1) % 3);
    }
    for (uint32_t i = 0; i < STEPS; i++) {
        assert_int_equal(mr_future_wait(futures[i], NULL), MR_OK);
        mr_future_destroy(futures[i]);
    }
    check_rows(&x);
    assert_int_equal(replay_info(&x).dropped, 0);
    fixture_stop(&x);
}

/* A node that got partitions, and then comes back as of an earlier checkpoint, gets what was pushed for them
 * before they moved, too. */
TEST(test_the_new_owner_dies)
{
    struct fixture x;
    cluster_start(&x, NULL, true);
    for (uint64_t step = 1; step <= 5; step++)
        push_all(&x, step);
    x.cluster->nodes[1]->forgetful = true;
    fake_cluster_swap(x.cluster, 0, 1);
    fake_node_save(x.cluster->nodes[1]);
    for (uint64_t step = 6; step <= 10; step++)
        push_all(&x, step);
    fake_node_kill(x.cluster->nodes[1]);
    fake_node_restart(x.cluster->nodes[1]);
    push_all(&x, 11);
    check_rows(&x);
    fake_cluster_swap(x.cluster, 1, 2);
    push_all(&x, 12);
    check_rows(&x);
    fixture_stop(&x);
}

TEST(test_batches)
{
    struct fixture x;
    uint32_t offsets[KEYS + 1];
    float gradients[KEYS * DIM];
    bool applied = false;
    struct mr_reply *reply;
    cluster_start(&x, NULL, false);
    for (uint32_t i = 0; i <= KEYS; i++)
        offsets[i] = i;
    const struct mr_batch_keys keys = {
        .table = x.table, .samples = KEYS, .slots = 1, .keys = x.keys, .offsets = offsets};
    for (uint32_t n = 0; n < NODES; n++)
        fake_cluster_grant_again(x.cluster, n);
    assert_int_equal(mr_feed_sample(x.client, NULL, 1, &keys, 1, false), MR_OK);
    assert_int_equal(mr_lookup_batch(x.client, NULL, 1, x.table, &reply), MR_OK);
    check_reply(&x, reply);
    mr_reply_free(reply);
    struct mr_future *future;
    const struct mr_options later = {.future = &future};

    fake_cluster_grant_again(x.cluster, 1);
    assert_int_equal(mr_lookup_batch(x.client, &later, 1, x.table, NULL), MR_OK);
    if (mr_future_wait(future, &reply) != MR_OK) /* made again by the newer map */
        fail_msg("%s", mr_last_error());
    mr_future_destroy(future);
    check_reply(&x, reply);
    mr_reply_free(reply);
    for (uint32_t i = 0; i < KEYS * DIM; i++)
        gradients[i] = 1;
    for (uint32_t i = 0; i < KEYS; i++)
        x.expected[i] += 1;
    const struct mr_batch_gradient gradient = {.feature = x.table,
                                               .gradient = mr_tensor_3d(MR_F32, KEYS, 1, DIM, gradients)};
    assert_int_equal(mr_push_gradients_batch(x.client, NULL, 1, &gradient, 1, &applied), MR_OK);
    assert_true(applied);
    check_rows(&x);
    fixture_stop(&x);
}

/* The map says that a node has what another one had at first. */
static void cluster_give(struct fixture *x, uint32_t from, uint32_t to)
{
    atomic_store(&x->cluster->owner_of[from], to);
    atomic_fetch_add(&x->cluster->epoch, 1);
}

/* Calls to the others go on while a node is away; what it lacks is sent again once it is back. */
static void check_death(bool elsewhere)
{
    struct fixture x;
    struct mr_future *lookup = NULL, *late_push = NULL;
    cluster_start(&x, NULL, true);
    push_all(&x, 1);
    const uint64_t start_id = mr_client_start_id(x.client);
    fake_node_kill(x.cluster->nodes[1]);
    const uint32_t away = key_of(&x, 1), here = key_of(&x, 2);
    const struct mr_options asked = {.future = &lookup}, pushed = {.future = &late_push, .step = 2};

    assert_int_equal(cluster_push(&x, &pushed, away, away + 1), MR_OK);
    assert_int_equal(mr_lookup(x.client, &asked, x.table, x.keys, KEYS, NULL), MR_OK);
    for (uint64_t step = 3; step < 10; step++) {
        const struct mr_options options = {.step = step};
        assert_int_equal(cluster_push(&x, &options, here, here + 1), MR_OK);
        assert_int_equal(mr_lookup(x.client, NULL, x.table, x.keys + here, 1, NULL), MR_OK);
    }
    assert_false(mr_future_done(lookup) || mr_future_done(late_push));
    if (elsewhere)
        fake_cluster_restart_elsewhere(x.cluster, 1);
    else
        fake_node_restart(x.cluster->nodes[1]);
    assert_int_equal(mr_future_wait(late_push, NULL), MR_OK);
    assert_int_equal(mr_future_wait(lookup, NULL), MR_OK);
    mr_future_destroy(late_push);
    mr_future_destroy(lookup);
    push_all(&x, 10);
    check_rows(&x);
    struct mr_replay_info info;
    mr_client_replay_info(x.client, &info);
    assert_true(info.replayed > 0);
    assert_int_not_equal(mr_client_start_id(x.client), start_id);
    fixture_stop(&x);
}

TEST(test_a_node_dies_and_comes_back)
{
    check_death(false);
}

TEST(test_a_node_comes_back_elsewhere)
{
    check_death(true);
}

/* Another node may answer at a node's address, once the addresses have been handed out again. */
TEST(test_nodes_come_back_at_each_others_addresses)
{
    struct fixture x;
    cluster_start(&x, NULL, true);
    push_all(&x, 1);
    fake_node_kill(x.cluster->nodes[0]);
    fake_node_kill(x.cluster->nodes[2]);
    fake_cluster_restart_crosswise(x.cluster, 0, 2);
    push_all(&x, 2);
    check_rows(&x);
    assert_int_equal(replay_info(&x).dropped, 0);
    fixture_stop(&x);
}

/* What concerns the nodes that are there needs no others. */
TEST(test_a_client_begins_without_an_owner_that_is_away)
{
    struct fixture x;
    struct mr_client *client;
    struct mr_feature_info *infos;
    struct mr_reply *reply;
    struct mr_core_state states[CORES];
    char error[512] = "";
    uint32_t count;
    cluster_start(&x, NULL, false);
    push_all(&x, 1);
    atomic_store(&x.cluster->away[2], true);
    fake_node_kill(x.cluster->nodes[2]);
    const struct mr_client_options options = {.server = fake_cluster_servers(x.cluster),
                                              .deadline_ms = 60000};
    if (mr_client_create(&options, &client, error, sizeof(error)) != MR_OK)
        fail_msg("%s", error);
    assert_int_equal(mr_client_core_count(client), CORES); /* its keys are its own */
    assert_int_equal(mr_list(client, NULL, &infos, &count), MR_OK);
    assert_int_equal(count, 1);
    free(infos);
    assert_int_equal(mr_freeze(client, NULL, MR_FREEZE_OFF), MR_OK);
    assert_int_equal(mr_lookup(client, NULL, x.table, &x.keys[key_of(&x, 0)], 1, &reply), MR_OK);
    mr_reply_free(reply);
    const struct mr_options brief = {.deadline_ms = 100};
    WAIT_UNTIL((void)mr_heartbeat(client, &brief, states), states[0].state == MR_NODE_SERVING);
    assert_int_equal(states[CORES - 1].state, 0);

    fake_node_restart(x.cluster->nodes[2]); /* it is found again */
    fake_cluster_grant_again(x.cluster, 2);
    atomic_store(&x.cluster->away[2], false);
    assert_int_equal(mr_lookup(client, NULL, x.table, &x.keys[key_of(&x, 2)], 1, &reply), MR_OK);
    mr_reply_free(reply);
    mr_client_destroy(client);
    fixture_stop(&x);
}

/* Calls that any node takes go to one that is there. */
TEST(test_control_calls_go_to_a_node_that_answers)
{
    struct fixture x;
    struct mr_checkpoint_info status = {.bytes = sizeof(status)};
    cluster_start(&x, NULL, false);
    fake_node_kill(x.cluster->nodes[0]);
    const struct mr_options brief = {.deadline_ms = 100};
    /* ends when the client has noticed that the node is away */
    WAIT_UNTIL(mr_checkpoint_info(x.client, &brief, 0, &status, NULL, NULL) == MR_OK);
    assert_int_equal(mr_freeze(x.client, NULL, MR_FREEZE_OFF), MR_OK);
    fixture_stop(&x);
}

/* Not known to be dead yet when the call is sent to it, and the cluster does without it then. */
TEST(test_a_control_call_goes_to_another_node)
{
    struct fixture x;
    struct mr_checkpoint_info status = {.bytes = sizeof(status)};
    cluster_start(&x, NULL, false);
    fake_node_kill(x.cluster->nodes[0]);
    cluster_give(&x, 0, 1);
    if (mr_checkpoint_info(x.client, NULL, 0, &status, NULL, NULL) != MR_OK)
        fail_msg("%s", mr_last_error());
    fixture_stop(&x);
}

/* A call that is to be made again waits for the new owner, which is away, and so does whoever waits for the
 * call, but not for longer than he wants. */
TEST(test_a_wait_is_as_long_as_asked)
{
    struct fixture x;
    struct mr_future *lookup = NULL;
    cluster_start(&x, NULL, true);
    push_all(&x, 1);
    const struct mr_options asked = {.future = &lookup};
    const uint32_t moved = key_of(&x, 2);

    fake_node_kill(x.cluster->nodes[1]);
    cluster_give(&x, 2, 1);
    assert_int_equal(mr_lookup(x.client, &asked, x.table, x.keys + moved, 1, NULL), MR_OK);
    const uint64_t before_us = mr_clock_us();
    while (mr_clock_us() - before_us < 1000000)
        assert_false(mr_future_wait_for(lookup, 20) || mr_future_done(lookup));
    assert_true(mr_clock_us() - before_us < 30000000); /* the call's deadline is 60 s */
    fake_node_restart(x.cluster->nodes[1]);
    future_wait_by_notice(x.client, lookup);
    assert_int_equal(mr_future_wait(lookup, NULL), MR_OK);
    mr_future_destroy(lookup);
    fixture_stop(&x);
}

/* An answer that comes after the lease is not believed: the push is sent again, and found to be applied. */
TEST(test_late_answers_are_not_believed)
{
    struct fixture x;
    struct mr_future *future;
    cluster_start(&x, NULL, true);
    push_all(&x, 1);
    const uint64_t lease_us = 100000;
    atomic_store(&x.cluster->lease_us, lease_us);
    fake_cluster_grant_again(x.cluster, 0); /* so that the client reads the map */
    check_rows(&x);
    struct fake_node *node = x.cluster->nodes[2];
    const uint32_t here = key_of(&x, 2);
    const uint64_t applied = atomic_load(&node->applied), known = atomic_load(&node->known);
    const struct mr_options options = {.step = 2, .future = &future};

    atomic_store(&node->late, 1);
    assert_int_equal(cluster_push(&x, &options, here, here + 1), MR_OK);
    while (atomic_load(&node->applied) == applied)
        mr_client_progress(x.client);
    const uint64_t until_us = mr_clock_us() + 2 * lease_us;
    while (mr_clock_us() < until_us)
        mr_client_progress(x.client);
    atomic_store(&node->late, 0);
    assert_int_equal(mr_future_wait(future, NULL), MR_OK);
    mr_future_destroy(future);
    assert_int_equal(atomic_load(&node->applied), applied + 1);
    assert_true(atomic_load(&node->known) > known);
    check_rows(&x);
    fixture_stop(&x);
}

struct seen {
    uint32_t count, partitions;
    bool has_copies;
};

static void see(void *arg, const struct mr_cluster_member *node)
{
    struct seen *seen = arg;
    assert_non_null(strstr(node->address, "127.0.0.1:"));
    assert_int_equal(node->core_count, seen->count % 2 + 1);
    assert_int_equal(node->backups, seen->has_copies ? 10 * seen->count : 0);
    assert_int_equal(node->uncopied, seen->has_copies ? seen->count : 0);
    seen->count++;
    seen->partitions += node->partitions;
}

/* Nodes read the map one after the other: what is shown after a move is not older than its answer. */
TEST(test_the_cluster_is_shown_as_of_the_last_move)
{
    struct fixture x;
    struct mr_cluster_state told;
    const struct mr_move_request drain = {.kind = MR_REQUEST_DRAIN, .from = "a"};
    const struct mr_options brief = {.deadline_ms = 50};
    cluster_start(&x, NULL, false);
    const uint64_t epoch = atomic_load(&x.cluster->epoch);
    assert_int_equal(mr_move(x.client, NULL, &drain), MR_OK);
    enum mr_status status = MR_OK; /* a machine that stands still may end it without an answer */
    for (uint32_t tries = 0; tries < TRIES_MAX && status != MR_BUSY; tries++) {
        status = mr_cluster(x.client, &brief, &told, NULL, NULL);
        assert_int_not_equal(status, MR_OK);
    }
    assert_int_equal(status, MR_BUSY);
    assert_non_null(strstr(mr_last_error(), "this client's last change is in epoch"));
    atomic_store(&x.cluster->epoch, epoch + 1);
    assert_int_equal(mr_cluster(x.client, NULL, &told, NULL, NULL), MR_OK);
    assert_int_equal(told.epoch, epoch + 1);
    fixture_stop(&x);
}

TEST(test_the_cluster_is_told_by_any_node)
{
    struct fixture x;
    struct mr_cluster_state told;
    struct seen seen = {.count = 0};
    cluster_start(&x, NULL, false);
    assert_int_equal(mr_cluster(x.client, NULL, &told, see, &seen), MR_OK);
    assert_true(told.is_member);
    assert_int_equal(told.epoch, 5);
    assert_int_equal(told.node_count, NODES);
    assert_int_equal(told.without_owner, 0);
    assert_int_equal(seen.count, NODES);
    assert_int_equal(seen.partitions, MR_PARTITION_COUNT);
    assert_false(told.has_copies || told.answers_wait);
    seen = (struct seen){.has_copies = true};
    atomic_store(&x.cluster->has_copies, true);
    assert_int_equal(mr_cluster(x.client, NULL, &told, see, &seen), MR_OK);
    assert_true(told.has_copies && told.answers_wait);
    assert_int_equal(mr_cluster(x.client, NULL, NULL, NULL, NULL), MR_INVALID_ARGUMENT);

    /* somebody who only asks needs one of them */
    const struct mr_client_options options = {
        .server = fake_cluster_servers(x.cluster), .deadline_ms = 60000, .any_node = true};
    struct mr_client *other;
    char error[512] = "";
    fake_node_kill(x.cluster->nodes[0]);
    fake_node_kill(x.cluster->nodes[1]);
    assert_int_equal(mr_client_create(&options, &other, error, sizeof(error)), MR_OK);
    assert_int_equal(mr_cluster(other, NULL, &told, NULL, NULL), MR_OK);
    assert_int_equal(told.self, 2);
    mr_client_destroy(other);

    /* also before there is a map */
    atomic_store(&x.cluster->epoch, 0);
    assert_int_equal(mr_client_create(&options, &other, error, sizeof(error)), MR_OK);
    assert_int_equal(mr_client_core_count(other), 1);
    assert_int_equal(mr_cluster(other, NULL, &told, NULL, NULL), MR_OK);
    assert_int_equal(told.epoch, 0);
    mr_client_destroy(other);
    fixture_stop(&x);
}

static void count_member(void *arg, const struct mr_cluster_member *node)
{
    uint32_t *partitions = arg;
    *partitions += node->partitions;
}

/* The last of the nodes has a number that owners of fewer nodes do not have. */
TEST(test_a_cluster_of_256_nodes)
{
    struct fixture x;
    struct mr_cluster_state told;
    uint32_t partitions = 0;
    start_among(MR_CLUSTER_NODES_MAX - NODES, &x, NULL, true);
    assert_int_equal(mr_client_core_count(x.client), CORES);
    push_all(&x, 1);
    check_rows(&x);
    assert_int_equal(mr_cluster(x.client, NULL, &told, count_member, &partitions), MR_OK);
    assert_int_equal(told.node_count, MR_CLUSTER_NODES_MAX);
    assert_true(told.self >= MR_CLUSTER_NODES_MAX - NODES && told.self < MR_CLUSTER_NODES_MAX);
    assert_int_equal(partitions, MR_PARTITION_COUNT);
    fake_cluster_swap(x.cluster, 0, 2);
    push_all(&x, 2);
    check_rows(&x);
    fixture_stop(&x);
}

/* Its answer was on the way when another node told the map by which it owns nothing: nobody will ask it, and
 * callers must not wait until somebody has. */
TEST(test_a_node_that_has_left_refuses_a_call)
{
    struct fixture x;
    cluster_start(&x, NULL, false);
    pthread_mutex_lock(&x.client->lock);
    mrc_cluster_refused(x.client->nodes[1]);
    assert_false(mrc_cluster_is_settled(x.client));
    mrc_node_leave(x.client->nodes[1]);
    assert_true(mrc_cluster_is_settled(x.client));
    mrc_cluster_refused(x.client->nodes[1]);
    assert_true(mrc_cluster_is_settled(x.client));
    pthread_mutex_unlock(&x.client->lock);
    fixture_stop(&x);
}

/* Reads the map as a thread does that sends a call while nobody drives the client: it takes what has come,
 * and does nothing else. */
static void read_map_beside(struct fixture *x)
{
    struct mr_client *client = x->client;
    pthread_mutex_lock(&client->lock);
    const uint64_t epoch = client->cluster.epoch;
    client->nodes[0]->stale = true;
    mrc_nodes_poll(client);
    while (client->cluster.epoch == epoch) {
        mrc_link_poll(client->nodes[0]->links[0], mr_clock_us());
        (void)mrc_link_receive(client->nodes[0]->links[0]);
        mrc_link_process(client->nodes[0]->links[0], mr_clock_us());
    }
    pthread_mutex_unlock(&client->lock);
}

/* A client learns of another node while a call is being made that is for all of them. */
static struct fixture *grows;
static uint32_t parts_of_last;
enum mr_status __real_mrc_future_new(struct mr_client *client, const struct mr_options *options,
                                     enum mr_op op, uint32_t feature, uint32_t part_count,
                                     uint32_t tensors_each, size_t context_bytes, struct mr_future **out);
enum mr_status __wrap_mrc_future_new(struct mr_client *client, const struct mr_options *options,
                                     enum mr_op op, uint32_t feature, uint32_t part_count,
                                     uint32_t tensors_each, size_t context_bytes, struct mr_future **out);
enum mr_status __wrap_mrc_future_new(struct mr_client *client, const struct mr_options *options,
                                     enum mr_op op, uint32_t feature, uint32_t part_count,
                                     uint32_t tensors_each, size_t context_bytes, struct mr_future **out)
{
    struct fixture *x = grows;
    if (op != MR_OP_NODE_INFO)
        parts_of_last = part_count;
    grows = NULL;
    if (x != NULL) {
        cluster_give(x, 2, 2);
        read_map_beside(x);
    }
    return __real_mrc_future_new(client, options, op, feature, part_count, tensors_each, context_bytes, out);
}

static void begin_with_two(struct fixture *x)
{
    cluster_give(x, 2, 1);
    read_map_beside(x);
    assert_int_equal(mr_client_core_count(x->client), CORES - 1);
    grows = x;
}

TEST(test_calls_for_all_nodes_ask_those_that_have_just_come)
{
    struct fixture x;
    uint64_t watermark, *bitmap;
    uint32_t words, count;
    const uint32_t stream = 7;
    struct mr_stream *streams;
    cluster_start(&x, NULL, false);
    begin_with_two(&x);
    assert_int_equal(mr_batch_state(x.client, NULL, stream, &watermark, &bitmap, &words), MR_OK);
    assert_int_equal(parts_of_last, CORES);
    free(bitmap);
    begin_with_two(&x);
    assert_int_equal(mr_streams(x.client, NULL, &streams, &count), MR_OK);
    assert_int_equal(parts_of_last, CORES);
    free(streams);
    begin_with_two(&x);
    assert_int_equal(mr_forget_streams(x.client, NULL, &stream, 1), MR_OK);
    assert_int_equal(parts_of_last, CORES);
    fixture_stop(&x);
}

/* Calls may be split by a new list of owners from the moment that it is there: each of them has a link. */
TEST(test_owners_have_links_at_once)
{
    struct fixture x;
    cluster_start(&x, NULL, true);
    push_all(&x, 1);
    cluster_give(&x, 1, 0);
    read_map_beside(&x);
    pthread_mutex_lock(&x.client->lock);
    mrc_nodes_poll(x.client); /* closes the links to the node that owns nothing */
    assert_null(x.client->nodes[1]->links[0]->session);
    pthread_mutex_unlock(&x.client->lock);
    cluster_give(&x, 1, 1);
    read_map_beside(&x);
    pthread_mutex_lock(&x.client->lock);
    for (uint32_t i = 0; i < x.client->shard_map->count; i++) {
        const struct mrc_link *link = mrc_shard_map_link(x.client, i);
        assert_non_null(link);
        assert_non_null(link->session);
    }
    pthread_mutex_unlock(&x.client->lock);
    fixture_stop(&x);
}
