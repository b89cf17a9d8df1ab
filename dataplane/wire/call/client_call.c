/* Calling side: the life of a call, from its beginning to its outcome. */
#include <assert.h>
#include <string.h>

#include "dataplane/wire/endpoint_internal.h"

/* ---- requests' memory ---- */

/* If requests could fill the memory, no reply could come in, and no call would ever end. */
static uint8_t *request_alloc(struct mr_endpoint *ep, uint32_t bytes)
{
    size_t block_bytes = mr_buddy_block_bytes(bytes);
    if (ep->requests_bytes > 0 && ep->requests_bytes + block_bytes > mr_buddy_capacity_bytes(ep->memory) / 2)
        return NULL;
    uint8_t *request = mr_buddy_alloc(ep->memory, bytes);
    if (request != NULL)
        ep->requests_bytes += block_bytes;
    return request;
}

static void request_free(struct mr_endpoint *ep, struct mr_call *call)
{
    if (call->request == NULL)
        return;
    ep->requests_bytes -= mr_buddy_block_bytes(call->request_bytes);
    mr_buddy_free(ep->memory, call->request);
    call->request = NULL;
}

/* ---- begin, send, free ---- */

enum mr_status mr_call_begin(struct mr_endpoint *ep, struct mr_client_session *session,
                             const struct mr_call_options *options, struct mr_tensor *tensors,
                             uint32_t tensor_count, struct mr_call **out)
{
    if (options->priority >= MR_PRIORITIES)
        return MR_INVALID_ARGUMENT;
    if (session->closing)
        return MR_CANCELLED;
    uint32_t bytes = mr_message_bytes(tensors, tensor_count);
    if (bytes == 0 || bytes > ep->config.message_bytes_max)
        return MR_TOO_LARGE;
    if (mr_list_empty(&ep->calls_free))
        return MR_NO_MEMORY;
    uint8_t *request = request_alloc(ep, bytes);
    if (request == NULL)
        return MR_NO_MEMORY;
    struct mr_preamble preamble = {
        .op = options->op,
        .priority = options->priority,
        .table = options->table,
        .flags = options->flags,
        .epoch = options->epoch,
        .step = options->step,
        .sequence = options->sequence,
    };
    mr_message_layout(request, &preamble, tensors, tensor_count);

    struct mr_call *call = MR_CONTAINER(ep->calls_free.next, struct mr_call, link);
    mr_list_remove(&call->link);
    memset(call, 0, sizeof(*call));
    mr_list_init(&call->sending.link);
    mr_list_append(&session->built, &call->link);
    call->timer.kind = MR_TIMER_CALL;
    call->session = session;
    call->deadline_us = options->deadline_us;
    call->request = request;
    call->request_bytes = bytes;
    call->ready_bytes = bytes;
    call->user = options->user;
    call->op = options->op;
    call->queue = options->ahead ? MR_QUEUE_AHEAD : options->priority;
    call->repeatable = options->sequence != 0 || mr_op_repeatable(options->op);
    call->state = MR_CALL_BUILT;
    *out = call;
    return MR_OK;
}

void mr_call_set_flags(struct mr_call *call, uint16_t flags)
{
    assert(call->state == MR_CALL_BUILT || call->state == MR_CALL_QUEUED);
    ((struct mr_preamble *)(void *)call->request)->flags = flags;
}

void mr_call_borrow(struct mr_call *call, const void *place, const void *data, uint32_t bytes)
{
    const ptrdiff_t begin = (const uint8_t *)place - call->request;
    assert(call->state == MR_CALL_BUILT && call->request_bytes > MR_SEGMENT_BYTES_MAX);
    assert(begin >= 0 && bytes <= call->request_bytes - (uint32_t)begin);
    call->borrowed =
        (struct mr_borrowed){.bytes = data, .begin = (uint32_t)begin, .end = (uint32_t)begin + bytes};
}

void mr_call_advance(struct mr_endpoint *ep, struct mr_call *call, const void *end)
{
    if (call->state == MR_CALL_ENDED)
        return;
    ptrdiff_t bytes = (const uint8_t *)end - call->request;
    assert(bytes >= 0 && bytes <= call->request_bytes);
    assert(call->state == MR_CALL_BUILT || (uint32_t)bytes >= call->ready_bytes);
    call->ready_bytes = (uint32_t)bytes;
    if (call->state == MR_CALL_SENDING && mr_call_is_cut(call)) {
        mr_outgoing_set_ready(&call->sending.out, call->ready_bytes);
        mr_tx_message_activate(ep, &call->sending);
    }
}

static void queue_append(struct mr_client_session *s, struct mr_call *call)
{
    call->state = MR_CALL_QUEUED;
    mr_list_append(&s->queue[call->queue], &call->link);
    s->queued |= 1u << call->queue;
}

void mr_call_send(struct mr_endpoint *ep, struct mr_call *call, uint64_t now_us)
{
    assert(call->state == MR_CALL_BUILT);
    mr_endpoint_set_now(ep, now_us);
    mr_list_remove(&call->link);
    struct mr_client_session *s = call->session;
    if (s == NULL) { /* closed meanwhile */
        call->state = MR_CALL_QUEUED;
        mr_timer_arm(&ep->wheel, &call->timer, ep->now_us, ep->now_us);
        return;
    }
    queue_append(s, call);
    s->calls_pending++;
    mr_peer_mark(ep, &s->peer);
    mr_call_arm(ep, call);
}

static void call_to_pool(struct mr_endpoint *ep, struct mr_call *call)
{
    mr_timer_disarm(&ep->wheel, &call->timer);
    call->state = MR_CALL_FREE;
    mr_list_prepend(&ep->calls_free, &call->link);
}

void mr_call_free(struct mr_endpoint *ep, struct mr_call *call)
{
    assert(call->state == MR_CALL_BUILT || (call->state == MR_CALL_ENDED && !call->user_freed));
    request_free(ep, call);
    mr_buddy_free(ep->memory, call->reply);
    call->reply = NULL;
    call->user_freed = true;
    mr_list_remove(&call->link);
    if (call->call_id == 0)
        call_to_pool(ep, call);
}

uint32_t mr_call_unread_bytes(const struct mr_call *call)
{
    return call->unread_bytes;
}

/* Frees the reply, even if only a part of it has arrived. */
static void drop_reply(struct mr_endpoint *ep, struct mr_call *call)
{
    if (call->incoming.bytes != NULL) {
        assert(call->session != NULL);
        call->session->receiving--;
        call->incoming.bytes = NULL;
    }
    mr_buddy_free(ep->memory, call->reply);
    call->reply = NULL;
}

/* ---- slots ---- */

void mr_call_arm(struct mr_endpoint *ep, struct mr_call *call)
{
    uint64_t at_us = call->state == MR_CALL_ENDED ? UINT64_MAX : call->deadline_us;
    if (call->call_id != 0 && call->probe_at_us != 0 && call->probe_at_us < at_us)
        at_us = call->probe_at_us;
    if (at_us == UINT64_MAX)
        return;
    if (!mr_timer_armed(&call->timer) ||
        call->timer.due_tick << MR_TIMER_TICK_BITS >= at_us + MR_TIMER_TICK_US)
        mr_timer_arm(&ep->wheel, &call->timer, ep->now_us, at_us);
}

void mr_call_set_time_left(const struct mr_endpoint *ep, const struct mr_call *call)
{
    uint64_t left_ms = 0;
    if (call->deadline_us != UINT64_MAX) {
        left_ms = call->deadline_us > ep->now_us ? (call->deadline_us - ep->now_us) / 1000 + 1 : 1;
        left_ms = left_ms < UINT32_MAX ? left_ms : UINT32_MAX;
    }
    ((struct mr_preamble *)(void *)call->request)->deadline_ms = (uint32_t)left_ms;
}

static void sending_init(struct mr_call *call)
{
    struct mr_client_session *s = call->session;
    call->sending.peer = &s->peer;
    call->sending.call_id = call->call_id;
    call->sending.unasked_bytes = 0;
    call->sending.turn = s->ep->turn;
    call->sending.priority = call->queue < MR_PRIORITIES ? call->queue : MR_PRIORITIES - 1;
    mr_outgoing_init(&call->sending.out, call->request, call->request_bytes, call->segment_bytes,
                     s->grant_bytes);
    mr_outgoing_set_ready(&call->sending.out, call->ready_bytes);
    call->sending.out.borrowed = call->borrowed;
}

void mr_call_transmit(struct mr_endpoint *ep, struct mr_call *call)
{
    struct mr_client_session *s = call->session;
    call->state = MR_CALL_SENDING;
    call->server_has = false;
    call->asks = false;
    call->probes = 0;
    call->unanswered = 0;
    call->probe_at_us = 0;
    mr_call_set_time_left(ep, call);
    if (call->segment_bytes == 0 || call->segment_bytes > s->peer.segment_bytes)
        call->segment_bytes = s->peer.segment_bytes;
    if (!mr_call_is_cut(call)) {
        assert(call->ready_bytes == call->request_bytes);
        mr_peer_ready(ep, &s->peer, (uint32_t)(call->call_id % s->peer.window));
        return;
    }
    sending_init(call);
    mr_tx_message_activate(ep, &call->sending);
}

void mr_call_shorten(struct mr_endpoint *ep, struct mr_call *call)
{
    struct mr_peer *peer = &call->session->peer;
    if (call->state != MR_CALL_SENDING || call->server_has || call->segment_bytes <= peer->segment_bytes)
        return;
    bool was_cut = mr_call_is_cut(call);
    call->segment_bytes = peer->segment_bytes;
    if (was_cut) {
        mr_tx_message_shorten(ep, &call->sending, call->segment_bytes);
    } else if (mr_call_is_cut(call)) {
        peer->ready &= ~(UINT64_C(1) << (call->call_id % peer->window));
        sending_init(call);
        mr_tx_message_activate(ep, &call->sending);
    }
}

/* Returns the next id whose slot is among these; there is at least one. */
static uint64_t next_id(struct mr_client_session *s, uint64_t slots)
{
    uint32_t window = s->peer.window;
    uint32_t first = (uint32_t)(s->next_call_id % window);
    uint64_t ahead = slots >> first;
    uint32_t skip =
        ahead != 0 ? (uint32_t)__builtin_ctzll(ahead) : window - first + (uint32_t)__builtin_ctzll(slots);
    uint64_t id = s->next_call_id + skip;
    s->next_call_id = id + 1;
    return id;
}

/* Gives the call an id and a slot. Ids whose slot is taken are skipped, so that one long call does not hold
 * up the others. False: all slots are taken. */
static bool slot_assign(struct mr_client_session *s, struct mr_call *call)
{
    uint32_t window = s->peer.window;
    uint64_t all = window == 64 ? ~UINT64_C(0) : (UINT64_C(1) << window) - 1;
    uint64_t free_slots = ~s->busy_slots & all;
    if (free_slots == 0)
        return false;
    call->call_id = next_id(s, free_slots);
    uint32_t slot = (uint32_t)(call->call_id % window);
    s->busy_slots |= UINT64_C(1) << slot;
    s->slots[slot] = call;
    return true;
}

void mr_call_transmit_again(struct mr_endpoint *ep, struct mr_call *call)
{
    struct mr_client_session *s = call->session;
    assert(call->state == MR_CALL_PAUSED);
    call->call_id = next_id(s, UINT64_C(1) << (call->call_id % s->peer.window));
    call->segment_bytes = 0;
    mr_call_transmit(ep, call);
}

/* Returns the queue whose first call gets the next slot: that of the highest priority, but from time to time
 * that of the lowest one, so that its calls do not wait for ever. */
static uint32_t next_queue(const struct mr_client_session *s, uint32_t waiting)
{
    uint32_t highest = 31u - (uint32_t)__builtin_clz(waiting), lowest = (uint32_t)__builtin_ctz(waiting);
    if (highest == MR_QUEUE_AHEAD || highest == lowest)
        return highest;
    return (s->slots_given + 1) % MR_TURNS_PER_BULK == 0 ? lowest : highest;
}

void mr_client_session_start_calls(struct mr_endpoint *ep, struct mr_client_session *s)
{
    if (!s->established)
        return;
    uint32_t may_go = s->held ? 1u << MR_QUEUE_AHEAD : ~0u;
    while ((s->queued & may_go) != 0) {
        uint32_t queue = next_queue(s, s->queued & may_go);
        struct mr_call *call = MR_CONTAINER(s->queue[queue].next, struct mr_call, link);
        if (!slot_assign(s, call))
            return;
        s->slots_given += (s->queued & (s->queued - 1)) != 0;
        mr_list_remove(&call->link);
        if (mr_list_empty(&s->queue[queue]))
            s->queued &= ~(1u << queue);
        mr_call_transmit(ep, call);
    }
}

void mr_call_release_slot(struct mr_endpoint *ep, struct mr_call *call)
{
    struct mr_client_session *s = call->session;
    assert(s != NULL && call->call_id != 0);
    uint32_t slot = (uint32_t)(call->call_id % s->peer.window);
    assert(s->slots[slot] == call);
    s->slots[slot] = NULL;
    s->busy_slots &= ~(UINT64_C(1) << slot);
    s->peer.ready &= ~(UINT64_C(1) << slot);
    if (mr_call_is_cut(call))
        mr_tx_message_stop(ep, &call->sending);
    call->segment_bytes = 0;
    call->call_id = 0;
    mr_timer_disarm(&ep->wheel, &call->timer);
    mr_client_session_slot_over(ep, s, slot);
    if (s->queued != 0)
        mr_peer_mark(ep, &s->peer);
    if (call->state == MR_CALL_ENDED && call->user_freed)
        call_to_pool(ep, call);
}

/* ---- the end ---- */

void mr_call_end(struct mr_endpoint *ep, struct mr_call *call, enum mr_status status,
                 const struct mr_message *reply)
{
    struct mr_client_session *s = call->session;
    if (call->state == MR_CALL_QUEUED) {
        mr_list_remove(&call->link);
        if (s != NULL && mr_list_empty(&s->queue[call->queue]))
            s->queued &= ~(1u << call->queue);
    }
    if (call->call_id != 0 && !call->sent_whole)
        mr_call_release_slot(ep, call); /* the server cannot have begun to execute it */
    call->state = MR_CALL_ENDED;
    request_free(ep, call);
    if (reply == NULL)
        drop_reply(ep, call);
    if (call->call_id == 0) {
        mr_timer_disarm(&ep->wheel, &call->timer);
    } else {
        assert(s != NULL);
        s->peer.ready &= ~(UINT64_C(1) << (call->call_id % s->peer.window));
        if (mr_call_is_cut(call))
            mr_tx_message_stop(ep, &call->sending);
        call->probes = 0;
        if (call->probe_at_us == 0) /* it was about to be sent again */
            call->probe_at_us = ep->now_us + mr_rtt_pto_us(&s->rtt, 0);
        mr_call_arm(ep, call);
    }
    if (s != NULL)
        s->calls_pending--;
    ep->counters.calls_ended++;
    ep->config.on_reply(ep->config.app, call, call->user, status, reply);
}

void mr_call_cancel(struct mr_endpoint *ep, struct mr_call *call)
{
    if (call->state == MR_CALL_QUEUED || call->state == MR_CALL_SENDING || call->state == MR_CALL_PAUSED)
        mr_call_end(ep, call, MR_CANCELLED, NULL);
}

bool mr_call_withdraw(struct mr_endpoint *ep, struct mr_call *call)
{
    if (call->sent_whole || call->in_doubt || call->state == MR_CALL_BUILT || call->state == MR_CALL_ENDED)
        return false;
    mr_call_cancel(ep, call);
    return true;
}

/* Takes the call out of its slot, as if it had never been sent in this session. */
static void call_reset(struct mr_endpoint *ep, struct mr_call *call)
{
    mr_call_release_slot(ep, call);
    drop_reply(ep, call);
    call->sent_us = 0;
    call->probe_at_us = 0;
    call->probes = 0;
    call->unanswered = 0;
    call->busy_count = 0;
    call->in_doubt |= call->sent_whole;
    call->sent_whole = false;
    call->server_has = false;
    mr_call_arm(ep, call);
}

/* Puts the call, which was sent, before all calls that wait. Called for the newest call first, so that those
 * that were sent stay in their order. */
static void queue_insert_sent(struct mr_client_session *s, struct mr_call *call)
{
    call->state = MR_CALL_QUEUED;
    mr_list_prepend(&s->queue[call->queue], &call->link);
    s->queued |= 1u << call->queue;
}

static struct mr_call *newest_in_slot(const struct mr_client_session *s)
{
    struct mr_call *newest = NULL;
    for (uint32_t i = 0; i < s->peer.window; i++)
        if (s->slots[i] != NULL && (newest == NULL || s->slots[i]->call_id > newest->call_id))
            newest = s->slots[i];
    return newest;
}

void mr_client_session_end_aborted(struct mr_endpoint *ep, struct mr_client_session *s, enum mr_status status)
{
    uint32_t generation = s->generation;
    while (s->generation == generation && !mr_list_empty(&s->aborted))
        mr_call_end(ep, MR_CONTAINER(s->aborted.next, struct mr_call, link), status, NULL);
}

void mr_client_session_restart_calls(struct mr_endpoint *ep, struct mr_client_session *s)
{
    struct mr_call *call;
    while ((call = newest_in_slot(s)) != NULL) {
        if (call->state == MR_CALL_ENDED) {
            mr_call_release_slot(ep, call);
            continue;
        }
        bool aborted = call->sent_whole && !call->repeatable;
        call_reset(ep, call);
        if (aborted) {
            call->state = MR_CALL_QUEUED;
            mr_list_prepend(&s->aborted, &call->link);
        } else {
            queue_insert_sent(s, call);
        }
    }
}

void mr_client_session_cancel_calls(struct mr_endpoint *ep, struct mr_client_session *s)
{
    struct mr_call *call;
    while ((call = newest_in_slot(s)) != NULL) {
        bool ended = call->state == MR_CALL_ENDED;
        mr_call_release_slot(ep, call);
        if (!ended) {
            call->state = MR_CALL_QUEUED;
            mr_list_prepend(&s->aborted, &call->link);
        }
    }
    for (uint32_t q = MR_QUEUES; q-- > 0;)
        mr_list_splice(&s->aborted, &s->queue[q]);
    s->queued = 0;
    while (!mr_list_empty(&s->built)) {
        call = MR_CONTAINER(s->built.next, struct mr_call, link);
        mr_list_remove(&call->link);
        call->session = NULL;
    }
    mr_client_session_end_aborted(ep, s, MR_CANCELLED);
    assert(s->calls_pending == 0);
}
