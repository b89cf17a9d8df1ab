/* What the files that implement endpoint.h call of each other, and nobody else does.
 *
 *   endpoint.c        create, destroy, the way in (receive) and the clock (poll)
 *   transmit.c        packets out: headers and tags, bundles of small messages, turns of large ones
 *   server_session.c  serving side: HELLO to ACCEPT, sessions coming and going
 *   client_session.c  calling side: sessions opened, found, kept alive, closed
 *   handshake.c       calling side: HELLO to ACCEPT, lost and restarted servers
 *   server_request.c  serving side: requests in, slots
 *   keys.c            the keys in use, their rotation, packets under another key than expected
 *   server_reply.c    serving side: replies out, kept until they are acknowledged
 *   client_call.c     calling side: the life of a call
 *   client_rx.c       calling side: its packets in, its timers
 *   path_session.c    calling side: how large datagrams may be; serving side: answers about that
 *   version.c         both sides: peers of another protocol version
 *   client_window.c   calling side: how much of its requests, and of their replies, may be in flight
 */
#ifndef MR_ENDPOINT_INTERNAL_H
#define MR_ENDPOINT_INTERNAL_H

#include "dataplane/wire/endpoint_state.h"

/* A packet that passed mr_packet_parse(). */
struct mr_packet {
    struct mr_packet_header header;
    const uint8_t *datagram;
    const uint8_t *payload;
    const struct mr_address *from;
};

static inline bool mr_address_equal(const struct mr_address *a, const struct mr_address *b)
{
    return a->port == b->port && __builtin_memcmp(a->ip, b->ip, sizeof(a->ip)) == 0;
}

/* Reads all of the packet: to be asked once the cheap checks have passed. */
static inline bool mr_packet_verify(const struct mr_packet *packet, const struct mr_tag_key *key)
{
    return mr_tag_verify(key, packet->datagram, MR_HEADER_BYTES + packet->header.payload_bytes);
}

/* The user's clock, as each of its calls tells it; it never goes back. */
static inline void mr_endpoint_set_now(struct mr_endpoint *ep, uint64_t now_us)
{
    if (now_us > ep->now_us)
        ep->now_us = now_us;
}

uint64_t mr_endpoint_random(struct mr_endpoint *ep);

/* ---- transmit.c ---- */

/* Send one packet; the header's payload_bytes says how long `payload` is. False: no room now. */
bool mr_transmit(struct mr_endpoint *ep, const struct mr_address *to, const struct mr_tag_key *key,
                 const struct mr_packet_header *header, const void *payload);
/* Within a session. */
bool mr_transmit_control(struct mr_endpoint *ep, struct mr_peer *peer, enum mr_packet_type type,
                         uint16_t flags, uint64_t call_id, const void *payload, uint16_t payload_bytes);
bool mr_transmit_ack(struct mr_endpoint *ep, struct mr_peer *peer, uint16_t flags, uint64_t call_id,
                     uint32_t received_bytes);
void mr_peer_init(struct mr_peer *peer, bool serving);
void mr_peer_mark(struct mr_endpoint *ep, struct mr_peer *peer);
/* Queue the slot's message of one segment for the next flush. */
void mr_peer_ready(struct mr_endpoint *ep, struct mr_peer *peer, uint32_t slot);
/* Give the message its turn among the senders if it may send something. */
void mr_tx_message_activate(struct mr_endpoint *ep, struct mr_tx_message *sending);
/* Take in a report about it, and go on as it allows. False: the report cannot be about it. */
bool mr_tx_message_report(struct mr_endpoint *ep, struct mr_tx_message *sending, const struct mr_ack *ack,
                          uint32_t losses_from);
/* There is more room in flight: its parked messages may try. */
void mr_peer_unpark(struct mr_endpoint *ep, struct mr_peer *peer);
/* Go on in shorter segments, if those it has are longer. */
void mr_tx_message_shorten(struct mr_endpoint *ep, struct mr_tx_message *sending, uint32_t segment_bytes);
/* Off all lists; what it had in flight no longer counts. */
void mr_tx_message_stop(struct mr_endpoint *ep, struct mr_tx_message *sending);
/* Flush all; false when the port had no room. */
bool mr_transmit_flush(struct mr_endpoint *ep);
/* Segments of large messages: higher priorities first, sessions of one priority in turn, and the messages of
 * one session in turn among themselves. */
void mr_transmit_senders(struct mr_endpoint *ep, uint32_t segment_budget);
/* Nothing waits for a turn. */
bool mr_transmit_idle(const struct mr_endpoint *ep);

/* ---- server_session.c ---- */

void mr_accept_hello(struct mr_endpoint *ep, const struct mr_packet *packet);
/* The head of an answer to a packet of no session, or of none that is known. */
struct mr_packet_header mr_answer_header(const struct mr_endpoint *ep, const struct mr_packet *packet,
                                         enum mr_packet_type type, uint16_t payload_bytes);
/* The first packet under the session's key has come. */
void mr_server_session_confirm(struct mr_endpoint *ep, struct mr_server_session *session);
void mr_server_session_drop(struct mr_endpoint *ep, struct mr_server_session *session);
void mr_server_session_timer(struct mr_endpoint *ep, struct mr_server_session *session);

/* ---- keys.c ---- */

/* Take over the configured keys; no copy of them stays in the configuration. */
void mr_keys_init(struct mr_endpoint *ep);
/* Whether the packet is under the session's key, or its client has gone over to another of ours: then the
 * session has. */
bool mr_keys_server_verify(struct mr_endpoint *ep, struct mr_server_session *session,
                           const struct mr_packet *packet);
/* Nothing is known of the session. If the packet proves that somebody with a key of ours made it, say so with
 * a RESET, under that same session's key. A hint: the client looks for itself with a HELLO. */
void mr_keys_unknown_session(struct mr_endpoint *ep, const struct mr_packet *packet);
bool mr_keys_client_verify(struct mr_client_session *session, const struct mr_packet *packet);

/* What is costly, and anybody can cause: true, and `cost` is counted, if less than `limit` is spent in this
 * interval. `spent` is one of the endpoint's `..._in_interval`. */
bool mr_budget_take(struct mr_endpoint *ep, uint32_t *spent, uint32_t cost, uint32_t limit);

/* ---- version.c ---- */

/* A datagram that was dropped because of its version. */
void mr_version_packet(struct mr_endpoint *ep, const struct mr_address *from, const uint8_t *datagram,
                       size_t datagram_bytes);

/* ---- server_request.c ---- */

void mr_serve_packet(struct mr_endpoint *ep, const struct mr_packet *packet);
/* Message memory for the slot. NULL when there is none, or when the session holds its share, in other slots
 * too. */
void *mr_slot_alloc(struct mr_endpoint *ep, struct mr_server_session *session, const struct mr_slot *slot,
                    size_t bytes);
/* After that failed: it would fail even if no other call held memory, beside `beside_bytes` of the same
 * call. */
bool mr_slot_fits_never(const struct mr_endpoint *ep, const struct mr_server_session *session,
                        const struct mr_slot *slot, size_t bytes, size_t beside_bytes);
/* Give back such a block; NULL is fine. */
void mr_slot_free(struct mr_endpoint *ep, struct mr_server_session *session, void *block);
/* Give back what the slot holds, whatever its state. */
void mr_slot_clear(struct mr_endpoint *ep, struct mr_server_session *session, struct mr_slot *slot);
/* Answer the slot's call, which holds nothing, with BUSY: it will not be executed under this id. */
void mr_slot_refuse(struct mr_endpoint *ep, struct mr_server_session *session, struct mr_slot *slot);

/* ---- server_reply.c ---- */

/* The message that stands in a slot marked ready. `status_message` (a preamble long, aligned) is used for
 * those without tensors. */
const uint8_t *mr_slot_message(const struct mr_endpoint *ep, const struct mr_slot *slot,
                               uint8_t *status_message);
/* A request that was taken in whole is sent again, or asked about: with `probe` the client has waited for it
 * in vain. */
void mr_reply_repeat(struct mr_endpoint *ep, struct mr_server_session *session, struct mr_slot *slot,
                     bool probe);
/* Segments of replies are so long from now on, also of those on their way if they were longer. */
void mr_server_session_set_segments(struct mr_endpoint *ep, struct mr_server_session *session,
                                    uint32_t segment_bytes);
void mr_reply_acked(struct mr_endpoint *ep, struct mr_server_session *session,
                    const struct mr_packet *packet);

/* ---- client_session.c ---- */

/* By id and address alone. */
struct mr_client_session *mr_client_session_lookup(const struct mr_endpoint *ep, uint64_t session_id,
                                                   const struct mr_address *from);
/* Into, and out of, the table that they are found in; under the id the peer has at the time. */
void mr_client_session_enter(struct mr_endpoint *ep, struct mr_client_session *session);
void mr_client_session_leave(struct mr_endpoint *ep, struct mr_client_session *session);
void mr_client_session_timer(struct mr_endpoint *ep, struct mr_client_session *session);
/* For the next keep-alive or acknowledgement of slots. */
void mr_client_session_arm(struct mr_endpoint *ep, struct mr_client_session *session);
void mr_client_session_notify(struct mr_endpoint *ep, struct mr_client_session *session,
                              enum mr_client_session_event event);
void mr_client_session_sample_rtt(struct mr_endpoint *ep, struct mr_client_session *session,
                                  const struct mr_packet *packet);
/* The call in the slot is over, and the server keeps what it has of it until it learns so. */
void mr_client_session_slot_over(struct mr_endpoint *ep, struct mr_client_session *session, uint32_t slot);

/* Say that the calls in these slots are over, and how much of replies may be in flight. */
void mr_client_session_ack_slots(struct mr_endpoint *ep, struct mr_client_session *session, uint64_t slots);

/* ---- path_session.c ---- */

void mr_client_session_path_timer(struct mr_endpoint *ep, struct mr_client_session *session);
/* The session may be closed afterwards. */
void mr_client_session_path_packet(struct mr_endpoint *ep, struct mr_client_session *session,
                                   const struct mr_packet *packet);
/* What was sent goes unanswered again and again. */
void mr_client_session_path_doubt(struct mr_endpoint *ep, struct mr_client_session *session);
void mr_server_session_path_answer(struct mr_endpoint *ep, struct mr_server_session *session,
                                   const struct mr_packet *packet);

/* ---- client_window.c ---- */

/* The session has been accepted: nothing is known of its path. */
void mr_flow_begin(struct mr_endpoint *ep, struct mr_client_session *session);
/* Segments are of another size now. */
void mr_flow_resize(struct mr_client_session *session, uint32_t segment_bytes);
void mr_flow_round_trip(struct mr_endpoint *ep, struct mr_client_session *session, uint32_t rtt_us);
/* So many segments have arrived for the first time, so many others turn out to be lost. */
void mr_flow_request_segments(struct mr_endpoint *ep, struct mr_client_session *session, uint32_t arrived,
                              uint32_t lost);
void mr_flow_reply_segments(struct mr_endpoint *ep, struct mr_client_session *session, uint32_t arrived,
                            uint32_t lost);
/* Most of what was in flight is lost, and probes in a row with it. */
void mr_flow_request_lost(struct mr_endpoint *ep, struct mr_client_session *session);

/* ---- handshake.c ---- */

void mr_connect_packet(struct mr_endpoint *ep, const struct mr_packet *packet); /* RETRY, ACCEPT, RESET */
void mr_connect_begin(struct mr_endpoint *ep, struct mr_client_session *session);
/* The time for an answer to the last HELLO is up. */
void mr_connect_retry(struct mr_endpoint *ep, struct mr_client_session *session);
void mr_connect_end(struct mr_endpoint *ep, struct mr_client_session *session);
/* Nothing was heard for too long. */
void mr_client_session_away(struct mr_endpoint *ep, struct mr_client_session *session);

/* ---- client_call.c ---- */

/* Give slots to waiting calls, as far as there are free ones. */
void mr_client_session_start_calls(struct mr_endpoint *ep, struct mr_client_session *session);
/* The session was opened again: all slots are freed. What cannot be repeated is aborted, the rest waits for a
 * slot again. */
void mr_client_session_restart_calls(struct mr_endpoint *ep, struct mr_client_session *session);
void mr_client_session_end_aborted(struct mr_endpoint *ep, struct mr_client_session *session,
                                   enum mr_status status);
/* The session is being closed: end all with MR_CANCELLED. */
void mr_client_session_cancel_calls(struct mr_endpoint *ep, struct mr_client_session *session);
/* End the call, if it has not ended; its slot stays taken. The call must not be touched afterwards. */
void mr_call_end(struct mr_endpoint *ep, struct mr_call *call, enum mr_status status,
                 const struct mr_message *reply);
/* The server has answered, or will never execute it: the slot is free for the next call. */
void mr_call_release_slot(struct mr_endpoint *ep, struct mr_call *call);
/* Write into the request how much time there is until its deadline. */
void mr_call_set_time_left(const struct mr_endpoint *ep, const struct mr_call *call);
/* Send the request, from its first byte on, in the slot it has. */
void mr_call_transmit(struct mr_endpoint *ep, struct mr_call *call);
/* The same after a BUSY: under a new id of the same slot, for the old one is over. */
void mr_call_transmit_again(struct mr_endpoint *ep, struct mr_call *call);
/* Its request is of several segments. */
static inline bool mr_call_is_cut(const struct mr_call *call)
{
    return call->request_bytes > call->segment_bytes;
}
/* If its request is on its way, it goes on in segments that get through now. */
void mr_call_shorten(struct mr_endpoint *ep, struct mr_call *call);
/* See to it that the call's timer fires at its next probe or deadline; it may fire earlier. */
void mr_call_arm(struct mr_endpoint *ep, struct mr_call *call);

/* ---- client_rx.c ---- */

void mr_call_packet(struct mr_endpoint *ep, const struct mr_packet *packet);
void mr_call_timer(struct mr_endpoint *ep, struct mr_call *call);
/* Something of the request went out. */
void mr_call_sent(struct mr_endpoint *ep, struct mr_call *call, bool whole);

#endif
