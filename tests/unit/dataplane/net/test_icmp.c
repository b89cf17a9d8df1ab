#include <stdlib.h>
#include <string.h>
#include "dataplane/net/checksum.h"
#include "dataplane/net/bytes.h"
#include "dataplane/net/icmp.h"
#include "tests/test.h"
#include "tests/unit/dataplane/hosts.h"

static const uint8_t body[] = "identifier, sequence number and data";

static size_t ping_make(uint8_t *bytes, const struct dp_net *server, uint8_t type)
{
    struct dp_net client = host_make(2, 0);
    uint8_t *at = bytes + dp_frame_put_ether(&client, bytes, server->mac, 0, DP_ETHERTYPE_IPV4);
    at += dp_frame_put_ipv4(at, client.ipv4, server->ipv4, DP_PROTOCOL_ICMP, 4 + sizeof(body));
    memset(at, 0, 4);
    at[0] = type;
    memcpy(at + 4, body, sizeof(body));
    dp_checksum_store(at + 2, dp_checksum_add(0, at, 4 + sizeof(body)), 0);
    return (size_t)(at - bytes) + 4 + sizeof(body);
}

static size_t ping6_make(uint8_t *bytes, const struct dp_net *server, const uint8_t *destination,
                         uint8_t type)
{
    struct dp_net client = host_make(2, 0);
    uint8_t *at = bytes + dp_frame_put_ether(&client, bytes, server->mac, 0, DP_ETHERTYPE_IPV6);
    at += dp_frame_put_ipv6(at, client.ipv6, destination, DP_PROTOCOL_ICMPV6, 64, 4 + sizeof(body));
    memset(at, 0, 4);
    at[0] = type;
    memcpy(at + 4, body, sizeof(body));
    uint64_t pseudo = dp_checksum_pseudo6(client.ipv6, destination, DP_PROTOCOL_ICMPV6, 4 + sizeof(body));
    dp_checksum_store(at + 2, dp_checksum_add(pseudo, at, 4 + sizeof(body)), 0);
    return (size_t)(at - bytes) + 4 + sizeof(body);
}

TEST(a_ping_comes_back)
{
    struct dp_net server = server_make(), client = host_make(2, 0);
    uint8_t bytes[FRAME_BYTES_MAX], out[FRAME_BYTES_MAX];
    struct dp_frame frame, back;
    enum dp_verdict why;
    size_t n = ping_make(bytes, &server, 8);
    assert_int_equal(hosts_parse(&server, bytes, n, &frame), DP_FRAME_ICMP);
    assert_int_equal(dp_icmp_answer(&server, &frame, out, sizeof(out), &why), n);
    assert_int_equal(hosts_parse(&client, out, n, &back), DP_FRAME_ICMP);
    assert_int_equal(back.payload[0], 0);
    assert_memory_equal(back.payload + 4, body, sizeof(body));
    assert_memory_equal(back.source, server.ipv4, 4);
}

TEST(a_ping_over_ipv6_comes_back_from_the_address_it_went_to)
{
    struct dp_net server = server_make(), client = host_make(2, 0);
    const uint8_t *destinations[] = {server.ipv6, server.link_local};
    uint8_t bytes[FRAME_BYTES_MAX], out[FRAME_BYTES_MAX];
    struct dp_frame frame, back;
    enum dp_verdict why;
    for (size_t i = 0; i < 2; i++) {
        size_t n = ping6_make(bytes, &server, destinations[i], 128);
        assert_int_equal(hosts_parse(&server, bytes, n, &frame), DP_FRAME_ICMPV6);
        assert_int_equal(dp_icmpv6_answer(&server, &frame, out, sizeof(out), &why), n);
        assert_int_equal(hosts_parse(&client, out, n, &back), DP_FRAME_ICMPV6);
        assert_int_equal(back.payload[0], 129);
        assert_memory_equal(back.payload + 4, body, sizeof(body));
        assert_memory_equal(back.source, destinations[i], 16);
    }
}

TEST(only_echo_requests_are_answered)
{
    struct dp_net server = server_make();
    uint8_t bytes[FRAME_BYTES_MAX], out[FRAME_BYTES_MAX];
    struct dp_frame frame;
    enum dp_verdict why;
    for (unsigned type = 0; type < 256; type++) {
        size_t n = ping_make(bytes, &server, (uint8_t)type);
        assert_int_equal(hosts_parse(&server, bytes, n, &frame), DP_FRAME_ICMP);
        assert_int_equal(dp_icmp_answer(&server, &frame, out, sizeof(out), &why) != 0, type == 8);
        n = ping6_make(bytes, &server, server.ipv6, (uint8_t)type);
        assert_int_equal(hosts_parse(&server, bytes, n, &frame), DP_FRAME_ICMPV6);
        assert_int_equal(dp_icmpv6_answer(&server, &frame, out, sizeof(out), &why) != 0, type == 128);
    }
}

TEST(a_ping_to_a_group_is_not_answered)
{
    struct dp_net server = server_make();
    uint8_t group[16] = {0xff, 0x02, [11] = 0x01, [12] = 0xff};
    uint8_t bytes[FRAME_BYTES_MAX], out[FRAME_BYTES_MAX];
    struct dp_frame frame;
    enum dp_verdict why;
    memcpy(group + 13, server.ipv6 + 13, 3);
    size_t n = ping6_make(bytes, &server, group, 128);
    assert_int_equal(hosts_parse(&server, bytes, n, &frame), DP_FRAME_ICMPV6);
    assert_int_equal(dp_icmpv6_answer(&server, &frame, out, sizeof(out), &why), 0);
    assert_int_equal(why, DP_FRAME_OTHER);
}

TEST(a_damaged_ping_is_dropped)
{
    struct dp_net server = server_make();
    uint8_t bytes[FRAME_BYTES_MAX];
    size_t n = ping_make(bytes, &server, 8);
    bytes[n - 2] ^= 0x40;
    assert_int_equal(verdict_of(&server, bytes, n), DP_FRAME_CHECKSUM);
    n = ping6_make(bytes, &server, server.ipv6, 128);
    bytes[n - 2] ^= 0x40;
    assert_int_equal(verdict_of(&server, bytes, n), DP_FRAME_CHECKSUM);
}

TEST(an_answer_never_passes_its_room)
{
    struct dp_net server = server_make();
    uint8_t bytes[FRAME_BYTES_MAX], out[FRAME_BYTES_MAX];
    struct dp_frame frame;
    enum dp_verdict why;
    size_t n = ping_make(bytes, &server, 8);
    assert_int_equal(hosts_parse(&server, bytes, n, &frame), DP_FRAME_ICMP);
    for (size_t room = 0; room < n; room++) {
        memset(out, 0xcc, sizeof(out));
        assert_int_equal(dp_icmp_answer(&server, &frame, out, room, &why), 0);
        assert_int_equal(why, DP_FRAME_MALFORMED);
        for (size_t i = room; i < sizeof(out); i++)
            assert_int_equal(out[i], 0xcc);
    }
}

/* ---- datagrams that are too long ---- */

#define QUOTED_BYTES 64u /* of the datagram */

/* What a router makes of a datagram from the server's core 1 to client 2; returns the length of the frame. */
static size_t report_make(uint8_t *bytes, const struct dp_net *server, bool ipv6, uint32_t mtu)
{
    struct dp_net client = host_make(2, 0), router = host_make(9, 0);
    uint8_t icmp[256] = {0}, *at = icmp + 8;
    icmp[0] = ipv6 ? 2 : 3;
    icmp[1] = ipv6 ? 0 : 4;
    dp_put16(icmp + 6, mtu);
    if (ipv6)
        at += dp_frame_put_ipv6(at, server->ipv6, client.ipv6, DP_PROTOCOL_UDP, 64, 1472);
    else
        at += dp_frame_put_ipv4(at, server->ipv4, client.ipv4, DP_PROTOCOL_UDP, 1472);
    dp_put16(at, SERVER_PORT + 1);
    dp_put16(at + 2, CLIENT_PORT);
    dp_put16(at + 4, 1472);
    at += DP_UDP_BYTES;
    for (uint32_t i = 0; i < QUOTED_BYTES; i++)
        *at++ = (uint8_t)(i + 1);
    uint32_t icmp_bytes = (uint32_t)(at - icmp);
    uint64_t pseudo =
        ipv6 ? dp_checksum_pseudo6(router.ipv6, server->ipv6, DP_PROTOCOL_ICMPV6, (uint16_t)icmp_bytes) : 0;
    dp_checksum_store(icmp + 2, dp_checksum_add(pseudo, icmp, icmp_bytes), 0);
    at = bytes +
         dp_frame_put_ether(&router, bytes, server->mac, 0, ipv6 ? DP_ETHERTYPE_IPV6 : DP_ETHERTYPE_IPV4);
    at += ipv6 ? dp_frame_put_ipv6(at, router.ipv6, server->ipv6, DP_PROTOCOL_ICMPV6, 64, icmp_bytes)
               : dp_frame_put_ipv4(at, router.ipv4, server->ipv4, DP_PROTOCOL_ICMP, icmp_bytes);
    memcpy(at, icmp, icmp_bytes);
    return (size_t)(at - bytes) + icmp_bytes;
}

TEST(a_router_says_what_is_too_long)
{
    struct dp_net server = server_make(), client = host_make(2, 0);
    uint8_t bytes[FRAME_BYTES_MAX];
    for (uint32_t ipv6 = 0; ipv6 < 2; ipv6++) {
        struct dp_frame frame;
        struct dp_too_long report;
        uint32_t headers = ipv6 ? 48 : 28;
        size_t n = report_make(bytes, &server, ipv6 != 0, 1400);
        enum dp_verdict verdict = hosts_parse(&server, bytes, n, &frame);
        assert_int_equal(verdict, ipv6 ? DP_FRAME_ICMPV6 : DP_FRAME_ICMP);
        assert_true(dp_icmp_too_long(&server, &frame, verdict, &report));
        assert_int_equal(report.local_port, SERVER_PORT + 1);
        assert_int_equal(report.udp_bytes, 1400 - headers);
        assert_int_equal(report.datagram_bytes, QUOTED_BYTES);
        assert_int_equal(report.datagram[0], 1);
        assert_int_equal(report.datagram[QUOTED_BYTES - 1], QUOTED_BYTES);
        assert_int_equal(report.to.port, CLIENT_PORT);
        if (ipv6)
            assert_memory_equal(report.to.ip, client.ipv6, 16);
        else
            assert_memory_equal(report.to.ip + 12, client.ipv4, 4);
        /* A router of old, or one that says nonsense. */
        for (uint32_t mtu = 0; mtu <= headers; mtu++) {
            n = report_make(bytes, &server, ipv6 != 0, mtu);
            verdict = hosts_parse(&server, bytes, n, &frame);
            assert_true(dp_icmp_too_long(&server, &frame, verdict, &report));
            assert_int_equal(report.udp_bytes, 0);
        }
    }
}

/* Each byte of the message by itself made something else: what is read then is still inside, and about a port
 * of ours. */
TEST(damaged_reports_are_read_with_care)
{
    struct dp_net server = server_make();
    uint8_t bytes[FRAME_BYTES_MAX];
    for (uint32_t ipv6 = 0; ipv6 < 2; ipv6++) {
        size_t n = report_make(bytes, &server, ipv6 != 0, 1400),
               headers = DP_ETHER_BYTES + (ipv6 ? 40u : 20u);
        uint32_t kept = 0, refused = 0;
        for (size_t i = 0; i < n - headers; i++) {
            for (uint32_t value = 0; value < 256; value += 5) {
                size_t left = n - headers;
                uint8_t *icmp = malloc(left);
                struct dp_too_long report;
                assert_non_null(icmp);
                memcpy(icmp, bytes + headers, left);
                icmp[i] = (uint8_t)value;
                struct dp_frame frame = {.payload = icmp,
                                         .payload_bytes = (uint16_t)left,
                                         .local = ipv6 ? DP_LOCAL_IPV6 : DP_LOCAL_IPV4};
                bool read =
                    dp_icmp_too_long(&server, &frame, ipv6 ? DP_FRAME_ICMPV6 : DP_FRAME_ICMP, &report);

                if (read) {
                    kept++;
                    assert_int_in_range(report.local_port, SERVER_PORT, SERVER_PORT + 2);
                    assert_true(report.datagram >= icmp + 8 + DP_UDP_BYTES &&
                                report.datagram + report.datagram_bytes == icmp + left);
                } else {
                    refused++;
                }
                free(icmp);
            }
        }
        assert_true(kept > 0 && refused > 0);
    }
}

TEST(reports_that_are_cut_are_no_reports)
{
    struct dp_net server = server_make();
    uint8_t bytes[FRAME_BYTES_MAX];
    for (uint32_t ipv6 = 0; ipv6 < 2; ipv6++) {
        size_t n = report_make(bytes, &server, ipv6 != 0, 1400),
               headers = DP_ETHER_BYTES + (ipv6 ? 40u : 20u);
        size_t least = 8 + (ipv6 ? 40u : 20u) + DP_UDP_BYTES;
        for (size_t left = 0; left <= n - headers; left++) {
            uint8_t *icmp = malloc(left + (left == 0));
            struct dp_too_long report;
            assert_non_null(icmp);
            memcpy(icmp, bytes + headers, left);
            struct dp_frame frame = {.payload = icmp,
                                     .payload_bytes = (uint16_t)left,
                                     .local = ipv6 ? DP_LOCAL_IPV6 : DP_LOCAL_IPV4};
            assert_int_equal(
                dp_icmp_too_long(&server, &frame, ipv6 ? DP_FRAME_ICMPV6 : DP_FRAME_ICMP, &report),
                left >= least);
            free(icmp);
        }
    }
}

TEST(other_messages_are_no_reports)
{
    struct dp_net server = server_make(), other = host_make(3, 0);
    uint8_t bytes[FRAME_BYTES_MAX];
    struct dp_frame frame;
    struct dp_too_long report;
    for (unsigned type = 0; type < 256; type++) {
        size_t n = ping_make(bytes, &server, (uint8_t)type);
        assert_int_equal(hosts_parse(&server, bytes, n, &frame), DP_FRAME_ICMP);
        assert_false(dp_icmp_too_long(&server, &frame, DP_FRAME_ICMP, &report));
        n = ping6_make(bytes, &server, server.ipv6, (uint8_t)type);
        assert_int_equal(hosts_parse(&server, bytes, n, &frame), DP_FRAME_ICMPV6);
        assert_false(dp_icmp_too_long(&server, &frame, DP_FRAME_ICMPV6, &report));
    }
    /* A datagram that another host sent. */
    for (uint32_t ipv6 = 0; ipv6 < 2; ipv6++) {
        size_t n = report_make(bytes, &server, ipv6 != 0, 1400);
        size_t source = DP_ETHER_BYTES + (ipv6 ? 40u + 8 + 8 : 20u + 8 + 12);
        assert_int_equal(hosts_parse(&server, bytes, n, &frame), ipv6 ? DP_FRAME_ICMPV6 : DP_FRAME_ICMP);
        memcpy(bytes + source, ipv6 ? other.ipv6 : other.ipv4, ipv6 ? 16 : 4);
        assert_false(dp_icmp_too_long(&server, &frame, ipv6 ? DP_FRAME_ICMPV6 : DP_FRAME_ICMP, &report));
        n = report_make(bytes, &server, ipv6 != 0, 1400);
        assert_int_equal(hosts_parse(&server, bytes, n, &frame), ipv6 ? DP_FRAME_ICMPV6 : DP_FRAME_ICMP);
        frame.multicast = true;
        assert_false(dp_icmp_too_long(&server, &frame, ipv6 ? DP_FRAME_ICMPV6 : DP_FRAME_ICMP, &report));
    }
}
