/* Calling side: sessions as they are opened, found, kept alive and closed. */
#include <assert.h>
#include <string.h>

#include "dataplane/wire/endpoint_internal.h"

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

void mr_client_session_enter(struct mr_endpoint *ep, struct mr_client_session *s)
{
    uint32_t *bucket = id_bucket(ep, s->peer.session_id);
    s->next = *bucket;
    *bucket = (uint32_t)(s - ep->client_sessions) + 1;
}

void mr_client_session_leave(struct mr_endpoint *ep, struct mr_client_session *s)
{
    uint32_t *link = id_bucket(ep, s->peer.session_id);
    uint32_t number = (uint32_t)(s - ep->client_sessions) + 1;
    while (*link != number)
        link = &ep->client_sessions[*link - 1].next;
    *link = s->next;
}

/* ---- an established session's own timer ---- */

void mr_client_session_arm(struct mr_endpoint *ep, struct mr_client_session *s)
{
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
    /* The last one had no answer: perhaps we have another address now, under which the server does not know
     * us. */
    if (ep->now_us - s->peer.heard_us >= 2 * MR_KEEPALIVE_US)
        mr_connect_begin(ep, s);
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

void mr_client_session_timer(struct mr_endpoint *ep, struct mr_client_session *s)
{
    if (s->handshake == MR_HANDSHAKE_NONE) {
        if (s->unacked_at_us != 0 && s->unacked_at_us <= ep->now_us)
            ack_slots(ep, s);
        if (s->keepalive_at_us <= ep->now_us)
            keep_alive(ep, s);
        uint32_t generation = s->generation;
        mr_client_session_path_timer(ep, s);
        if (s->generation == generation && s->handshake == MR_HANDSHAKE_NONE)
            mr_client_session_arm(ep, s);
        return;
    }
    mr_connect_retry(ep, s);
}

/* ---- sessions ---- */

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
        mr_client_session_leave(ep, s);
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
    if (s->established && !s->away)
        mr_connect_begin(ep, s);
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
        .last_push_step = s->last_push_step,
        .rtt_us = s->rtt.smoothed_us,
        .silent_since_us = s->peer.heard_us,
        .calls_pending = s->calls_pending,
        .user = s->user,
    };
}
