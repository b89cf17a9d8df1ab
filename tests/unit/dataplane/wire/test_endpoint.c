#include <stdlib.h>
#include <string.h>

#include "pair_fixture.h"
#include "tests/sim/session_count.h"
#include "tests/test.h"

TEST(defaults_are_those_of_the_header, pair_configured)
{
    struct mr_endpoint_config c;
    mr_endpoint_config_default(&c);
    assert_int_equal(c.sessions_max, 1024);
    assert_int_equal(c.calls_max, 4096);
    assert_int_equal(c.window, MR_WINDOW_MAX);
    assert_int_equal(c.udp_bytes_max, MR_UDP_BYTES_MIN);
    assert_int_equal(c.receive_window_bytes, 256 << 10);
    assert_int_equal(c.message_bytes_max, MR_MESSAGE_BYTES_MAX);
    assert_int_equal(c.memory_bytes, 64 << 20);
    assert_int_equal(c.session_idle_us, 60000000);
    assert_int_equal(c.busy_retry_us, 200);
}

#define REFUSES(change)                                                                                      \
    do {                                                                                                     \
        struct mr_endpoint_config c = p.config[PAIR_SERVER];                                                 \
        struct mr_endpoint *ep = NULL;                                                                       \
        change;                                                                                              \
        assert_int_equal(mr_endpoint_create(&c, &ep), MR_INVALID_ARGUMENT);                                  \
        assert_null(ep);                                                                                     \
    } while (0)

TEST(configurations_out_of_range_are_refused, pair_configured)
{
    REFUSES(c.io.tx_begin = NULL);
    REFUSES(c.io.tx_end = NULL);
    REFUSES(c.io.random = NULL);
    REFUSES(c.psk_count = MR_PSK_MAX + 1);
    REFUSES(c.incarnation = 0);
    REFUSES(c.core = MR_CORE_MAX);
    REFUSES(c.sessions_max = 0);
    REFUSES(c.sessions_max = 65537);
    REFUSES(c.calls_max = 0);
    REFUSES(c.hellos_per_address = 0);
    REFUSES(c.hellos_per_address = 1000001);
    REFUSES(c.window = 0);
    REFUSES(c.window = MR_WINDOW_MAX + 1);
    REFUSES(c.udp_bytes_max = MR_UDP_BYTES_MIN - 1);
    REFUSES(c.udp_bytes_max = MR_UDP_BYTES_MAX + 1);
    REFUSES(c.receive_window_bytes = 0);
    REFUSES(c.message_bytes_max = MR_MESSAGE_BYTES_MAX + 1);
    REFUSES(c.message_bytes_max = 0);
    REFUSES(c.session_idle_us = 0);
    REFUSES(c.busy_retry_us = 0);
    REFUSES(c.memory = (void *)33);
    REFUSES(c.hold_on_restart = true); /* and nobody would be told */
}

TEST(memory_may_be_the_owners, pair_configured)
{
    void *memory = aligned_alloc(64, 1 << 20);
    assert_non_null(memory);
    p.config[PAIR_SERVER].memory = memory;
    p.config[PAIR_SERVER].memory_bytes = 1 << 20;
    pair_start(&p);
    pair_open(&p);
    struct pair_call c = {0};
    p.reply_bytes = 100000;
    pair_call(&p, &c, MR_OP_LOOKUP, NULL, 0, UINT64_MAX);
    pair_run(&p, 1000);
    assert_int_equal(c.status, MR_OK);
    assert_int_equal(c.ended, 1);
    pair_stop(&p);
    free(memory);
}

TEST(destroying_with_calls_under_way_is_silent, pair_configured)
{
    struct pair_call calls[3] = {0};
    pair_start(&p);
    pair_open(&p);
    pair_call(&p, &calls[0], MR_OP_SAVE, NULL, 0, UINT64_MAX);
    pair_run(&p, 100);
    pair_call(&p, &calls[1], MR_OP_ECHO, NULL, 0, UINT64_MAX);
    uint32_t sent = p.ends[PAIR_CLIENT].sent;
    pair_stop(&p);
    assert_int_equal(p.ends[PAIR_CLIENT].sent, sent);
    assert_int_equal(calls[0].ended + calls[1].ended, 0);
    mr_endpoint_destroy(NULL);
}

TEST(an_idle_pair_sleeps, pair_configured)
{
    pair_start(&p);
    pair_open(&p);
    pair_run(&p, 1000000);
    uint64_t client_us = mr_endpoint_poll(p.ends[PAIR_CLIENT].ep, p.now_us, 8);
    uint64_t server_us = mr_endpoint_poll(p.ends[PAIR_SERVER].ep, p.now_us, 8);
    assert_true(client_us >= p.now_us + 1000000);
    assert_true(server_us >= p.now_us + 1000000);
    assert_int_equal(mr_endpoint_poll(p.ends[PAIR_SERVER].ep, p.now_us, 8), server_us);
    pair_stop(&p);
}

TEST(nothing_to_do_is_never, pair_configured)
{
    pair_start(&p);
    assert_int_equal(mr_endpoint_poll(p.ends[PAIR_CLIENT].ep, p.now_us, 8), UINT64_MAX);
    pair_stop(&p);
}

TEST(time_does_not_run_backwards, pair_configured)
{
    pair_start(&p);
    pair_open(&p);
    struct pair_call c = {0};
    pair_call(&p, &c, MR_OP_ECHO, NULL, 0, p.now_us + 100);
    mr_endpoint_poll(p.ends[PAIR_CLIENT].ep, p.now_us - 500000, 8);
    assert_int_equal(c.ended, 0);
    pair_run(&p, 50);
    assert_int_equal(c.status, MR_OK);
    assert_int_equal(c.ended, 1);
    pair_stop(&p);
}

TEST(garbage_is_counted_and_never_answered, pair_configured)
{
    pair_start(&p);
    pair_open(&p);
    uint64_t r = 88172645463325252u;
    uint8_t data[300];
    uint32_t sent = p.ends[PAIR_SERVER].sent;
    for (uint32_t i = 0; i < 20000; i++) {
        for (size_t b = 0; b < sizeof(data); b++) {
            r ^= r << 13, r ^= r >> 7, r ^= r << 17;
            data[b] = (uint8_t)r;
        }
        if (i % 2 == 0) {
            struct mr_packet_header h = {.magic = MR_MAGIC,
                                         .version = MR_PROTOCOL_VERSION,
                                         .type = MR_PACKET_HELLO,
                                         .payload_bytes = (uint16_t)(i % 250)};
            memcpy(data, &h, sizeof(h) - (i % 4 == 0 ? 0 : 8));
        }
        pair_inject(&p, PAIR_SERVER, data,
                    i % 2 == 0 ? MR_HEADER_BYTES + i % 250 : (uint32_t)(r % sizeof(data)));
        pair_inject(&p, PAIR_CLIENT, data,
                    i % 2 == 0 ? MR_HEADER_BYTES + i % 250 : (uint32_t)(r % sizeof(data)));
    }
    assert_int_equal(p.ends[PAIR_SERVER].sent, sent);
    const struct mr_wire_counters *c = mr_endpoint_counters(p.ends[PAIR_SERVER].ep);
    assert_true(c->drop_short > 0 && c->drop_magic > 0 && c->drop_proof > 0);
    assert_int_equal(session_count(p.ends[PAIR_SERVER].ep), 1);
    struct pair_call call = {0};
    pair_call(&p, &call, MR_OP_ECHO, NULL, 0, UINT64_MAX);
    pair_run(&p, 100);
    assert_int_equal(call.status, MR_OK);
    assert_int_equal(call.ended, 1);
    pair_stop(&p);
}

TEST(each_side_alone_drops_the_others_packets, pair_configured)
{
    pair_start(&p);
    uint8_t packet[MR_HEADER_BYTES + sizeof(struct mr_hello)] = {0};
    static const struct {
        uint8_t type;
        uint16_t bytes;
        uint16_t flags;
    } kinds[] = {{MR_PACKET_HELLO, sizeof(struct mr_hello), 0},
                 {MR_PACKET_PING, 0, 0},
                 {MR_PACKET_RETRY, sizeof(struct mr_retry), 0},
                 {MR_PACKET_BUSY, 0, 0},
                 {MR_PACKET_RESET, 0, 0}};
    for (size_t i = 0; i < 5; i++) {
        struct mr_packet_header h = {.magic = MR_MAGIC,
                                     .version = MR_PROTOCOL_VERSION,
                                     .type = kinds[i].type,
                                     .flags = kinds[i].flags,
                                     .payload_bytes = kinds[i].bytes};
        memcpy(packet, &h, sizeof(h));
        enum pair_side to = i < 2 ? PAIR_CLIENT : PAIR_SERVER;
        uint64_t before = mr_endpoint_counters(p.ends[to].ep)->drop_session;
        pair_inject(&p, to, packet, MR_HEADER_BYTES + kinds[i].bytes);
        assert_int_equal(mr_endpoint_counters(p.ends[to].ep)->drop_session, before + 1);
        assert_int_equal(p.ends[to].sent, 0);
    }
    pair_stop(&p);
}
