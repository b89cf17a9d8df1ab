#include <string.h>

#include "dataplane/wire/endpoint_internal.h"
#include "pair_fixture.h"
#include "tests/test.h"

#define ERROR_TEXT_BYTES 512u

static size_t server_memory(void)
{
    return mr_endpoint_memory_used(server());
}

static void server_reply_call(struct pair_call *c, uint8_t op)
{
    pair_call(&p, c, op, NULL, 0, UINT64_MAX);
}

TEST(an_error_carries_its_text, pair_opened, pair_ended)
{
    struct pair_call c = {.keep = true};
    server_reply_call(&c, MR_OP_HUB_STATUS);
    pair_run(&p, 1000);
    assert_int_equal(c.status, MR_UNKNOWN_OP);
    assert_int_equal(c.tensor_count, 1);
    assert_int_equal(c.tensors[0].dtype, MR_U8);
    assert_int_equal(c.tensors[0].bytes, strlen("no operation 22 here"));
    assert_memory_equal(c.tensors[0].data, "no operation 22 here", c.tensors[0].bytes);
    mr_call_free(p.ends[PAIR_CLIENT].ep, c.call);
}

/* With it told before, between and after, and without. */
static void answer_with_sequence(void *app, struct mr_endpoint *ep, const struct mr_request *request)
{
    uint64_t n = request->message->preamble.sequence;
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, 3, "abc");
    if (n == 1)
        mr_reply_set_sequence(ep, request->ref, 1001);
    if (n < 4) {
        (void)mr_reply_begin(ep, request->ref, MR_OK, &tensor, 1);
        if (n == 2)
            mr_reply_set_sequence(ep, request->ref, 1002);
        mr_reply_end(ep, request->ref);
    } else {
        mr_reply_set_sequence(ep, request->ref, 1000 + n);
        mr_reply_status(ep, request->ref, MR_OK);
    }
    mr_reply_set_sequence(ep, request->ref, 5); /* too late */
}

TEST(a_reply_tells_its_sequence, pair_opened, pair_ended)
{
    static const uint64_t expected[] = {0, 1001, 1002, 0, 1004};
    p.handler = answer_with_sequence;
    for (uint64_t n = 1; n <= 4; n++) {
        struct pair_call c = {.sequence = n, .reply_sequence = 99};
        server_reply_call(&c, MR_OP_PUSH_GRAD);
        pair_run(&p, 1000);
        assert_int_equal(c.status, MR_OK);
        assert_int_equal(c.reply_sequence, expected[n]);
    }
}

/* It is of one answer, not of the slot. */
TEST(a_later_call_in_the_slot_starts_without, pair_opened, pair_ended)
{
    p.handler = answer_with_sequence;
    for (uint64_t n = 0; n < 2 * MR_WINDOW_MAX; n++) {
        struct pair_call c = {.sequence = n < MR_WINDOW_MAX ? 4 : 3};
        server_reply_call(&c, MR_OP_PUSH_GRAD);
        pair_run(&p, 1000);
        assert_int_equal(c.reply_sequence, n < MR_WINDOW_MAX ? 1004 : 0);
    }
}

static void long_text(void *app, struct mr_endpoint *ep, const struct mr_request *request)
{
    mr_reply_error(ep, request->ref, MR_INTERNAL, "%0999d", 7);
}

TEST(a_long_text_is_cut, pair_opened, pair_ended)
{
    struct pair_call c = {.keep = true};
    p.handler = long_text;
    server_reply_call(&c, MR_OP_ECHO);
    pair_run(&p, 1000);
    assert_int_equal(c.tensors[0].bytes, 400);
    assert_int_equal(((char *)c.tensors[0].data)[399], '0');
    mr_call_free(p.ends[PAIR_CLIENT].ep, c.call);
}

TEST(a_busy_answer_is_tried_again, pair_opened, pair_ended)
{
    struct pair_call c = {0};
    server_reply_call(&c, MR_OP_RESTORE);
    pair_run(&p, 2000);
    assert_int_equal(p.executed, 2);
    assert_int_equal(c.ended, 1);
    assert_int_equal(c.status, MR_CHECKPOINT_NOT_FOUND);
    assert_int_equal(mr_endpoint_counters(p.ends[PAIR_CLIENT].ep)->busy_received, 1);
}

TEST(later_keeps_the_request_as_it_was, pair_opened, pair_ended)
{
    uint64_t keys[5] = {1, 2, 3, 4, 5};
    static uint8_t large[5000];
    memset(large, 0xab, sizeof(large));
    for (int i = 0; i < 2; i++) {
        struct pair_call c = {0}, other = {0};
        struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U64, 5, keys),
                                       mr_tensor_1d(MR_U8, i == 0 ? 10 : sizeof(large), large)};
        pair_call(&p, &c, MR_OP_SAVE, tensors, 2, UINT64_MAX);
        pair_run(&p, 500);
        server_reply_call(&other, MR_OP_ECHO);
        pair_run(&p, 500);
        const struct mr_request *r = p.later_request[i];
        assert_int_equal(r->message->preamble.op, MR_OP_SAVE);
        assert_int_equal(r->message->preamble.tensor_count, 2);
        assert_memory_equal(r->message->tensors[0].data, keys, sizeof(keys));
        assert_int_equal(r->message->tensors[1].bytes, i == 0 ? 10 : sizeof(large));
        assert_memory_equal(r->message->tensors[1].data, large, r->message->tensors[1].bytes);
        assert_int_equal(r->client_uuid[3], 0xc1);
        assert_true(mr_call_ref_alive(server(), p.later[i]));
        assert_int_equal(c.ended, 0);
        mr_reply_status(server(), p.later[i], MR_OK);
        assert_false(mr_call_ref_alive(server(), p.later[i]));
        assert_int_equal(server_memory(), 0);
        pair_run(&p, 500);
        assert_int_equal(c.ended, 1);
        assert_int_equal(c.status, MR_OK);
    }
}

/* As when the queue it should have waited in turns out to be full. */
static void later_and_busy_after_all(void *app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct pair *pair = app;
    if (pair->executed > 0) {
        pair_serve(app, ep, request);
        return;
    }
    pair->executed++;
    assert_non_null(mr_reply_later(ep, request));
    mr_reply_busy(ep, request->ref);
}

TEST(later_may_be_answered_at_once, pair_opened, pair_ended)
{
    static uint8_t large[5000];
    p.handler = later_and_busy_after_all;
    for (uint32_t bytes = 10; bytes <= sizeof(large); bytes += sizeof(large) - 10) {
        struct pair_call c = {0};
        struct mr_tensor tensor = mr_tensor_1d(MR_U8, bytes, large);
        p.executed = 0;
        pair_call(&p, &c, MR_OP_PUSH_GRAD, &tensor, 1, UINT64_MAX);
        pair_run(&p, 5000);
        assert_int_equal(p.executed, 2);
        assert_int_equal(c.ended, 1);
        assert_int_equal(c.status, MR_OK);
        assert_int_equal(server_memory(), 0);
    }
}

/* Also one that takes memory, of one segment or of several. */
TEST(a_reply_that_was_begun_can_be_taken_back, pair_opened, pair_ended)
{
    static uint8_t bytes[5000];
    for (uint32_t i = 0; i < 4; i++) {
        struct pair_call c = {0};
        struct mr_tensor tensor = mr_tensor_1d(MR_U8, i == 1 ? 4 : sizeof(bytes), bytes);
        const uint32_t executed = p.executed;
        server_reply_call(&c, MR_OP_SAVE);
        pair_run(&p, 500);
        const struct mr_call_ref ref = p.later[p.later_count - 1];
        mr_reply_set_sequence(server(), ref, 7);
        assert_true(mr_reply_begin(server(), ref, MR_OK, &tensor, i > 0));
        mr_reply_cancel(server(), ref);
        if (i == 3) { /* it is made again, and answered */
            mr_reply_busy(server(), ref);
            pair_run(&p, 500000);
            assert_int_equal(p.executed, executed + 2);
            mr_reply_status(server(), p.later[p.later_count - 1], MR_OK);
        } else {
            mr_reply_error(server(), ref, MR_UNKNOWN_OUTCOME, "who knows");
        }
        pair_run(&p, 5000);
        assert_int_equal(c.ended, 1);
        assert_int_equal(c.status, i == 3 ? MR_OK : MR_UNKNOWN_OUTCOME);
        mr_reply_cancel(server(), ref); /* stale */
    }
    assert_int_equal(server_memory(), 0);
}

TEST(a_late_answer_does_not_stretch_the_round_trip, pair_opened, pair_ended)
{
    struct pair_call c = {0};
    server_reply_call(&c, MR_OP_SAVE);
    pair_run(&p, 5000000);
    assert_int_equal(c.ended, 0);
    assert_int_equal(p.executed, 1);
    mr_reply_status(server(), p.later[0], MR_OK);
    pair_run(&p, 1000);
    assert_int_equal(c.ended, 1);
    struct mr_client_session_info info;
    mr_client_session_info(p.session, &info);
    assert_int_in_range(info.rtt_us, 2 * PAIR_DELAY_US, 2 * PAIR_DELAY_US + 5);
    assert_int_equal(p.events[MR_SESSION_AWAY], 0); /* it said that it is at it */
}

TEST(an_answer_to_a_vanished_session_frees_its_request, pair_opened, pair_ended)
{
    struct pair_call c = {0};
    uint8_t data[100];
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, sizeof(data), memset(data, 9, sizeof(data)));
    pair_call(&p, &c, MR_OP_SAVE, &tensor, 1, UINT64_MAX);
    pair_run(&p, 500);
    mr_client_session_close(p.ends[PAIR_CLIENT].ep, p.session, p.now_us);
    pair_run(&p, 500);
    assert_false(mr_call_ref_alive(server(), p.later[0]));
    assert_memory_equal(p.later_request[0]->message->tensors[0].data, data, sizeof(data));
    struct mr_tensor out = mr_tensor_1d(MR_U8, 10, NULL);
    assert_false(mr_reply_begin(server(), p.later[0], MR_OK, &out, 1));
    assert_int_equal(server_memory(), 0);
    mr_reply_busy(server(), p.later[0]);
    mr_reply_error(server(), p.later[0], MR_INTERNAL, "nobody hears this");
    struct mr_call_ref nonsense = {1000000, 99, 1, 1};
    mr_reply_status(server(), nonsense, MR_OK);
    assert_int_equal(server_memory(), 0);
}

TEST(small_replies_are_given_back_soon, pair_opened, pair_ended)
{
    struct pair_call c = {0};
    p.reply_bytes = 500;
    server_reply_call(&c, MR_OP_LOOKUP);
    pair_run(&p, 100);
    assert_int_equal(c.status, MR_OK);
    assert_true(server_memory() > 0);
    pair_run(&p, 30000);
    assert_int_equal(server_memory(), 0);
}

/* What a node that sends long answers goes by, when it asks itself whether small calls keep coming. */
TEST(short_replies_are_counted, pair_opened, pair_ended)
{
    for (uint32_t bytes = 100; bytes <= 30100; bytes += 30000) {
        struct pair_call c = {0};
        p.reply_bytes = bytes;
        server_reply_call(&c, MR_OP_LOOKUP);
        pair_run(&p, 30000);
        assert_int_equal(c.status, MR_OK);
        assert_int_equal(served()->replies_short, 1);
    }
    struct pair_call later = {0};
    server_reply_call(&later, MR_OP_SAVE);
    pair_run(&p, 1000);
    assert_int_equal(served()->replies_short, 1);
    mr_reply_status(server(), p.later[0], MR_OK);
    assert_int_equal(served()->replies_short, 2);
}

static enum pair_verdict drop_session_acks(struct pair *pair, enum pair_side from, uint32_t n,
                                           struct pair_packet *packet)
{
    return from == PAIR_CLIENT && packet->data[3] == MR_PACKET_ACK ? PAIR_DROP : PAIR_PASS;
}

TEST(kept_replies_survive_lost_acks_until_the_next, pair_opened, pair_ended)
{
    struct pair_call small = {0}, large = {0};
    p.filter = drop_session_acks;
    p.reply_bytes = 500;
    server_reply_call(&small, MR_OP_LOOKUP);
    pair_run(&p, 1000);
    p.reply_bytes = 30000;
    server_reply_call(&large, MR_OP_LOOKUP);
    pair_run(&p, 2000000);
    assert_int_equal(small.ended + large.ended, 2);
    assert_true(server_memory() >= 30500);
    p.filter = NULL;
    pair_run(&p, 11000000);
    assert_int_equal(server_memory(), 0);
}

/* An acknowledgement of slots that was held up must not touch calls that came after it. */
static uint8_t held[256];
static uint32_t held_bytes;

static enum pair_verdict hold_session_ack(struct pair *pair, enum pair_side from, uint32_t n,
                                          struct pair_packet *packet)
{
    if (from != PAIR_CLIENT || packet->data[3] != MR_PACKET_ACK)
        return PAIR_PASS;
    memcpy(held, packet->data, packet->bytes);
    held_bytes = packet->bytes;
    return PAIR_DROP;
}

TEST(an_old_slots_ack_leaves_newer_calls_alone, pair_opened, pair_ended)
{
    struct pair_call c = {0};
    p.reply_bytes = 500;
    p.filter = hold_session_ack;
    server_reply_call(&c, MR_OP_LOOKUP);
    pair_run(&p, 300000);
    assert_true(held_bytes > 0);
    size_t before = server_memory();
    for (int i = 0; i < 64; i++) {
        struct pair_call again = {0};
        server_reply_call(&again, MR_OP_LOOKUP);
        pair_run(&p, 100);
    }
    assert_true(server_memory() > before);
    before = server_memory();
    pair_inject(&p, PAIR_SERVER, held, held_bytes);
    assert_int_equal(server_memory(), before);
}

TEST(too_large_a_reply_is_said_so, pair_opened, pair_ended)
{
    struct pair_call c = {0};
    p.config[PAIR_SERVER].message_bytes_max = 4096;
    pair_restart_server(&p);
    pair_run(&p, 11000000);
    p.reply_bytes = 5000;
    server_reply_call(&c, MR_OP_LOOKUP);
    pair_run(&p, 1000);
    assert_int_equal(c.ended, 1);
    assert_int_equal(c.status, MR_TOO_LARGE);
}

/* Not received, and not left to wait until its deadline: the client hears of it from its first segment. */
TEST(too_large_a_request_is_said_so, pair_opened, pair_ended)
{
    static uint8_t data[50000];
    struct pair_call c = {.keep = true};
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, sizeof(data), data);
    char text[ERROR_TEXT_BYTES] = "";
    p.config[PAIR_SERVER].message_bytes_max = 40960;
    pair_restart_server(&p);
    pair_run(&p, 11000000);
    const uint32_t executed = p.executed;
    pair_call(&p, &c, MR_OP_LOOKUP, &tensor, 1, UINT64_MAX);
    pair_run(&p, 1000);
    assert_int_equal(c.ended, 1);
    assert_int_equal(c.status, MR_TOO_LARGE);
    assert_int_equal(p.executed, executed);
    assert_int_equal(c.tensor_count, 1);
    memcpy(text, c.tensors[0].data, c.tensors[0].bytes);
    assert_non_null(strstr(text, "largest message, 40 KiB: raise transport.message_mib_max"));
    mr_call_free(client(), c.call);
}

/* Memory for one of two answers at a time: both get through. */
TEST(no_memory_for_the_reply_is_busy, pair_opened, pair_ended)
{
    struct pair_call calls[8] = {0};
    p.config[PAIR_SERVER].memory_bytes = 160u << 10;
    pair_restart_server(&p);
    pair_run(&p, 11000000);
    p.reply_bytes = 60000;
    p.executed = 0;
    for (int i = 0; i < 8; i++)
        server_reply_call(&calls[i], MR_OP_LOOKUP);
    pair_run(&p, 1000000);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(calls[i].ended, 1);
        assert_int_equal(calls[i].status, MR_OK);
    }
    assert_int_equal(p.executed, 8);
    assert_true(mr_endpoint_counters(server())->busy_sent > 0);
}

/* Whose size forbids it is not asked to try again until its deadline, with a line of text. */
TEST(what_never_fits_is_refused_at_once, pair_opened, pair_ended)
{
    static const struct {
        uint32_t request_bytes, reply_bytes;
        const char *says;
    } cases[] = {
        {300000, 10, "the request of"}, {10, 300000, "the reply of"}, {100000, 140000, "beside its request"}};
    static uint8_t data[300000];
    p.config[PAIR_SERVER].memory_bytes = 256u << 10;
    pair_restart_server(&p);
    pair_run(&p, 11000000);
    for (size_t i = 0; i < 3; i++) {
        struct pair_call c = {.keep = true};
        struct mr_tensor tensor = mr_tensor_1d(MR_U8, cases[i].request_bytes, data);
        p.reply_bytes = cases[i].reply_bytes;
        pair_call(&p, &c, MR_OP_LOOKUP, &tensor, 1, UINT64_MAX);
        pair_run(&p, 100000);
        assert_int_equal(c.ended, 1);
        assert_int_equal(c.status, MR_NO_MEMORY);
        assert_int_equal(mr_endpoint_counters(server())->busy_sent, 0);
        assert_int_equal(c.tensor_count, 1);
        char text[ERROR_TEXT_BYTES] = "";
        memcpy(text, c.tensors[0].data, c.tensors[0].bytes);
        assert_non_null(strstr(text, cases[i].says));
        assert_non_null(strstr(text, "memory.messages_mib"));
        mr_call_free(client(), c.call);
        pair_run(&p, 300000); /* until the server keeps nothing of it */
    }
    p.reply_bytes = 100000;
    struct pair_call good = {0};
    server_reply_call(&good, MR_OP_LOOKUP);
    pair_run(&p, 100000);
    assert_int_equal(good.status, MR_OK);
    pair_run(&p, 300000);
    assert_int_equal(mr_endpoint_memory_used(server()), 0);
}
