/* Serving side: from a packet to the request's handler, and the slots that make a call execute at most
 * once. */
#include <assert.h>
#include <string.h>

#include "dataplane/wire/endpoint_internal.h"

static bool holds_memory(const struct mr_slot *slot)
{
    return slot->transfer != NULL || slot->message != NULL || slot->deferred != NULL;
}

/* One call alone may have more than the share, or a large one could never be served. */
static bool share_is_used_up(const struct mr_endpoint *ep, const struct mr_server_session *session,
                             const struct mr_slot *slot, size_t bytes)
{
    if (session->memory_bytes + mr_buddy_block_bytes(bytes) <= ep->config.session_memory_bytes)
        return false;
    for (uint32_t i = 0; i < session->peer.window; i++)
        if (&session->slots[i] != slot && holds_memory(&session->slots[i]))
            return true;
    return false;
}

uint64_t mr_role_share(const struct mr_endpoint *ep, uint8_t role, uint64_t whole)
{
    bool has_operator = false, has_trainer = false;
    for (uint32_t i = 0; i < ep->auth_count; i++) {
        has_operator |= ep->auth[i].role == MR_ROLE_OPERATOR;
        has_trainer |= ep->auth[i].role == MR_ROLE_TRAINER;
    }
    const uint64_t for_operators = has_operator && role > MR_ROLE_OPERATOR ? whole / MR_OPERATOR_SHARE : 0;
    const uint64_t for_trainers = has_trainer && role > MR_ROLE_TRAINER ? whole / MR_TRAINER_SHARE : 0;
    return whole - for_operators - for_trainers;
}

/* The memory that a role, and those below it, may have. A single call of theirs may have more. */
static bool role_is_used_up(const struct mr_endpoint *ep, const struct mr_server_session *session,
                            size_t bytes)
{
    const uint64_t share = mr_role_share(ep, session->role, mr_buddy_capacity_bytes(ep->memory));
    uint64_t used = 0;
    for (uint32_t role = session->role; role < MR_ROLE_COUNT; role++)
        used += ep->role_memory_bytes[role];
    return used > session->memory_bytes && used + mr_buddy_block_bytes(bytes) > share;
}

/* What one address may have while others have sessions, too; of it the same shares are kept for higher roles.
 * A single session's call may have more. */
static bool address_is_used_up(const struct mr_endpoint *ep, const struct mr_server_session *session,
                               size_t bytes)
{
    const uint8_t *ip = session->peer.address.ip;
    const uint64_t whole = mr_buddy_capacity_bytes(ep->memory), used = mr_address_memory(ep->limits, ip);
    return used > session->memory_bytes &&
           used + mr_buddy_block_bytes(bytes) >
               mr_role_share(ep, session->role, whole - whole / MR_ADDRESS_SHARE) &&
           !mr_address_is_alone(ep->limits, ip);
}

/* Returns whether nothing else holds memory, so that what does not fit now never will. */
static bool is_alone(const struct mr_endpoint *ep, const struct mr_server_session *session,
                     const struct mr_slot *slot)
{
    if (mr_buddy_used_bytes(ep->memory) > session->memory_bytes)
        return false;
    for (uint32_t i = 0; i < session->peer.window; i++)
        if (&session->slots[i] != slot && holds_memory(&session->slots[i]))
            return false;
    return true;
}

bool mr_slot_fits_never(const struct mr_endpoint *ep, const struct mr_server_session *session,
                        const struct mr_slot *slot, size_t bytes, size_t beside_bytes)
{
    size_t beside = beside_bytes > 0 ? mr_buddy_block_bytes(beside_bytes) : 0;
    return mr_buddy_block_bytes(bytes) + beside > mr_buddy_capacity_bytes(ep->memory) ||
           is_alone(ep, session, slot);
}

void *mr_slot_alloc(struct mr_endpoint *ep, struct mr_server_session *session, const struct mr_slot *slot,
                    size_t bytes)
{
    if (share_is_used_up(ep, session, slot, bytes) || role_is_used_up(ep, session, bytes) ||
        address_is_used_up(ep, session, bytes)) {
        ep->counters.shares_used_up++;
        return NULL;
    }
    size_t before = mr_buddy_used_bytes(ep->memory);
    void *block = mr_buddy_alloc(ep->memory, bytes);
    const size_t taken = mr_buddy_used_bytes(ep->memory) - before;
    session->memory_bytes += taken;
    ep->role_memory_bytes[session->role] += taken;
    mr_address_memory_add(ep->limits, session->peer.address.ip, (int64_t)taken);
    return block;
}

void mr_slot_free(struct mr_endpoint *ep, struct mr_server_session *session, void *block)
{
    size_t before = mr_buddy_used_bytes(ep->memory);
    mr_buddy_free(ep->memory, block);
    const size_t freed = before - mr_buddy_used_bytes(ep->memory);
    session->memory_bytes -= freed;
    ep->role_memory_bytes[session->role] -= freed;
    mr_address_memory_add(ep->limits, session->peer.address.ip, -(int64_t)freed);
}

void mr_slot_clear(struct mr_endpoint *ep, struct mr_server_session *session, struct mr_slot *slot)
{
    if (slot->transfer != NULL) {
        if (slot->state == MR_SLOT_RECEIVING) {
            mr_slot_free(ep, session, ((struct mr_rx_message *)slot->transfer)->in.bytes);
            session->receiving--;
        } else {
            mr_tx_message_stop(ep, slot->transfer);
        }
        mr_slot_free(ep, session, slot->transfer);
        slot->transfer = NULL;
    }
    mr_slot_free(ep, session, slot->message);
    slot->message = NULL;
    slot->state = MR_SLOT_EMPTY;
}

static void send_busy(struct mr_endpoint *ep, struct mr_server_session *session, uint64_t call_id)
{
    ep->counters.busy_sent++;
    (void)mr_transmit_control(ep, &session->peer, MR_PACKET_BUSY, 0, call_id, NULL, 0);
}

void mr_slot_refuse(struct mr_endpoint *ep, struct mr_server_session *session, struct mr_slot *slot)
{
    slot->state = MR_SLOT_REFUSED;
    send_busy(ep, session, slot->call_id);
}

/* Roles are in order, from the one that may do everything to the one that may do least. */
static bool is_allowed(const struct mr_server_session *session, uint32_t op)
{
    return session->role <= (uint32_t)mr_op_role(op);
}

/* Hands a whole request to its handler. A malformed one is answered with an error, because a repetition would
 * be no better. `message` is aligned, and `received` has the same bytes where they arrived. Returns whether
 * the request's memory still belongs to the caller: mr_reply_later() takes it over, and an answer given in
 * the same handler has freed it by now. */
static bool execute(struct mr_endpoint *ep, struct mr_server_session *session, struct mr_slot *slot,
                    uint8_t *message, const uint8_t *received, uint32_t message_bytes, uint64_t first_us)
{
    const struct mr_preamble *preamble = &ep->message.preamble;
    bool valid = mr_message_parse(received, message_bytes, message, &ep->message) &&
                 (preamble->epoch == 0 || ep->config.takes_epochs);
    slot->op = preamble->op;
    slot->stamp = 0;
    slot->priority = preamble->priority < MR_PRIORITIES ? preamble->priority : 0;
    slot->sequence = 0;
    slot->request_bytes = message_bytes;
    slot->state = MR_SLOT_EXECUTING;
    struct mr_request request = {
        .ref = {(uint32_t)(session - ep->server_sessions), (uint32_t)(slot - session->slots),
                session->peer.session_id, slot->call_id},
        .message = &ep->message,
        .client_uuid = session->client_uuid,
        .role = (enum mr_role)session->role,
        .capabilities = session->capabilities,
        .now_us = ep->now_us,
        .deadline_us = UINT64_MAX,
    };
    if (!valid) {
        ep->counters.drop_message++;
        mr_reply_status(ep, request.ref, MR_BAD_MESSAGE);
        return true;
    }
    if (!is_allowed(session, preamble->op)) {
        ep->counters.calls_not_allowed++;
        mr_reply_error(ep, request.ref, MR_UNAUTHORIZED,
                       "%s needs a key of the role %s, and the caller's has the role %s",
                       mr_op_name(preamble->op), mr_role_name(mr_op_role(preamble->op)),
                       mr_role_name((enum mr_role)session->role));
        return true;
    }
    if (preamble->deadline_ms != 0)
        request.deadline_us = first_us + (uint64_t)preamble->deadline_ms * 1000;
    if (request.deadline_us <= ep->now_us) {
        ep->counters.calls_expired++;
        mr_reply_status(ep, request.ref, MR_DEADLINE_EXCEEDED);
        return true;
    }
    ep->counters.calls_served++;
    slot->stamp = mr_latency_began(&ep->latencies, slot->op);
    slot->wait_ns = mr_latency_is_timed(slot->stamp)
                        ? (float)mr_latency_span_ns(ep->latencies.burst_ns, slot->stamp)
                        : -1;
    slot->work_ns = 0;
    slot->table = preamble->table;
    slot->keys = 0;
    ep->executing = message;
    ep->executing_bytes = message_bytes;
    ep->config.on_request(ep->config.app, ep, &request);
    bool left = ep->executing != NULL;
    ep->executing = NULL;
    assert((slot->state != MR_SLOT_EXECUTING || slot->deferred != NULL) && "the handler gave no answer");
    return left;
}

/* Returns whether a newer call must be refused for good: the client gave up the slot's call while its reply
 * was being made, and that is not done yet. */
static bool is_refused(struct mr_slot *slot, uint64_t call_id)
{
    if (!slot->acked)
        return false;
    if (slot->state == MR_SLOT_EXECUTING && call_id > slot->refused_to)
        slot->refused_to = call_id;
    return call_id <= slot->refused_to;
}

/* Prepares the slot for a call that it has not executed. False: the packet is dropped. */
static bool slot_take(struct mr_endpoint *ep, struct mr_server_session *session, struct mr_slot *slot,
                      uint64_t call_id)
{
    if (call_id > slot->call_id) {
        if (is_refused(slot, call_id)) {
            send_busy(ep, session, call_id);
            return false;
        }
        if (slot->state == MR_SLOT_EXECUTING) { /* a client keeps a slot until its call is answered */
            ep->counters.drop_range++;
            return false;
        }
        session->peer.ready &= ~(UINT64_C(1) << (slot - session->slots));
        mr_slot_clear(ep, session, slot);
        slot->call_id = call_id;
        slot->acked = false;
    }
    return true;
}

static void receive_whole(struct mr_endpoint *ep, struct mr_server_session *session, struct mr_slot *slot,
                          const struct mr_fragment *fragment)
{
    memcpy(ep->scratch, fragment->payload, fragment->bytes);
    (void)execute(ep, session, slot, ep->scratch, fragment->payload, fragment->bytes, ep->now_us);
}

/* Answers a request that can never be received with an error: it is too large, or memory is too small. */
static void refuse_request(struct mr_endpoint *ep, struct mr_server_session *session, struct mr_slot *slot,
                           uint32_t message_bytes)
{
    const bool too_large = message_bytes > ep->config.message_bytes_max;
    struct mr_call_ref ref = {(uint32_t)(session - ep->server_sessions), (uint32_t)(slot - session->slots),
                              session->peer.session_id, slot->call_id};
    slot->op = 0;
    slot->stamp = 0;
    slot->priority = 0;
    slot->sequence = 0;
    slot->request_bytes = message_bytes;
    slot->state = MR_SLOT_EXECUTING;
    mr_reply_error(
        ep, ref, too_large ? MR_TOO_LARGE : MR_NO_MEMORY,
        "the request of %u bytes does not fit into %s, %zu KiB: raise %s there, or ask for less at once",
        message_bytes, too_large ? "the server's largest message" : "the server's memory for messages",
        (too_large ? ep->config.message_bytes_max : mr_buddy_capacity_bytes(ep->memory)) >> 10,
        too_large ? "transport.message_mib_max" : "memory.messages_mib");
}

static bool receiving_begin(struct mr_endpoint *ep, struct mr_server_session *session, struct mr_slot *slot,
                            const struct mr_fragment *fragment)
{
    uint32_t message_bytes = fragment->message_bytes;
    if (message_bytes > ep->config.message_bytes_max) {
        refuse_request(ep, session, slot, message_bytes);
        return false;
    }
    struct mr_rx_message *receiving = mr_slot_alloc(ep, session, slot, sizeof(*receiving));
    uint8_t *bytes = receiving != NULL ? mr_slot_alloc(ep, session, slot, message_bytes) : NULL;
    if (bytes == NULL) {
        mr_slot_free(ep, session, receiving);
        if (mr_slot_fits_never(ep, session, slot, message_bytes, 0))
            refuse_request(ep, session, slot, message_bytes);
        else
            mr_slot_refuse(ep, session, slot);
        return false;
    }
    mr_incoming_init(&receiving->in, bytes, message_bytes, fragment->segment_bytes,
                     ep->config.receive_window_bytes);
    receiving->first_us = receiving->progress_us = ep->now_us;
    if (session->receiving == 0 && ep->config.session_idle_us > MR_STALLED_US) /* else it looks sooner */
        mr_timer_arm(&ep->wheel, &session->timer, ep->now_us, ep->now_us + MR_STALLED_US);
    slot->transfer = receiving;
    slot->state = MR_SLOT_RECEIVING;
    session->receiving++;
    return true;
}

/* When a request that is being received is given up: some time after its last new segment, or once it has
 * come so slowly for so long. */
static uint64_t stalled_at_us(const struct mr_rx_message *receiving)
{
    const uint64_t silent_us = receiving->progress_us + MR_STALLED_US;
    const uint64_t slow_us = receiving->first_us + MR_STALLED_US +
                             (uint64_t)receiving->in.received_bytes * 1000000 / MR_RECEIVED_PER_S_MIN;
    return silent_us < slow_us ? silent_us : slow_us;
}

uint64_t mr_requests_end_stalled(struct mr_endpoint *ep, struct mr_server_session *session)
{
    uint64_t next_us = UINT64_MAX;
    for (uint32_t i = 0; i < session->peer.window && session->receiving > 0; i++) {
        struct mr_slot *slot = &session->slots[i];
        if (slot->state != MR_SLOT_RECEIVING)
            continue;
        const uint64_t at_us = stalled_at_us(slot->transfer);
        if (at_us <= ep->now_us) {
            ep->counters.requests_stalled++;
            mr_slot_clear(ep, session, slot);
            mr_slot_refuse(ep, session, slot);
        } else {
            next_us = at_us < next_us ? at_us : next_us;
        }
    }
    return next_us;
}

static void receiving_complete(struct mr_endpoint *ep, struct mr_server_session *session,
                               struct mr_slot *slot)
{
    struct mr_rx_message *receiving = slot->transfer;
    uint8_t *bytes = receiving->in.bytes;
    uint32_t message_bytes = receiving->in.message_bytes;
    uint64_t first_us = receiving->first_us;
    slot->transfer = NULL;
    mr_slot_free(ep, session, receiving);
    slot->state = MR_SLOT_EMPTY;
    session->receiving--;
    if (execute(ep, session, slot, bytes, bytes, message_bytes, first_us))
        mr_slot_free(ep, session, bytes);
    if (slot->state == MR_SLOT_EXECUTING) /* the answer comes later: the request is no longer in flight */
        (void)mr_transmit_ack(ep, &session->peer, 0, slot->call_id, message_bytes);
}

static void send_report(struct mr_endpoint *ep, struct mr_server_session *session, const struct mr_slot *slot)
{
    struct mr_ack ack;
    mr_incoming_report(&((struct mr_rx_message *)slot->transfer)->in, &ack);
    (void)mr_transmit_control(ep, &session->peer, MR_PACKET_ACK, 0, slot->call_id, &ack, sizeof(ack));
}

static void report_arrival(struct mr_endpoint *ep, const struct mr_server_session *session,
                           const struct mr_slot *slot, const struct mr_incoming *in)
{
    struct mr_call_ref ref = {(uint32_t)(session - ep->server_sessions), (uint32_t)(slot - session->slots),
                              session->peer.session_id, slot->call_id};
    ep->config.on_arriving(ep->config.app, ref, in->bytes, in->received_bytes, in->message_bytes);
}

bool mr_call_ref_arriving(const struct mr_endpoint *ep, struct mr_call_ref ref)
{
    const struct mr_server_session *session = &ep->server_sessions[ref.session_index];
    if (!session->used || session->peer.session_id != ref.session_id)
        return false;
    return session->slots[ref.slot].call_id == ref.call_id &&
           session->slots[ref.slot].state == MR_SLOT_RECEIVING;
}

static void receive_segment(struct mr_endpoint *ep, struct mr_server_session *session, struct mr_slot *slot,
                            const struct mr_fragment *fragment)
{
    struct mr_incoming *in = &((struct mr_rx_message *)slot->transfer)->in;
    if (fragment->message_bytes != in->message_bytes) {
        ep->counters.drop_range++;
        return;
    }
    enum mr_segment_result result =
        mr_incoming_put(in, fragment->segment_bytes, fragment->offset, fragment->payload, fragment->bytes);
    if (result == MR_SEGMENT_RANGE) {
        ep->counters.drop_range++;
        if (fragment->probe) /* the client thinks we have more than we do */
            send_report(ep, session, slot);
        return;
    }
    if (result == MR_SEGMENT_NEW)
        ((struct mr_rx_message *)slot->transfer)->progress_us = ep->now_us;
    if (result == MR_SEGMENT_REPEATED)
        ep->counters.segments_repeated++;
    if (mr_incoming_whole(in)) {
        receiving_complete(ep, session, slot);
        return;
    }
    if (result == MR_SEGMENT_NEW && in->gap_segments == 0 && ep->config.on_arriving != NULL)
        report_arrival(ep, session, slot, in);
    bool new_gap = result == MR_SEGMENT_NEW && in->gap_segments == MR_REORDER_SEGMENTS;
    if (fragment->probe || new_gap || mr_incoming_report_due(in, session->receiving))
        send_report(ep, session, slot);
}

static void on_fragment(struct mr_endpoint *ep, struct mr_server_session *session,
                        const struct mr_fragment *fragment)
{
    uint64_t call_id = fragment->call_id;
    struct mr_slot *slot = &session->slots[call_id % session->peer.window];
    if (call_id < slot->call_id || call_id == 0) {
        ep->counters.drop_stale++;
        return;
    }
    if (!mr_fragment_fits(fragment, MR_MESSAGE_BYTES_MAX)) {
        ep->counters.drop_range++;
        return;
    }
    if (!slot_take(ep, session, slot, call_id))
        return;
    if (slot->state == MR_SLOT_REFUSED) {
        send_busy(ep, session, call_id);
    } else if (slot->state == MR_SLOT_EXECUTING || slot->state == MR_SLOT_DONE) {
        ep->counters.segments_repeated++;
        mr_reply_repeat(ep, session, slot, fragment->probe);
    } else if (slot->state == MR_SLOT_EMPTY && fragment->segment_bytes == 0) {
        receive_whole(ep, session, slot, fragment);
    } else if (slot->state == MR_SLOT_RECEIVING || receiving_begin(ep, session, slot, fragment)) {
        receive_segment(ep, session, slot, fragment);
    }
}

static void announce(const struct mr_endpoint *ep, const struct mr_fragment *requests, uint32_t count)
{
    struct mr_prefetch prefetch[MR_PREFETCH_MAX];
    for (uint32_t i = 0; i < count; i++)
        prefetch[i] = (struct mr_prefetch){requests[i].payload, requests[i].bytes};
    ep->config.on_prefetch(ep->config.app, prefetch, count);
}

static void on_data(struct mr_endpoint *ep, struct mr_server_session *session, const struct mr_packet *packet)
{
    struct mr_fragment fragments[MR_FRAGMENTS_MAX];
    uint32_t at = 0, count;
    bool well_formed = true;
    while (well_formed && at < packet->header.payload_bytes) {
        well_formed = mr_packet_fragments(&packet->header, packet->payload, &at, fragments, &count);
        if (count > 1 && ep->config.on_prefetch != NULL)
            announce(ep, fragments, count);
        for (uint32_t i = 0; i < count; i++)
            on_fragment(ep, session, &fragments[i]);
    }
    if (!well_formed)
        ep->counters.drop_range++;
}

static void on_ping(struct mr_endpoint *ep, struct mr_server_session *session, const struct mr_packet *packet)
{
    uint64_t call_id = packet->header.call_id;
    struct mr_slot *slot = &session->slots[call_id % session->peer.window];
    if (call_id == 0 || call_id > slot->call_id || slot->state == MR_SLOT_EMPTY)
        (void)mr_transmit_ack(ep, &session->peer, 0, call_id, 0);
    else if (call_id < slot->call_id)
        ep->counters.drop_stale++;
    else if (slot->state == MR_SLOT_REFUSED)
        send_busy(ep, session, call_id);
    else if (slot->state == MR_SLOT_RECEIVING)
        send_report(ep, session, slot);
    else
        mr_reply_repeat(ep, session, slot, true);
}

/* ---- a packet arrives ---- */

/* Returns the session that a packet belongs to, verified; NULL: counted, and perhaps answered with RESET. */
static struct mr_server_session *find_session(struct mr_endpoint *ep, const struct mr_packet *packet)
{
    const struct mr_packet_header *header = &packet->header;
    uint32_t index = (uint32_t)(header->session_id >> MR_CORE_BITS) & (MR_SESSIONS_LIMIT - 1);
    struct mr_server_session *s = index < ep->config.sessions_max ? &ep->server_sessions[index] : NULL;
    if (s == NULL || !s->used || s->peer.session_id != header->session_id) {
        ep->counters.drop_session++;
        if (header->type != MR_PACKET_BYE)
            mr_keys_unknown_session(ep, packet);
        return NULL;
    }
    if (!mr_address_equal(&s->peer.address, packet->from) || header->incarnation != ep->config.incarnation) {
        ep->counters.drop_session++;
        return NULL;
    }
    if (!mr_numbers_is_new(&s->peer.numbers, header->number)) {
        ep->counters.drop_repeated++;
        return NULL;
    }
    if (!mr_packet_verify(packet, &s->peer.key) && !mr_keys_server_follow(ep, s, packet)) {
        ep->counters.drop_tag++;
        return NULL;
    }
    s->peer.heard_us = ep->now_us;
    if (mr_numbers_take(&s->peer.numbers, header->number)) {
        s->peer.address = *packet->from; /* the way back may have changed */
        s->peer.clock_us = header->clock_us;
        s->peer.clock_heard_us = (uint32_t)ep->now_us;
    }
    if (!s->confirmed)
        mr_server_session_confirm(ep, s);
    return s;
}

void mr_serve_packet(struct mr_endpoint *ep, const struct mr_packet *packet)
{
    struct mr_server_session *session = ep->server_sessions != NULL ? find_session(ep, packet) : NULL;
    if (session == NULL) {
        if (ep->server_sessions == NULL)
            ep->counters.drop_session++;
        return;
    }
    ep->counters.rx_packets++;
    ep->counters.rx_bytes += MR_HEADER_BYTES + packet->header.payload_bytes;
    switch (packet->header.type) {
    case MR_PACKET_DATA:
        on_data(ep, session, packet);
        break;
    case MR_PACKET_ACK:
    case MR_PACKET_RESEND:
        mr_reply_acked(ep, session, packet);
        break;
    case MR_PACKET_PING:
        if ((packet->header.flags & MR_FLAG_PROBE) != 0)
            on_ping(ep, session, packet);
        break;
    case MR_PACKET_PATH:
        mr_server_session_path_answer(ep, session, packet);
        break;
    case MR_PACKET_BYE:
        mr_server_session_drop(ep, session);
        break;
    default:
        ep->counters.drop_type++;
        break;
    }
}
