/* What a core tells about itself and the node. */
#include <string.h>
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/clock_name.h"
#include "node_fixture.h"
#include "tests/test.h"

TEST(tells_the_map, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    for (uint32_t core = 0; core < 3; core++) {
        const struct node_reply *reply = node_call(n, core, MR_OP_NODE_INFO, 0, NULL, 0);
        node_check(reply, MR_OK, NULL);
        const uint32_t *info = reply->tensors[0].data;
        const uint16_t *map = reply->tensors[1].data;
        assert_int_equal(info[0], 3);
        assert_int_equal(info[2], n->config.port_udp_port);
        assert_int_equal(info[3], n->config.transport_message_mib_max << 20);
        assert_int_equal(reply->tensors[1].dims[0], MR_PARTITION_COUNT);
        assert_int_equal(map[0], 0);
        assert_int_equal(map[MR_PARTITION_COUNT - 1], 2);
        for (uint32_t p = 1; p < MR_PARTITION_COUNT; p++) /* slices, none left out */
            assert_int_in_range(map[p], map[p - 1], map[p - 1] + 1);
    }
}

TEST(echoes_tensors, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    double values[3] = {1, 2, 3};
    struct mr_tensor tensors[3] = {mr_tensor_1d(MR_F64, 3, values), mr_tensor_0d(MR_U8, "x"),
                                   mr_tensor_1d(MR_U8, 0, NULL)};
    const struct node_reply *reply = node_call(n, 1, MR_OP_ECHO, 0, tensors, 3);
    node_check(reply, MR_OK, NULL);
    assert_int_equal(reply->tensor_count, 3);
    assert_memory_equal(reply->tensors[0].data, values, sizeof(values));
    assert_int_equal(reply->tensors[1].rank, 0);
    assert_int_equal(reply->tensors[2].bytes, 0);
    node_check(node_call(n, 1, MR_OP_ECHO, 0, NULL, 0), MR_OK, NULL);
}

TEST(heartbeat_and_stats_agree, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature f = node_table("emb", 0);
    uint32_t table = node_create(n, &f);
    const uint64_t keys[6] = {1, 2, 3, 4, 5, 6};
    uint64_t rows = 0;
    node_feed(n, 41, table, keys, 6);
    node_feed(n, 42, table, keys, 6);
    for (uint32_t core = 0; core < 3; core++) {
        node_push_batch(n, core, 41, table, 6, 1);
        const struct node_reply *reply = node_call(n, core, MR_OP_HEARTBEAT, 0, NULL, 0);
        node_check(reply, MR_OK, NULL);
        uint64_t state_now[8];
        memcpy(state_now, reply->tensors[0].data, sizeof(state_now));
        assert_int_equal(state_now[0], MR_NODE_SERVING);
        assert_int_equal(state_now[1], 1);
        assert_int_equal(state_now[4], 42); /* the fixture's step */
        assert_int_equal(state_now[5], 1);
        assert_true(state_now[7] > 0);
        assert_int_equal(node_counter(n, core, "table.rows"), state_now[6]);
        assert_int_equal(node_counter(n, core, "ps.batches_cached"), 1);
        assert_int_equal(node_counter(n, core, "ps.memory_bytes"), state_now[7]);
        rows += state_now[6];
    }
    assert_int_equal(rows, 6);
}

TEST(the_clock_is_told_between_request_and_answer, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    for (uint32_t core = 0; core < 3; core++) {
        const uint64_t begin_ns = mr_clock_ns();
        const struct node_reply *reply = node_call(n, core, MR_OP_CLOCK, 0, NULL, 0);
        node_check(reply, MR_OK, NULL);
        assert_int_equal(reply->tensors[0].dims[0], MR_CLOCK_WORDS);
        const uint64_t *words = reply->tensors[0].data;
        assert_int_equal(words[MR_CLOCK_NAME], mr_clock_name());
        assert_int_in_range(words[MR_CLOCK_NS], begin_ns, mr_clock_ns());
    }
}

TEST(memory_is_told_to_the_byte, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    struct mr_feature f = node_table("emb", 0);
    uint32_t table = node_create(n, &f);
    const uint64_t keys[6] = {1, 2, 3, 4, 5, 6};
    uint64_t rows = 0;
    node_feed(n, 41, table, keys, 6);
    for (uint32_t core = 0; core < 3; core++) {
        node_push_batch(n, core, 41, table, 6, 1);
        const struct node_reply *reply = node_call(n, core, MR_OP_MEMORY, 0, NULL, 0);
        node_check(reply, MR_OK, NULL);
        uint64_t c[MR_MEMORY_WORDS], t[MR_MEMORY_TABLE_WORDS];
        assert_int_equal(reply->tensors[1].dims[0], 1);
        memcpy(c, reply->tensors[0].data, sizeof(c));
        memcpy(t, reply->tensors[1].data, sizeof(t));
        assert_true(c[1] <= c[0] && c[2] <= c[1] && c[3] <= c[1]);
        assert_true(c[6] <= c[5] && c[9] > 0);
        assert_int_equal(c[4], 0);
        assert_int_equal(node_counter(n, core, "ps.memory_bytes"), c[1] + c[6]);
        assert_int_equal(t[0], table);
        assert_int_equal(t[3], t[1] * f.dims[0] * sizeof(float));
        assert_true(t[2] + t[3] + t[4] + t[5] <= c[2]); /* the directory of its slabs is in there, too */
        rows += t[1];
    }
    assert_int_equal(rows, 6);
}

TEST(other_nodes_calls_are_unknown, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    node_check(node_call(n, 0, MR_OP_READ_SAMPLE, 0, NULL, 0), MR_UNKNOWN_OP,
               "read_sample is for a hub, and this is a parameter server");
}
