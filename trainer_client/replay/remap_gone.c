#include "trainer_client/replay/remap_gone.h"

#include "dataplane/wire/format/mr_feature.h"
#include "dataplane/wire/format/push_number.h"
#include "trainer_client/call/client.h"
#include "trainer_client/replay/remap.h"
#include "trainer_client/replay/remap_split.h"

static void set_gone(struct mrc_lane_mark *mark, const struct mrc_replay *lane, uint64_t gone_to)
{
    mark->gone_to = gone_to;
    mark->gone_to_step = lane->gone_to_step;
    mark->gone_restores = lane->gone_restores;
    mark->trail = lane->trail;
}

/* A lane that was asked, and has less now, has reported the rest as lost. */
static void learn_loss(struct mrc_lane_mark *mark, const struct mrc_replay *lane)
{
    if (lane->answers_for_gone && !lane->restarted && lane->gone_to < mark->gone_to)
        set_gone(mark, lane, lane->gone_to);
}

void mrc_gone_note(struct mrc_lane_mark *mark, const struct mrc_replay *lane, bool own)
{
    if (own && lane->gone_to > 0)
        set_gone(mark, lane, lane->gone_to);
    else
        learn_loss(mark, lane);
}

static struct mrc_lane_mark *mark_of(struct mr_client *client, uint16_t lane)
{
    for (uint32_t i = 0; i < client->remap.mark_count; i++) {
        if (client->remap.marks[i].lane == lane)
            return &client->remap.marks[i];
    }
    return NULL;
}

static bool is_elsewhere(const struct mrc_link *but, uint16_t lane)
{
    const struct mr_client *client = but->client;

    for (uint32_t i = 0; i < client->link_count; i++) {
        const struct mrc_link *link = client->links[i];

        for (uint32_t l = 0; l < link->former_count && link != but; l++) {
            if (link->former[l]->lane == lane && link->former[l]->count > 0)
                return true;
        }
    }
    return false;
}

void mrc_gone_all(const struct mrc_link *link, const struct mrc_replay *lane)
{
    struct mrc_lane_mark *mark = mark_of(link->client, lane->lane);

    if (mark == NULL || lane->gone_to == 0)
        return;
    const uint64_t step = mark->gone_to_step;

    if (!is_elsewhere(link, lane->lane))
        set_gone(mark, lane, mark->next - 1);
    if (step > mark->gone_to_step)
        mark->gone_to_step = step;
}

/* All pushes of the lane before this number are gone from the link. */
static uint64_t first_kept(const struct mrc_replay *lane)
{
    for (const struct mr_link *l = lane->kept.next; l != &lane->kept; l = l->next) {
        const struct mrc_push *push = MR_CONTAINER(l, struct mrc_push, kept);

        if (push->tensor_count > 0)
            return push->number;
    }
    return lane->gone_to + 1;
}

static void note_former(struct mr_client *client, struct mrc_lane_mark *mark)
{
    const struct mrc_replay *furthest = NULL;
    uint64_t gone_to = UINT64_MAX;

    for (uint32_t i = 0; i < client->link_count; i++) {
        for (uint32_t l = 0; l < client->links[i]->former_count; l++) {
            const struct mrc_replay *lane = client->links[i]->former[l];

            if (lane->lane != mark->lane || lane->gone_to == 0)
                continue;
            gone_to = first_kept(lane) - 1 < gone_to ? first_kept(lane) - 1 : gone_to;
            furthest = furthest == NULL || lane->gone_to > furthest->gone_to ? lane : furthest;
        }
    }
    if (furthest != NULL && gone_to <= furthest->gone_to && gone_to > mark->gone_to)
        set_gone(mark, furthest, gone_to);
}

void mrc_gone_note_former(struct mr_client *client)
{
    for (uint32_t i = 0; i < client->remap.mark_count; i++)
        note_former(client, &client->remap.marks[i]);
}

void mrc_gone_restored(struct mr_client *client, uint32_t whole)
{
    for (uint32_t i = 0; i < client->remap.mark_count; i++) {
        if (client->remap.marks[i].gone_restores < whole)
            client->remap.marks[i].gone_to = 0;
    }
}

/* The lane's partitions begin here. */
static uint32_t first_partition(uint16_t lane, uint32_t core)
{
    const uint32_t cores = mr_push_lane_cores(lane);

    return (core * MR_PARTITION_COUNT + cores - 1) / cores;
}

static bool owns_keys_of(const struct mr_client *client, uint32_t core, uint16_t lane)
{
    const uint32_t old = mr_push_lane_core(lane), end = first_partition(lane, old + 1);

    for (uint32_t p = first_partition(lane, old); p < end; p++) {
        if (client->node.partition_core[p] == core)
            return true;
    }
    return false;
}

static bool ask_link(struct mrc_link *link, const struct mrc_lane_mark *mark)
{
    struct mrc_replay *to = mrc_remap_former_lane(link, mark->lane, link->client->survey.restores);

    if (to == NULL)
        return false;
    if (to->count == 0) {
        struct mrc_push *empty = mrc_push_new(MR_OP_PUSH_GRAD, 0, 0, 0, NULL, 0);

        if (empty == NULL)
            return false;
        mrc_replay_put_back(to, empty, mark->gone_to, 0);
        to->next = to->next > mark->gone_to ? to->next : mark->gone_to + 1;
    }
    to->answers_for_gone = to->restarted = true;
    if (to->gone_to < mark->gone_to) {
        to->gone_to = mark->gone_to;
        to->gone_to_step = mark->gone_to_step;
        to->gone_restores = mark->gone_restores;
        to->trail = mark->trail;
    }
    link->resend_us = 0;
    return true;
}

void mrc_gone_restarted(struct mrc_link *link)
{
    for (uint32_t l = 0; l < link->former_count; l++) {
        struct mrc_lane_mark *mark = mark_of(link->client, link->former[l]->lane);

        if (mark != NULL)
            learn_loss(mark, link->former[l]);
    }
    link->client->remap.asks = true;
}

bool mrc_gone_ask(struct mr_client *client)
{
    bool asked = true;

    for (uint32_t i = 0; i < client->remap.mark_count; i++) {
        const struct mrc_lane_mark *mark = &client->remap.marks[i];

        for (uint32_t core = 0; core < client->node.core_count && mark->gone_to > 0; core++) {
            if (client->links[core]->own.lane != mark->lane && owns_keys_of(client, core, mark->lane))
                asked &= ask_link(client->links[core], mark);
        }
    }
    return asked;
}
