#include "trainer_client/replay/reshard_split.h"

#include <stdlib.h>
#include "dataplane/wire/format/push_number.h"
#include "dataplane/wire/format/ranges.h"
#include "trainer_client/call/client.h"
#include "trainer_client/replay/reshard.h"
#include "trainer_client/replay/replay.h"
#include "trainer_client/replay/replay_hooks.h"

bool mrc_streams_append(struct mrc_replay ***streams, uint32_t *count, struct mrc_replay *stream)
{
    struct mrc_replay **more = realloc(*streams, (*count + 1) * sizeof(struct mrc_replay *));
    if (more == NULL)
        return false;
    more[(*count)++] = stream;
    *streams = more;
    return true;
}

static struct mrc_replay *find_former(const struct mrc_link *link, uint32_t number)
{
    for (uint32_t i = 0; i < link->replay->former_count; i++)
        if (link->replay->former[i]->stream_id == number)
            return link->replay->former[i];
    return NULL;
}

struct mrc_replay *mrc_reshard_former_stream(struct mrc_link *link, uint32_t number)
{
    struct mrc_replay *stream = find_former(link, number);
    if (stream != NULL)
        return stream;
    stream = malloc(sizeof(*stream));
    if (stream == NULL || !mrc_streams_append(&link->replay->former, &link->replay->former_count, stream)) {
        free(stream);
        return NULL;
    }
    mrc_replay_init(stream, number, link->client->replay_bytes);
    stream->whole = link->node->replay->probe.restores;
    stream->is_former = true;
    return stream;
}

/* ---- giving pushes to owners ---- */

/* Where a push of a stream comes from, and what had become of it there. */
struct origin {
    const struct mrc_replay *stream;
    uint64_t number, after;
    bool is_done;
};

/* The server that answered the stream's pushes still has them. */
static bool is_alive(const struct mrc_replay *stream)
{
    return !stream->restarted && stream->home->start_id == stream->home_start &&
           stream->home->node->start_id == stream->home_start;
}

/* The new owner got what the other one had: it has seen the lookup, too, and its restores are counted by
 * itself. */
static void change_node(struct mrc_push *push, const struct origin *from, const struct mrc_link *to)
{
    const struct mrc_node *node = to->node;
    const bool is_judged = node->replay->probe.has_met && mrc_state_probe_is_over(node);
    if (push->restores != MRC_PUSH_UNANSWERED)
        push->restores = is_judged ? node->replay->probe.restores : MRC_PUSH_ELSEWHERE;
    if (push->looked_up_in != 0 && is_alive(from->stream) && push->looked_up_in == from->stream->home_start)
        push->looked_up_in = node->start_id;
}

static bool reshard_split_give(struct mr_client *client, uint32_t owner, const struct origin *from,
                               struct mrc_push *push)
{
    struct mrc_link *link = mrc_shard_map_link(client, owner);
    struct mrc_replay *to = mrc_reshard_former_stream(link, from->stream->stream_id);
    if (to == NULL || from->number < to->next) {
        mrc_push_free(push);
        return false;
    }
    if (link->node != from->stream->home->node)
        change_node(push, from, link);
    to->restarted |= !is_alive(from->stream);
    link->node->replay->has_pushed = true;
    mrc_replay_adopt(to, push, from->number, from->after,
                     from->is_done && link == from->stream->home && is_alive(from->stream));
    return true;
}

static bool split_by_owner(struct mr_client *client, const struct origin *from, const struct mrc_push *push,
                           const struct mr_feature *feature)
{
    const struct mrc_shard_map *map = client->shard_map;
    struct mrc_push **shares = malloc(map->count * sizeof(struct mrc_push *));
    bool ok = shares != NULL && (mrc_push_is_of_variable(push) ? mrc_variable_push_split : mrc_push_split)(
                                    push, map->of_partition, map->count, feature, shares);
    bool given = true;

    for (uint32_t o = 0; o < map->count && ok; o++)
        if (shares[o] != NULL)
            given &= reshard_split_give(client, o, from, shares[o]);
    free(shares);
    return ok && given;
}

/* Removes a push that will not be applied, as a whole or in part; that is reported to its caller, or to that
 * of the next push. */
static void lose(struct mr_client *client, struct mrc_replay *from, struct mrc_push *push, enum mr_status why)
{
    mrc_reshard_failed(client, mrc_replay_sequence(from, push), why);
    mrc_replay_drop(from, push, why);
}

/* Moves the push itself: nothing has to be split. */
static void hand_over(struct mr_client *client, uint32_t owner, const struct origin *from,
                      struct mrc_replay *stream, struct mrc_push *push)
{
    const uint64_t step = push->step;
    mrc_replay_withdraw(stream, push);
    if (reshard_split_give(client, owner, from, push))
        return;
    mrc_replay_add_loss(stream, 1, step, step, MR_NO_MEMORY);
    stream->dropped++;
    mrc_reshard_failed(client, mr_push_sequence(stream->stream_id, from->number), MR_NO_MEMORY);
}

/* The owner of all that the push is about; UINT32_MAX: there are several. */
static uint32_t only_owner(const struct mr_client *client, const struct mrc_push *push,
                           const struct mr_feature *feature)
{
    const struct mrc_shard_map *map = client->shard_map;
    if (map->count == 1)
        return 0;
    if (!mrc_push_is_of_variable(push))
        return mrc_push_only_owner(push, map->of_partition, feature);
    return mr_variable_ranges(feature) == 1 ? map->of_partition[mr_variable_partition(feature->name)]
                                            : UINT32_MAX;
}

static void split_push(struct mr_client *client, struct mrc_replay *from, struct mrc_push *push)
{
    const struct origin origin = {.stream = from,
                                  .number = push->number,
                                  .after = push->after,
                                  .is_done = push->state == MRC_PUSH_DONE};
    if (push->tensor_count == 0) { /* a mark: new ones are made below */
        mrc_replay_withdraw(from, push);
        mrc_push_free(push);
        return;
    }
    if (push->op != MR_OP_PUSH_GRAD &&
        push->op != MR_OP_VARIABLE_PUSH) { /* a batch: the hub hands it out again */
        mrc_replay_drop(from, push, MR_OK);
        return;
    }
    uint32_t id = push->op == MR_OP_VARIABLE_PUSH ? push->table : *(const uint32_t *)push->tensors[0].data;
    const struct mr_feature *feature = mrc_features_get(&client->features, id);

    if (feature == NULL && client->shard_map->count > 1) {
        lose(client, from, push, MR_UNKNOWN_TABLE);
        return;
    }
    const uint32_t owner = only_owner(client, push, feature);
    if (owner != UINT32_MAX) {
        hand_over(client, owner, &origin, from, push);
    } else if (split_by_owner(client, &origin, push, feature)) {
        mrc_replay_withdraw(from, push); /* its shares remain */
        mrc_push_free(push);
    } else {
        lose(client, from, push, MR_NO_MEMORY);
    }
}

/* ---- shares: what one number of a stream has become on several links. A core takes a number once, so that
 * those which may meet at one core become one push again. ---- */

static struct mrc_push *oldest(const struct mrc_replay *stream)
{
    return mr_list_empty(&stream->kept) ? NULL : MR_CONTAINER(stream->kept.next, struct mrc_push, kept);
}

/* What the links had of one stream. */
struct shares {
    uint32_t count, found;
    struct mrc_replay **streams; /* [count] */
    uint32_t *at;                /* of those that keep the lowest number: [found] */
    struct mrc_push **pushes;    /* [found] */
};

/* Finds the lowest number that these streams keep, and where it is. */
static bool find_shares(struct shares *p)
{
    uint64_t number = UINT64_MAX;
    p->found = 0;
    for (uint32_t i = 0; i < p->count; i++)
        if (oldest(p->streams[i]) != NULL && oldest(p->streams[i])->number < number)
            number = oldest(p->streams[i])->number;
    for (uint32_t i = 0; i < p->count; i++)
        if (oldest(p->streams[i]) != NULL && oldest(p->streams[i])->number == number)
            p->at[p->found++] = i;
    return p->found > 0;
}

/* Marks have nothing to add. */
static void remove_marks(struct shares *p)
{
    for (uint32_t i = 0; i < p->found && p->found > 1;) {
        if (p->pushes[i]->tensor_count > 0) {
            i++;
            continue;
        }
        mrc_replay_withdraw(p->streams[p->at[i]], p->pushes[i]);
        mrc_push_free(p->pushes[i]);
        p->pushes[i] = p->pushes[--p->found];
        p->at[i] = p->at[p->found];
    }
}

/* Joins all shares of a number into one push of one of the streams, and returns that stream. */
static struct mrc_replay *unite(struct mr_client *client, struct shares *p)
{
    for (uint32_t i = 0; i < p->found; i++)
        p->pushes[i] = oldest(p->streams[p->at[i]]);
    remove_marks(p);
    struct mrc_replay *to = p->streams[p->at[0]];
    if (p->found == 1)
        return to;
    struct mrc_push *whole =
        (mrc_push_is_of_variable(p->pushes[0]) ? mrc_variable_push_join : mrc_push_join)(p->pushes, p->found);
    uint64_t number = p->pushes[0]->number, after = p->pushes[0]->after;

    if (whole == NULL)
        mrc_reshard_failed(client, mrc_replay_sequence(to, p->pushes[0]), MR_NO_MEMORY);
    for (uint32_t i = 0; i < p->found; i++) {
        struct mrc_replay *stream = p->streams[p->at[i]];
        mrc_replay_drop(stream, p->pushes[i], whole == NULL ? MR_NO_MEMORY : MR_OK);
        stream->dropped -= whole != NULL;
    }
    if (whole != NULL)
        mrc_replay_put_back(to, whole, number, after);
    return to;
}

/* Tells the owners which numbers they will not get, so that their record of the stream has no gaps. */
static void mark_gaps(struct mr_client *client, uint32_t stream_id, uint64_t last)
{
    for (uint32_t o = 0; o < client->shard_map->count; o++) {
        struct mrc_link *link = mrc_shard_map_link(client, o);
        struct mrc_replay *former = find_former(link, stream_id);
        if (former == NULL)
            continue;
        mrc_replay_mark_gaps(former, last);
        link->replay->resend_us = 0;
    }
}

static void split_streams(struct mr_client *client, struct shares *p)
{
    const uint32_t stream_id = p->streams[0]->stream_id;
    uint64_t last = 0;
    for (uint32_t i = 0; i < p->count; i++)
        last = p->streams[i]->next - 1 > last ? p->streams[i]->next - 1 : last;
    while (find_shares(p)) {
        struct mrc_replay *from = unite(client, p);
        struct mrc_push *push = oldest(from);
        if (push != NULL) /* else no memory for it: reported as a loss */
            split_push(client, from, push);
    }
    mark_gaps(client, stream_id, last);
    for (uint32_t i = 0; i < p->count; i++) {
        mrc_replay_retire(p->streams[i], &mrc_shard_map_link(client, 0)->replay->own);
        free(p->streams[i]);
    }
}

/* Splits the streams in the order in which they were begun. */
void mrc_reshard_split(struct mr_client *client)
{
    struct mrc_reshard *reshard = client->reshard;
    const uint32_t room = reshard->stream_count;
    if (room == 0)
        return;
    struct shares p = {.streams = malloc(room * sizeof(struct mrc_replay *)),
                       .at = malloc(room * sizeof(uint32_t)),
                       .pushes = malloc(room * sizeof(struct mrc_push *))};
    const bool ok = p.streams != NULL && p.at != NULL && p.pushes != NULL;
    for (uint32_t m = 0; m < reshard->mark_count && ok; m++) {
        p.count = 0;
        for (uint32_t i = 0; i < reshard->stream_count; i++) {
            struct mrc_replay *stream = reshard->streams[i];
            if (stream == NULL || stream->stream_id != reshard->marks[m].stream_id)
                continue;
            p.streams[p.count++] = stream;
            reshard->streams[i] = NULL; /* freed after it is split */
        }
        if (p.count > 0)
            split_streams(client, &p);
    }
    if (ok)
        reshard->stream_count = 0;
    free(p.streams);
    free(p.at);
    free(p.pushes);
}
