#include <string.h>
#include "dataplane/net/arp.h"
#include "dataplane/net/bytes.h"
#include "tests/test.h"
#include "tests/unit/dataplane/hosts.h"

/* "Who has `target`? Tell `sender`", from host 2. */
static size_t request_make(uint8_t *bytes, const uint8_t sender[4], const uint8_t target[4])
{
    static const uint8_t broadcast[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    struct dp_net client = host_make(2, 0);
    uint8_t *arp = bytes + dp_frame_put_ether(&client, bytes, broadcast, 0, DP_ETHERTYPE_ARP);
    memcpy(arp, (const uint8_t[8]){0, 1, 8, 0, 6, 4, 0, 1}, 8);
    memcpy(arp + 8, client.mac, 6);
    memcpy(arp + 14, sender, 4);
    memset(arp + 18, 0, 6);
    memcpy(arp + 24, target, 4);
    return DP_ETHER_BYTES + DP_ARP_BYTES;
}

static uint32_t arp_answer(const uint8_t *bytes, size_t n, uint8_t *out, enum dp_verdict *why)
{
    struct dp_net server = server_make();
    struct dp_frame frame;
    assert_int_equal(hosts_parse(&server, bytes, n, &frame), DP_FRAME_ARP);
    return dp_arp_answer(&server, &frame, out, why);
}

TEST(a_request_for_our_address_is_answered)
{
    struct dp_net server = server_make(), client = host_make(2, 0);
    uint8_t bytes[FRAME_BYTES_MAX], out[DP_ARP_ANSWER_BYTES_MAX];
    enum dp_verdict why;
    size_t n = request_make(bytes, client.ipv4, server.ipv4);
    assert_int_equal(arp_answer(bytes, n, out, &why), DP_ETHER_BYTES + DP_ARP_BYTES);
    const uint8_t *arp = out + DP_ETHER_BYTES;
    assert_memory_equal(out, client.mac, 6);
    assert_memory_equal(out + 6, server.mac, 6);
    assert_int_equal(dp_get16(arp + 6), 2);
    assert_memory_equal(arp + 8, server.mac, 6);
    assert_memory_equal(arp + 14, server.ipv4, 4);
    assert_memory_equal(arp + 18, client.mac, 6);
    assert_memory_equal(arp + 24, client.ipv4, 4);
}

TEST(a_probe_without_an_address_is_answered)
{
    struct dp_net server = server_make();
    uint8_t bytes[FRAME_BYTES_MAX], out[DP_ARP_ANSWER_BYTES_MAX];
    enum dp_verdict why;
    size_t n = request_make(bytes, (const uint8_t[4]){0}, server.ipv4);
    assert_int_equal(arp_answer(bytes, n, out, &why), DP_ETHER_BYTES + DP_ARP_BYTES);
}

TEST(other_arp_is_not_answered)
{
    struct dp_net server = server_make(), client = host_make(2, 0), other = host_make(9, 0);
    uint8_t bytes[FRAME_BYTES_MAX], out[DP_ARP_ANSWER_BYTES_MAX];
    enum dp_verdict why;
    size_t n = request_make(bytes, client.ipv4, other.ipv4);
    assert_int_equal(arp_answer(bytes, n, out, &why), 0);
    assert_int_equal(why, DP_FRAME_NOT_MINE);
    n = request_make(bytes, server.ipv4, server.ipv4);
    assert_int_equal(arp_answer(bytes, n, out, &why), 0);
    assert_int_equal(why, DP_FRAME_NOT_MINE);
    n = request_make(bytes, client.ipv4, server.ipv4);
    bytes[DP_ETHER_BYTES + 7] = 2;
    assert_int_equal(arp_answer(bytes, n, out, &why), 0);
    assert_int_equal(why, DP_FRAME_OTHER);
}

TEST(a_wrong_kind_or_length_is_malformed)
{
    struct dp_net server = server_make(), client = host_make(2, 0);
    uint8_t bytes[FRAME_BYTES_MAX], out[DP_ARP_ANSWER_BYTES_MAX];
    enum dp_verdict why;
    size_t n = request_make(bytes, client.ipv4, server.ipv4);
    for (size_t cut = DP_ETHER_BYTES; cut < n; cut++) {
        assert_int_equal(arp_answer(bytes, cut, out, &why), 0);
        assert_int_equal(why, DP_FRAME_MALFORMED);
    }
    for (size_t at = 0; at < 6; at++) {
        request_make(bytes, client.ipv4, server.ipv4);
        bytes[DP_ETHER_BYTES + at] ^= 0x10;
        assert_int_equal(arp_answer(bytes, n, out, &why), 0);
        assert_int_equal(why, DP_FRAME_MALFORMED);
    }
}

TEST(a_host_without_ipv4_has_no_arp)
{
    struct dp_net server = server_make(), client = host_make(2, 0);
    uint8_t bytes[FRAME_BYTES_MAX], out[DP_ARP_ANSWER_BYTES_MAX];
    struct dp_frame frame;
    enum dp_verdict why;
    server.has_ipv4 = false;
    size_t n = request_make(bytes, client.ipv4, server.ipv4);
    assert_int_equal(hosts_parse(&server, bytes, n, &frame), DP_FRAME_ARP);
    assert_int_equal(dp_arp_answer(&server, &frame, out, &why), 0);
}

/* ---- asking ---- */

TEST(a_question_is_one_that_the_other_answers)
{
    struct dp_net server = server_make(), client = host_make(2, 0);
    uint8_t bytes[FRAME_BYTES_MAX], reply[DP_ARP_ANSWER_BYTES_MAX], ip[4], mac[6];
    struct dp_frame frame;
    enum dp_verdict why;
    uint32_t n = dp_arp_ask(&server, client.ipv4, bytes);
    assert_int_equal(hosts_parse(&client, bytes, n, &frame), DP_FRAME_ARP);
    assert_false(dp_arp_read_reply(&client, &frame, ip, mac)); /* it is no reply */
    n = dp_arp_answer(&client, &frame, reply, &why);
    assert_int_equal(n, DP_ETHER_BYTES + DP_ARP_BYTES);
    assert_int_equal(hosts_parse(&server, reply, n, &frame), DP_FRAME_ARP);
    assert_true(dp_arp_read_reply(&server, &frame, ip, mac));
    assert_memory_equal(ip, client.ipv4, 4);
    assert_memory_equal(mac, client.mac, 6);
}

TEST(a_reply_that_is_wrong_tells_nothing)
{
    static const struct {
        size_t at;
        uint8_t value;
    } cases[] = {{DP_ETHER_BYTES + 0, 1},
                 {DP_ETHER_BYTES + 4, 8},
                 {DP_ETHER_BYTES + 7, 3},
                 {DP_ETHER_BYTES + 8, 1},
                 {DP_ETHER_BYTES + 24, 99}};
    struct dp_net server = server_make(), client = host_make(2, 0);
    uint8_t question[FRAME_BYTES_MAX], reply[DP_ARP_ANSWER_BYTES_MAX], ip[4], mac[6];
    struct dp_frame frame;
    enum dp_verdict why;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint32_t n = dp_arp_ask(&server, client.ipv4, question);
        assert_int_equal(hosts_parse(&client, question, n, &frame), DP_FRAME_ARP);
        n = dp_arp_answer(&client, &frame, reply, &why);
        reply[cases[i].at] = cases[i].value;
        assert_int_equal(hosts_parse(&server, reply, n, &frame), DP_FRAME_ARP);
        assert_false(dp_arp_read_reply(&server, &frame, ip, mac));
        assert_int_equal(hosts_parse(&server, reply, n - 1, &frame), DP_FRAME_ARP);
        assert_false(dp_arp_read_reply(&server, &frame, ip, mac));
    }
}
