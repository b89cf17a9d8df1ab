/* Create, Drop, Alter and Freeze over three nodes with a real ZooKeeper server: all or none, with the same
 * numbers. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "dataplane/wire/format/op.h"
#include "tests/integration/cluster/cluster_nodes.h"
#include "tests/integration/cluster/zookeeper_server.h"
#include "tests/integration/netns.h"
#include "tests/integration/wire_client.h"
#include "tests/test.h"

#define NODES      3u
#define SESSION_MS 1500u
#define LIMIT_MS   60000u
#define LISTED_MAX 16u

static const char *millraced;
static struct zookeeper_server server;
static struct cluster_node nodes[NODES];

/* ---- calls ---- */

struct listed {
    uint32_t count;
    uint32_t ids[LISTED_MAX];
    struct mr_feature features[LISTED_MAX];
};

static void keep_list(void *context, const struct mr_message *reply)
{
    struct listed *out = context;
    out->count = reply->tensors[1].dims[0];
    assert_int_in_range(out->count, 0, LISTED_MAX);
    memcpy(out->features, reply->tensors[0].data, out->count * sizeof(out->features[0]));
    memcpy(out->ids, reply->tensors[1].data, out->count * sizeof(out->ids[0]));
}

static void keep_id(void *context, const struct mr_message *reply)
{
    if (reply->tensors[0].dtype == MR_U32)
        *(uint32_t *)context = *(const uint32_t *)reply->tensors[0].data;
}

struct call {
    const struct cluster_node *node;
    struct wire_client_request request;
    enum mr_status status;
    uint32_t id;
    char text[WIRE_CLIENT_TEXT_BYTES];
};

static void *cluster_features_ask(void *arg)
{
    struct call *c = arg;
    if (c->request.show == NULL && c->request.op != MR_OP_FREEZE) {
        c->request.show = keep_id;
        c->request.context = &c->id;
    }
    struct wire_client *client = wire_client_create("127.0.0.1", c->node->port, 0);
    c->status = wire_client_ask(client, &c->request, LIMIT_MS, c->text);
    wire_client_destroy(client);
    return NULL;
}

static struct call call_of(uint32_t node, uint8_t op, const struct mr_tensor *tensor)
{
    return (struct call){.node = &nodes[node],
                         .request = {.op = op, .tensors = tensor, .tensor_count = tensor == NULL ? 0 : 1}};
}

static void expect(struct call call, enum mr_status status)
{
    (void)cluster_features_ask(&call);
    if (call.status != status)
        fail_msg("%s answers %s: %s", call.node->name, mr_status_name(call.status), call.text);
}

static uint32_t cluster_features_create(uint32_t node, const struct mr_feature *f)
{
    const struct mr_tensor tensor = mr_tensor_2d(MR_U8, 1, sizeof(*f), f);
    struct call call = call_of(node, MR_OP_CREATE, &tensor);
    (void)cluster_features_ask(&call);
    if (call.status != MR_OK)
        fail_msg("%s answers %s: %s", call.node->name, mr_status_name(call.status), call.text);
    return call.id;
}

static void list(uint32_t node, struct listed *out)
{
    struct call call = call_of(node, MR_OP_LIST, NULL);
    call.request.show = keep_list;
    call.request.context = out;
    memset(out, 0, sizeof(*out));
    expect(call, MR_OK);
}

/* What a call has done is so on every node when it was answered. */
static void expect_same_lists(struct listed *out)
{
    static struct listed other;
    list(0, out);
    for (uint32_t i = 1; i < NODES; i++) {
        list(i, &other);
        assert_int_equal(other.count, out->count);
        assert_memory_equal(&other, out, sizeof(other));
    }
}

static bool has(uint32_t node, const char *name)
{
    static struct listed l;
    list(node, &l);
    for (uint32_t i = 0; i < l.count; i++)
        if (strcmp(l.features[i].name, name) == 0)
            return true;
    return false;
}

static bool all_is_owned(const struct cluster_shown *s)
{
    return s->node_count == NODES && s->owner[0] != MR_CLUSTER_NO_NODE &&
           s->words[MR_CLUSTER_LEASE_LEFT_US] > 0;
}

static void wait_serving(uint32_t node)
{
    static struct cluster_shown shown;
    cluster_node_wait(&nodes[node], &shown, all_is_owned, "it serves");
}

/* ---- tests, in this order ---- */

static int start_all(void **state)
{
    char settings[96];
    (void)state;
    zookeeper_server_create(&server);
    (void)snprintf(settings, sizeof(settings), "zookeeper = 127.0.0.1:%u\nnodes = %u\nsession_ms = %u\n",
                   server.port, NODES, SESSION_MS);
    for (uint32_t i = 0; i < NODES; i++)
        cluster_node_create(&nodes[i], millraced, i, settings);
    for (uint32_t i = 0; i < NODES; i++)
        wait_serving(i);
    return 0;
}

static int end_all(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < NODES; i++)
        cluster_node_destroy(&nodes[i]);
    zookeeper_server_destroy(&server);
    return 0;
}

/* One client at each node, all at the same time. */
static void create_at_once(const struct mr_feature features[NODES], struct call calls[NODES])
{
    struct mr_tensor tensors[NODES];
    pthread_t threads[NODES];
    for (uint32_t i = 0; i < NODES; i++) {
        tensors[i] = mr_tensor_2d(MR_U8, 1, sizeof(features[i]), &features[i]);
        calls[i] = call_of(i, MR_OP_CREATE, &tensors[i]);
        assert_int_equal(pthread_create(&threads[i], NULL, cluster_features_ask, &calls[i]), 0);
    }
    for (uint32_t i = 0; i < NODES; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

static void test_the_same_and_others_at_once(void **state)
{
    const struct mr_feature same[NODES] = {mr_feature_table("same", 4), mr_feature_table("same", 4),
                                           mr_feature_table("same", 4)};
    const struct mr_feature others[NODES] = {mr_feature_table("a", 4), mr_feature_table("b", 8),
                                             mr_feature_variable("c", 1, (const uint32_t[]){5})};
    const struct mr_feature unlike[NODES] = {mr_feature_table("x", 4), mr_feature_table("x", 8),
                                             mr_feature_table("x", 16)};
    static struct listed l;
    struct call calls[NODES];
    uint32_t made = 0;
    (void)state;
    create_at_once(same, calls);
    for (uint32_t i = 0; i < NODES; i++) {
        assert_int_equal(calls[i].status, MR_OK);
        assert_int_equal(calls[i].id, 1);
    }
    create_at_once(others, calls);
    expect_same_lists(&l);
    assert_int_equal(l.count, 4);
    for (uint32_t i = 0; i < NODES; i++) {
        assert_int_equal(calls[i].status, MR_OK);
        for (uint32_t k = 0; k < l.count; k++)
            if (strcmp(l.features[k].name, others[i].name) == 0)
                assert_int_equal(calls[i].id, l.ids[k]);
    }
    create_at_once(unlike, calls); /* one of them is first */
    for (uint32_t i = 0; i < NODES; i++) {
        made += calls[i].status == MR_OK;
        assert_true(calls[i].status == MR_OK || calls[i].status == MR_FEATURE_MISMATCH);
    }
    assert_int_equal(made, 1);
    expect_same_lists(&l);
    assert_int_equal(l.count, 5);
}

static void test_alter_freeze_and_drop(void **state)
{
    struct mr_feature both[2] = {mr_feature_table("a", 4), mr_feature_table("a", 4)};
    static const char name[MR_NAME_BYTES] = "x";
    const uint32_t levels[] = {MR_FREEZE_ADMIT, MR_FREEZE_OFF};
    static struct listed l;
    struct mr_tensor tensor = mr_tensor_2d(MR_U8, 2, sizeof(both[0]), both);
    (void)state;
    both[1].learning_rate = 0.5f;
    expect(call_of(1, MR_OP_ALTER, &tensor), MR_OK);
    expect_same_lists(&l);
    uint32_t altered = 0;
    for (uint32_t i = 0; i < l.count; i++)
        altered += l.features[i].learning_rate == 0.5f;
    assert_int_equal(altered, 1);

    tensor = mr_tensor_1d(MR_U32, 1, &levels[0]);
    expect(call_of(2, MR_OP_FREEZE, &tensor), MR_OK);
    for (uint32_t i = 0; i < NODES; i++)
        assert_true(cluster_node_says(&nodes[i], "freeze: admit"));
    tensor = mr_tensor_1d(MR_U32, 1, &levels[1]);
    expect(call_of(0, MR_OP_FREEZE, &tensor), MR_OK);

    tensor = mr_tensor_2d(MR_U8, 1, MR_NAME_BYTES, name);
    expect(call_of(0, MR_OP_DROP, &tensor), MR_OK);
    expect_same_lists(&l);
    assert_int_equal(l.count, 4);
    expect(call_of(1, MR_OP_DROP, &tensor), MR_UNKNOWN_TABLE);
}

/* No node has room for it; what came with it is gone, too, and so are the numbers. */
static void test_what_a_node_has_no_room_for(void **state)
{
    const struct mr_feature features[] = {mr_feature_table("small", 4),
                                          mr_feature_variable("large", 1, (const uint32_t[]){1u << 29})};
    const struct mr_feature next = mr_feature_table("next", 4);
    const struct mr_tensor tensor = mr_tensor_2d(MR_U8, 2, sizeof(features[0]), features);
    static struct listed l;
    (void)state;
    list(0, &l);
    const uint32_t last = cluster_features_create(1, &next);
    expect(call_of(2, MR_OP_CREATE, &tensor), MR_OUT_OF_MEMORY);
    expect_same_lists(&l);
    assert_int_equal(l.count, 5);
    const struct mr_feature small = mr_feature_table("small", 4);
    const uint32_t taken =
        cluster_features_create(0, &small) - last - 1; /* two each time that it was tried */
    assert_true(taken >= 2 && taken % 2 == 0);
}

/* The node that was asked is killed while another one has not answered yet: the others finish what it
 * began, and when it is back it has the same. */
static void test_a_node_dies_in_the_middle_of_a_create(void **state)
{
    const struct mr_feature f = mr_feature_table("half", 4);
    const struct mr_tensor tensor = mr_tensor_2d(MR_U8, 1, sizeof(f), &f);
    static struct listed l;
    struct call call = call_of(1, MR_OP_CREATE, &tensor);
    pthread_t thread;
    (void)state;
    netns_suspend(nodes[2].pid);
    assert_int_equal(pthread_create(&thread, NULL, cluster_features_ask, &call), 0);
    cluster_node_wait_says(&nodes[1], "created 1 feature, first half");
    assert_false(has(1, "half")); /* it is not final: n2 has not said anything */
    cluster_node_kill(&nodes[1]);
    netns_resume(nodes[2].pid);
    cluster_node_start(&nodes[1], millraced);
    for (uint32_t i = 0; i < NODES; i++)
        wait_serving(i);
    assert_int_equal(pthread_join(thread, NULL), 0); /* its call may have ended in any way */
    const uint32_t id = cluster_features_create(0, &f);
    expect_same_lists(&l);
    assert_int_equal(l.count, 7);
    assert_string_equal(l.features[6].name, "half");
    assert_int_equal(l.ids[6], id);
    assert_int_equal(cluster_features_create(1, &f), id);
}

static void test_everybody_starts_again(void **state)
{
    static struct listed before, after;
    (void)state;
    expect_same_lists(&before);
    for (uint32_t i = 0; i < NODES; i++)
        cluster_node_stop(&nodes[i]);
    for (uint32_t i = 0; i < NODES; i++)
        cluster_node_start(&nodes[i], millraced);
    for (uint32_t i = 0; i < NODES; i++)
        wait_serving(i);
    expect_same_lists(&after);
    assert_memory_equal(&after, &before, sizeof(after));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same_and_others_at_once),
        cmocka_unit_test(test_alter_freeze_and_drop),
        cmocka_unit_test(test_what_a_node_has_no_room_for),
        cmocka_unit_test(test_a_node_dies_in_the_middle_of_a_create),
        cmocka_unit_test(test_everybody_starts_again),
    };
    if (argc != 2) {
        (void)fprintf(stderr, "usage: %s MILLRACED\n", argv[0]);
        return 2;
    }
    millraced = argv[1];
    zookeeper_server_require();
    cluster_nodes_isolate();
    return cluster_nodes_end(cmocka_run_group_tests(tests, start_all, end_all));
}
