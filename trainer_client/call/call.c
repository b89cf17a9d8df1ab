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
                              uint32_t feature, uint32_t part_count, uint32_t tensors_max,
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
    size_t parts_bytes = part_count * sizeof(struct mrc_part);
    size_t tensors_bytes = (size_t)part_count * tensors_max * sizeof(struct mr_tensor);
    size_t sources_bytes = (size_t)part_count * tensors_max * sizeof(void *);
    struct mr_future *f = calloc(1, sizeof(*f) + parts_bytes + tensors_bytes + sources_bytes + context_bytes);

    if (f == NULL)
        return mrc_error(MR_NO_MEMORY, "%s: no memory for the call", mr_op_name(op));
    struct mr_tensor *tensors = (struct mr_tensor *)((uint8_t *)f->parts + parts_bytes);
    const void **sources = (const void **)((uint8_t *)tensors + tensors_bytes);

    f->client = client;
    f->began_ns = mr_tick_ns();
    f->notify_fd = -1;
    mr_list_init(&f->pending_notify);
    f->wait_until_us = UINT64_MAX;
    f->map_generation = UINT32_MAX;
    f->part_count = part_count;
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
    for (uint32_t i = 0; i < part_count; i++) {
        f->parts[i] = (struct mrc_part){.future = f,
                                        .owner = (uint16_t)i,
                                        .tensors = tensors + (size_t)i * tensors_max,
                                        .sources = sources + (size_t)i * tensors_max};
    }
    *out = f;
    return MR_OK;
}

void mrc_part_add(struct mr_future *f, uint32_t i, struct mr_tensor tensor)
{
    struct mrc_part *part = &f->parts[i];
    part->sources[part->tensor_count] = tensor.data;
    part->tensors[part->tensor_count] = tensor;
    part->tensors[part->tensor_count].data = NULL;
    part->tensor_count++;
}

/* ---- room for the requests: one message to each core concerned. Under the lock ---- */

static struct mrc_link *link_for(const struct mr_client *client, const struct mrc_part *part)
{
    if (part->to != NULL)
        return part->to;
    return part->is_control ? mrc_owners_control(client) : mrc_owners_link(client, part->owner);
}

static enum mr_status begin_part(struct mr_future *f, struct mrc_part *part)
{
    struct mr_client *client = f->client;
    struct mrc_link *link = link_for(client, part);
    if (link == NULL || link->session == NULL)
        return mrc_error(MR_UNREACHABLE, "%s: %s: the node has no core %u any more", client->server,
                         mr_op_name(f->options.op), part->owner);
    f->options.user = part;
    if (part->table != 0) {
        f->options.table = part->table;
        f->options.flags = part->flags;
    }
    f->options.epoch = mrc_cluster_epoch_of(client, f->options.op);
    for (uint32_t t = 0; t < part->tensor_count; t++)
        part->tensors[t].data = NULL;
    part->request_bytes = mr_message_bytes(part->tensors, part->tensor_count);
    if (!f->options.ahead && part->request_bytes > 0 &&
        (!mrc_link_has_room(link, part->request_bytes) || !mrc_call_hooks.is_open(link)))
        return MR_NO_MEMORY;
    enum mr_status status = mrc_call_hooks.begin(f, part, link);

    if (status != MR_OK)
        return status;
    part->link = link;
    status =
        mr_call_begin(link->ep, link->session, &f->options, part->tensors, part->tensor_count, &part->call);

    if (status == MR_OK) {
        link->calls_pending++;
        link->request_bytes += part->request_bytes;
        client->calls_held++;
        mr_list_append(&link->parts, &part->in_flight);
        return MR_OK;
    }
    mrc_call_hooks.undo(part);
    if (status != MR_NO_MEMORY)
        mrc_error_line("%s: %s: %s", link->name, mr_op_name(f->options.op), mr_status_text(status));
    return status;
}

/* A part is no longer in flight: its request makes room, and its link may be idle. */
static void request_ended(struct mrc_part *part)
{
    assert(part->link->calls_pending > 0);
    part->link->calls_pending--;
    part->link->port_us = 0;
    mr_list_remove(&part->in_flight);
    part->link->request_bytes -= part->request_bytes;
}

/* Gives back what was begun and not sent. */
static void begin_undo(struct mr_future *f)
{
    for (uint32_t i = 0; i < f->part_count; i++) {
        struct mrc_part *part = &f->parts[i];
        if (part->call == NULL)
            continue;
        mrc_call_hooks.undo(part);
        request_ended(part);
        /* Does not count as room made for others: two calls that never fit at once would wake each other for
         * ever. */
        mr_call_free(part->link->ep, part->call);
        f->client->calls_held--;
        part->call = NULL;
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
    for (uint32_t i = 0; i < f->part_count; i++) {
        enum mr_status status = begin_part(f, &f->parts[i]);
        if (status != MR_OK) {
            begin_undo(f);
            return status;
        }
    }
    f->begun = true;
    f->parts_pending = f->part_count;
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
        f->is_replay_full = false;
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

static void send_parts(struct mr_future *f)
{
    uint64_t now_us = mr_clock_us();
    f->sent = true;
    f->sent_us = now_us;
    for (uint32_t i = 0; i < f->part_count; i++) {
        mr_call_send(f->parts[i].link->ep, f->parts[i].call, now_us);
        f->parts[i].link->unsent = true;
    }
}

/* Others' calls may end here; this one cannot be freed before its caller has it. */
static void send_now(struct mr_future *f)
{
    for (uint32_t i = 0; i < f->part_count; i++) {
        struct mrc_link *link = f->parts[i].link;
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
    send_parts(f); /* the driver, which makes these calls, polls before it waits */
    return MR_OK;
}

bool mrc_map_has_changed(const struct mr_future *f)
{
    return f->map_generation != UINT32_MAX && f->map_generation != mrc_owners_changes(f->client);
}

/* Returns whether a part has lost its number. */
static bool was_cancelled(const struct mr_future *f)
{
    bool cancelled = false;
    for (uint32_t i = 0; i < f->part_count; i++)
        cancelled |= f->parts[i].cancelled;
    return cancelled;
}

/* Checks a call between its begin and its sending: MR_OK, or why it must no longer be sent. Under the
 * lock. */
static enum mr_status check_still_valid(const struct mr_future *f)
{
    if (mrc_map_has_changed(f) || was_cancelled(f))
        return MRC_STALE_MAP;
    return mrc_call_hooks.check(f);
}

/* Begins a call that is sent while it is copied, and sends it step by step; if its caller waits for the end,
 * most of it from the caller's memory. Under the lock, which others may have between two steps. */
static enum mr_status send_in_steps(struct mr_future *f, bool waits)
{
    enum mr_status status = begin_all_waiting(f);
    const struct mrc_part *part = &f->parts[0];
    struct mrc_copy_steps copy;
    if (status != MR_OK)
        return status;
    mrc_copy_start(&copy, part, waits);
    const uint8_t *end = mrc_copy_step(&copy);
    status = check_still_valid(f);
    if (status != MR_OK) {
        begin_undo(f);
        return status;
    }
    mr_call_advance(part->link->ep, part->call, end);
    send_parts(f);
    send_now(f);
    while (!mrc_copy_is_done(&copy)) {
        pthread_mutex_unlock(&f->client->lock);
        pthread_mutex_lock(&f->client->lock);
        if (f->ended) /* its request is gone */
            break;
        mr_call_advance(part->link->ep, part->call, mrc_copy_step(&copy));
        part->link->unsent = true;
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
    send_parts(f);
    if (!f->more)
        send_now(f);
    return MR_OK;
}

/* ---- ending ---- */

static bool may_be_repeated(const struct mrc_part *part)
{
    return part->push != NULL || part->future->options.sequence != 0 ||
           mr_op_repeatable(part->future->options.op);
}

void mrc_part_ended(struct mrc_part *part, struct mr_call *call, enum mr_status status,
                    const struct mr_message *reply)
{
    struct mr_future *f = part->future;
    struct mr_client *client = f->client;
    part->status = status == MR_OK && reply != NULL ? (enum mr_status)reply->preamble.status : status;
    if (status == MR_DEADLINE_EXCEEDED && reply == NULL &&
        mrc_link_was_silent(part->link, f->sent_us, mr_clock_us()))
        part->status = MR_UNREACHABLE;
    if (part->is_void)
        part->status = MR_UNKNOWN_TABLE;
    if (reply != NULL && mrc_cluster_is_late(client, f->options.op, f->sent_us)) {
        reply = NULL;
        part->is_late = true;
        part->status = may_be_repeated(part) ? MR_WRONG_OWNER : MR_UNKNOWN_OUTCOME;
    } else if (part->status == MR_WRONG_OWNER) {
        mrc_cluster_refused(part->link->node);
    } else if (part->status == MR_BUSY && reply == NULL) {
        part->link->node->stale |= part->link->node->is_member; /* what it tells of its lease */
    } else if (part->status == MR_UNKNOWN_OP && f->options.op == MR_OP_LOOKUP_TABLES) {
        part->link->node->lacks_lookup_tables_in = part->link->start_id;
    }
    part->replied = reply != NULL;
    part->start_id = reply != NULL ? part->link->start_id : 0;
    part->unread_bytes = mr_call_unread_bytes(call);
    part->sequence = reply != NULL ? reply->preamble.sequence : 0;
    part->restores = reply != NULL ? reply->preamble.restores : 0;
    part->checkpoint = reply != NULL ? reply->preamble.checkpoint : 0;
    if (reply != NULL && reply->preamble.tensor_count > 0)
        mrc_copy_answers(part, reply);
    request_ended(part);
    mrc_call_hooks.ended(part, reply);
    if (reply != NULL)
        mrc_answer_note(&client->progress.answers, f->options.op, part->request_bytes,
                        part->link->processed_us - f->sent_us);
    if (reply != NULL && part->request_bytes > part->link->socket.udp_bytes_max)
        mrc_link_delivered(part->link, f->sent_us);
    part->link->calls_held++;
    if (part->answer_count == 0 || part->copy != NULL) {
        part->call = NULL;
        mrc_client_free_call(client, part->link, call);
    }
    client->room_made++;
    assert(f->parts_pending > 0);
    if (--f->parts_pending > 0)
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
    for (uint32_t i = 0; i < f->part_count; i++) {
        struct mrc_part *part = &f->parts[i];
        mrc_call_hooks.leave(part);
        if (part->call != NULL)
            mrc_client_free_call(f->client, part->link, part->call);
        part->call = NULL;
    }
}

static void free_memory(struct mr_future *f)
{
    mrc_call_hooks.free(f);
    for (uint32_t i = 0; i < f->part_count; i++) {
        if (f->parts[i].answers != f->parts[i].few)
            free(f->parts[i].answers);
        free(f->parts[i].copy);
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
    for (uint32_t i = 0; i < f->part_count; i++)
        holds |= f->parts[i].call != NULL || f->parts[i].resharded.sequence != 0;
    if (holds) {
        pthread_mutex_lock(&f->client->lock);
        free_calls(f);
        pthread_mutex_unlock(&f->client->lock);
    }
    free_memory(f);
}
