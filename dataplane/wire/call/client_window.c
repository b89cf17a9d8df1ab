/* Calling side: the two windows of a session, adjusted by what arrives. */
#include "dataplane/wire/endpoint_internal.h"

void mr_flow_begin(struct mr_endpoint *ep, struct mr_client_session *s)
{
    uint32_t segment_bytes_max = s->path.max_bytes - MR_HEADER_BYTES;
    uint32_t request_bytes = mr_window_clamp(s->grant_bytes, segment_bytes_max);
    uint32_t reply_bytes = mr_window_clamp(ep->config.receive_window_bytes, segment_bytes_max);
    if (reply_bytes < ep->config.receive_window_bytes)
        reply_bytes = ep->config.receive_window_bytes;
    mr_window_init(&s->requests, request_bytes, s->peer.segment_bytes);
    mr_window_init(&s->replies, reply_bytes, s->peer.segment_bytes);
    s->peer.flight_limit_bytes = s->requests.bytes;
    s->peer.ask_bytes = 0;
    s->told_window_bytes = s->replies.bytes;
}

void mr_flow_resize(struct mr_client_session *s, uint32_t segment_bytes)
{
    mr_window_resize(&s->requests, segment_bytes);
    mr_window_resize(&s->replies, segment_bytes);
}

static void requests_changed(struct mr_endpoint *ep, struct mr_client_session *s)
{
    bool grew = s->requests.bytes > s->peer.flight_limit_bytes;
    s->peer.flight_limit_bytes = s->requests.bytes;
    s->peer.ask_bytes = s->requests.bytes < s->requests.max_bytes ? s->requests.bytes / MR_GRANT_STEPS : 0;
    if (grew)
        mr_peer_unpark(ep, &s->peer);
}

/* Reports the window of replies to the server when the change is worth a packet; each acknowledgement of
 * slots also contains it. */
static void replies_changed(struct mr_endpoint *ep, struct mr_client_session *s)
{
    uint32_t bytes = s->replies.bytes, told_bytes = s->told_window_bytes;
    uint32_t off_bytes = bytes > told_bytes ? bytes - told_bytes : told_bytes - bytes;
    bool at_last = bytes == s->replies.max_bytes && told_bytes != bytes;
    if (off_bytes > told_bytes / 4 || at_last)
        mr_client_session_ack_slots(ep, s, 0);
}

void mr_flow_round_trip(struct mr_endpoint *ep, struct mr_client_session *s, uint32_t rtt_us)
{
    if (rtt_us > MR_RTT_SAMPLE_MAX_US)
        return;
    uint32_t queue_us = mr_base_delay_sample(&s->base_delay, ep->now_us, rtt_us > 0 ? rtt_us : 1);
    /* The packet may have waited this long for us, and not in a queue of the network. After a standing queue,
     * packets arrive without a pause, so this is little then. */
    uint64_t unseen_us = ep->now_us - ep->polled_us;
    queue_us -= unseen_us < queue_us ? (uint32_t)unseen_us : queue_us;
    if (s->peer.flight_bytes > 0) {
        ep->counters.window_delays += mr_window_delay(&s->requests, ep->now_us, s->rtt.smoothed_us, queue_us);
        requests_changed(ep, s);
    }
    if (s->receiving > 0) {
        ep->counters.window_delays += mr_window_delay(&s->replies, ep->now_us, s->rtt.smoothed_us, queue_us);
        replies_changed(ep, s);
    }
}

void mr_flow_request_segments(struct mr_endpoint *ep, struct mr_client_session *s, uint32_t arrived,
                              uint32_t lost)
{
    if (!mr_window_segments(&s->requests, ep->now_us, s->rtt.smoothed_us, arrived, lost))
        return;
    ep->counters.window_losses++;
    requests_changed(ep, s);
}

void mr_flow_reply_segments(struct mr_endpoint *ep, struct mr_client_session *s, uint32_t arrived,
                            uint32_t lost)
{
    if (!mr_window_segments(&s->replies, ep->now_us, s->rtt.smoothed_us, arrived, lost))
        return;
    ep->counters.window_losses++;
    replies_changed(ep, s);
}

void mr_flow_request_lost(struct mr_endpoint *ep, struct mr_client_session *s)
{
    ep->counters.window_losses += mr_window_collapse(&s->requests);
    requests_changed(ep, s);
}
