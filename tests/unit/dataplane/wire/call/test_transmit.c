#include <string.h>

#include "dataplane/wire/endpoint_internal.h"
#include "pair_fixture.h"
#include "tests/test.h"

static uint32_t bundles[2], plain[2];

static enum pair_verdict transmit_count(struct pair *pair, enum pair_side from, uint32_t n,
                                        struct pair_packet *packet)
{
    struct mr_packet_header h;
    memcpy(&h, packet->data, sizeof(h));
    if (h.type == MR_PACKET_DATA)
        (h.flags & MR_FLAG_BUNDLE ? bundles : plain)[from]++;
    return PAIR_PASS;
}

static void make_calls(struct pair_call *calls, uint32_t n, uint32_t bytes)
{
    static uint8_t data[4000];
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, bytes, data);
    memset(bundles, 0, sizeof(bundles));
    memset(plain, 0, sizeof(plain));
    memset(calls, 0, n * sizeof(*calls));
    p.filter = transmit_count;
    for (uint32_t i = 0; i < n; i++)
        pair_call(&p, &calls[i], MR_OP_ECHO, &tensor, bytes > 0, UINT64_MAX);
    pair_run(&p, 200);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(calls[i].ended, 1);
        assert_int_equal(calls[i].status, MR_OK);
    }
}

TEST(one_small_message_travels_alone, pair_opened, pair_ended)
{
    struct pair_call calls[1];
    make_calls(calls, 1, 0);
    assert_int_equal(plain[PAIR_CLIENT], 1);
    assert_int_equal(plain[PAIR_SERVER], 1);
    assert_int_equal(bundles[PAIR_CLIENT] + bundles[PAIR_SERVER], 0);
}

TEST(small_messages_share_packets_both_ways, pair_opened, pair_ended)
{
    struct pair_call calls[20];
    make_calls(calls, 20, 0); /* 20 x 48 bytes fit one packet */
    assert_int_equal(bundles[PAIR_CLIENT], 1);
    assert_int_equal(bundles[PAIR_SERVER], 1);
    assert_int_equal(plain[PAIR_CLIENT] + plain[PAIR_SERVER], 0);
    make_calls(calls, 20, 101); /* 64 + 101 -> 16 + 168: six to a packet */
    assert_int_equal(bundles[PAIR_CLIENT], 4);
    assert_int_equal(bundles[PAIR_SERVER], 4);
}

TEST(messages_that_do_not_fit_together_go_alone, pair_opened, pair_ended)
{
    struct pair_call calls[6];
    make_calls(calls, 6, 900);
    assert_int_equal(plain[PAIR_CLIENT], 6);
    assert_int_equal(plain[PAIR_SERVER], 6);
}

TEST(bundling_may_be_switched_off, pair_opened, pair_ended)
{
    struct pair_call calls[20];
    pair_stop(&p);
    pair_init(&p);
    p.config[PAIR_CLIENT].bundle_bytes_max = p.config[PAIR_SERVER].bundle_bytes_max = 0;
    pair_start(&p);
    pair_open(&p);
    make_calls(calls, 20, 0);
    assert_int_equal(plain[PAIR_CLIENT], 20);
    assert_int_equal(plain[PAIR_SERVER], 20);
    assert_int_equal(bundles[PAIR_CLIENT] + bundles[PAIR_SERVER], 0);
}

TEST(bundles_may_be_kept_short, pair_opened, pair_ended)
{
    struct pair_call calls[21];
    pair_stop(&p);
    pair_init(&p);
    p.config[PAIR_CLIENT].bundle_bytes_max = 5 * 48; /* 48 bytes each, as above */
    p.config[PAIR_SERVER].bundle_bytes_max = 7 * 48 + 47;
    pair_start(&p);
    pair_open(&p);
    make_calls(calls, 21, 0);
    assert_int_equal(bundles[PAIR_CLIENT], 4);
    assert_int_equal(plain[PAIR_CLIENT], 1);
    assert_int_equal(bundles[PAIR_SERVER], 3);
    assert_int_equal(plain[PAIR_SERVER], 0);
    make_calls(calls, 2, 900); /* one message may be longer */
    assert_int_equal(plain[PAIR_CLIENT], 2);
    assert_int_equal(plain[PAIR_SERVER], 2);
}

TEST(a_full_port_delays_and_loses_nothing, pair_opened, pair_ended)
{
    struct pair_call calls[10] = {0}, large = {0};
    static uint8_t data[4000];
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, sizeof(data), data);
    p.ends[PAIR_CLIENT].no_room = true;
    for (int i = 0; i < 10; i++)
        pair_call(&p, &calls[i], MR_OP_PUSH_GRAD, NULL, 0, UINT64_MAX);
    pair_call(&p, &large, MR_OP_PUSH_GRAD, &tensor, 1, UINT64_MAX);
    pair_run(&p, 3000);
    assert_true(mr_endpoint_counters(p.ends[PAIR_CLIENT].ep)->tx_no_room > 0);
    assert_int_equal(mr_endpoint_poll(p.ends[PAIR_CLIENT].ep, p.now_us, 8), p.now_us);
    p.ends[PAIR_CLIENT].no_room = false;
    p.ends[PAIR_SERVER].no_room = true;
    pair_run(&p, 500);
    assert_int_equal(p.executed, 11);
    p.ends[PAIR_SERVER].no_room = false;
    pair_run(&p, 50000);
    for (int i = 0; i < 10; i++)
        assert_int_equal(calls[i].ended, 1);
    assert_int_equal(large.ended, 1);
    assert_int_equal(p.executed, 11);
    assert_int_equal(mr_endpoint_counters(p.ends[PAIR_CLIENT].ep)->segments_resent, 0);
}

TEST(a_poll_keeps_to_its_budget, pair_opened, pair_ended)
{
    static uint8_t data[200000];
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, sizeof(data), data);
    struct pair_call c = {0};
    struct pair_end *end = &p.ends[PAIR_CLIENT];
    pair_call(&p, &c, MR_OP_PUSH_GRAD, &tensor, 1, UINT64_MAX);
    for (uint32_t budget = 1; budget < 10; budget++) {
        uint32_t sent = end->sent;
        assert_int_equal(mr_endpoint_poll(end->ep, p.now_us, budget), p.now_us);
        assert_int_equal(end->sent - sent, budget);
    }
    pair_run(&p, 5000);
    assert_int_equal(c.ended, 1);
}

static uint64_t turns[2];

static enum pair_verdict note_turns(struct pair *pair, enum pair_side from, uint32_t n,
                                    struct pair_packet *packet)
{
    struct mr_packet_header h;
    memcpy(&h, packet->data, sizeof(h));
    if (from == PAIR_CLIENT && h.type == MR_PACKET_DATA)
        turns[h.call_id % 2]++;
    return PAIR_PASS;
}

TEST(large_messages_take_turns, pair_opened, pair_ended)
{
    static uint8_t data[200000];
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, sizeof(data), data);
    struct pair_call a = {0}, b = {0};
    memset(turns, 0, sizeof(turns));
    p.filter = note_turns;
    pair_call(&p, &a, MR_OP_PUSH_GRAD, &tensor, 1, UINT64_MAX);
    pair_call(&p, &b, MR_OP_PUSH_GRAD, &tensor, 1, UINT64_MAX);
    mr_endpoint_poll(p.ends[PAIR_CLIENT].ep, p.now_us, 40);
    assert_int_equal(turns[0], 20);
    assert_int_equal(turns[1], 20);
    pair_run(&p, 5000);
    assert_int_equal(a.ended + b.ended, 2);
}

/* What one call had in flight, when it is cancelled, another that waits for room may have, though nothing was
 * said of its own. */
TEST(room_that_a_call_leaves_is_anothers, pair_opened, pair_ended)
{
    static uint8_t data[200000];
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, sizeof(data), data);
    struct pair_call a = {0}, b = {0};
    pair_stop(&p);
    pair_init(&p);
    p.config[PAIR_SERVER].receive_window_bytes = 30000;
    pair_start(&p);
    pair_open(&p);
    memset(turns, 0, sizeof(turns));
    p.filter = note_turns;
    pair_call(&p, &a, MR_OP_PUSH_GRAD, &tensor, 1, UINT64_MAX);
    pair_call(&p, &b, MR_OP_PUSH_GRAD, &tensor, 1, UINT64_MAX);
    mr_endpoint_poll(client(), p.now_us, 1000);
    const uint64_t both = turns[0] + turns[1], each = both / 2;
    assert_int_in_range(both, 4, 30000 / 1000);
    mr_endpoint_poll(client(), p.now_us, 1000);
    assert_int_equal(turns[0] + turns[1], both);
    mr_call_cancel(client(), a.call);
    mr_endpoint_poll(client(), p.now_us, 1000);
    assert_int_in_range(turns[0] + turns[1] - both, each - 1, each + 1);
}

/* What is in flight of all replies together stays within what the client said it can take. */
static uint32_t in_flight, in_flight_max;

static enum pair_verdict note_flight(struct pair *pair, enum pair_side from, uint32_t n,
                                     struct pair_packet *packet)
{
    struct mr_packet_header h;
    memcpy(&h, packet->data, sizeof(h));
    if (from == PAIR_SERVER && h.type == MR_PACKET_DATA) {
        in_flight = 0;
        for (uint32_t i = pair->ends[PAIR_CLIENT].head; i != pair->ends[PAIR_CLIENT].tail; i++)
            in_flight += pair->ends[PAIR_CLIENT].queue[i % PAIR_QUEUE_MAX]->bytes;
        in_flight_max = in_flight > in_flight_max ? in_flight : in_flight_max;
    }
    return PAIR_PASS;
}

TEST(replies_in_flight_stay_below_the_clients_buffer, pair_opened, pair_ended)
{
    struct pair_call calls[8] = {0};
    pair_stop(&p);
    pair_init(&p);
    p.config[PAIR_CLIENT].receive_window_bytes = 30000;
    pair_start(&p);
    pair_open(&p);
    in_flight_max = 0;
    p.filter = note_flight;
    p.reply_bytes = 100000;
    for (int i = 0; i < 8; i++)
        pair_call(&p, &calls[i], MR_OP_LOOKUP, NULL, 0, UINT64_MAX);
    pair_run(&p, 20000);
    for (int i = 0; i < 8; i++)
        assert_int_equal(calls[i].ended, 1);
    assert_int_in_range(in_flight_max, 20000, 30000 + 8 * MR_UDP_BYTES_MIN);
}
