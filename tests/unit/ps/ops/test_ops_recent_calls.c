/* A core's last calls, and those around slow ones, as they are read. */
#include <string.h>
#include "dataplane/wire/call/call_records.h"
#include "dataplane/wire/format/recent_calls.h"
#include "node_fixture.h"
#include "tests/test.h"

enum { CORE = 1 };

struct answer {
    uint64_t words[MR_RECENT_WORDS];
    uint32_t count;
    uint64_t calls[MR_RECENT_CALLS_MAX][MR_RECENT_CALL_WORDS];
};

static struct answer answer;

static const struct answer *ops_recent_calls_ask(struct node_fixture *n, uint64_t position, uint64_t slow_ns)
{
    const uint64_t words[MR_RECENT_ASK_WORDS] = {position, slow_ns};
    const struct mr_tensor t = mr_body_tensor(MR_BODY_RECENT_ASK, words);
    const struct node_reply *reply = node_call(n, CORE, MR_OP_RECENT_CALLS, 0, &t, 1);
    node_check(reply, MR_OK, NULL);
    assert_int_equal(reply->tensor_count, 2);
    assert_int_equal(reply->tensors[1].dims[1], MR_RECENT_CALL_WORDS);
    memcpy(answer.words, reply->tensors[0].data, sizeof(answer.words));
    answer.count = reply->tensors[1].dims[0];
    memcpy(answer.calls, reply->tensors[1].data, reply->tensors[1].bytes);
    return &answer;
}

static void echo(struct node_fixture *n, uint32_t times)
{
    for (uint32_t i = 0; i < times; i++)
        node_check(node_call(n, CORE, MR_OP_ECHO, 0, NULL, 0), MR_OK, NULL);
}

TEST(calls_are_read_once_and_in_order, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    const uint64_t from = ops_recent_calls_ask(n, MR_RECENT_FROM_NOW, 0)->words[MR_RECENT_NEXT];
    assert_int_equal(answer.count, 0);
    echo(n, 3);
    (void)ops_recent_calls_ask(n, from, 0);
    assert_int_equal(answer.count, 4); /* the question before is one of them */
    assert_int_equal(answer.words[MR_RECENT_LOST] + answer.words[MR_RECENT_LEFT], 0);
    assert_int_equal(answer.calls[0][MR_RECENT_CALL_OP], MR_OP_RECENT_CALLS);
    for (uint32_t i = 1; i < 4; i++) {
        const uint64_t *c = answer.calls[i];
        assert_int_equal(c[MR_RECENT_CALL_NUMBER], from + 1 + i);
        assert_int_equal(c[MR_RECENT_CALL_OP], MR_OP_ECHO);
        assert_int_equal(c[MR_RECENT_CALL_STATUS], MR_OK);
        assert_int_equal(c[MR_RECENT_CALL_IS_TIMED], 1);
        assert_true(c[MR_RECENT_CALL_WAIT_NS] + c[MR_RECENT_CALL_WORK_NS] <= c[MR_RECENT_CALL_TOTAL_NS] + 1);
        assert_true(c[MR_RECENT_CALL_ARRIVED_NS] + c[MR_RECENT_CALL_TOTAL_NS] <
                    answer.words[MR_RECENT_NOW_NS]);
        assert_true(c[MR_RECENT_CALL_REQUEST_BYTES] > 0 && c[MR_RECENT_CALL_REPLY_BYTES] > 0);
        assert_true(c[MR_RECENT_CALL_PORT] > 0);
    }
    assert_int_equal(answer.words[MR_RECENT_NEXT], from + 4);
}

TEST(what_is_gone_is_counted_and_the_rest_comes_in_parts, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    const uint64_t from = ops_recent_calls_ask(n, MR_RECENT_FROM_NOW, 0)->words[MR_RECENT_NEXT];
    echo(n, MR_CALL_RECORDS + 9); /* and the question before */
    (void)ops_recent_calls_ask(n, from, 0);
    assert_int_equal(answer.words[MR_RECENT_LOST], 10);
    assert_int_equal(answer.count, MR_RECENT_CALLS_MAX);
    assert_int_equal(answer.calls[0][MR_RECENT_CALL_NUMBER], from + 11);
    assert_int_equal(answer.words[MR_RECENT_LEFT], MR_CALL_RECORDS - MR_RECENT_CALLS_MAX);
    const uint64_t next = answer.words[MR_RECENT_NEXT];
    (void)ops_recent_calls_ask(n, next, 0);
    assert_int_equal(answer.calls[0][MR_RECENT_CALL_NUMBER], next + 1);
    (void)ops_recent_calls_ask(n, UINT64_MAX - 1, 0); /* of another start of the server */
    assert_int_equal(answer.count, MR_RECENT_CALLS_MAX);
    assert_int_equal(answer.words[MR_RECENT_LOST], 0);
}

/* Every call takes a nanosecond; none takes MR_RECENT_SLOW_MAX. */
TEST(slow_calls_are_selected_from_the_first_question_on, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    const uint64_t slow = ops_recent_calls_ask(n, 0, MR_RECENT_SLOW_MAX)->words[MR_RECENT_SLOW];
    assert_int_equal(answer.count, 0);
    echo(n, 20);
    (void)ops_recent_calls_ask(n, 0, MR_RECENT_SLOW_MAX);
    assert_int_equal(answer.count, 0);
    (void)ops_recent_calls_ask(n, 0, 1);
    echo(n, 20);
    (void)ops_recent_calls_ask(n, 0, 1);
    /* the question, 20 echoes, and those before */
    assert_int_equal(answer.count, 21 + MR_RECORD_BEFORE);
    assert_int_equal(answer.words[MR_RECENT_SLOW], slow + 21);
}

TEST(keys_and_table_are_those_of_the_call, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    const struct mr_feature f = node_table("t", 1);
    const uint32_t table = node_create(n, &f);
    uint64_t keys[64];
    uint32_t count = 0;
    for (uint64_t key = 1; count < 64; key++)
        if (node_core_of_key(n, key, f.seed) == CORE)
            keys[count++] = key;
    const struct mr_tensor t = mr_tensor_1d(MR_U64, count, keys);
    const uint64_t from = ops_recent_calls_ask(n, MR_RECENT_FROM_NOW, 0)->words[MR_RECENT_NEXT];
    node_check(node_call(n, CORE, MR_OP_LOOKUP, (uint16_t)table, &t, 1), MR_OK, NULL);
    (void)ops_recent_calls_ask(n, from, 0);
    assert_int_equal(answer.count, 2);
    assert_int_equal(answer.calls[1][MR_RECENT_CALL_OP], MR_OP_LOOKUP);
    assert_int_equal(answer.calls[1][MR_RECENT_CALL_TABLE], table);
    assert_int_equal(answer.calls[1][MR_RECENT_CALL_KEYS], count);
}

TEST(mistakes_are_refused, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    const uint64_t words[MR_RECENT_ASK_WORDS] = {0, MR_RECENT_SLOW_MAX + 1};
    struct mr_tensor t = mr_body_tensor(MR_BODY_RECENT_ASK, words);
    node_check(node_call(n, CORE, MR_OP_RECENT_CALLS, 0, &t, 1), MR_INVALID_ARGUMENT, "too many");
    t = mr_tensor_1d(MR_U64, MR_RECENT_ASK_WORDS - 1, words);
    node_check(node_call(n, CORE, MR_OP_RECENT_CALLS, 0, &t, 1), MR_WRONG_SHAPE,
               "recent_ask has 3 elements, not 4");
}
