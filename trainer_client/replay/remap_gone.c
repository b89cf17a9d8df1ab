#include "trainer_client/replay/remap_gone.h"

#include "dataplane/wire/format/mr_feature.h"
#include "dataplane/wire/format/push_number.h"
#include "trainer_client/call/client.h"
#include "trainer_client/replay/remap.h"
#include "trainer_client/replay/remap_split.h"

void mrc_remap_note_gone(struct mrc_node *node, struct mrc_replay *lane)
{
    struct mrc_lane_mark *mark = mrc_remap_mark(&node->remap, lane->lane);
    if (mark != NULL)
        mrc_gone_move(&mark->gone, &lane->gone);
}

void mrc_remap_restored(struct mrc_node *node, uint32_t whole)
{
    for (uint32_t i = 0; i < node->remap.mark_count; i++)
        mrc_gone_restored(&node->remap.marks[i].gone, whole);
}

/* Returns where the lane's partitions begin. */
static uint32_t first_partition(uint32_t lane, uint32_t core)
{
    const uint32_t cores = mr_push_lane_cores(lane);
    return (core * MR_PARTITION_COUNT + cores - 1) / cores;
}

static bool owns_keys_of(const struct mrc_node *node, uint32_t core, uint32_t lane)
{
    const uint32_t old = mr_push_lane_core(lane), end = first_partition(lane, old + 1);
    for (uint32_t p = first_partition(lane, old); p < end; p++)
        if (node->partition_core[p] == core)
            return true;
    return false;
}

/* Of a lane of a former map. */
static bool ask_link(struct mrc_link *link, const struct mrc_lane_mark *mark)
{
    struct mrc_replay *to = mrc_remap_former_lane(link, mark->lane, link->node->survey.restores);
    struct mrc_gone gone = mark->gone;
    if (to == NULL)
        return false;
    if (to->count == 0) {
        struct mrc_push *empty = mrc_push_new(MR_OP_PUSH_GRAD, 0, 0, 0, NULL, 0);
        if (empty == NULL)
            return false;
        mrc_replay_put_back(to, empty, gone.to, 0);
        to->next = to->next > gone.to ? to->next : gone.to + 1;
    }
    to->restarted = true;
    mrc_gone_move(&to->gone, &gone);
    link->resend_us = 0;
    return true;
}

/* Returns the current core whose lane it is; NULL: it is a lane of a former map. */
static struct mrc_link *link_of(const struct mrc_node *node, uint32_t lane)
{
    for (uint32_t core = 0; core < node->core_count; core++)
        if (node->links[core]->own.lane == lane)
            return node->links[core];
    return NULL;
}

static bool ask_owners(struct mrc_node *node, struct mrc_lane_mark *mark)
{
    bool asked = true;
    for (uint32_t core = 0; core < node->core_count; core++)
        if (owns_keys_of(node, core, mark->lane))
            asked &= ask_link(node->links[core], mark);
    if (asked)
        mrc_gone_init(&mark->gone); /* the links have it now */
    return asked;
}

bool mrc_remap_ask(struct mrc_node *node)
{
    const bool lacks = mrc_ancestry_lacks(&node->ancestry, node->start_id);
    bool asked = true;
    for (uint32_t i = 0; i < node->remap.mark_count; i++) {
        struct mrc_lane_mark *mark = &node->remap.marks[i];
        struct mrc_link *own = link_of(node, mark->lane);
        if (lacks)
            mrc_gone_suspect(&mark->gone);
        if (mark->gone.to == 0)
            continue;
        if (own != NULL)
            mrc_gone_move(&own->own.gone, &mark->gone);
        else if (mark->gone.is_suspect || mark->gone.given_up_to > 0)
            asked &= ask_owners(node, mark);
    }
    return asked;
}
