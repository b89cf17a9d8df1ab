/* A frame with the flags that ports give it, and what is believed of them. */
#include <string.h>
#include "dataplane/loop/rx_checksums.h"
#include "dataplane/net/checksum.h"
#include "tests/test.h"
#include "tests/unit/dataplane/hosts.h"

enum { PAYLOAD_BYTES = 24 };

static const uint64_t ip_flags[] = {RTE_MBUF_F_RX_IP_CKSUM_UNKNOWN, RTE_MBUF_F_RX_IP_CKSUM_BAD,
                                    RTE_MBUF_F_RX_IP_CKSUM_GOOD, RTE_MBUF_F_RX_IP_CKSUM_NONE};
static const uint64_t l4_flags[] = {RTE_MBUF_F_RX_L4_CKSUM_UNKNOWN, RTE_MBUF_F_RX_L4_CKSUM_BAD,
                                    RTE_MBUF_F_RX_L4_CKSUM_GOOD, RTE_MBUF_F_RX_L4_CKSUM_NONE};
/* Of each of these: the port vouches for the packet. */
static const bool vouched[] = {false, false, true, true};

/* Flags of other things stand beside them. */
static const uint64_t others = RTE_MBUF_F_RX_RSS_HASH | RTE_MBUF_F_RX_VLAN;

TEST(good_and_none_are_believed_unknown_and_bad_are_not)
{
    for (size_t i = 0; i < 4; i++)
        for (size_t j = 0; j < 4; j++) {
            const struct dp_checked checked = dp_rx_checked(others | ip_flags[i] | l4_flags[j]);
            assert_int_equal(checked.ip, vouched[i]);
            assert_int_equal(checked.udp, vouched[j]);
        }
}

/* The sender leaves the checksum to its device, which leaves it undone: the frame never met a wire. */
static size_t frame_of_a_peer_on_the_same_host(uint8_t *frame, const struct dp_net *server,
                                               enum dp_local local)
{
    const struct dp_net client = host_make(2, 0);
    const struct mr_address to = way_to(server, local, SERVER_PORT);
    const uint32_t header_bytes = dp_frame_header_bytes(&to);
    memset(frame + header_bytes, 0x5a, PAYLOAD_BYTES);
    dp_frame_build(&client, &to, frame, PAYLOAD_BYTES, DP_CHECKSUMS_BY_CARD);
    if (local == DP_LOCAL_IPV4) { /* a kernel leaves none but UDP's */
        memset(frame + DP_ETHER_BYTES + 10, 0, 2);
        dp_checksum_store(frame + DP_ETHER_BYTES + 10,
                          dp_checksum_add(0, frame + DP_ETHER_BYTES, DP_IPV4_BYTES), 0);
    }
    return header_bytes + PAYLOAD_BYTES;
}

static enum dp_verdict verdict_with(const struct dp_net *server, const uint8_t *frame, size_t bytes,
                                    const struct rte_mbuf *packet)
{
    struct dp_frame out;
    return dp_frame_parse(server, frame, bytes, dp_rx_checked(packet->ol_flags), &out);
}

TEST(what_virtio_vouches_for_arrives_also_at_the_second_core_unless_it_is_damaged)
{
    const struct dp_net server = server_make();
    static const enum dp_local locals[] = {DP_LOCAL_IPV4, DP_LOCAL_IPV6, DP_LOCAL_LINK};
    uint8_t frame[FRAME_BYTES_MAX];
    for (size_t i = 0; i < 3; i++) {
        const size_t bytes = frame_of_a_peer_on_the_same_host(frame, &server, locals[i]);
        struct rte_mbuf packet = {.ol_flags = others};
        assert_int_equal(verdict_with(&server, frame, bytes, &packet), DP_FRAME_CHECKSUM);
        packet.ol_flags |= RTE_MBUF_F_RX_L4_CKSUM_NONE;
        assert_int_equal(verdict_with(&server, frame, bytes, &packet), DP_FRAME_UDP);
        dp_rx_set_checked(&packet);
        assert_int_equal(verdict_with(&server, frame, bytes, &packet), DP_FRAME_UDP);
        dp_rx_set_unchecked(&packet);
        assert_int_equal(verdict_with(&server, frame, bytes, &packet), DP_FRAME_CHECKSUM);
    }
}

/* The flags are numbers of two bits: what was there before must not show through. */
TEST(whatever_the_port_said_what_a_core_says_replaces_it)
{
    for (size_t i = 0; i < 4; i++)
        for (size_t j = 0; j < 4; j++) {
            struct rte_mbuf packet = {.ol_flags = others | ip_flags[i] | l4_flags[j]};
            dp_rx_set_checked(&packet);
            assert_true(packet.ol_flags ==
                        (others | RTE_MBUF_F_RX_IP_CKSUM_GOOD | RTE_MBUF_F_RX_L4_CKSUM_GOOD));
            packet.ol_flags = others | ip_flags[i] | l4_flags[j];
            dp_rx_set_unchecked(&packet);
            assert_true(packet.ol_flags == others);
        }
}
