#include "trainer_client/replay/reshard_split.h"

#include <stdlib.h>
#include "dataplane/wire/format/push_number.h"
#include "dataplane/wire/format/ranges.h"
#include "trainer_client/call/client.h"
#include "trainer_client/replay/reshard.h"
#include "trainer_client/replay/replay.h"
#include "trainer_client/replay/replay_hooks.h"

bool mrc_lanes_append(struct mrc_replay ***lanes, uint32_t *count, struct mrc_replay *lane)
{
    struct mrc_replay **more = realloc(*lanes, (*count + 1) * sizeof(struct mrc_replay *));
    if (more == NULL)
        return false;
    more[(*count)++] = lane;
    *lanes = more;
    return true;
}

static struct mrc_replay *find_former(const struct mrc_link *link, uint32_t number)
{
    for (uint32_t i = 0; i < link->replay->former_count; i++)
        if (link->replay->former[i]->lane == number)
            return link->replay->former[i];
    return NULL;
}

struct mrc_replay *mrc_reshard_former_lane(struct mrc_link *link, uint32_t number)
{
    struct mrc_replay *lane = find_former(link, number);
    if (lane != NULL)
        return lane;
    lane = malloc(sizeof(*lane));
    if (lane == NULL || !mrc_lanes_append(&link->replay->former, &link->replay->former_count, lane)) {
        free(lane);
        return NULL;
    }
    mrc_replay_init(lane, number, link->client->replay_bytes);
    lane->whole = link->node->replay->probe.restores;
    lane->is_former = true;
    return lane;
}

/* ---- giving pushes to owners ---- */

/* Where a push of a lane comes from, and what had become of it there. */
struct origin {
    const struct mrc_replay *lane;
    uint64_t number, after;
    bool is_done;
};

/* The server that answered the lane's pushes still has them. */
static bool is_alive(const struct mrc_replay *lane)
{
    return !lane->restarted && lane->home->start_id == lane->home_start &&
           lane->home->node->start_id == lane->home_start;
}

/* The new owner got what the other one had: it has seen the lookup, too, and its restores are counted by
 * itself. */
static void change_node(struct mrc_push *push, const struct origin *from, const struct mrc_link *to)
{
    const struct mrc_node *node = to->node;
    const bool is_judged = node->replay->probe.has_met && mrc_state_probe_is_over(node);
    if (push->restores != MRC_PUSH_UNANSWERED)
        push->restores = is_judged ? node->replay->probe.restores : MRC_PUSH_ELSEWHERE;
    if (push->looked_up_in != 0 && is_alive(from->lane) && push->looked_up_in == from->lane->home_start)
        push->looked_up_in = node->start_id;
}

static bool reshard_split_give(struct mr_client *client, uint32_t owner, const struct origin *from,
                               struct mrc_push *push)
{
    struct mrc_link *link = mrc_owners_link(client, owner);
    struct mrc_replay *to = mrc_reshard_former_lane(link, from->lane->lane);
    if (to == NULL || from->number < to->next) {
        mrc_push_free(push);
        return false;
    }
    if (link->node != from->lane->home->node)
        change_node(push, from, link);
    to->restarted |= !is_alive(from->lane);
    link->node->replay->has_pushed = true;
    mrc_replay_adopt(to, push, from->number, from->after,
                     from->is_done && link == from->lane->home && is_alive(from->lane));
    return true;
}

static bool split_by_owner(struct mr_client *client, const struct origin *from, const struct mrc_push *push,
                           const struct mr_feature *feature)
{
    const struct mrc_owners *owners = client->owners;
    struct mrc_push **shares = malloc(owners->count * sizeof(struct mrc_push *));
    bool ok = shares != NULL && (mrc_push_is_of_variable(push) ? mrc_variable_push_split : mrc_push_split)(
                                    push, owners->of_partition, owners->count, feature, shares);
    bool given = true;

    for (uint32_t o = 0; o < owners->count && ok; o++)
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
                      struct mrc_replay *lane, struct mrc_push *push)
{
    const uint64_t step = push->step;
    mrc_replay_withdraw(lane, push);
    if (reshard_split_give(client, owner, from, push))
        return;
    mrc_replay_add_loss(lane, 1, step, step, MR_NO_MEMORY);
    lane->dropped++;
    mrc_reshard_failed(client, mr_push_sequence(lane->lane, from->number), MR_NO_MEMORY);
}

/* The owner of all that the push is about; UINT32_MAX: there are several. */
static uint32_t only_owner(const struct mr_client *client, const struct mrc_push *push,
                           const struct mr_feature *feature)
{
    const struct mrc_owners *owners = client->owners;
    if (owners->count == 1)
        return 0;
    if (!mrc_push_is_of_variable(push))
        return mrc_push_only_owner(push, owners->of_partition, feature);
    return mr_variable_ranges(feature) == 1 ? owners->of_partition[mr_variable_partition(feature->name)]
                                            : UINT32_MAX;
}

static void split_push(struct mr_client *client, struct mrc_replay *from, struct mrc_push *push)
{
    const struct origin origin = {
        .lane = from, .number = push->number, .after = push->after, .is_done = push->state == MRC_PUSH_DONE};
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

    if (feature == NULL && client->owners->count > 1) {
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

/* ---- pieces: what one number of a lane has become on several links. A core takes a number once, so that
 * those which may meet at one core become one push again. ---- */

static struct mrc_push *oldest(const struct mrc_replay *lane)
{
    return mr_list_empty(&lane->kept) ? NULL : MR_CONTAINER(lane->kept.next, struct mrc_push, kept);
}

/* What the links had of one lane. */
struct pieces {
    uint32_t count, found;
    struct mrc_replay **lanes; /* [count] */
    uint32_t *at;              /* of those that keep the lowest number: [found] */
    struct mrc_push **pushes;  /* [found] */
};

/* Finds the lowest number that these lanes keep, and where it is. */
static bool find_pieces(struct pieces *p)
{
    uint64_t number = UINT64_MAX;
    p->found = 0;
    for (uint32_t i = 0; i < p->count; i++)
        if (oldest(p->lanes[i]) != NULL && oldest(p->lanes[i])->number < number)
            number = oldest(p->lanes[i])->number;
    for (uint32_t i = 0; i < p->count; i++)
        if (oldest(p->lanes[i]) != NULL && oldest(p->lanes[i])->number == number)
            p->at[p->found++] = i;
    return p->found > 0;
}

/* Marks have nothing to add. */
static void remove_marks(struct pieces *p)
{
    for (uint32_t i = 0; i < p->found && p->found > 1;) {
        if (p->pushes[i]->tensor_count > 0) {
            i++;
            continue;
        }
        mrc_replay_withdraw(p->lanes[p->at[i]], p->pushes[i]);
        mrc_push_free(p->pushes[i]);
        p->pushes[i] = p->pushes[--p->found];
        p->at[i] = p->at[p->found];
    }
}

/* Joins all pieces of a number into one push of one of the lanes, and returns that lane. */
static struct mrc_replay *unite(struct mr_client *client, struct pieces *p)
{
    for (uint32_t i = 0; i < p->found; i++)
        p->pushes[i] = oldest(p->lanes[p->at[i]]);
    remove_marks(p);
    struct mrc_replay *to = p->lanes[p->at[0]];
    if (p->found == 1)
        return to;
    struct mrc_push *whole =
        (mrc_push_is_of_variable(p->pushes[0]) ? mrc_variable_push_join : mrc_push_join)(p->pushes, p->found);
    uint64_t number = p->pushes[0]->number, after = p->pushes[0]->after;

    if (whole == NULL)
        mrc_reshard_failed(client, mrc_replay_sequence(to, p->pushes[0]), MR_NO_MEMORY);
    for (uint32_t i = 0; i < p->found; i++) {
        struct mrc_replay *lane = p->lanes[p->at[i]];
        mrc_replay_drop(lane, p->pushes[i], whole == NULL ? MR_NO_MEMORY : MR_OK);
        lane->dropped -= whole != NULL;
    }
    if (whole != NULL)
        mrc_replay_put_back(to, whole, number, after);
    return to;
}

/* Tells the owners which numbers they will not get, so that their record of the lane has no gaps. */
static void mark_gaps(struct mr_client *client, uint32_t lane, uint64_t last)
{
    for (uint32_t o = 0; o < client->owners->count; o++) {
        struct mrc_link *link = mrc_owners_link(client, o);
        struct mrc_replay *former = find_former(link, lane);
        if (former == NULL)
            continue;
        mrc_replay_mark_gaps(former, last);
        link->replay->resend_us = 0;
    }
}

static void split_lanes(struct mr_client *client, struct pieces *p)
{
    const uint32_t lane = p->lanes[0]->lane;
    uint64_t last = 0;
    for (uint32_t i = 0; i < p->count; i++)
        last = p->lanes[i]->next - 1 > last ? p->lanes[i]->next - 1 : last;
    while (find_pieces(p)) {
        struct mrc_replay *from = unite(client, p);
        struct mrc_push *push = oldest(from);
        if (push != NULL) /* else no memory for it: reported as a loss */
            split_push(client, from, push);
    }
    mark_gaps(client, lane, last);
    for (uint32_t i = 0; i < p->count; i++) {
        mrc_replay_retire(p->lanes[i], &mrc_owners_link(client, 0)->replay->own);
        free(p->lanes[i]);
    }
}

/* Splits the lanes in the order in which they were begun. */
void mrc_reshard_split(struct mr_client *client)
{
    struct mrc_reshard *reshard = client->reshard;
    const uint32_t room = reshard->lane_count;
    if (room == 0)
        return;
    struct pieces p = {.lanes = malloc(room * sizeof(struct mrc_replay *)),
                       .at = malloc(room * sizeof(uint32_t)),
                       .pushes = malloc(room * sizeof(struct mrc_push *))};
    const bool ok = p.lanes != NULL && p.at != NULL && p.pushes != NULL;
    for (uint32_t m = 0; m < reshard->mark_count && ok; m++) {
        p.count = 0;
        for (uint32_t i = 0; i < reshard->lane_count; i++) {
            struct mrc_replay *lane = reshard->lanes[i];
            if (lane == NULL || lane->lane != reshard->marks[m].lane)
                continue;
            p.lanes[p.count++] = lane;
            reshard->lanes[i] = NULL; /* freed after it is split */
        }
        if (p.count > 0)
            split_lanes(client, &p);
    }
    if (ok)
        reshard->lane_count = 0;
    free(p.lanes);
    free(p.at);
    free(p.pushes);
}
