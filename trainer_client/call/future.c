#include "trainer_client/call/future.h"

#include <assert.h>
#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "trainer_client/call/joined.h"
#include "trainer_client/call/last_error.h"
#include "trainer_client/call/outcome.h"
#include "trainer_client/call/own_latency.h"
#include "trainer_client/call/retry.h"
#include "trainer_client/replay/resend.h"
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/tick_clock.h"

#define PRIORITY_MAX          7u
#define COPY_LOCKED_BYTES_MAX 16384u /* larger requests are copied without the lock */
/* Requests of at least this length, which no datagram holds, are sent while they are copied: about two runs
 * of datagrams at a time, which are still in the cache when they are sent. */
#define COPY_SENT_BYTES_MIN  (256u << 10)
#define COPY_SENT_STEP_BYTES (112u << 10)

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
        (!mrc_link_has_room(link, part->request_bytes) || !mrc_remap_is_over(link)))
        return MR_NO_MEMORY;
    enum mr_status status = mrc_resend_begin(f, part, link);

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
    mrc_resend_undo(part);
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
        mrc_resend_undo(part);
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
    enum mr_status known = mrc_survey_check(f);

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
        if (mrc_client_calls_pending(client) == 0 && !mrc_resend_pending(client))
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

static uint64_t tensor_bytes(const struct mr_future *f)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < f->part_count; i++)
        for (uint32_t t = 0; t < f->parts[i].tensor_count; t++)
            bytes += f->parts[i].tensors[t].bytes;
    return bytes;
}

/* Copies the tensors that have a source into the requests, with or without the lock. */
static void copy_tensors(struct mr_future *f)
{
    for (uint32_t i = 0; i < f->part_count; i++) {
        struct mrc_part *part = &f->parts[i];
        for (uint32_t t = 0; t < part->tensor_count; t++)
            if (part->sources[t] != NULL && part->tensors[t].bytes > 0)
                memcpy(part->tensors[t].data, part->sources[t], part->tensors[t].bytes);
    }
}

enum mr_status mrc_future_begin(struct mr_future *f)
{
    enum mr_status status = mrc_resend_prepare(f);
    if (status != MR_OK)
        return status;
    pthread_mutex_lock(&f->client->lock);
    status = begin_all_waiting(f);
    pthread_mutex_unlock(&f->client->lock);
    if (status == MR_OK)
        copy_tensors(f);
    return status;
}

/* ---- sending and ending ---- */

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
    copy_tensors(f);
    send_parts(f); /* the driver, which makes these calls, polls before it waits */
    return MR_OK;
}

bool mrc_map_has_changed(const struct mr_future *f)
{
    return f->map_generation != UINT32_MAX && f->map_generation != mrc_owners_changes(f->client);
}

/* Returns whether a part has lost its number. */
static bool was_withdrawn(const struct mr_future *f)
{
    bool withdrawn = false;
    for (uint32_t i = 0; i < f->part_count; i++)
        withdrawn |= f->parts[i].withdrawn;
    return withdrawn;
}

/* Checks a call between its begin and its sending: MR_OK, or why it must no longer be sent. Under the
 * lock. */
static enum mr_status check_still_valid(const struct mr_future *f)
{
    if (mrc_map_has_changed(f) || was_withdrawn(f))
        return MRC_STALE_MAP;
    return mrc_survey_check(f);
}

#define NO_TENSOR UINT32_MAX

/* How far the sources of a part are copied into its request. */
struct copied {
    uint32_t tensor;
    uint64_t bytes;    /* of that tensor */
    uint32_t borrowed; /* the tensor that is sent from where it is, or NO_TENSOR */
};

/* Copies a step more. Returns the end of what is copied now. */
static const uint8_t *copy_step(const struct mrc_part *part, struct copied *c)
{
    uint64_t left = COPY_SENT_STEP_BYTES;
    const uint8_t *end = part->tensors[0].data;
    for (; c->tensor < part->tensor_count; c->tensor++, c->bytes = 0) {
        const struct mr_tensor *t = &part->tensors[c->tensor];
        if (c->tensor == c->borrowed) {
            end = (const uint8_t *)t->data + t->bytes;
            continue;
        }
        uint64_t bytes = t->bytes - c->bytes < left ? t->bytes - c->bytes : left;
        if (bytes > 0)
            memcpy((uint8_t *)t->data + c->bytes, (const uint8_t *)part->sources[c->tensor] + c->bytes,
                   bytes);
        c->bytes += bytes;
        left -= bytes;
        end = (const uint8_t *)t->data + c->bytes;
        if (c->bytes < t->bytes)
            return end;
    }
    return end;
}

/* Whether the request is sent while it is copied: it is long, goes to one core, is all the caller's own, and
 * no copy of it is kept for a replay. */
static bool is_sent_while_copied(const struct mr_future *f)
{
    const struct mrc_part *part = &f->parts[0];
    if (f->begun || f->more || f->part_count != 1 || tensor_bytes(f) < COPY_SENT_BYTES_MIN ||
        mrc_resend_numbers(f->client, f->options.op))
        return false;
    for (uint32_t t = 0; t < part->tensor_count; t++)
        if (part->sources[t] == NULL && part->tensors[t].bytes > 0)
            return false;
    return true;
}

/* Has the longest tensor sent from the caller's memory; returns its number. */
static uint32_t borrow_longest(const struct mrc_part *part)
{
    uint32_t longest = 0;
    for (uint32_t t = 1; t < part->tensor_count; t++)
        if (part->tensors[t].bytes > part->tensors[longest].bytes)
            longest = t;
    mr_call_borrow(part->call, part->tensors[longest].data, part->sources[longest],
                   (uint32_t)part->tensors[longest].bytes);
    return longest;
}

/* Begins such a call, and sends it step by step; if its caller waits for the end, most of it from the
 * caller's memory. Under the lock, which others may have between two steps. */
static enum mr_status send_while_copying(struct mr_future *f, bool waits)
{
    enum mr_status status = begin_all_waiting(f);
    const struct mrc_part *part = &f->parts[0];
    struct copied copied = {.borrowed = NO_TENSOR};
    if (status != MR_OK)
        return status;
    if (waits)
        copied.borrowed = borrow_longest(part);
    const uint8_t *end = copy_step(part, &copied);
    status = check_still_valid(f);
    if (status != MR_OK) {
        begin_undo(f);
        return status;
    }
    mr_call_advance(part->link->ep, part->call, end);
    send_parts(f);
    send_now(f);
    while (copied.tensor < part->tensor_count) {
        pthread_mutex_unlock(&f->client->lock);
        pthread_mutex_lock(&f->client->lock);
        if (f->ended) /* its request is gone */
            break;
        mr_call_advance(part->link->ep, part->call, copy_step(part, &copied));
        part->link->unsent = true;
        send_now(f);
    }
    return MR_OK;
}

/* Copies the answers out of the message memory, so that callers that keep many replies do not keep the next
 * ones from arriving. */
static void copy_answers(struct mrc_part *part)
{
    uint64_t bytes = 0;
    for (uint32_t t = 0; t < part->answer_count; t++)
        bytes += (part->answers[t].bytes + MR_TENSOR_ALIGN - 1) / MR_TENSOR_ALIGN * MR_TENSOR_ALIGN;
    uint8_t *copy = aligned_alloc(MR_TENSOR_ALIGN, bytes == 0 ? MR_TENSOR_ALIGN : bytes);

    if (copy == NULL)
        return; /* without memory they stay where they are */
    part->copy = copy;
    for (uint32_t t = 0; t < part->answer_count; t++) {
        struct mr_tensor *tensor = &part->answers[t];
        if (tensor->bytes > 0)
            memcpy(copy, tensor->data, tensor->bytes);
        tensor->data = copy;
        copy += (tensor->bytes + MR_TENSOR_ALIGN - 1) / MR_TENSOR_ALIGN * MR_TENSOR_ALIGN;
    }
}

/* The parsed message is the endpoint's, and ends with the callback; only the tensors' bytes remain. */
static void keep_answers(struct mrc_part *part, const struct mr_message *reply)
{
    uint32_t count = reply->preamble.tensor_count;
    part->answers = count <= MRC_FEW_ANSWERS ? part->few : malloc(count * sizeof(*part->answers));
    if (part->answers == NULL) {
        part->status = MR_NO_MEMORY;
        return;
    }
    memcpy(part->answers, reply->tensors, count * sizeof(*part->answers));
    part->answer_count = count;
    if (mrc_link_is_short(part->link))
        copy_answers(part);
}

static void notify(const struct mr_future *f)
{
    uint64_t one = 1;
    if (f->notify_fd >= 0)
        (void)!write(f->notify_fd, &one, sizeof(one));
}

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
        keep_answers(part, reply);
    request_ended(part);
    mrc_resend_ended(part, reply);
    if (reply != NULL) {
        mrc_survey_answered(part->link->node, reply->preamble.restores);
        mrc_answer_note(&client->progress.answers, f->options.op, part->request_bytes,
                        part->link->processed_us - f->sent_us);
    }
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
    mrc_resend_all_ended(f);
    client->progress.calls_ended++;
    if (!f->awaited)
        mrc_own_latency_ended(f);
    f->ended = true;
    if (f->on_end != NULL)
        f->on_end(f);
    else if (f->abandoned)
        mrc_future_free_locked(f);
    else
        notify(f);
}

static bool has_ended(const void *arg)
{
    const struct mr_future *f = arg;
    return f->ended;
}

/* Waits, under the lock. How long a call takes counts until its caller goes on: what the thread that received
 * the answer has to send before that is a part of it. */
static void wait_for_end(struct mr_future *f)
{
    f->awaited = !f->ended;
    (void)mrc_wait(f->client, has_ended, f, UINT64_MAX);
    if (f->awaited)
        mrc_own_latency_ended(f);
}

static enum mr_status future_finish(struct mr_future *f, struct mr_reply **reply)
{
    return f->finish != NULL ? f->finish(f, reply) : mrc_reply_give(f, reply);
}

/* Finishes a push whose caller asked what became of it. */
static enum mr_status finish_counted(struct mr_future *f, struct mr_reply **reply)
{
    struct mr_pushed pushed;
    enum mr_status status = mrc_pushed(f, &pushed);
    if (status == MR_OK && f->finish != NULL)
        status = f->finish(f, reply);
    if (status == MR_OK)
        *f->pushed = pushed;
    return status;
}

/* Returns the outcome of a call that has ended, and writes its outputs. Not under the lock. */
static enum mr_status conclude(struct mr_future *f, struct mr_reply **reply)
{
    mrc_remap_settle(f);
    enum mr_status status = mrc_outcome(f);

    if (status != MR_OK) {
        if (f->takes_some)
            (void)future_finish(f, reply);
        return status;
    }
    return f->pushed != NULL ? finish_counted(f, reply) : future_finish(f, reply);
}

/* The call was sent: hands the future out, or waits and frees it. Gives up the lock. */
static enum mr_status wait_or_hand_out(struct mr_future *f, const struct mr_options *options,
                                       struct mr_reply **reply)
{
    if (options != NULL && options->future != NULL) {
        pthread_mutex_unlock(&f->client->lock);
        *options->future = f;
        return MR_OK;
    }
    wait_for_end(f);
    pthread_mutex_unlock(&f->client->lock);
    enum mr_status status = conclude(f, reply);
    mrc_future_free(f);
    return status;
}

enum mr_status mrc_future_run(struct mr_future *f, const struct mr_options *options, struct mr_reply **reply)
{
    struct mr_client *client = f->client;
    enum mr_status status;
    if (is_sent_while_copied(f)) {
        pthread_mutex_lock(&client->lock);
        status = send_while_copying(f, options == NULL || options->future == NULL);
        if (status == MR_OK)
            return wait_or_hand_out(f, options, reply);
        pthread_mutex_unlock(&client->lock);
        goto failed;
    }
    if (!f->begun && (tensor_bytes(f) > COPY_LOCKED_BYTES_MAX || mrc_resend_numbers(client, f->options.op))) {
        status = mrc_future_begin(f);
        if (status != MR_OK)
            goto failed;
    }
    mrc_resend_copy(f);
    pthread_mutex_lock(&client->lock);
    if (!f->begun) {
        status = begin_all_waiting(f);
        if (status != MR_OK) {
            pthread_mutex_unlock(&client->lock);
            goto failed;
        }
        copy_tensors(f);
    }
    status = check_still_valid(f);
    if (status != MR_OK) {
        begin_undo(f);
        pthread_mutex_unlock(&client->lock);
        goto failed;
    }
    send_parts(f);
    if (!f->more)
        send_now(f);
    return wait_or_hand_out(f, options, reply);
failed:
    mrc_future_free(f);
    return status;
}

static void free_calls(struct mr_future *f)
{
    if (f->begun && !f->sent) {
        begin_undo(f);
        return;
    }
    for (uint32_t i = 0; i < f->part_count; i++) {
        struct mrc_part *part = &f->parts[i];
        mrc_remap_leave(part);
        if (part->call != NULL)
            mrc_client_free_call(f->client, part->link, part->call);
        part->call = NULL;
    }
}

static void free_memory(struct mr_future *f)
{
    mrc_resend_free(f);
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
        holds |= f->parts[i].call != NULL || f->parts[i].moved != 0;
    if (holds) {
        pthread_mutex_lock(&f->client->lock);
        free_calls(f);
        pthread_mutex_unlock(&f->client->lock);
    }
    free_memory(f);
}

/* ---- the public side ---- */

static enum mr_status wait_for_joined(struct mr_future *f, struct mr_reply **reply)
{
    struct mr_reply *tensors = NULL;
    f->waited = true;
    enum mr_status status = mrc_joined_wait(f->joined, reply == NULL ? NULL : &tensors);
    if (status == MR_OK && reply != NULL)
        *reply = tensors;
    return status;
}

enum mr_status mr_future_wait(struct mr_future *future, struct mr_reply **reply)
{
    if (future == NULL)
        return mrc_bad_argument("mr_future_wait", "future is NULL");
    if (future->waited)
        return mrc_bad_argument("mr_future_wait", "this future has been waited for before");
    if (mrc_is_inherited(future->client))
        return mrc_check_process(future->client, mr_op_name(future->options.op));
    if (future->joined != NULL)
        return wait_for_joined(future, reply);
    do {
        pthread_mutex_lock(&future->client->lock);
        wait_for_end(mrc_retry_latest(future));
        pthread_mutex_unlock(&future->client->lock);
    } while (mrc_retry_next(future, UINT64_MAX) == MRC_RETRY_NOW);
    future->waited = true;

    struct mr_reply *tensors = NULL; /* remains NULL when the whole answer goes into other outputs */
    enum mr_status status = conclude(mrc_retry_latest(future), reply == NULL ? NULL : &tensors);

    if (status == MR_OK && reply != NULL)
        *reply = tensors;
    return status;
}

static bool was_refused(const struct mr_future *f)
{
    bool refused = false;
    for (uint32_t i = 0; i < f->part_count; i++)
        refused |= f->parts[i].status == MR_WRONG_OWNER;
    return refused;
}

/* Returns whether the latest try of the future that the caller has needs nothing more to be waited for. */
static bool is_over(const void *arg)
{
    struct mr_future *f = (void *)(uintptr_t)arg;
    const struct mr_future *latest = mrc_retry_latest(f);
    return latest->ended && mrc_remap_has_settled(latest) &&
           (mrc_cluster_is_settled(f->client) || f->retry == NULL || f->retry->is_over ||
            mr_clock_us() >= f->options.deadline_us || !was_refused(latest));
}

/* The caller was notified and polled, but the retry was not possible yet. Notify again when there is more
 * room than there was. Under the lock. */
static void notify_later(struct mr_future *f, uint64_t room_made)
{
    const struct mr_future *latest = mrc_retry_latest(f);
    if (!latest->ended || latest->notify_fd < 0)
        return;
    mr_list_remove(&f->pending_notify);
    mr_list_append(&f->client->pending_notify, &f->pending_notify);
    f->room_made = room_made;
}

void mrc_futures_notify_pending(struct mr_client *client)
{
    struct mr_link *next;
    for (struct mr_link *at = client->pending_notify.next; at != &client->pending_notify; at = next) {
        struct mr_future *f = MR_CONTAINER(at, struct mr_future, pending_notify);
        next = at->next;
        if ((f->room_made != client->room_made && is_over(f)) || mr_clock_us() >= f->options.deadline_us) {
            mr_list_remove(at);
            notify(mrc_retry_latest(f));
        }
    }
}

uint64_t mrc_futures_next_us(const struct mr_client *client)
{
    uint64_t next_us = UINT64_MAX;
    const struct mr_link *pending = &client->pending_notify;
    for (const struct mr_link *at = pending->next; at != pending; at = at->next) {
        const struct mr_future *f = MR_CONTAINER(at, struct mr_future, pending_notify);
        if (f->options.deadline_us < next_us)
            next_us = f->options.deadline_us;
    }
    return next_us;
}

/* Returns whether a call is over, for which it waits until then at most; makes it again if need be. */
static bool future_poll(struct mr_future *f, uint64_t until_us)
{
    if (f->joined != NULL)
        return mrc_joined_poll(f->joined, until_us);
    for (;;) {
        pthread_mutex_lock(&f->client->lock);
        const bool over = mrc_wait(f->client, is_over, f, until_us);
        const uint64_t room_made = f->client->room_made;
        if (!over)
            notify_later(f, room_made - 1);
        pthread_mutex_unlock(&f->client->lock);
        if (!over)
            return false;
        const enum mrc_retry_due due = mrc_retry_next(f, until_us);
        if (due == MRC_RETRY_NO)
            return true;
        if (due == MRC_RETRY_NOW)
            continue;
        pthread_mutex_lock(&f->client->lock);
        (void)mrc_progress_once(f->client); /* polling alone makes progress */
        notify_later(f, room_made);
        pthread_mutex_unlock(&f->client->lock);
        return false;
    }
}

/* In the child of a fork there is nothing to wait for; mr_future_wait() reports why. */
bool mr_future_done(struct mr_future *future)
{
    if (future == NULL || mrc_is_inherited(future->client) || future_poll(future, 0))
        return true;
    pthread_mutex_lock(&future->client->lock);
    (void)mrc_progress_once(future->client);
    pthread_mutex_unlock(&future->client->lock);
    return future_poll(future, 0);
}

bool mr_future_wait_for(struct mr_future *future, uint32_t timeout_ms)
{
    return future == NULL || mrc_is_inherited(future->client) ||
           future_poll(future, mr_clock_us() + timeout_ms * UINT64_C(1000));
}

void mr_future_notify(struct mr_future *future, int event_fd)
{
    if (future == NULL || mrc_is_inherited(future->client))
        return;
    if (future->joined != NULL) {
        mrc_joined_notify(future->joined, event_fd);
        return;
    }
    pthread_mutex_lock(&future->client->lock);
    struct mr_future *latest = mrc_retry_latest(future);

    latest->notify_fd = event_fd;
    if (latest->ended)
        notify(latest);
    pthread_mutex_unlock(&future->client->lock);
}

static void future_abandon(struct mr_future *f)
{
    if (f->ended)
        mrc_future_free_locked(f);
    else
        f->abandoned = true;
}

void mr_future_destroy(struct mr_future *future)
{
    if (future == NULL || mrc_is_inherited(future->client))
        return;
    struct mr_client *client = future->client;
    if (future->joined != NULL) {
        mrc_joined_free(future->joined);
        mrc_future_free(future);
        return;
    }
    pthread_mutex_lock(&client->lock);
    mr_list_remove(&future->pending_notify);
    if (mrc_retry_latest(future) != future)
        future_abandon(mrc_retry_latest(future));
    future_abandon(future);
    pthread_mutex_unlock(&client->lock);
}
