#include "dataplane/capture/capture.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "dataplane/capture/view.h"
#include "dataplane/net/bytes.h"
#include "dataplane/net/checksum.h"
#include "dataplane/net/frame.h"
#include "dataplane/net/net.h"
#include "dataplane/udp/address.h"

#define HOP_LIMIT 64u

static bool is_zero(const void *bytes, size_t count)
{
    const uint8_t *at = bytes;
    for (size_t i = 0; i < count; i++)
        if (at[i] != 0)
            return false;
    return true;
}

struct dp_capture *dp_capture_create(const struct dp_capture_config *config, uint64_t now_us)
{
    struct dp_capture *capture = calloc(1, sizeof(*capture));
    if (capture == NULL)
        return NULL;
    capture->config = *config;
    capture->started_us = capture->read_us = now_us;
    struct dp_filter *filter = &capture->filter;
    memcpy(filter->ip, config->ip, sizeof(filter->ip));
    memcpy(filter->ops, config->ops, sizeof(filter->ops));
    filter->port = config->port;
    filter->has_ip = !is_zero(config->ip, sizeof(config->ip));
    filter->has_ops = !is_zero(config->ops, sizeof(config->ops));
    if (filter->has_ops)
        filter->calls = calloc(DP_FILTER_CALLS, sizeof(*filter->calls));
    if ((filter->has_ops && filter->calls == NULL) || !dp_ring_create(&capture->ring, config->ring_bytes)) {
        dp_capture_destroy(capture);
        return NULL;
    }
    return capture;
}

void dp_capture_destroy(struct dp_capture *capture)
{
    if (capture == NULL)
        return;
    dp_ring_destroy(&capture->ring);
    free(capture->filter.calls);
    free(capture);
}

uint64_t dp_capture_time_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- what is wanted ---- */

static bool is_reader(const struct dp_capture *capture, const uint8_t *ip, uint16_t port)
{
    const struct mr_address *reader = &capture->config.reader;
    return ip != NULL && port == reader->port && memcmp(ip, reader->ip, sizeof(reader->ip)) == 0;
}

static bool wants(struct dp_capture *capture, const uint8_t *ip, uint16_t port, const uint8_t *payload,
                  uint32_t payload_bytes)
{
    if (capture->is_halted || is_reader(capture, ip, port))
        return false;
    capture->seen++;
    if (!dp_filter_wants(&capture->filter, ip, port, payload, payload_bytes))
        return false;
    capture->wanted++;
    return true;
}

/* ---- records ---- */

/* Of a packet whose beginning lies apart from the rest. */
struct pieces {
    const uint8_t *head, *rest;
    uint32_t head_bytes, rest_bytes;
    uint32_t bytes; /* on the link */
};

static void capture_put(struct dp_capture *capture, uint64_t time_ns, bool is_sent,
                        const struct pieces *packet)
{
    static const uint8_t zeros[8];
    struct dp_ring *ring = &capture->ring;
    const uint32_t there = packet->head_bytes + packet->rest_bytes, snap = capture->config.snap_bytes;
    const uint32_t captured = there < snap ? there : snap;
    const uint32_t head = packet->head_bytes < captured ? packet->head_bytes : captured;
    const uint32_t record_bytes = mr_capture_record_bytes(captured);
    if (record_bytes > dp_ring_room(ring)) {
        capture->lost++;
        capture->lost_before++;
        return;
    }
    const struct mr_capture_record record = {.time_ns = time_ns,
                                             .bytes = packet->bytes,
                                             .captured_bytes = captured,
                                             .lost = capture->lost_before,
                                             .flags = is_sent ? MR_CAPTURE_SENT : 0};
    capture->lost_before = 0;
    dp_ring_put(ring, &record, sizeof(record));
    dp_ring_put(ring, packet->head, head);
    dp_ring_put(ring, packet->rest, captured - head);
    dp_ring_put(ring, zeros, record_bytes - (uint32_t)sizeof(record) - captured);
}

/* Of a datagram that another core receives or sends, by whichever queue. */
static bool is_of_another_core(const struct dp_capture *capture, const struct dp_view *view, bool is_sent)
{
    const struct dp_capture_config *config = &capture->config;
    const uint16_t local = is_sent ? view->source_port : view->destination_port;
    return view->is_udp && local != config->own_port && local >= config->first_port &&
           local - config->first_port < config->port_count;
}

void dp_capture_frame(struct dp_capture *capture, uint64_t time_ns, bool is_sent, const uint8_t *frame,
                      uint32_t captured_bytes, uint32_t bytes)
{
    static const uint8_t nothing[1];
    const struct pieces packet = {frame, nothing, captured_bytes, 0, bytes};
    struct dp_view view;
    dp_view_frame(frame, captured_bytes, &view);
    if (is_of_another_core(capture, &view, is_sent))
        return;
    const uint8_t *peer = is_sent ? view.destination : view.source;
    const uint16_t port = is_sent ? view.destination_port : view.source_port;
    if (wants(capture, view.is_ip ? peer : NULL, port, view.is_udp ? view.payload : NULL, view.payload_bytes))
        capture_put(capture, time_ns, is_sent, &packet);
}

/* Writes IP and UDP headers; returns their length. Over IPv6 a datagram must have a checksum. */
static uint32_t make_headers(const struct mr_address *from, const struct mr_address *to,
                             const uint8_t *payload, uint32_t payload_bytes, uint8_t *out)
{
    const uint16_t udp_bytes = (uint16_t)(DP_UDP_BYTES + payload_bytes);
    const bool is_ipv4 = mr_address_is_ipv4(to);
    const uint32_t ip_bytes =
        is_ipv4 ? dp_frame_put_ipv4(out, from->ip + 12, to->ip + 12, DP_PROTOCOL_UDP, udp_bytes)
                : dp_frame_put_ipv6(out, from->ip, to->ip, DP_PROTOCOL_UDP, HOP_LIMIT, udp_bytes);
    uint8_t *udp = out + ip_bytes;
    dp_put16(udp, from->port);
    dp_put16(udp + 2, to->port);
    dp_put16(udp + 4, udp_bytes);
    dp_put16(udp + 6, 0);
    if (!is_ipv4) {
        uint64_t sum = dp_checksum_pseudo6(from->ip, to->ip, DP_PROTOCOL_UDP, udp_bytes);
        sum = dp_checksum_add(sum, udp, DP_UDP_BYTES);
        dp_checksum_store(udp + 6, dp_checksum_add(sum, payload, payload_bytes), 1);
    }
    return ip_bytes + DP_UDP_BYTES;
}

void dp_capture_datagram(struct dp_capture *capture, uint64_t time_ns, bool is_sent,
                         const struct mr_address *local, const struct mr_address *peer,
                         const uint8_t *payload, uint32_t payload_bytes)
{
    uint8_t headers[DP_IPV6_BYTES + DP_UDP_BYTES];
    if (!wants(capture, peer->ip, peer->port, payload, payload_bytes))
        return;
    const uint32_t header_bytes =
        make_headers(is_sent ? local : peer, is_sent ? peer : local, payload, payload_bytes, headers);
    capture_put(
        capture, time_ns, is_sent,
        &(struct pieces){headers, payload, header_bytes, payload_bytes, header_bytes + payload_bytes});
}

bool dp_capture_was_read(struct dp_capture *capture, uint64_t position, uint64_t now_us)
{
    if (!dp_ring_forget(&capture->ring, position))
        return false;
    capture->read_us = now_us;
    return true;
}
