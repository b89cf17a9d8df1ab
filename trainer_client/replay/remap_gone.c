#include "trainer_client/replay/remap_gone.h"

#include "dataplane/wire/format/mr_feature.h"
#include "dataplane/wire/format/push_number.h"
#include "trainer_client/call/client.h"
#include "trainer_client/replay/remap.h"
#include "trainer_client/replay/remap_split.h"
#include "trainer_client/replay/replay_hooks.h"

void mrc_remap_note_gone(struct mr_client *client, struct mrc_replay *lane)
{
    struct mrc_lane_mark *mark = mrc_remap_mark(client->remap, lane->lane);
    if (mark != NULL)
        mrc_gone_move(&mark->gone, &lane->gone);
}

void mrc_remap_restored(struct mr_client *client, uint32_t whole)
{
    for (uint32_t i = 0; i < client->remap->mark_count; i++)
        mrc_gone_restored(&client->remap->marks[i].gone, whole);
}

static bool owns_keys_of(const struct mrc_link *link, const struct mrc_lane_mark *mark)
{
    const struct mr_client *client = link->client;
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        if ((mark->partitions[p / 64] >> (p % 64) & 1) != 0 &&
            mrc_owners_link(client, client->owners->of_partition[p]) == link)
            return true;
    return false;
}

/* Of a closed lane. */
static bool ask_link(struct mrc_link *link, const struct mrc_lane_mark *mark)
{
    struct mrc_replay *to = mrc_remap_former_lane(link, mark->lane);
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
    link->replay->resend_us = 0;
    return true;
}

/* Returns the link whose lane it is; NULL: it is closed. */
static struct mrc_link *link_of(const struct mr_client *client, uint32_t lane)
{
    for (uint32_t i = 0; i < client->link_count; i++)
        if (client->links[i]->replay->own.lane == lane)
            return client->links[i];
    return NULL;
}

/* Returns whether a link of the node that has them now was asked. */
static bool ask_owners(struct mrc_node *node, struct mrc_lane_mark *mark)
{
    bool asked = true, any = false;
    for (uint32_t core = 0; core < node->core_count; core++) {
        if (!owns_keys_of(node->links[core], mark))
            continue;
        any = true;
        asked &= ask_link(node->links[core], mark);
    }
    if (asked && any)
        mrc_gone_init(&mark->gone); /* the links have it now */
    return asked;
}

bool mrc_remap_ask(struct mrc_node *node)
{
    struct mrc_remap *remap = node->client->remap;
    const bool lacks = mrc_ancestry_lacks(&node->replay->ancestry, node->start_id);
    bool asked = true;
    for (uint32_t i = 0; i < remap->mark_count; i++) {
        struct mrc_lane_mark *mark = &remap->marks[i];
        struct mrc_link *own = link_of(node->client, mark->lane);
        if (lacks)
            mrc_gone_suspect(&mark->gone);
        if (mark->gone.to == 0)
            continue;
        if (own != NULL)
            mrc_gone_move(&own->replay->own.gone, &mark->gone);
        else if (mark->gone.is_suspect || mark->gone.given_up_to > 0)
            asked &= ask_owners(node, mark);
    }
    return asked;
}
