#include <string.h>
#include "dataplane/net/bytes.h"
#include "dataplane/net/checksum.h"
#include "dataplane/net/nd.h"
#include "tests/test.h"
#include "tests/unit/dataplane/hosts.h"

#define SOLICITATION_BYTES 24u
#define OPTION_BYTES       8u

struct solicitation {
    uint8_t source[16];
    uint8_t destination[16];
    uint8_t target[16];
    uint8_t hop_limit;
    uint8_t option_type; /* 0 = none */
    uint8_t option_units;
};

/* What host 2 asks when it wants to reach the server's `target`. */
static struct solicitation usual(const uint8_t target[16])
{
    struct dp_net client = host_make(2, 0);
    struct solicitation s = {.hop_limit = 255,
                             .option_type = 1,
                             .option_units = 1,
                             .destination = {0xff, 0x02, [11] = 0x01, [12] = 0xff}};
    memcpy(s.source, client.ipv6, 16);
    memcpy(s.destination + 13, target + 13, 3);
    memcpy(s.target, target, 16);
    return s;
}

static size_t nd_make(uint8_t *bytes, const struct solicitation *s)
{
    struct dp_net client = host_make(2, 0);
    uint8_t group_mac[6] = {
        0x33, 0x33, s->destination[12], s->destination[13], s->destination[14], s->destination[15]};
    uint32_t length = SOLICITATION_BYTES + (s->option_type != 0 ? OPTION_BYTES : 0);
    uint8_t *at = bytes + dp_frame_put_ether(&client, bytes, group_mac, 0, DP_ETHERTYPE_IPV6);
    at += dp_frame_put_ipv6(at, s->source, s->destination, DP_PROTOCOL_ICMPV6, s->hop_limit, length);
    memset(at, 0, length);
    at[0] = DP_ND_SOLICITATION;
    memcpy(at + 8, s->target, 16);
    if (s->option_type != 0) {
        at[SOLICITATION_BYTES] = s->option_type;
        at[SOLICITATION_BYTES + 1] = s->option_units;
        memcpy(at + SOLICITATION_BYTES + 2, client.mac, 6);
    }
    uint64_t pseudo = dp_checksum_pseudo6(s->source, s->destination, DP_PROTOCOL_ICMPV6, (uint16_t)length);
    dp_checksum_store(at + 2, dp_checksum_add(pseudo, at, length), 0);
    return (size_t)(at - bytes) + length;
}

static uint32_t nd_answer(const struct solicitation *s, uint8_t *out, enum dp_verdict *why)
{
    struct dp_net server = server_make();
    uint8_t bytes[FRAME_BYTES_MAX];
    struct dp_frame frame;
    size_t n = nd_make(bytes, s);
    assert_int_equal(hosts_parse(&server, bytes, n, &frame), DP_FRAME_ICMPV6);
    assert_true(dp_nd_is_solicitation(&frame));
    return dp_nd_answer(&server, &frame, out, why);
}

static void check_advertisement(const uint8_t *out, const struct dp_net *server, const uint8_t *target,
                                const uint8_t *destination, uint8_t flags)
{
    const uint8_t *ip = out + DP_ETHER_BYTES, *icmp = ip + DP_IPV6_BYTES;
    uint64_t pseudo = dp_checksum_pseudo6(target, destination, DP_PROTOCOL_ICMPV6, DP_ND_ADVERTISEMENT_BYTES);
    assert_int_equal(ip[7], 255);
    assert_memory_equal(ip + 8, target, 16);
    assert_memory_equal(ip + 24, destination, 16);
    assert_int_equal(icmp[0], 136);
    assert_int_equal(icmp[4], flags);
    assert_memory_equal(icmp + 8, target, 16);
    assert_int_equal(icmp[24], 2);
    assert_int_equal(icmp[25], 1);
    assert_memory_equal(icmp + 26, server->mac, 6);
    assert_int_equal(dp_checksum_fold(dp_checksum_add(pseudo, icmp, DP_ND_ADVERTISEMENT_BYTES)), 0xffff);
}

TEST(both_addresses_are_advertised)
{
    struct dp_net server = server_make(), client = host_make(2, 0);
    const uint8_t *targets[] = {server.ipv6, server.link_local};
    uint8_t out[DP_ND_ANSWER_BYTES_MAX];
    enum dp_verdict why;
    for (size_t i = 0; i < 2; i++) {
        struct solicitation s = usual(targets[i]);
        assert_int_equal(nd_answer(&s, out, &why),
                         DP_ETHER_BYTES + DP_IPV6_BYTES + DP_ND_ADVERTISEMENT_BYTES);
        assert_memory_equal(out, client.mac, 6);
        check_advertisement(out, &server, targets[i], client.ipv6, 0x60);
    }
}

TEST(a_unicast_check_is_answered)
{
    struct dp_net server = server_make(), client = host_make(2, 0);
    struct solicitation s = usual(server.ipv6);
    uint8_t out[DP_ND_ANSWER_BYTES_MAX], bytes[FRAME_BYTES_MAX];
    struct dp_frame frame;
    enum dp_verdict why;
    memcpy(s.destination, server.ipv6, 16);
    size_t n = nd_make(bytes, &s);
    memcpy(bytes, server.mac, 6);
    assert_int_equal(hosts_parse(&server, bytes, n, &frame), DP_FRAME_ICMPV6);
    assert_int_not_equal(dp_nd_answer(&server, &frame, out, &why), 0);
    check_advertisement(out, &server, server.ipv6, client.ipv6, 0x60);
}

TEST(duplicate_address_detection_is_answered_to_all_nodes)
{
    static const uint8_t all_nodes[16] = {0xff, 0x02, [15] = 1};
    struct dp_net server = server_make();
    struct solicitation s = usual(server.ipv6);
    uint8_t out[DP_ND_ANSWER_BYTES_MAX];
    enum dp_verdict why;
    memset(s.source, 0, 16);
    s.option_type = 0;
    assert_int_not_equal(nd_answer(&s, out, &why), 0);
    assert_memory_equal(out, ((const uint8_t[6]){0x33, 0x33, 0, 0, 0, 1}), 6);
    check_advertisement(out, &server, server.ipv6, all_nodes, 0x20);
    /* With a source link-layer option it is malformed (RFC 4861, section 7.1.1). */
    s.option_type = 1;
    assert_int_equal(nd_answer(&s, out, &why), 0);
    assert_int_equal(why, DP_FRAME_MALFORMED);
}

TEST(a_neighbour_behind_a_router_is_a_forgery)
{
    struct dp_net server = server_make();
    struct solicitation s = usual(server.ipv6);
    uint8_t out[DP_ND_ANSWER_BYTES_MAX];
    enum dp_verdict why;
    s.hop_limit = 254;
    assert_int_equal(nd_answer(&s, out, &why), 0);
    assert_int_equal(why, DP_FRAME_MALFORMED);
}

TEST(options_must_lie_within_the_packet)
{
    struct dp_net server = server_make();
    uint8_t out[DP_ND_ANSWER_BYTES_MAX];
    enum dp_verdict why;
    for (unsigned units = 0; units < 256; units++) {
        struct solicitation s = usual(server.ipv6);
        s.option_units = (uint8_t)units;
        assert_int_equal(nd_answer(&s, out, &why) != 0, units == 1);
    }
}

TEST(other_targets_are_not_ours)
{
    struct dp_net server = server_make();
    struct solicitation s = usual(server.ipv6);
    uint8_t out[DP_ND_ANSWER_BYTES_MAX];
    enum dp_verdict why;
    s.target[1] ^= 1; /* the same group, another address */
    assert_int_equal(nd_answer(&s, out, &why), 0);
    assert_int_equal(why, DP_FRAME_NOT_MINE);
}

/* What `asked` makes of a solicitation of `asking`; its frame is left in `frame`. */
static uint32_t nd_ask(const struct dp_net *asking, const struct dp_net *asked, const uint8_t target[16],
                       uint8_t *bytes, uint8_t *answer_bytes)
{
    struct dp_frame frame;
    enum dp_verdict why;
    uint32_t length = dp_nd_ask(asking, target, bytes);
    assert_int_equal(hosts_parse(asked, bytes, length, &frame), DP_FRAME_ICMPV6);
    assert_true(dp_nd_is_solicitation(&frame));
    return dp_nd_answer(asked, &frame, answer_bytes, &why);
}

TEST(a_host_that_is_asked_for_answers)
{
    struct dp_net server = server_make(), other = host_make(2, 0);
    const uint8_t *targets[] = {other.ipv6, other.link_local};
    const uint8_t *sources[] = {server.ipv6, server.link_local};
    uint8_t out[DP_ND_ANSWER_BYTES_MAX], bytes[FRAME_BYTES_MAX], ip[16], mac[6];
    struct dp_frame frame;
    for (size_t i = 0; i < 2; i++) {
        uint32_t length = nd_ask(&server, &other, targets[i], bytes, out);
        assert_int_equal(length, DP_ETHER_BYTES + DP_IPV6_BYTES + DP_ND_ADVERTISEMENT_BYTES);
        assert_memory_equal(bytes + DP_ETHER_BYTES + 8, sources[i], 16);
        assert_int_equal(hosts_parse(&server, out, length, &frame), DP_FRAME_ICMPV6);
        assert_true(dp_nd_read_advertisement(&server, &frame, ip, mac));
        assert_memory_equal(ip, targets[i], 16);
        assert_memory_equal(mac, other.mac, 6);
    }
    server.has_ipv6 = false; /* there is another address to ask from */
    assert_int_not_equal(nd_ask(&server, &other, other.ipv6, bytes, out), 0);
    assert_memory_equal(bytes + DP_ETHER_BYTES + 8, server.link_local, 16);
}

/* Each of these makes an advertisement one that is not believed. */
TEST(forged_advertisements_teach_nothing)
{
    struct dp_net server = server_make(), other = host_make(2, 0);
    uint8_t out[DP_ND_ANSWER_BYTES_MAX], bytes[FRAME_BYTES_MAX], ip[16], mac[6];
    struct dp_frame good;
    uint32_t length = nd_ask(&server, &other, other.ipv6, bytes, out);
    uint8_t *message = out + DP_ETHER_BYTES + DP_IPV6_BYTES;
    const struct {
        uint32_t at;
        uint8_t value;
    } forged[] = {{0, DP_ND_SOLICITATION}, {1, 1}, {8, 0xff}, {24, 1}, {25, 0}, {25, 2}, {26, 3}};
    assert_int_equal(hosts_parse(&server, out, length, &good), DP_FRAME_ICMPV6);
    for (size_t i = 0; i < sizeof(forged) / sizeof(*forged); i++) {
        uint8_t was = message[forged[i].at];
        message[forged[i].at] = forged[i].value;
        assert_false(dp_nd_read_advertisement(&server, &good, ip, mac));
        message[forged[i].at] = was;
    }
    assert_true(dp_nd_read_advertisement(&server, &good, ip, mac));
    memcpy(message + 8, server.ipv6, 16); /* of what is ours */
    assert_false(dp_nd_read_advertisement(&server, &good, ip, mac));
    memcpy(message + 8, other.ipv6, 16);
    for (uint16_t bytes_left = 0; bytes_left < DP_ND_ADVERTISEMENT_BYTES; bytes_left++) {
        struct dp_frame cut = good;
        cut.payload_bytes = bytes_left;
        assert_false(dp_nd_read_advertisement(&server, &cut, ip, mac));
    }
    good.hop_limit = 254;
    assert_false(dp_nd_read_advertisement(&server, &good, ip, mac));
}
