#include "trainer_client/replay/reshard_trim.h"

#include <string.h>
#include "dataplane/wire/format/mr_feature.h"
#include "dataplane/wire/format/push_number.h"
#include "trainer_client/call/client.h"
#include "trainer_client/replay/reshard.h"
#include "trainer_client/replay/reshard_split.h"
#include "trainer_client/replay/replay_hooks.h"

void mrc_reshard_note_trim(struct mr_client *client, struct mrc_replay *stream)
{
    struct mrc_stream_mark *mark = mrc_reshard_mark(client->reshard, stream->stream_id);
    if (mark != NULL)
        mrc_trim_move(&mark->trimmed, &stream->trimmed);
}

void mrc_reshard_restored(struct mr_client *client, uint32_t whole)
{
    for (uint32_t i = 0; i < client->reshard->mark_count; i++)
        mrc_trim_restored(&client->reshard->marks[i].trimmed, whole);
}

static bool owns_any(const struct mrc_link *link, const uint64_t partitions[MR_PARTITION_COUNT / 64])
{
    const struct mr_client *client = link->client;
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        if ((partitions[p / 64] >> (p % 64) & 1) != 0 &&
            mrc_shard_map_link(client, client->shard_map->of_partition[p]) == link)
            return true;
    return false;
}

/* Of a closed stream. */
static bool ask_link(struct mrc_link *link, const struct mrc_stream_mark *mark)
{
    struct mrc_replay *to = mrc_reshard_former_stream(link, mark->stream_id);
    struct mrc_trim trim = mark->trimmed;
    if (to == NULL)
        return false;
    if (to->count == 0) {
        struct mrc_push *empty = mrc_push_new(MR_OP_PUSH_GRAD, 0, 0, 0, NULL, 0);
        if (empty == NULL)
            return false;
        mrc_replay_put_back(to, empty, trim.to, 0);
        to->next = to->next > trim.to ? to->next : trim.to + 1;
    }
    to->restarted = true;
    mrc_trim_move(&to->trimmed, &trim);
    link->replay->resend_us = 0;
    return true;
}

/* Returns the link whose stream it is; NULL: it is closed. */
static struct mrc_link *link_of(const struct mr_client *client, uint32_t stream_id)
{
    for (uint32_t i = 0; i < client->link_count; i++)
        if (client->links[i]->replay->own.stream_id == stream_id)
            return client->links[i];
    return NULL;
}

/* Returns whether a link of the node that has them now was asked. */
static bool ask_owners(struct mrc_node *node, struct mrc_stream_mark *mark)
{
    bool asked = true, any = false;
    for (uint32_t core = 0; core < node->core_count; core++) {
        if (!owns_any(node->links[core], mark->partitions))
            continue;
        any = true;
        asked &= ask_link(node->links[core], mark);
    }
    if (asked && any)
        mrc_trim_init(&mark->trimmed); /* the links have it now */
    return asked;
}

bool mrc_reshard_ask(struct mrc_node *node)
{
    struct mrc_reshard *reshard = node->client->reshard;
    const bool lacks = mrc_ancestry_lacks(&node->replay->ancestry, node->start_id);
    bool asked = true;
    for (uint32_t i = 0; i < reshard->mark_count; i++) {
        struct mrc_stream_mark *mark = &reshard->marks[i];
        struct mrc_link *own = link_of(node->client, mark->stream_id);
        if (lacks)
            mrc_trim_suspect(&mark->trimmed);
        if (mark->trimmed.to == 0)
            continue;
        if (own != NULL)
            mrc_trim_move(&own->replay->own.trimmed, &mark->trimmed);
        else if (mark->trimmed.is_suspect || mark->trimmed.given_up_to > 0)
            asked &= ask_owners(node, mark);
    }
    return asked;
}

static bool ask_owners_of_restored(struct mr_client *client, struct mrc_stream_mark *mark)
{
    bool asked = true;
    for (uint32_t i = 0; i < client->link_count; i++)
        if (owns_any(client->links[i], mark->restored))
            asked &= ask_link(client->links[i], mark);
    if (asked)
        mrc_trim_init(&mark->trimmed);
    return asked;
}

bool mrc_reshard_ask_restored(struct mr_client *client)
{
    bool all_asked = true;
    for (uint32_t i = 0; i < client->reshard->mark_count; i++) {
        struct mrc_stream_mark *mark = &client->reshard->marks[i];
        const bool may_lack = mark->trimmed.is_suspect || mark->trimmed.given_up_to > 0;
        if (!mark->is_restored)
            continue;
        const bool asked = !may_lack || ask_owners_of_restored(client, mark);
        all_asked &= asked;
        if (!asked)
            continue;
        mark->is_restored = false;
        memset(mark->restored, 0, sizeof(mark->restored));
    }
    return all_asked;
}
