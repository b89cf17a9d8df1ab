/* Packets out: headers and tags, bundles of small messages, and turns of large ones. */
#include <assert.h>
#include <string.h>

#include "dataplane/wire/base/bytes.h"
#include "dataplane/wire/base/number.h"
#include "dataplane/wire/base/xxh3.h"
#include "dataplane/wire/endpoint_internal.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "headers are stored as they stand in memory");

static void count_sent(struct mr_endpoint *ep, uint32_t bytes)
{
    ep->counters.tx_packets++;
    ep->counters.tx_bytes += bytes;
}

/* Begins a datagram with its header. NULL: the port has no room. */
static uint8_t *datagram_begin(struct mr_endpoint *ep, const struct mr_address *to,
                               const struct mr_packet_header *header)
{
    uint8_t *datagram =
        ep->config.io.tx_begin(ep->config.io.self, to, MR_HEADER_BYTES + header->payload_bytes);
    if (datagram == NULL)
        ep->counters.tx_no_room++;
    else
        memcpy(datagram, header, MR_HEADER_BYTES);
    return datagram;
}

/* Its payload is there, with this XXH3-64. */
static void datagram_end(struct mr_endpoint *ep, const struct mr_tag_key *key, uint8_t *datagram,
                         uint32_t payload_bytes, uint64_t payload_hash)
{
    const uint32_t bytes = MR_HEADER_BYTES + payload_bytes;
    mr_tag_write_hashed(key, datagram, payload_hash);
    ep->config.io.tx_end(ep->config.io.self, bytes);
    count_sent(ep, bytes);
}

bool mr_transmit(struct mr_endpoint *ep, const struct mr_address *to, const struct mr_tag_key *key,
                 const struct mr_packet_header *header, const void *payload)
{
    uint8_t *datagram = datagram_begin(ep, to, header);
    if (datagram == NULL)
        return false;
    datagram_end(ep, key, datagram, header->payload_bytes,
                 mr_xxh3_64_copy(datagram + MR_HEADER_BYTES, payload, header->payload_bytes));
    return true;
}

/* The serving side echoes the client's clock plus the time since it arrived, so that the client measures the
 * network and not the handler. */
static struct mr_packet_header peer_header(const struct mr_endpoint *ep, struct mr_peer *peer,
                                           enum mr_packet_type type, uint16_t flags, uint64_t call_id)
{
    uint32_t now_us = (uint32_t)ep->now_us;
    return (struct mr_packet_header){
        .magic = MR_MAGIC,
        .version = MR_PROTOCOL_VERSION,
        .type = (uint8_t)type,
        .flags = flags,
        .session_id = peer->session_id,
        .call_id = call_id,
        .incarnation = peer->incarnation,
        .clock_us = peer->serving ? peer->clock_us + (now_us - peer->clock_heard_us) : now_us,
        .number = ++peer->sent_number,
    };
}

bool mr_transmit_control(struct mr_endpoint *ep, struct mr_peer *peer, enum mr_packet_type type,
                         uint16_t flags, uint64_t call_id, const void *payload, uint16_t payload_bytes)
{
    struct mr_packet_header header = peer_header(ep, peer, type, flags, call_id);
    header.payload_bytes = payload_bytes;
    return mr_transmit(ep, &peer->address, &peer->key, &header, payload);
}

static bool transmit_segment(struct mr_endpoint *ep, struct mr_peer *peer, uint16_t flags, uint64_t call_id,
                             const struct mr_outgoing *out, const struct mr_segment *segment)
{
    struct mr_packet_header header = peer_header(ep, peer, MR_PACKET_DATA, flags, call_id);
    header.payload_bytes = (uint16_t)segment->bytes;
    header.message_bytes = out->message_bytes;
    if (segment->bytes < out->message_bytes) {
        header.segment_bytes = (uint16_t)out->segment_bytes;
        header.segment_number = (uint16_t)(segment->offset / out->segment_bytes);
    }
    uint8_t *datagram = datagram_begin(ep, &peer->address, &header);
    if (datagram == NULL)
        return false;
    datagram_end(ep, &peer->key, datagram, segment->bytes,
                 mr_outgoing_copy(out, segment, datagram + MR_HEADER_BYTES));
    return true;
}

bool mr_transmit_ack(struct mr_endpoint *ep, struct mr_peer *peer, uint16_t flags, uint64_t call_id,
                     uint32_t received_bytes)
{
    struct mr_ack ack = {.received_bytes = received_bytes, .grant_bytes = received_bytes};
    return mr_transmit_control(ep, peer, MR_PACKET_ACK, flags, call_id, &ack, sizeof(ack));
}

void mr_peer_init(struct mr_peer *peer, bool serving)
{
    memset(peer, 0, sizeof(*peer));
    peer->serving = serving;
    mr_list_init(&peer->dirty);
    mr_list_init(&peer->turn);
    mr_list_init(&peer->low_turn);
    mr_list_init(&peer->senders);
    mr_list_init(&peer->parked);
}

void mr_peer_mark(struct mr_endpoint *ep, struct mr_peer *peer)
{
    if (mr_list_empty(&peer->dirty))
        mr_list_append(&ep->dirty, &peer->dirty);
}

void mr_peer_ready(struct mr_endpoint *ep, struct mr_peer *peer, uint32_t slot)
{
    peer->ready |= UINT64_C(1) << slot;
    mr_peer_mark(ep, peer);
}

/* ---- messages of one segment ---- */

struct small_message {
    const uint8_t *bytes;
    uint64_t call_id;
    uint32_t message_bytes;
    bool asks;
};

#define STATUS_MESSAGE_BYTES sizeof(struct mr_preamble)

static struct small_message ready_message(const struct mr_endpoint *ep, struct mr_peer *peer,
                                          uint32_t slot_index, uint8_t *status_message)
{
    if (peer->serving) {
        const struct mr_slot *slot = &MR_CONTAINER(peer, struct mr_server_session, peer)->slots[slot_index];
        return (struct small_message){mr_slot_message(ep, slot, status_message), slot->call_id,
                                      slot->message_bytes, false};
    }
    const struct mr_call *call = MR_CONTAINER(peer, struct mr_client_session, peer)->slots[slot_index];
    return (struct small_message){call->request, call->call_id, call->request_bytes, call->asks};
}

static void small_sent(struct mr_endpoint *ep, struct mr_peer *peer, uint32_t slot_index)
{
    peer->ready &= ~(UINT64_C(1) << slot_index);
    if (peer->serving) {
        mr_reply_sent(ep, MR_CONTAINER(peer, struct mr_server_session, peer), slot_index);
        return;
    }
    struct mr_call *call = MR_CONTAINER(peer, struct mr_client_session, peer)->slots[slot_index];
    ep->counters.segments_resent += call->asks;
    call->asks = false;
    mr_call_sent(ep, call, true);
}

static uint16_t small_flags(const struct mr_peer *peer, bool asks)
{
    return (uint16_t)((peer->serving ? MR_FLAG_REPLY : 0) | (asks ? MR_FLAG_PROBE : 0));
}

static uint32_t frame_bytes(uint32_t message_bytes)
{
    return (uint32_t)(sizeof(struct mr_frame) + mr_padded(message_bytes));
}

static uint32_t frame_write(uint8_t *to, const struct small_message *message)
{
    struct mr_frame frame = {.call_id = message->call_id, .message_bytes = message->message_bytes};
    uint32_t bytes = frame_bytes(message->message_bytes);
    uint32_t end = (uint32_t)sizeof(frame) + message->message_bytes;
    memcpy(to, &frame, sizeof(frame));
    memcpy(to + sizeof(frame), message->bytes, message->message_bytes);
    memset(to + end, 0, bytes - end);
    return bytes;
}

static bool send_alone(struct mr_endpoint *ep, struct mr_peer *peer, uint32_t slot_index,
                       const struct small_message *message)
{
    struct mr_packet_header header =
        peer_header(ep, peer, MR_PACKET_DATA, small_flags(peer, message->asks), message->call_id);
    header.payload_bytes = (uint16_t)message->message_bytes;
    header.message_bytes = message->message_bytes;
    if (!mr_transmit(ep, &peer->address, &peer->key, &header, message->bytes))
        return false;
    small_sent(ep, peer, slot_index);
    return true;
}

/* Sends the messages of the first ready slots that fit into one packet. False: the port has no room. */
static bool send_bundle(struct mr_endpoint *ep, struct mr_peer *peer)
{
    _Alignas(MR_TENSOR_ALIGN) uint8_t status_message[STATUS_MESSAGE_BYTES];
    uint32_t index = (uint32_t)__builtin_ctzll(peer->ready);
    struct small_message message = ready_message(ep, peer, index, status_message);
    uint64_t others = peer->ready & (peer->ready - 1);
    if (others == 0)
        return send_alone(ep, peer, index, &message);
    uint32_t room = mr_min_u32(peer->segment_bytes, ep->config.bundle_bytes_max);
    struct small_message second = ready_message(ep, peer, (uint32_t)__builtin_ctzll(others), status_message);
    if (frame_bytes(message.message_bytes) + frame_bytes(second.message_bytes) > room) {
        message = ready_message(ep, peer, index, status_message);
        return send_alone(ep, peer, index, &message);
    }
    uint8_t *datagram = ep->config.io.tx_begin(ep->config.io.self, &peer->address, MR_HEADER_BYTES + room);
    if (datagram == NULL) {
        ep->counters.tx_no_room++;
        return false;
    }
    uint32_t used = 0;
    bool asks = false;
    do {
        index = (uint32_t)__builtin_ctzll(peer->ready);
        message = ready_message(ep, peer, index, status_message);
        if (frame_bytes(message.message_bytes) > room - used)
            break;
        used += frame_write(datagram + MR_HEADER_BYTES + used, &message);
        asks |= message.asks;
        small_sent(ep, peer, index);
    } while (peer->ready != 0);
    struct mr_packet_header header =
        peer_header(ep, peer, MR_PACKET_DATA, (uint16_t)(MR_FLAG_BUNDLE | small_flags(peer, asks)), 0);
    header.payload_bytes = (uint16_t)used;
    memcpy(datagram, &header, MR_HEADER_BYTES);
    datagram_end(ep, &peer->key, datagram, used, mr_xxh3_64(datagram + MR_HEADER_BYTES, used));
    return true;
}

bool mr_transmit_flush(struct mr_endpoint *ep)
{
    mr_latency_flush(&ep->latencies);
    while (!mr_list_empty(&ep->dirty)) {
        struct mr_peer *peer = MR_CONTAINER(ep->dirty.next, struct mr_peer, dirty);
        if (!peer->serving)
            mr_client_session_start_calls(ep, MR_CONTAINER(peer, struct mr_client_session, peer));
        while (peer->ready != 0)
            if (!send_bundle(ep, peer))
                return false;
        mr_list_remove(&peer->dirty);
    }
    return true;
}

/* ---- messages of several segments ---- */

/* Returns how much more of this message may be in flight. One segment always may, so that messages whose
 * reports are lost cannot hold up the others of the session. */
static uint32_t flight_room(const struct mr_tx_message *sending)
{
    const struct mr_peer *peer = sending->peer;
    uint32_t room =
        peer->flight_bytes < peer->flight_limit_bytes ? peer->flight_limit_bytes - peer->flight_bytes : 0;
    if (room < sending->out.segment_bytes && mr_outgoing_flight_bytes(&sending->out) == 0)
        room = sending->out.segment_bytes;
    return room;
}

static struct mr_tx_message *sending_of(struct mr_link *link)
{
    return MR_CONTAINER(link, struct mr_tx_message, link);
}

/* Queues a peer in the list of that priority. A peer that is there already keeps its place. */
static void wait_as(struct mr_link *turn, uint8_t *priority, struct mr_link *turns, uint8_t now_priority)
{
    if (!mr_list_empty(turn) && *priority == now_priority)
        return;
    mr_list_remove(turn);
    *priority = now_priority;
    mr_list_append(&turns[now_priority], turn);
}

/* Queues the peer by the priorities of its first and last sender, which may have changed. */
static void peer_queue(struct mr_endpoint *ep, struct mr_peer *peer)
{
    if (mr_list_empty(&peer->senders)) {
        mr_list_remove(&peer->turn);
        mr_list_remove(&peer->low_turn);
        return;
    }
    wait_as(&peer->turn, &peer->turn_priority, ep->turns, sending_of(peer->senders.next)->priority);
    wait_as(&peer->low_turn, &peer->low_turn_priority, ep->low_turns,
            sending_of(peer->senders.prev)->priority);
}

static void sending_unlink(struct mr_endpoint *ep, struct mr_tx_message *sending)
{
    mr_list_remove(&sending->link);
    peer_queue(ep, sending->peer);
}

/* Inserts the message after the others of its priority. */
static void sender_insert(struct mr_tx_message *sending)
{
    struct mr_link *senders = &sending->peer->senders, *at = senders->prev;
    while (at != senders && sending_of(at)->priority < sending->priority)
        at = at->prev;
    mr_list_prepend(at, &sending->link);
}

/* Parks the message after those that have waited longer for room; otherwise the message that returns first
 * from its turn would also get the next one. */
static void park(struct mr_tx_message *sending)
{
    struct mr_link *parked = &sending->peer->parked, *at = parked->prev;
    while (at != parked && (int32_t)(sending_of(at)->turn - sending->turn) > 0)
        at = at->prev;
    mr_list_prepend(at, &sending->link);
}

void mr_tx_message_activate(struct mr_endpoint *ep, struct mr_tx_message *sending)
{
    mr_list_remove(&sending->link);
    if (mr_outgoing_ready(&sending->out, flight_room(sending)))
        sender_insert(sending);
    else if (mr_outgoing_ready(&sending->out, UINT32_MAX))
        park(sending);
    peer_queue(ep, sending->peer);
}

void mr_peer_unpark(struct mr_endpoint *ep, struct mr_peer *peer)
{
    struct mr_link *next;
    for (struct mr_link *at = peer->parked.next; at != &peer->parked; at = next) {
        next = at->next;
        if (!mr_outgoing_ready(&sending_of(at)->out, flight_room(sending_of(at))))
            continue;
        mr_list_remove(at);
        sender_insert(sending_of(at));
    }
    peer_queue(ep, peer);
}

static void flight_release(struct mr_endpoint *ep, struct mr_peer *peer, uint32_t bytes)
{
    assert(bytes <= peer->flight_bytes);
    peer->flight_bytes -= bytes;
    if (bytes > 0)
        mr_peer_unpark(ep, peer);
}

bool mr_tx_message_report(struct mr_endpoint *ep, struct mr_tx_message *sending, const struct mr_ack *ack,
                          uint32_t losses_from)
{
    uint32_t before = mr_outgoing_flight_bytes(&sending->out);
    if (!mr_outgoing_report(&sending->out, ack, losses_from))
        return false;
    flight_release(ep, sending->peer, before - mr_outgoing_flight_bytes(&sending->out));
    mr_tx_message_activate(ep, sending);
    return true;
}

void mr_tx_message_shorten(struct mr_endpoint *ep, struct mr_tx_message *sending, uint32_t segment_bytes)
{
    uint32_t before = mr_outgoing_flight_bytes(&sending->out);
    if (sending->out.segment_bytes <= segment_bytes)
        return;
    mr_outgoing_resize(&sending->out, segment_bytes);
    flight_release(ep, sending->peer, before);
    mr_tx_message_activate(ep, sending);
}

void mr_tx_message_stop(struct mr_endpoint *ep, struct mr_tx_message *sending)
{
    sending_unlink(ep, sending);
    flight_release(ep, sending->peer, mr_outgoing_flight_bytes(&sending->out));
    sending->out.sent_bytes = sending->out.acked_bytes;
}

/* Returns whether the segment asks for a report. The last one that is sent again does. And if the window is
 * shorter than what the server assumes, the server must be asked for reports: with each quarter of a window,
 * and with the last segment that fits. */
static bool asks(const struct mr_tx_message *sending, const struct mr_segment *segment)
{
    const struct mr_peer *peer = sending->peer;
    if (peer->serving)
        return false;
    if (segment->again)
        return mr_outgoing_resends(&sending->out) == 0;
    return peer->ask_bytes > 0 && (sending->unasked_bytes + segment->bytes >= peer->ask_bytes ||
                                   peer->flight_bytes + 2 * segment->bytes > peer->flight_limit_bytes);
}

/* Gives a message its turn: one segment, because more would be unfair where the window is short. False: the
 * port has no room. */
static bool send_turn(struct mr_endpoint *ep, struct mr_tx_message *sending, bool *sent)
{
    struct mr_peer *peer = sending->peer;
    struct mr_outgoing *out = &sending->out;
    struct mr_segment segment;
    *sent = false;
    if (!mr_outgoing_next(out, flight_room(sending), &segment))
        return true;
    bool probe = asks(sending, &segment);
    uint16_t flags = (uint16_t)((peer->serving ? MR_FLAG_REPLY : 0) | (probe ? MR_FLAG_PROBE : 0));
    if (!transmit_segment(ep, peer, flags, sending->call_id, out, &segment)) {
        mr_outgoing_undo(out, &segment);
        return false;
    }
    *sent = true;
    sending->unasked_bytes = probe ? 0 : sending->unasked_bytes + segment.bytes;
    if (segment.again)
        ep->counters.segments_resent++;
    else
        peer->flight_bytes += segment.bytes;
    const bool whole = out->sent_bytes == out->message_bytes;
    if (!peer->serving)
        mr_call_sent(ep, MR_CONTAINER(sending, struct mr_call, sending), whole);
    else if (whole)
        mr_reply_sent(ep, MR_CONTAINER(peer, struct mr_server_session, peer),
                      (uint32_t)(sending->call_id % peer->window));
    return true;
}

static struct mr_tx_message *highest(struct mr_endpoint *ep)
{
    for (uint32_t i = MR_PRIORITIES; i-- > 0;) {
        if (mr_list_empty(&ep->turns[i]))
            continue;
        return sending_of(MR_CONTAINER(ep->turns[i].next, struct mr_peer, turn)->senders.next);
    }
    return NULL;
}

static struct mr_tx_message *lowest(struct mr_endpoint *ep)
{
    for (uint32_t i = 0; i < MR_PRIORITIES; i++) {
        if (mr_list_empty(&ep->low_turns[i]))
            continue;
        struct mr_peer *peer = MR_CONTAINER(ep->low_turns[i].next, struct mr_peer, low_turn);
        struct mr_link *at = peer->senders.prev; /* back to the first of its priority */
        while (at->prev != &peer->senders && sending_of(at->prev)->priority == i)
            at = at->prev;
        return sending_of(at);
    }
    return NULL;
}

/* Turns go to the messages of the highest priority, and from time to time to those of the lowest, so that no
 * priority can starve another, in whatever session. */
void mr_transmit_senders(struct mr_endpoint *ep, uint32_t segment_budget)
{
    mr_latency_flush(&ep->latencies);
    while (segment_budget > 0) {
        bool low = ep->turn % MR_TURNS_PER_BULK == 0, sent;
        struct mr_tx_message *sending = low ? lowest(ep) : highest(ep);
        if (sending == NULL || !send_turn(ep, sending, &sent))
            return;
        if (sent) { /* otherwise it had no room, and keeps its age: the turn goes to another message */
            sending->turn = ++ep->turn;
            segment_budget--;
        }
        mr_list_remove(low ? &sending->peer->low_turn : &sending->peer->turn);
        mr_tx_message_activate(ep, sending);
    }
}

bool mr_transmit_idle(const struct mr_endpoint *ep)
{
    bool idle = mr_list_empty(&ep->dirty);
    for (uint32_t i = 0; i < MR_PRIORITIES; i++)
        idle &= mr_list_empty(&ep->turns[i]);
    return idle;
}
