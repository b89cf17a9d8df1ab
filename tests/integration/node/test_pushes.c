/* Numbered pushes through a kill: everything is sent again, and each push counts once. On as many cores as
 * before, and on others. The rows tell the count: SGD with learning rate 1 takes 1 off for each push. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/format/mr_feature.h"
#include "dataplane/wire/format/push_number.h"
#include "millrace_admin.h"
#include "tests/checkpoint_calls.h"
#include "tests/integration/node_fixture.h"
#include "tests/integration/wire_client.h"
#include "tests/test.h"

enum { DIM = 4, KEYS = 300, CORES_MAX = 3, PUSHES = 30, PORT = 7700, CALL_MS = 60000 };

static uint32_t cores_before, cores_after; /* of this run */
static const uint8_t uuid[MR_UUID_BYTES] = "numbered pushes";

struct fixture {
    struct node_fixture node;
    struct mr_client *client;
    struct wire_client *wire[CORES_MAX];
    uint32_t table, cores; /* cores: of now */
    uint64_t keys[KEYS];
};

static void connect_wires(struct fixture *x, uint32_t cores)
{
    x->cores = cores;
    for (uint32_t i = 0; i < cores; i++)
        x->wire[i] = wire_client_create_as(NETNS_SERVER_IPV4, (uint16_t)(PORT + i), (uint16_t)i, uuid);
}

static void disconnect_wires(struct fixture *x)
{
    for (uint32_t i = 0; i < x->cores; i++)
        wire_client_destroy(x->wire[i]);
}

static int set_up(void **state)
{
    static struct fixture x;
    struct mr_feature feature = mr_feature_table("rows", DIM);
    memset(&x, 0, sizeof(x));
    node_fixture_start(&x.node, cores_before, NULL);
    x.client = node_fixture_connect(&x.node);
    feature.initializer = MR_INIT_CONSTANT;
    feature.optimizer = MR_OPT_SGD;
    feature.learning_rate = 1;
    assert_int_equal(mr_create(x.client, NULL, &feature, 1, &x.table), MR_OK);
    for (uint32_t i = 0; i < KEYS; i++)
        x.keys[i] = i * UINT64_C(0x9e3779b97f4a7c15);
    connect_wires(&x, cores_before);
    *state = &x;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *x = *state;
    disconnect_wires(x);
    mr_client_destroy(x->client);
    node_fixture_stop(&x->node);
    return 0;
}

static uint32_t core_of(uint32_t cores, uint64_t key)
{
    return mr_partition_of(mr_key_hash(key, 0)) * cores / MR_PARTITION_COUNT;
}

/* Whether some partition is core `a`'s of cores_before and core `b`'s of now. */
static bool meets(const struct fixture *x, uint32_t a, uint32_t b)
{
    uint32_t p = 0;
    while (p < MR_PARTITION_COUNT &&
           (p * cores_before / MR_PARTITION_COUNT != a || p * x->cores / MR_PARTITION_COUNT != b))
        p++;
    return p < MR_PARTITION_COUNT;
}

/* Core `to`'s share of push `number`, which holds all keys of core `old` as it was at first; what the answer
 * says is durable. */
static uint64_t push_share(struct fixture *x, uint32_t old, uint64_t number, uint32_t to)
{
    static float ones[KEYS * DIM];
    uint64_t keys[KEYS];
    uint32_t head[4] = {x->table, 0}, count = 0;
    char text[WIRE_CLIENT_TEXT_BYTES];
    uint32_t stream_id = x->cores == cores_before ? 0 : mr_push_stream_of_core(cores_before, old);
    for (uint32_t i = 0; i < KEYS; i++)
        if (core_of(cores_before, x->keys[i]) == old && core_of(x->cores, x->keys[i]) == to)
            keys[count++] = x->keys[i];
    for (uint32_t i = 0; i < KEYS * DIM; i++)
        ones[i] = 1;
    struct mr_tensor tensors[4] = {mr_tensor_1d(MR_U32, 4, head), mr_tensor_1d(MR_U64, count, keys),
                                   mr_tensor_1d(MR_U32, 0, NULL), mr_tensor_2d(MR_F32, count, DIM, ones)};
    struct wire_client_request request = {.op = MR_OP_PUSH_GRAD,
                                          .tensors = tensors,
                                          .tensor_count = count > 0 ? 4 : 0,
                                          .sequence = mr_push_sequence(stream_id, number)};

    if (wire_client_ask(x->wire[to], &request, CALL_MS, text) != MR_OK)
        fail_msg("push %u to core %u: %s", (unsigned)number, to, text);
    assert_int_equal(mr_push_stream_id(wire_client_durable(x->wire[to])), stream_id);
    return mr_push_number(wire_client_durable(x->wire[to]));
}

/* To all cores; the least that any says is durable. */
static uint64_t pushes_push(struct fixture *x, uint64_t number)
{
    uint64_t durable = UINT64_MAX;
    for (uint32_t old = 0; old < cores_before; old++) {
        for (uint32_t to = 0; to < x->cores; to++) {
            if (meets(x, old, to)) {
                uint64_t of_core = push_share(x, old, number, to);
                durable = of_core < durable ? of_core : durable;
            }
        }
    }
    return durable;
}

static void check_rows(struct fixture *x, uint32_t pushes)
{
    struct mr_reply *reply;
    assert_int_equal(mr_lookup(x->client, NULL, x->table, x->keys, KEYS, &reply), MR_OK);
    const float *rows = mr_reply_tensor(reply, 0)->data;
    for (uint32_t i = 0; i < KEYS * DIM; i++)
        if (rows[i] != -(float)pushes)
            fail_msg("row %u holds %g after %u pushes", i / DIM, (double)rows[i], pushes);
    mr_reply_free(reply);
}

static void restart(struct fixture *x)
{
    disconnect_wires(x);
    mr_client_destroy(x->client);
    node_fixture_kill(&x->node);
    node_fixture_restart_with(&x->node, cores_after);
    x->client = node_fixture_connect(&x->node);
    connect_wires(x, cores_after);
}

/* A third of the pushes before the checkpoint, a third while it is written, a third after it. */
TEST(test_each_counts_once, set_up, tear_down)
{
    struct fixture *x = *state;
    uint64_t number = 1, id, durable = 0;
    while (number <= PUSHES / 3)
        assert_int_equal(pushes_push(x, number++), 0);
    assert_int_equal(save_into(x->client, NULL, NULL, &id), MR_OK);
    while (number <= 2 * PUSHES / 3)
        pushes_push(x, number++);
    assert_int_equal(node_fixture_wait_saved(x->client).last_status, MR_OK);
    while (number <= PUSHES)
        assert_int_equal(pushes_push(x, number++), PUSHES / 3);
    check_rows(x, PUSHES);
    restart(x);
    check_rows(x, PUSHES / 3);
    for (uint32_t again = 0; again < 2; again++) {
        for (number = 1; number <= PUSHES; number++)
            durable = pushes_push(x, number);
        assert_int_equal(durable, PUSHES / 3);
        check_rows(x, PUSHES);
    }
    assert_int_equal(node_fixture_sum(x->client, "ps.pushes_skipped"), 0);
    assert_int_equal(save_into(x->client, NULL, NULL, &id), MR_OK);
    assert_int_equal(node_fixture_wait_saved(x->client).last_status, MR_OK);
    assert_int_equal(pushes_push(x, PUSHES), PUSHES);
    check_rows(x, PUSHES);
}

/* Without any checkpoint, all of them are new to the server; their rows are made again. */
TEST(test_nothing_was_saved, set_up, tear_down)
{
    struct fixture *x = *state;
    for (uint64_t number = 1; number <= 3; number++)
        pushes_push(x, number);
    restart(x);

    struct mr_feature feature = mr_feature_table("rows", DIM);

    feature.initializer = MR_INIT_CONSTANT;
    feature.optimizer = MR_OPT_SGD;
    feature.learning_rate = 1;
    assert_int_equal(mr_create(x->client, NULL, &feature, 1, &x->table), MR_OK);
    for (uint64_t number = 1; number <= 3; number++)
        assert_int_equal(pushes_push(x, number), 0);
    check_rows(x, 3);
}

int main(int argc, char **argv)
{
    if (argc != 4 || (cores_before = (uint32_t)strtoul(argv[2], NULL, 10)) == 0 ||
        (cores_after = (uint32_t)strtoul(argv[3], NULL, 10)) == 0 || cores_before > CORES_MAX ||
        cores_after > CORES_MAX) {
        fprintf(stderr, "usage: test_pushes MILLRACED CORES CORES_AFTER\n");
        return 2;
    }
    node_fixture_server = argv[1];
    netns_require_root();
    return tests_run(NULL, NULL);
}
