/* A node whose memory limit is reached goes on serving: known rows learn, new ones are answered and not kept, and
 * what does not fit is refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tests/integration/node_fixture.h"

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

static uint64_t fill(struct mr_client *client, uint32_t table, uint64_t *keys)
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

/* A full node can be saved, and what was saved fits again: the first row, brought to 0 by two gradients, and all others. */
static void check_saved(struct node_fixture *node, struct mr_client *client, uint32_t table, uint64_t first,
                        uint64_t rows)
{
    struct mr_checkpoint_status status;
    struct mr_reply *reply;
    uint64_t id, memory_bytes;

    assert_int_equal(mr_save(client, NULL, NULL, &id), MR_OK);
    do {
        assert_int_equal(mr_checkpoint_status(client, NULL, &status), MR_OK);
    } while (status.state != MR_CHECKPOINT_IDLE);
    assert_int_equal(status.last_good_id, id);
    node_fixture_kill(node);
    node_fixture_restart(node);
    assert_int_equal(held(client, &memory_bytes), rows);
    assert_int_equal(mr_lookup(client, NULL, table, &first, 1, &reply), MR_OK);
    assert_true(*(const float *)mr_reply_tensor(reply, 0)->data == 0.0f);
    mr_reply_free(reply);
}

static void test_full(void **state)
{
    static const char *const settings[] = {"memory.limit_mib=144", "batches.memory_mib=16", NULL};
    struct node_fixture node;
    struct mr_client *client;
    struct mr_feature table = mr_feature_table("rows", DIM), large;
    struct mr_reply *reply = NULL;
    uint64_t *keys = calloc(CHUNK, sizeof *keys), first = 0, unknown = UINT64_C(1) << 60, rows, memory_bytes;
    float gradient[DIM];
    uint32_t id, large_id = 77, dims[2] = {4096, 4096}, offsets[2] = {0, 1};

    assert_non_null(keys);
    node_fixture_start(&node, 2, settings);
    client = node_fixture_connect(&node);
    table.init_a = 1;
    table.learning_rate = 0.5f;
    assert_int_equal(mr_create(client, NULL, &table, 1, &id), MR_OK);
    rows = fill(client, id, keys);
    assert_true(rows > CHUNK);
    assert_true(node_fixture_counter(client, 0, "table.rows_refused") > 0);

    for (uint32_t d = 0; d < DIM; d++)
        gradient[d] = 1;
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_full)};

    if (argc != 2) {
        fprintf(stderr, "usage: test_memory_full MILLRACED\n");
        return 2;
    }
    node_fixture_server = argv[1];
    netns_require_root();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
