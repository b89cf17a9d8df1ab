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

/* ---- streams ---- */

struct mrc_stream_mark *mrc_reshard_mark(struct mrc_reshard *reshard, uint32_t stream_id)
{
    for (uint32_t i = 0; i < reshard->mark_count; i++)
        if (reshard->marks[i].stream_id == stream_id)
            return &reshard->marks[i];
    return NULL;
}

static bool is_in_use(const struct mr_client *client, uint32_t stream_id)
{
    for (uint32_t i = 0; i < client->reshard->stream_count; i++)
        if (client->reshard->streams[i]->stream_id == stream_id)
            return true;
    for (uint32_t i = 0; i < client->link_count; i++) {
        const struct mrc_link *link = client->links[i];
        if (link->replay->own.stream_id == stream_id)
            return true;
        for (uint32_t l = 0; l < link->replay->former_count; l++)
            if (link->replay->former[l]->stream_id == stream_id)
                return true;
    }
    return false;
}

/* Forgets the oldest stream of which nothing is kept: what was trimmed of it was on disk long ago. */
static void forget_one(struct mr_client *client)
{
    struct mrc_reshard *reshard = client->reshard;
    for (uint32_t i = 0; i < reshard->mark_count; i++) {
        if (is_in_use(client, reshard->marks[i].stream_id))
            continue;
        reshard->mark_count--;
        for (uint32_t m = i; m < reshard->mark_count; m++)
            reshard->marks[m] = reshard->marks[m + 1];
        return;
    }
}

static struct mrc_stream_mark *add_mark(struct mr_client *client)
{
    struct mrc_reshard *reshard = client->reshard;
    if (reshard->mark_count >= MRC_STREAM_MARKS_MAX)
        forget_one(client);
    struct mrc_stream_mark *marks = realloc(reshard->marks, (reshard->mark_count + 1) * sizeof(*marks));
    if (marks == NULL)
        return NULL;
    reshard->marks = marks;
    return &marks[reshard->mark_count++];
}

bool mrc_reshard_start_stream(struct mrc_link *link)
{
    struct mr_client *client = link->client;
    const struct mrc_shard_map *map = client->shard_map;
    struct mrc_stream_mark *mark = add_mark(client);
    if (mark == NULL)
        return false;
    *mark = (struct mrc_stream_mark){.stream_id = mr_push_stream_chosen(client->reshard->next_stream++)};
    mrc_trim_init(&mark->trimmed);
    for (uint32_t p = 0; map != NULL && p < MR_PARTITION_COUNT; p++)
        if (mrc_shard_map_link(client, map->of_partition[p]) == link)
            mark->partitions[p / 64] |= UINT64_C(1) << (p % 64);
    link->replay->own.stream_id = mark->stream_id;
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
    for (uint32_t i = 0; i < reshard->stream_count; i++) {
        mrc_replay_fini(reshard->streams[i]);
        free(reshard->streams[i]);
    }
    free(reshard->streams);
    free(reshard->marks);
}

/* ---- taking it from the links ---- */

/* Returns whether what is kept at this link may belong to others. */
static bool has_moved(const struct mrc_link *link)
{
    return link->regrouped && (link->replay->own.stream_id != 0 || link->replay->former_count > 0);
}

/* Callers wait for these pushes until they have settled elsewhere. The caller of a request that was not sent
 * yet makes it again. */
static void end_asked(struct mrc_link *link)
{
    struct mrc_replay *own = &link->replay->own;
    while (!mr_list_empty(&own->asked)) {
        struct mrc_push *push = MR_CONTAINER(own->asked.next, struct mrc_push, queue);
        struct mrc_shard_request *request = push->asker;
        if (!request->future->sent) {
            mrc_replay_withdraw(own, push);
            request->cancelled = true;
            continue;
        }
        if (mrc_resend_was_refused(request)) { /* its call has ended */
            mrc_resend_keep(request);
            continue;
        }
        if (push->op != MR_OP_PUSH_GRAD_BATCH)
            mrc_reshard_follow(request, mrc_replay_sequence(own, push));
        mr_call_cancel(link->ep, request->call);
    }
}

static void note_home(struct mrc_replay *stream, struct mrc_link *link)
{
    stream->home = link;
    stream->home_start = link->start_id;
}

static bool take_own(struct mrc_link *link)
{
    struct mrc_reshard *reshard = link->client->reshard;
    struct mrc_replay *stream = malloc(sizeof(*stream));
    if (stream == NULL || !mrc_streams_append(&reshard->streams, &reshard->stream_count, stream)) {
        free(stream);
        return false;
    }
    struct mrc_stream_mark *mark = mrc_reshard_mark(reshard, link->replay->own.stream_id);

    if (mark != NULL)
        mrc_trim_move(&mark->trimmed, &link->replay->own.trimmed);
    mrc_replay_move(stream, &link->replay->own);
    note_home(stream, link);
    return true;
}

static bool take_former(struct mrc_link *link)
{
    struct mrc_reshard *reshard = link->client->reshard;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < link->replay->former_count; i++) {
        mrc_reshard_note_trim(link->client, link->replay->former[i]);
        note_home(link->replay->former[i], link);
        if (!mrc_streams_append(&reshard->streams, &reshard->stream_count, link->replay->former[i]))
            link->replay->former[kept++] = link->replay->former[i];
    }
    link->replay->former_count = kept;
    return kept == 0;
}

/* The stream's server has lost what is not in the checkpoint, and with it the lookups of its pushes. */
static void restart_restored(struct mrc_replay *stream, const struct mrc_stream_mark *mark)
{
    if (mark == NULL || !mark->is_restored)
        return;
    stream->restarted = true;
    for (struct mr_link *l = stream->kept.next; l != &stream->kept; l = l->next) {
        struct mrc_push *push = MR_CONTAINER(l, struct mrc_push, kept);
        push->looked_up_in = push->looked_up_in != 0 ? MRC_LOOKED_UP_LOST : 0;
    }
}

/* What a node has written is with others once it owns nothing: its next start, which loads no checkpoint,
 * lacks nothing. Otherwise each node that is drained and restarted would look as one that has come back from
 * an older copy of its directory. */
static void meet_owners_of_nothing(struct mr_client *client)
{
    for (uint32_t n = 0; n < client->node_count; n++) {
        struct mrc_node *node = client->nodes[n];
        bool owns_any = false;
        for (uint32_t p = 0; p < MR_PARTITION_COUNT && !owns_any; p++)
            owns_any = client->shard_map->shards[client->shard_map->of_partition[p]].node == node;
        if (!owns_any)
            mrc_ancestry_meet(&node->replay->ancestry, node->replay->ancestry.start_id);
    }
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
        if (take_former(link) && (link->replay->own.stream_id == 0 || take_own(link)))
            link->regrouped = false;
    }
    client->reshard->era += moved;
    if (moved)
        meet_owners_of_nothing(client);
    for (uint32_t i = 0; i < client->reshard->stream_count; i++) {
        struct mrc_replay *stream = client->reshard->streams[i];
        restart_restored(stream, mrc_reshard_mark(client->reshard, stream->stream_id));
    }
}

void mrc_reshard_replaced(struct mr_client *client)
{
    for (uint32_t i = 0; i < client->link_count; i++) {
        struct mrc_link *link = client->links[i];
        link->replay->own.restarted = true;
        for (uint32_t l = 0; l < link->replay->former_count; l++)
            link->replay->former[l]->restarted = true;
    }
    for (uint32_t i = 0; i < client->reshard->stream_count; i++)
        client->reshard->streams[i]->restarted = true;
}

/* Marks the streams that have keys of the partitions. Lookups that were answered before have left nothing at
 * the new owners. */
void mrc_reshard_taken_over(struct mr_client *client, const uint64_t partitions[MR_PARTITION_COUNT / 64])
{
    for (uint32_t i = 0; i < client->reshard->mark_count; i++) {
        struct mrc_stream_mark *mark = &client->reshard->marks[i];
        for (uint32_t w = 0; w < MR_PARTITION_COUNT / 64; w++) {
            mark->restored[w] |= mark->partitions[w] & partitions[w];
            mark->is_restored |= mark->restored[w] != 0;
        }
    }
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++) {
        struct mrc_link *link = mrc_shard_map_link(client, client->shard_map->of_partition[p]);
        if ((partitions[p / 64] >> (p % 64) & 1) != 0 && link != NULL && link->replay->looked_up_in != 0)
            link->replay->looked_up_in = MRC_LOOKED_UP_LOST;
    }
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
    return client->shard_map != NULL;
}

static bool asks(const struct mr_client *client)
{
    bool any = false;
    for (uint32_t n = 0; n < client->node_count; n++)
        any |= client->nodes[n]->core_count > 0 && client->nodes[n]->replay->asks;
    for (uint32_t i = 0; i < client->reshard->mark_count; i++)
        any |= client->reshard->marks[i].is_restored;
    return any;
}

static bool has_links(const struct mr_client *client)
{
    for (uint32_t o = 0; o < client->shard_map->count; o++)
        if (mrc_shard_map_link(client, o) == NULL)
            return false;
    return true;
}

/* Of the nodes that were restarted, and of those that have taken partitions over. */
static bool ask_all(struct mr_client *client)
{
    bool asked = mrc_reshard_ask_restored(client);
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
    if ((reshard->stream_count == 0 && !asks(client)) || !is_known(client))
        return;
    if (!has_links(client)) { /* without descriptors or memory */
        reshard->ask_us = mr_clock_us() + ASK_AGAIN_US;
        return;
    }
    if (reshard->stream_count > 0 && client->shard_map->count > 1 && !client->features.complete) {
        const struct mrc_link *any = mrc_shard_map_control(client);
        mrc_state_probe_want(any->node);
        return;
    }
    mrc_reshard_split(client);
    if (!ask_all(client) || reshard->stream_count > 0)
        reshard->ask_us = mr_clock_us() + ASK_AGAIN_US;
    client->room_made++;
}

uint64_t mrc_reshard_next_us(const struct mr_client *client)
{
    const bool waits = client->reshard->stream_count > 0 || asks(client);
    return waits && is_known(client) ? client->reshard->ask_us : UINT64_MAX;
}

bool mrc_reshard_is_over(const struct mrc_link *link)
{
    if (link->client->reshard->stream_count > 0 || has_moved(link))
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
        struct mrc_shard_request *request = MR_CONTAINER(l, struct mrc_shard_request, resharded.waiting);
        if (request->resharded.sequence == sequence)
            request->resharded.status = status;
    }
}

void mrc_reshard_leave(struct mrc_shard_request *request)
{
    if (request->resharded.sequence != 0)
        mr_list_remove(&request->resharded.waiting);
    request->resharded.sequence = 0;
}

void mrc_reshard_follow(struct mrc_shard_request *request, uint64_t sequence)
{
    request->resharded.sequence = sequence;
    mr_list_append(&request->link->client->reshard->waiting, &request->resharded.waiting);
}

struct settling {
    const struct mr_client *client;
    uint64_t sequence;
};

static bool has_settled(const void *arg)
{
    const struct settling *s = arg;
    uint32_t stream_id = mr_push_stream_id(s->sequence);
    uint64_t number = mr_push_number(s->sequence);
    if (s->client->reshard->stream_count > 0)
        return false;
    for (uint32_t i = 0; i < s->client->link_count; i++) {
        const struct mrc_link *link = s->client->links[i];
        if (link->replay->own.stream_id == stream_id && mrc_replay_has_open(&link->replay->own, number))
            return false;
        for (uint32_t l = 0; l < link->replay->former_count; l++)
            if (link->replay->former[l]->stream_id == stream_id &&
                mrc_replay_has_open(link->replay->former[l], number))
                return false;
    }
    return true;
}

bool mrc_reshard_has_settled(const struct mr_future *f)
{
    bool settled = true;
    for (uint32_t i = 0; i < f->request_count && settled; i++) {
        const struct mrc_shard_request *request = &f->requests[i];
        struct settling settling = {.sequence = request->resharded.sequence};
        if (request->resharded.sequence == 0)
            continue;
        settling.client = f->client;
        settled = has_settled(&settling);
    }
    return settled || mr_clock_us() >= f->options.deadline_us;
}

/* The answer that came in the end is not there to be read. */
static enum mr_status outcome_of(const struct mrc_shard_request *request)
{
    const bool is_batch = request->future->options.op == MR_OP_PUSH_GRAD_BATCH;
    return request->resharded.status == MR_OK && is_batch ? MR_ALREADY_LEARNT : request->resharded.status;
}

void mrc_reshard_settle(struct mr_future *f)
{
    for (uint32_t i = 0; i < f->request_count; i++) {
        struct mrc_shard_request *request = &f->requests[i];
        struct settling settling = {.sequence = request->resharded.sequence};
        if (request->resharded.sequence == 0)
            continue;
        settling.client = f->client;
        pthread_mutex_lock(&f->client->lock);
        if (mrc_wait(f->client, has_settled, &settling, f->options.deadline_us)) {
            request->status = outcome_of(request);
            request->answer_count = 0;
            request->kept = false;
        }
        mrc_reshard_leave(request);
        pthread_mutex_unlock(&f->client->lock);
    }
}
