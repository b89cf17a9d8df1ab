/* Any Ethernet frame, to a host of any kind: it is dropped with a reason, or what it says lies within it and
 * the answer that it gets is a frame that its sender would take. The first byte chooses the host. */
#include <string.h>
#include "dataplane/net/arp.h"
#include "dataplane/net/icmp.h"
#include "dataplane/net/nd.h"
#include "fuzz_assert.h"

#define ANSWER_BYTES 4096u

enum host_bits { NO_IPV4 = 1, NO_IPV6 = 2, TAGGED = 4, PARTIAL = 8, IP_CHECKED = 16, UDP_CHECKED = 32 };

static struct dp_net host_make(uint8_t bits)
{
    struct dp_net net = {.has_ipv4 = (bits & NO_IPV4) == 0,
                         .has_ipv6 = (bits & NO_IPV6) == 0,
                         .ipv4 = {10, 0, 0, 1},
                         .ipv6 = {0xfd, [14] = 1, [15] = 1},
                         .vlan = (bits & TAGGED) != 0 ? 7 : 0,
                         .mtu = 1500,
                         .udp_port = 7700,
                         .core_count = 3,
                         .partial_checksums = (bits & PARTIAL) != 0};
    dp_net_set_mac(&net, (const uint8_t[6]){0x02, 0, 0, 0, 0, 1});
    return net;
}

static void check_within(const uint8_t *part, size_t part_bytes, const uint8_t *frame, size_t bytes)
{
    FUZZ_ASSERT(part >= frame && part + part_bytes <= frame + bytes);
}

/* The host that sent the frame, as far as it takes part. */
static struct dp_net sender_of(const struct dp_net *net, const struct dp_frame *frame)
{
    struct dp_net sender = *net;
    dp_net_set_mac(&sender, frame->peer_mac);
    if (frame->local == DP_LOCAL_IPV4)
        memcpy(sender.ipv4, frame->source, 4);
    else
        memcpy(sender.ipv6, frame->source, 16);
    sender.has_ipv4 = sender.has_ipv6 = true;
    sender.udp_port = frame->source_port;
    sender.core_count = 1;
    sender.partial_checksums = false;
    return sender;
}

static void check_datagram(const struct dp_net *net, const struct dp_frame *frame)
{
    static uint8_t answer[ANSWER_BYTES + DP_HEADERS_BYTES_MAX];
    const struct dp_checked unchecked = {0};
    struct dp_net sender = sender_of(net, frame);
    struct mr_address from;
    struct dp_frame back;
    FUZZ_ASSERT(frame->destination_port >= 7700 && frame->destination_port < 7703 && frame->source_port != 0);
    FUZZ_ASSERT((frame->tci & 0xfff) == net->vlan && !frame->multicast);
    uint32_t bytes = frame->payload_bytes < ANSWER_BYTES ? frame->payload_bytes : ANSWER_BYTES;
    dp_frame_sender(frame, &from);
    uint32_t header_bytes = dp_frame_header_bytes(&from);
    FUZZ_ASSERT(header_bytes <= DP_HEADERS_BYTES_MAX);
    memcpy(answer + header_bytes, frame->payload, bytes);
    dp_frame_build(net, &from, answer, bytes, DP_CHECKSUMS_HERE);
    FUZZ_ASSERT(dp_frame_parse(&sender, answer, header_bytes + bytes, unchecked, &back) == DP_FRAME_UDP);
    FUZZ_ASSERT(back.payload_bytes == bytes && memcmp(back.payload, frame->payload, bytes) == 0);
    FUZZ_ASSERT(back.source_port == frame->destination_port);
}

static void check_report(const struct dp_net *net, const struct dp_frame *frame, enum dp_verdict verdict)
{
    struct dp_too_long report;
    if (!dp_icmp_too_long(net, frame, verdict, &report))
        return;
    check_within(report.datagram, report.datagram_bytes, frame->payload, frame->payload_bytes);
    FUZZ_ASSERT(report.local_port >= 7700 && report.local_port < 7703 && !frame->multicast);
    FUZZ_ASSERT(report.datagram + report.datagram_bytes == frame->payload + frame->payload_bytes);
}

/* Nobody teaches us a MAC address of our own address, or of a group. */
static void check_advertisement(const struct dp_net *net, const struct dp_frame *frame)
{
    uint8_t ip[16], mac[6];
    if (!dp_nd_read_advertisement(net, frame, ip, mac))
        return;
    FUZZ_ASSERT(frame->hop_limit == 255 && ip[0] != 0xff && (mac[0] & 1) == 0);
    FUZZ_ASSERT(memcmp(ip, net->link_local, 16) != 0);
}

static void check_answer(const struct dp_net *net, const struct dp_frame *frame, enum dp_verdict verdict)
{
    static uint8_t answer[ANSWER_BYTES];
    enum dp_verdict why;
    uint32_t bytes;
    memset(answer, 0, sizeof(answer));
    if (verdict == DP_FRAME_ARP)
        bytes = dp_arp_answer(net, frame, answer, &why);
    else if (verdict == DP_FRAME_ICMP)
        bytes = dp_icmp_answer(net, frame, answer, sizeof(answer), &why);
    else if (dp_nd_is_solicitation(frame))
        bytes = dp_nd_answer(net, frame, answer, &why);
    else
        bytes = dp_icmpv6_answer(net, frame, answer, sizeof(answer), &why);
    FUZZ_ASSERT(bytes <= sizeof(answer));
    if (bytes == 0) {
        FUZZ_ASSERT(why > DP_FRAME_ICMPV6);
        return;
    }
    FUZZ_ASSERT(memcmp(answer + 6, net->mac, 6) == 0);
    for (size_t i = bytes; i < sizeof(answer); i++)
        FUZZ_ASSERT(answer[i] == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct dp_frame frame;
    if (bytes == 0)
        return 0;
    struct dp_net net = host_make(data[0]);
    struct dp_checked checked = {.ip = (data[0] & IP_CHECKED) != 0, .udp = (data[0] & UDP_CHECKED) != 0};
    const uint8_t *bytes_in = data + 1;
    size_t count = bytes - 1;
    enum dp_verdict verdict = dp_frame_parse(&net, bytes_in, count, checked, &frame);
    FUZZ_ASSERT(verdict <= DP_FRAME_FRAGMENT);
    if (verdict > DP_FRAME_ICMPV6)
        return 0;
    check_within(frame.peer_mac, 6, bytes_in, count);
    check_within(frame.payload, frame.payload_bytes, bytes_in, count);
    if (verdict == DP_FRAME_UDP)
        check_datagram(&net, &frame);
    else
        check_answer(&net, &frame, verdict);
    if (verdict == DP_FRAME_ICMPV6)
        check_advertisement(&net, &frame);
    if (verdict == DP_FRAME_ICMP || verdict == DP_FRAME_ICMPV6)
        check_report(&net, &frame, verdict);
    return 0;
}
