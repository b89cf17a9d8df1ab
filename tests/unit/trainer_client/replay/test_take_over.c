/* Partitions of a node that died, or was cut off, are others' from a checkpoint on: what the client has
 * pushed since is sent again to the new owners, and each row has each push once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/unit/trainer_client/fake_cluster.h"
#include "tests/wait.h"
#include "trainer_client/call/client.h"
#include "trainer_client/millrace.h"
#include "trainer_client/millrace_admin.h"
#include "trainer_client/millrace_observe.h"
#include "trainer_client/replay/replay_hooks.h"

enum { DIM = 2, KEYS = 60, NODES = 3 };

struct fixture {
    struct fake_cluster *cluster;
    struct mr_client *client;
    uint32_t table;
    uint64_t keys[KEYS];
    float expected[KEYS]; /* subtracted from each row so far */
    uint64_t step;
};

static void fixture_start(struct fixture *x, uint32_t replay_bytes)
{
    struct mr_feature feature = mr_feature_table("t", DIM);
    char error[512] = "";
    memset(x, 0, sizeof(*x));
    x->cluster = fake_cluster_start(NODES, &feature);
    const struct mr_client_options options = {.server = fake_cluster_servers(x->cluster),
                                              .deadline_ms = 60000,
                                              .replay = true,
                                              .replay_bytes = replay_bytes};
    if (mr_client_create(&options, &x->client, error, sizeof(error)) != MR_OK)
        fail_msg("%s", error);
    for (uint32_t i = 0; i < KEYS; i++)
        x->keys[i] = i * 7919u;
    assert_int_equal(mr_create(x->client, NULL, &feature, 1, &x->table), MR_OK);
}

static void fixture_stop(struct fixture *x)
{
    mr_client_destroy(x->client);
    fake_cluster_destroy(x->cluster);
}

static uint32_t group_of(const struct fixture *x, uint64_t key)
{
    const struct mr_feature *table = &x->cluster->nodes[0]->table->feature;
    return mr_partition_of(mr_key_hash(key, table->seed)) * 7 % NODES;
}

/* Pushes 1 to the keys of these groups (a bit for each). */
static enum mr_status push_groups(struct fixture *x, uint32_t groups, struct mr_future **future)
{
    float gradients[KEYS * DIM];
    uint64_t keys[KEYS];
    uint32_t count = 0;
    const struct mr_options options = {.step = ++x->step, .future = future};
    for (uint32_t i = 0; i < KEYS * DIM; i++)
        gradients[i] = 1;
    for (uint32_t i = 0; i < KEYS; i++) {
        if ((groups >> group_of(x, x->keys[i]) & 1) == 0)
            continue;
        keys[count++] = x->keys[i];
        x->expected[i] += 1;
    }
    return mr_push_gradients(x->client, &options, x->table, keys, count, DIM, gradients);
}

static void push(struct fixture *x, uint32_t times)
{
    for (uint32_t i = 0; i < times; i++)
        if (push_groups(x, 7, NULL) != MR_OK)
            fail_msg("%s", mr_last_error());
}

static void check_reply(const struct fixture *x, struct mr_reply *reply)
{
    const float *rows = mr_reply_tensor(reply, 0)->data;
    for (uint32_t i = 0; i < KEYS; i++)
        for (uint32_t d = 0; d < DIM; d++)
            if (rows[i * DIM + d] != fake_initial(x->keys[i], d) - x->expected[i])
                fail_msg("key %u of group %u: %g pushes, not %g", i, group_of(x, x->keys[i]),
                         (double)(fake_initial(x->keys[i], d) - rows[i * DIM + d]), (double)x->expected[i]);
    mr_reply_free(reply);
}

static void check_rows(const struct fixture *x)
{
    struct mr_reply *reply;
    if (mr_lookup(x->client, NULL, x->table, x->keys, KEYS, &reply) != MR_OK)
        fail_msg("%s", mr_last_error());
    check_reply(x, reply);
}

static struct mr_replay_info replay_info(const struct fixture *x)
{
    struct mr_replay_info info;
    mr_client_replay_info(x->client, &info);
    return info;
}

/* The node's groups go to others from the checkpoint, which they load at once. */
static void take_over(struct fixture *x, uint32_t dead, const uint32_t heirs[NODES])
{
    for (uint32_t g = 0; g < NODES; g++) {
        if (atomic_load(&x->cluster->owner_of[g]) != dead)
            continue;
        fake_cluster_take_over(x->cluster, g, heirs[g]);
        fake_cluster_load(x->cluster, g);
    }
}

static void kill_and_take_over(struct fixture *x, uint32_t dead, uint32_t heir)
{
    const uint32_t heirs[NODES] = {heir, heir, heir};
    fake_node_kill(x->cluster->nodes[dead]);
    take_over(x, dead, heirs);
}

/* What the checkpoint lacks comes to the heir from the client, once; new pushes follow. */
static void test_kept_pushes_go_to_the_heir(void **state)
{
    (void)state;
    for (uint32_t dead = 0; dead < NODES; dead++) {
        struct fixture x;
        fixture_start(&x, 0);
        push(&x, 5);
        fake_cluster_save(x.cluster);
        push(&x, 7);
        kill_and_take_over(&x, dead, (dead + 1) % NODES);
        check_rows(&x);
        push(&x, 3);
        check_rows(&x);
        assert_true(replay_info(&x).replayed >= 7);
        assert_int_equal(replay_info(&x).dropped, 0);
        assert_int_equal(mr_client_core_count(x.client), 1 + 2 + 1 - (dead % 2 + 1));
        fixture_stop(&x);
    }
}

/* There was no checkpoint, and each key's owner begins with nothing. */
static void test_without_a_checkpoint_all_is_sent_again(void **state)
{
    struct fixture x;
    (void)state;
    fixture_start(&x, 0);
    push(&x, 9);
    kill_and_take_over(&x, 1, 2);
    check_rows(&x);
    fixture_stop(&x);
}

/* Pushes that were in flight to the dead node, and lookups, end once the new owner has all before them. */
static void test_calls_in_flight_wait_for_the_heir(void **state)
{
    enum { PUSHES = 6 };
    struct fixture x;
    struct mr_future *pushes[PUSHES], *lookup;
    struct mr_reply *reply;
    const struct mr_options later = {.future = &lookup};
    (void)state;
    fixture_start(&x, 0);
    push(&x, 4);
    fake_cluster_save(x.cluster);
    push(&x, 4);
    fake_node_kill(x.cluster->nodes[0]);
    for (uint32_t i = 0; i < PUSHES; i++)
        assert_int_equal(push_groups(&x, 7, &pushes[i]), MR_OK);
    assert_int_equal(mr_lookup(x.client, &later, x.table, x.keys, KEYS, NULL), MR_OK);
    fake_cluster_take_over(x.cluster, 0, 1);
    while (mr_client_core_count(x.client) != 3) /* until the client has the new map */
        (void)mr_client_progress(x.client);
    const uint64_t waited = atomic_load(&x.cluster->nodes[1]->waited);
    while (atomic_load(&x.cluster->nodes[1]->waited) < waited + 3) /* the heir has not loaded yet */
        assert_false(mr_future_done(lookup));
    fake_cluster_load(x.cluster, 0);
    for (uint32_t i = 0; i < PUSHES; i++) {
        if (mr_future_wait(pushes[i], NULL) != MR_OK)
            fail_msg("%s", mr_last_error());
        mr_future_destroy(pushes[i]);
    }
    assert_int_equal(mr_future_wait(lookup, &reply), MR_OK);
    check_reply(&x, reply);
    mr_future_destroy(lookup);
    check_rows(&x);
    fixture_stop(&x);
}

/* A partition that was somebody else's for a while, who had it from the checkpoint, is not what it was,
 * though its owner has neither changed nor been restarted as far as the client can see. */
static void test_an_owner_that_was_cut_off_meanwhile(void **state)
{
    struct fixture x;
    (void)state;
    fixture_start(&x, 0);
    for (uint32_t times = 0; times < 2; times++) {
        check_rows(&x);
        push(&x, 3);
        fake_cluster_save(x.cluster);
        push(&x, 5);
        assert_int_equal(atomic_load(&x.cluster->nodes[0]->unseen), 5 * times);
        fake_cluster_take_over(x.cluster, 0, 2);
        fake_cluster_load(x.cluster, 0);
        fake_cluster_move(x.cluster, 0, 0);
        check_rows(&x);
    }
    push(&x, 2);
    check_rows(&x);
    fixture_stop(&x);
}

/* It moved while both served, shortly before its new owner died; the client may have seen that or not. */
static void test_what_had_moved_before(void **state)
{
    (void)state;
    for (uint32_t seen = 0; seen < 2; seen++) {
        struct fixture x;
        fixture_start(&x, 0);
        push(&x, 3);
        fake_cluster_save(x.cluster);
        push(&x, 5);
        fake_cluster_move(x.cluster, 0, 1);
        if (seen != 0)
            push(&x, 4);
        kill_and_take_over(&x, 1, 2); /* with what was its own */
        check_rows(&x);
        push(&x, 2);
        check_rows(&x);
        fixture_stop(&x);
    }
}

/* Two nodes die one after the other, before there is another checkpoint. */
static void test_two_take_overs(void **state)
{
    (void)state;
    for (uint32_t seen = 0; seen < 2; seen++) {
        struct fixture x;
        fixture_start(&x, 0);
        push(&x, 3);
        fake_cluster_save(x.cluster);
        push(&x, 5);
        kill_and_take_over(&x, 0, 1);
        if (seen != 0)
            push(&x, 4);
        kill_and_take_over(&x, 1, 2);
        check_rows(&x);
        push(&x, 2);
        check_rows(&x);
        assert_int_equal(mr_client_core_count(x.client), 1);
        fixture_stop(&x);
    }
}

/* It comes back under its name, and owns nothing; later it gets partitions like any other. */
static void test_the_dead_node_comes_back(void **state)
{
    (void)state;
    for (uint32_t seen = 0; seen < 2; seen++) {
        struct fixture x;
        fixture_start(&x, 0);
        push(&x, 3);
        fake_cluster_save(x.cluster);
        push(&x, 5);
        kill_and_take_over(&x, 0, 1);
        if (seen != 0)
            push(&x, 1);
        fake_cluster_restart(x.cluster, 0);
        if (seen != 0)
            push(&x, 1);
        fake_cluster_move(x.cluster, 0, 0);
        check_rows(&x);
        push(&x, 2);
        fake_cluster_save(x.cluster);
        push(&x, 1);
        check_rows(&x);
        fixture_stop(&x);
    }
}

/* It is drained, and its next start loads no checkpoint: that is no older copy of its directory. */
static void test_a_drained_node_lacks_nothing(void **state)
{
    struct fixture x;
    (void)state;
    fixture_start(&x, 0);
    push(&x, 3);
    fake_cluster_save(x.cluster);
    push(&x, 2);
    fake_cluster_move(x.cluster, 0, 1);
    push(&x, 2);
    fake_node_kill(x.cluster->nodes[0]);
    x.cluster->nodes[0]->origin = (struct fake_origin){.checkpoint = 0};
    fake_cluster_restart(x.cluster, 0);
    fake_cluster_move(x.cluster, 0, 0);
    push(&x, 2);
    check_rows(&x);
    uint32_t judged = 0;
    for (uint32_t i = 0; i < x.client->node_count; i++) {
        const struct mrc_node *node = x.client->nodes[i];
        if (node->start_id != x.cluster->nodes[0]->start_id)
            continue;
        judged++;
        assert_true(mrc_ancestry_knows(&node->replay->ancestry, node->start_id));
        assert_false(mrc_ancestry_lacks(&node->replay->ancestry, node->start_id));
    }
    assert_int_equal(judged, 1);
    fixture_stop(&x);
}

static void check_reported(struct fixture *x)
{
    const struct mr_options options = {.step = 1000};
    float gradients[DIM] = {0};
    assert_int_equal(mr_push_gradients(x->client, &options, x->table, x->keys, 1, DIM, gradients),
                     MR_UNKNOWN_OUTCOME);
    if (strstr(mr_last_error(), "may lack up to") == NULL || strstr(mr_last_error(), "replay_bytes") == NULL)
        fail_msg("%s", mr_last_error());
    assert_int_equal(mr_push_gradients(x->client, &options, x->table, x->keys, 1, DIM, gradients), MR_OK);
}

static void check_not_reported(struct fixture *x)
{
    const struct mr_options options = {.step = 1000};
    float gradients[DIM] = {0};
    if (mr_push_gradients(x->client, &options, x->table, x->keys, 1, DIM, gradients) != MR_OK)
        fail_msg("%s", mr_last_error());
}

/* What the buffer had no room for, and the checkpoint lacks, is lost: that is said once. What is in the
 * checkpoint is not, and neither is what its owner has all the same. */
static void test_what_was_given_up_is_reported(void **state)
{
    (void)state;
    for (uint32_t moved = 0; moved < 2; moved++) {
        struct fixture x;
        fixture_start(&x, 8192);
        push(&x, 60);
        assert_true(replay_info(&x).given_up > 0);
        if (moved != 0) { /* the stream is closed, and of two owners then */
            fake_cluster_move(x.cluster, 0, 2);
            push(&x, 1);
        }
        kill_and_take_over(&x, moved != 0 ? 2 : 0, 1);
        assert_int_equal(mr_lookup(x.client, NULL, x.table, x.keys, KEYS, NULL), MR_OK);
        check_reported(&x);
        check_not_reported(&x);
        fixture_stop(&x);
    }
}

static void test_what_was_given_up_and_saved_is_no_loss(void **state)
{
    struct fixture x;
    (void)state;
    fixture_start(&x, 8192);
    push(&x, 60);
    assert_true(replay_info(&x).given_up > 0);
    fake_cluster_save(x.cluster);
    kill_and_take_over(&x, 0, 1);
    check_rows(&x);
    check_not_reported(&x);
    fixture_stop(&x);
}

/* What another node has is not asked for, whatever was given up of it. */
static void test_what_stays_where_it_is_is_no_loss(void **state)
{
    struct fixture x;
    (void)state;
    fixture_start(&x, 8192);
    for (uint32_t i = 0; i < 100; i++)
        assert_int_equal(push_groups(&x, 2, NULL), MR_OK); /* of node 1 only */
    assert_true(replay_info(&x).given_up > 0);
    kill_and_take_over(&x, 0, 2);
    check_rows(&x);
    check_not_reported(&x);
    fixture_stop(&x);
}

/* The heir has not seen the lookups that came before the pushes: they say so (tables that count
 * observations). After a live move it has. */
static void test_the_heir_has_not_seen_the_lookups(void **state)
{
    (void)state;
    for (uint32_t dies = 0; dies < 2; dies++) {
        struct fixture x;
        fixture_start(&x, 0);
        check_rows(&x);
        fake_cluster_save(x.cluster);
        push(&x, 3);
        if (dies != 0)
            kill_and_take_over(&x, 0, 1);
        else
            fake_cluster_move(x.cluster, 0, 1);
        check_rows(&x);
        assert_int_equal(atomic_load(&x.cluster->nodes[1]->unseen) > 0, dies);
        assert_int_equal(atomic_load(&x.cluster->nodes[2]->unseen), 0);
        fixture_stop(&x);
    }
}

/* A node without a lease is there, and answers nothing: others say who has its partitions, though no call
 * goes to them. */
static void test_a_node_without_a_lease_is_not_waited_for(void **state)
{
    struct fixture x;
    (void)state;
    fixture_start(&x, 0);
    push(&x, 3);
    fake_cluster_save(x.cluster);
    push(&x, 3);
    atomic_store(&x.cluster->nodes[0]->is_without_lease, true);
    atomic_store(&x.cluster->nodes[0]->tells_epoch, atomic_load(&x.cluster->epoch));
    struct mr_future *future = NULL;
    assert_int_equal(push_groups(&x, 1, &future), MR_OK);
    fake_cluster_take_over(x.cluster, 0, 1);
    fake_cluster_load(x.cluster, 0);
    if (mr_future_wait(future, NULL) != MR_OK) /* within 60 s, for which it would be refused otherwise */
        fail_msg("%s", mr_last_error());
    mr_future_destroy(future);
    check_rows(&x);
    fixture_stop(&x);
}

/* Clients that begin now, saves, features and states of cores do without the dead node. */
static void test_nothing_else_waits_for_the_dead_node(void **state)
{
    struct fixture x;
    struct mr_client *client = NULL;
    struct mr_core_state states[3];
    struct mr_feature_info *infos;
    struct mr_feature feature = mr_feature_table("t", DIM);
    const struct mr_options options = {.deadline_ms = 20000};
    const struct mr_save_options save = {.bytes = sizeof(save), .directory = "/dir"};
    uint32_t count, id;
    char error[512] = "";
    (void)state;
    fixture_start(&x, 0);
    push(&x, 3);
    fake_cluster_save(x.cluster);
    push(&x, 3);
    fake_node_kill(x.cluster->nodes[0]);
    fake_cluster_take_over(x.cluster, 0, 1);
    fake_cluster_load(x.cluster, 0);
    if (mr_save(x.client, &options, &save, NULL, NULL) != MR_OK) /* once all pushes are there */
        fail_msg("%s", mr_last_error());
    assert_false(replay_info(&x).replaying);
    assert_int_equal(mr_client_core_count(x.client), 3);
    assert_int_equal(mr_heartbeat(x.client, &options, states), MR_OK);
    assert_int_equal(mr_create(x.client, &options, &feature, 1, &id), MR_OK);
    assert_int_equal(mr_list(x.client, &options, &infos, &count), MR_OK);
    free(infos);
    const struct mr_client_options another = {.server = fake_cluster_servers(x.cluster), .connect_ms = 20000};
    if (mr_client_create(&another, &client, error, sizeof(error)) != MR_OK)
        fail_msg("%s", error);
    assert_int_equal(mr_client_core_count(client), 3);
    mr_client_destroy(client);
    check_rows(&x);
    fixture_stop(&x);
}

/* Whoever goes by the sum of starts, as the hub does, notices a take-over that changes no node. */
static void test_the_start_id_changes(void **state)
{
    struct fixture x;
    (void)state;
    fixture_start(&x, 0);
    const uint64_t before = mr_client_start_id(x.client);
    fake_cluster_take_over(x.cluster, 0, 2);
    fake_cluster_load(x.cluster, 0);
    fake_cluster_move(x.cluster, 0, 0);
    check_rows(&x);
    assert_true(mr_client_start_id(x.client) != before);
    const uint64_t now = mr_client_start_id(x.client);
    fake_cluster_move(x.cluster, 0, 2); /* not quite: the owner had another one before */
    fake_cluster_move(x.cluster, 0, 0);
    check_rows(&x);
    assert_true(mr_client_start_id(x.client) == now);
    fixture_stop(&x);
}

/* ---- at random ---- */

enum { SEEDS = 3, STEPS = 60 };

static uint64_t random_state;

static uint32_t draw(uint32_t below)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random_state >> 33) % below;
}

static uint32_t owner_of(const struct fixture *x, uint32_t group)
{
    return atomic_load(&x->cluster->owner_of[group]);
}

/* A group goes to any node but this one and those that are dead. */
static uint32_t draw_heir(const struct fixture *x, uint32_t but, const bool *is_dead)
{
    uint32_t heir = draw(NODES);
    while (heir == but || is_dead[heir])
        heir = (heir + 1) % NODES;
    (void)x;
    return heir;
}

/* All that the node has goes to others. Pushes are in flight meanwhile. */
static void lose_node(struct fixture *x, uint32_t node, bool *is_dead)
{
    struct mr_future *futures[4] = {NULL};
    const uint32_t in_flight = draw(5);
    if (is_dead[node])
        fake_node_kill(x->cluster->nodes[node]);
    for (uint32_t i = 0; i < in_flight; i++)
        if (push_groups(x, 1 + draw(7), &futures[i]) != MR_OK)
            fail_msg("%s", mr_last_error());
    for (uint32_t g = 0; g < NODES; g++)
        if (owner_of(x, g) == node)
            fake_cluster_take_over(x->cluster, g, draw_heir(x, node, is_dead));
    for (uint32_t g = 0; g < NODES; g++)
        if (atomic_load(&x->cluster->is_loading[g]))
            fake_cluster_load(x->cluster, g);
    for (uint32_t i = 0; i < in_flight; i++) {
        if (mr_future_wait(futures[i], NULL) != MR_OK)
            fail_msg("%s", mr_last_error());
        mr_future_destroy(futures[i]);
    }
}

static void random_step(struct fixture *x, bool *is_dead)
{
    const uint32_t node = draw(NODES), group = draw(NODES);
    const bool is_any_dead = is_dead[0] || is_dead[1] || is_dead[2];
    switch (draw(12)) {
    case 0: /* it is cut off, and does not know */
        if (!is_dead[node])
            lose_node(x, node, is_dead);
        break;
    case 1:
        if (draw(4) == 0 && !is_any_dead) {
            is_dead[node] = true;
            lose_node(x, node, is_dead);
        }
        break;
    case 2:
        if (is_dead[node])
            fake_cluster_restart(x->cluster, node);
        is_dead[node] = false;
        break;
    case 3:
        fake_cluster_move(x->cluster, group, draw_heir(x, NODES, is_dead));
        break;
    case 4:
        fake_cluster_save(x->cluster);
        break;
    case 5:
        check_rows(x);
        break;
    default:
        if (push_groups(x, 1 + draw(7), NULL) != MR_OK)
            fail_msg("%s", mr_last_error());
    }
}

static void test_random_losses(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        bool is_dead[NODES] = {false};
        struct fixture x;
        random_state = seed;
        fixture_start(&x, 0);
        for (uint32_t step = 0; step < STEPS; step++)
            random_step(&x, is_dead);
        check_rows(&x);
        assert_int_equal(replay_info(&x).dropped, 0);
        fixture_stop(&x);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept_pushes_go_to_the_heir),
        cmocka_unit_test(test_without_a_checkpoint_all_is_sent_again),
        cmocka_unit_test(test_calls_in_flight_wait_for_the_heir),
        cmocka_unit_test(test_an_owner_that_was_cut_off_meanwhile),
        cmocka_unit_test(test_what_had_moved_before),
        cmocka_unit_test(test_two_take_overs),
        cmocka_unit_test(test_the_dead_node_comes_back),
        cmocka_unit_test(test_a_drained_node_lacks_nothing),
        cmocka_unit_test(test_what_was_given_up_is_reported),
        cmocka_unit_test(test_what_was_given_up_and_saved_is_no_loss),
        cmocka_unit_test(test_what_stays_where_it_is_is_no_loss),
        cmocka_unit_test(test_the_heir_has_not_seen_the_lookups),
        cmocka_unit_test(test_a_node_without_a_lease_is_not_waited_for),
        cmocka_unit_test(test_nothing_else_waits_for_the_dead_node),
        cmocka_unit_test(test_the_start_id_changes),
        cmocka_unit_test(test_random_losses),
    };
    if (argc == 2) /* only that one */
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
