/* Calling side: how large the datagrams of a session may be, in both directions (path.h says how that is found out). Serving
 * side: the answer to such a question. */
#include "dataplane/wire/endpoint_internal.h"

static const uint8_t padding[MR_SEGMENT_BYTES_MAX];

/* All that is on its way to the server in longer segments than get through. */
static void shorten_requests(struct mr_endpoint *ep, struct mr_session *s)
{
    for (uint32_t i = 0; i < s->peer.window; i++)
        if (s->slots[i] != NULL)
            mr_call_shorten(ep, s->slots[i]);
}

static void take_up(struct mr_endpoint *ep, struct mr_session *s)
{
    uint32_t segment_bytes = s->path.bytes - MR_HEADER_BYTES, before_bytes = s->peer.segment_bytes;
    s->peer.segment_bytes = segment_bytes;
    if (segment_bytes != before_bytes) {
        mr_flow_resize(s, segment_bytes);
        mr_session_ack_slots(ep, s, 0);
    }
    if (segment_bytes < before_bytes) {
        ep->counters.path_shrank++;
        shorten_requests(ep, s);
    }
    mr_session_tell(ep, s, MR_SESSION_PATH);
}

/* From the second time on along with a small one: who answers that one and not the large one cannot get the large one. */
static void ask(struct mr_endpoint *ep, struct mr_session *s)
{
    struct mr_path *path = &s->path;
    if (path->tries > 0)
        (void)mr_transmit_control(ep, &s->peer, MR_PACKET_PING, MR_FLAG_PROBE, 0, NULL, 0);
    uint64_t number = mr_path_sent(path, ep->now_us, mr_rtt_pto_us(&s->rtt, path->tries));
    (void)mr_transmit_control(ep, &s->peer, MR_PACKET_PATH, 0, number, padding,
                              (uint16_t)(path->asked_bytes - MR_HEADER_BYTES));
}

void mr_session_path_timer(struct mr_endpoint *ep, struct mr_session *s)
{
    struct mr_path *path = &s->path;
    if (path->at_us == 0 || path->at_us > ep->now_us)
        return;
    enum mr_path_change change = mr_path_due(path, s->peer.heard_us, ep->now_us);
    if (path->asked_bytes != 0 && path->at_us <= ep->now_us)
        ask(ep, s);
    if (change == MR_PATH_CHANGED)
        take_up(ep, s);
}

/* Of an answer only its length counts. */
void mr_session_path_packet(struct mr_endpoint *ep, struct mr_session *s, const struct mr_packet *packet)
{
    uint32_t bytes = MR_HEADER_BYTES + packet->header.payload_bytes;
    enum mr_path_change change = mr_path_answered(&s->path, packet->header.call_id, bytes, ep->now_us);
    if (s->handshake == MR_HANDSHAKE_NONE)
        mr_session_arm(ep, s);
    if (change == MR_PATH_CHANGED)
        take_up(ep, s);
}

void mr_session_path_doubt(struct mr_endpoint *ep, struct mr_session *s)
{
    if (!s->established || !s->confirmed)
        return;
    if (!mr_path_doubt(&s->path, ep->now_us))
        return;
    mr_session_ack_slots(ep, s, 0); /* what the server was told of the size may be lost */
    if (s->handshake == MR_HANDSHAKE_NONE)
        mr_session_arm(ep, s);
}

void mr_session_path_hint(struct mr_endpoint *ep, struct mr_session *s, uint32_t udp_bytes, uint64_t now_us)
{
    mr_endpoint_set_now(ep, now_us);
    if (!s->established)
        return;
    mr_path_hint(&s->path, udp_bytes, ep->now_us);
    if (s->handshake == MR_HANDSHAKE_NONE)
        mr_session_arm(ep, s);
}

void mr_served_path_answer(struct mr_endpoint *ep, struct mr_served *served, const struct mr_packet *packet)
{
    if (MR_HEADER_BYTES + packet->header.payload_bytes > served->udp_bytes_max) {
        ep->counters.drop_range++;
        return;
    }
    (void)mr_transmit_control(ep, &served->peer, MR_PACKET_PATH, MR_FLAG_REPLY, packet->header.call_id,
                              padding, packet->header.payload_bytes);
}
