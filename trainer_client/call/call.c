#include "trainer_client/call/call.h"

#include <assert.h>
#include <float.h>
#include <inttypes.h>
#include <stdlib.h>
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/tick_clock.h"
#include "trainer_client/call/call_copy.h"
#include "trainer_client/call/call_hooks.h"
#include "trainer_client/call/future.h"
#include "trainer_client/call/last_error.h"
#include "trainer_client/call/own_latency.h"
#include "trainer_client/call/retry.h"

#define PRIORITY_MAX          7u
#define COPY_LOCKED_BYTES_MAX 16384u /* larger requests are copied without the lock */

uint64_t mrc_deadline_us(const struct mr_client *client, const struct mr_options *options, uint64_t now_us)
{
    uint64_t ms = options != NULL && options->deadline_ms != 0 ? options->deadline_ms : client->deadline_ms;
    return now_us + ms * 1000u;
}

enum mr_status mrc_future_new(struct mr_client *client, const struct mr_options *options, enum mr_op op,
                              uint32_t feature, uint32_t request_count, uint32_t tensors_max,
                              size_t context_bytes, struct mr_future **out)
{
    enum mr_status own = mrc_check_process(client, mr_op_name(op));
    if (own != MR_OK)
        return own;
    if (options != NULL && options->priority > PRIORITY_MAX)
        return mrc_error(MR_INVALID_ARGUMENT, "%s: options.priority is %u; it goes from 0 to %u",
                         mr_op_name(op), options->priority, PRIORITY_MAX);
    if (options != NULL && !(options->learning_rate >= 0 && options->learning_rate <= FLT_MAX))
        return mrc_error(MR_INVALID_ARGUMENT, "%s: options.learning_rate is %g; it goes from 0 to %g",
                         mr_op_name(op), (double)options->learning_rate, (double)FLT_MAX);
    if (options != NULL && options->learning_rate > 0 && !options->has_learning_rate)
        return mrc_error(
            MR_INVALID_ARGUMENT,
            "%s: options.learning_rate is %g, which counts with options.has_learning_rate only: set "
            "it, or leave both 0 for the features' own",
            mr_op_name(op), (double)options->learning_rate);
    if (feature > UINT16_MAX)
        return mrc_error(MR_UNKNOWN_TABLE, "%s: %s: no table or variable has the number %u", client->server,
                         mr_op_name(op), feature);
    size_t requests_bytes = request_count * sizeof(struct mrc_shard_request);
    size_t tensors_bytes = (size_t)request_count * tensors_max * sizeof(struct mr_tensor);
    size_t sources_bytes = (size_t)request_count * tensors_max * sizeof(void *);
    struct mr_future *f =
        calloc(1, sizeof(*f) + requests_bytes + tensors_bytes + sources_bytes + context_bytes);

    if (f == NULL)
        return mrc_error(MR_NO_MEMORY, "%s: no memory for the call", mr_op_name(op));
    struct mr_tensor *tensors = (struct mr_tensor *)((uint8_t *)f->requests + requests_bytes);
    const void **sources = (const void **)((uint8_t *)tensors + tensors_bytes);

    f->client = client;
    f->began_ns = mr_tick_ns();
    f->notify_fd = -1;
    mr_list_init(&f->pending_notify);
    f->wait_until_us = UINT64_MAX;
    f->map_generation = UINT32_MAX;
    f->request_count = request_count;
    f->context = (uint8_t *)sources + sources_bytes;
    f->options = (struct mr_call_options){.op = (uint8_t)op,
                                          .table = (uint16_t)feature,
                                          .deadline_us = mrc_deadline_us(client, options, mr_clock_us())};
    if (options != NULL) {
        f->options.priority = options->priority;
        f->options.step = options->step;
        f->more = options->more && options->future != NULL;
        if (op == MR_OP_PUSH_GRAD || op == MR_OP_PUSH_GRAD_BATCH)
            f->pushed = options->pushed;
        f->options.flags = f->pushed != NULL ? MR_PUSH_COUNTS : 0;
    }
    for (uint32_t i = 0; i < request_count; i++) {
        f->requests[i] = (struct mrc_shard_request){.future = f,
                                                    .owner = (uint16_t)i,
                                                    .tensors = tensors + (size_t)i * tensors_max,
                                                    .sources = sources + (size_t)i * tensors_max};
    }
    *out = f;
    return MR_OK;
}

void mrc_request_add(struct mr_future *f, uint32_t i, struct mr_tensor tensor)
{
    struct mrc_shard_request *request = &f->requests[i];
    request->sources[request->tensor_count] = tensor.data;
    request->tensors[request->tensor_count] = tensor;
    request->tensors[request->tensor_count].data = NULL;
    request->tensor_count++;
}

/* ---- room for the requests: one message to each core concerned. Under the lock ---- */

static enum mr_status request_begin(struct mr_future *f, struct mrc_shard_request *request)
{
    struct mr_client *client = f->client;
    struct mrc_link *link = request->to != NULL   ? request->to
                            : request->is_control ? mrc_shard_map_control(client)
                                                  : mrc_shard_map_link(client, request->owner);
    if (link == NULL || link->session == NULL)
        return mrc_error(MR_UNREACHABLE, "%s: %s: the node has no core %u any more", client->server,
                         mr_op_name(f->options.op), request->owner);
    f->options.user = request;
    if (request->table != 0) {
        f->options.table = request->table;
        f->options.flags = request->flags;
    }
    f->options.epoch = mrc_cluster_epoch_of(client, f->options.op);
    for (uint32_t t = 0; t < request->tensor_count; t++)
        request->tensors[t].data = NULL;
    request->bytes = mr_message_bytes(request->tensors, request->tensor_count);
    f->is_behind = !f->options.ahead && request->bytes > 0 && !mrc_call_hooks.is_open(link);
    if (f->is_behind || (!f->options.ahead && request->bytes > 0 && !mrc_link_has_room(link, request->bytes)))
        return MR_NO_MEMORY;
    enum mr_status status = mrc_call_hooks.begin(f, request, link);

    if (status != MR_OK)
        return status;
    request->link = link;
    status = mr_call_begin(link->ep, link->session, &f->options, request->tensors, request->tensor_count,
                           &request->call);

    if (status == MR_OK) {
        link->calls_pending++;
        link->request_bytes += request->bytes;
        client->calls_held++;
        mr_list_append(&link->requests, &request->in_flight);
        return MR_OK;
    }
    mrc_call_hooks.undo(request);
    if (status != MR_NO_MEMORY)
        mrc_error_line("%s: %s: %s", link->name, mr_op_name(f->options.op), mr_status_text(status));
    return status;
}

/* A request is no longer in flight: it makes room, and its link may be idle. */
static void request_release(struct mrc_shard_request *request)
{
    assert(request->link->calls_pending > 0);
    request->link->calls_pending--;
    request->link->port_us = 0;
    mr_list_remove(&request->in_flight);
    request->link->request_bytes -= request->bytes;
}

/* Gives back what was begun and not sent. */
static void begin_undo(struct mr_future *f)
{
    for (uint32_t i = 0; i < f->request_count; i++) {
        struct mrc_shard_request *request = &f->requests[i];
        if (request->call == NULL)
            continue;
        mrc_call_hooks.undo(request);
        request_release(request);
        /* Does not count as room made for others: two calls that never fit at once would wake each other for
         * ever. */
        mr_call_free(request->link->ep, request->call);
        f->client->calls_held--;
        request->call = NULL;
    }
    f->begun = false;
}

/* Makes room for all requests, or for none. MR_NO_MEMORY: there is no room now (mrc_error() was not
 * called). */
static enum mr_status begin_all(struct mr_future *f)
{
    if (mrc_map_has_changed(f))
        return MRC_STALE_MAP;
    enum mr_status known = mrc_call_hooks.check(f);

    if (known != MR_OK)
        return known;
    for (uint32_t i = 0; i < f->request_count; i++) {
        enum mr_status status = request_begin(f, &f->requests[i]);
        if (status != MR_OK) {
            begin_undo(f);
            return status;
        }
    }
    f->begun = true;
    f->requests_pending = f->request_count;
    return MR_OK;
}

struct room_wait {
    const struct mr_client *client;
    uint64_t room_made;
};

static bool room_was_made(const void *arg)
{
    const struct room_wait *w = arg;
    return w->client->room_made != w->room_made;
}

/* The same, but waits for room while other calls are in flight, until the deadline or f->wait_until_us; the
 * lock is given up meanwhile. */
static enum mr_status begin_all_waiting(struct mr_future *f)
{
    const bool is_brief = f->wait_until_us < f->options.deadline_us;
    const uint64_t until_us = is_brief ? f->wait_until_us : f->options.deadline_us;
    struct mr_client *client = f->client;
    const char *op = mr_op_name(f->options.op);
    for (;;) {
        f->is_replay_full = f->is_behind = false;
        enum mr_status status = begin_all(f);
        struct room_wait wait = {.client = client, .room_made = client->room_made};
        if (status != MR_NO_MEMORY)
            return status;
        if (mrc_client_calls_pending(client) == 0 && !mrc_call_hooks.is_pending(client))
            return mrc_error(
                MR_NO_MEMORY,
                "%s: %s: the request does not fit into the memory for messages, memory_bytes = %u",
                client->server, op, client->link_config.memory_bytes);
        client->room_waiters++;
        bool made = mrc_wait(client, room_was_made, &wait, until_us);

        client->room_waiters--;
        if (!made && is_brief)
            return MRC_NO_ROOM_YET;
        if (!made && f->is_replay_full)
            return mrc_error(MR_NO_MEMORY,
                             "%s: %s: pushes that the server has not answered fill replay_bytes = %" PRIu64
                             " of this client, and this one found no room before its deadline: raise it",
                             client->server, op, client->replay_bytes);
        if (!made && f->is_behind)
            return mrc_error(MR_DEADLINE_EXCEEDED,
                             "%s: %s: the call was not sent: after a restart, a move or a take-over of "
                             "partitions their owner first has to get the pushes that it lacks, and it had "
                             "not until the deadline: make the call again, with a longer deadline",
                             client->server, op);
        if (!made)
            return mrc_error(MR_NO_MEMORY, "%s: %s: no room for the request became free before its deadline",
                             client->server, op);
    }
}

enum mr_status mrc_future_begin(struct mr_future *f)
{
    enum mr_status status = mrc_call_hooks.prepare(f);
    if (status != MR_OK)
        return status;
    pthread_mutex_lock(&f->client->lock);
    status = begin_all_waiting(f);
    pthread_mutex_unlock(&f->client->lock);
    if (status == MR_OK)
        mrc_copy_tensors(f);
    return status;
}

/* ---- sending ---- */

static void requests_send(struct mr_future *f)
{
    uint64_t now_us = mr_clock_us();
    f->sent = true;
    f->sent_us = now_us;
    for (uint32_t i = 0; i < f->request_count; i++) {
        mr_call_send(f->requests[i].link->ep, f->requests[i].call, now_us);
        f->requests[i].link->unsent = true;
    }
}

/* Others' calls may end here; this one cannot be freed before its caller has it. */
static void send_now(struct mr_future *f)
{
    for (uint32_t i = 0; i < f->request_count; i++) {
        struct mrc_link *link = f->requests[i].link;
        if (link->unsent)
            mrc_progress_poll(f->client, link);
        mrc_wake_driver(f->client, link);
    }
}

enum mr_status mrc_future_send_locked(struct mr_future *f)
{
    enum mr_status status = begin_all(f);
    if (status != MR_OK)
        return status;
    mrc_copy_tensors(f);
    requests_send(f); /* the driver, which makes these calls, polls before it waits */
    return MR_OK;
}

bool mrc_map_has_changed(const struct mr_future *f)
{
    return f->map_generation != UINT32_MAX && f->map_generation != mrc_shard_map_generation(f->client);
}

/* Checks a call between its begin and its sending: MR_OK, or why it must no longer be sent. Under the
 * lock. */
static enum mr_status check_still_valid(const struct mr_future *f)
{
    bool is_stale = mrc_map_has_changed(f);
    for (uint32_t i = 0; i < f->request_count; i++)
        is_stale |= f->requests[i].cancelled; /* it has lost its number */
    if (is_stale)
        return MRC_STALE_MAP;
    return mrc_call_hooks.check(f);
}

/* Begins a call that is sent while it is copied, and sends it step by step; if its caller waits for the end,
 * most of it from the caller's memory. Under the lock, which others may have between two steps. */
static enum mr_status send_in_steps(struct mr_future *f, bool waits)
{
    enum mr_status status = begin_all_waiting(f);
    const struct mrc_shard_request *request = &f->requests[0];
    struct mrc_copy_steps copy;
    if (status != MR_OK)
        return status;
    mrc_copy_start(&copy, request, waits);
    const uint8_t *end = mrc_copy_step(&copy);
    status = check_still_valid(f);
    if (status != MR_OK) {
        begin_undo(f);
        return status;
    }
    mr_call_advance(request->link->ep, request->call, end);
    requests_send(f);
    send_now(f);
    while (!mrc_copy_is_done(&copy)) {
        pthread_mutex_unlock(&f->client->lock);
        pthread_mutex_lock(&f->client->lock);
        if (f->ended) /* its request is gone */
            break;
        mr_call_advance(request->link->ep, request->call, mrc_copy_step(&copy));
        request->link->unsent = true;
        send_now(f);
    }
    return MR_OK;
}

enum mr_status mrc_future_send(struct mr_future *f, bool waits)
{
    struct mr_client *client = f->client;
    const bool numbers = mrc_call_hooks.numbers(client, f->options.op);
    enum mr_status status;
    if (!f->begun && !f->more && !numbers && mrc_copy_is_in_steps(f)) {
        pthread_mutex_lock(&client->lock);
        status = send_in_steps(f, waits);
        if (status != MR_OK)
            pthread_mutex_unlock(&client->lock);
        return status;
    }
    if (!f->begun && (numbers || mrc_copy_bytes(f) > COPY_LOCKED_BYTES_MAX)) {
        status = mrc_future_begin(f);
        if (status != MR_OK)
            return status;
    }
    mrc_call_hooks.copy(f);
    pthread_mutex_lock(&client->lock);
    if (!f->begun) {
        status = begin_all_waiting(f);
        if (status != MR_OK) {
            pthread_mutex_unlock(&client->lock);
            return status;
        }
        mrc_copy_tensors(f);
    }
    status = check_still_valid(f);
    if (status != MR_OK) {
        begin_undo(f);
        pthread_mutex_unlock(&client->lock);
        return status;
    }
    requests_send(f);
    if (!f->more)
        send_now(f);
    return MR_OK;
}

/* ---- ending ---- */

void mrc_request_ended(struct mrc_shard_request *request, struct mr_call *call, enum mr_status status,
                       const struct mr_message *reply)
{
    struct mr_future *f = request->future;
    struct mr_client *client = f->client;
    request->status = status == MR_OK && reply != NULL ? (enum mr_status)reply->preamble.status : status;
    if (status == MR_DEADLINE_EXCEEDED && reply == NULL &&
        mrc_link_was_silent(request->link, f->sent_us, mr_clock_us()))
        request->status = MR_UNREACHABLE;
    if (request->is_void)
        request->status = MR_UNKNOWN_TABLE;
    if (reply != NULL && mrc_cluster_is_late(client, f->options.op, f->sent_us)) {
        reply = NULL;
        request->is_late = true;
        const bool may_be_repeated =
            request->push != NULL || f->options.sequence != 0 || mr_op_repeatable(f->options.op);
        request->status = may_be_repeated ? MR_WRONG_OWNER : MR_UNKNOWN_OUTCOME;
    } else if (request->status == MR_WRONG_OWNER) {
        mrc_cluster_refused(request->link->node);
    } else if (request->status == MR_BUSY && reply == NULL) {
        request->link->node->stale |= request->link->node->is_member; /* what it tells of its lease */
    } else if (request->status == MR_UNKNOWN_OP && f->options.op == MR_OP_LOOKUP_TABLES) {
        request->link->node->lacks_lookup_tables_in = request->link->start_id;
    }
    request->replied = reply != NULL;
    request->start_id = reply != NULL ? request->link->start_id : 0;
    request->unread_bytes = mr_call_unread_bytes(call);
    request->sequence = reply != NULL ? reply->preamble.sequence : 0;
    request->restores = reply != NULL ? reply->preamble.restores : 0;
    request->checkpoint = reply != NULL ? reply->preamble.checkpoint : 0;
    if (reply != NULL && reply->preamble.tensor_count > 0)
        mrc_copy_answers(request, reply);
    request_release(request);
    mrc_call_hooks.ended(request, reply);
    if (reply != NULL)
        mrc_answer_note(&client->progress.answers, f->options.op, request->bytes,
                        request->link->processed_us - f->sent_us);
    if (reply != NULL && request->bytes > request->link->socket.udp_bytes_max)
        mrc_link_delivered(request->link, f->sent_us);
    request->link->calls_held++;
    if (request->answer_count == 0 || request->copy != NULL) {
        request->call = NULL;
        mrc_client_free_call(client, request->link, call);
    }
    client->room_made++;
    assert(f->requests_pending > 0);
    if (--f->requests_pending > 0)
        return;
    mrc_call_hooks.all_ended(f);
    client->progress.calls_ended++;
    if (!f->awaited)
        mrc_own_latency_ended(f);
    f->ended = true;
    if (f->on_end != NULL)
        f->on_end(f);
    else if (f->abandoned)
        mrc_future_free_locked(f);
    else
        mrc_future_notify(f);
}

static void free_calls(struct mr_future *f)
{
    if (f->begun && !f->sent) {
        begin_undo(f);
        return;
    }
    for (uint32_t i = 0; i < f->request_count; i++) {
        struct mrc_shard_request *request = &f->requests[i];
        mrc_call_hooks.leave(request);
        if (request->call != NULL)
            mrc_client_free_call(f->client, request->link, request->call);
        request->call = NULL;
    }
}

static void free_memory(struct mr_future *f)
{
    mrc_call_hooks.free(f);
    for (uint32_t i = 0; i < f->request_count; i++) {
        if (f->requests[i].answers != f->requests[i].few)
            free(f->requests[i].answers);
        free(f->requests[i].copy);
    }
    free(f->memory);
    free(f->retry);
    free(f);
}

void mrc_future_free_locked(struct mr_future *f)
{
    free_calls(f);
    free_memory(f);
}

void mrc_future_free(struct mr_future *f)
{
    bool holds = false;
    for (uint32_t i = 0; i < f->request_count; i++)
        holds |= f->requests[i].call != NULL || f->requests[i].resharded.sequence != 0;
    if (holds) {
        pthread_mutex_lock(&f->client->lock);
        free_calls(f);
        pthread_mutex_unlock(&f->client->lock);
    }
    free_memory(f);
}
