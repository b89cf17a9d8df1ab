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
    struct mrc_replay *lane;
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
    for (uint32_t i = 0; i < f->part_count; i++) {
        struct mrc_part *part = &f->parts[i];
        part->push = mrc_push_new(f->options.op, f->options.table, f->options.priority, f->options.step,
                                  part->tensors, part->tensor_count);
        if (part->push == NULL)
            return mrc_error(MR_NO_MEMORY, "%s: no memory to keep a copy of the request for a replay",
                             mr_op_name(f->options.op));
    }
    return MR_OK;
}

void mrc_resend_free(struct mr_future *f)
{
    for (uint32_t i = 0; i < f->part_count; i++)
        mrc_push_free(f->parts[i].push);
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

static void add_loss(struct mrc_loss *sum, struct mrc_replay *lane)
{
    struct mrc_loss loss = mrc_replay_take_loss(lane);
    if (loss.pushes == 0)
        return;
    if (sum->pushes == 0)
        *sum = (struct mrc_loss){.from_step = loss.from_step, .to_step = loss.to_step};
    sum->pushes += loss.pushes;
    sum->from_step = loss.from_step < sum->from_step ? loss.from_step : sum->from_step;
    sum->to_step = loss.to_step > sum->to_step ? loss.to_step : sum->to_step;
    sum->refused = loss.refused != MR_OK ? loss.refused : sum->refused;
}

/* Takes the losses of all cores and former maps: a caller cannot know whose lane it was, and perhaps nobody
 * will push to that core again. */
static struct mrc_loss take_losses(struct mr_client *client)
{
    struct mrc_loss sum = {.pushes = 0};
    for (uint32_t i = 0; i < client->reshard->lane_count; i++)
        add_loss(&sum, client->reshard->lanes[i]);
    for (uint32_t i = 0; i < client->link_count; i++) {
        add_loss(&sum, &client->links[i]->replay->own);
        for (uint32_t l = 0; l < client->links[i]->replay->former_count; l++)
            add_loss(&sum, client->links[i]->replay->former[l]);
    }
    return sum;
}

/* Of the parts before this one that go to the same core. */
static uint64_t bytes_before(const struct mr_future *f, const struct mrc_part *part,
                             const struct mrc_link *link)
{
    uint64_t bytes = 0;
    for (const struct mrc_part *before = f->parts; before != part; before++)
        bytes += before->link == link ? before->push->bytes : 0;
    return bytes;
}

enum mr_status mrc_resend_begin(struct mr_future *f, struct mrc_part *part, struct mrc_link *link)
{
    if (part->push == NULL)
        return MR_OK;
    struct mrc_loss loss = take_losses(f->client);

    if (loss.pushes > 0)
        return tell_loss(link, &loss, f->options.step);
    if (link->replay->own.lane == 0 && !mrc_reshard_start_lane(link))
        return mrc_error(MR_NO_MEMORY, "%s: no memory to number pushes", link->name);
    part->push->asker = part;
    part->push->era = f->client->reshard->era;
    part->push->call_bytes = bytes_before(f, part, link);
    part->push->looked_up_in =
        link->replay->looked_up_in != 0 ? link->replay->looked_up_in : link->node->replay->looked_up_in;
    if (!mrc_replay_add(&link->replay->own, part->push)) {
        f->is_replay_full = link->replay->own.bytes + part->push->bytes > link->replay->own.bytes_max;
        return MR_NO_MEMORY;
    }
    f->options.sequence = mrc_replay_sequence(&link->replay->own, part->push);
    f->options.flags = (uint16_t)((f->options.flags & MR_PUSH_COUNTS) | flags_of(link, part->push));
    return MR_OK;
}

void mrc_resend_undo(struct mrc_part *part)
{
    if (part->push == NULL || part->push->state == MRC_PUSH_NEW)
        return;
    mrc_replay_undo(&part->link->replay->own, part->push);
    part->link->replay->resend_us = 0; /* its number may have to be sent */
}

void mrc_resend_copy(struct mr_future *f)
{
    for (uint32_t i = 0; i < f->part_count; i++) {
        const struct mrc_part *part = &f->parts[i];
        for (uint32_t t = 0; part->push != NULL && t < part->tensor_count; t++)
            if (part->tensors[t].bytes > 0)
                memcpy(part->push->tensors[t].data, part->tensors[t].data, part->tensors[t].bytes);
    }
}

void mrc_resend_keep(struct mrc_part *part)
{
    struct mrc_push *push = part->push;
    part->push = NULL;
    part->status = MR_UNKNOWN_OUTCOME;
    part->kept = true;
    mrc_replay_unanswered(&part->link->replay->own, push);
    part->link->replay->resend_us = 0;
}

bool mrc_resend_was_refused(const struct mrc_part *part)
{
    return part->push != NULL && part->status == MR_BUSY && !part->replied &&
           part->push->state == MRC_PUSH_ASKED;
}

static bool is_applied(const struct mrc_part *part)
{
    return part->status == MR_OK || part->status == MR_ALREADY_LEARNT || part->kept ||
           part->resharded.sequence != 0;
}

void mrc_resend_all_ended(struct mr_future *f)
{
    bool applied = false;
    for (uint32_t i = 0; i < f->part_count; i++)
        applied |= is_applied(&f->parts[i]);
    for (uint32_t i = 0; i < f->part_count; i++) {
        if (!mrc_resend_was_refused(&f->parts[i]))
            continue;
        if (applied)
            mrc_resend_keep(&f->parts[i]);
        else
            mrc_resend_undo(&f->parts[i]);
    }
}

/* Relies on what the reply reports as being on disk, once that start of the node is judged. */
static uint64_t take_floor(const struct mrc_part *part)
{
    struct mrc_ancestry *ancestry = &part->link->node->replay->ancestry;
    const uint64_t floor = mr_push_number(part->sequence);
    if (!mrc_ancestry_knows(ancestry, part->start_id))
        return MRC_FLOOR_UNKNOWN;
    if (floor > 0)
        mrc_ancestry_saved(ancestry, part->restores, part->checkpoint);
    return floor;
}

/* Handles a push that nobody answered: that is reported to the caller, but the push is kept, so that it is
 * still applied once. A push that was only ever refused waits for the other parts of its call. A closed link
 * keeps nothing. */
void mrc_resend_ended(struct mrc_part *part, const struct mr_message *reply)
{
    struct mrc_replay *lane = &part->link->replay->own;
    struct mrc_push *push = part->push;
    const uint32_t op = part->future->options.op;
    if ((op == MR_OP_LOOKUP || op == MR_OP_LOOKUP_TABLES) &&
        (part->future->options.flags & MR_FEED_READ_ONLY) == 0 && part->replied && part->status == MR_OK)
        part->link->replay->looked_up_in = part->link->node->replay->looked_up_in = part->link->start_id;
    if (push == NULL || push->state == MRC_PUSH_NEW) /* not numbered, or no longer */
        return;
    if (part->status ==
        MR_WRONG_OWNER) { /* it is sent again by a newer map, or because its answer was late */
        mrc_reshard_follow(part, mrc_replay_sequence(lane, push));
        mrc_resend_keep(part);
        return;
    }
    if (reply != NULL)
        push->restores = reply->preamble.restores;
    if (reply != NULL || part->is_void || part->link->session == NULL) {
        uint64_t durable = reply == NULL ? 0 : take_floor(part);
        part->push = NULL;
        mrc_replay_answered(lane, push, part->status, durable, mr_clock_us());
    } else if (!mrc_resend_was_refused(part)) {
        mrc_resend_keep(part);
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
    const struct mrc_part *part = &f->parts[0];
    mr_list_remove(&resend->link);
    if (part->replied && part->status != MR_WRONG_OWNER) {
        uint64_t dropped = resend->lane->dropped;
        if (part->status == MR_OK ||
            part->status == MR_ALREADY_LEARNT) /* otherwise it was not applied then */
            resend->push->restores = part->restores;
        mrc_replay_answered(resend->lane, resend->push, part->status, take_floor(part), mr_clock_us());
        if (resend->lane->dropped != dropped)
            mrc_reshard_failed(f->client, f->options.sequence, part->status);
    } else {
        mrc_replay_unanswered(resend->lane, resend->push);
    }
    part->link->replay->resend_us = 0; /* the next push may depend on it */
    mrc_future_free_locked(f);
}

static bool send_again(struct mrc_link *link, struct mrc_replay *lane, struct mrc_push *push)
{
    struct mr_options options = {.step = push->step, .priority = push->priority};
    struct mr_future *f;
    const uint32_t tensors = push->first != 0 ? 1 : push->tensor_count;
    if (mrc_future_new(link->client, &options, push->op, push->table, 1, tensors, sizeof(struct resend),
                       &f) != MR_OK)
        return false;
    if (push->first != 0)
        mrc_part_add(f, 0, mr_tensor_1d(MR_U64, 1, &push->first));
    for (uint32_t t = 0; t < push->tensor_count; t++)
        mrc_part_add(f, 0, push->tensors[t]);
    struct resend *resend = f->context;

    *resend = (struct resend){.future = f, .lane = lane, .push = push};
    f->parts[0].to = link;
    f->options.deadline_us = UINT64_MAX;
    f->options.sequence = mrc_replay_sequence(lane, push);
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

/* Sends what the server lacks, or may lack, of this lane, up to an era. False: there is no room for more
 * now. */
static bool send_due(struct mrc_link *link, struct mrc_replay *lane, uint32_t era, uint64_t now_us)
{
    struct mrc_push *push;
    while ((push = mrc_replay_next(lane, now_us)) != NULL) {
        if (push->era > era) {
            mrc_replay_unanswered(lane, push);
            return true;
        }
        if (!send_again(link, lane, push)) {
            mrc_replay_unanswered(lane, push);
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
           link->client->reshard->lane_count == 0 && !node->replay->asks && mrc_state_probe_is_over(node);
}

/* False: this lane has not caught up; nothing of a later era may be sent. */
static bool pump(struct mrc_link *link, struct mrc_replay *lane, uint32_t era, uint64_t now_us)
{
    bool room = send_due(link, lane, era, now_us);
    uint64_t next_us = room ? mrc_replay_next_us(lane) : now_us + MRC_REPLAY_PAUSE_US;
    link->replay->resend_us = next_us < link->replay->resend_us ? next_us : link->replay->resend_us;
    return mrc_replay_caught_up(lane);
}

/* A lane of a map that came back has pushes from before and after the map in between. */
static uint32_t first_era(const struct mrc_link *link)
{
    uint32_t first = UINT32_MAX;
    for (uint32_t i = 0; i < link->replay->former_count; i++) {
        uint32_t era = mrc_replay_first_era(link->replay->former[i]);
        first = era < first ? era : first;
    }
    return first;
}

/* Goes through the lanes from the oldest map on; a lane is removed when all of it is on disk. */
static bool send_former(struct mrc_link *link, uint64_t now_us)
{
    const uint32_t era = first_era(link);
    bool caught_up = true;
    uint32_t left = 0;
    for (uint32_t i = 0; i < link->replay->former_count; i++) {
        struct mrc_replay *lane = link->replay->former[i];
        if (lane->count > 0 && lane->asked_at != link->replay->own.floor && mrc_replay_caught_up(lane)) {
            lane->asked_at = link->replay->own.floor; /* there is a new checkpoint */
            mrc_replay_ask(lane);
        }
        caught_up &= pump(link, lane, era, now_us);
        if (lane->count > 0) {
            link->replay->former[left++] = lane;
            continue;
        }
        mrc_reshard_note_trim(link->client, lane);
        mrc_replay_retire(lane, &link->replay->own);
        free(lane);
    }
    link->replay->former_count = left;
    return caught_up;
}

static void look_after(struct mrc_link *link, uint64_t now_us)
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
        look_after(client->links[i], now_us);
}

static void add_lane(struct mr_replay_info *info, const struct mrc_replay *lane)
{
    info->replaying |= !mrc_replay_caught_up(lane);
    info->kept += lane->count;
    info->kept_bytes += lane->bytes;
    info->replayed += lane->replayed;
    info->given_up += lane->given_up;
    info->dropped += lane->dropped;
    const struct mr_link *l = lane->kept.next;

    while (l != &lane->kept &&
           MR_CONTAINER(l, struct mrc_push, kept)->tensor_count == 0) /* marks have no step */
        l = l->next;
    if (l == &lane->kept)
        return;
    uint64_t step = MR_CONTAINER(l, struct mrc_push, kept)->step;

    info->oldest_step = info->oldest_step == 0 || step < info->oldest_step ? step : info->oldest_step;
}

void mrc_resend_info(const struct mr_client *client, struct mr_replay_info *info)
{
    info->on = client->replay;
    for (uint32_t i = 0; i < client->reshard->lane_count; i++)
        add_lane(info, client->reshard->lanes[i]);
    for (uint32_t i = 0; i < client->link_count; i++) {
        const struct mrc_link *link = client->links[i];
        info->replaying |= link->held;
        add_lane(info, &link->replay->own);
        for (uint32_t l = 0; l < link->replay->former_count; l++)
            add_lane(info, link->replay->former[l]);
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
        mr_call_cancel(link->ep, resend->future->parts[0].call);
    }
}

/* The transport itself sends the calls again that callers wait for. */
static void mark_asked(const struct mrc_link *link)
{
    const struct mr_link *asked = &link->replay->own.asked;
    for (const struct mr_link *l = asked->next; l != asked; l = l->next) {
        const struct mrc_push *push = MR_CONTAINER(l, struct mrc_push, queue);
        const struct mrc_part *part = push->asker;
        if (part != NULL && part->call != NULL)
            mr_call_set_flags(part->call, (uint16_t)((part->future->options.flags & MR_PUSH_COUNTS) |
                                                     flags_of(link, push)));
    }
}

/* The state probe of this start may be over already, because another core accepted the client earlier. */
static void restart_lane(const struct mrc_link *link, struct mrc_replay *lane)
{
    mrc_replay_restart(lane);
    if (mrc_ancestry_lacks(&link->node->replay->ancestry, link->start_id))
        mrc_trim_suspect(&lane->trimmed);
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
    restart_lane(link, &link->replay->own);
    for (uint32_t i = 0; i < link->replay->former_count; i++)
        restart_lane(link, link->replay->former[i]);
}
