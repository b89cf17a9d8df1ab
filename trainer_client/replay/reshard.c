#include "trainer_client/replay/reshard.h"

#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/format/push_number.h"
#include "trainer_client/api/calls.h"
#include "trainer_client/call/client.h"
#include "trainer_client/call/future.h"
#include "trainer_client/replay/reshard_trim.h"
#include "trainer_client/replay/reshard_split.h"
#include "trainer_client/replay/resend.h"
#include "trainer_client/replay/replay_hooks.h"
#include "dataplane/wire/base/clock.h"

#define ASK_AGAIN_US 100000u

/* ---- lanes ---- */

struct mrc_lane_mark *mrc_reshard_mark(struct mrc_reshard *reshard, uint32_t lane)
{
    for (uint32_t i = 0; i < reshard->mark_count; i++)
        if (reshard->marks[i].lane == lane)
            return &reshard->marks[i];
    return NULL;
}

static bool is_in_use(const struct mr_client *client, uint32_t lane)
{
    for (uint32_t i = 0; i < client->reshard->lane_count; i++)
        if (client->reshard->lanes[i]->lane == lane)
            return true;
    for (uint32_t i = 0; i < client->link_count; i++) {
        const struct mrc_link *link = client->links[i];
        if (link->replay->own.lane == lane)
            return true;
        for (uint32_t l = 0; l < link->replay->former_count; l++)
            if (link->replay->former[l]->lane == lane)
                return true;
    }
    return false;
}

/* Forgets the oldest lane of which nothing is kept: what was trimmed of it was on disk long ago. */
static void forget_one(struct mr_client *client)
{
    struct mrc_reshard *reshard = client->reshard;
    for (uint32_t i = 0; i < reshard->mark_count; i++) {
        if (is_in_use(client, reshard->marks[i].lane))
            continue;
        reshard->mark_count--;
        for (uint32_t m = i; m < reshard->mark_count; m++)
            reshard->marks[m] = reshard->marks[m + 1];
        return;
    }
}

static struct mrc_lane_mark *add_mark(struct mr_client *client)
{
    struct mrc_reshard *reshard = client->reshard;
    if (reshard->mark_count >= MRC_LANE_MARKS_MAX)
        forget_one(client);
    struct mrc_lane_mark *marks = realloc(reshard->marks, (reshard->mark_count + 1) * sizeof(*marks));
    if (marks == NULL)
        return NULL;
    reshard->marks = marks;
    return &marks[reshard->mark_count++];
}

bool mrc_reshard_start_lane(struct mrc_link *link)
{
    struct mr_client *client = link->client;
    const struct mrc_owners *owners = client->owners;
    struct mrc_lane_mark *mark = add_mark(client);
    if (mark == NULL)
        return false;
    *mark = (struct mrc_lane_mark){.lane = mr_push_lane_chosen(client->reshard->next_lane++)};
    mrc_trim_init(&mark->trimmed);
    for (uint32_t p = 0; owners != NULL && p < MR_PARTITION_COUNT; p++)
        if (mrc_owners_link(client, owners->of_partition[p]) == link)
            mark->partitions[p / 64] |= UINT64_C(1) << (p % 64);
    link->replay->own.lane = mark->lane;
    link->replay->own.whole = link->node->replay->probe.restores;
    link->node->replay->has_pushed = true;
    return true;
}

void mrc_reshard_init(struct mrc_reshard *reshard)
{
    mr_list_init(&reshard->waiting);
    reshard->era = 1;
}

void mrc_reshard_fini(struct mrc_reshard *reshard)
{
    for (uint32_t i = 0; i < reshard->lane_count; i++) {
        mrc_replay_fini(reshard->lanes[i]);
        free(reshard->lanes[i]);
    }
    free(reshard->lanes);
    free(reshard->marks);
}

/* ---- taking it from the links ---- */

/* Returns whether what is kept at this link may belong to others. */
static bool has_moved(const struct mrc_link *link)
{
    return link->regrouped && (link->replay->own.lane != 0 || link->replay->former_count > 0);
}

/* Callers wait for these pushes until they have settled elsewhere. The caller of a request that was not sent
 * yet makes it again. */
static void end_asked(struct mrc_link *link)
{
    struct mrc_replay *own = &link->replay->own;
    while (!mr_list_empty(&own->asked)) {
        struct mrc_push *push = MR_CONTAINER(own->asked.next, struct mrc_push, queue);
        struct mrc_part *part = push->asker;
        if (!part->future->sent) {
            mrc_replay_withdraw(own, push);
            part->cancelled = true;
            continue;
        }
        if (mrc_resend_was_refused(part)) { /* its call has ended */
            mrc_resend_keep(part);
            continue;
        }
        if (push->op != MR_OP_PUSH_GRAD_BATCH)
            mrc_reshard_follow(part, mrc_replay_sequence(own, push));
        mr_call_cancel(link->ep, part->call);
    }
}

static void note_home(struct mrc_replay *lane, struct mrc_link *link)
{
    lane->home = link;
    lane->home_start = link->start_id;
}

static bool take_own(struct mrc_link *link)
{
    struct mrc_reshard *reshard = link->client->reshard;
    struct mrc_replay *lane = malloc(sizeof(*lane));
    if (lane == NULL || !mrc_lanes_append(&reshard->lanes, &reshard->lane_count, lane)) {
        free(lane);
        return false;
    }
    struct mrc_lane_mark *mark = mrc_reshard_mark(reshard, link->replay->own.lane);

    if (mark != NULL)
        mrc_trim_move(&mark->trimmed, &link->replay->own.trimmed);
    mrc_replay_move(lane, &link->replay->own);
    note_home(lane, link);
    return true;
}

static bool take_former(struct mrc_link *link)
{
    struct mrc_reshard *reshard = link->client->reshard;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < link->replay->former_count; i++) {
        mrc_reshard_note_trim(link->client, link->replay->former[i]);
        note_home(link->replay->former[i], link);
        if (!mrc_lanes_append(&reshard->lanes, &reshard->lane_count, link->replay->former[i]))
            link->replay->former[kept++] = link->replay->former[i];
    }
    link->replay->former_count = kept;
    return kept == 0;
}

/* Without memory it is repeated in the next round. */
void mrc_reshard_begin(struct mr_client *client)
{
    bool moved = false;
    for (uint32_t i = 0; i < client->link_count; i++) {
        struct mrc_link *link = client->links[i];
        if (!link->regrouped)
            continue;
        if (has_moved(link)) {
            moved = true;
            mrc_resend_stop(link);
            end_asked(link);
        }
        if (take_former(link) && (link->replay->own.lane == 0 || take_own(link)))
            link->regrouped = false;
    }
    client->reshard->era += moved;
}

void mrc_reshard_replaced(struct mr_client *client)
{
    for (uint32_t i = 0; i < client->link_count; i++) {
        struct mrc_link *link = client->links[i];
        link->replay->own.restarted = true;
        for (uint32_t l = 0; l < link->replay->former_count; l++)
            link->replay->former[l]->restarted = true;
    }
    for (uint32_t i = 0; i < client->reshard->lane_count; i++)
        client->reshard->lanes[i]->restarted = true;
}

/* ---- giving it to the links ---- */

static bool is_waited_for(const struct mrc_node *node)
{
    return (mrc_node_is_up(node) || node->client->node_count == 1) &&
           (node->stale || node->asking || !mrc_state_probe_is_over(node));
}

/* Whether the nodes that answer have said what they own, and what they took back. */
static bool is_known(const struct mr_client *client)
{
    for (uint32_t n = 0; n < client->node_count; n++)
        if (client->nodes[n]->core_count > 0 && is_waited_for(client->nodes[n]))
            return false;
    return client->owners != NULL;
}

static bool asks(const struct mr_client *client)
{
    bool any = false;
    for (uint32_t n = 0; n < client->node_count; n++)
        any |= client->nodes[n]->core_count > 0 && client->nodes[n]->replay->asks;
    return any;
}

static bool has_links(const struct mr_client *client)
{
    for (uint32_t o = 0; o < client->owners->count; o++)
        if (mrc_owners_link(client, o) == NULL)
            return false;
    return true;
}

/* Of the nodes that were restarted. */
static bool ask_all(struct mr_client *client)
{
    bool asked = true;
    for (uint32_t n = 0; n < client->node_count; n++) {
        struct mrc_node *node = client->nodes[n];
        if (node->core_count == 0 || !node->replay->asks || !mrc_state_probe_is_over(node))
            continue;
        node->replay->asks = !mrc_reshard_ask(node);
        asked &= !node->replay->asks;
    }
    return asked;
}

void mrc_reshard_poll(struct mr_client *client)
{
    struct mrc_reshard *reshard = client->reshard;
    if ((reshard->lane_count == 0 && !asks(client)) || !is_known(client))
        return;
    if (!has_links(client)) { /* without descriptors or memory */
        reshard->ask_us = mr_clock_us() + ASK_AGAIN_US;
        return;
    }
    if (reshard->lane_count > 0 && client->owners->count > 1 && !client->features.complete) {
        const struct mrc_link *any = mrc_owners_control(client);
        mrc_state_probe_want(any->node);
        return;
    }
    mrc_reshard_split(client);
    if (!ask_all(client) || reshard->lane_count > 0)
        reshard->ask_us = mr_clock_us() + ASK_AGAIN_US;
    client->room_made++;
}

uint64_t mrc_reshard_next_us(const struct mr_client *client)
{
    const bool waits = client->reshard->lane_count > 0 || asks(client);
    return waits && is_known(client) ? client->reshard->ask_us : UINT64_MAX;
}

bool mrc_reshard_is_over(const struct mrc_link *link)
{
    if (link->client->reshard->lane_count > 0 || has_moved(link))
        return false;
    for (uint32_t i = 0; i < link->replay->former_count; i++)
        if (!mrc_replay_caught_up(link->replay->former[i]))
            return false;
    return true;
}

/* ---- callers that wait ---- */

void mrc_reshard_failed(struct mr_client *client, uint64_t sequence, enum mr_status status)
{
    struct mr_link *waiting = &client->reshard->waiting;
    for (struct mr_link *l = waiting->next; l != waiting; l = l->next) {
        struct mrc_part *part = MR_CONTAINER(l, struct mrc_part, resharded.waiting);
        if (part->resharded.sequence == sequence)
            part->resharded.status = status;
    }
}

void mrc_reshard_leave(struct mrc_part *part)
{
    if (part->resharded.sequence != 0)
        mr_list_remove(&part->resharded.waiting);
    part->resharded.sequence = 0;
}

void mrc_reshard_follow(struct mrc_part *part, uint64_t sequence)
{
    part->resharded.sequence = sequence;
    mr_list_append(&part->link->client->reshard->waiting, &part->resharded.waiting);
}

struct settling {
    const struct mr_client *client;
    uint64_t sequence;
};

static bool has_settled(const void *arg)
{
    const struct settling *s = arg;
    uint32_t lane = mr_push_lane(s->sequence);
    uint64_t number = mr_push_number(s->sequence);
    if (s->client->reshard->lane_count > 0)
        return false;
    for (uint32_t i = 0; i < s->client->link_count; i++) {
        const struct mrc_link *link = s->client->links[i];
        if (link->replay->own.lane == lane && mrc_replay_has_open(&link->replay->own, number))
            return false;
        for (uint32_t l = 0; l < link->replay->former_count; l++)
            if (link->replay->former[l]->lane == lane && mrc_replay_has_open(link->replay->former[l], number))
                return false;
    }
    return true;
}

bool mrc_reshard_has_settled(const struct mr_future *f)
{
    bool settled = true;
    for (uint32_t i = 0; i < f->part_count && settled; i++) {
        const struct mrc_part *part = &f->parts[i];
        struct settling settling = {.sequence = part->resharded.sequence};
        if (part->resharded.sequence == 0)
            continue;
        settling.client = f->client;
        settled = has_settled(&settling);
    }
    return settled || mr_clock_us() >= f->options.deadline_us;
}

/* The answer that came in the end is not there to be read. */
static enum mr_status outcome_of(const struct mrc_part *part)
{
    const bool is_batch = part->future->options.op == MR_OP_PUSH_GRAD_BATCH;
    return part->resharded.status == MR_OK && is_batch ? MR_ALREADY_LEARNT : part->resharded.status;
}

void mrc_reshard_settle(struct mr_future *f)
{
    for (uint32_t i = 0; i < f->part_count; i++) {
        struct mrc_part *part = &f->parts[i];
        struct settling settling = {.sequence = part->resharded.sequence};
        if (part->resharded.sequence == 0)
            continue;
        settling.client = f->client;
        pthread_mutex_lock(&f->client->lock);
        if (mrc_wait(f->client, has_settled, &settling, f->options.deadline_us)) {
            part->status = outcome_of(part);
            part->answer_count = 0;
            part->kept = false;
        }
        mrc_reshard_leave(part);
        pthread_mutex_unlock(&f->client->lock);
    }
}
