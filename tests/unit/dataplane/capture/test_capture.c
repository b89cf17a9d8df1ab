#include <string.h>
#include "dataplane/capture/capture.h"
#include "dataplane/capture/view.h"
#include "dataplane/net/bytes.h"
#include "dataplane/net/frame.h"
#include "dataplane/udp/address.h"
#include "tests/test.h"

enum { FIRST_PORT = 7700, CORES = 3, CORE = 1, PEER_PORT = 41000, READER_PORT = 42000 };

static const uint8_t server4[4] = {10, 0, 0, 1}, peer4[4] = {10, 0, 0, 2};

static struct mr_address address(const uint8_t ipv4[4], uint16_t port)
{
    struct mr_address a;
    mr_address_from_ipv4(ipv4, &a);
    a.port = port;
    return a;
}

static struct dp_capture_config settings(void)
{
    return (struct dp_capture_config){.id = 1,
                                      .reader = address(peer4, READER_PORT),
                                      .snap_bytes = 64,
                                      .ring_bytes = 4096,
                                      .idle_us = 1000,
                                      .own_port = FIRST_PORT + CORE,
                                      .first_port = FIRST_PORT,
                                      .port_count = CORES};
}

static struct dp_capture *capture_make(const struct dp_capture_config *config)
{
    struct dp_capture *capture = dp_capture_create(config, 5000);
    assert_non_null(capture);
    return capture;
}

/* The next record; its bytes follow it. */
static const struct mr_capture_record *capture_next(struct dp_capture *capture)
{
    static _Alignas(8) uint8_t bytes[4096];
    const struct mr_capture_record *record = (const void *)bytes;
    dp_ring_peek(&capture->ring, bytes, (uint32_t)dp_capture_unread(capture));
    assert_true(dp_capture_unread(capture) >= sizeof(*record));
    const uint32_t count = mr_capture_record_bytes(record->captured_bytes);
    assert_true(dp_capture_was_read(capture, capture->ring.first + count, 6000));
    return record;
}

TEST(a_datagram_gets_headers_and_is_cut)
{
    const struct dp_capture_config config = settings();
    struct dp_capture *capture = capture_make(&config);
    const struct mr_address local = address(server4, FIRST_PORT + CORE), peer = address(peer4, PEER_PORT);
    uint8_t payload[200];
    for (uint32_t i = 0; i < sizeof(payload); i++)
        payload[i] = (uint8_t)i;
    dp_capture_datagram(capture, 123, false, &local, &peer, payload, sizeof(payload));
    dp_capture_datagram(capture, 456, true, &local, &peer, payload, 10);

    const struct mr_capture_record *record = capture_next(capture);
    const uint8_t *ip = (const uint8_t *)(record + 1);
    assert_int_equal(record->time_ns, 123);
    assert_int_equal(record->bytes, DP_IPV4_BYTES + DP_UDP_BYTES + 200);
    assert_int_equal(record->captured_bytes, 64);
    assert_int_equal(record->flags, 0);
    assert_memory_equal(ip + 12, peer4, 4);
    assert_memory_equal(ip + 16, server4, 4);
    assert_int_equal(dp_get16(ip + 20), PEER_PORT);
    assert_int_equal(dp_get16(ip + 22), FIRST_PORT + CORE);
    assert_int_equal(dp_get16(ip + 24), DP_UDP_BYTES + 200);
    assert_memory_equal(ip + 28, payload, 36);

    record = capture_next(capture);
    ip = (const uint8_t *)(record + 1);
    assert_int_equal(record->flags, MR_CAPTURE_SENT);
    assert_int_equal(record->captured_bytes, 38);
    assert_memory_equal(ip + 16, peer4, 4);
    assert_memory_equal(ip + 28, payload, 10);
    assert_memory_equal(ip + 38, "\0\0", 2); /* up to a multiple of 8 */
    assert_int_equal(dp_capture_unread(capture), 0);
    dp_capture_destroy(capture);
}

/* As the parser of the port checks it. */
TEST(over_ipv6_its_checksum_is_right)
{
    struct dp_capture_config config = settings();
    config.snap_bytes = 1000;
    struct dp_capture *capture = capture_make(&config);
    struct mr_address local = {.ip = {0xfd, [15] = 1}, .port = FIRST_PORT + CORE};
    struct mr_address peer = {.ip = {0xfd, [15] = 2}, .port = PEER_PORT};
    const struct dp_net net = {
        .has_ipv6 = true, .ipv6 = {0xfd, [15] = 1}, .udp_port = FIRST_PORT, .core_count = CORES};
    uint8_t payload[33], frame[200];
    struct dp_frame parsed;
    memset(payload, 0x5a, sizeof(payload));
    dp_capture_datagram(capture, 1, false, &local, &peer, payload, sizeof(payload));
    const struct mr_capture_record *record = capture_next(capture);
    uint32_t at = dp_frame_put_ether(&net, frame, net.mac, 0, DP_ETHERTYPE_IPV6);
    frame[6] = 2; /* from another host */
    memcpy(frame + at, record + 1, record->captured_bytes);
    assert_int_equal(
        dp_frame_parse(&net, frame, at + record->captured_bytes, (struct dp_checked){false, false}, &parsed),
        DP_FRAME_UDP);
    assert_memory_equal(parsed.payload, payload, sizeof(payload));
    dp_capture_destroy(capture);
}

TEST(what_finds_no_room_is_counted)
{
    const struct dp_capture_config config = settings();
    struct dp_capture *capture = capture_make(&config);
    const struct mr_address local = address(server4, FIRST_PORT + CORE), peer = address(peer4, PEER_PORT);
    const uint8_t payload[100] = {0};
    const uint32_t record_bytes = mr_capture_record_bytes(64), fit = 4096 / record_bytes;
    for (uint32_t i = 0; i < fit + 3; i++)
        dp_capture_datagram(capture, i, false, &local, &peer, payload, sizeof(payload));
    assert_int_equal(capture->seen, fit + 3);
    assert_int_equal(capture->wanted, fit + 3);
    assert_int_equal(capture->lost, 3);
    for (uint32_t i = 0; i < fit; i++)
        assert_int_equal(capture_next(capture)->lost, 0);
    dp_capture_datagram(capture, 9, false, &local, &peer, payload, sizeof(payload));
    dp_capture_datagram(capture, 9, false, &local, &peer, payload, sizeof(payload));
    assert_int_equal(capture_next(capture)->lost, 3); /* before this one */
    assert_int_equal(capture_next(capture)->lost, 0);
    assert_int_equal(capture->lost, 3);
    dp_capture_destroy(capture);
}

TEST(the_reader_and_what_it_does_not_want_are_left_out)
{
    struct dp_capture_config config = settings();
    config.port = PEER_PORT;
    memcpy(config.ip, address(peer4, 0).ip, sizeof(config.ip));
    struct dp_capture *capture = capture_make(&config);
    const struct mr_address local = address(server4, FIRST_PORT + CORE), peer = address(peer4, PEER_PORT),
                            reader = address(peer4, READER_PORT), third = address(peer4, 43000);
    dp_capture_datagram(capture, 1, true, &local, &reader, (const uint8_t *)"x", 1);
    assert_int_equal(capture->seen, 0);
    dp_capture_datagram(capture, 1, true, &local, &third, (const uint8_t *)"x", 1);
    assert_int_equal(capture->seen, 1);
    assert_int_equal(capture->wanted, 0);
    dp_capture_datagram(capture, 1, true, &local, &peer, (const uint8_t *)"x", 1);
    assert_int_equal(capture->wanted, 1);
    capture->is_halted = true;
    dp_capture_datagram(capture, 1, true, &local, &peer, (const uint8_t *)"x", 1);
    assert_int_equal(capture->seen, 2);
    (void)capture_next(capture);
    assert_int_equal(dp_capture_unread(capture), 0);
    dp_capture_destroy(capture);
}

static uint32_t make_frame(uint16_t source_port, uint16_t destination_port, uint8_t *out)
{
    static const struct dp_net net;
    uint32_t n = dp_frame_put_ether(&net, out, net.mac, 0, DP_ETHERTYPE_IPV4);
    n += dp_frame_put_ipv4(out + n, peer4, server4, DP_PROTOCOL_UDP, DP_UDP_BYTES + 4);
    dp_put16(out + n, source_port);
    dp_put16(out + n + 2, destination_port);
    dp_put16(out + n + 4, DP_UDP_BYTES + 4);
    memset(out + n + 6, 0, 6);
    return n + DP_UDP_BYTES + 4;
}

/* They are in the other core's capture, when they come to it or leave it. */
TEST(frames_of_other_cores_are_left_out)
{
    const struct dp_capture_config config = settings();
    struct dp_capture *capture = capture_make(&config);
    uint8_t frame[128];
    for (uint32_t i = 0; i < CORES + 2; i++) {
        const uint16_t port = (uint16_t)(FIRST_PORT - 1 + i);
        const uint64_t before = capture->seen;
        const bool is_others = port == FIRST_PORT || port == FIRST_PORT + 2;
        uint32_t n = make_frame(PEER_PORT, port, frame);
        dp_capture_frame(capture, 1, false, frame, n, n);
        n = make_frame(port, PEER_PORT, frame);
        dp_capture_frame(capture, 1, true, frame, n, n);
        assert_int_equal(capture->seen - before, is_others ? 0 : 2);
    }
    dp_capture_destroy(capture);
}

TEST(frames_are_recorded_as_they_are)
{
    const struct dp_capture_config config = settings();
    struct dp_capture *capture = capture_make(&config);
    uint8_t frame[128] = {[12] = 0x08, 0x06}; /* ARP */
    dp_capture_frame(capture, 77, false, frame, 42, 60);
    const struct mr_capture_record *record = capture_next(capture);
    assert_int_equal(record->time_ns, 77);
    assert_int_equal(record->captured_bytes, 42);
    assert_int_equal(record->bytes, 60);
    assert_memory_equal(record + 1, frame, 42);
    dp_capture_frame(capture, 78, false, frame, 100, 100);
    assert_int_equal(capture_next(capture)->captured_bytes, 64);
    dp_capture_destroy(capture);
}

TEST(it_is_forgotten_when_nobody_reads_it)
{
    const struct dp_capture_config config = settings(); /* 1000 us, begun at 5000 */
    struct dp_capture *capture = capture_make(&config);
    assert_false(dp_capture_is_forgotten(capture, 6000));
    assert_true(dp_capture_is_forgotten(capture, 6001));
    assert_true(dp_capture_was_read(capture, 0, 6001));
    assert_false(dp_capture_is_forgotten(capture, 7001));
    assert_false(dp_capture_is_forgotten(capture, 4000)); /* a clock that was read earlier */
    assert_false(dp_capture_was_read(capture, 8, 9000));
    assert_true(dp_capture_is_forgotten(capture, 7002)); /* a wrong question is none */
    dp_capture_destroy(capture);
}
