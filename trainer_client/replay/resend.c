#include "trainer_client/replay/resend.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/format/push_number.h"
#include "trainer_client/call/last_error.h"
#include "trainer_client/replay/reshard.h"
#include "trainer_client/replay/reshard_trim.h"
#include "trainer_client/replay/replay_hooks.h"
#include "dataplane/wire/base/clock.h"

/* A repetition in flight. */
struct resend {
    struct mr_link link; /* of mrc_link.resends */
    struct mr_future *future;
    struct mrc_replay *stream;
    struct mrc_push *push;
};

void mrc_resend_init(struct mrc_link *link)
{
    mrc_replay_init(&link->replay->own, 0, link->client->replay_bytes);
    mr_list_init(&link->replay->resends);
    link->replay->resend_us = UINT64_MAX;
}

void mrc_resend_fini(struct mrc_link *link)
{
    mrc_replay_fini(&link->replay->own);
    for (uint32_t i = 0; i < link->replay->former_count; i++) {
        mrc_replay_fini(link->replay->former[i]);
        free(link->replay->former[i]);
    }
    free(link->replay->former);
}

/* ---- the caller's own pushes ---- */

bool mrc_resend_numbers(const struct mr_client *client, uint32_t op)
{
    return client->replay &&
           (op == MR_OP_PUSH_GRAD || op == MR_OP_PUSH_GRAD_BATCH || op == MR_OP_VARIABLE_PUSH);
}

enum mr_status mrc_resend_prepare(struct mr_future *f)
{
    if (!mrc_resend_numbers(f->client, f->options.op))
        return MR_OK;
    for (uint32_t i = 0; i < f->request_count; i++) {
        struct mrc_shard_request *request = &f->requests[i];
        request->push = mrc_push_new(f->options.op, f->options.table, f->options.priority, f->options.step,
                                     request->tensors, request->tensor_count);
        if (request->push == NULL)
            return mrc_error(MR_NO_MEMORY, "%s: no memory to keep a copy of the request for a replay",
                             mr_op_name(f->options.op));
    }
    return MR_OK;
}

void mrc_resend_free(struct mr_future *f)
{
    for (uint32_t i = 0; i < f->request_count; i++)
        mrc_push_free(f->requests[i].push);
}

static enum mr_status tell_loss(const struct mrc_link *link, const struct mrc_loss *loss, uint64_t step)
{
    char lost[MRC_STEPS_BYTES], this_one[MRC_STEPS_BYTES];
    mrc_of_steps(loss->from_step, loss->to_step, lost);
    mrc_of_steps(step, step, this_one);
    if (loss->refused != MR_OK)
        return mrc_error(MR_UNKNOWN_OUTCOME,
                         "%s: the server restarted and refused %" PRIu64
                         " push%s%s sent again: %s. Save after creating features; this push%s was not sent",
                         link->name, loss->pushes, loss->pushes == 1 ? "" : "es", lost,
                         mr_status_text(loss->refused), this_one);
    return mrc_error(MR_UNKNOWN_OUTCOME,
                     "%s: the server restarted from a checkpoint that may lack up to %" PRIu64
                     " push%s%s, and they are no longer in the replay buffer of %" PRIu64
                     " bytes: raise replay_bytes, or save more often. This push%s was not sent",
                     link->name, loss->pushes, loss->pushes == 1 ? "" : "es", lost,
                     link->replay->own.bytes_max, this_one);
}

/* If lookups make rows, a server that has not answered this push's lookup must know that. */
static uint16_t flags_of(const struct mrc_link *link, const struct mrc_push *push)
{
    bool unseen =
        push->op == MR_OP_PUSH_GRAD && push->looked_up_in != 0 && push->looked_up_in != link->start_id;
    return unseen ? MR_PUSH_UNSEEN : 0;
}

static void add_loss(struct mrc_loss *sum, struct mrc_replay *stream)
{
    struct mrc_loss loss = mrc_replay_take_loss(stream);
    if (loss.pushes == 0)
        return;
    if (sum->pushes == 0)
        *sum = (struct mrc_loss){.from_step = loss.from_step, .to_step = loss.to_step};
    sum->pushes += loss.pushes;
    sum->from_step = loss.from_step < sum->from_step ? loss.from_step : sum->from_step;
    sum->to_step = loss.to_step > sum->to_step ? loss.to_step : sum->to_step;
    sum->refused = loss.refused != MR_OK ? loss.refused : sum->refused;
}

/* Takes the losses of all cores and former maps: a caller cannot know whose stream it was, and perhaps nobody
 * will push to that core again. */
static struct mrc_loss take_losses(struct mr_client *client)
{
    struct mrc_loss sum = {.pushes = 0};
    for (uint32_t i = 0; i < client->reshard->stream_count; i++)
        add_loss(&sum, client->reshard->streams[i]);
    for (uint32_t i = 0; i < client->link_count; i++) {
        add_loss(&sum, &client->links[i]->replay->own);
        for (uint32_t l = 0; l < client->links[i]->replay->former_count; l++)
            add_loss(&sum, client->links[i]->replay->former[l]);
    }
    return sum;
}

/* Of the requests before this one that go to the same core. */
static uint64_t bytes_before(const struct mr_future *f, const struct mrc_shard_request *request,
                             const struct mrc_link *link)
{
    uint64_t bytes = 0;
    for (const struct mrc_shard_request *before = f->requests; before != request; before++)
        bytes += before->link == link ? before->push->bytes : 0;
    return bytes;
}

enum mr_status mrc_resend_begin(struct mr_future *f, struct mrc_shard_request *request, struct mrc_link *link)
{
    if (request->push == NULL)
        return MR_OK;
    struct mrc_loss loss = take_losses(f->client);

    if (loss.pushes > 0)
        return tell_loss(link, &loss, f->options.step);
    if (link->replay->own.stream_id == 0 && !mrc_reshard_start_stream(link))
        return mrc_error(MR_NO_MEMORY, "%s: no memory to number pushes", link->name);
    request->push->asker = request;
    request->push->era = f->client->reshard->era;
    request->push->call_bytes = bytes_before(f, request, link);
    request->push->looked_up_in =
        link->replay->looked_up_in != 0 ? link->replay->looked_up_in : link->node->replay->looked_up_in;
    if (!mrc_replay_add(&link->replay->own, request->push)) {
        f->is_replay_full = link->replay->own.bytes + request->push->bytes > link->replay->own.bytes_max;
        return MR_NO_MEMORY;
    }
    f->options.sequence = mrc_replay_sequence(&link->replay->own, request->push);
    f->options.flags = (uint16_t)((f->options.flags & MR_PUSH_COUNTS) | flags_of(link, request->push));
    return MR_OK;
}

void mrc_resend_undo(struct mrc_shard_request *request)
{
    if (request->push == NULL || request->push->state == MRC_PUSH_NEW)
        return;
    mrc_replay_undo(&request->link->replay->own, request->push);
    request->link->replay->resend_us = 0; /* its number may have to be sent */
}

void mrc_resend_copy(struct mr_future *f)
{
    for (uint32_t i = 0; i < f->request_count; i++) {
        const struct mrc_shard_request *request = &f->requests[i];
        for (uint32_t t = 0; request->push != NULL && t < request->tensor_count; t++)
            if (request->tensors[t].bytes > 0)
                memcpy(request->push->tensors[t].data, request->tensors[t].data, request->tensors[t].bytes);
    }
}

void mrc_resend_keep(struct mrc_shard_request *request)
{
    struct mrc_push *push = request->push;
    request->push = NULL;
    request->status = MR_UNKNOWN_OUTCOME;
    request->kept = true;
    mrc_replay_unanswered(&request->link->replay->own, push);
    request->link->replay->resend_us = 0;
}

bool mrc_resend_was_refused(const struct mrc_shard_request *request)
{
    return request->push != NULL && request->status == MR_BUSY && !request->replied &&
           request->push->state == MRC_PUSH_ASKED;
}

static bool is_applied(const struct mrc_shard_request *request)
{
    return request->status == MR_OK || request->status == MR_ALREADY_LEARNT || request->kept ||
           request->resharded.sequence != 0;
}

void mrc_resend_all_ended(struct mr_future *f)
{
    bool applied = false;
    for (uint32_t i = 0; i < f->request_count; i++)
        applied |= is_applied(&f->requests[i]);
    for (uint32_t i = 0; i < f->request_count; i++) {
        if (!mrc_resend_was_refused(&f->requests[i]))
            continue;
        if (applied)
            mrc_resend_keep(&f->requests[i]);
        else
            mrc_resend_undo(&f->requests[i]);
    }
}

/* Relies on what the reply reports as being on disk, once that start of the node is judged. */
static uint64_t take_floor(const struct mrc_shard_request *request)
{
    struct mrc_ancestry *ancestry = &request->link->node->replay->ancestry;
    const uint64_t floor = mr_push_number(request->sequence);
    if (!mrc_ancestry_knows(ancestry, request->start_id))
        return MRC_FLOOR_UNKNOWN;
    if (floor > 0)
        mrc_ancestry_saved(ancestry, request->restores, request->checkpoint);
    return floor;
}

/* Handles a push that nobody answered: that is reported to the caller, but the push is kept, so that it is
 * still applied once. A push that was only ever refused waits for the other parts of its call. A closed link
 * keeps nothing. */
void mrc_resend_ended(struct mrc_shard_request *request, const struct mr_message *reply)
{
    struct mrc_replay *stream = &request->link->replay->own;
    struct mrc_push *push = request->push;
    const uint32_t op = request->future->options.op;
    if ((op == MR_OP_LOOKUP || op == MR_OP_LOOKUP_TABLES) &&
        (request->future->options.flags & MR_FEED_READ_ONLY) == 0 && request->replied &&
        request->status == MR_OK)
        request->link->replay->looked_up_in = request->link->node->replay->looked_up_in =
            request->link->start_id;
    if (push == NULL || push->state == MRC_PUSH_NEW) /* not numbered, or no longer */
        return;
    if (request->status ==
        MR_WRONG_OWNER) { /* it is sent again by a newer map, or because its answer was late */
        mrc_reshard_follow(request, mrc_replay_sequence(stream, push));
        mrc_resend_keep(request);
        return;
    }
    if (reply != NULL)
        push->restores = reply->preamble.restores;
    if (reply != NULL || request->is_void || request->link->session == NULL) {
        uint64_t durable = reply == NULL ? 0 : take_floor(request);
        request->push = NULL;
        mrc_replay_answered(stream, push, request->status, durable, mr_clock_us());
    } else if (!mrc_resend_was_refused(request)) {
        mrc_resend_keep(request);
    }
}

bool mrc_resend_in_flight(const struct mrc_node *node)
{
    bool in_flight = false;
    for (uint32_t i = 0; i < node->link_count; i++)
        in_flight |= !mr_list_empty(&node->links[i]->replay->resends);
    return in_flight;
}

bool mrc_resend_pending(const struct mr_client *client)
{
    for (uint32_t i = 0; i < client->link_count; i++) {
        const struct mrc_replay *own = &client->links[i]->replay->own;
        if (mrc_replay_is_open(own) || !mrc_reshard_is_over(client->links[i]))
            return true;
    }
    return false;
}

/* ---- again ---- */

static void resend_ended(struct mr_future *f)
{
    struct resend *resend = f->context;
    const struct mrc_shard_request *request = &f->requests[0];
    mr_list_remove(&resend->link);
    if (request->replied && request->status != MR_WRONG_OWNER) {
        uint64_t dropped = resend->stream->dropped;
        if (request->status == MR_OK ||
            request->status == MR_ALREADY_LEARNT) /* otherwise it was not applied then */
            resend->push->restores = request->restores;
        mrc_replay_answered(resend->stream, resend->push, request->status, take_floor(request),
                            mr_clock_us());
        if (resend->stream->dropped != dropped)
            mrc_reshard_failed(f->client, f->options.sequence, request->status);
    } else {
        mrc_replay_unanswered(resend->stream, resend->push);
    }
    request->link->replay->resend_us = 0; /* the next push may depend on it */
    mrc_future_free_locked(f);
}

static bool send_again(struct mrc_link *link, struct mrc_replay *stream, struct mrc_push *push)
{
    struct mr_options options = {.step = push->step, .priority = push->priority};
    struct mr_future *f;
    const uint32_t tensors = push->first != 0 ? 1 : push->tensor_count;
    if (mrc_future_new(link->client, &options, push->op, push->table, 1, tensors, sizeof(struct resend),
                       &f) != MR_OK)
        return false;
    if (push->first != 0)
        mrc_request_add(f, 0, mr_tensor_1d(MR_U64, 1, &push->first));
    for (uint32_t t = 0; t < push->tensor_count; t++)
        mrc_request_add(f, 0, push->tensors[t]);
    struct resend *resend = f->context;

    *resend = (struct resend){.future = f, .stream = stream, .push = push};
    f->requests[0].to = link;
    f->options.deadline_us = UINT64_MAX;
    f->options.sequence = mrc_replay_sequence(stream, push);
    f->options.flags = (uint16_t)(flags_of(link, push) | MR_PUSH_AGAIN |
                                  (uint8_t)link->node->replay->probe.restores << MR_PUSH_RESTORES_SHIFT);
    f->options.ahead = true;
    f->on_end = resend_ended;
    if (mrc_future_send_locked(f) != MR_OK) {
        mrc_future_free_locked(f);
        return false;
    }
    mr_list_append(&link->replay->resends, &resend->link);
    return true;
}

/* Sends what the server lacks, or may lack, of this stream, up to an era. False: there is no room for more
 * now. */
static bool send_due(struct mrc_link *link, struct mrc_replay *stream, uint32_t era, uint64_t now_us)
{
    struct mrc_push *push;
    while ((push = mrc_replay_next(stream, now_us)) != NULL) {
        if (push->era > era) {
            mrc_replay_unanswered(stream, push);
            return true;
        }
        if (!send_again(link, stream, push)) {
            mrc_replay_unanswered(stream, push);
            return false;
        }
    }
    return true;
}

/* Returns whether the node has reported its map since this link's core restarted. */
static bool map_is_known(const struct mrc_link *link)
{
    const struct mrc_node *node = link->node;
    return !node->stale && !node->asking && node->start_id == link->start_id &&
           link->client->reshard->stream_count == 0 && !node->replay->asks && mrc_state_probe_is_over(node);
}

/* False: this stream has not caught up; nothing of a later era may be sent. */
static bool pump(struct mrc_link *link, struct mrc_replay *stream, uint32_t era, uint64_t now_us)
{
    bool room = send_due(link, stream, era, now_us);
    uint64_t next_us = room ? mrc_replay_next_us(stream) : now_us + MRC_REPLAY_PAUSE_US;
    link->replay->resend_us = next_us < link->replay->resend_us ? next_us : link->replay->resend_us;
    return mrc_replay_caught_up(stream);
}

/* A stream of a map that came back has pushes from before and after the map in between. */
static uint32_t first_era(const struct mrc_link *link)
{
    uint32_t first = UINT32_MAX;
    for (uint32_t i = 0; i < link->replay->former_count; i++) {
        uint32_t era = mrc_replay_first_era(link->replay->former[i]);
        first = era < first ? era : first;
    }
    return first;
}

/* Goes through the streams from the oldest map on; a stream is removed when all of it is on disk. */
static bool send_former(struct mrc_link *link, uint64_t now_us)
{
    const uint32_t era = first_era(link);
    bool caught_up = true;
    uint32_t left = 0;
    for (uint32_t i = 0; i < link->replay->former_count; i++) {
        struct mrc_replay *stream = link->replay->former[i];
        if (stream->count > 0 && stream->asked_at != link->replay->own.floor &&
            mrc_replay_caught_up(stream)) {
            stream->asked_at = link->replay->own.floor; /* there is a new checkpoint */
            mrc_replay_ask(stream);
        }
        caught_up &= pump(link, stream, era, now_us);
        if (stream->count > 0) {
            link->replay->former[left++] = stream;
            continue;
        }
        mrc_reshard_note_trim(link->client, stream);
        mrc_replay_retire(stream, &link->replay->own);
        free(stream);
    }
    link->replay->former_count = left;
    return caught_up;
}

static void resend_poll_link(struct mrc_link *link, uint64_t now_us)
{
    struct mr_client_session_info info;
    link->replay->resend_us = UINT64_MAX;
    if (link->session == NULL || link->regrouped)
        return;
    mr_client_session_info(link->session, &info);
    if (!info.up || ((link->held || link->node->refused) && !map_is_known(link)) ||
        !mrc_state_probe_is_over(link->node))
        return;
    if (!send_former(link, now_us) || !pump(link, &link->replay->own, UINT32_MAX, now_us))
        return;
    if (link->held && mrc_replay_caught_up(&link->replay->own)) {
        link->held = false;
        mr_client_session_release(link->ep, link->session, now_us);
        link->unsent = true;
    }
}

void mrc_resend_poll(struct mr_client *client)
{
    uint64_t now_us = mr_clock_us();
    for (uint32_t i = 0; i < client->link_count; i++)
        resend_poll_link(client->links[i], now_us);
}

static void add_stream(struct mr_replay_info *info, const struct mrc_replay *stream)
{
    info->replaying |= !mrc_replay_caught_up(stream);
    info->kept += stream->count;
    info->kept_bytes += stream->bytes;
    info->replayed += stream->replayed;
    info->given_up += stream->given_up;
    info->dropped += stream->dropped;
    const struct mr_link *l = stream->kept.next;

    while (l != &stream->kept &&
           MR_CONTAINER(l, struct mrc_push, kept)->tensor_count == 0) /* marks have no step */
        l = l->next;
    if (l == &stream->kept)
        return;
    uint64_t step = MR_CONTAINER(l, struct mrc_push, kept)->step;

    info->oldest_step = info->oldest_step == 0 || step < info->oldest_step ? step : info->oldest_step;
}

void mrc_resend_info(const struct mr_client *client, struct mr_replay_info *info)
{
    info->on = client->replay;
    for (uint32_t i = 0; i < client->reshard->stream_count; i++)
        add_stream(info, client->reshard->streams[i]);
    for (uint32_t i = 0; i < client->link_count; i++) {
        const struct mrc_link *link = client->links[i];
        info->replaying |= link->held;
        add_stream(info, &link->replay->own);
        for (uint32_t l = 0; l < link->replay->former_count; l++)
            add_stream(info, link->replay->former[l]);
    }
}

uint64_t mrc_resend_next_us(const struct mr_client *client)
{
    uint64_t next_us = UINT64_MAX;
    for (uint32_t i = 0; i < client->link_count; i++)
        if (client->links[i]->replay->resend_us < next_us)
            next_us = client->links[i]->replay->resend_us;
    return next_us;
}

/* ---- restarts ---- */

void mrc_resend_stop(struct mrc_link *link)
{
    while (!mr_list_empty(&link->replay->resends)) {
        const struct resend *resend = MR_CONTAINER(link->replay->resends.next, struct resend, link);
        mr_call_cancel(link->ep, resend->future->requests[0].call);
    }
}

/* The transport itself sends the calls again that callers wait for. */
static void mark_asked(const struct mrc_link *link)
{
    const struct mr_link *asked = &link->replay->own.asked;
    for (const struct mr_link *l = asked->next; l != asked; l = l->next) {
        const struct mrc_push *push = MR_CONTAINER(l, struct mrc_push, queue);
        const struct mrc_shard_request *request = push->asker;
        if (request != NULL && request->call != NULL)
            mr_call_set_flags(request->call, (uint16_t)((request->future->options.flags & MR_PUSH_COUNTS) |
                                                        flags_of(link, push)));
    }
}

/* The state probe of this start may be over already, because another core accepted the client earlier. */
static void restart_stream(const struct mrc_link *link, struct mrc_replay *stream)
{
    mrc_replay_restart(stream);
    if (mrc_ancestry_lacks(&link->node->replay->ancestry, link->start_id))
        mrc_trim_suspect(&stream->trimmed);
}

void mrc_resend_session_up(struct mrc_link *link, const struct mr_client_session_info *info, bool again)
{
    bool restarted = again && info->start_id != link->start_id;
    link->start_id = info->start_id;
    link->held = info->held;
    if (again && !restarted)
        mrc_link_was_forgotten(link, mr_clock_us());
    if (!restarted)
        return;
    mrc_resend_stop(link);
    mark_asked(link);
    link->node->replay->asks = true;
    restart_stream(link, &link->replay->own);
    for (uint32_t i = 0; i < link->replay->former_count; i++)
        restart_stream(link, link->replay->former[i]);
}
