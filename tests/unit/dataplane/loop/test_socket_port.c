/* A core's socket on loopback: short datagrams go before segments of long messages, which wait for a run. */
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include "dataplane/loop/socket_port.h"
#include "dataplane/udp/address.h"
#include "dataplane/udp/udp_receive.h"
#include "dataplane/udp/udp_socket.h"
#include "dataplane/wire/endpoint.h"
#include "tests/test.h"

#define SEGMENT_BYTES  1408u
#define DATAGRAM_BYTES (MR_HEADER_BYTES + SEGMENT_BYTES)
#define MESSAGE_BYTES  (100u * SEGMENT_BYTES + 40u)

struct fixture {
    struct dp_socket_port *port;
    struct mr_endpoint_io io;
    struct mr_udp_socket client;
    struct mr_udp_receiver *in;
    struct mr_address to;
};

static void open_port(struct fixture *f)
{
    static const struct dp_config config;
    const struct dp_net net = {.has_ipv4 = true, .ipv4 = {127, 0, 0, 1}, .mtu = 1500, .core_count = 1};
    struct mr_endpoint_config endpoint;
    char error[DP_ERROR_BYTES];
    f->port = dp_socket_port_open(&config, &net, 0, error);
    assert_non_null(f->port);
    dp_socket_port_configure(f->port, &endpoint);
    f->io = endpoint.io;
}

static void open_client(struct fixture *f)
{
    const struct mr_udp_socket server_socket = {.fd = dp_socket_port_fd(f->port)};
    const struct mr_udp_options options = {0};
    struct mr_address server;
    char error[DP_ERROR_BYTES];
    mr_udp_local(&server_socket, &server);
    assert_int_equal(mr_udp_connect(&server, &options, &f->client, error, sizeof(error)), MR_OK);
    mr_udp_local(&f->client, &f->to);
    f->in = mr_udp_receiver_create(&f->client);
    assert_non_null(f->in);
}

static int set_up(void **state)
{
    static struct fixture f;
    open_port(&f);
    open_client(&f);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    mr_udp_receiver_destroy(f->in);
    mr_udp_close(&f->client);
    dp_socket_port_close(f->port);
    return 0;
}

/* As the transport does: room for `bytes_max`, of which `bytes` are sent. */
static void write_datagram(struct fixture *f, const struct mr_packet_header *header, uint32_t bytes_max,
                           uint32_t bytes)
{
    uint8_t *datagram = f->io.tx_begin(f->io.self, &f->to, bytes_max);
    assert_non_null(datagram);
    memset(datagram, 0, bytes);
    memcpy(datagram, header, sizeof(*header));
    f->io.tx_end(f->io.self, bytes);
}

static void write_segment(struct fixture *f, uint16_t number)
{
    uint32_t left = MESSAGE_BYTES - number * SEGMENT_BYTES;
    uint32_t payload_bytes = left < SEGMENT_BYTES ? left : SEGMENT_BYTES;
    const struct mr_packet_header header = {.type = MR_PACKET_DATA,
                                            .payload_bytes = (uint16_t)payload_bytes,
                                            .message_bytes = MESSAGE_BYTES,
                                            .segment_bytes = SEGMENT_BYTES,
                                            .segment_number = number};
    write_datagram(f, &header, MR_HEADER_BYTES + payload_bytes, MR_HEADER_BYTES + payload_bytes);
}

static void write_short(struct fixture *f, uint32_t bytes_max, uint32_t bytes)
{
    const struct mr_packet_header header = {.type = MR_PACKET_DATA,
                                            .payload_bytes = (uint16_t)(bytes - MR_HEADER_BYTES),
                                            .message_bytes = bytes - MR_HEADER_BYTES};
    write_datagram(f, &header, bytes_max, bytes);
}

static void expect_datagram(struct fixture *f, uint32_t bytes)
{
    struct mr_address from;
    const uint8_t *datagram;
    size_t got;
    while (!mr_udp_receive_next(f->in, &from, &datagram, &got)) {
        struct pollfd pollfd = {.fd = f->client.fd, .events = POLLIN};
        assert_int_equal(poll(&pollfd, 1, 60000), 1);
        (void)mr_udp_receive(f->in);
    }
    assert_int_equal(got, bytes);
}

/* Loopback keeps the order: what went out with the first flush arrives before what went with the second. */
TEST(short_ones_go_first_while_segments_wait_for_a_run, set_up, tear_down)
{
    struct fixture *f = *state;
    write_segment(f, 0);
    write_segment(f, 1);
    write_short(f, 96, 96);
    assert_int_equal(dp_socket_port_flush(f->port), 3);
    write_short(f, 104, 104);
    assert_int_equal(dp_socket_port_flush(f->port), 1);
    expect_datagram(f, 96);
    expect_datagram(f, 104);
    expect_datagram(f, DATAGRAM_BYTES);
    expect_datagram(f, DATAGRAM_BYTES);
    assert_int_equal(dp_socket_port_run_datagrams(f->port), 65000 / DATAGRAM_BYTES);
    assert_false(dp_socket_port_is_full(f->port));
}

TEST(the_end_of_a_message_does_not_wait_and_stays_last, set_up, tear_down)
{
    struct fixture *f = *state;
    write_segment(f, 98);
    write_segment(f, 99);
    write_segment(f, 100);
    assert_int_equal(dp_socket_port_flush(f->port), 3);
    write_segment(f, 0);
    write_short(f, 96, 96);
    assert_int_equal(dp_socket_port_flush(f->port), 2);
    assert_int_equal(dp_socket_port_flush(f->port), 0);
    expect_datagram(f, DATAGRAM_BYTES);
    expect_datagram(f, DATAGRAM_BYTES);
    expect_datagram(f, MR_HEADER_BYTES + 40);
    expect_datagram(f, 96);
    expect_datagram(f, DATAGRAM_BYTES);
}

/* The transport asks for a segment's room before it knows how many messages a bundle will have. */
TEST(bundles_go_first_too, set_up, tear_down)
{
    struct fixture *f = *state;
    write_segment(f, 0);
    write_short(f, DATAGRAM_BYTES, 200);
    write_segment(f, 1);
    assert_int_equal(dp_socket_port_flush(f->port), 3);
    assert_int_equal(dp_socket_port_flush(f->port), 0);
    expect_datagram(f, 200);
    expect_datagram(f, DATAGRAM_BYTES);
    expect_datagram(f, DATAGRAM_BYTES);
}

/* ---- whom they reach ---- */

TEST(sockets_of_one_family_reach_no_other)
{
    const struct dp_net net = {.has_ipv4 = true, .ipv4 = {127, 0, 0, 1}};
    struct mr_address here, other = {.ip = {[15] = 1}, .port = 7700};
    char why[DP_ERROR_BYTES];
    mr_address_from_ipv4((const uint8_t[4]){127, 0, 0, 1}, &here);
    here.port = 7700;
    assert_true(dp_socket_port_can_reach(&net, &here, why));
    assert_true(dp_socket_port_has(&net, &here));
    assert_false(dp_socket_port_has(&net, &other));
    assert_false(dp_socket_port_can_reach(&net, &other, why));
    assert_non_null(strstr(why, "no IPv6 address: set port.ipv6"));
}

TEST(sockets_on_all_addresses_have_each_of_them)
{
    static const struct dp_net net;
    struct mr_address here, elsewhere;
    mr_address_from_ipv4((const uint8_t[4]){127, 0, 0, 1}, &here);
    mr_address_from_ipv4((const uint8_t[4]){192, 0, 2, 77},
                         &elsewhere); /* for documentation only, RFC 5737 */
    assert_true(dp_socket_port_has(&net, &here));
    assert_false(dp_socket_port_has(&net, &elsewhere));
}

/* What is captured of a datagram: addresses and ports as seen from the port, which listens on 127.0.0.1. */
static void expect_record(struct dp_capture *capture, const struct fixture *f, bool is_sent, uint32_t bytes)
{
    static _Alignas(8) uint8_t block[4096];
    const struct mr_capture_record *record = (const void *)block;
    const uint8_t *ip = (const uint8_t *)(record + 1), *peer = is_sent ? ip + 22 : ip + 20;
    assert_true(dp_capture_unread(capture) <= sizeof(block));
    dp_ring_peek(&capture->ring, block, (uint32_t)dp_capture_unread(capture));
    assert_int_equal(record->flags, is_sent ? MR_CAPTURE_SENT : 0);
    assert_int_equal(record->bytes, 28 + bytes);
    assert_memory_equal(ip + 12, "\x7f\0\0\1\x7f\0\0\1", 8);
    assert_int_equal(peer[0] << 8 | peer[1], f->to.port);
    const uint64_t next = capture->ring.first + mr_capture_record_bytes(record->captured_bytes);
    assert_true(dp_capture_was_read(capture, next, 0));
}

static void socket_port_fill(void *self, void *out, size_t n)
{
    (void)self;
    memset(out, 1, n);
}

static void serve(void *app, struct mr_endpoint *ep, const struct mr_request *request)
{
    (void)app;
    mr_reply_status(ep, request->ref, MR_OK);
}

static void receive_one(struct fixture *f)
{
    struct pollfd pollfd = {.fd = dp_socket_port_fd(f->port), .events = POLLIN};
    struct mr_endpoint_config config;
    struct mr_endpoint *endpoint;
    mr_endpoint_config_default(&config);
    config.io = f->io;
    config.io.random = socket_port_fill;
    config.on_request = serve;
    config.incarnation = 1;
    config.core_count = 1;
    assert_int_equal(mr_endpoint_create(&config, &endpoint), MR_OK);
    assert_int_equal(poll(&pollfd, 1, 60000), 1);
    assert_int_equal(dp_socket_port_receive(f->port, endpoint, NULL, 0), 1);
    mr_endpoint_destroy(endpoint);
}

TEST(datagrams_of_both_ways_are_captured, set_up, tear_down)
{
    struct fixture *f = *state;
    const struct dp_capture_config config = {.snap_bytes = 128, .ring_bytes = 4096};
    struct dp_capture *capture = dp_capture_create(&config, 0);
    assert_non_null(capture);
    write_short(f, 96, 96); /* before it begins */
    dp_socket_port_set_capture(f->port, capture);
    write_segment(f, 0);
    assert_int_equal(dp_socket_port_flush(f->port), 2);
    assert_int_equal(send(f->client.fd, "hello", 5, 0), 5);
    receive_one(f);
    dp_socket_port_set_capture(f->port, NULL);
    write_short(f, 96, 96);
    assert_int_equal(dp_socket_port_flush(f->port), 1);
    expect_record(capture, f, true, DATAGRAM_BYTES);
    expect_record(capture, f, false, 5);
    assert_int_equal(dp_capture_unread(capture), 0);
    dp_capture_destroy(capture);
}
