/* Feeding, looking up and forgetting batches. */
#include <string.h>
#include "fake_dp.h"
#include "node_fixture.h"
#include "ps/core/core.h"
#include "tests/test.h"
#include "tests/wait.h"

/* A feed of one table: 2 samples of 2 slots, bags {1, 2}, {}, {3}, {1, 1}. */
struct feed {
    uint64_t batch_id;
    uint32_t head[4];
    uint64_t keys[5];
    uint32_t offsets[5];
    struct mr_tensor tensors[4];
};

static struct feed *feed_of(uint32_t table, uint64_t batch_id, uint32_t flags)
{
    static struct feed f;
    f = (struct feed){.batch_id = batch_id,
                      .head = {table, 2, 2, flags},
                      .keys = {1, 2, 3, 1, 1},
                      .offsets = {0, 2, 2, 3, 5}};
    f.tensors[0] = mr_tensor_1d(MR_U64, 1, &f.batch_id);
    f.tensors[1] = mr_tensor_1d(MR_U32, 4, f.head);
    f.tensors[2] = mr_tensor_1d(MR_U64, 5, f.keys);
    f.tensors[3] = mr_tensor_1d(MR_U32, 5, f.offsets);
    return &f;
}

static const struct node_reply *send_feed(struct node_fixture *n, const struct feed *f)
{
    return node_call(n, 0, MR_OP_FEED_SAMPLE, 0, f->tensors, 4);
}

static const struct node_reply *lookup(struct node_fixture *n, uint32_t table, uint64_t batch_id)
{
    struct mr_tensor t = mr_tensor_1d(MR_U64, 1, &batch_id);
    return node_call(n, 0, MR_OP_LOOKUP_BATCH, (uint16_t)table, &t, 1);
}

static uint32_t make_table(struct node_fixture *n, const char *name, float init)
{
    struct mr_feature f = node_table(name, init);
    return node_create(n, &f);
}

TEST(a_lookup_gives_the_sums_of_the_bags, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n, "emb", 3);
    node_check(send_feed(n, feed_of(table, 8, 0)), MR_OK, NULL);
    for (int again = 0; again < 2; again++) {
        const struct node_reply *reply = lookup(n, table, 8);
        node_check(reply, MR_OK, NULL);
        const struct mr_tensor *t = &reply->tensors[0];
        assert_int_equal(t->rank, 3);
        assert_int_equal(t->dims[0] == 2 && t->dims[1] == 2 && t->dims[2] == NODE_DIM, 1);
        const float *values = t->data;
        assert_float_equal(values[0], 6, 0);
        assert_float_equal(values[NODE_DIM], 0, 0);
        assert_float_equal(values[2 * NODE_DIM], 3, 0);
        assert_float_equal(values[4 * NODE_DIM - 1], 6, 0);
    }
    assert_int_equal(node_counter(n, 0, "table.rows"), 3);
    assert_int_equal(node_counter(n, 0, "ps.batches_fed"), 1);
    assert_int_equal(node_counter(n, 0, "ps.batches_looked_up"), 2);
}

TEST(a_read_only_batch_makes_no_rows_and_goes_with_its_lookup, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n, "emb", 3);
    node_check(send_feed(n, feed_of(table, 8, MR_FEED_READ_ONLY)), MR_OK, NULL);
    float gradient[16] = {0};
    uint64_t id = 8;
    uint32_t head[4] = {table, 0};
    struct mr_tensor push[3] = {mr_tensor_1d(MR_U64, 1, &id), mr_tensor_1d(MR_U32, 4, head),
                                mr_tensor_3d(MR_F32, 2, 2, NODE_DIM, gradient)};
    node_check(node_call(n, 0, MR_OP_PUSH_GRAD_BATCH, 0, push, 3), MR_INVALID_ARGUMENT, "read only");
    node_check(lookup(n, table, 8), MR_OK, NULL);
    assert_int_equal(node_counter(n, 0, "table.rows"), 0);
    assert_int_equal(node_counter(n, 0, "ps.batches_cached"), 0);
    node_check(lookup(n, table, 8), MR_UNKNOWN_BATCH, "8");
}

TEST(a_read_only_batch_of_two_tables_goes_with_the_second_lookup, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t a = make_table(n, "a", 1), b = make_table(n, "b", 2);
    struct feed *f = feed_of(a, 8, MR_FEED_READ_ONLY);
    uint32_t head_b[4] = {b, 2, 2, MR_FEED_READ_ONLY};
    struct mr_tensor tensors[7] = {
        f->tensors[0], f->tensors[1], f->tensors[2], f->tensors[3], mr_tensor_1d(MR_U32, 4, head_b),
        f->tensors[2], f->tensors[3]};
    node_check(node_call(n, 0, MR_OP_FEED_SAMPLE, 0, tensors, 7), MR_OK, NULL);
    node_check(lookup(n, a, 8), MR_OK, NULL);
    node_check(lookup(n, a, 8), MR_OK, NULL);
    const struct node_reply *reply = lookup(n, b, 8);
    node_check(reply, MR_OK, NULL);
    assert_float_equal(*(const float *)reply->tensors[0].data, 4, 0);
    node_check(lookup(n, b, 8), MR_UNKNOWN_BATCH, NULL);
    head_b[0] = a;
    node_check(node_call(n, 0, MR_OP_FEED_SAMPLE, 0, tensors, 7), MR_INVALID_ARGUMENT, "a is named twice");
}

TEST(a_frozen_node_is_fed_without_new_rows, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n, "emb", 3), level = MR_FREEZE_ADMIT;
    struct mr_tensor t = mr_tensor_1d(MR_U32, 1, &level);
    node_check(node_call(n, 0, MR_OP_FREEZE, 0, &t, 1), MR_OK, NULL);
    node_check(send_feed(n, feed_of(table, 8, 0)), MR_OK, NULL);
    assert_int_equal(node_counter(n, 0, "table.rows"), 0);
    node_check(lookup(n, table, 8), MR_OK, NULL);
}

TEST(refuses_what_is_out_of_shape, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n, "emb", 3);
    struct feed *f = feed_of(99, 8, 0);
    node_check(send_feed(n, f), MR_UNKNOWN_TABLE, "99");
    f = feed_of(table, 8, 0);
    f->offsets[4] = 4;
    node_check(send_feed(n, f), MR_INVALID_ARGUMENT, "from 0 to 4, not from 0 to the 5 keys");
    f = feed_of(table, 8, 0);
    f->offsets[1] = 3;
    node_check(send_feed(n, f), MR_INVALID_ARGUMENT, "fall from 3 to 2");
    f = feed_of(table, 8, 0);
    f->head[1] = 3;
    node_check(send_feed(n, f), MR_WRONG_SHAPE, "3 samples of 2 slots need 7 offsets, not 5");
    f->head[1] = f->head[2] = 0xFFFFFFFF;
    node_check(send_feed(n, f), MR_WRONG_SHAPE, "offsets");
    f = feed_of(table, 8, 0);
    node_check(node_call(n, 0, MR_OP_FEED_SAMPLE, 0, f->tensors, 3), MR_WRONG_SHAPE, "offsets is missing");
    node_check(node_call(n, 0, MR_OP_FEED_SAMPLE, 0, f->tensors, 1), MR_WRONG_SHAPE,
               "table, samples, slots, flags is missing");
    f->tensors[2].dtype = MR_I64;
    node_check(send_feed(n, f), MR_WRONG_DTYPE, "keys is i64, not u64");
    assert_int_equal(node_counter(n, 0, "ps.batches_cached"), 0);
    assert_int_equal(node_counter(n, 0, "table.rows"), 0);
}

TEST(lookups_name_what_is_missing, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n, "emb", 3), other = make_table(n, "other", 3);
    node_check(send_feed(n, feed_of(table, 8, 0)), MR_OK, NULL);
    node_check(lookup(n, table, 9), MR_UNKNOWN_BATCH, "number 9 of stream 0");
    node_check(lookup(n, other, 8), MR_UNKNOWN_TABLE, "without keys of table other");
    node_check(lookup(n, 99, 8), MR_UNKNOWN_TABLE, "99");
}

TEST(forgets_what_its_hub_names, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n, "emb", 3);
    uint64_t ids[3] = {8, 9, 77};
    struct mr_tensor t = mr_tensor_1d(MR_U64, 3, ids);
    for (uint64_t id = 8; id < 11; id++)
        node_check(send_feed(n, feed_of(table, id, 0)), MR_OK, NULL);
    node_check(node_call(n, 0, MR_OP_FORGET_BATCH, 0, &t, 1), MR_OK, NULL);
    node_check(lookup(n, table, 8), MR_UNKNOWN_BATCH, NULL);
    node_check(lookup(n, table, 10), MR_OK, NULL);
    assert_int_equal(node_counter(n, 0, "ps.batches_forgotten"), 2);
}

TEST(tells_when_the_cache_is_full, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    n->config.batches_count_max = 2;
    node_restart(n, 1);
    uint32_t table = make_table(n, "emb", 3);
    node_check(send_feed(n, feed_of(table, 1, 0)), MR_OK, NULL);
    node_check(send_feed(n, feed_of(table, 2, 0)), MR_OK, NULL);
    node_check(send_feed(n, feed_of(table, 3, 0)), MR_BATCH_CACHE_FULL, "kept, 2");
    node_check(send_feed(n, feed_of(table, 2, 0)), MR_OK, NULL); /* one that is there may come again */
    assert_int_equal(node_counter(n, 0, "ps.feeds_refused_full"), 1);
    node_check(lookup(n, table, 3), MR_UNKNOWN_BATCH, NULL);
}

TEST(full_tables_do_not_stop_training, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    enum { KEYS = 4000, BATCHES = 12 };
    static uint64_t keys[KEYS];
    n->config.memory_limit_mib = 100;
    n->config.batches_memory_mib = 20;
    node_restart(n, 1);
    struct mr_feature f = node_table("wide", 1);
    f.dims[0] = 1024;
    uint32_t table = node_create(n, &f), offsets[2] = {0, KEYS}, head[4] = {table, 1, 1, 0};
    uint32_t push_head[4] = {table, 0};
    float gradient[1024] = {1};
    for (uint64_t id = 0; id < BATCHES; id++) {
        for (uint32_t i = 0; i < KEYS; i++)
            keys[i] = id * KEYS + i;
        struct mr_tensor feed[4] = {mr_tensor_1d(MR_U64, 1, &id), mr_tensor_1d(MR_U32, 4, head),
                                    mr_tensor_1d(MR_U64, KEYS, keys), mr_tensor_1d(MR_U32, 2, offsets)};
        node_check(node_call(n, 0, MR_OP_FEED_SAMPLE, 0, feed, 4), MR_OK, NULL);
        const struct node_reply *reply = lookup(n, table, id);
        node_check(reply, MR_OK, NULL);
        assert_float_equal(*(const float *)reply->tensors[0].data, KEYS, 0);
        struct mr_tensor push[3] = {mr_tensor_1d(MR_U64, 1, &id), mr_tensor_1d(MR_U32, 4, push_head),
                                    mr_tensor_3d(MR_F32, 1, 1, 1024, gradient)};
        node_check(node_call(n, 0, MR_OP_PUSH_GRAD_BATCH, 0, push, 3), MR_OK, NULL);
    }
    assert_true(node_counter(n, 0, "table.rows_refused") > 0);
    assert_int_equal(node_counter(n, 0, "ps.batches_applied"), BATCHES);
    assert_int_in_range(node_counter(n, 0, "ps.memory_bytes"), 1, 100 << 20);
}

TEST(tells_when_a_batch_expired, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    n->config.batches_ttl_ms = 10;
    node_restart(n, 1);
    uint32_t table = make_table(n, "emb", 3);
    node_check(send_feed(n, feed_of(table, 8, 0)), MR_OK, NULL);
    WAIT_UNTIL(node_counter(n, 0, "ps.batches_expired") > 0);
    node_check(lookup(n, table, 8), MR_BATCH_EXPIRED, "expired");
    node_check(lookup(n, table, 9), MR_UNKNOWN_BATCH, NULL);
}

TEST(states_what_is_applied, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n, "emb", 3);
    const uint64_t keys[2] = {1, 2};
    uint64_t stream = 5;
    struct mr_tensor t = mr_tensor_1d(MR_U64, 1, &stream);
    for (uint64_t sequence = 0; sequence < 4; sequence++) {
        uint64_t id = stream << MR_BATCH_SEQUENCE_BITS | (sequence == 3 ? 70 : sequence);
        node_feed(n, id, table, keys, 2);
        assert_int_equal(node_push_batch(n, 0, id, table, 2, 1), 1);
    }
    const struct node_reply *reply = node_call(n, 0, MR_OP_BATCH_STATE, 0, &t, 1);
    node_check(reply, MR_OK, NULL);
    const uint64_t *head = reply->tensors[0].data, *bitmap = reply->tensors[1].data;
    assert_int_equal(head[0], 3);
    assert_int_equal(head[1], 1);
    assert_int_equal(reply->tensors[1].dims[0], 2);
    assert_int_equal(bitmap[0], 0);
    assert_int_equal(bitmap[1], UINT64_C(1) << (70 - 3 - 64));
    stream = 65536;
    node_check(node_call(n, 0, MR_OP_BATCH_STATE, 0, &t, 1), MR_INVALID_ARGUMENT, "65536");
}

/* What a hub's batch says of its plan, and asks with. */
static const struct node_reply *ask_state(struct node_fixture *n, uint64_t stream, uint64_t plan)
{
    uint64_t words[4] = {stream, plan, plan, plan};
    struct mr_tensor t = mr_tensor_1d(MR_U64, plan == 0 ? 1 : 4, words);
    return node_call(n, 0, MR_OP_BATCH_STATE, 0, &t, 1);
}

static const struct node_reply *feed_for(struct node_fixture *n, uint32_t table, uint64_t batch_id,
                                         uint64_t plan, uint32_t flags)
{
    struct feed *f = feed_of(table, batch_id, flags);
    uint64_t words[4] = {batch_id, plan, plan, plan};
    f->tensors[0] = mr_tensor_1d(MR_U64, 4, words);
    return send_feed(n, f);
}

/* Zeros, for a batch of feed_of(). */
static void ops_batch_push(struct node_fixture *n, uint64_t batch_id, uint32_t table)
{
    const uint32_t head[MR_PUSH_HEAD_WORDS] = {table};
    const float zeros[2 * 2 * NODE_DIM] = {0};
    struct mr_tensor t[3] = {mr_tensor_1d(MR_U64, 1, &batch_id),
                             mr_tensor_1d(MR_U32, MR_PUSH_HEAD_WORDS, head),
                             mr_tensor_3d(MR_F32, 2, 2, NODE_DIM, zeros)};
    const struct node_reply *reply = node_call(n, 0, MR_OP_PUSH_GRAD_BATCH, 0, t, 3);
    node_check(reply, MR_OK, NULL);
    assert_int_equal(*(const uint32_t *)reply->tensors[0].data, 1);
}

TEST(plans_of_one_stream_do_not_meet, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n, "emb", 3);
    const uint64_t first = UINT64_C(5) << MR_BATCH_SEQUENCE_BITS;
    node_check(feed_for(n, table, first, 77, 0), MR_OK, NULL);
    node_check(ask_state(n, 5, 77), MR_OK, NULL);
    node_check(ask_state(n, 5, 78), MR_ALREADY_STARTED, "another plan");
    node_check(ask_state(n, 5, 0), MR_OK, NULL); /* whoever only looks */
    node_check(feed_for(n, table, first, 78, 0), MR_ALREADY_STARTED, "another plan");
    node_check(feed_for(n, table, first, 78, MR_FEED_READ_ONLY), MR_ALREADY_STARTED, NULL);
    node_check(send_feed(n, feed_of(table, first + 1, MR_FEED_READ_ONLY)), MR_ALREADY_STARTED, NULL);
    ops_batch_push(n, first, table);
    const struct node_reply *reply = ask_state(n, 5, 77);
    assert_int_equal(((const uint64_t *)reply->tensors[0].data)[0], 1);
    uint64_t words[2] = {5, 6};
    struct mr_tensor t = mr_tensor_1d(MR_U64, 2, words);
    node_check(node_call(n, 0, MR_OP_BATCH_STATE, 0, &t, 1), MR_WRONG_SHAPE, NULL);
}

/* A stream makes room while some of its batches are partly applied, and another plan takes its number: to
 * this one's batches that does not apply. A batch leaves the ranges when it is applied. */
TEST(what_is_partly_applied_goes_with_its_stream, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    struct ps_core *core = fake_dp_app(0);
    const uint32_t table = make_table(n, "emb", 3);
    const uint64_t first = UINT64_C(9) << MR_BATCH_SEQUENCE_BITS, key = 1;
    const struct ps_partial range = {first, first + 9, ps_partitions_all()};
    assert_true(ps_partials_set(&core->partials, &range, 1));
    node_feed(n, first, table, &key, 1);
    assert_int_equal(node_push_batch(n, 0, first, table, 1, 1), 1);
    assert_int_equal(core->partials.count, 0);
    const float once = node_value(n, table, key);
    assert_true(once != 3);

    assert_true(ps_partials_set(&core->partials, &range, 1)); /* of the stream that it has now */
    node_feed(n, first + 1, table, &key, 1);
    assert_int_equal(node_push_batch(n, 0, first + 1, table, 1, 1), 1);
    assert_true(node_value(n, table, key) == once);
    assert_null(ps_partials_find(&core->partials, first + 1));
    assert_non_null(ps_partials_find(&core->partials, first + 2));
    ps_partials_clear(&core->partials);
}

TEST(streams_are_listed_and_forgotten, node_setup, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t table = make_table(n, "emb", 3);
    const uint64_t first = UINT64_C(9) << MR_BATCH_SEQUENCE_BITS;
    for (uint64_t i = 0; i < 2; i++) {
        node_check(feed_for(n, table, first + i, 77, 0), MR_OK, NULL);
        ops_batch_push(n, first + i, table);
    }
    node_check(ask_state(n, 3, 66), MR_OK, NULL);
    const struct node_reply *reply = node_call(n, 0, MR_OP_STREAMS, 0, NULL, 0);
    node_check(reply, MR_OK, NULL);
    assert_int_equal(reply->tensors[0].dims[0], 2);
    assert_int_equal(reply->tensors[0].dims[1], MR_STREAM_WORDS);
    const uint64_t *w = reply->tensors[0].data;
    assert_int_equal(w[MR_STREAM_ID], 3);
    assert_int_equal(w[MR_STREAM_APPLIED], 0);
    assert_int_equal(w[MR_STREAM_PLAN], 66);
    w += MR_STREAM_WORDS;
    const uint64_t nine[7] = {9, 2, 2, 2, 77, 77, 77};
    assert_memory_equal(w, nine, sizeof(nine));
    assert_true(w[MR_STREAM_USED] > 0 &&
                w[MR_STREAM_USED] < w[MR_STREAM_USED - (int)MR_STREAM_WORDS]); /* 3 was asked for later */
    assert_int_equal(node_counter(n, 0, "ps.streams"), 2);
    node_check(feed_for(n, table, first + 2, 77, 0), MR_OK, NULL);
    uint64_t numbers[2] = {3, 9};
    struct mr_tensor t = mr_tensor_1d(MR_U64, 2, numbers);
    node_check(node_call(n, 0, MR_OP_FORGET_STREAM, 0, &t, 1), MR_ALREADY_STARTED,
               "in use: 1 of the batches");
    node_check(ask_state(n, 9, 78), MR_ALREADY_STARTED, NULL);
    ops_batch_push(n, first + 2, table);
    node_check(node_call(n, 0, MR_OP_FORGET_STREAM, 0, &t, 1), MR_OK, NULL);
    node_check(ask_state(n, 9, 78), MR_OK, NULL);
    numbers[1] = 65536;
    node_check(node_call(n, 0, MR_OP_FORGET_STREAM, 0, &t, 1), MR_INVALID_ARGUMENT, "65536");
}
