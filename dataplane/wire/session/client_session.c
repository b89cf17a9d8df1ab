/* Calling side: a session from its opening to its end: HELLO to ACCEPT, keeping it alive, and what follows
 * when the server is unreachable, was restarted or has forgotten the session.
 *
 * A session looks for its server with HELLOs that name the session, under a nonce that is new in each
 * handshake. A server that still has the session answers with an ACCEPT of the same one, and nothing has
 * happened; one that does not makes a new session, and the calls in flight are dealt with
 * (mr_client_session_restart_calls). So a RESET or a silence is only ever a reason to ask, and an old answer,
 * delayed or replayed, has no effect: it has another nonce. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "dataplane/wire/endpoint_internal.h"
#include "dataplane/wire/format/capability.h"

/* ---- the table of sessions by id ---- */

static uint32_t *id_bucket(const struct mr_endpoint *ep, uint64_t session_id)
{
    uint64_t mixed = session_id * UINT64_C(0x9E3779B97F4A7C15);
    return &ep->client_buckets[(uint32_t)(mixed >> 40) & ep->bucket_mask];
}

struct mr_client_session *mr_client_session_lookup(const struct mr_endpoint *ep, uint64_t session_id,
                                                   const struct mr_address *from)
{
    for (uint32_t i = *id_bucket(ep, session_id); i != 0; i = ep->client_sessions[i - 1].next) {
        struct mr_client_session *s = &ep->client_sessions[i - 1];
        if (s->peer.session_id == session_id && mr_address_equal(&s->peer.address, from))
            return s;
    }
    return NULL;
}

static void table_enter(struct mr_endpoint *ep, struct mr_client_session *s)
{
    uint32_t *bucket = id_bucket(ep, s->peer.session_id);
    s->next = *bucket;
    *bucket = (uint32_t)(s - ep->client_sessions) + 1;
}

static void table_leave(struct mr_endpoint *ep, struct mr_client_session *s)
{
    uint32_t *link = id_bucket(ep, s->peer.session_id);
    uint32_t number = (uint32_t)(s - ep->client_sessions) + 1;
    while (*link != number)
        link = &ep->client_sessions[*link - 1].next;
    *link = s->next;
}

void mr_client_session_notify(struct mr_endpoint *ep, struct mr_client_session *s,
                              enum mr_client_session_event event)
{
    if (ep->config.on_session != NULL && !s->closing)
        ep->config.on_session(ep->config.app, s, event);
}

void mr_client_session_sample_rtt(struct mr_endpoint *ep, struct mr_client_session *s,
                                  const struct mr_packet *packet)
{
    uint32_t rtt_us = (uint32_t)ep->now_us - packet->header.clock_us;
    mr_rtt_sample(&s->rtt, rtt_us);
    mr_flow_round_trip(ep, s, rtt_us);
}

/* ---- its timer, and the slots that are over ---- */

void mr_client_session_arm(struct mr_endpoint *ep, struct mr_client_session *s)
{
    if (s->handshake != MR_HANDSHAKE_NONE) /* the timer is set for the next HELLO */
        return;
    uint64_t at_us = s->keepalive_at_us;
    if (s->unacked_at_us != 0 && s->unacked_at_us < at_us)
        at_us = s->unacked_at_us;
    if (s->path.at_us != 0 && s->path.at_us < at_us)
        at_us = s->path.at_us;
    mr_timer_arm(&ep->wheel, &s->timer, ep->now_us, at_us);
}

void mr_client_session_ack_slots(struct mr_endpoint *ep, struct mr_client_session *s, uint64_t slots)
{
    struct mr_ack ack = {
        .received_bytes = (uint32_t)s->next_call_id,
        .grant_bytes = (uint32_t)(s->next_call_id >> 32),
        .segment_bytes = s->peer.segment_bytes,
        .sack = {slots & ~s->busy_slots, s->replies.bytes},
    };
    s->told_window_bytes = s->replies.bytes;
    if ((s->unacked_slots & ~slots) == 0)
        s->unacked_bytes = 0;
    (void)mr_transmit_control(ep, &s->peer, MR_PACKET_ACK, MR_FLAG_REPLY, 0, &ack, sizeof(ack));
}

void mr_client_session_slot_over(struct mr_endpoint *ep, struct mr_client_session *s, uint32_t slot)
{
    s->unacked_slots |= UINT64_C(1) << slot;
    s->acked_once = false;
    if (s->unacked_at_us != 0 || s->handshake != MR_HANDSHAKE_NONE)
        return;
    s->unacked_at_us = ep->now_us + MR_SLOTS_ACK_US;
    mr_client_session_arm(ep, s);
}

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
        .version = ep->config.version,
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

/* Sends the HELLO of this state, and sets the timer for the next one: between 3/4 and 5/4 of the back-off, so
 * that clients of a restarted server do not all arrive at once. */
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

/* Begins again without a cookie. One that was sent for an earlier HELLO may be stale. */
static void without_cookie(struct mr_endpoint *ep, struct mr_client_session *s)
{
    s->handshake = MR_HANDSHAKE_HELLO;
    s->retry_from = ep->hello_number + 1;
}

void mr_client_session_connect(struct mr_endpoint *ep, struct mr_client_session *s)
{
    if (s->handshake != MR_HANDSHAKE_NONE)
        return;
    without_cookie(ep, s);
    s->client_nonce = mr_endpoint_random(ep);
    s->hello_tries = 0;
    hello_next(ep, s);
}

void mr_client_session_connected(struct mr_endpoint *ep, struct mr_client_session *s)
{
    s->handshake = MR_HANDSHAKE_NONE;
    if (!s->confirmed)
        s->keepalive_at_us = ep->now_us + MR_CONFIRM_US;
    mr_client_session_arm(ep, s);
}

static void hello_again(struct mr_endpoint *ep, struct mr_client_session *s)
{
    if (s->handshake == MR_HANDSHAKE_COOKIE && s->hello_tries % MR_HELLO_COOKIE_TRIES == 0)
        without_cookie(ep, s);
    hello_next(ep, s);
}

void mr_client_session_away(struct mr_endpoint *ep, struct mr_client_session *s)
{
    mr_client_session_connect(ep, s);
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
        table_leave(ep, s);
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
    s->unacked_bytes = 0;
    s->unacked_at_us = 0;
    s->confirmed = false;
    s->has_previous_key = false;
    mr_session_key(&ep->auth[0], accept->session_id, accept->incarnation, &s->peer.key);
    table_enter(ep, s);
}

static void on_accept(struct mr_endpoint *ep, const struct mr_packet *packet)
{
    struct mr_accept_long answer = {0};
    const struct mr_accept *accept = &answer.accept;
    const bool is_long = packet->header.payload_bytes == sizeof(answer);
    memcpy(&answer, packet->payload, packet->header.payload_bytes);
    if (!mr_packet_verify(packet, &ep->auth[0].hello_key)) {
        ep->counters.drop_tag++;
        return;
    }
    struct mr_client_session *s = find_handshake(ep, packet, accept->client_nonce);
    if (s == NULL) {
        ep->counters.drop_stale++;
        return;
    }
    if (!mr_accept_verify(&ep->auth[0], ep->config.client_uuid, ep->boot_nonce, accept,
                          is_long ? &answer.version : NULL)) {
        ep->counters.drop_proof++;
        return;
    }
    if (!accept_in_range(ep, s, accept)) {
        ep->counters.drop_range++;
        return;
    }
    mr_client_session_sample_rtt(ep, s, packet);
    s->peer.heard_us = ep->now_us;
    s->other_version = 0;
    s->version = answer.version;
    s->last_push_step = accept->last_push_step;
    s->lineage = accept->lineage;
    s->restores = accept->restores;
    bool was_away = s->away, was_established = s->established;
    s->away = false;
    s->arrived_core = accept->arrived_core;
    if (was_established && s->peer.session_id == accept->session_id) {
        mr_client_session_connected(ep, s);
        if (was_away)
            mr_client_session_notify(ep, s, MR_SESSION_UP);
        return;
    }
    if (was_established) {
        ep->counters.sessions_restarted++;
        mr_client_session_restart_calls(ep, s);
        s->held = ep->config.hold_on_restart;
    }
    adopt(ep, s, accept);
    mr_client_session_connected(ep, s);
    /* Proves to the server that this was no replay, so that it keeps the session. */
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
    if (!mr_client_session_verify(s, packet)) {
        ep->counters.drop_tag++;
        return;
    }
    s->reset_number = packet->header.number;
    ep->counters.resets_received++;
    mr_client_session_connect(ep, s);
}

void mr_client_session_handshake(struct mr_endpoint *ep, const struct mr_packet *packet)
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

/* ---- keep-alive ---- */

static void ack_slots(struct mr_endpoint *ep, struct mr_client_session *s)
{
    if ((s->unacked_slots & ~s->busy_slots) != 0)
        mr_client_session_ack_slots(ep, s, s->unacked_slots);
    if (s->acked_once) {
        s->unacked_slots = 0;
        s->unacked_at_us = 0;
    } else {
        s->unacked_at_us = ep->now_us + MR_SLOTS_ACK_AGAIN_US;
    }
    s->acked_once = !s->acked_once;
}

static void keep_alive(struct mr_endpoint *ep, struct mr_client_session *s)
{
    if (!s->confirmed || ep->now_us - s->peer.heard_us >= MR_KEEPALIVE_US / 2)
        (void)mr_transmit_control(ep, &s->peer, MR_PACKET_PING, MR_FLAG_PROBE, 0, NULL, 0);
    if (s->confirmed)
        mr_client_session_ack_slots(ep, s, ~UINT64_C(0));
    s->keepalive_at_us = ep->now_us + (s->confirmed ? MR_KEEPALIVE_US : MR_CONFIRM_US);
    /* The last one had no answer: perhaps our address has changed, and the server does not know us under
     * it. */
    if (ep->now_us - s->peer.heard_us >= 2 * MR_KEEPALIVE_US)
        mr_client_session_connect(ep, s);
}

void mr_client_session_timer(struct mr_endpoint *ep, struct mr_client_session *s)
{
    if (s->handshake == MR_HANDSHAKE_NONE) {
        if (s->unacked_at_us != 0 && s->unacked_at_us <= ep->now_us)
            ack_slots(ep, s);
        if (s->keepalive_at_us <= ep->now_us)
            keep_alive(ep, s);
        uint32_t generation = s->generation;
        mr_client_session_path_timer(ep, s);
        if (s->generation == generation)
            mr_client_session_arm(ep, s);
        return;
    }
    hello_again(ep, s);
}

/* ---- peers of another protocol version ---- */

void mr_client_session_other_version(struct mr_endpoint *ep, const struct mr_address *from,
                                     const struct mr_version_answer *answer)
{
    for (uint32_t i = 0; i < ep->config.sessions_max; i++) {
        struct mr_client_session *s = &ep->client_sessions[i];
        uint64_t echo[MR_VERSION_ECHO / sizeof(uint64_t)] = {0, s->client_nonce};
        if (s->used && s->handshake != MR_HANDSHAKE_NONE && mr_address_equal(&s->peer.address, from) &&
            memcmp(echo, answer->echo, sizeof(echo)) == 0) {
            s->other_version = answer->version;
            memcpy(s->other_text, answer->text, sizeof(s->other_text));
        }
    }
}

bool mr_client_session_version_text(const struct mr_client_session *session, const char *peer, char *text,
                                    size_t text_bytes)
{
    if (session->other_version == 0)
        return false;
    struct mr_peer_version other = {0};
    char version[MR_VERSION_TEXT_BYTES];
    memcpy(other.text, session->other_text, sizeof(other.text));
    mr_version_name(&other, version);
    snprintf(
        text, text_bytes,
        "the %s speaks version %u of the protocol, and this library version %u: upgrade the %s (they are "
        "%s and %s)",
        peer, session->other_version, MR_PROTOCOL_VERSION,
        session->other_version > MR_PROTOCOL_VERSION ? "library" : peer, version, mr_version_text());
    return true;
}

/* ---- open, close, describe ---- */

enum mr_status mr_client_session_open(struct mr_endpoint *ep, const struct mr_address *to, uint16_t core,
                                      void *user, struct mr_client_session **out)
{
    if (ep->client_sessions == NULL || core >= MR_CORE_MAX)
        return MR_INVALID_ARGUMENT;
    if (ep->client_sessions_free == 0 || ep->session_count >= ep->config.sessions_max)
        return MR_NO_MEMORY;
    struct mr_client_session *s = &ep->client_sessions[ep->client_sessions_free - 1];
    ep->client_sessions_free = s->next;
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
    mr_list_init(&s->aborted);
    for (uint32_t q = 0; q < MR_QUEUES; q++)
        mr_list_init(&s->queue[q]);
    ep->session_count++;
    s->handshake = MR_HANDSHAKE_HELLO;
    mr_timer_arm(&ep->wheel, &s->timer, ep->now_us, 0); /* the first HELLO goes out in the next poll */
    *out = s;
    return MR_OK;
}

void mr_client_session_close(struct mr_endpoint *ep, struct mr_client_session *s, uint64_t now_us)
{
    assert(s->used && !s->closing);
    mr_endpoint_set_now(ep, now_us);
    s->closing = true;
    mr_client_session_cancel_calls(ep, s);
    mr_timer_disarm(&ep->wheel, &s->timer);
    mr_list_remove(&s->peer.dirty);
    if (s->established) {
        (void)mr_transmit_control(ep, &s->peer, MR_PACKET_BYE, 0, 0, NULL, 0);
        table_leave(ep, s);
    }
    assert(mr_list_empty(&s->peer.turn) && mr_list_empty(&s->peer.parked) && s->peer.flight_bytes == 0);
    s->used = false;
    s->established = false;
    s->generation++;
    s->next = ep->client_sessions_free;
    ep->client_sessions_free = (uint32_t)(s - ep->client_sessions) + 1;
    ep->session_count--;
}

void mr_client_session_release(struct mr_endpoint *ep, struct mr_client_session *s, uint64_t now_us)
{
    mr_endpoint_set_now(ep, now_us);
    if (!s->held)
        return;
    s->held = false;
    mr_peer_mark(ep, &s->peer);
}

void mr_client_session_moved(struct mr_endpoint *ep, struct mr_client_session *s, uint64_t now_us)
{
    mr_endpoint_set_now(ep, now_us);
    s->handshake = MR_HANDSHAKE_NONE; /* one that has begun is of the way before */
    mr_client_session_connect(ep, s);
}

void mr_client_session_info(const struct mr_client_session *s, struct mr_client_session_info *out)
{
    *out = (struct mr_client_session_info){
        .up = s->established && !s->away,
        .held = s->held,
        .incarnation = s->peer.incarnation,
        .start_id = s->start_id,
        .lineage = s->lineage,
        .restores = s->restores,
        .core = s->core,
        .core_count = s->core_count,
        .arrived_core = s->arrived_core,
        .map_version = s->map_version,
        .segment_bytes = s->peer.segment_bytes,
        .path_known = s->path.confirmed,
        .path_narrow = s->path.narrow,
        .other_version = s->other_version,
        .version = s->version,
        .last_push_step = s->last_push_step,
        .rtt_us = s->rtt.smoothed_us,
        .silent_since_us = s->peer.heard_us,
        .calls_pending = s->calls_pending,
        .user = s->user,
    };
}
