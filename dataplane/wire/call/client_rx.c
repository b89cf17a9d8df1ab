/* Calling side: the packets that arrive for a call, and its timer. */
#include <string.h>

#include "dataplane/wire/endpoint_internal.h"

void mr_call_sent(struct mr_endpoint *ep, struct mr_call *call, bool whole)
{
    if (call->sent_us == 0) {
        call->sent_us = ep->now_us;
        ep->counters.calls_made++;
    }
    call->sent_whole |= whole;
    call->probe_at_us = ep->now_us + mr_rtt_pto_us(&call->session->rtt, call->probes);
    mr_call_arm(ep, call);
}

static void call_progressed(struct mr_endpoint *ep, struct mr_call *call)
{
    call->probes = 0;
    call->unanswered = 0;
    call->probe_at_us = ep->now_us + mr_rtt_pto_us(&call->session->rtt, 0);
    mr_call_arm(ep, call);
}

/* ---- replies ---- */

/* Ends the call with its reply, which is at `reply`, and at `received`, where it arrived. A malformed reply
 * ends the call, too: a repetition would be no better. */
static void reply_finish(struct mr_endpoint *ep, struct mr_call *call, const uint8_t *reply,
                         const uint8_t *received, uint32_t reply_bytes)
{
    mr_call_release_slot(ep, call);
    if (mr_message_parse(received, reply_bytes, reply, &ep->message) && ep->message.preamble.epoch == 0) {
        mr_call_end(ep, call, (enum mr_status)ep->message.preamble.status, &ep->message);
    } else {
        ep->counters.drop_message++;
        mr_call_end(ep, call, MR_BAD_MESSAGE, NULL);
    }
}

/* Returns whether no other call is in flight whose end would free memory: the rest is in replies that users
 * hold. */
static bool others_are_over(const struct mr_endpoint *ep, const struct mr_call *call)
{
    if (ep->requests_bytes > mr_buddy_block_bytes(call->request_bytes))
        return false;
    for (uint32_t i = 0; i < ep->config.sessions_max; i++)
        if (ep->client_sessions[i].used && ep->client_sessions[i].receiving > 0)
            return false;
    return true;
}

/* Makes room for the reply. NULL: the probe will ask for the reply again, or, if waiting would not help, the
 * call has ended. */
static uint8_t *reply_alloc(struct mr_endpoint *ep, struct mr_call *call, const struct mr_fragment *fragment)
{
    uint32_t bytes = fragment->message_bytes;
    uint8_t *reply = mr_buddy_alloc(ep->memory, bytes);
    if (reply != NULL)
        return reply;
    if (mr_buddy_block_bytes(bytes) <= mr_buddy_capacity_bytes(ep->memory) / 2 && !others_are_over(ep, call))
        return NULL;
    call->unread_bytes = bytes;
    if (fragment->segment_bytes != 0) /* lets the server free its memory */
        (void)mr_transmit_ack(ep, &call->session->peer, MR_FLAG_REPLY, call->call_id, bytes);
    mr_call_release_slot(ep, call);
    mr_call_end(ep, call, MR_NO_MEMORY, NULL);
    return NULL;
}

static void reply_receive_whole(struct mr_endpoint *ep, struct mr_call *call,
                                const struct mr_fragment *fragment)
{
    uint8_t *reply = ep->scratch; /* without tensors nothing of it needs to be kept */
    if (fragment->bytes > sizeof(struct mr_preamble)) {
        reply = reply_alloc(ep, call, fragment);
        if (reply == NULL)
            return;
        call->reply = reply;
    }
    memcpy(reply, fragment->payload, fragment->bytes);
    reply_finish(ep, call, reply, fragment->payload, fragment->bytes);
}

static void reply_send_report(struct mr_endpoint *ep, struct mr_call *call, enum mr_packet_type type)
{
    struct mr_ack ack;
    mr_incoming_report(&call->incoming, &ack);
    (void)mr_transmit_control(ep, &call->session->peer, type, MR_FLAG_REPLY, call->call_id, &ack,
                              sizeof(ack));
}

/* Lets the server free the reply's memory: a long one's at once, because it counts as in flight until then. A
 * packet for each short one would cost more than the reply: the acknowledgement of its slot, or the next
 * call there, does for it, and until then such replies take at most a share of the window. */
static void reply_acknowledge(struct mr_endpoint *ep, struct mr_call *call)
{
    struct mr_client_session *s = call->session;
    const uint32_t share_bytes = s->replies.bytes / MR_UNACKED_WINDOW_SHARE;
    const uint32_t bytes = call->incoming.message_bytes;
    if (bytes > share_bytes) {
        reply_send_report(ep, call, MR_PACKET_ACK);
        return;
    }
    if (s->unacked_bytes + bytes > share_bytes)
        mr_client_session_ack_slots(ep, s, s->unacked_slots);
    s->unacked_bytes += bytes;
}

/* Sends a report about an incomplete reply, if one is due. */
static void reply_report_progress(struct mr_endpoint *ep, struct mr_call *call)
{
    struct mr_incoming *in = &call->incoming;
    struct mr_client_session *s = call->session;
    uint32_t window_bytes = mr_window_clamp(s->replies.bytes, in->segment_bytes);
    in->window_bytes = window_bytes;
    if (mr_incoming_gap_certain(in) && ep->now_us - call->asked_again_us >= s->rtt.smoothed_us) {
        call->asked_again_us = ep->now_us;
        mr_flow_reply_segments(ep, s, 0, mr_incoming_missing(in));
        reply_send_report(ep, call, MR_PACKET_RESEND);
    } else if (mr_incoming_report_due(in, s->receiving)) {
        reply_send_report(ep, call, MR_PACKET_ACK);
    }
}

static void reply_receive_segment(struct mr_endpoint *ep, struct mr_call *call,
                                  const struct mr_fragment *fragment)
{
    struct mr_incoming *in = &call->incoming;
    struct mr_client_session *s = call->session;
    if (call->reply == NULL) {
        uint8_t *reply = reply_alloc(ep, call, fragment);
        if (reply == NULL)
            return;
        call->reply = reply;
        mr_incoming_init(in, call->reply, fragment->message_bytes, fragment->segment_bytes,
                         ep->config.receive_window_bytes);
        s->receiving++;
        /* The server has the whole request: nothing of it is in flight any more. */
        struct mr_ack all = {.received_bytes = call->request_bytes, .grant_bytes = call->request_bytes};
        if (mr_call_is_cut(call))
            (void)mr_tx_message_report(ep, &call->sending, &all, 0);
        call->server_has = true;
    }
    enum mr_segment_result result = MR_SEGMENT_RANGE;
    if (fragment->message_bytes == in->message_bytes)
        result = mr_incoming_put(in, fragment->segment_bytes, fragment->offset, fragment->payload,
                                 fragment->bytes);
    if (result == MR_SEGMENT_RANGE) {
        ep->counters.drop_range++;
        return;
    }
    if (result == MR_SEGMENT_REPEATED) {
        ep->counters.segments_repeated++;
        return;
    }
    mr_flow_reply_segments(ep, s, 1, 0);
    call_progressed(ep, call);
    if (!mr_incoming_whole(in)) {
        reply_report_progress(ep, call);
        return;
    }
    reply_acknowledge(ep, call);
    s->receiving--;
    in->bytes = NULL;
    reply_finish(ep, call, call->reply, call->reply, in->message_bytes);
}

static void client_rx_fragment(struct mr_endpoint *ep, struct mr_client_session *s,
                               const struct mr_fragment *fragment)
{
    bool whole = fragment->segment_bytes == 0;
    struct mr_call *call = s->slots[fragment->call_id % s->peer.window];
    if (call == NULL || call->call_id != fragment->call_id || fragment->call_id == 0) {
        ep->counters.drop_stale++;
        if (!whole) /* its last ACK was lost */
            (void)mr_transmit_ack(ep, &s->peer, MR_FLAG_REPLY, fragment->call_id, fragment->message_bytes);
        return;
    }
    if (!mr_fragment_fits(fragment, ep->config.message_bytes_max)) {
        ep->counters.drop_range++;
        return;
    }
    if (call->state == MR_CALL_PAUSED) { /* the server refused it under this id */
        ep->counters.drop_stale++;
        return;
    }
    if (call->state == MR_CALL_ENDED) { /* its user has stopped waiting */
        if (!whole)
            (void)mr_transmit_ack(ep, &s->peer, MR_FLAG_REPLY, fragment->call_id, fragment->message_bytes);
        mr_call_release_slot(ep, call);
        return;
    }
    if (whole && call->reply == NULL)
        reply_receive_whole(ep, call, fragment);
    else
        reply_receive_segment(ep, call, fragment);
}

static void client_rx_data(struct mr_endpoint *ep, struct mr_client_session *s,
                           const struct mr_packet *packet)
{
    struct mr_fragment fragments[MR_FRAGMENTS_MAX];
    uint32_t at = 0, count, generation = s->generation;
    bool well_formed = true;
    while (well_formed && at < packet->header.payload_bytes) {
        well_formed = mr_packet_fragments(&packet->header, packet->payload, &at, fragments, &count);
        for (uint32_t i = 0; i < count; i++) {
            client_rx_fragment(ep, s, &fragments[i]);
            if (s->generation != generation) /* the reply's user has closed the session */
                return;
        }
    }
    if (!well_formed)
        ep->counters.drop_range++;
}

/* ---- reports about a request ---- */

static void client_rx_report(struct mr_endpoint *ep, struct mr_call *call, const struct mr_ack *ack)
{
    struct mr_client_session *s = call->session;
    struct mr_outgoing *out = &call->sending.out;
    uint32_t before = out->acked_bytes;
    if (ack->received_bytes < before && call->probes >= MR_LOSS_PROBES) {
        /* This is no delayed report: the server has lost what it had. */
        mr_tx_message_stop(ep, &call->sending);
        mr_call_transmit(ep, call);
        return;
    }
    uint32_t marked = mr_outgoing_resends(out), probes = call->probes;
    if (ep->now_us - call->asked_again_us >= s->rtt.smoothed_us)
        mr_outgoing_forget_resent(out);
    if (!mr_tx_message_report(ep, &call->sending, ack, probes > 0 ? 1 : MR_REORDER_SEGMENTS)) {
        ep->counters.drop_range++;
        return;
    }
    uint32_t lost = mr_outgoing_resends(out) > marked ? mr_outgoing_resends(out) - marked : 0;
    if (lost > 0)
        call->asked_again_us = ep->now_us;
    mr_flow_request_segments(ep, s, (out->acked_bytes - before) / out->segment_bytes, lost);
    if (probes >= MR_LOSS_PERSISTENT && lost > MR_LOSS_SEGMENTS &&
        2 * lost * out->segment_bytes >= mr_outgoing_flight_bytes(out))
        mr_flow_request_lost(ep, s);
    if (out->acked_bytes > before)
        call_progressed(ep, call);
    call->server_has |= out->acked_bytes == call->request_bytes;
}

static void client_rx_ack(struct mr_endpoint *ep, struct mr_call *call, const struct mr_packet *packet)
{
    struct mr_ack ack;
    memcpy(&ack, packet->payload, sizeof(ack));
    bool server_has = ack.received_bytes == call->request_bytes;
    if (server_has) /* only the reply is missing */
        call->unanswered = 0;
    if (call->state == MR_CALL_ENDED) {
        if (!server_has && call->probes > 0) /* an earlier report does not cover what was in flight then */
            mr_call_release_slot(ep, call);  /* the request can no longer become whole */
    } else if (call->state != MR_CALL_SENDING) {
        ep->counters.drop_stale++;
    } else if (call->reply != NULL) {
        return; /* its reply is arriving: the server has the request */
    } else if (!mr_call_is_cut(call)) {
        call->server_has = server_has;
    } else {
        client_rx_report(ep, call, &ack);
    }
}

/* The server has not executed the call, and never will under this id. */
static void client_rx_busy(struct mr_endpoint *ep, struct mr_call *call)
{
    ep->counters.busy_received++;
    if (call->state == MR_CALL_ENDED) {
        mr_call_release_slot(ep, call);
        return;
    }
    if (call->state != MR_CALL_SENDING || call->reply != NULL) {
        ep->counters.drop_stale++;
        return;
    }
    struct mr_client_session *s = call->session;
    call->state = MR_CALL_PAUSED;
    call->sent_whole = false;
    s->peer.ready &= ~(UINT64_C(1) << (call->call_id % s->peer.window));
    if (mr_call_is_cut(call))
        mr_tx_message_stop(ep, &call->sending);
    uint64_t pause_us = ep->config.busy_retry_us
                        << (call->busy_count < MR_BUSY_BACKOFF_MAX ? call->busy_count : MR_BUSY_BACKOFF_MAX);
    if (call->busy_count < MR_BUSY_BACKOFF_MAX)
        call->busy_count++;
    call->probe_at_us = ep->now_us + pause_us / 2 + mr_endpoint_random(ep) % (pause_us + 1);
    mr_call_arm(ep, call);
}

/* Returns the session that a packet belongs to, verified; NULL: counted. */
static struct mr_client_session *client_rx_session(struct mr_endpoint *ep, const struct mr_packet *packet)
{
    struct mr_client_session *s = mr_client_session_lookup(ep, packet->header.session_id, packet->from);
    if (s == NULL || !s->established || packet->header.incarnation != s->peer.incarnation) {
        ep->counters.drop_session++;
        return NULL;
    }
    if (!mr_numbers_is_new(&s->peer.numbers, packet->header.number)) {
        ep->counters.drop_repeated++;
        return NULL;
    }
    if (!mr_client_session_verify(s, packet)) {
        ep->counters.drop_tag++;
        return NULL;
    }
    (void)mr_numbers_take(&s->peer.numbers, packet->header.number);
    mr_client_session_sample_rtt(ep, s, packet);
    s->peer.heard_us = ep->now_us;
    s->other_version = 0;
    s->confirmed |= !s->has_previous_key; /* a packet under the previous key does not confirm the new one */
    if (s->away) {
        s->away = false;
        mr_client_session_connected(ep, s);
        uint32_t generation = s->generation;
        mr_client_session_notify(ep, s, MR_SESSION_UP);
        if (s->generation != generation)
            return NULL;
    }
    return s;
}

void mr_call_packet(struct mr_endpoint *ep, const struct mr_packet *packet)
{
    struct mr_client_session *s = ep->client_sessions != NULL ? client_rx_session(ep, packet) : NULL;
    if (s == NULL) {
        if (ep->client_sessions == NULL)
            ep->counters.drop_session++;
        return;
    }
    ep->counters.rx_packets++;
    ep->counters.rx_bytes += MR_HEADER_BYTES + packet->header.payload_bytes;
    if (packet->header.type == MR_PACKET_DATA) {
        client_rx_data(ep, s, packet);
        return;
    }
    if (packet->header.type == MR_PACKET_PATH) {
        mr_client_session_path_packet(ep, s, packet);
        return;
    }
    uint64_t call_id = packet->header.call_id;
    struct mr_call *call = s->slots[call_id % s->peer.window];
    if (call_id == 0) /* the answer to a keep-alive */
        return;
    if (call == NULL || call->call_id != call_id)
        ep->counters.drop_stale++;
    else if (packet->header.type == MR_PACKET_BUSY)
        client_rx_busy(ep, call);
    else
        client_rx_ack(ep, call, packet);
}

/* ---- timers ---- */

static enum mr_status deadline_status(const struct mr_call *call)
{
    if (call->sent_whole && !call->repeatable)
        return MR_UNKNOWN_OUTCOME;
    if (call->busy_count > 0 && !call->sent_whole && !call->in_doubt)
        return MR_BUSY;
    if (!call->session->established || call->session->away || call->session->path.narrow)
        return MR_UNREACHABLE;
    return MR_DEADLINE_EXCEEDED;
}

/* Sends the cheapest probe that can make the call progress. */
static void probe_send(struct mr_endpoint *ep, struct mr_call *call)
{
    struct mr_peer *peer = &call->session->peer;
    mr_call_shorten(ep, call); /* the path may have become narrower since it was sent */
    if (call->state == MR_CALL_SENDING && call->reply != NULL) {
        reply_send_report(ep, call, MR_PACKET_RESEND);
        mr_client_session_ack_slots(ep, call->session,
                                    0); /* the last report of the window may be lost, too */
    } else if (call->state == MR_CALL_ENDED || call->server_has) {
        (void)mr_transmit_control(ep, peer, MR_PACKET_PING, MR_FLAG_PROBE, call->call_id, NULL, 0);
    } else if (!mr_call_is_cut(call)) {
        call->asks = true;
        mr_call_set_time_left(ep, call);
        mr_peer_ready(ep, peer,
                      (uint32_t)(call->call_id % peer->window)); /* in a bundle with others that are due */
    } else {
        mr_outgoing_probe(&call->sending.out);
        mr_tx_message_activate(ep, &call->sending);
    }
}

/* Nothing was heard of the call for a while: sends a probe, unless nothing of it was sent for lack of room.
 * After several without an answer the path is doubted: perhaps long datagrams no longer get through. */
static void call_probe(struct mr_endpoint *ep, struct mr_call *call)
{
    struct mr_client_session *s = call->session;
    const bool is_unsent = mr_call_is_cut(call)
                               ? call->sending.out.sent_bytes == 0
                               : (s->peer.ready >> (call->call_id % s->peer.window) & 1) != 0;
    const bool waits = call->state == MR_CALL_SENDING && is_unsent;
    if (!waits) {
        ep->counters.probes++;
        if (call->probes < UINT8_MAX)
            call->probes++;
        probe_send(ep, call);
        if (call->unanswered < UINT8_MAX)
            call->unanswered++;
        if (call->unanswered >= MR_DOUBT_PROBES)
            mr_client_session_path_doubt(ep, s);
    }
    call->probe_at_us = ep->now_us + mr_rtt_pto_us(&s->rtt, call->probes);
    mr_call_arm(ep, call);
    uint64_t since_us = s->peer.heard_us > call->sent_us ? s->peer.heard_us : call->sent_us;
    if (!waits && ep->now_us - since_us >= MR_AWAY_US)
        mr_client_session_away(ep, s);
}

void mr_call_timer(struct mr_endpoint *ep, struct mr_call *call)
{
    if (call->session == NULL) {
        mr_call_end(ep, call, MR_CANCELLED, NULL);
    } else if (call->state != MR_CALL_ENDED && call->deadline_us <= ep->now_us) {
        mr_call_end(ep, call, deadline_status(call), NULL);
    } else if (call->call_id == 0 || call->probe_at_us == 0 || call->probe_at_us > ep->now_us) {
        mr_call_arm(ep, call);
    } else if (call->state == MR_CALL_PAUSED) {
        /* Sends a refused call again, unless the answer could hardly arrive in time: now it is certain that
         * the call was not executed, and then it would not be. */
        if (ep->now_us + mr_rtt_pto_us(&call->session->rtt, 0) < call->deadline_us)
            mr_call_transmit_again(ep, call);
        else
            call->probe_at_us = 0;
        mr_call_arm(ep, call);
    } else {
        call_probe(ep, call);
    }
}
