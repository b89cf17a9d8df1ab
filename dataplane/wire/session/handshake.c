/* Calling side: from HELLO to ACCEPT, and what follows when the server is lost, restarted, or has forgotten
 * us.
 *
 * A session looks for its server with HELLOs that name it, under a nonce that is new in each handshake. A
 * server that still has the session answers with an ACCEPT of the same, and nothing has happened; one that
 * does not makes a new session, and the calls in flight are dealt with (mr_client_session_restart_calls). So
 * a RESET or a silence is only ever a reason to ask, and an old answer, late or played again, answers
 * nothing: the nonce is another's. */
#include <assert.h>
#include <string.h>

#include "dataplane/wire/endpoint_internal.h"

/* ---- handshake ---- */

static void send_hello(struct mr_endpoint *ep, struct mr_client_session *s)
{
    const struct mr_auth *auth = &ep->auth[0];
    struct mr_hello hello = {
        .boot_nonce = ep->boot_nonce,
        .client_nonce = s->client_nonce,
        .session_id = s->established ? s->peer.session_id : 0,
        .key_id = auth->key_id,
        .receive_buffer_bytes = ep->config.receive_window_bytes,
        .udp_bytes_max = (uint16_t)ep->config.udp_bytes_max,
        .window = (uint16_t)ep->config.window,
        .core = s->core,
    };
    memcpy(hello.client_uuid, ep->config.client_uuid, MR_UUID_BYTES);
    if (s->handshake == MR_HANDSHAKE_COOKIE) {
        memcpy(hello.cookie, s->cookie, MR_COOKIE_BYTES);
        mr_hello_prove(auth, &hello);
    }
    struct mr_packet_header header = {
        .magic = MR_MAGIC,
        .version = MR_PROTOCOL_VERSION,
        .type = MR_PACKET_HELLO,
        .payload_bytes = sizeof(hello),
        .call_id = s->client_nonce,
        .clock_us = (uint32_t)ep->now_us,
        .number = ++ep->hello_number,
    };
    (void)mr_transmit(ep, &s->peer.address, &auth->hello_key, &header, &hello);
}

/* Send the HELLO of this state and say when the next one is due: between 3/4 and 5/4 of the back-off, so that
 * clients of a restarted server do not come all at once. */
static void hello_next(struct mr_endpoint *ep, struct mr_client_session *s)
{
    uint64_t wait_us = (uint64_t)MR_HELLO_RETRY_US << (s->hello_tries < 8 ? s->hello_tries : 8);
    if (wait_us > MR_PTO_MAX_US)
        wait_us = MR_PTO_MAX_US;
    wait_us = wait_us * 3 / 4 + mr_endpoint_random(ep) % (wait_us / 2);
    s->hello_tries++;
    send_hello(ep, s);
    mr_timer_arm(&ep->wheel, &s->timer, ep->now_us, ep->now_us + wait_us);
}

/* Ask for a cookie. One that was sent for an earlier HELLO may be stale. */
static void without_cookie(struct mr_endpoint *ep, struct mr_client_session *s)
{
    s->handshake = MR_HANDSHAKE_HELLO;
    s->retry_from = ep->hello_number + 1;
}

void mr_connect_begin(struct mr_endpoint *ep, struct mr_client_session *s)
{
    if (s->handshake != MR_HANDSHAKE_NONE)
        return;
    without_cookie(ep, s);
    s->client_nonce = mr_endpoint_random(ep);
    s->hello_tries = 0;
    hello_next(ep, s);
}

void mr_connect_end(struct mr_endpoint *ep, struct mr_client_session *s)
{
    s->handshake = MR_HANDSHAKE_NONE;
    if (!s->confirmed)
        s->keepalive_at_us = ep->now_us + MR_CONFIRM_US;
    mr_client_session_arm(ep, s);
}

void mr_connect_retry(struct mr_endpoint *ep, struct mr_client_session *s)
{
    if (s->handshake == MR_HANDSHAKE_COOKIE && s->hello_tries % MR_HELLO_COOKIE_TRIES == 0)
        without_cookie(ep, s);
    hello_next(ep, s);
}

void mr_client_session_away(struct mr_endpoint *ep, struct mr_client_session *s)
{
    mr_connect_begin(ep, s);
    if (s->away)
        return;
    s->away = true;
    mr_client_session_notify(ep, s, MR_SESSION_AWAY);
}

static struct mr_client_session *find_handshake(const struct mr_endpoint *ep, const struct mr_packet *packet,
                                                uint64_t client_nonce)
{
    for (uint32_t i = 0; i < ep->config.sessions_max; i++) {
        struct mr_client_session *s = &ep->client_sessions[i];
        if (s->used && s->handshake != MR_HANDSHAKE_NONE && s->client_nonce == client_nonce &&
            mr_address_equal(&s->peer.address, packet->from))
            return s;
    }
    return NULL;
}

static void on_retry(struct mr_endpoint *ep, const struct mr_packet *packet)
{
    if (!mr_packet_verify(packet, &ep->auth[0].hello_key)) {
        ep->counters.drop_tag++;
        return;
    }
    struct mr_client_session *s = find_handshake(ep, packet, packet->header.call_id);
    if (s == NULL || s->handshake != MR_HANDSHAKE_HELLO || packet->header.number < s->retry_from) {
        ep->counters.drop_stale++;
        return;
    }
    memcpy(s->cookie, packet->payload, MR_COOKIE_BYTES);
    s->other_version = 0;
    mr_client_session_sample_rtt(ep, s, packet);
    s->handshake = MR_HANDSHAKE_COOKIE;
    s->hello_tries = 0;
    hello_next(ep, s);
}

static bool accept_in_range(const struct mr_endpoint *ep, const struct mr_client_session *s,
                            const struct mr_accept *accept)
{
    return accept->udp_bytes_max >= MR_UDP_BYTES_MIN && accept->udp_bytes_max <= ep->config.udp_bytes_max &&
           accept->udp_bytes_max % 8 == 0 && accept->window >= 1 && accept->window <= ep->config.window &&
           accept->core == s->core && accept->arrived_core < MR_CORE_MAX && accept->session_id != 0;
}

static void adopt(struct mr_endpoint *ep, struct mr_client_session *s, const struct mr_accept *accept)
{
    if (s->established)
        mr_client_session_leave(ep, s);
    s->established = true;
    s->peer.sent_number = 0;
    memset(&s->peer.numbers, 0, sizeof(s->peer.numbers));
    s->reset_number = 0;
    s->peer.session_id = accept->session_id;
    s->peer.incarnation = accept->incarnation;
    s->peer.segment_bytes = MR_SEGMENT_BYTES_MIN;
    mr_path_begin(&s->path, accept->udp_bytes_max, ep->now_us);
    s->peer.window = accept->window;
    s->grant_bytes = accept->grant_bytes;
    mr_flow_begin(ep, s);
    s->start_id = accept->start_id;
    s->core_count = accept->core_count;
    s->map_version = accept->map_version;
    s->next_call_id = 1;
    s->unacked_slots = 0;
    s->unacked_at_us = 0;
    s->confirmed = false;
    s->has_previous_key = false;
    mr_session_key(&ep->auth[0], accept->session_id, accept->incarnation, &s->peer.key);
    mr_client_session_enter(ep, s);
}

static void on_accept(struct mr_endpoint *ep, const struct mr_packet *packet)
{
    struct mr_accept accept;
    memcpy(&accept, packet->payload, sizeof(accept));
    if (!mr_packet_verify(packet, &ep->auth[0].hello_key)) {
        ep->counters.drop_tag++;
        return;
    }
    struct mr_client_session *s = find_handshake(ep, packet, accept.client_nonce);
    if (s == NULL) {
        ep->counters.drop_stale++;
        return;
    }
    if (!mr_accept_verify(&ep->auth[0], ep->config.client_uuid, ep->boot_nonce, &accept)) {
        ep->counters.drop_proof++;
        return;
    }
    if (!accept_in_range(ep, s, &accept)) {
        ep->counters.drop_range++;
        return;
    }
    mr_client_session_sample_rtt(ep, s, packet);
    s->peer.heard_us = ep->now_us;
    s->other_version = 0;
    s->last_push_step = accept.last_push_step;
    s->lineage = accept.lineage;
    s->restores = accept.restores;
    bool was_away = s->away, was_established = s->established;
    s->away = false;
    s->arrived_core = accept.arrived_core;
    if (was_established && s->peer.session_id == accept.session_id) {
        mr_connect_end(ep, s);
        if (was_away)
            mr_client_session_notify(ep, s, MR_SESSION_UP);
        return;
    }
    if (was_established) {
        ep->counters.sessions_restarted++;
        mr_client_session_restart_calls(ep, s);
        s->held = ep->config.hold_on_restart;
    }
    adopt(ep, s, &accept);
    mr_connect_end(ep, s);
    /* Shows the server that this was no replay, and that the session is to be kept. */
    (void)mr_transmit_control(ep, &s->peer, MR_PACKET_PING, MR_FLAG_PROBE, 0, NULL, 0);
    mr_peer_mark(ep, &s->peer);
    uint32_t generation = s->generation;
    mr_client_session_end_aborted(ep, s, MR_UNKNOWN_OUTCOME);
    if (s->generation == generation)
        mr_client_session_notify(ep, s, was_established ? MR_SESSION_RESTARTED : MR_SESSION_UP);
}

static void on_reset(struct mr_endpoint *ep, const struct mr_packet *packet)
{
    struct mr_client_session *s = mr_client_session_lookup(ep, packet->header.session_id, packet->from);
    if (s == NULL) {
        ep->counters.drop_session++;
        return;
    }
    if (packet->header.number <= s->reset_number || packet->header.number > s->peer.sent_number) {
        ep->counters.drop_repeated++;
        return;
    }
    if (!mr_keys_client_verify(s, packet)) {
        ep->counters.drop_tag++;
        return;
    }
    s->reset_number = packet->header.number;
    ep->counters.resets_received++;
    mr_connect_begin(ep, s);
}

void mr_connect_packet(struct mr_endpoint *ep, const struct mr_packet *packet)
{
    switch (packet->header.type) {
    case MR_PACKET_RETRY:
        on_retry(ep, packet);
        break;
    case MR_PACKET_ACCEPT:
        on_accept(ep, packet);
        break;
    default:
        on_reset(ep, packet);
        break;
    }
}
