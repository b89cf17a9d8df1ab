/* A node as a member of a cluster, with a coordinator that does what the test says. */
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "cluster_fixture.h"
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/log.h"
#include "dataplane/wire/base/log_line.h"
#include "dataplane/wire/format/cluster.h"
#include "fake_coordinator.h"
#include "fake_dp.h"
#include "log_event.h"
#include "node_fixture.h"
#include "tests/wait.h"

#define SESSION UINT64_C(500)
#define CALL_US 60000000u

static uint64_t session;

static void become_member(struct node_fixture *n, const char *init_from, uint32_t nodes, uint32_t cores)
{
    node_stop(n);
    fake_coordinator_reset();
    session = SESSION;
    struct ps_config *c = &n->config;
    fake_coordinator_configure(c, nodes);
    (void)snprintf(c->cluster_init_from, sizeof(c->cluster_init_from), "%s", init_from);
    c->checkpoint_directory[0] = '\0';
    node_start(n, cores);
}

static int member_setup(void **state)
{
    if (node_setup(state) != 0)
        return -1;
    become_member(*state, "", 2, 2);
    return 0;
}

/* ---- what the node shows, and how it answers ---- */

static const uint64_t *show(struct node_fixture *n, const uint8_t **owner)
{
    const struct node_reply *reply = node_call(n, n->core_count - 1, MR_OP_NODE_INFO, 0, NULL, 0);
    node_check(reply, MR_OK, NULL);
    assert_int_in_range(reply->tensor_count, 2 + MR_CLUSTER_TENSORS,
                        2 + MR_CLUSTER_TENSORS + MR_CLUSTER_RESTORED_TENSORS);
    *owner = reply->tensors[4].data;
    return reply->tensors[2].data;
}

static const uint8_t *wait_epoch(struct node_fixture *n, uint64_t epoch)
{
    const uint8_t *owner;
    WAIT_UNTIL(fake_coordinator_settle(session), show(n, &owner)[MR_CLUSTER_EPOCH] == epoch);
    return owner;
}

static void wait_lease(struct node_fixture *n)
{
    const uint8_t *owner;
    WAIT_UNTIL(fake_coordinator_settle(session), show(n, &owner)[MR_CLUSTER_LEASE_LEFT_US] > 0);
}

static const struct node_reply *end_call(struct node_fixture *n, struct node_call *call)
{
    WAIT_UNTIL(fake_coordinator_settle(session), node_look(n), call->is_answered);
    return &call->reply;
}

static void create_table(struct node_fixture *n)
{
    static struct node_call call;
    const struct mr_feature f = node_table("t", 1);
    const struct mr_tensor tensor = mr_tensor_2d(MR_U8, 1, sizeof(f), &f);
    const struct mr_call_options options = {.op = MR_OP_CREATE, .deadline_us = dp_now_us() + CALL_US};
    node_post(n, 0, &call, &options, &tensor, 1);
    node_check(end_call(n, &call), MR_OK, NULL);
    assert_int_equal(*(const uint32_t *)call.reply.tensors[0].data, 1);
    node_call_end(&call);
}

static uint32_t partition_of(uint64_t key)
{
    return mr_partition_of(mr_key_hash(key, 0));
}

static void post(struct node_fixture *n, struct node_call *call, uint64_t key, uint64_t epoch)
{
    const struct mr_tensor tensor = mr_tensor_1d(MR_U64, 1, &key);
    const struct mr_call_options options = {
        .op = MR_OP_LOOKUP, .table = 1, .epoch = (uint16_t)epoch, .deadline_us = dp_now_us() + CALL_US};
    node_post(n, node_core_of_key(n, key, 0), call, &options, &tensor, 1);
}

static enum mr_status look_up(struct node_fixture *n, uint64_t key, uint64_t epoch)
{
    static struct node_call call;
    post(n, &call, key, epoch);
    return node_wait(n, &call)->status;
}

/* A call is answered BUSY, again and again, which `counter` counts; then rounds go on, and it is served. */
static void check_waits(struct node_fixture *n, uint64_t key, uint64_t epoch, const char *counter)
{
    static struct node_call call;
    const uint32_t core = node_core_of_key(n, key, 0);
    const uint64_t before = node_counter(n, core, counter);
    post(n, &call, key, epoch);
    WAIT_UNTIL(node_look(n), node_counter(n, core, counter) >= before + 3);
    assert_false(call.is_answered);
    node_check(end_call(n, &call), MR_OK, NULL);
    node_call_end(&call);
}

/* Both nodes are there, and own their halves. Returns a key of the node's own. */
static uint64_t join(struct node_fixture *n, uint64_t *other_key)
{
    static uint8_t owner[MR_PARTITION_COUNT];
    fake_coordinator_set_other("b");
    fake_coordinator_settle(SESSION);
    memcpy(owner, wait_epoch(n, fake_coordinator_map()->epoch), sizeof(owner));
    uint64_t key = 0;
    for (*other_key = 0; owner[partition_of(*other_key)] == 0; (*other_key)++) {
    }
    while (owner[partition_of(key)] != 0)
        key++;
    create_table(n);
    wait_lease(n);
    return key;
}

/* ---- tests ---- */

static void serves_once_all_are_there(void **state)
{
    struct node_fixture *n = *state;
    const uint8_t *owner;
    const uint64_t *words = show(n, &owner);
    assert_int_equal(words[MR_CLUSTER_EPOCH], 0);
    assert_int_equal(words[MR_CLUSTER_SELF], MR_CLUSTER_NO_NODE);
    fake_coordinator_settle(SESSION);
    owner = wait_epoch(n, 1);
    assert_int_equal(owner[0], MR_CLUSTER_NO_NODE);
    create_table(n);

    /* what it has is not known before: a client that compares what it had would take it for an older copy */
    node_check(node_call(n, 0, MR_OP_LIST, 0, NULL, 0), MR_BUSY, "has not loaded yet what it owns");

    /* the calls of a client that is ahead wait: nobody owns anything */
    static struct node_call call;
    post(n, &call, 0, 2);
    WAIT_UNTIL(node_look(n), node_counter(n, node_core_of_key(n, 0, 0), "ps.requests_held_back") >= 3);
    assert_false(call.is_answered);
    fake_coordinator_set_other("b");
    fake_coordinator_settle(SESSION);
    assert_int_equal(fake_coordinator_map()->epoch, 2); /* joined and given out, in one change */
    const bool is_own = fake_coordinator_map()->owner[ps_cluster_slot(partition_of(0))] == 0;
    node_check(end_call(n, &call), is_own ? MR_OK : MR_WRONG_OWNER, NULL);
    node_call_end(&call);
    node_check(node_call(n, 0, MR_OP_LIST, 0, NULL, 0), MR_OK, NULL);
}

static void serves_its_own_since_it_has_them(void **state)
{
    struct node_fixture *n = *state;
    uint64_t other;
    const uint64_t key = join(n, &other);
    const uint64_t epoch = fake_coordinator_map()->epoch;
    assert_int_equal(look_up(n, key, epoch), MR_OK);
    assert_int_equal(look_up(n, key, epoch - 1), MR_WRONG_OWNER);
    assert_int_equal(look_up(n, other, epoch), MR_WRONG_OWNER);
    const uint8_t *owner;
    const uint64_t *words = show(n, &owner);
    assert_int_equal(words[MR_CLUSTER_NODES], 2);
    assert_int_equal(words[MR_CLUSTER_LEASE_US], FAKE_SESSION_US / 2);
    uint32_t owned = 0;
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        owned += owner[p] == 0;
    assert_int_in_range(owned, MR_PARTITION_COUNT * 2 / 3,
                        MR_PARTITION_COUNT * 2 / 3 + 1); /* by cores: 2 and 1 */

    /* a change that is not about it */
    fake_coordinator_map()->epoch++;
    fake_coordinator_settle(session);
    (void)wait_epoch(n, epoch + 1);
    assert_int_equal(look_up(n, key, epoch), MR_OK);
}

/* The keys of a call are not looked at then; they are once it has lost one. */
static void one_core_may_own_everything(void **state)
{
    struct node_fixture *n = *state;
    become_member(n, "", 1, 1);
    fake_coordinator_settle(SESSION);
    create_table(n);
    wait_lease(n);
    struct ps_cluster_map *map = fake_coordinator_map();
    const uint64_t epoch = map->epoch;
    assert_int_equal(look_up(n, 1, epoch), MR_OK);
    assert_int_equal(look_up(n, 1, epoch - 1), MR_WRONG_OWNER);

    const uint32_t slot = ps_cluster_slot(partition_of(1));
    map->nodes[map->node_count] = map->nodes[0];
    (void)snprintf(map->nodes[map->node_count].name, sizeof(map->nodes[0].name), "b");
    map->owner[slot] = (uint16_t)map->node_count++;
    map->epoch++;
    fake_coordinator_settle(SESSION);
    (void)wait_epoch(n, epoch + 1);
    assert_int_equal(look_up(n, 1, epoch + 1), MR_WRONG_OWNER);
    assert_int_equal(look_up(n, 2, epoch + 1), MR_OK);
}

/* A node by itself has a table, and saves it; then it is the first of two nodes that begin with that. */
static void begin_with_a_checkpoint(struct node_fixture *n)
{
    char from[sizeof(n->config.cluster_init_from)];
    const struct mr_feature f = node_table("t", 1);
    assert_int_equal(node_create(n, &f), 1);
    for (uint64_t key = 0; key < 100; key++) {
        const struct mr_tensor tensor = mr_tensor_1d(MR_U64, 1, &key);
        node_check(node_call(n, node_core_of_key(n, key, 0), MR_OP_LOOKUP, 1, &tensor, 1), MR_OK, NULL);
    }
    (void)snprintf(from, sizeof(from), "%.200s/ckpt-%u", n->config.checkpoint_directory,
                   (unsigned)node_save(n));
    become_member(n, from, 2, 2);
    fake_coordinator_set_other("b");
}

static uint64_t rows_of(struct node_fixture *n)
{
    uint64_t rows = 0;
    for (uint32_t core = 0; core < 2; core++) {
        const struct node_reply *reply = node_call(n, core, MR_OP_HEARTBEAT, 0, NULL, 0);
        node_check(reply, MR_OK, NULL);
        rows += ((const uint64_t *)reply->tensors[0].data)[MR_HEARTBEAT_ROWS];
    }
    return rows;
}

/* A Create waits until the cluster has begun, or its feature would get the number of another one. */
static void begins_with_a_checkpoint(void **state)
{
    static struct node_call call;
    struct node_fixture *n = *state;
    const uint8_t *owner;
    const struct mr_feature f = node_table("u", 1);
    const struct mr_tensor tensor = mr_tensor_2d(MR_U8, 1, sizeof(f), &f);
    const struct mr_call_options options = {.op = MR_OP_CREATE, .deadline_us = dp_now_us() + CALL_US};
    begin_with_a_checkpoint(n);
    node_post(n, 0, &call, &options, &tensor, 1);
    node_check(end_call(n, &call), MR_OK, NULL);
    assert_int_equal(*(const uint32_t *)call.reply.tensors[0].data, 2);
    node_call_end(&call);
    wait_lease(n);
    (void)show(n, &owner);
    uint64_t key = 0;
    while (owner[partition_of(key)] != 0)
        key++;
    assert_int_equal(look_up(n, key, fake_coordinator_map()->epoch), MR_OK);
    assert_int_in_range(rows_of(n), 30, 70); /* its half of the 100 */
}

/* Somebody has created other features: what is in the checkpoint would be lost without a word. */
static void does_not_begin_among_other_features(void **state)
{
    static struct node_call call;
    struct node_fixture *n = *state;
    const struct mr_call_options options = {.op = MR_OP_FREEZE, .deadline_us = dp_now_us() + CALL_US};
    const uint32_t level = MR_FREEZE_OFF;
    const struct mr_tensor tensor = mr_tensor_1d(MR_U32, 1, &level);
    begin_with_a_checkpoint(n);
    fake_coordinator_create("other");
    node_post(n, 0, &call, &options, &tensor, 1);
    node_check(end_call(n, &call), MR_FEATURE_MISMATCH, "the cluster has begun with other features");
    node_call_end(&call);
    assert_int_equal(rows_of(n), 0);
}

/* By the map, the partition goes to the other node. */
static void move_away(uint64_t key)
{
    struct ps_cluster_map *map = fake_coordinator_map();
    const uint32_t slot = ps_cluster_slot(partition_of(key));
    map->owner[slot] = 1;
    map->grant[slot] = ++map->last_id;
    map->epoch++;
    fake_coordinator_settle(SESSION);
}

/* ---- a node that has died ---- */

#define KEYS 100u

/* A node by itself looks keys up, 0 and up or as many after them, and saves: a part of the checkpoint. */
static void save_part(struct node_fixture *n, const char *whole, const char *name)
{
    const struct mr_feature f = node_table("t", 1);
    node_stop(n);
    (void)snprintf(n->config.checkpoint_directory, sizeof(n->config.checkpoint_directory), "%.200s/%s", whole,
                   name);
    node_start(n, 2);
    assert_int_equal(node_create(n, &f), 1);
    for (uint64_t key = 0; key < KEYS; key++) {
        const struct mr_tensor tensor = mr_tensor_1d(MR_U64, 1, &key);
        node_check(node_call(n, node_core_of_key(n, key, 0), MR_OP_LOOKUP, 1, &tensor, 1), MR_OK, NULL);
    }
    assert_int_equal(node_save(n), 1);
}

/* The cluster has begun empty, and its checkpoint 1 has the keys below KEYS. Returns how many rows the node
 * has: of as many other keys those that are its own. */
static uint64_t join_before_a_checkpoint(struct node_fixture *n)
{
    static const char *const nodes[] = {"a", "b"};
    char whole[sizeof(n->config.checkpoint_directory)];
    uint64_t other, rows = 0;
    (void)snprintf(whole, sizeof(whole), "%.200s/whole", n->directory);
    assert_int_equal(mkdir(whole, 0700), 0);
    for (uint32_t i = 0; i < 2; i++)
        save_part(n, whole, nodes[i]);
    become_member(n, "", 2, 2);
    node_stop(n);
    memcpy(n->config.checkpoint_directory, whole, sizeof(whole));
    node_start(n, 2);
    (void)join(n, &other);
    struct ps_cluster_map *map = fake_coordinator_map();
    for (uint64_t key = KEYS; key < 2 * KEYS; key++)
        rows += map->owner[ps_cluster_slot(partition_of(key))] == 0 && look_up(n, key, map->epoch) == MR_OK;
    assert_true(rows > 0 && rows < KEYS);
    assert_int_equal(rows_of(n), rows);
    cluster_commit(whole, 1, nodes, 2);
    map->committed = map->last_cut = 1;
    return rows;
}

/* Node b has died: by the map, all that it had goes to this one. Returns how many of the checkpoint's keys
 * these are. */
static uint64_t take_over_the_other(struct node_fixture *n, const char *third)
{
    static const bool present[PS_CLUSTER_NODES_MAX] = {true};
    struct ps_cluster_map *map = fake_coordinator_map();
    uint64_t rows = 0;
    for (uint64_t key = 0; key < KEYS; key++)
        rows += map->owner[ps_cluster_slot(partition_of(key))] == 1;
    fake_coordinator_set_other(third);
    fake_coordinator_settle(session);
    assert_true(ps_cluster_map_take_over(map, 1, present, NULL));
    fake_coordinator_settle(session);
    (void)wait_epoch(n, map->epoch);
    return rows;
}

/* Not in the place of what it serves, although it has never loaded anything before. */
static void what_a_dead_node_had_is_loaded_beside(void **state)
{
    struct node_fixture *n = *state;
    const uint64_t own = join_before_a_checkpoint(n);
    const uint32_t load = ps_cluster_map_load(fake_coordinator_map(), 1);
    const uint64_t rows = take_over_the_other(n, NULL);
    uint64_t lost = 0; /* a key of the dead node's, which is not in the checkpoint */
    for (lost = KEYS; fake_coordinator_map()->restored_in[ps_cluster_slot(partition_of(lost))] == 0; lost++) {
    }
    assert_int_equal(look_up(n, lost, fake_coordinator_map()->epoch),
                     MR_OK); /* it waits until that is loaded */
    assert_int_equal(rows_of(n), own + rows + 1);
    for (uint64_t key = 0; key < 2 * KEYS; key++) /* those that are not there are made */
        assert_int_equal(look_up(n, key, fake_coordinator_map()->epoch), MR_OK);
    assert_int_equal(rows_of(n), 2 * KEYS);
    assert_int_equal(node_counter(n, 0, "cluster.nodes_away"), 1);
    assert_int_equal(node_counter(n, 0, "cluster.partitions"), MR_PARTITION_COUNT);
    assert_int_equal(node_counter(n, 0, "cluster.partitions_loading"), 0);
    assert_int_equal(node_counter(n, 0, "cluster.partitions_taken_over"), load);
    assert_int_equal(node_counter(n, 0, "cluster.take_overs_failed"), 0);
}

/* A second after it has seen that b is away, if it has room; and it says so if it has none. */
static void the_leader_takes_over_by_itself(void **state)
{
    struct node_fixture *n = *state;
    n->config.cluster_take_over_s = 1;
    const uint64_t own = join_before_a_checkpoint(n);
    struct ps_cluster_map *map = fake_coordinator_map();
    uint64_t lost = 0; /* a key of b's */
    while (map->owner[ps_cluster_slot(partition_of(lost))] != 1)
        lost++;
    assert_int_equal(map->take_over_s, 1);
    log_event_listen("not_taken_over");
    fake_coordinator_set_other(NULL);
    fake_coordinator_set_room(0);
    WAIT_UNTIL(fake_coordinator_settle(session), log_event_has_come());
    assert_log_event(
        "node b is away, and nobody takes over its 1365 partitions: those that are there have room "
        "for 0");
    assert_int_equal(ps_cluster_map_load(map, 1), 1365);
    fake_coordinator_set_room(UINT64_MAX);
    WAIT_UNTIL(fake_coordinator_settle(session), ps_cluster_map_load(map, 1) == 0);
    log_event_listen(NULL);
    (void)wait_epoch(n, map->epoch);
    assert_int_equal(look_up(n, lost, map->epoch), MR_OK);
    assert_true(rows_of(n) > own);
}

/* It goes on with what it serves. */
static void what_cannot_be_loaded_goes_to_another(void **state)
{
    struct node_fixture *n = *state;
    char path[sizeof(n->config.checkpoint_directory) + 32];
    const uint64_t own = join_before_a_checkpoint(n);
    struct ps_cluster_map *map = fake_coordinator_map();
    const uint32_t load = ps_cluster_map_load(map, 0);
    (void)snprintf(path, sizeof(path), "%s/CLUSTER-1", n->config.checkpoint_directory);
    assert_int_equal(unlink(path), 0);
    (void)take_over_the_other(n, "c");
    WAIT_UNTIL(fake_coordinator_settle(session), ps_cluster_map_load(map, 0) == load);
    assert_int_equal(ps_cluster_map_load(map, 2), MR_PARTITION_COUNT - load);
    assert_int_equal(fake_coordinator_report().room.failed, 1);
    assert_true(fake_coordinator_report().room.free_mib > 0);
    if (strstr(fake_coordinator_report().room.failed_text, "there is no such checkpoint") == NULL)
        fail_msg("%s", fake_coordinator_report().room.failed_text);
    assert_int_equal(node_counter(n, 0, "cluster.take_overs_failed"), 1);
    (void)wait_epoch(n, map->epoch);
    assert_int_equal(rows_of(n), own);
}

static void check_rows_go(struct node_fixture *n)
{
    (void)wait_epoch(n, fake_coordinator_map()->epoch);
    WAIT_UNTIL(fake_coordinator_settle(session), rows_of(n) == 0);
}

static void rows_of_others_are_dropped(void **state)
{
    struct node_fixture *n = *state;
    uint64_t other;
    const uint64_t key = join(n, &other);
    assert_int_equal(look_up(n, key, fake_coordinator_map()->epoch), MR_OK);
    assert_int_equal(rows_of(n), 1);
    move_away(key);
    check_rows_go(n);
}

/* The next map comes while the cores are being told of one: they do not know yet what is to be dropped. */
static void rows_are_dropped_once_the_cores_know_the_map(void **state)
{
    struct node_fixture *n = *state;
    uint64_t other;
    const uint64_t key = join(n, &other);
    assert_int_equal(look_up(n, key, fake_coordinator_map()->epoch), MR_OK);
    assert_int_equal(rows_of(n), 1);
    fake_dp_hold(0);
    fake_dp_wait_held(0);
    fake_coordinator_map()->epoch++;
    fake_coordinator_settle(SESSION);
    fake_dp_wait_posted(0, 1);
    move_away(key);
    fake_dp_release(0);
    check_rows_go(n);
}

static void waits_while_its_lease_is_over(void **state)
{
    struct node_fixture *n = *state;
    uint64_t other;
    const uint64_t key = join(n, &other);
    /* confirmations that came too late, or that were overtaken, renew nothing */
    fake_coordinator_expire();
    fake_coordinator_round(SESSION, mr_clock_boot_us() - FAKE_SESSION_US / 2);
    check_waits(n, key, fake_coordinator_map()->epoch, "ps.calls_without_lease");
    fake_coordinator_round(SESSION, 0);
    assert_int_equal(look_up(n, key, fake_coordinator_map()->epoch), MR_OK);
}

static void a_new_session_counts_once_the_map_has_it(void **state)
{
    struct node_fixture *n = *state;
    uint64_t other;
    const uint64_t key = join(n, &other);
    const uint64_t epoch = fake_coordinator_map()->epoch;
    fake_coordinator_expire();
    session = SESSION + 1;
    fake_coordinator_round(session, mr_clock_boot_us()); /* it is confirmed, and proposes the map */
    assert_int_equal(fake_coordinator_map()->epoch, epoch);
    check_waits(n, key, epoch, "ps.calls_without_lease");
    assert_int_equal(fake_coordinator_map()->epoch, epoch + 1);
    assert_int_equal(look_up(n, key, epoch), MR_OK); /* without interruption: the map from before does */
}

static void a_superseded_process_serves_nothing(void **state)
{
    struct node_fixture *n = *state;
    uint64_t other;
    static struct node_call call;
    const uint64_t key = join(n, &other);
    const uint32_t core = node_core_of_key(n, key, 0);
    const uint8_t *owner;
    fake_coordinator_map()->nodes[0].start_id++;
    fake_coordinator_map()->nodes[0].session = SESSION + 9;
    fake_coordinator_map()->epoch++;
    fake_coordinator_round(SESSION, mr_clock_boot_us());
    assert_int_equal(show(n, &owner)[MR_CLUSTER_LEASE_LEFT_US], 0);
    post(n, &call, key, fake_coordinator_map()->epoch);
    WAIT_UNTIL(node_look(n), node_counter(n, core, "ps.calls_without_lease") >= 3);
    assert_false(call.is_answered);
    node_leave(n, core); /* the call ends */
    assert_true(call.is_answered);
    node_join(n, core);
    node_call_end(&call);
}

static void leaves_when_it_stops(void **state)
{
    struct node_fixture *n = *state;
    uint64_t other;
    (void)join(n, &other);
    assert_false(fake_coordinator_is_left());
    node_stop(n);
    assert_true(fake_coordinator_is_left());

    /* it starts again: its own are the same, and calls by the old map are refused */
    const uint64_t epoch = fake_coordinator_map()->epoch;
    node_start(n, 2);
    const uint64_t key = join(n, &other);
    assert_int_equal(fake_coordinator_map()->epoch, epoch + 1);
    assert_int_equal(look_up(n, key, epoch), MR_WRONG_OWNER);
    assert_int_equal(look_up(n, key, epoch + 1), MR_OK);
}

#define STORE_US 300000u /* that the store takes for an answer, unless the node leaves before */

/* A store that is slow to say what it was asked by the thread that commits. */
struct slow_store {
    sem_t is_asked;
    bool was_asked, was_left;
};

static void answer_late(void *arg, const char *event, const char *message)
{
    struct slow_store *store = arg;
    const uint64_t until_us = mr_clock_us() + STORE_US;
    (void)message;
    if (store->was_asked || strcmp(event, "cluster_commit_failed") != 0)
        return;
    store->was_asked = true;
    (void)sem_post(&store->is_asked);
    while (!fake_coordinator_is_left() && mr_clock_us() < until_us)
        wait_pause();
    store->was_left = fake_coordinator_is_left();
}

/* Another node leads as soon as this one has left, and gives the checkpoint up: CLUSTER must not be written
 * after that, or nodes that start take it for a foreign one. */
static void what_it_commits_ends_before_it_leaves(void **state)
{
    struct node_fixture *n = *state;
    struct slow_store store = {.was_asked = false};
    char path[sizeof(n->config.checkpoint_directory) + 32];
    become_member(n, "", 1, 1);
    node_stop(n);
    (void)snprintf(n->config.checkpoint_directory, sizeof(n->config.checkpoint_directory), "%s/ckpt",
                   n->directory);
    node_start(n, 1);
    fake_coordinator_settle(SESSION);
    wait_lease(n);
    struct ps_cluster_map *map = fake_coordinator_map();
    map->cut = ++map->last_id;
    map->epoch++;
    (void)snprintf(path, sizeof(path), "%s/CLUSTER-%u", n->config.checkpoint_directory, (unsigned)map->cut);
    assert_int_equal(mkdir(path, 0700), 0); /* so that the store fails, and the log says it */
    assert_int_equal(sem_init(&store.is_asked, 0, 0), 0);
    mr_log_listen(answer_late, &store);
    fake_coordinator_settle(SESSION);
    assert_int_equal(sem_wait(&store.is_asked), 0);
    node_stop(n);
    assert_false(store.was_left);
    assert_int_equal(rmdir(path), 0);
    node_start(n, 1);
}

static void one_node_too_many_is_refused_in_words(void **state)
{
    struct node_fixture *n = *state;
    struct ps_cluster_map *map = fake_coordinator_map();
    const uint8_t *owner;
    uint64_t other;
    (void)join(n, &other);
    for (uint32_t i = 2; i < PS_CLUSTER_NODES_MAX; i++) {
        map->nodes[i] = map->nodes[0];
        (void)snprintf(map->nodes[i].name, sizeof(map->nodes[i].name), "n-%u", i);
    }
    map->node_count = PS_CLUSTER_NODES_MAX;
    map->epoch++;
    fake_coordinator_settle(SESSION);
    (void)wait_epoch(n, map->epoch);
    assert_int_equal(show(n, &owner)[MR_CLUSTER_OUTSIDE], 0);

    log_event_listen("node_not_admitted");
    fake_coordinator_set_other("late");
    fake_coordinator_settle(SESSION);
    WAIT_UNTIL(fake_coordinator_settle(session), show(n, &owner)[MR_CLUSTER_OUTSIDE] == 1);
    assert_int_equal(map->node_count, PS_CLUSTER_NODES_MAX);
    assert_log_event("node late is not admitted: the map has 256 nodes");
    assert_log_event("millrace ctl forget");
    log_event_listen(NULL);
}

/* A client does not ask which node an answer came from: none may be believed for longer than all are. */
static void clients_are_told_the_shortest_lease(void **state)
{
    struct node_fixture *n = *state;
    const uint8_t *owner;
    uint64_t other;
    (void)join(n, &other);
    assert_int_equal(show(n, &owner)[MR_CLUSTER_LEASE_US], FAKE_SESSION_US / 2);
    log_event_listen("sessions_differ");
    fake_coordinator_set_session(3000);
    fake_coordinator_settle(SESSION);
    (void)wait_epoch(n, fake_coordinator_map()->epoch);
    assert_int_equal(show(n, &owner)[MR_CLUSTER_LEASE_US], 3000000 / 2);
    assert_log_event("node b has a session of 3000 ms, and node a of 600000 ms");
    log_event_listen(NULL);
}

/* Each leader would have the map as it is configured itself. */
static void settings_that_differ_change_nothing(void **state)
{
    struct node_fixture *n = *state;
    uint64_t other;
    (void)join(n, &other);
    const struct ps_cluster_map *map = fake_coordinator_map();
    const uint32_t take_over_s = map->take_over_s;
    assert_int_equal(take_over_s, n->config.cluster_take_over_s);
    log_event_listen("settings_differ");
    fake_coordinator_set_settings(take_over_s + 1, 1);
    fake_coordinator_settle(SESSION);
    assert_log_event("has cluster.take_over_s = 30, and node b 31: it stays 30");
    log_event_listen("settings_differ");
    fake_coordinator_set_settings(take_over_s, 2);
    fake_coordinator_settle(SESSION);
    assert_log_event("node a has cluster.replication = 1, and node b 2: it stays 1");
    log_event_listen(NULL);
    assert_int_equal(map->take_over_s, take_over_s);
    assert_int_equal(map->replication, 1);
}

/* A drain is many moves, one after the other: a save would have to wait for the last one. */
static void a_save_goes_before_the_next_move(void **state)
{
    struct node_fixture *n = *state;
    static struct node_call call;
    const uint64_t words[MR_SAVE_ASK_WORDS] = {0};
    const struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U8, 0, ""), mr_body_tensor(MR_BODY_SAVE_ASK, words)};
    const struct mr_call_options options = {.op = MR_OP_SAVE, .deadline_us = dp_now_us() + CALL_US};
    uint64_t other;
    become_member(n, "", 2, 2);
    node_stop(n);
    (void)snprintf(n->config.checkpoint_directory, sizeof(n->config.checkpoint_directory), "%s/ckpt",
                   n->directory);
    node_start(n, 2);
    (void)join(n, &other);
    struct ps_cluster_map *map = fake_coordinator_map();
    map->drained[1] = map->balances = true; /* this node, which leads, is to take all that b has */
    map->epoch++;
    fake_coordinator_settle(SESSION);
    assert_int_equal(map->move_count, 1);
    node_post(n, 0, &call, &options, tensors, 2);
    node_check(end_call(n, &call), MR_OK, NULL);
    node_call_end(&call);
    assert_int_equal(map->move_count, 1);
    assert_int_equal(map->cut, 0);
    assert_true(ps_cluster_map_finish_move(map, map->moves[0].id));
    assert_true(ps_cluster_map_load(map, 1) > 0); /* there is more to move */
    fake_coordinator_settle(SESSION);
    assert_int_not_equal(map->cut, 0);
    assert_int_equal(map->move_count, 0);
}

/* The client's sessions end with a call; the next ones have the rights of trainers. */
static void have_trainers_rights(struct node_fixture *n)
{
    static const uint8_t psk[1][MR_PSK_BYTES] = {{0}}, roles[] = {MR_ROLE_TRAINER};
    const struct mr_call_options options = {.op = MR_OP_ECHO, .deadline_us = dp_now_us() + CALL_US};
    struct node_call call = {.is_answered = false};
    for (uint32_t i = 0; i < n->core_count; i++) {
        fake_dp_hold(i);
        fake_dp_wait_held(i);
        mr_endpoint_set_role_keys(dp_core_endpoint(fake_dp_core(i)), psk, roles, 1, dp_now_us());
        fake_dp_release(i);
    }
    node_post(n, 0, &call, &options, NULL, 0);
    (void)end_call(n, &call);
    node_call_end(&call);
}

/* All nodes know of a cut that a trainer has asked for it, also when the node's entry changes otherwise. */
static void a_trainers_cut_is_known_as_such(void **state)
{
    struct node_fixture *n = *state;
    static struct node_call call;
    const uint64_t words[MR_SAVE_ASK_WORDS] = {0};
    const struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U8, 0, ""), mr_body_tensor(MR_BODY_SAVE_ASK, words)};
    const struct mr_call_options options = {.op = MR_OP_SAVE, .deadline_us = dp_now_us() + CALL_US};
    uint64_t other;
    become_member(n, "", 2, 2);
    node_stop(n);
    (void)snprintf(n->config.checkpoint_directory, sizeof(n->config.checkpoint_directory), "%s/ckpt",
                   n->directory);
    node_start(n, 2);
    (void)join(n, &other);
    have_trainers_rights(n);
    node_post(n, 0, &call, &options, tensors, 2);
    node_check(end_call(n, &call), MR_OK, NULL);
    node_call_end(&call);
    fake_coordinator_settle(SESSION);
    const uint64_t cut = fake_coordinator_map()->cut;
    assert_int_not_equal(cut, 0);
    assert_int_equal(fake_coordinator_report().trainer_cut, cut);
    assert_true(fake_coordinator_report().features.has_catalog);
    fake_coordinator_expire();
    WAIT_UNTIL(!fake_coordinator_report().features.has_catalog);
    assert_int_equal(fake_coordinator_report().trainer_cut, cut);
}

static void check_start_fails(struct node_fixture *n, const char *says)
{
    char error[DP_ERROR_BYTES];
    struct ps_server *server;
    assert_int_equal(ps_server_start(&n->config, &server, error), MR_INVALID_ARGUMENT);
    if (strstr(error, says) == NULL)
        fail_msg("\"%s\" does not contain \"%s\"", error, says);
}

static void write_file(const char *path, const char *text, mode_t mode)
{
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, mode), 0);
}

static void credentials_are_checked(void **state)
{
    struct node_fixture *n = *state;
    char *path = n->config.cluster_credentials_file;
    node_stop(n);
    (void)snprintf(path, sizeof(n->config.cluster_credentials_file), "%s/zk", n->directory);
    check_start_fails(n, "/zk: No such file or directory");
    write_file(path, "", 0600);
    check_start_fails(n, "it is empty: write USER:PASSWORD into it");
    write_file(path, "ads:pony\n", 0640);
    check_start_fails(n, "others can read it: chmod 0600 it");
    write_file(path, "ads\n", 0600);
    check_start_fails(n, "its line is not USER:PASSWORD");
    write_file(path, "ads:pony\n", 0600);
    node_start(n, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(serves_once_all_are_there, member_setup, node_teardown),
        cmocka_unit_test_setup_teardown(serves_its_own_since_it_has_them, member_setup, node_teardown),
        cmocka_unit_test_setup_teardown(one_core_may_own_everything, member_setup, node_teardown),
        cmocka_unit_test_setup_teardown(begins_with_a_checkpoint, node_setup, node_teardown),
        cmocka_unit_test_setup_teardown(does_not_begin_among_other_features, node_setup, node_teardown),
        cmocka_unit_test_setup_teardown(rows_of_others_are_dropped, member_setup, node_teardown),
        cmocka_unit_test_setup_teardown(rows_are_dropped_once_the_cores_know_the_map, member_setup,
                                        node_teardown),
        cmocka_unit_test_setup_teardown(what_a_dead_node_had_is_loaded_beside, node_setup, node_teardown),
        cmocka_unit_test_setup_teardown(the_leader_takes_over_by_itself, node_setup, node_teardown),
        cmocka_unit_test_setup_teardown(what_cannot_be_loaded_goes_to_another, node_setup, node_teardown),
        cmocka_unit_test_setup_teardown(waits_while_its_lease_is_over, member_setup, node_teardown),
        cmocka_unit_test_setup_teardown(a_new_session_counts_once_the_map_has_it, member_setup,
                                        node_teardown),
        cmocka_unit_test_setup_teardown(a_superseded_process_serves_nothing, member_setup, node_teardown),
        cmocka_unit_test_setup_teardown(leaves_when_it_stops, member_setup, node_teardown),
        cmocka_unit_test_setup_teardown(what_it_commits_ends_before_it_leaves, member_setup, node_teardown),
        cmocka_unit_test_setup_teardown(clients_are_told_the_shortest_lease, member_setup, node_teardown),
        cmocka_unit_test_setup_teardown(settings_that_differ_change_nothing, member_setup, node_teardown),
        cmocka_unit_test_setup_teardown(a_save_goes_before_the_next_move, node_setup, node_teardown),
        cmocka_unit_test_setup_teardown(a_trainers_cut_is_known_as_such, node_setup, node_teardown),
        cmocka_unit_test_setup_teardown(one_node_too_many_is_refused_in_words, member_setup, node_teardown),
        cmocka_unit_test_setup_teardown(credentials_are_checked, member_setup, node_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
