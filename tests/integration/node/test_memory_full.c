/* A node whose memory limit is reached goes on serving: known rows learn, new ones are answered and not kept,
 * and what does not fit is refused by name. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jansson.h>
#include "millrace_observe.h"
#include "tests/integration/node_fixture.h"
#include "tests/integration/program.h"
#include "tests/test.h"

static const char *millrace;

enum { DIM = 64, CHUNK = 20000, CHUNKS_MAX = 60, LIMIT_MIB = 144 };

static uint64_t held(struct mr_client *client, uint64_t *memory_bytes)
{
    struct mr_core_state states[64];
    uint64_t rows = 0;
    *memory_bytes = 0;
    assert_int_equal(mr_heartbeat(client, NULL, states), MR_OK);
    for (uint32_t i = 0; i < mr_client_core_count(client); i++) {
        rows += states[i].rows;
        *memory_bytes += states[i].memory_bytes;
    }
    return rows;
}

static uint64_t memory_full_fill(struct mr_client *client, uint32_t table, uint64_t *keys)
{
    uint64_t rows = 0, memory_bytes;
    for (uint64_t chunk = 0; chunk < CHUNKS_MAX; chunk++) {
        for (uint32_t i = 0; i < CHUNK; i++)
            keys[i] = chunk * CHUNK + i;
        assert_int_equal(mr_lookup(client, NULL, table, keys, CHUNK, NULL), MR_OK);

        uint64_t now = held(client, &memory_bytes);

        assert_true(memory_bytes <= (uint64_t)LIMIT_MIB << 20);
        if (now == rows)
            return rows;
        rows = now;
    }
    fail_msg("the limit was never reached: %llu rows", (unsigned long long)rows);
    return 0;
}

/* Summed over the objects of a tool's JSON list. */
static uint64_t sum_of(const struct node_fixture *node, const char *command, const char *field)
{
    static struct program_result result; /* large */
    uint64_t sum = 0;
    program_run(&node->net, NETNS_CLIENT, &result, "%s %s --json --server %s", millrace, command,
                node->address);
    program_expect(&result, 0, "");
    json_t *list = json_loads(result.out, 0, NULL);

    assert_non_null(list);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *value = json_object_get(json_array_get(list, i), field);
        assert_non_null(value);
        sum += (uint64_t)json_integer_value(value);
    }
    json_decref(list);
    return sum;
}

/* What a full node did not do is in the answer of a push that asks, in heartbeat, top and list. Returns how
 * many rows were made. */
static uint64_t check_told(struct node_fixture *node, struct mr_client *client, uint32_t table, uint32_t set)
{
    struct mr_core_state states[64];
    struct mr_pushed pushed = {.sent = 0};
    struct mr_options options = {.pushed = &pushed};
    uint64_t *keys = calloc(CHUNK, sizeof(*keys)), refused = 0, without_row = 0, skipped = 0;
    float *gradients = calloc((size_t)CHUNK * DIM, sizeof(*gradients));
    assert_true(keys != NULL && gradients != NULL);
    for (uint64_t i = 1; i < CHUNK; i++) /* key 0 has a row */
        keys[i] = (UINT64_C(1) << 60) + i;
    gradients[0] = NAN;
    assert_int_equal(mr_push_gradients(client, &options, table, keys, 3, DIM, gradients), MR_OK);
    assert_true(pushed.is_known);
    assert_int_equal(pushed.sent, 3);
    assert_int_equal(pushed.applied, 0);
    assert_int_equal(pushed.not_finite, 1);
    assert_int_equal(pushed.without_row, 2);
    /* Rows that are set are made by the push itself, or refused. */
    assert_int_equal(mr_push_gradients(client, &options, set, keys, CHUNK, DIM, gradients), MR_OK);
    assert_int_equal(pushed.sent, CHUNK);
    assert_int_equal(pushed.applied + pushed.refused + pushed.not_finite, CHUNK);
    assert_true(pushed.refused > CHUNK / 2 && pushed.without_row == 0);
    assert_int_equal(mr_heartbeat(client, NULL, states), MR_OK);
    for (uint32_t i = 0; i < mr_client_core_count(client); i++) {
        refused += states[i].rows_refused;
        without_row += states[i].gradients_without_row;
        skipped += states[i].gradients_skipped;
    }
    assert_int_equal(refused, node_fixture_sum(client, "table.rows_refused"));
    assert_true(refused > pushed.refused);
    assert_int_equal(without_row, 2 + pushed.refused);
    assert_true(skipped >= 1);
    assert_int_equal(sum_of(node, "top --count 1 --interval 0.05", "rows_refused"), refused);
    assert_int_equal(sum_of(node, "top --count 1 --interval 0.05", "gradients_without_row"), without_row);
    assert_int_equal(sum_of(node, "ctl heartbeat", "gradients_skipped"), skipped);
    assert_int_equal(sum_of(node, "ctl list", "rows_refused"), refused);
    free(keys);
    free(gradients);
    return CHUNK - pushed.refused;
}

/* A full node can be saved, and what was saved fits again: the first row, brought to 0 by two gradients, and
 * all others. */
static void check_saved(struct node_fixture *node, struct mr_client *client, uint32_t table, uint64_t first,
                        uint64_t rows)
{
    struct mr_reply *reply;
    uint64_t memory_bytes;
    node_fixture_save(client);
    node_fixture_kill(node);
    node_fixture_restart(node);
    assert_int_equal(held(client, &memory_bytes), rows);
    assert_int_equal(mr_lookup(client, NULL, table, &first, 1, &reply), MR_OK);
    assert_true(*(const float *)mr_reply_tensor(reply, 0)->data == 0.0f);
    mr_reply_free(reply);
}

TEST(test_full)
{
    static const char *const settings[] = {"memory.limit_mib=144", "batches.memory_mib=16", NULL};
    struct node_fixture node;
    struct mr_client *client;
    struct mr_feature table = mr_feature_table("rows", DIM), set = mr_feature_table("set", DIM), large;
    struct mr_reply *reply = NULL;
    uint64_t *keys = calloc(CHUNK, sizeof(*keys)), first = 0, unknown = UINT64_C(1) << 60, rows, memory_bytes;
    float gradient[DIM];
    uint32_t id, set_id, large_id = 77, dims[2] = {4096, 4096}, offsets[2] = {0, 1};
    assert_non_null(keys);
    node_fixture_start(&node, 2, settings);
    client = node_fixture_connect(&node);
    table.init_a = 1;
    table.learning_rate = 0.5f;
    mr_feature_set_optimizer(&set, MR_OPT_ASSIGN);
    set.memory_bytes = MR_MEMORY_BYTES_MIN;
    assert_int_equal(mr_create(client, NULL, &table, 1, &id), MR_OK);
    assert_int_equal(mr_create(client, NULL, &set, 1, &set_id), MR_OK);
    rows = memory_full_fill(client, id, keys);
    assert_true(rows > CHUNK);
    assert_true(node_fixture_counter(client, 0, "table.rows_refused") > 0);

    for (uint32_t d = 0; d < DIM; d++)
        gradient[d] = 1;
    rows += check_told(&node, client, id, set_id);
    assert_int_equal(mr_push_gradients(client, NULL, id, &first, 1, DIM, gradient), MR_OK);
    assert_int_equal(mr_push_gradients(client, NULL, id, &unknown, 1, DIM, gradient), MR_OK);
    assert_int_equal(mr_lookup(client, NULL, id, &first, 1, &reply), MR_OK);
    assert_true(*(const float *)mr_reply_tensor(reply, 0)->data == 0.5f);
    mr_reply_free(reply);
    assert_int_equal(mr_lookup(client, NULL, id, &unknown, 1, &reply), MR_OK);
    assert_true(*(const float *)mr_reply_tensor(reply, 0)->data == 1.0f);
    mr_reply_free(reply);

    large = mr_feature_variable("large", 2, dims);
    assert_int_equal(mr_create(client, NULL, &large, 1, &large_id), MR_OUT_OF_MEMORY);
    assert_non_null(strstr(mr_last_error(), "large"));
    assert_int_equal(large_id, 77);

    /* Batches have memory of their own, so that training goes on with the rows there are. */
    struct mr_batch_keys batch = {id, 1, 1, &first, offsets, NULL};
    struct mr_batch_gradient pushed = {id, mr_tensor_3d(MR_F32, 1, 1, DIM, gradient)};
    bool applied = false;

    assert_int_equal(mr_feed_sample(client, NULL, 0, &batch, 1, false), MR_OK);
    assert_int_equal(mr_lookup_batch(client, NULL, 0, id, &reply), MR_OK);
    assert_true(*(const float *)mr_reply_tensor(reply, 0)->data == 0.5f);
    mr_reply_free(reply);
    assert_int_equal(mr_push_gradients_batch(client, NULL, 0, &pushed, 1, &applied), MR_OK);
    assert_true(applied);
    assert_int_equal(mr_lookup(client, NULL, id, &first, 1, &reply), MR_OK);
    assert_true(*(const float *)mr_reply_tensor(reply, 0)->data == 0.0f);
    mr_reply_free(reply);
    assert_int_equal(held(client, &memory_bytes), rows);
    check_saved(&node, client, id, first, rows);
    free(keys);
    mr_client_destroy(client);
    node_fixture_stop(&node);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: test_memory_full MILLRACED MILLRACE\n");
        return 2;
    }
    node_fixture_server = argv[1];
    millrace = argv[2];
    netns_require_root();
    return tests_run(NULL, NULL);
}
