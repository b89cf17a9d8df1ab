#include <string.h>
#include <stdlib.h>
#include "dataplane/capture/view.h"
#include "dataplane/net/bytes.h"
#include "dataplane/net/frame.h"
#include "tests/test.h"

enum { PAYLOAD = 20 };

static const uint8_t mac[6] = {2, 0, 0, 0, 0, 1};
static const uint8_t source4[4] = {10, 0, 0, 2}, destination4[4] = {10, 0, 0, 1};
static const uint8_t source6[16] = {0xfd, [15] = 2}, destination6[16] = {0xfd, [15] = 1};

/* Returns its length; `at` is where the IP header is. */
static uint32_t frame(bool is_ipv4, uint16_t tci, uint8_t *out, uint32_t *at)
{
    const struct dp_net net = {.udp_port = 7700};
    const uint32_t udp_bytes = DP_UDP_BYTES + PAYLOAD;
    uint32_t n = dp_frame_put_ether(&net, out, mac, tci, is_ipv4 ? DP_ETHERTYPE_IPV4 : DP_ETHERTYPE_IPV6);
    *at = n;
    n += is_ipv4 ? dp_frame_put_ipv4(out + n, source4, destination4, DP_PROTOCOL_UDP, udp_bytes)
                 : dp_frame_put_ipv6(out + n, source6, destination6, DP_PROTOCOL_UDP, 64, udp_bytes);
    dp_put16(out + n, 41000);
    dp_put16(out + n + 2, 7701);
    dp_put16(out + n + 4, udp_bytes);
    memset(out + n + DP_UDP_BYTES, 0xab, PAYLOAD);
    return n + udp_bytes;
}

TEST(datagrams_of_both_families_with_and_without_a_tag)
{
    for (uint32_t kind = 0; kind < 4; kind++) {
        const bool is_ipv4 = (kind & 1) == 0;
        uint8_t bytes[256];
        uint32_t at;
        struct dp_view view;
        const uint32_t count = frame(is_ipv4, kind & 2 ? 7 : 0, bytes, &at);
        dp_view_frame(bytes, count + 6, &view); /* and padding */
        assert_true(view.is_ip && view.is_udp);
        assert_int_equal(view.source_port, 41000);
        assert_int_equal(view.destination_port, 7701);
        assert_int_equal(view.payload_bytes, PAYLOAD);
        assert_ptr_equal(view.payload, bytes + count - PAYLOAD);
        if (is_ipv4) {
            assert_memory_equal(view.source + 12, source4, 4);
            assert_int_equal(view.source[10] & view.source[11], 0xff);
            assert_memory_equal(view.destination + 12, destination4, 4);
        } else {
            assert_memory_equal(view.source, source6, 16);
            assert_memory_equal(view.destination, destination6, 16);
        }
    }
}

TEST(other_packets_are_what_they_are)
{
    uint8_t bytes[256];
    uint32_t at;
    struct dp_view view;
    uint32_t count = frame(true, 0, bytes, &at);
    bytes[at + 9] = DP_PROTOCOL_ICMP;
    dp_view_frame(bytes, count, &view);
    assert_true(view.is_ip && !view.is_udp);
    count = frame(true, 0, bytes, &at);
    bytes[at + 7] = 1; /* a later fragment: what would be ports is data */
    dp_view_frame(bytes, count, &view);
    assert_true(view.is_ip && !view.is_udp);
    count = frame(true, 0, bytes, &at);
    bytes[at] = 0x44; /* a header that is too short */
    dp_view_frame(bytes, count, &view);
    assert_true(!view.is_udp);
    dp_put16(bytes + 12, DP_ETHERTYPE_ARP);
    dp_view_frame(bytes, count, &view);
    assert_true(!view.is_ip && !view.is_udp);
}

/* Wherever a frame ends, nothing is read beyond. */
TEST(short_frames)
{
    for (uint32_t kind = 0; kind < 4; kind++) {
        uint8_t bytes[256];
        uint32_t at;
        struct dp_view view;
        const uint32_t count = frame((kind & 1) == 0, kind & 2 ? 7 : 0, bytes, &at);
        for (uint32_t n = 0; n < count; n++) {
            uint8_t *exact = malloc(n == 0 ? 1 : n);
            assert_non_null(exact);
            memcpy(exact, bytes, n);
            dp_view_frame(exact, n, &view);
            if (view.is_udp)
                assert_true(view.payload + view.payload_bytes <= exact + n);
            free(exact);
        }
    }
}
