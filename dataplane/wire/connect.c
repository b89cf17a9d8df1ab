/* Calling side: from HELLO to ACCEPT, and what follows when the server is lost, restarted, or has forgotten us.
 *
 * A session looks for its server with HELLOs under one and the same client nonce. A server that still has the session
 * answers with the same ACCEPT, and nothing has happened; one that does not makes a new session, and the calls under way
 * are dealt with (mr_session_restart_calls). So a RESET or a silence is only ever a reason to ask. */
#include <assert.h>
#include <string.h>

#include "dataplane/wire/endpoint_internal.h"

/* ---- the table of sessions by id ---- */

static uint32_t *id_bucket(const struct mr_endpoint *ep, uint64_t session_id)
{
    uint64_t mixed = session_id * UINT64_C(0x9E3779B97F4A7C15);
    return &ep->session_buckets[(uint32_t)(mixed >> 40) & ep->bucket_mask];
}

static struct mr_session *find_id(const struct mr_endpoint *ep, uint64_t session_id,
                                  const struct mr_address *from)
{
    for (uint32_t i = *id_bucket(ep, session_id); i != 0; i = ep->sessions[i - 1].next) {
        struct mr_session *s = &ep->sessions[i - 1];
        if (s->peer.session_id == session_id && mr_address_equal(&s->peer.address, from))
            return s;
    }
    return NULL;
}

static void table_insert(struct mr_endpoint *ep, struct mr_session *s)
{
    uint32_t *bucket = id_bucket(ep, s->peer.session_id);
    s->next = *bucket;
    *bucket = (uint32_t)(s - ep->sessions) + 1;
}

static void table_remove(struct mr_endpoint *ep, struct mr_session *s)
{
    uint32_t *link = id_bucket(ep, s->peer.session_id);
    uint32_t number = (uint32_t)(s - ep->sessions) + 1;
    while (*link != number)
        link = &ep->sessions[*link - 1].next;
    *link = s->next;
}

/* ---- handshake ---- */

static void send_hello(struct mr_endpoint *ep, struct mr_session *s)
{
    const struct mr_auth *auth = &ep->auth[0];
    struct mr_hello hello = {
        .boot_nonce = ep->boot_nonce,
        .client_nonce = s->client_nonce,
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
    };
    (void)mr_transmit(ep, &s->peer.address, &auth->hello_key, &header, &hello);
}

/* Send the HELLO of this state and say when the next one is due: between 3/4 and 5/4 of the back-off, so that clients of a
 * restarted server do not come all at once. */
static void hello_next(struct mr_endpoint *ep, struct mr_session *s)
{
    uint64_t wait_us = (uint64_t)MR_HELLO_RETRY_US << (s->hello_tries < 8 ? s->hello_tries : 8);
    if (wait_us > MR_PTO_MAX_US)
        wait_us = MR_PTO_MAX_US;
    wait_us = wait_us * 3 / 4 + mr_endpoint_random(ep) % (wait_us / 2);
    s->hello_tries++;
    send_hello(ep, s);
    mr_timer_arm(&ep->wheel, &s->timer, ep->now_us, ep->now_us + wait_us);
}

static void handshake_begin(struct mr_endpoint *ep, struct mr_session *s)
{
    if (s->handshake != MR_HANDSHAKE_NONE)
        return;
    s->handshake = MR_HANDSHAKE_HELLO;
    s->hello_tries = 0;
    hello_next(ep, s);
}

static void arm(struct mr_endpoint *ep, struct mr_session *s)
{
    uint64_t at_us = s->keepalive_at_us;
    if (s->unacked_at_us != 0 && s->unacked_at_us < at_us)
        at_us = s->unacked_at_us;
    mr_timer_arm(&ep->wheel, &s->timer, ep->now_us, at_us);
}

static void handshake_end(struct mr_endpoint *ep, struct mr_session *s)
{
    s->handshake = MR_HANDSHAKE_NONE;
    if (!s->confirmed)
        s->keepalive_at_us = ep->now_us + MR_CONFIRM_US;
    arm(ep, s);
}

/* ---- an established session's own timer ---- */

static void send_slots_ack(struct mr_endpoint *ep, struct mr_session *s, uint64_t slots)
{
    struct mr_ack ack = {
        .received_bytes = (uint32_t)s->next_call_id,
        .grant_bytes = (uint32_t)(s->next_call_id >> 32),
        .sack = {slots & ~s->busy_slots},
    };
    if (ack.sack[0] != 0)
        (void)mr_transmit_control(ep, &s->peer, MR_PACKET_ACK, MR_FLAG_REPLY, 0, &ack, sizeof(ack));
}

void mr_session_reply_came(struct mr_endpoint *ep, struct mr_session *s, uint32_t slot)
{
    s->unacked_slots |= UINT64_C(1) << slot;
    s->acked_once = false;
    if (s->unacked_at_us != 0 || s->handshake != MR_HANDSHAKE_NONE)
        return;
    s->unacked_at_us = ep->now_us + MR_SLOTS_ACK_US;
    arm(ep, s);
}

static void ack_slots(struct mr_endpoint *ep, struct mr_session *s)
{
    send_slots_ack(ep, s, s->unacked_slots);
    if (s->acked_once) {
        s->unacked_slots = 0;
        s->unacked_at_us = 0;
    } else {
        s->unacked_at_us = ep->now_us + MR_SLOTS_ACK_AGAIN_US;
    }
    s->acked_once = !s->acked_once;
}

static void keep_alive(struct mr_endpoint *ep, struct mr_session *s)
{
    if (!s->confirmed || ep->now_us - s->peer.heard_us >= MR_KEEPALIVE_US / 2)
        (void)mr_transmit_control(ep, &s->peer, MR_PACKET_PING, MR_FLAG_PROBE, 0, NULL, 0);
    if (s->confirmed)
        send_slots_ack(ep, s, ~UINT64_C(0));
    s->keepalive_at_us = ep->now_us + (s->confirmed ? MR_KEEPALIVE_US : MR_CONFIRM_US);
}

static void tell(struct mr_endpoint *ep, struct mr_session *s, enum mr_session_event event)
{
    if (ep->config.on_session != NULL && !s->closing)
        ep->config.on_session(ep->config.app, s, event);
}

void mr_session_timer(struct mr_endpoint *ep, struct mr_session *s)
{
    if (s->handshake == MR_HANDSHAKE_NONE) {
        if (s->unacked_at_us != 0 && s->unacked_at_us <= ep->now_us)
            ack_slots(ep, s);
        if (s->keepalive_at_us <= ep->now_us)
            keep_alive(ep, s);
        arm(ep, s);
        return;
    }
    if (s->handshake == MR_HANDSHAKE_COOKIE && s->hello_tries % MR_HELLO_COOKIE_TRIES == 0)
        s->handshake = MR_HANDSHAKE_HELLO; /* the cookie may be stale */
    hello_next(ep, s);
}

void mr_session_away(struct mr_endpoint *ep, struct mr_session *s)
{
    handshake_begin(ep, s);
    if (s->away)
        return;
    s->away = true;
    tell(ep, s, MR_SESSION_AWAY);
}

static void sample_rtt(struct mr_endpoint *ep, struct mr_session *s, const struct mr_packet *packet)
{
    mr_rtt_sample(&s->rtt, (uint32_t)ep->now_us - packet->header.clock_us);
}

static struct mr_session *find_handshake(const struct mr_endpoint *ep, const struct mr_packet *packet,
                                         uint64_t client_nonce)
{
    for (uint32_t i = 0; i < ep->config.sessions_max; i++) {
        struct mr_session *s = &ep->sessions[i];
        if (s->used && s->handshake != MR_HANDSHAKE_NONE && s->client_nonce == client_nonce &&
            mr_address_equal(&s->peer.address, packet->from))
            return s;
    }
    return NULL;
}

static void on_retry(struct mr_endpoint *ep, const struct mr_packet *packet)
{
    if (!mr_tag_verify(&ep->auth[0].hello_key, packet->datagram)) {
        ep->counters.drop_tag++;
        return;
    }
    struct mr_session *s = find_handshake(ep, packet, packet->header.call_id);
    if (s == NULL || s->handshake != MR_HANDSHAKE_HELLO) {
        ep->counters.drop_stale++;
        return;
    }
    memcpy(s->cookie, packet->payload, MR_COOKIE_BYTES);
    sample_rtt(ep, s, packet);
    s->handshake = MR_HANDSHAKE_COOKIE;
    s->hello_tries = 0;
    hello_next(ep, s);
}

static bool is_dead(const struct mr_session *s, uint64_t session_id)
{
    for (uint32_t i = 0; i < MR_DEAD_SESSIONS && i < s->dead_count; i++)
        if (s->dead_ids[i] == session_id)
            return true;
    return false;
}

static bool accept_in_range(const struct mr_endpoint *ep, const struct mr_session *s,
                            const struct mr_accept *accept)
{
    return accept->udp_bytes_max >= MR_UDP_BYTES_MIN && accept->udp_bytes_max <= ep->config.udp_bytes_max &&
           accept->udp_bytes_max % 8 == 0 && accept->window >= 1 && accept->window <= ep->config.window &&
           accept->core == s->core && accept->session_id != 0;
}

static void adopt(struct mr_endpoint *ep, struct mr_session *s, const struct mr_accept *accept)
{
    if (s->established) {
        s->dead_ids[s->dead_count++ % MR_DEAD_SESSIONS] = s->peer.session_id;
        table_remove(ep, s);
    }
    s->established = true;
    s->peer.session_id = accept->session_id;
    s->peer.incarnation = accept->incarnation;
    s->peer.segment_bytes = accept->udp_bytes_max - MR_HEADER_BYTES;
    s->peer.window = accept->window;
    s->grant_bytes = mr_window_clamp(accept->grant_bytes, s->peer.segment_bytes);
    s->peer.flight_limit_bytes = s->grant_bytes;
    s->core_count = accept->core_count;
    s->map_version = accept->map_version;
    s->next_call_id = 1;
    s->unacked_slots = 0;
    s->unacked_at_us = 0;
    s->confirmed = false;
    mr_session_key(&ep->auth[0], accept, ep->config.client_uuid, &s->peer.key);
    table_insert(ep, s);
}

static void on_accept(struct mr_endpoint *ep, const struct mr_packet *packet)
{
    struct mr_accept accept;
    memcpy(&accept, packet->payload, sizeof(accept));
    if (!mr_tag_verify(&ep->auth[0].hello_key, packet->datagram)) {
        ep->counters.drop_tag++;
        return;
    }
    struct mr_session *s = find_handshake(ep, packet, accept.client_nonce);
    if (s == NULL || is_dead(s, accept.session_id)) {
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
    sample_rtt(ep, s, packet);
    s->peer.heard_us = ep->now_us;
    s->last_push_step = accept.last_push_step;
    bool was_away = s->away, was_established = s->established;
    s->away = false;
    if (was_established && s->peer.session_id == accept.session_id) {
        handshake_end(ep, s);
        if (was_away)
            tell(ep, s, MR_SESSION_UP);
        return;
    }
    if (was_established) {
        ep->counters.sessions_restarted++;
        mr_session_restart_calls(ep, s);
    }
    adopt(ep, s, &accept);
    handshake_end(ep, s);
    /* Shows the server that this was no replay, and that the session is to be kept. */
    (void)mr_transmit_control(ep, &s->peer, MR_PACKET_PING, MR_FLAG_PROBE, 0, NULL, 0);
    mr_peer_mark(ep, &s->peer);
    uint32_t generation = s->generation;
    mr_session_end_doomed(ep, s, MR_UNKNOWN_OUTCOME);
    if (s->generation == generation)
        tell(ep, s, was_established ? MR_SESSION_RESTARTED : MR_SESSION_UP);
}

static void on_reset(struct mr_endpoint *ep, const struct mr_packet *packet)
{
    struct mr_session *s = find_id(ep, packet->header.session_id, packet->from);
    if (s == NULL) {
        ep->counters.drop_session++;
        return;
    }
    if (!mr_tag_verify(&ep->auth[0].hello_key, packet->datagram)) {
        ep->counters.drop_tag++;
        return;
    }
    ep->counters.resets_received++;
    handshake_begin(ep, s);
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

/* ---- sessions ---- */

struct mr_session *mr_session_find(struct mr_endpoint *ep, const struct mr_packet *packet)
{
    struct mr_session *s = find_id(ep, packet->header.session_id, packet->from);
    if (s == NULL || !s->established || packet->header.incarnation != s->peer.incarnation) {
        ep->counters.drop_session++;
        return NULL;
    }
    if (!mr_tag_verify(&s->peer.key, packet->datagram)) {
        ep->counters.drop_tag++;
        return NULL;
    }
    sample_rtt(ep, s, packet);
    s->peer.heard_us = ep->now_us;
    s->confirmed = true;
    if (s->away) {
        s->away = false;
        handshake_end(ep, s);
        uint32_t generation = s->generation;
        tell(ep, s, MR_SESSION_UP);
        if (s->generation != generation)
            return NULL;
    }
    return s;
}

enum mr_status mr_session_open(struct mr_endpoint *ep, const struct mr_address *to, uint16_t core, void *user,
                               struct mr_session **out)
{
    if (ep->sessions == NULL || core >= MR_CORE_MAX)
        return MR_INVALID_ARGUMENT;
    if (ep->sessions_free == 0 || ep->session_count >= ep->config.sessions_max)
        return MR_NO_MEMORY;
    struct mr_session *s = &ep->sessions[ep->sessions_free - 1];
    ep->sessions_free = s->next;
    uint32_t generation = s->generation;
    memset(s, 0, sizeof(*s));
    s->generation = generation;
    mr_peer_init(&s->peer, false);
    s->peer.address = *to;
    s->peer.window = ep->config.window;
    s->ep = ep;
    s->user = user;
    s->core = core;
    s->used = true;
    s->timer.kind = MR_TIMER_SESSION;
    s->client_nonce = mr_endpoint_random(ep);
    mr_list_init(&s->built);
    mr_list_init(&s->doomed);
    for (uint32_t p = 0; p < MR_PRIORITIES; p++)
        mr_list_init(&s->queue[p]);
    ep->session_count++;
    s->handshake = MR_HANDSHAKE_HELLO;
    mr_timer_arm(&ep->wheel, &s->timer, ep->now_us, 0); /* the first HELLO goes out in the next poll */
    *out = s;
    return MR_OK;
}

void mr_session_close(struct mr_endpoint *ep, struct mr_session *s, uint64_t now_us)
{
    assert(s->used && !s->closing);
    ep->now_us = now_us > ep->now_us ? now_us : ep->now_us;
    s->closing = true;
    mr_session_cancel_calls(ep, s);
    mr_timer_disarm(&ep->wheel, &s->timer);
    mr_list_remove(&s->peer.dirty);
    if (s->established) {
        (void)mr_transmit_control(ep, &s->peer, MR_PACKET_BYE, 0, 0, NULL, 0);
        table_remove(ep, s);
    }
    assert(mr_list_empty(&s->peer.parked) && s->peer.flight_bytes == 0);
    s->used = false;
    s->established = false;
    s->generation++;
    s->next = ep->sessions_free;
    ep->sessions_free = (uint32_t)(s - ep->sessions) + 1;
    ep->session_count--;
}

void mr_session_info(const struct mr_session *s, struct mr_session_info *out)
{
    *out = (struct mr_session_info){
        .up = s->established && !s->away,
        .incarnation = s->peer.incarnation,
        .core = s->core,
        .core_count = s->core_count,
        .map_version = s->map_version,
        .segment_bytes = s->peer.segment_bytes,
        .last_push_step = s->last_push_step,
        .rtt_us = s->rtt.smoothed_us,
        .silent_since_us = s->peer.heard_us,
        .calls_pending = s->calls_pending,
        .user = s->user,
    };
}
