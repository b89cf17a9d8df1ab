#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "dataplane/checksum.h"
#include "dataplane/bytes.h"
#include "dataplane/icmp.h"
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

static void a_ping_comes_back(void **state)
{
    struct dp_net server = server_make(), client = host_make(2, 0);
    uint8_t bytes[FRAME_BYTES_MAX], out[FRAME_BYTES_MAX];
    struct dp_frame frame, back;
    enum dp_verdict why;

    size_t n = ping_make(bytes, &server, 8);
    assert_int_equal(parse(&server, bytes, n, &frame), DP_FRAME_ICMP);
    assert_int_equal(dp_icmp_answer(&server, &frame, out, sizeof(out), &why), n);
    assert_int_equal(parse(&client, out, n, &back), DP_FRAME_ICMP);
    assert_int_equal(back.payload[0], 0);
    assert_memory_equal(back.payload + 4, body, sizeof(body));
    assert_memory_equal(back.source, server.ipv4, 4);
}

static void a_ping_over_ipv6_comes_back_from_the_address_it_went_to(void **state)
{
    struct dp_net server = server_make(), client = host_make(2, 0);
    const uint8_t *destinations[] = {server.ipv6, server.link_local};
    uint8_t bytes[FRAME_BYTES_MAX], out[FRAME_BYTES_MAX];
    struct dp_frame frame, back;
    enum dp_verdict why;

    for (size_t i = 0; i < 2; i++) {
        size_t n = ping6_make(bytes, &server, destinations[i], 128);

        assert_int_equal(parse(&server, bytes, n, &frame), DP_FRAME_ICMPV6);
        assert_int_equal(dp_icmpv6_answer(&server, &frame, out, sizeof(out), &why), n);
        assert_int_equal(parse(&client, out, n, &back), DP_FRAME_ICMPV6);
        assert_int_equal(back.payload[0], 129);
        assert_memory_equal(back.payload + 4, body, sizeof(body));
        assert_memory_equal(back.source, destinations[i], 16);
    }
}

static void only_echo_requests_are_answered(void **state)
{
    struct dp_net server = server_make();
    uint8_t bytes[FRAME_BYTES_MAX], out[FRAME_BYTES_MAX];
    struct dp_frame frame;
    enum dp_verdict why;

    for (unsigned type = 0; type < 256; type++) {
        size_t n = ping_make(bytes, &server, (uint8_t)type);
        assert_int_equal(parse(&server, bytes, n, &frame), DP_FRAME_ICMP);
        assert_int_equal(dp_icmp_answer(&server, &frame, out, sizeof(out), &why) != 0, type == 8);
        n = ping6_make(bytes, &server, server.ipv6, (uint8_t)type);
        assert_int_equal(parse(&server, bytes, n, &frame), DP_FRAME_ICMPV6);
        assert_int_equal(dp_icmpv6_answer(&server, &frame, out, sizeof(out), &why) != 0, type == 128);
    }
}

static void a_ping_to_a_group_is_not_answered(void **state)
{
    struct dp_net server = server_make();
    uint8_t group[16] = {0xff, 0x02, [11] = 0x01, [12] = 0xff};
    uint8_t bytes[FRAME_BYTES_MAX], out[FRAME_BYTES_MAX];
    struct dp_frame frame;
    enum dp_verdict why;

    memcpy(group + 13, server.ipv6 + 13, 3);
    size_t n = ping6_make(bytes, &server, group, 128);
    assert_int_equal(parse(&server, bytes, n, &frame), DP_FRAME_ICMPV6);
    assert_int_equal(dp_icmpv6_answer(&server, &frame, out, sizeof(out), &why), 0);
    assert_int_equal(why, DP_FRAME_OTHER);
}

static void a_damaged_ping_is_dropped(void **state)
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

static void an_answer_never_passes_its_room(void **state)
{
    struct dp_net server = server_make();
    uint8_t bytes[FRAME_BYTES_MAX], out[FRAME_BYTES_MAX];
    struct dp_frame frame;
    enum dp_verdict why;

    size_t n = ping_make(bytes, &server, 8);
    assert_int_equal(parse(&server, bytes, n, &frame), DP_FRAME_ICMP);
    for (size_t room = 0; room < n; room++) {
        memset(out, 0xcc, sizeof(out));
        assert_int_equal(dp_icmp_answer(&server, &frame, out, room, &why), 0);
        assert_int_equal(why, DP_FRAME_MALFORMED);
        for (size_t i = room; i < sizeof(out); i++)
            assert_int_equal(out[i], 0xcc);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ping_comes_back),
        cmocka_unit_test(a_ping_over_ipv6_comes_back_from_the_address_it_went_to),
        cmocka_unit_test(only_echo_requests_are_answered),
        cmocka_unit_test(a_ping_to_a_group_is_not_answered),
        cmocka_unit_test(a_damaged_ping_is_dropped),
        cmocka_unit_test(an_answer_never_passes_its_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
