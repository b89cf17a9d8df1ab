/* Calling side: how long the datagrams of a session may be, in both directions (path.h explains the probes).
 * Serving side: the answers to probes. */
#include <string.h>

#include "dataplane/wire/endpoint_internal.h"

static const uint8_t padding[MR_SEGMENT_BYTES_MAX];

/* Shortens all requests in flight whose segments are too long to get through. */
static void shorten_requests(struct mr_endpoint *ep, struct mr_client_session *s)
{
    for (uint32_t i = 0; i < s->peer.window; i++)
        if (s->slots[i] != NULL)
            mr_call_shorten(ep, s->slots[i]);
}

static void take_up(struct mr_endpoint *ep, struct mr_client_session *s)
{
    uint32_t segment_bytes = s->path.bytes - MR_HEADER_BYTES, before_bytes = s->peer.segment_bytes;
    s->peer.segment_bytes = segment_bytes;
    if (segment_bytes != before_bytes) {
        mr_flow_resize(s, segment_bytes);
        mr_client_session_ack_slots(ep, s, 0);
    }
    if (segment_bytes < before_bytes) {
        ep->counters.path_shrank++;
        shorten_requests(ep, s);
    }
    mr_client_session_notify(ep, s, MR_SESSION_PATH);
}

/* Sends a probe; from the second try on along with a short packet: if only that is answered, the long one
 * does not get through. */
static void path_session_ask(struct mr_endpoint *ep, struct mr_client_session *s)
{
    struct mr_path *path = &s->path;
    if (path->tries > 0)
        (void)mr_transmit_control(ep, &s->peer, MR_PACKET_PING, MR_FLAG_PROBE, 0, NULL, 0);
    uint64_t number = mr_path_sent(path, ep->now_us, mr_rtt_pto_us(&s->rtt, path->tries));
    (void)mr_transmit_control(ep, &s->peer, MR_PACKET_PATH, 0, number, padding,
                              (uint16_t)(path->asked_bytes - MR_HEADER_BYTES));
}

void mr_client_session_path_timer(struct mr_endpoint *ep, struct mr_client_session *s)
{
    struct mr_path *path = &s->path;
    if (path->at_us == 0 || path->at_us > ep->now_us)
        return;
    enum mr_path_change change = mr_path_due(path, s->peer.heard_us, ep->now_us);
    if (path->asked_bytes != 0 && path->at_us <= ep->now_us)
        path_session_ask(ep, s);
    if (change == MR_PATH_CHANGED)
        take_up(ep, s);
}

/* Handles a router's report that the server passed on. */
static void take_hint(struct mr_endpoint *ep, struct mr_client_session *s, const struct mr_packet *packet)
{
    struct mr_path_word word;
    memcpy(&word, packet->payload, sizeof(word));
    ep->counters.path_hints++;
    mr_path_hint(&s->path, word.udp_bytes, ep->now_us);
    mr_client_session_arm(ep, s);
}

/* An answer's length is all that matters. */
void mr_client_session_path_packet(struct mr_endpoint *ep, struct mr_client_session *s,
                                   const struct mr_packet *packet)
{
    if (packet->header.call_id == 0 && packet->header.payload_bytes == sizeof(struct mr_path_word)) {
        take_hint(ep, s, packet);
        return;
    }
    uint32_t bytes = MR_HEADER_BYTES + packet->header.payload_bytes;
    enum mr_path_change change = mr_path_answered(&s->path, packet->header.call_id, bytes, ep->now_us);
    mr_client_session_arm(ep, s);
    if (change == MR_PATH_CHANGED)
        take_up(ep, s);
}

void mr_client_session_path_doubt(struct mr_endpoint *ep, struct mr_client_session *s)
{
    if (!s->established || !s->confirmed)
        return;
    if (!mr_path_doubt(&s->path, ep->now_us))
        return;
    mr_client_session_ack_slots(ep, s, 0); /* the last report of the size may be lost */
    mr_client_session_arm(ep, s);
}

void mr_client_session_path_hint(struct mr_endpoint *ep, struct mr_client_session *s, uint32_t udp_bytes,
                                 uint64_t now_us)
{
    mr_endpoint_set_now(ep, now_us);
    if (!s->established)
        return;
    ep->counters.path_hints++;
    mr_path_hint(&s->path, udp_bytes, ep->now_us);
    mr_client_session_arm(ep, s);
}

void mr_server_session_path_answer(struct mr_endpoint *ep, struct mr_server_session *session,
                                   const struct mr_packet *packet)
{
    if (MR_HEADER_BYTES + packet->header.payload_bytes > session->udp_bytes_max) {
        ep->counters.drop_range++;
        return;
    }
    (void)mr_transmit_control(ep, &session->peer, MR_PACKET_PATH, MR_FLAG_REPLY, packet->header.call_id,
                              padding, packet->header.payload_bytes);
}

/* ---- reports of routers ---- */

/* Returns whether a report is about a packet that was sent to this peer in its session, not long ago. */
static bool is_about(const struct mr_peer *peer, const struct mr_packet_header *h,
                     const struct mr_address *to)
{
    return peer->session_id == h->session_id && peer->incarnation == h->incarnation &&
           mr_address_equal(&peer->address, to) && h->number <= peer->sent_number &&
           peer->sent_number - h->number < MR_REPORTED_NUMBERS;
}

static struct mr_server_session *served_of(const struct mr_endpoint *ep, const struct mr_packet_header *h,
                                           const struct mr_address *to)
{
    uint32_t index = (uint32_t)(h->session_id >> MR_CORE_BITS) & (MR_SESSIONS_LIMIT - 1);
    if (ep->server_sessions == NULL || index >= ep->config.sessions_max || !ep->server_sessions[index].used)
        return NULL;
    return is_about(&ep->server_sessions[index].peer, h, to) ? &ep->server_sessions[index] : NULL;
}

/* Continues replies in segments that get through, and passes the report on to the client, which finds out the
 * size for both directions. */
static void narrow(struct mr_endpoint *ep, struct mr_server_session *session, uint32_t udp_bytes)
{
    uint32_t segment_bytes = udp_bytes - MR_HEADER_BYTES;
    if (session->narrow_bytes == segment_bytes && ep->now_us - session->narrow_us < MR_NARROW_AGAIN_US)
        return;
    session->narrow_bytes = segment_bytes;
    session->narrow_us = ep->now_us;
    ep->counters.path_hints++;
    if (segment_bytes < session->peer.segment_bytes) {
        ep->counters.path_shrank++;
        mr_server_session_set_segments(ep, session, segment_bytes);
    }
    struct mr_path_word word = {.udp_bytes = udp_bytes};
    (void)mr_transmit_control(ep, &session->peer, MR_PACKET_PATH, MR_FLAG_REPLY, 0, &word, sizeof(word));
}

static bool take_report(struct mr_endpoint *ep, const struct mr_address *to,
                        const struct mr_packet_header *header, uint32_t udp_bytes)
{
    if (header->magic != MR_MAGIC || header->version != MR_PROTOCOL_VERSION || header->session_id == 0 ||
        MR_HEADER_BYTES + header->payload_bytes <= udp_bytes ||
        !mr_budget_take(ep, &ep->hints_in_interval, 1, MR_HINTS_PER_INTERVAL))
        return false;
    udp_bytes = (udp_bytes > MR_UDP_BYTES_MIN ? udp_bytes : MR_UDP_BYTES_MIN) & ~7u;
    struct mr_server_session *session = served_of(ep, header, to);
    if (session != NULL) {
        narrow(ep, session, udp_bytes);
        return true;
    }
    struct mr_client_session *s =
        ep->client_sessions != NULL ? mr_client_session_lookup(ep, header->session_id, to) : NULL;
    if (s == NULL || !s->established || !is_about(&s->peer, header, to))
        return false;
    mr_client_session_path_hint(ep, s, udp_bytes, ep->now_us);
    return true;
}

void mr_endpoint_too_long(struct mr_endpoint *ep, uint64_t now_us, const struct mr_address *to,
                          const uint8_t *quoted, size_t quoted_bytes, uint32_t udp_bytes)
{
    struct mr_packet_header header = {0};
    mr_endpoint_set_now(ep, now_us);
    bool whole = quoted_bytes >= offsetof(struct mr_packet_header, tag);
    if (whole)
        memcpy(&header, quoted, offsetof(struct mr_packet_header, tag));
    if (!whole || !take_report(ep, to, &header, udp_bytes))
        ep->counters.path_hints_dropped++;
}
