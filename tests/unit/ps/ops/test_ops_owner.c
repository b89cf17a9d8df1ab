/* Calls to a member of a cluster: what it owns, since when, and for how long. */
#include <string.h>
#include "dataplane/wire/endpoint_internal.h"
#include "dataplane/wire/format/cluster.h"
#include "dataplane/wire/format/push_number.h"
#include "fake_dp.h"
#include "node_fixture.h"
#include "ps/core/core.h"
#include "tests/test.h"
#include "tests/wait.h"

#define CORES     3u
#define FOREVER   UINT64_MAX
#define OLD_EPOCH 7u
#define EPOCH     9u

/* The node of the fixture becomes a member while its cores stand between two calls. */
static struct ps_node *node_of(void)
{
    return ((struct ps_core *)fake_dp_app(0))->node;
}

static struct ps_owned owned;
static struct ps_cluster_info info;

/* It owns the even partitions, of which those below 2048 since OLD_EPOCH, and the others since EPOCH. */
static void own(struct ps_core *core, void *arg)
{
    char text[PS_CORE_TEXT_BYTES];
    (void)arg;
    assert_int_equal(ps_core_own(core, &owned, text), MR_OK);
    core->ep->config.takes_epochs = true;
}

static int become_member(void **state)
{
    if (node_setup_3_cores(state) != 0)
        return -1;
    struct ps_node *node = node_of();
    owned = (struct ps_owned){.info = &info, .epoch = EPOCH};
    info = (struct ps_cluster_info){.words = {EPOCH, 1, 2, 5000000}, .node_count = 2};
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++) {
        owned.since[p] = p % 2 != 0 ? PS_NOT_OWNED : p < 2048 ? OLD_EPOCH : EPOCH;
        info.owner[p] = info.owner_of_few[p] = p % 2 != 0 ? 0 : 1;
    }
    strcpy(info.nodes[1].name, "b");
    node->is_member = true;
    atomic_store(&node->lease_end_us, FOREVER);
    ps_node_each_core(node, own, NULL);
    return 0;
}

static uint64_t key_of(uint32_t partition)
{
    uint64_t key = 0;
    while (mr_partition_of(mr_key_hash(key, 0)) != partition)
        key++;
    return key;
}

static const struct node_reply *call(struct node_fixture *n, uint32_t core, uint8_t op, uint16_t table,
                                     uint16_t epoch, const struct mr_tensor *tensors, uint32_t count)
{
    static struct node_call answer; /* the next one frees it */
    const struct mr_call_options options = {
        .op = op, .table = table, .epoch = epoch, .deadline_us = dp_now_us() + 60000000};
    node_post(n, core, &answer, &options, tensors, count);
    return node_wait(n, &answer);
}

static const struct node_reply *look_up(struct node_fixture *n, uint32_t table, uint32_t partition,
                                        uint16_t epoch)
{
    const uint64_t key = key_of(partition);
    const struct mr_tensor tensor = mr_tensor_1d(MR_U64, 1, &key);
    return call(n, partition * CORES / MR_PARTITION_COUNT, MR_OP_LOOKUP, (uint16_t)table, epoch, &tensor, 1);
}

TEST(keys_are_served_since_their_epoch, become_member, node_teardown)
{
    struct node_fixture *n = *state;
    const struct mr_feature f = node_table("t", 1);
    const uint32_t table = node_create(n, &f);
    node_check(look_up(n, table, 0, OLD_EPOCH), MR_OK, NULL);
    node_check(look_up(n, table, 4094, EPOCH), MR_OK, NULL);
    node_check(look_up(n, table, 0, EPOCH + 20), MR_OK, NULL); /* the caller knows more than the node */
    node_check(look_up(n, table, 0, OLD_EPOCH - 1), MR_WRONG_OWNER, "too old, and this node has epoch 9");
    node_check(look_up(n, table, 0, 0), MR_WRONG_OWNER, "table t: key");
    node_check(look_up(n, table, 4094, EPOCH - 1), MR_WRONG_OWNER, "too old");
    node_check(look_up(n, table, 1, EPOCH), MR_WRONG_OWNER, "belongs to another node by epoch 9");
    node_check(look_up(n, table, 1, EPOCH + 20), MR_WRONG_OWNER, "belongs to another node by epoch 9");
    assert_int_equal(node_counter(n, 0, "ps.calls_of_others"), 4);
    assert_int_equal(node_counter(n, 2, "ps.calls_of_others"), 1);

    const uint64_t key = key_of(0);
    const struct mr_tensor tensor = mr_tensor_1d(MR_U64, 1, &key);
    node_check(call(n, 1, MR_OP_LOOKUP, (uint16_t)table, EPOCH, &tensor, 1), MR_INVALID_ARGUMENT,
               "belongs to core 0, not to core 1");
}

TEST(a_push_of_others_changes_nothing, become_member, node_teardown)
{
    struct node_fixture *n = *state;
    const struct mr_feature f = node_table("t", 1);
    const uint32_t table = node_create(n, &f);
    const uint64_t keys[2] = {key_of(0), key_of(1)};
    const float gradient[2 * NODE_DIM] = {1, 1, 1, 1, 1, 1, 1, 1};
    const uint32_t head[4] = {table, 0};
    node_check(look_up(n, table, 0, EPOCH), MR_OK, NULL);
    struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U32, 4, head), mr_tensor_1d(MR_U64, 2, keys),
                                   mr_tensor_1d(MR_U32, 0, NULL),
                                   mr_tensor_2d(MR_F32, 2, NODE_DIM, gradient)};
    node_check(call(n, 0, MR_OP_PUSH_GRAD, 0, EPOCH, tensors, 4), MR_WRONG_OWNER, NULL);
    const struct node_reply *reply = look_up(n, table, 0, EPOCH);
    assert_true(*(const float *)reply->tensors[0].data == 1.0f);
    tensors[1] = mr_tensor_1d(MR_U64, 1, keys);
    tensors[3] = mr_tensor_2d(MR_F32, 1, NODE_DIM, gradient);
    node_check(call(n, 0, MR_OP_PUSH_GRAD, 0, EPOCH, tensors, 4), MR_OK, NULL);
    reply = look_up(n, table, 0, EPOCH);
    assert_true(*(const float *)reply->tensors[0].data == 0.0f);
}

TEST(batches_go_by_the_newest_partition, become_member, node_teardown)
{
    struct node_fixture *n = *state;
    const struct mr_feature f = node_table("t", 1);
    const uint32_t table = node_create(n, &f);
    const uint64_t id = 5;
    const uint64_t key = key_of(2048);
    const uint32_t head[4] = {table, 1, 1, 0};
    const uint32_t offsets[2] = {0, 1};
    const struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U64, 1, &id), mr_tensor_1d(MR_U32, 4, head),
                                         mr_tensor_1d(MR_U64, 1, &key), mr_tensor_1d(MR_U32, 2, offsets)};
    node_check(call(n, 1, MR_OP_FEED_SAMPLE, 0, OLD_EPOCH, tensors, 4), MR_WRONG_OWNER, NULL);
    node_check(call(n, 1, MR_OP_FEED_SAMPLE, 0, EPOCH, tensors, 4), MR_OK, NULL);
    node_check(call(n, 1, MR_OP_LOOKUP_BATCH, (uint16_t)table, OLD_EPOCH, tensors, 1), MR_WRONG_OWNER,
               "batch 5: the call goes by a map of the cluster that is too old");
    node_check(call(n, 1, MR_OP_LOOKUP_BATCH, (uint16_t)table, EPOCH, tensors, 1), MR_OK, NULL);
}

/* Who knows an older map than the one by which it was fed may not know all that have shares of it, although
 * this core has what it had before. Where nothing is known of it, it may have been fed to others. */
TEST(batches_go_by_the_map_of_their_feed, become_member, node_teardown)
{
    struct node_fixture *n = *state;
    const struct mr_feature f = node_table("t", 1);
    const uint32_t table = node_create(n, &f);
    const uint64_t id = 5;
    const uint64_t key = key_of(0);
    const uint32_t head[4] = {table, 1, 1, 0};
    const uint32_t offsets[2] = {0, 1};
    const uint32_t push[4] = {table, 0};
    const float gradient[NODE_DIM] = {1, 1, 1, 1};
    const struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U64, 1, &id), mr_tensor_1d(MR_U32, 4, head),
                                         mr_tensor_1d(MR_U64, 1, &key), mr_tensor_1d(MR_U32, 2, offsets)};
    const struct mr_tensor pushed[3] = {mr_tensor_1d(MR_U64, 1, &id), mr_tensor_1d(MR_U32, 4, push),
                                        mr_tensor_3d(MR_F32, 1, 1, NODE_DIM, gradient)};
    node_check(call(n, 0, MR_OP_LOOKUP_BATCH, (uint16_t)table, EPOCH - 1, tensors, 1), MR_WRONG_OWNER, NULL);
    node_check(call(n, 0, MR_OP_LOOKUP_BATCH, (uint16_t)table, EPOCH, tensors, 1), MR_UNKNOWN_BATCH, NULL);
    node_check(call(n, 0, MR_OP_FEED_SAMPLE, 0, EPOCH, tensors, 4), MR_OK, NULL);
    node_check(call(n, 0, MR_OP_LOOKUP_BATCH, (uint16_t)table, EPOCH - 1, tensors, 1), MR_WRONG_OWNER,
               "batch 5: the call goes by a map of the cluster that is too old");
    node_check(call(n, 0, MR_OP_PUSH_GRAD_BATCH, 0, EPOCH - 1, pushed, 3), MR_WRONG_OWNER, NULL);
    node_check(call(n, 0, MR_OP_LOOKUP_BATCH, (uint16_t)table, EPOCH, tensors, 1), MR_OK, NULL);
    node_check(call(n, 0, MR_OP_PUSH_GRAD_BATCH, 0, EPOCH + 1, pushed, 3), MR_OK, NULL);
}

/* A core notes a push's number for all partitions that it has. Were that so for one that came after the map
 * by which the push was split, its keys would be missed out later. */
TEST(numbered_pushes_go_by_the_newest_partition, become_member, node_teardown)
{
    struct node_fixture *n = *state;
    const struct mr_feature f = node_table("t", 1);
    const uint32_t table = node_create(n, &f);
    const uint64_t old_key = key_of(2000), new_key = key_of(2048); /* both of core 1 */
    const float gradient[NODE_DIM] = {1, 1, 1, 1};
    const uint32_t head[4] = {table, 0};
    struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U32, 4, head), mr_tensor_1d(MR_U64, 1, &old_key),
                                   mr_tensor_1d(MR_U32, 0, NULL),
                                   mr_tensor_2d(MR_F32, 1, NODE_DIM, gradient)};
    const uint64_t first = 1;
    const struct mr_tensor gap = mr_tensor_1d(MR_U64, 1, &first);
    for (uint32_t i = 0; i < 2; i++)
        node_check(look_up(n, table, i == 0 ? 2000 : 2048, EPOCH), MR_OK, NULL);
    node_check(call(n, 1, MR_OP_PUSH_GRAD, 0, OLD_EPOCH, tensors, 4), MR_OK, NULL); /* no number */
    n->sequence = mr_push_sequence(mr_push_stream_chosen(0), 1);
    node_check(call(n, 1, MR_OP_PUSH_GRAD, 0, OLD_EPOCH, tensors, 4), MR_WRONG_OWNER,
               "push 1: the call goes by a map of the cluster that is too old");
    node_check(call(n, 1, MR_OP_PUSH_GRAD, 0, OLD_EPOCH, &gap, 1), MR_WRONG_OWNER, "push 1");
    tensors[1] = mr_tensor_1d(MR_U64, 1, &new_key);
    node_check(call(n, 1, MR_OP_PUSH_GRAD, 0, EPOCH, tensors, 4), MR_OK, NULL);
    n->sequence = 0;
    const struct node_reply *reply = look_up(n, table, 2048, EPOCH);
    assert_true(*(const float *)reply->tensors[0].data == 0.0f);
    reply = look_up(n, table, 2000, EPOCH);
    assert_true(*(const float *)reply->tensors[0].data == 0.0f);
}

/* The records of a partition, and what becomes of it. */
static void arrive(struct ps_core *core, void *arg)
{
    struct ps_partition_set set = {{0}};
    ps_partitions_add(&set, 1);
    if (core->index == 0)
        (*(const bool *)arg ? ps_ownership_arrive : ps_ownership_settle)(&core->owns, &set);
}

/* A move's records are here, and the map does not say yet whose the partition is. */
TEST(numbered_pushes_wait_for_partitions_that_arrive, become_member, node_teardown)
{
    struct node_fixture *n = *state;
    const struct mr_feature f = node_table("t", 1);
    const uint32_t table = node_create(n, &f);
    static struct node_call answer;
    const uint64_t key = key_of(0);
    const float gradient[NODE_DIM] = {1, 1, 1, 1};
    const uint32_t head[4] = {table, 0};
    const struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U32, 4, head), mr_tensor_1d(MR_U64, 1, &key),
                                         mr_tensor_1d(MR_U32, 0, NULL),
                                         mr_tensor_2d(MR_F32, 1, NODE_DIM, gradient)};
    for (uint64_t number = 1; number <= 2; number++) { /* it stays where it was, and it comes */
        bool arrives = true;
        const uint64_t held = node_counter(n, 0, "ps.requests_held_back");
        const struct mr_call_options options = {
            .op = MR_OP_PUSH_GRAD, .epoch = EPOCH, .deadline_us = dp_now_us() + 60000000};
        ps_node_each_core(node_of(), arrive, &arrives);
        n->sequence = mr_push_sequence(mr_push_stream_chosen(0), number);
        node_post(n, 0, &answer, &options, tensors, 4);
        n->sequence = 0;
        WAIT_UNTIL(node_look(n), node_counter(n, 0, "ps.requests_held_back") >= held + 3);
        assert_false(answer.is_answered);
        node_check(look_up(n, table, 0, EPOCH), MR_OK, NULL);
        arrives = false;
        if (number == 2)
            owned.since[1] = EPOCH;
        ps_node_each_core(node_of(), number == 2 ? own : arrive, &arrives);
        node_check(node_wait(n, &answer), MR_OK, NULL);
        node_call_end(&answer);
    }
}

/* Partitions of a dead node are this core's by the map, and their records still in a checkpoint: what is
 * about all that the core owns waits for them, as does what goes by a map that it has not read. */
TEST(what_is_about_all_partitions_waits_for_those_to_be_loaded, become_member, node_teardown)
{
    struct node_fixture *n = *state;
    const struct mr_feature f = node_table("t", 1);
    const uint32_t table = node_create(n, &f);
    static struct node_call mark, record;
    const uint64_t stream = 0, first = 1;
    const struct mr_tensor streams = mr_tensor_1d(MR_U64, 1, &stream),
                           numbers = mr_tensor_1d(MR_U64, 1, &first);
    for (uint32_t i = 0; i < 2; i++) {
        const uint64_t held = node_counter(n, 0, "ps.requests_held_back");
        struct mr_call_options options = {.epoch = (uint16_t)(owned.epoch + i),
                                          .deadline_us = dp_now_us() + 60000000};
        owned.since[1] = i == 0 ? PS_LOADING : PS_NOT_OWNED;
        ps_node_each_core(node_of(), own, NULL);
        n->sequence = mr_push_sequence(mr_push_stream_chosen(0), i + 1);
        options.op = MR_OP_PUSH_GRAD;
        node_post(n, 0, &mark, &options, &numbers, 1);
        n->sequence = 0;
        options.op = MR_OP_BATCH_STATE;
        node_post(n, 0, &record, &options, &streams, 1);
        WAIT_UNTIL(node_look(n), node_counter(n, 0, "ps.requests_held_back") >= held + 6);
        assert_false(mark.is_answered || record.is_answered);
        node_check(look_up(n, table, 0, EPOCH), MR_OK, NULL);
        owned.epoch++;
        owned.since[1] = i == 0 ? OLD_EPOCH : PS_NOT_OWNED;
        ps_node_each_core(node_of(), own, NULL);
        node_check(node_wait(n, &mark), MR_OK, NULL);
        node_check(node_wait(n, &record), MR_OK, NULL);
        node_call_end(&mark);
        node_call_end(&record);
    }
}

/* A variable's name whose partition is even, or odd. */
static void name_variable(char name[8], bool is_odd)
{
    uint32_t i = 0;
    do
        (void)snprintf(name, 8, "v%u", i++);
    while ((mr_variable_partition(name) % 2 != 0) != is_odd);
}

TEST(variables_of_others_take_no_memory, become_member, node_teardown)
{
    struct node_fixture *n = *state;
    char own_name[8], other_name[8];
    name_variable(own_name, false);
    name_variable(other_name, true);
    const struct mr_feature own_variable = node_variable(own_name, 4);
    const struct mr_feature other = node_variable(other_name, 4);
    const uint32_t ids[2] = {node_create(n, &own_variable), node_create(n, &other)};
    const uint64_t range[2] = {0, 0};
    const struct mr_tensor tensor = mr_tensor_1d(MR_U64, 2, range);
    const uint32_t core = node_core_of_variable(n, own_name);
    const uint32_t other_core = node_core_of_variable(n, other_name);
    node_check(call(n, core, MR_OP_VARIABLE_PULL, (uint16_t)ids[0], EPOCH, &tensor, 1), MR_OK, NULL);
    node_check(call(n, core, MR_OP_VARIABLE_PULL, (uint16_t)ids[0], OLD_EPOCH - 1, &tensor, 1),
               MR_WRONG_OWNER, "too old");
    node_check(call(n, other_core, MR_OP_VARIABLE_PULL, (uint16_t)ids[1], EPOCH, &tensor, 1), MR_WRONG_OWNER,
               "belongs to another node");
    assert_null(ps_core_feature(fake_dp_app(other_core), ids[1])->ranges[0].variable);

    /* it becomes this node's */
    owned.epoch = EPOCH + 1;
    owned.since[mr_variable_partition(other_name)] = EPOCH + 1;
    ps_node_each_core(node_of(), own, NULL);
    node_check(call(n, other_core, MR_OP_VARIABLE_PULL, (uint16_t)ids[1], EPOCH, &tensor, 1), MR_WRONG_OWNER,
               "too old");
    node_check(call(n, other_core, MR_OP_VARIABLE_PULL, (uint16_t)ids[1], EPOCH + 1, &tensor, 1), MR_OK,
               NULL);
}

TEST(nothing_is_served_without_a_lease, become_member, node_teardown)
{
    struct node_fixture *n = *state;
    const struct mr_feature f = node_table("t", 1);
    const uint32_t table = node_create(n, &f);
    static struct node_call answer;
    const uint64_t key = key_of(0);
    const struct mr_tensor tensor = mr_tensor_1d(MR_U64, 1, &key);
    const struct mr_call_options options = {
        .op = MR_OP_LOOKUP, .table = (uint16_t)table, .epoch = EPOCH, .deadline_us = dp_now_us() + 60000000};
    atomic_store(&node_of()->lease_end_us, 1);
    node_post(n, 0, &answer, &options, &tensor, 1);
    WAIT_UNTIL(node_look(n), node_counter(n, 0, "ps.calls_without_lease") >= 3);
    assert_false(answer.is_answered);
    const struct node_reply *shown = node_call(n, 0, MR_OP_NODE_INFO, 0, NULL, 0);
    assert_int_equal(((const uint64_t *)shown->tensors[2].data)[MR_CLUSTER_LEASE_LEFT_US], 0);
    atomic_store(&node_of()->lease_end_us, FOREVER);
    node_check(node_wait(n, &answer), MR_OK, NULL);
    node_call_end(&answer);
}

/* A move is ending: calls for its partitions wait, others go on, until it has ended or was cancelled. */
TEST(calls_for_held_partitions_wait, become_member, node_teardown)
{
    struct node_fixture *n = *state;
    const struct mr_feature f = node_table("t", 1);
    const uint32_t table = node_create(n, &f);
    static struct node_call answer;
    const uint64_t key = key_of(0);
    const struct mr_tensor tensor = mr_tensor_1d(MR_U64, 1, &key);
    const struct mr_call_options options = {
        .op = MR_OP_LOOKUP, .table = (uint16_t)table, .epoch = EPOCH, .deadline_us = dp_now_us() + 60000000};
    owned.since[0] = PS_FENCED;
    ps_node_each_core(node_of(), own, NULL);
    node_post(n, 0, &answer, &options, &tensor, 1);
    WAIT_UNTIL(node_look(n), node_counter(n, 0, "ps.requests_held_back") >= 3);
    assert_false(answer.is_answered);
    node_check(look_up(n, table, 2, EPOCH), MR_OK, NULL);
    owned.since[0] = OLD_EPOCH; /* cancelled */
    ps_node_each_core(node_of(), own, NULL);
    node_check(node_wait(n, &answer), MR_OK, NULL);
    node_call_end(&answer);
    owned.since[0] = PS_NOT_OWNED;
    ps_node_each_core(node_of(), own, NULL);
    node_check(look_up(n, table, 0, EPOCH), MR_WRONG_OWNER, "belongs to another node");
}

/* What was fed was split by another map. It stays while a move is only ending. */
TEST(batches_go_when_partitions_do, become_member, node_teardown)
{
    struct node_fixture *n = *state;
    const struct mr_feature f = node_table("t", 1);
    const uint32_t table = node_create(n, &f);
    const uint64_t id = 5;
    const uint64_t key = key_of(2);
    const uint32_t head[4] = {table, 1, 1, 0};
    const uint32_t offsets[2] = {0, 1};
    const struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U64, 1, &id), mr_tensor_1d(MR_U32, 4, head),
                                         mr_tensor_1d(MR_U64, 1, &key), mr_tensor_1d(MR_U32, 2, offsets)};
    node_check(call(n, 0, MR_OP_FEED_SAMPLE, 0, EPOCH, tensors, 4), MR_OK, NULL);
    owned.since[0] = PS_FENCED;
    ps_node_each_core(node_of(), own, NULL);
    owned.since[0] = OLD_EPOCH;
    ps_node_each_core(node_of(), own, NULL);
    node_check(call(n, 0, MR_OP_LOOKUP_BATCH, (uint16_t)table, EPOCH, tensors, 1), MR_OK, NULL);
    for (uint32_t i = 0; i < 2; i++) { /* one leaves, and then one comes */
        node_check(call(n, 0, MR_OP_FEED_SAMPLE, 0, (uint16_t)(EPOCH + i), tensors, 4), MR_OK, NULL);
        owned.epoch++;
        owned.since[0] = i == 0 ? PS_NOT_OWNED : owned.epoch;
        ps_node_each_core(node_of(), own, NULL);
        node_check(call(n, 0, MR_OP_LOOKUP_BATCH, (uint16_t)table, (uint16_t)owned.epoch, tensors, 1),
                   MR_UNKNOWN_BATCH, NULL);
    }
}

TEST(a_member_shows_the_cluster, become_member, node_teardown)
{
    struct node_fixture *n = *state;
    const struct node_reply *reply = node_call(n, 2, MR_OP_NODE_INFO, 0, NULL, 0);
    node_check(reply, MR_OK, NULL);
    assert_int_equal(reply->tensor_count, 2 + MR_CLUSTER_TENSORS);
    const uint64_t *words = reply->tensors[2].data;
    assert_int_equal(words[MR_CLUSTER_EPOCH], EPOCH);
    assert_int_equal(words[MR_CLUSTER_SELF], 1);
    assert_int_equal(words[MR_CLUSTER_NODES], 2);
    assert_true(words[MR_CLUSTER_LEASE_LEFT_US] > 0);
    assert_int_equal(reply->tensors[3].dims[0], 2);
    assert_int_equal(reply->tensors[3].dims[1], sizeof(struct mr_cluster_node));
    assert_string_equal(((const struct mr_cluster_node *)reply->tensors[3].data)[1].name, "b");
    assert_int_equal(reply->tensors[4].dtype, MR_U8);
    assert_memory_equal(reply->tensors[4].data, info.owner_of_few, MR_PARTITION_COUNT);

    info.any_restored = true; /* of a node that died: clients send again what its heirs lack */
    info.restored_in[7] = EPOCH - 1;
    reply = node_call(n, 2, MR_OP_NODE_INFO, 0, NULL, 0);
    assert_int_equal(reply->tensor_count, 2 + MR_CLUSTER_TENSORS + MR_CLUSTER_RESTORED_TENSORS);
    assert_int_equal(reply->tensors[5].dtype, MR_U32);
    assert_memory_equal(reply->tensors[5].data, info.restored_in, sizeof(info.restored_in));

    info.has_copies = true;
    info.copies[1][MR_COPIES_BACKUPS] = 9;
    info.any_restored = false; /* it is sent all the same: tensors are known by their places */
    reply = node_call(n, 2, MR_OP_NODE_INFO, 0, NULL, 0);
    assert_int_equal(reply->tensor_count,
                     2 + MR_CLUSTER_TENSORS + MR_CLUSTER_RESTORED_TENSORS + MR_CLUSTER_COPIES_TENSORS);
    assert_int_equal(reply->tensors[6].dims[0], 2);
    assert_int_equal(reply->tensors[6].dims[1], MR_COPIES_WORDS);
    assert_memory_equal(reply->tensors[6].data, info.copies, 2 * sizeof(info.copies[0]));

    info.node_count = MR_CLUSTER_NODES_MAX; /* owners above 255 fit as well */
    info.owner[7] = MR_CLUSTER_NODES_MAX - 1;
    reply = node_call(n, 2, MR_OP_NODE_INFO, 0, NULL, 0);
    node_check(reply, MR_OK, NULL);
    assert_int_equal(reply->tensors[3].dims[0], MR_CLUSTER_NODES_MAX);
    assert_int_equal(reply->tensors[4].dtype, MR_U16);
    assert_memory_equal(reply->tensors[4].data, info.owner, sizeof(info.owner));
}

TEST(a_node_by_itself_shows_none, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    const struct node_reply *reply = node_call(n, 0, MR_OP_NODE_INFO, 0, NULL, 0);
    assert_int_equal(reply->tensor_count, 2);
    node_check(look_up(n, 1, 0, 1), MR_BAD_MESSAGE, NULL);
}
