/* Requests that are sent while their end is still being written, or partly from their caller's memory. */
#include <stdlib.h>
#include <string.h>

#include "dataplane/wire/endpoint_internal.h"
#include "pair_fixture.h"
#include "tests/test.h"

enum { BYTES = 400000, STEP = 50000 };

static uint8_t pattern(uint32_t i)
{
    return (uint8_t)(i * 13 + (i >> 7));
}

/* Writes the request up to `to`. */
static void write_to(struct pair_call *c, const struct mr_tensor *request, uint32_t from, uint32_t to)
{
    uint8_t *bytes = request->data;
    for (uint32_t i = from; i < to; i++)
        bytes[i] = pattern(i);
    mr_call_advance(client(), c->call, bytes + to);
}

/* Begins an echo, of which nothing is written, and hands it over. */
static void client_call_open_begin(struct pair_call *c, struct mr_tensor *request)
{
    const struct mr_call_options options = {.op = MR_OP_ECHO, .user = c, .deadline_us = UINT64_MAX};
    c->keep = true;
    *request = mr_tensor_1d(MR_U8, BYTES, NULL);
    assert_int_equal(mr_call_begin(client(), p.session, &options, request, 1, &c->call), MR_OK);
    memset(request->data, 0xee, BYTES);
    mr_call_advance(client(), c->call, request->data);
    mr_call_send(client(), c->call, p.now_us);
}

static void client_call_open_finish(struct pair_call *c)
{
    pair_run(&p, 500000);
    assert_int_equal(c->ended, 1);
    assert_int_equal(c->status, MR_OK);
    assert_int_equal(c->tensors[0].bytes, BYTES);
    for (uint32_t i = 0; i < BYTES; i++)
        assert_int_equal(((uint8_t *)c->tensors[0].data)[i], pattern(i));
    mr_call_free(client(), c->call);
    assert_int_equal(mr_endpoint_memory_used(client()), 0);
}

TEST(only_what_is_written_is_sent, pair_opened, pair_ended)
{
    struct pair_call c = {0};
    struct mr_tensor request;
    client_call_open_begin(&c, &request);
    for (uint32_t at = 0; at < BYTES; at += STEP) {
        pair_run(&p, 2000);
        assert_true(c.call->sending.out.sent_bytes <= c.call->ready_bytes);
        assert_true(c.call->sending.out.sent_bytes + c.call->segment_bytes >= c.call->ready_bytes);
        assert_int_equal(p.executed, 0);
        write_to(&c, &request, at, at + STEP);
    }
    client_call_open_finish(&c);
    assert_int_equal(p.executed, 1);
}

static enum pair_verdict drop_some(struct pair *pair, enum pair_side from, uint32_t n,
                                   struct pair_packet *packet)
{
    return n % 7 == 3 ? PAIR_DROP : PAIR_PASS;
}

TEST(losses_are_sent_again, pair_opened, pair_ended)
{
    struct pair_call c = {0};
    struct mr_tensor request;
    p.filter = drop_some;
    client_call_open_begin(&c, &request);
    for (uint32_t at = 0; at < BYTES; at += STEP) {
        pair_run(&p, 700);
        write_to(&c, &request, at, at + STEP);
    }
    client_call_open_finish(&c);
    assert_int_equal(p.executed, 1);
}

TEST(after_a_restart_it_is_sent_from_its_beginning_as_far_as_it_is_written, pair_opened, pair_ended)
{
    struct pair_call c = {0};
    struct mr_tensor request;
    client_call_open_begin(&c, &request);
    write_to(&c, &request, 0, 3 * STEP);
    pair_run(&p, 1000);
    pair_restart_server(&p);
    pair_run(&p, 500000);
    assert_int_equal(p.events[MR_SESSION_RESTARTED], 1);
    assert_true(c.call->sending.out.sent_bytes <= c.call->ready_bytes);
    assert_int_equal(p.executed, 0);
    write_to(&c, &request, 3 * STEP, BYTES);
    client_call_open_finish(&c);
    assert_int_equal(p.executed, 1);
}

TEST(one_that_ends_half_way_is_never_executed, pair_opened, pair_ended)
{
    struct pair_call c = {0};
    struct mr_tensor request;
    client_call_open_begin(&c, &request);
    write_to(&c, &request, 0, 3 * STEP);
    pair_run(&p, 1000);
    mr_call_cancel(client(), c.call);
    assert_int_equal(c.status, MR_CANCELLED);
    mr_call_advance(client(), c.call, NULL); /* there is no request any more */
    pair_run(&p, 500000);
    assert_int_equal(p.executed, 0);
    mr_call_free(client(), c.call);
    assert_int_equal(mr_endpoint_memory_used(client()), 0);
}

/* ---- partly from the caller's memory ---- */

/* Begins an echo of which bytes [first, end) are in `lent`, and nowhere else, and hands it over. */
static void begin_lent(struct pair_call *c, uint8_t *lent, uint32_t first, uint32_t end)
{
    const struct mr_call_options options = {.op = MR_OP_ECHO, .user = c, .deadline_us = UINT64_MAX};
    struct mr_tensor request = mr_tensor_1d(MR_U8, BYTES, NULL);
    c->keep = true;
    assert_int_equal(mr_call_begin(client(), p.session, &options, &request, 1, &c->call), MR_OK);
    uint8_t *bytes = request.data;
    for (uint32_t i = 0; i < BYTES; i++) {
        bytes[i] = i < first || i >= end ? pattern(i) : 0xee;
        if (i >= first && i < end)
            lent[i - first] = pattern(i);
    }
    mr_call_borrow(c->call, bytes + first, lent, end - first);
    mr_call_send(client(), c->call, p.now_us);
}

TEST(bytes_are_sent_from_where_they_are, pair_opened, pair_ended)
{
    static const uint32_t places[][2] = {{0, BYTES}, {0, 70001}, {1, 2}, {3333, BYTES}, {65000, 390011}};
    static uint8_t lent[BYTES];
    for (uint32_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        struct pair_call c = {0};
        begin_lent(&c, lent, places[i][0], places[i][1]);
        client_call_open_finish(&c);
        assert_int_equal(p.executed, i + 1);
    }
}

TEST(lost_ones_are_sent_again_from_there, pair_opened, pair_ended)
{
    static uint8_t lent[BYTES];
    struct pair_call c = {0};
    p.filter = drop_some;
    begin_lent(&c, lent, 1001, BYTES - 77);
    client_call_open_finish(&c);
    assert_int_equal(p.executed, 1);
    assert_true(mr_endpoint_counters(client())->segments_resent > 0);
}

TEST(after_a_restart_they_are_sent_from_there, pair_opened, pair_ended)
{
    static uint8_t lent[BYTES];
    struct pair_call c = {0};
    begin_lent(&c, lent, 1001, BYTES - 77);
    pair_run(&p, 100);
    pair_restart_server(&p);
    client_call_open_finish(&c);
    assert_int_equal(p.events[MR_SESSION_RESTARTED], 1);
    assert_int_equal(p.executed, 1);
}

/* The memory is the caller's again, who frees it. */
TEST(once_the_call_has_ended_nothing_is_read, pair_opened, pair_ended)
{
    uint8_t *lent = malloc(BYTES);
    struct pair_call c = {0};
    assert_non_null(lent);
    p.filter = drop_all;
    begin_lent(&c, lent, 0, BYTES);
    pair_run(&p, 100);
    assert_true(c.call->sending.out.sent_bytes > 0);
    mr_call_cancel(client(), c.call);
    assert_int_equal(c.status, MR_CANCELLED);
    memset(lent, 0xee, BYTES);
    free(lent);
    p.filter = NULL;
    pair_run(&p, 500000);
    assert_int_equal(p.executed, 0);
    mr_call_free(client(), c.call);
    assert_int_equal(mr_endpoint_memory_used(client()), 0);
}
