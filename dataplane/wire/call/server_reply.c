/* Serving side: replies out, kept until the client has them or no longer needs them. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "dataplane/wire/endpoint_internal.h"

#define ERROR_TEXT_BYTES_MAX 400u
#define REFUSAL_BYTES_MAX    1024u /* more than a message with such a text */

static struct mr_slot *slot_find(const struct mr_endpoint *ep, struct mr_call_ref ref)
{
    if (ep->server_sessions == NULL || ref.session_index >= ep->config.sessions_max)
        return NULL;
    struct mr_server_session *session = &ep->server_sessions[ref.session_index];
    if (!session->used || session->peer.session_id != ref.session_id || ref.slot >= session->peer.window)
        return NULL;
    struct mr_slot *slot = &session->slots[ref.slot];
    return slot->call_id == ref.call_id && slot->state == MR_SLOT_EXECUTING ? slot : NULL;
}

bool mr_call_ref_alive(const struct mr_endpoint *ep, struct mr_call_ref ref)
{
    return slot_find(ep, ref) != NULL;
}

bool mr_call_ref_address(const struct mr_endpoint *ep, struct mr_call_ref ref, struct mr_address *out)
{
    if (slot_find(ep, ref) == NULL)
        return false;
    *out = ep->server_sessions[ref.session_index].peer.address;
    return true;
}

uint64_t mr_call_ref_network(const struct mr_endpoint *ep, struct mr_call_ref ref)
{
    struct mr_address address;
    return mr_call_ref_address(ep, ref, &address) ? mr_address_network(address.ip) : 0;
}

void mr_call_turn(struct mr_endpoint *ep, struct mr_call_ref ref)
{
    struct mr_slot *slot = slot_find(ep, ref);
    if (slot == NULL || !mr_latency_is_timed(slot->stamp))
        return;
    const float ns = (float)mr_latency_span_ns(slot->stamp, ep->latencies.clock_ns());
    slot->wait_ns += ns;
    slot->work_ns -= ns; /* until the work's end adds all of it */
}

void mr_call_add_keys(struct mr_endpoint *ep, struct mr_call_ref ref, uint32_t keys)
{
    struct mr_slot *slot = slot_find(ep, ref);
    if (slot != NULL)
        slot->keys += keys;
}

/* Frees the request of a call whose session is gone: nothing else is left of the call. */
static void orphan_free(struct mr_endpoint *ep, struct mr_call_ref ref)
{
    for (struct mr_link *l = ep->orphans.next; l != &ep->orphans; l = l->next) {
        struct mr_deferred_request *deferred = MR_CONTAINER(l, struct mr_deferred_request, link);
        if (deferred->request.ref.session_id == ref.session_id &&
            deferred->request.ref.call_id == ref.call_id) {
            mr_list_remove(&deferred->link);
            mr_buddy_free(ep->memory, deferred->bytes);
            mr_buddy_free(ep->memory, deferred);
            return;
        }
    }
}

/* Returns the slot that waits for this answer; NULL when the call is over. */
static struct mr_slot *slot_answer(struct mr_endpoint *ep, struct mr_call_ref ref)
{
    struct mr_slot *slot = slot_find(ep, ref);
    if (slot == NULL)
        orphan_free(ep, ref);
    return slot;
}

static void request_free(struct mr_endpoint *ep, struct mr_server_session *session, struct mr_slot *slot)
{
    if (slot->deferred != NULL) {
        mr_slot_free(ep, session, slot->deferred->bytes);
        mr_slot_free(ep, session, slot->deferred);
    }
    slot->deferred = NULL;
}

static void mark_acked(struct mr_slot *slot)
{
    if (slot->acked)
        return;
    slot->acked = true;
    slot->refused_to = slot->call_id;
}

/* The call is over at `now`, a stamp. */
static void record_call(struct mr_endpoint *ep, const struct mr_server_session *session, struct mr_slot *slot,
                        uint64_t now)
{
    struct mr_call_record *record = mr_call_record_next(&ep->records);
    const float before_ns = slot->wait_ns >= 0 ? slot->wait_ns + slot->work_ns : 0; /* the stamp */
    record->arrived_ns = (slot->stamp & MR_LATENCY_STAMP_MASK) - (uint64_t)before_ns;
    record->total_ns = (float)mr_latency_span_ns(slot->stamp, now) + before_ns;
    record->wait_ns = slot->wait_ns;
    record->work_ns = slot->work_ns;
    record->table = slot->table;
    record->keys = slot->keys;
    record->request_bytes = slot->request_bytes;
    record->reply_bytes = slot->message_bytes;
    memcpy(record->ip, session->peer.address.ip, sizeof(record->ip));
    record->port = session->peer.address.port;
    record->op = slot->op;
    record->status = (uint8_t)slot->status;
    mr_call_record_add(&ep->records);
    slot->stamp = 0;
}

void mr_reply_sent(struct mr_endpoint *ep, struct mr_server_session *session, uint32_t slot_index)
{
    struct mr_slot *slot = &session->slots[slot_index];
    if (slot->stamp == 0)
        return; /* it was sent before */
    record_call(ep, session, slot,
                mr_latency_is_timed(slot->stamp)
                    ? mr_latency_ended(&ep->latencies, slot->op, MR_LATENCY_SEND, slot->stamp)
                    : mr_latency_flush_ns(&ep->latencies));
}

/* Frees the reply: the client has it, or wants none. */
static void set_acked(struct mr_endpoint *ep, struct mr_server_session *session, struct mr_slot *slot)
{
    if (slot->stamp != 0)
        record_call(ep, session, slot, ep->latencies.clock_ns());
    mr_slot_clear(ep, session, slot);
    slot->state = MR_SLOT_DONE;
    mark_acked(slot);
}

/* Moves the slot from EXECUTING to DONE, and sends the reply. */
static void server_reply_finish(struct mr_endpoint *ep, struct mr_call_ref ref, struct mr_slot *slot)
{
    request_free(ep, &ep->server_sessions[ref.session_index], slot);
    if (mr_latency_is_timed(slot->stamp)) {
        const uint64_t began = slot->stamp;
        slot->stamp = mr_latency_ended(&ep->latencies, slot->op, MR_LATENCY_WORK, began);
        slot->work_ns += (float)mr_latency_span_ns(began, slot->stamp);
    }
    slot->begun = false;
    slot->state = MR_SLOT_DONE;
    ep->counters.replies_short += slot->transfer == NULL;
    if (slot->acked)
        set_acked(ep, &ep->server_sessions[ref.session_index], slot);
    else if (slot->transfer != NULL)
        mr_tx_message_activate(ep, slot->transfer);
    else
        mr_peer_ready(ep, &ep->server_sessions[ref.session_index].peer, ref.slot);
}

static bool sending_begin(struct mr_endpoint *ep, struct mr_server_session *session, struct mr_slot *slot)
{
    struct mr_tx_message *sending = mr_slot_alloc(ep, session, slot, sizeof(*sending));
    if (sending == NULL)
        return false;
    mr_list_init(&sending->link);
    sending->peer = &session->peer;
    sending->call_id = slot->call_id;
    sending->unasked_bytes = 0;
    sending->turn = ep->turn;
    sending->priority = slot->priority;
    mr_outgoing_init(&sending->out, slot->message, slot->message_bytes, session->peer.segment_bytes,
                     session->grant_bytes);
    mr_outgoing_set_ready(&sending->out, 0);
    slot->transfer = sending;
    return true;
}

/* Returns the endpoint's count of restores when the reply was begun. No slot keeps an answer for 256
 * restores, which are made by hand. */
static uint32_t restores_of(const struct mr_endpoint *ep, const struct mr_slot *slot)
{
    return ep->config.restores - (uint8_t)(ep->config.restores - slot->restores);
}

/* Returns the checkpoint that the reply's sequence is about. */
static uint64_t checkpoint_of(const struct mr_endpoint *ep, const struct mr_slot *slot)
{
    return slot->sequence != 0 ? ep->config.checkpoint : 0;
}

static struct mr_preamble reply_preamble(const struct mr_endpoint *ep, const struct mr_slot *slot)
{
    return (struct mr_preamble){.op = slot->op,
                                .priority = slot->priority,
                                .status = slot->status,
                                .restores = restores_of(ep, slot),
                                .checkpoint = checkpoint_of(ep, slot),
                                .sequence = slot->sequence};
}

/* Answers a call whose reply can never be given with an error, and with a text if there is room for that. */
static void refuse_reply(struct mr_endpoint *ep, struct mr_call_ref ref, uint32_t bytes)
{
    if (bytes <= REFUSAL_BYTES_MAX)
        mr_reply_status(ep, ref, MR_NO_MEMORY);
    else
        mr_reply_error(ep, ref, MR_NO_MEMORY,
                       "the reply of %u bytes does not fit beside its request into the server's memory for "
                       "messages, %zu KiB: raise memory.messages_mib there, or ask for less at once",
                       bytes, mr_buddy_capacity_bytes(ep->memory) >> 10);
}

/* A request that arrived in one packet takes no message memory. */
static uint32_t request_kept_bytes(const struct mr_slot *slot)
{
    return slot->request_bytes > MR_SEGMENT_BYTES_MAX ? slot->request_bytes : 0;
}

bool mr_reply_begin(struct mr_endpoint *ep, struct mr_call_ref ref, enum mr_status status,
                    struct mr_tensor *tensors, uint32_t tensor_count)
{
    struct mr_slot *slot = slot_answer(ep, ref);
    if (slot == NULL)
        return false;
    assert(!slot->begun && "mr_reply_begin was called twice");
    struct mr_server_session *session = &ep->server_sessions[ref.session_index];
    slot->status = (uint16_t)status;
    slot->restores = (uint8_t)ep->config.restores;
    if (tensor_count == 0) {
        slot->message_bytes = sizeof(struct mr_preamble);
        slot->begun = true;
        return true;
    }
    uint32_t bytes = mr_message_bytes(tensors, tensor_count);
    if (bytes == 0 || bytes > ep->config.message_bytes_max) {
        mr_reply_status(ep, ref, MR_TOO_LARGE);
        return false;
    }
    uint8_t *message = mr_slot_alloc(ep, session, slot, bytes);
    if (message == NULL) {
        if (mr_slot_fits_never(ep, session, slot, bytes, request_kept_bytes(slot)))
            refuse_reply(ep, ref, bytes);
        return false;
    }
    slot->message = message;
    slot->message_bytes = bytes;
    if (bytes > session->peer.segment_bytes && !sending_begin(ep, session, slot)) {
        mr_slot_free(ep, session, message);
        slot->message = NULL;
        if (mr_slot_fits_never(ep, session, slot, bytes, request_kept_bytes(slot)))
            refuse_reply(ep, ref, bytes);
        return false;
    }
    struct mr_preamble preamble = reply_preamble(ep, slot);
    mr_message_layout(message, &preamble, tensors, tensor_count);
    slot->begun = true;
    return true;
}

void mr_reply_advance(struct mr_endpoint *ep, struct mr_call_ref ref, const void *end)
{
    struct mr_slot *slot = slot_find(ep, ref);
    if (slot == NULL)
        return;
    assert(slot->begun && slot->deferred != NULL &&
           "mr_reply_advance without mr_reply_later and mr_reply_begin");
    struct mr_tx_message *sending = slot->transfer;
    if (sending == NULL || slot->acked)
        return;
    ptrdiff_t bytes = (const uint8_t *)end - slot->message;
    assert(bytes >= 0 && bytes <= slot->message_bytes);
    /* The last segment waits for mr_reply_end(), so that no client can have the whole before that. */
    uint32_t ready_bytes = (uint32_t)bytes < slot->message_bytes ? (uint32_t)bytes : slot->message_bytes - 1;
    if (ready_bytes > sending->out.ready_bytes) {
        mr_outgoing_set_ready(&sending->out, ready_bytes);
        mr_tx_message_activate(ep, sending);
    }
}

void mr_reply_end(struct mr_endpoint *ep, struct mr_call_ref ref)
{
    struct mr_slot *slot = slot_answer(ep, ref);
    if (slot == NULL)
        return; /* its session is gone */
    assert(slot->begun && "mr_reply_end without mr_reply_begin");
    struct mr_tx_message *sending = slot->transfer;
    if (sending != NULL)
        mr_outgoing_set_ready(&sending->out, slot->message_bytes);
    server_reply_finish(ep, ref, slot);
}

void mr_reply_cancel(struct mr_endpoint *ep, struct mr_call_ref ref)
{
    struct mr_slot *slot = slot_find(ep, ref);
    if (slot == NULL)
        return;
    assert(slot->begun && "mr_reply_cancel without mr_reply_begin");
    struct mr_server_session *session = &ep->server_sessions[ref.session_index];
    struct mr_tx_message *sending = slot->transfer;
    assert((sending == NULL || sending->out.ready_bytes == 0) && "mr_reply_cancel after mr_reply_advance");
    if (sending != NULL)
        mr_slot_free(ep, session, sending);
    if (slot->message != NULL)
        mr_slot_free(ep, session, slot->message);
    slot->transfer = NULL;
    slot->message = NULL;
    slot->message_bytes = 0;
    if (!slot->acked)
        slot->sequence = 0;
    slot->begun = false;
}

void mr_reply_set_sequence(struct mr_endpoint *ep, struct mr_call_ref ref, uint64_t sequence)
{
    struct mr_slot *slot = slot_find(ep, ref);
    if (slot == NULL || slot->acked)
        return;
    slot->sequence = sequence;
    struct mr_preamble *preamble = (struct mr_preamble *)(void *)slot->message;
    if (preamble != NULL) {
        preamble->sequence = sequence;
        preamble->checkpoint = checkpoint_of(ep, slot);
    }
}

void mr_reply_status(struct mr_endpoint *ep, struct mr_call_ref ref, enum mr_status status)
{
    struct mr_slot *slot = slot_answer(ep, ref);
    if (slot == NULL)
        return;
    assert(!slot->begun && "mr_reply_status after mr_reply_begin");
    slot->status = (uint16_t)status;
    slot->restores = (uint8_t)ep->config.restores;
    slot->message_bytes = sizeof(struct mr_preamble);
    server_reply_finish(ep, ref, slot);
}

void mr_reply_error(struct mr_endpoint *ep, struct mr_call_ref ref, enum mr_status status, const char *format,
                    ...)
{
    char text[ERROR_TEXT_BYTES_MAX + 1];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    uint32_t bytes = n < 0 ? 0 : (uint32_t)n < sizeof(text) ? (uint32_t)n : ERROR_TEXT_BYTES_MAX;
    struct mr_tensor tensor = mr_tensor_1d(MR_U8, bytes, text);
    if (mr_reply_begin(ep, ref, status, &tensor, 1))
        mr_reply_end(ep, ref);
    else
        mr_reply_status(ep, ref, status); /* no room for the text */
}

void mr_reply_busy(struct mr_endpoint *ep, struct mr_call_ref ref)
{
    struct mr_slot *slot = slot_answer(ep, ref);
    if (slot == NULL)
        return;
    assert(!slot->begun && "mr_reply_busy after mr_reply_begin");
    request_free(ep, &ep->server_sessions[ref.session_index], slot);
    mr_slot_refuse(ep, &ep->server_sessions[ref.session_index], slot);
}

const struct mr_request *mr_reply_later(struct mr_endpoint *ep, const struct mr_request *request)
{
    struct mr_slot *slot = slot_find(ep, request->ref);
    assert(slot != NULL && slot->deferred == NULL && ep->executing != NULL);
    struct mr_server_session *session = &ep->server_sessions[request->ref.session_index];
    const struct mr_message *message = request->message;
    uint32_t count = message->preamble.tensor_count;
    struct mr_deferred_request *deferred =
        mr_slot_alloc(ep, session, slot,
                      sizeof(*deferred) - sizeof(message->tensors) + count * sizeof(message->tensors[0]));
    if (deferred == NULL)
        return NULL;
    uint8_t *bytes = ep->executing;
    if (bytes == ep->scratch) {
        bytes = mr_slot_alloc(ep, session, slot, ep->executing_bytes);
        if (bytes == NULL) {
            mr_slot_free(ep, session, deferred);
            return NULL;
        }
        memcpy(bytes, ep->scratch, ep->executing_bytes);
    }
    mr_list_init(&deferred->link);
    deferred->bytes = bytes;
    deferred->request = *request;
    deferred->request.message = &deferred->message;
    deferred->request.client_uuid = deferred->client_uuid;
    memcpy(deferred->client_uuid, request->client_uuid, MR_UUID_BYTES);
    deferred->message.preamble = message->preamble;
    for (uint32_t i = 0; i < count; i++) {
        deferred->message.tensors[i] = message->tensors[i];
        deferred->message.tensors[i].data = bytes + ((uint8_t *)message->tensors[i].data - ep->executing);
    }
    slot->deferred = deferred;
    ep->executing = NULL;
    return &deferred->request;
}

const uint8_t *mr_slot_message(const struct mr_endpoint *ep, const struct mr_slot *slot,
                               uint8_t *status_message)
{
    if (slot->message != NULL)
        return slot->message;
    struct mr_preamble preamble = reply_preamble(ep, slot);
    mr_message_layout(status_message, &preamble, NULL, 0);
    return status_message;
}

/* Handles a client's question about a reply that is incomplete there. What is in flight and not acknowledged
 * may be lost; if nothing is, reports that the request has arrived. */
static void send_missing(struct mr_endpoint *ep, struct mr_server_session *session, struct mr_slot *slot)
{
    struct mr_tx_message *sending = slot->transfer;
    if (sending == NULL || slot->acked || mr_outgoing_flight_bytes(&sending->out) == 0) {
        (void)mr_transmit_ack(ep, &session->peer, 0, slot->call_id, slot->request_bytes);
        return;
    }
    mr_outgoing_probe(&sending->out);
    mr_tx_message_activate(ep, sending);
}

void mr_reply_repeat(struct mr_endpoint *ep, struct mr_server_session *session, struct mr_slot *slot,
                     bool probe)
{
    if (slot->state == MR_SLOT_EXECUTING) {
        if (probe)
            send_missing(ep, session, slot);
    } else if (slot->acked) {
        ep->counters.drop_stale++;
    } else if (slot->transfer == NULL && slot->message_bytes > session->peer.segment_bytes &&
               sending_begin(ep, session, slot)) {
        ep->counters.calls_replayed++; /* it no longer gets through in one segment */
        struct mr_tx_message *sending = slot->transfer;
        mr_outgoing_set_ready(&sending->out, slot->message_bytes);
        mr_tx_message_activate(ep, sending);
    } else if (slot->transfer == NULL) {
        ep->counters.calls_replayed++;
        mr_peer_ready(ep, &session->peer, (uint32_t)(slot - session->slots));
    } else if (probe) {
        ep->counters.calls_replayed++;
        send_missing(ep, session, slot);
    }
}

/* Sets how much of all replies together may be in flight; 0: the limit stays. */
static void set_flight_limit(struct mr_endpoint *ep, struct mr_server_session *session, uint64_t bytes)
{
    struct mr_peer *peer = &session->peer;
    uint64_t least_bytes = MR_WINDOW_SEGMENTS_MIN * peer->segment_bytes;
    if (bytes == 0)
        return;
    if (bytes < least_bytes)
        bytes = least_bytes;
    bool grows = bytes > peer->flight_limit_bytes;
    peer->flight_limit_bytes =
        bytes < session->flight_max_bytes ? (uint32_t)bytes : session->flight_max_bytes;
    if (grows)
        mr_peer_unpark(ep, peer);
}

/* Sets the length of replies' segments, as far as the client knows the path; 0: it stays. */
static void set_segments(struct mr_endpoint *ep, struct mr_server_session *session, uint32_t segment_bytes)
{
    if (segment_bytes < MR_SEGMENT_BYTES_MIN || segment_bytes > session->udp_bytes_max - MR_HEADER_BYTES ||
        segment_bytes % 8 != 0)
        return;
    /* The client has not received the router's last report yet. */
    if (session->narrow_bytes != 0 && segment_bytes > session->narrow_bytes &&
        ep->now_us - session->narrow_us < MR_NARROW_US)
        return;
    mr_server_session_set_segments(ep, session, segment_bytes);
}

void mr_server_session_set_segments(struct mr_endpoint *ep, struct mr_server_session *session,
                                    uint32_t segment_bytes)
{
    bool shrinks = segment_bytes < session->peer.segment_bytes;
    session->peer.segment_bytes = segment_bytes;
    for (uint32_t i = 0; shrinks && i < session->peer.window; i++) {
        struct mr_slot *slot = &session->slots[i];
        if (slot->state != MR_SLOT_RECEIVING && slot->transfer != NULL && !slot->acked)
            mr_tx_message_shorten(ep, slot->transfer, segment_bytes);
    }
}

/* Handles an acknowledgement of slots: the calls below `before_id` in them are over for the client. Its sizes
 * and its window count unless a newer packet set them. */
static void slots_acked(struct mr_endpoint *ep, struct mr_server_session *session, const struct mr_ack *ack,
                        uint64_t number)
{
    if (number > session->flight_number) {
        session->flight_number = number;
        set_segments(ep, session, ack->segment_bytes);
        set_flight_limit(ep, session, ack->sack[1]);
    }
    uint64_t before_id = ack->received_bytes | (uint64_t)ack->grant_bytes << 32;
    for (uint32_t i = 0; i < session->peer.window; i++) {
        struct mr_slot *slot = &session->slots[i];
        if ((ack->sack[0] >> i & 1) == 0 || slot->call_id >= before_id)
            continue;
        bool keeps_reply = slot->state == MR_SLOT_DONE && slot->message != NULL;
        if (!keeps_reply && slot->state != MR_SLOT_RECEIVING)
            continue;
        session->peer.ready &= ~(UINT64_C(1) << i);
        if (keeps_reply)
            set_acked(ep, session, slot);
        else
            mr_slot_clear(ep, session, slot);
    }
}

/* Handles a report about the reply in the slot, which may still be open. */
static void reply_reported(struct mr_endpoint *ep, struct mr_server_session *session, struct mr_slot *slot,
                           const struct mr_ack *ack, bool resend)
{
    struct mr_tx_message *sending = slot->transfer;
    if (slot->state == MR_SLOT_EXECUTING && ack->received_bytes == slot->message_bytes) {
        /* Nobody can have the whole reply yet: the client has stopped waiting. */
        mr_tx_message_stop(ep, sending);
        mark_acked(slot);
        return;
    }
    if (resend)
        mr_outgoing_forget_resent(&sending->out); /* the client asks once in a round trip */
    if (!mr_tx_message_report(ep, sending, ack, resend ? 1 : 0)) {
        ep->counters.drop_range++;
        return;
    }
    if (sending->out.acked_bytes == slot->message_bytes)
        set_acked(ep, session, slot);
    else if (resend)
        send_missing(ep, session, slot);
}

void mr_reply_acked(struct mr_endpoint *ep, struct mr_server_session *session, const struct mr_packet *packet)
{
    uint64_t call_id = packet->header.call_id;
    struct mr_ack ack;
    memcpy(&ack, packet->payload, sizeof(ack));
    if (call_id == 0) {
        slots_acked(ep, session, &ack, packet->header.number);
        return;
    }
    struct mr_slot *slot = &session->slots[call_id % session->peer.window];
    bool has_reply = slot->state == MR_SLOT_DONE || slot->state == MR_SLOT_EXECUTING;
    if (slot->call_id != call_id || !has_reply || slot->acked || slot->transfer == NULL)
        ep->counters.drop_stale++;
    else
        reply_reported(ep, session, slot, &ack, packet->header.type == MR_PACKET_RESEND);
}
