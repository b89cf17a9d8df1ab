/* Copies of a node's partitions on another one, with a coordinator that does what the test says: the test
 * asks for what it is told as the backup does. Answers to pushes wait for it (cluster.copies = sync). */
#include <stdio.h>
#include <string.h>
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/format/cluster.h"
#include "dataplane/wire/format/move.h"
#include "dataplane/wire/format/push_number.h"
#include "fake_coordinator.h"
#include "node_fixture.h"
#include "ps/cluster/copies.h"
#include "tests/test.h"
#include "tests/wait.h"

#define SESSION UINT64_C(500)
#define CALL_US 60000000u

/* What the backup has asked for, and how far it is. */
static struct {
    struct node_call call;
    bool asks;
    uint64_t id, position;
    uint32_t refused; /* answers without a block: the source has nothing for it, or has lost it */
} backup;

static uint64_t key; /* of the node's own */

static int copies_setup_with(void **state, bool has_directory)
{
    if (node_setup(state) != 0)
        return -1;
    struct node_fixture *n = *state;
    struct ps_config *c = &n->config;
    node_stop(n);
    fake_coordinator_reset();
    fake_coordinator_set_other("b");
    fake_coordinator_configure(c, 2);
    if (!has_directory)
        c->checkpoint_directory[0] = '\0';
    c->cluster_replication = 2;
    c->cluster_copies = PS_COPIES_SYNC;
    node_start(n, 1);
    memset(&backup, 0, sizeof(backup));
    return 0;
}

static int copies_setup(void **state)
{
    return copies_setup_with(state, false);
}

static int copies_setup_directory(void **state)
{
    return copies_setup_with(state, true);
}

static struct ps_cluster_map *map(void)
{
    return fake_coordinator_map();
}

static uint32_t slot_of(uint64_t k)
{
    return ps_cluster_slot(mr_partition_of(mr_key_hash(k, 0)));
}

static bool is_in_sync(void)
{
    return map()->in_sync[slot_of(key)];
}

/* ---- calls ---- */

static void post_push(struct node_fixture *n, struct node_call *call, uint64_t number)
{
    static const float gradient[NODE_DIM] = {1, 2, 3, 4};
    const uint32_t head[4] = {1, 0};
    const struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U32, 4, head), mr_tensor_1d(MR_U64, 1, &key),
                                         mr_tensor_1d(MR_U32, 0, NULL),
                                         mr_tensor_2d(MR_F32, 1, NODE_DIM, gradient)};
    const struct mr_call_options options = {
        .op = MR_OP_PUSH_GRAD, .epoch = (uint16_t)map()->epoch, .deadline_us = dp_now_us() + CALL_US};
    n->sequence = number != 0 ? mr_push_sequence(MR_PUSH_CHOSEN, number) : 0;
    node_post(n, 0, call, &options, tensors, 4);
    n->sequence = 0;
}

static const uint64_t *copies_words(struct node_fixture *n)
{
    const struct node_reply *reply = node_call(n, 0, MR_OP_NODE_INFO, 0, NULL, 0);
    node_check(reply, MR_OK, NULL);
    return reply->tensors[2].data;
}

/* ---- the backup ---- */

static void backup_take(void)
{
    node_check(&backup.call.reply, MR_OK, NULL);
    const uint64_t *words = backup.call.reply.tensors[0].data;
    backup.refused += words[MR_MOVE_STATE] != MR_MOVE_MORE;
    backup.position += backup.call.reply.tensors[1].bytes;
    node_call_end(&backup.call);
    backup.asks = false;
}

/* Takes what has come, and asks for what follows: it has applied everything before. */
static void backup_go_on(struct node_fixture *n)
{
    node_look(n);
    if (backup.asks && backup.call.is_answered)
        backup_take();
    if (backup.asks)
        return;
    const uint64_t words[MR_MOVE_ASK_WORDS] = {
        [MR_MOVE_ASK_ID] = backup.id, [MR_MOVE_ASK_POSITION] = backup.position};
    const struct mr_tensor tensor = mr_body_tensor(MR_BODY_MOVE_ASK, words);
    const struct mr_call_options options = {.op = MR_OP_MOVE_READ, .deadline_us = dp_now_us() + CALL_US};
    memset(&backup.call, 0, sizeof(backup.call));
    node_post(n, 0, &backup.call, &options, &tensor, 1);
    backup.asks = true;
}

/* The other node is the backup of all that this one owns, has it all, and the map says so. */
static void copies_begin(struct node_fixture *n)
{
    static struct node_call call;
    const struct mr_feature f = node_table("t", 1);
    const struct mr_tensor tensor = mr_tensor_2d(MR_U8, 1, sizeof(f), &f);
    const struct mr_call_options options = {.op = MR_OP_CREATE, .deadline_us = dp_now_us() + CALL_US};
    fake_coordinator_settle(SESSION);
    node_post(n, 0, &call, &options, &tensor, 1);
    WAIT_UNTIL(fake_coordinator_settle(SESSION), node_look(n), call.is_answered);
    node_check(&call.reply, MR_OK, NULL);
    node_call_end(&call);
    for (key = 0; map()->owner[slot_of(key)] != 0; key++) {
    }
    const struct mr_tensor keys = mr_tensor_1d(MR_U64, 1, &key);
    const struct mr_call_options lookup = {.op = MR_OP_LOOKUP,
                                           .table = 1,
                                           .epoch = (uint16_t)map()->epoch,
                                           .deadline_us = dp_now_us() + CALL_US};
    node_post(n, 0, &call, &lookup, &keys, 1); /* makes its row */
    WAIT_UNTIL(fake_coordinator_settle(SESSION), node_look(n), call.is_answered);
    node_check(&call.reply, MR_OK, NULL);
    node_call_end(&call);
    assert_int_equal(map()->replication, 2);
    backup.id = map()->backup_grant[slot_of(key)];
    backup.position = 1;
    assert_int_not_equal(backup.id, 0);
    WAIT_UNTIL(fake_coordinator_settle(SESSION), backup_go_on(n), is_in_sync());
    backup.refused = 0;
    WAIT_UNTIL(fake_coordinator_settle(SESSION), copies_words(n)[MR_CLUSTER_EPOCH] == map()->epoch);
}

static void wait_waiting(struct node_fixture *n, uint64_t count)
{
    WAIT_UNTIL(node_look(n), node_counter(n, 0, "ps.answers_waiting") == count);
}

static int copies_teardown(void **state)
{
    const int failed = node_teardown(state); /* the call that the backup waits for ends with it */
    node_call_end(&backup.call);
    return failed;
}

/* ---- tests ---- */

/* Those of a push, and of the same push again, which is applied already. */
TEST(an_answer_waits_until_the_backup_has_the_push, copies_setup, copies_teardown)
{
    static struct node_call calls[2];
    struct node_fixture *n = *state;
    copies_begin(n);
    assert_int_equal(copies_words(n)[MR_CLUSTER_ANSWERS_WAIT], 1);
    post_push(n, &calls[0], 1);
    wait_waiting(n, 1);
    post_push(n, &calls[1], 1);
    wait_waiting(n, 2);
    assert_int_equal(node_counter(n, 0, "ps.pushes_repeated"), 1);
    assert_true(!calls[0].is_answered && !calls[1].is_answered);
    WAIT_UNTIL(backup_go_on(n), calls[0].is_answered && calls[1].is_answered);
    node_check(&calls[0].reply, MR_OK, NULL);
    node_check(&calls[1].reply, MR_OK, NULL);
    assert_int_equal(node_counter(n, 0, "ps.answers_waiting"), 0);
    assert_true(is_in_sync());
    assert_int_equal(backup.refused, 0);
    for (uint32_t i = 0; i < 2; i++)
        node_call_end(&calls[i]);
}

/* It does not ask for what follows, and nobody tells the node anything: it notices that by itself. The answer
 * leaves once the map says that the backup is not in sync; which it is again as soon as it has gone on, from
 * where it was. */
TEST(a_backup_that_stands_still_is_left_behind_by_the_map, copies_setup, copies_teardown)
{
    static struct node_call call, next;
    struct node_fixture *n = *state;
    copies_begin(n);
    post_push(n, &call, 0);
    wait_waiting(n, 1);
    WAIT_UNTIL(node_look(n), node_counter(n, 0, "cluster.backups_left_behind") == 1);
    assert_true(is_in_sync());
    assert_false(call.is_answered);
    assert_int_equal(node_counter(n, 0, "ps.answers_waiting"), 1);
    WAIT_UNTIL(fake_coordinator_settle(SESSION), node_look(n), call.is_answered);
    node_check(&call.reply, MR_OK, NULL);
    assert_false(is_in_sync());
    post_push(n, &next, 0); /* alone */
    node_check(node_wait(n, &next), MR_OK, NULL);
    WAIT_UNTIL(fake_coordinator_settle(SESSION), backup_go_on(n), is_in_sync());
    assert_int_equal(backup.refused, 0);
    node_call_end(&call);
    node_call_end(&next);
}

/* The other node goes on as the owner, and what it has of these pushes is not known: one that may be made
 * again is, and comes to nobody's; the client is told of the other. */
TEST(what_waits_is_taken_back_when_the_backup_goes_on, copies_setup, copies_teardown)
{
    static struct node_call numbered, other;
    static const bool there[PS_CLUSTER_NODES_MAX] = {false, true};
    struct node_fixture *n = *state;
    copies_begin(n);
    post_push(n, &numbered, 1);
    post_push(n, &other, 0);
    wait_waiting(n, 2);
    assert_true(ps_copies_promote(map(), 0, there));
    fake_coordinator_settle(SESSION);
    WAIT_UNTIL(node_look(n), numbered.is_answered && other.is_answered);
    node_check(&numbered.reply, MR_WRONG_OWNER, NULL);
    node_check(&other.reply, MR_UNKNOWN_OUTCOME, "not known");
    node_call_end(&numbered);
    node_call_end(&other);
}

/* The backup's end: answers leave, as the map says that there is none. */
TEST(answers_leave_when_the_copy_ends, copies_setup, copies_teardown)
{
    static struct node_call call;
    static const bool owners[PS_CLUSTER_NODES_MAX] = {true, true};
    struct node_fixture *n = *state;
    copies_begin(n);
    post_push(n, &call, 0);
    wait_waiting(n, 1);
    assert_true(ps_copies_drop(map(), 1, owners));
    WAIT_UNTIL(fake_coordinator_settle(SESSION), node_look(n), call.is_answered);
    node_check(&call.reply, MR_OK, NULL);
    node_call_end(&call);
}

/* With async answers wait for nobody. Nodes that are configured differently leave it as it is. */
TEST(answers_wait_no_more_with_async, copies_setup, copies_teardown)
{
    static struct node_call call, next;
    struct node_fixture *n = *state;
    copies_begin(n);
    post_push(n, &call, 0);
    wait_waiting(n, 1);
    fake_coordinator_set_settings((uint32_t)n->config.cluster_take_over_s, 2); /* of the other: async */
    fake_coordinator_settle(SESSION);
    assert_true(map()->answers_wait);
    assert_true(ps_copies_set_answers(map(), false));
    WAIT_UNTIL(fake_coordinator_settle(SESSION), node_look(n), call.is_answered);
    node_check(&call.reply, MR_OK, NULL);
    assert_true(is_in_sync() && !map()->answers_wait);
    post_push(n, &next, 0);
    node_check(node_wait(n, &next), MR_OK, NULL);
    node_call_end(&call);
    node_call_end(&next);
}

/* A process at the backup that begins again has nothing: the map says so before the copy begins again. */
TEST(a_backup_that_begins_again_is_not_in_sync, copies_setup, copies_teardown)
{
    struct node_fixture *n = *state;
    copies_begin(n);
    WAIT_UNTIL(backup_go_on(n), backup.asks && !backup.call.is_answered);
    backup.position = 1;
    WAIT_UNTIL(backup_go_on(n), backup.refused > 0);
    WAIT_UNTIL(fake_coordinator_settle(SESSION), node_look(n), !is_in_sync());
    WAIT_UNTIL(fake_coordinator_settle(SESSION), backup_go_on(n), is_in_sync());
    assert_int_equal(node_counter(n, 0, "cluster.backups_left_behind"), 1);
}

/* Clients forget what a checkpoint of the cluster has: so the node says that its part is written once the
 * backup has what is in it. */
TEST(a_part_of_a_checkpoint_is_reported_once_the_backup_has_it, copies_setup_directory, copies_teardown)
{
    static struct node_call call;
    struct node_fixture *n = *state;
    copies_begin(n);
    post_push(n, &call, 0);
    wait_waiting(n, 1);
    assert_true(ps_cluster_map_begin_cut(map(), 0));
    fake_coordinator_settle(SESSION);
    WAIT_UNTIL(node_look(n), node_counter(n, 0, "checkpoint.saves_good") == 1);
    assert_int_equal(fake_coordinator_report().cut.id, 0);
    WAIT_UNTIL(backup_go_on(n), fake_coordinator_report().cut.id == map()->cut);
    assert_int_equal(fake_coordinator_report().cut.status, MR_OK);
    assert_true(call.is_answered);
    node_call_end(&call);
}
