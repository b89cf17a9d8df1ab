#include <string.h>
#include "dataplane/net/bytes.h"
#include "dataplane/net/checksum.h"
#include "tests/test.h"
#include "tests/unit/dataplane/hosts.h"

static const uint8_t text[] = "a datagram's payload";
#define TEXT_BYTES ((uint32_t)sizeof(text))

static const enum dp_local locals[] = {DP_LOCAL_IPV4, DP_LOCAL_IPV6, DP_LOCAL_LINK};

TEST(a_datagram_arrives_as_it_was_built)
{
    static const uint16_t vlans[] = {0, 7};
    uint8_t bytes[FRAME_BYTES_MAX];
    struct dp_frame frame;
    for (size_t v = 0; v < 2; v++) {
        struct dp_net server = host_make(1, vlans[v]);
        for (size_t i = 0; i < 3; i++) {
            size_t n = datagram_make(bytes, &server, locals[i], SERVER_PORT + 2, text, TEXT_BYTES);
            assert_int_equal(hosts_parse(&server, bytes, n, &frame), DP_FRAME_UDP);
            assert_int_equal(frame.payload_bytes, TEXT_BYTES);
            assert_memory_equal(frame.payload, text, TEXT_BYTES);
            assert_int_equal(frame.local, locals[i]);
            assert_int_equal(frame.destination_port, SERVER_PORT + 2);
            assert_int_equal(frame.source_port, CLIENT_PORT);
            assert_int_equal(frame.tci, vlans[v]);
        }
    }
}

TEST(the_sender_can_be_answered_without_a_gateway)
{
    struct dp_net server = server_make(), client = host_make(2, 0);
    uint8_t bytes[FRAME_BYTES_MAX], answer[FRAME_BYTES_MAX];
    struct dp_frame frame, back;
    struct mr_address from;
    client.udp_port = CLIENT_PORT;
    for (size_t i = 0; i < 2; i++) {
        size_t n = datagram_make(bytes, &server, locals[i], SERVER_PORT + 1, text, TEXT_BYTES);
        assert_int_equal(hosts_parse(&server, bytes, n, &frame), DP_FRAME_UDP);
        dp_frame_sender(&frame, &from);
        assert_int_equal(from.port, CLIENT_PORT);
        uint32_t header_bytes = dp_frame_header_bytes(&from);
        memcpy(answer + header_bytes, text, 6);
        dp_frame_build(&server, &from, answer, 6, DP_CHECKSUMS_HERE);
        assert_memory_equal(answer, client.mac, 6);
        assert_int_equal(hosts_parse(&client, answer, header_bytes + 6, &back), DP_FRAME_UDP);
        assert_memory_equal(back.payload, text, 6);
        assert_int_equal(back.source_port, SERVER_PORT + 1);
    }
}

TEST(an_ipv4_sender_is_written_as_mapped)
{
    static const uint8_t mapped[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2};
    struct dp_net server = server_make();
    uint8_t bytes[FRAME_BYTES_MAX];
    struct dp_frame frame;
    struct mr_address from;
    size_t n = datagram_make(bytes, &server, DP_LOCAL_IPV4, SERVER_PORT, text, TEXT_BYTES);
    assert_int_equal(hosts_parse(&server, bytes, n, &frame), DP_FRAME_UDP);
    dp_frame_sender(&frame, &from);
    assert_memory_equal(from.ip, mapped, 16);
    assert_int_equal(from.reserved, 0);
}

TEST(no_cut_frame_is_a_datagram)
{
    struct dp_net server = host_make(1, 7);
    uint8_t bytes[FRAME_BYTES_MAX];
    for (size_t i = 0; i < 3; i++) {
        size_t n = datagram_make(bytes, &server, locals[i], SERVER_PORT, text, TEXT_BYTES);
        for (size_t cut = 0; cut < n; cut++)
            assert_true(verdict_of(&server, bytes, cut) > DP_FRAME_ICMPV6);
    }
}

TEST(bytes_behind_the_datagram_are_padding)
{
    struct dp_net server = server_make();
    uint8_t bytes[FRAME_BYTES_MAX];
    struct dp_frame frame;
    for (size_t i = 0; i < 3; i++) {
        size_t n = datagram_make(bytes, &server, locals[i], SERVER_PORT, "x", 1);
        memset(bytes + n, 0xee, 30);
        assert_int_equal(hosts_parse(&server, bytes, n + 30, &frame), DP_FRAME_UDP);
        assert_int_equal(frame.payload_bytes, 1);
    }
}

TEST(every_flipped_bit_of_an_ipv4_datagram_is_seen)
{
    struct dp_net server = server_make();
    uint8_t bytes[FRAME_BYTES_MAX];
    size_t n = datagram_make(bytes, &server, DP_LOCAL_IPV4, SERVER_PORT, text, TEXT_BYTES);
    for (size_t bit = DP_ETHER_BYTES * 8; bit < n * 8; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_not_equal(verdict_of(&server, bytes, n), DP_FRAME_UDP);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_int_equal(verdict_of(&server, bytes, n), DP_FRAME_UDP);
}

TEST(every_flipped_bit_under_the_udp_checksum_is_seen)
{
    struct dp_net server = server_make();
    uint8_t bytes[FRAME_BYTES_MAX];
    size_t n = datagram_make(bytes, &server, DP_LOCAL_IPV6, SERVER_PORT, text, TEXT_BYTES);
    for (size_t bit = (DP_ETHER_BYTES + 8) * 8; bit < n * 8; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_not_equal(verdict_of(&server, bytes, n), DP_FRAME_UDP);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

TEST(frames_for_others_are_not_ours)
{
    struct dp_net server = server_make(), other = host_make(9, 0), tagged = host_make(1, 7);
    uint8_t bytes[FRAME_BYTES_MAX];
    for (size_t i = 0; i < 3; i++) {
        size_t n = datagram_make(bytes, &other, locals[i], SERVER_PORT, text, TEXT_BYTES);
        assert_int_equal(verdict_of(&server, bytes, n), DP_FRAME_NOT_MINE);
        memcpy(bytes, server.mac, 6);
        assert_int_equal(verdict_of(&server, bytes, n), DP_FRAME_NOT_MINE);

        n = datagram_make(bytes, &tagged, locals[i], SERVER_PORT, text, TEXT_BYTES);
        assert_int_equal(verdict_of(&server, bytes, n), DP_FRAME_NOT_MINE);
        n = datagram_make(bytes, &server, locals[i], SERVER_PORT, text, TEXT_BYTES);
        assert_int_equal(verdict_of(&tagged, bytes, n), DP_FRAME_NOT_MINE);

        n = datagram_make(bytes, &server, locals[i], SERVER_PORT - 1, text, TEXT_BYTES);
        assert_int_equal(verdict_of(&server, bytes, n), DP_FRAME_NOT_MINE);
        n = datagram_make(bytes, &server, locals[i], SERVER_PORT + 3, text, TEXT_BYTES);
        assert_int_equal(verdict_of(&server, bytes, n), DP_FRAME_NOT_MINE);
        /* A port below the base must not wrap around to a core. */
        n = datagram_make(bytes, &server, locals[i], 1, text, TEXT_BYTES);
        assert_int_equal(verdict_of(&server, bytes, n), DP_FRAME_NOT_MINE);
    }
}

TEST(a_priority_tag_is_no_vlan)
{
    struct dp_net server = server_make(), tagged = host_make(1, 7);
    uint8_t bytes[FRAME_BYTES_MAX];
    struct dp_frame frame;
    size_t n = datagram_make(bytes, &tagged, DP_LOCAL_IPV4, SERVER_PORT, text, TEXT_BYTES);
    dp_put16(bytes + 14, 5u << 13);
    assert_int_equal(hosts_parse(&server, bytes, n, &frame), DP_FRAME_UDP);
    assert_int_equal(frame.tci, 0);
}

/* Rewrites a byte of the IPv4 header and makes its checksum right again. */
static void patch_ipv4(uint8_t *bytes, size_t at, uint8_t value)
{
    uint8_t *ip = bytes + DP_ETHER_BYTES;
    ip[at] = value;
    dp_put16(ip + 10, 0);
    dp_checksum_store(ip + 10, dp_checksum_add(0, ip, DP_IPV4_BYTES), 0);
}

TEST(fragments_and_other_protocols_are_told_apart)
{
    struct dp_net server = server_make();
    uint8_t bytes[FRAME_BYTES_MAX];
    size_t n = datagram_make(bytes, &server, DP_LOCAL_IPV4, SERVER_PORT, text, TEXT_BYTES);
    patch_ipv4(bytes, 6, 0x20);
    assert_int_equal(verdict_of(&server, bytes, n), DP_FRAME_FRAGMENT);
    patch_ipv4(bytes, 6, 0x00);
    patch_ipv4(bytes, 7, 0x01);
    assert_int_equal(verdict_of(&server, bytes, n), DP_FRAME_FRAGMENT);
    patch_ipv4(bytes, 7, 0x00);
    assert_int_equal(verdict_of(&server, bytes, n), DP_FRAME_UDP);
    patch_ipv4(bytes, 9, 6);
    assert_int_equal(verdict_of(&server, bytes, n), DP_FRAME_OTHER);

    n = datagram_make(bytes, &server, DP_LOCAL_IPV6, SERVER_PORT, text, TEXT_BYTES);
    bytes[DP_ETHER_BYTES + 6] = 44;
    assert_int_equal(verdict_of(&server, bytes, n), DP_FRAME_FRAGMENT);
    bytes[DP_ETHER_BYTES + 6] = 0;
    assert_int_equal(verdict_of(&server, bytes, n), DP_FRAME_OTHER);
    dp_put16(bytes + 12, 0x88cc);
    assert_int_equal(verdict_of(&server, bytes, n), DP_FRAME_OTHER);
}

TEST(nobody_is_answered_who_cannot_have_asked)
{
    static const uint8_t ipv4_sources[][4] = {
        {255, 255, 255, 255}, {224, 0, 0, 1}, {0, 0, 0, 0}, {127, 0, 0, 1}, {10, 0, 0, 1}};
    struct dp_net server = server_make();
    uint8_t bytes[FRAME_BYTES_MAX];
    for (size_t i = 0; i < sizeof(ipv4_sources) / sizeof(ipv4_sources[0]); i++) {
        size_t n = datagram_make(bytes, &server, DP_LOCAL_IPV4, SERVER_PORT, text, TEXT_BYTES);
        memcpy(bytes + DP_ETHER_BYTES + 12, ipv4_sources[i], 4);
        patch_ipv4(bytes, 8, 64);
        assert_int_equal(verdict_of(&server, bytes, n), DP_FRAME_MALFORMED);
    }
    const uint8_t *ipv6_sources[] = {(const uint8_t[16]){0xff, 2, [15] = 1}, (const uint8_t[16]){0},
                                     (const uint8_t[16]){[15] = 1}, server.ipv6, server.link_local};
    for (size_t i = 0; i < 5; i++) {
        size_t n = datagram_make(bytes, &server, DP_LOCAL_IPV6, SERVER_PORT, text, TEXT_BYTES);
        memcpy(bytes + DP_ETHER_BYTES + 8, ipv6_sources[i], 16);
        assert_int_equal(verdict_of(&server, bytes, n), DP_FRAME_MALFORMED);
    }
    size_t n = datagram_make(bytes, &server, DP_LOCAL_IPV4, SERVER_PORT, text, TEXT_BYTES);
    bytes[6] |= 1;
    assert_int_equal(verdict_of(&server, bytes, n), DP_FRAME_MALFORMED);
    memcpy(bytes + 6, server.mac, 6);
    assert_int_equal(verdict_of(&server, bytes, n), DP_FRAME_MALFORMED);
}

TEST(ipv4_options_are_skipped)
{
    struct dp_net server = server_make();
    uint8_t bytes[FRAME_BYTES_MAX], longer[FRAME_BYTES_MAX] = {0};
    struct dp_frame frame;
    size_t n = datagram_make(bytes, &server, DP_LOCAL_IPV4, SERVER_PORT, text, TEXT_BYTES);
    memcpy(longer, bytes, DP_ETHER_BYTES + DP_IPV4_BYTES);
    memset(longer + DP_ETHER_BYTES + DP_IPV4_BYTES, 1, 4);
    memcpy(longer + DP_ETHER_BYTES + DP_IPV4_BYTES + 4, bytes + DP_ETHER_BYTES + DP_IPV4_BYTES,
           n - DP_ETHER_BYTES - DP_IPV4_BYTES);
    uint8_t *ip = longer + DP_ETHER_BYTES;
    ip[0] = 0x46;
    dp_put16(ip + 2, (uint32_t)n - DP_ETHER_BYTES + 4);
    dp_put16(ip + 10, 0);
    dp_checksum_store(ip + 10, dp_checksum_add(0, ip, DP_IPV4_BYTES + 4), 0);
    assert_int_equal(hosts_parse(&server, longer, n + 4, &frame), DP_FRAME_UDP);
    assert_memory_equal(frame.payload, text, TEXT_BYTES);
}

TEST(a_missing_udp_checksum_is_allowed_in_ipv4_only)
{
    struct dp_net server = server_make();
    uint8_t bytes[FRAME_BYTES_MAX];
    size_t n = datagram_make(bytes, &server, DP_LOCAL_IPV4, SERVER_PORT, text, TEXT_BYTES);
    dp_put16(bytes + DP_ETHER_BYTES + DP_IPV4_BYTES + 6, 0);
    assert_int_equal(verdict_of(&server, bytes, n), DP_FRAME_UDP);
    n = datagram_make(bytes, &server, DP_LOCAL_IPV6, SERVER_PORT, text, TEXT_BYTES);
    dp_put16(bytes + DP_ETHER_BYTES + DP_IPV6_BYTES + 6, 0);
    assert_int_equal(verdict_of(&server, bytes, n), DP_FRAME_CHECKSUM);
}

/* What a sender leaves for its network card is what dp_frame_build leaves for ours. */
TEST(a_partial_checksum_is_taken_where_it_is_expected_only)
{
    struct dp_net server = server_make(), client = host_make(2, 0);
    uint8_t bytes[FRAME_BYTES_MAX];
    for (size_t i = 0; i < 3; i++) {
        struct mr_address to = way_to(&server, locals[i], SERVER_PORT);
        uint32_t header_bytes = dp_frame_header_bytes(&to);
        memcpy(bytes + header_bytes, text, TEXT_BYTES);
        dp_frame_build(&client, &to, bytes, TEXT_BYTES, DP_CHECKSUMS_BY_CARD);
        struct dp_checked ip_only = {.ip = true};
        struct dp_frame frame;
        server.partial_checksums = false;
        assert_int_equal(dp_frame_parse(&server, bytes, header_bytes + TEXT_BYTES, ip_only, &frame),
                         DP_FRAME_CHECKSUM);
        server.partial_checksums = true;
        assert_int_equal(dp_frame_parse(&server, bytes, header_bytes + TEXT_BYTES, ip_only, &frame),
                         DP_FRAME_UDP);
        bytes[header_bytes - 1] ^= 1;
        assert_int_equal(dp_frame_parse(&server, bytes, header_bytes + TEXT_BYTES, ip_only, &frame),
                         DP_FRAME_CHECKSUM);
    }
}

TEST(what_the_port_has_checked_is_not_checked_again)
{
    struct dp_net server = server_make();
    uint8_t bytes[FRAME_BYTES_MAX];
    struct dp_frame frame;
    size_t n = datagram_make(bytes, &server, DP_LOCAL_IPV4, SERVER_PORT, text, TEXT_BYTES);
    bytes[DP_ETHER_BYTES + 10] ^= 0xff;
    bytes[n - 1] ^= 0xff;
    assert_int_equal(dp_frame_parse(&server, bytes, n, (struct dp_checked){.ip = true, .udp = true}, &frame),
                     DP_FRAME_UDP);
    assert_int_equal(dp_frame_parse(&server, bytes, n, (struct dp_checked){.udp = true}, &frame),
                     DP_FRAME_CHECKSUM);
}

/* RFC 768: no checksum. RFC 8200, section 8.1: IPv6 must have one. */
TEST(without_udp_checksums_ipv6_keeps_them)
{
    struct dp_net server = server_make(), client = host_make(2, 0);
    uint8_t bytes[FRAME_BYTES_MAX], answer[FRAME_BYTES_MAX];
    struct dp_frame frame, back;
    struct mr_address from;
    client.udp_port = CLIENT_PORT;
    for (size_t i = 0; i < 2; i++) {
        size_t n = datagram_make(bytes, &server, locals[i], SERVER_PORT, text, TEXT_BYTES);
        assert_int_equal(hosts_parse(&server, bytes, n, &frame), DP_FRAME_UDP);
        dp_frame_sender(&frame, &from);
        uint32_t header_bytes = dp_frame_header_bytes(&from);
        memcpy(answer + header_bytes, text, TEXT_BYTES);
        dp_frame_build(&server, &from, answer, TEXT_BYTES, DP_CHECKSUMS_NO_UDP);
        assert_int_equal(dp_get16(answer + header_bytes - 2) == 0, locals[i] == DP_LOCAL_IPV4);
        assert_int_equal(hosts_parse(&client, answer, header_bytes + TEXT_BYTES, &back), DP_FRAME_UDP);
        answer[header_bytes]++; /* damage: the tag's business without a checksum */
        assert_int_equal(hosts_parse(&client, answer, header_bytes + TEXT_BYTES, &back),
                         locals[i] == DP_LOCAL_IPV4 ? DP_FRAME_UDP : DP_FRAME_CHECKSUM);
        answer[DP_ETHER_BYTES + 8] ^= 0x15; /* IPv4's header has a checksum in any case */
        assert_int_equal(hosts_parse(&client, answer, header_bytes + TEXT_BYTES, &back), DP_FRAME_CHECKSUM);
    }
}

TEST(a_source_port_of_zero_cannot_be_answered)
{
    struct dp_net server = server_make();
    uint8_t bytes[FRAME_BYTES_MAX];
    size_t n = datagram_make(bytes, &server, DP_LOCAL_IPV4, SERVER_PORT, text, TEXT_BYTES);
    dp_put16(bytes + DP_ETHER_BYTES + DP_IPV4_BYTES, 0);
    assert_int_equal(verdict_of(&server, bytes, n), DP_FRAME_MALFORMED);
}
