#include "trainer_client/replay/remap.h"

#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/format/push_number.h"
#include "trainer_client/api/calls.h"
#include "trainer_client/call/client.h"
#include "trainer_client/call/future.h"
#include "trainer_client/replay/remap_gone.h"
#include "trainer_client/replay/remap_split.h"
#include "trainer_client/replay/resend.h"
#include "dataplane/wire/base/clock.h"

#define ASK_AGAIN_US 100000u

/* ---- where lanes go on ---- */

struct mrc_lane_mark *mrc_remap_mark(struct mrc_remap *remap, uint32_t lane)
{
    for (uint32_t i = 0; i < remap->mark_count; i++)
        if (remap->marks[i].lane == lane)
            return &remap->marks[i];
    return NULL;
}

bool mrc_remap_start_lane(struct mrc_node *node, struct mrc_replay *own, uint32_t lane)
{
    struct mrc_remap *remap = &node->remap;
    struct mrc_lane_mark *mark = mrc_remap_mark(remap, lane);
    if (mark == NULL) {
        mark = realloc(remap->marks, (remap->mark_count + 1) * sizeof(*mark));
        if (mark == NULL)
            return false;
        remap->marks = mark;
        mark += remap->mark_count++;
        *mark = (struct mrc_lane_mark){.lane = lane, .next = 1};
        mrc_gone_init(&mark->gone);
    }
    own->lane = lane;
    own->next = mark->next;
    mrc_gone_move(&own->gone, &mark->gone);
    own->whole = node->survey.restores;
    return true;
}

void mrc_remap_init(struct mrc_node *node)
{
    mr_list_init(&node->remap.movers);
    node->remap.era = 1;
}

void mrc_remap_fini(struct mrc_node *node)
{
    struct mrc_remap *remap = &node->remap;
    for (uint32_t i = 0; i < remap->lane_count; i++) {
        mrc_replay_fini(remap->lanes[i]);
        free(remap->lanes[i]);
    }
    free(remap->lanes);
    free(remap->marks);
}

/* ---- taking it from the links ---- */

static bool own_has_moved(const struct mrc_link *link)
{
    const struct mrc_replay *own = &link->own;
    return own->lane != 0 && own->lane != mrc_resend_lane(link);
}

/* Returns whether what is kept at this link belongs to another map: its own pushes, or those of earlier
 * maps. */
static bool has_moved(const struct mrc_link *link)
{
    return own_has_moved(link) || (link->former_count > 0 && link->former_cores != link->node->core_count);
}

/* Callers wait for these pushes until they have settled elsewhere. The caller of a request that was not sent
 * yet makes it again. */
static void end_asked(struct mrc_link *link)
{
    struct mrc_replay *own = &link->own;
    while (!mr_list_empty(&own->asked)) {
        struct mrc_push *push = MR_CONTAINER(own->asked.next, struct mrc_push, queue);
        struct mrc_part *part = push->asker;
        if (!part->future->sent) {
            mrc_replay_withdraw(own, push);
            part->withdrawn = true;
            continue;
        }
        if (mrc_resend_was_refused(part)) { /* its call has ended */
            mrc_resend_keep(part);
            continue;
        }
        if (push->op != MR_OP_PUSH_GRAD_BATCH)
            mrc_remap_follow(part, mrc_replay_sequence(own, push));
        mr_call_cancel(link->ep, part->call);
    }
}

static bool take_lane(struct mrc_link *link)
{
    struct mrc_remap *remap = &link->node->remap;
    struct mrc_replay *lane = malloc(sizeof(*lane));
    if (lane == NULL || !mrc_lanes_append(&remap->lanes, &remap->lane_count, lane)) {
        free(lane);
        return false;
    }
    struct mrc_lane_mark *mark = mrc_remap_mark(remap, link->own.lane);

    mark->next = link->own.next;
    mrc_gone_move(&mark->gone, &link->own.gone);
    mrc_replay_move(lane, &link->own);
    return true;
}

static void take_former(struct mrc_link *link)
{
    struct mrc_remap *remap = &link->node->remap;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < link->former_count; i++) {
        mrc_remap_note_gone(link->node, link->former[i]);
        if (!mrc_lanes_append(&remap->lanes, &remap->lane_count, link->former[i]))
            link->former[kept++] = link->former[i];
    }
    link->former_count = kept;
}

void mrc_remap_begin(struct mrc_node *node)
{
    uint32_t links = node->link_count;
    bool moved = false;
    for (uint32_t i = 0; i < links; i++) {
        struct mrc_link *link = node->links[i];
        if (!has_moved(link))
            continue;
        moved = true;
        mrc_resend_stop(link);
        end_asked(link);
        take_former(link);
    }
    for (uint32_t i = 0; i < links; i++)
        if (own_has_moved(node->links[i]))
            (void)take_lane(node->links[i]); /* without memory: repeated in the next round */
    node->remap.era += moved;
}

/* ---- giving it to the links ---- */

void mrc_remap_go_on(struct mrc_node *node)
{
    struct mrc_remap *remap = &node->remap;
    if ((remap->lane_count == 0 && !remap->asks) || node->stale || node->asking || !mrc_survey_is_over(node))
        return;
    if (node->link_count < node->core_count) { /* without descriptors or memory */
        remap->ask_us = mr_clock_us() + ASK_AGAIN_US;
        return;
    }
    if (remap->lane_count > 0 && node->core_count > 1 && !node->client->features.complete) {
        mrc_survey_want(node);
        return;
    }
    mrc_remap_split(node);
    remap->asks = !mrc_remap_ask(node);
    if (remap->asks)
        remap->ask_us = mr_clock_us() + ASK_AGAIN_US;
    node->client->room_made++;
}

uint64_t mrc_remap_next_us(const struct mrc_node *node)
{
    const struct mrc_remap *remap = &node->remap;
    const bool waits = remap->lane_count > 0 || remap->asks;
    return waits && mrc_survey_is_over(node) ? remap->ask_us : UINT64_MAX;
}

bool mrc_remap_is_over(const struct mrc_link *link)
{
    if (link->node->remap.lane_count > 0 || has_moved(link))
        return false;
    for (uint32_t i = 0; i < link->former_count; i++)
        if (!mrc_replay_caught_up(link->former[i]))
            return false;
    return true;
}

/* ---- callers that wait ---- */

void mrc_remap_failed(struct mrc_node *node, uint64_t sequence, enum mr_status status)
{
    struct mr_link *movers = &node->remap.movers;
    for (struct mr_link *l = movers->next; l != movers; l = l->next) {
        struct mrc_part *part = MR_CONTAINER(l, struct mrc_part, mover);
        if (part->moved == sequence)
            part->moved_status = status;
    }
}

void mrc_remap_leave(struct mrc_part *part)
{
    if (part->moved != 0)
        mr_list_remove(&part->mover);
    part->moved = 0;
}

void mrc_remap_follow(struct mrc_part *part, uint64_t sequence)
{
    part->moved = sequence;
    mr_list_append(&part->link->node->remap.movers, &part->mover);
}

struct settling {
    const struct mrc_node *node;
    uint64_t sequence;
};

static bool has_settled(const void *arg)
{
    const struct settling *s = arg;
    uint32_t lane = mr_push_lane(s->sequence);
    uint64_t number = mr_push_number(s->sequence);
    if (s->node->remap.lane_count > 0)
        return false;
    for (uint32_t i = 0; i < s->node->link_count; i++) {
        const struct mrc_link *link = s->node->links[i];
        if (link->own.lane == lane && mrc_replay_has_open(&link->own, number))
            return false;
        for (uint32_t l = 0; l < link->former_count; l++)
            if (link->former[l]->lane == lane && mrc_replay_has_open(link->former[l], number))
                return false;
    }
    return true;
}

bool mrc_remap_has_settled(const struct mr_future *f)
{
    bool settled = true;
    for (uint32_t i = 0; i < f->part_count && settled; i++) {
        const struct mrc_part *part = &f->parts[i];
        struct settling settling = {.sequence = part->moved};
        if (part->moved == 0)
            continue;
        settling.node = part->link->node;
        settled = has_settled(&settling);
    }
    return settled || mr_clock_us() >= f->options.deadline_us;
}

/* The answer that came in the end is not there to be read. */
static enum mr_status outcome_of(const struct mrc_part *part)
{
    const bool is_batch = part->future->options.op == MR_OP_PUSH_GRAD_BATCH;
    return part->moved_status == MR_OK && is_batch ? MR_ALREADY_LEARNT : part->moved_status;
}

void mrc_remap_settle(struct mr_future *f)
{
    for (uint32_t i = 0; i < f->part_count; i++) {
        struct mrc_part *part = &f->parts[i];
        struct settling settling = {.sequence = part->moved};
        if (part->moved == 0)
            continue;
        settling.node = part->link->node;
        pthread_mutex_lock(&f->client->lock);
        if (mrc_wait(f->client, has_settled, &settling, f->options.deadline_us)) {
            part->status = outcome_of(part);
            part->kept = false;
        }
        mrc_remap_leave(part);
        pthread_mutex_unlock(&f->client->lock);
    }
}
