#include "trainer_client/replay/remap_split.h"

#include <stdlib.h>
#include "dataplane/wire/format/push_number.h"
#include "trainer_client/api/calls.h"
#include "trainer_client/call/client.h"
#include "trainer_client/replay/remap.h"
#include "trainer_client/replay/replay.h"

bool mrc_lanes_append(struct mrc_replay ***lanes, uint32_t *count, struct mrc_replay *lane)
{
    struct mrc_replay **more = realloc(*lanes, (*count + 1) * sizeof(struct mrc_replay *));
    if (more == NULL)
        return false;
    more[(*count)++] = lane;
    *lanes = more;
    return true;
}

struct mrc_replay *mrc_remap_former_lane(struct mrc_link *link, uint32_t number, uint32_t whole)
{
    for (uint32_t i = 0; i < link->former_count; i++)
        if (link->former[i]->lane == number)
            return link->former[i];
    struct mrc_replay *lane = malloc(sizeof(*lane));

    if (lane == NULL || !mrc_lanes_append(&link->former, &link->former_count, lane)) {
        free(lane);
        return NULL;
    }
    mrc_replay_init(lane, number, link->client->replay_bytes);
    lane->whole = whole;
    link->former_cores = link->node->core_count;
    return lane;
}

static bool give(struct mrc_node *node, uint32_t core, const struct mrc_replay *from, struct mrc_push *push,
                 uint64_t number, uint64_t after)
{
    struct mrc_replay *to = mrc_remap_former_lane(node->links[core], from->lane, from->whole);
    if (to == NULL || number < to->next) {
        mrc_push_free(push);
        return false;
    }
    mrc_replay_adopt(to, push, number, after);
    return true;
}

static bool split_rows(struct mrc_node *node, const struct mrc_replay *from, const struct mrc_push *push,
                       const struct mr_feature *table)
{
    struct mrc_push *shares[MR_CORE_MAX];
    bool ok = mrc_push_split(push, node->partition_core, node->core_count, table, shares), given = true;
    for (uint32_t core = 0; core < node->core_count && ok; core++)
        if (shares[core] != NULL)
            given &= give(node, core, from, shares[core], push->number, push->after);
    return ok && given;
}

/* Removes a push that will not be applied, as a whole or in part; that is reported to its caller, or to that
 * of the next push. */
static void lose(struct mrc_node *node, struct mrc_replay *from, struct mrc_push *push, enum mr_status why)
{
    mrc_remap_failed(node, mrc_replay_sequence(from, push), why);
    mrc_replay_drop(from, push, why);
}

/* Moves the push itself: nothing has to be split. */
static void hand_over(struct mrc_node *node, uint32_t core, struct mrc_replay *from, struct mrc_push *push)
{
    uint64_t number = push->number, step = push->step;
    mrc_replay_withdraw(from, push);
    if (give(node, core, from, push, number, push->after))
        return;
    mrc_replay_add_loss(from, 1, step, step, MR_NO_MEMORY);
    from->dropped++;
    mrc_remap_failed(node, mr_push_sequence(from->lane, number), MR_NO_MEMORY);
}

static void split_push(struct mrc_node *node, struct mrc_replay *from, struct mrc_push *push)
{
    if (push->tensor_count == 0) { /* a mark: a new one is made below */
        mrc_replay_withdraw(from, push);
        mrc_push_free(push);
        return;
    }
    if (push->op != MR_OP_PUSH_GRAD &&
        push->op != MR_OP_VARIABLE_PUSH) { /* a batch: the hub hands it out again */
        mrc_replay_drop(from, push, MR_OK);
        return;
    }
    if (node->core_count == 1) {
        hand_over(node, 0, from, push);
        return;
    }
    uint32_t id = push->op == MR_OP_VARIABLE_PUSH ? push->table : *(const uint32_t *)push->tensors[0].data;
    const struct mr_feature *feature = mrc_features_get(&node->client->features, id);

    if (feature == NULL) {
        lose(node, from, push, MR_UNKNOWN_TABLE);
    } else if (push->tensor_count < MRC_ROWS_TENSORS) {
        hand_over(node, mrc_variable_owner(feature, node->partition_core), from, push);
    } else if (split_rows(node, from, push, feature)) {
        mrc_replay_withdraw(from, push); /* its shares remain */
        mrc_push_free(push);
    } else {
        lose(node, from, push, MR_NO_MEMORY);
    }
}

/* ---- pieces: what one number of a lane has become on several links. A core takes a number once, so that
 * those which may meet at one core become one push again. ---- */

static struct mrc_push *oldest(const struct mrc_replay *lane)
{
    return mr_list_empty(&lane->kept) ? NULL : MR_CONTAINER(lane->kept.next, struct mrc_push, kept);
}

/* Finds the lowest number that these lanes keep, and where it is. */
static uint32_t find_pieces(struct mrc_replay *const lanes[], uint32_t count, uint32_t at[])
{
    uint64_t number = UINT64_MAX;
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; i++)
        if (oldest(lanes[i]) != NULL && oldest(lanes[i])->number < number)
            number = oldest(lanes[i])->number;
    for (uint32_t i = 0; i < count; i++)
        if (oldest(lanes[i]) != NULL && oldest(lanes[i])->number == number)
            at[found++] = i;
    return found;
}

/* Joins all pieces of a number into one push of one of the lanes, and returns that lane. */
static uint32_t unite(struct mrc_node *node, struct mrc_replay *const lanes[], uint32_t at[], uint32_t count)
{
    struct mrc_push *pieces[MR_CORE_MAX + 1], *whole;
    for (uint32_t i = 0; i < count; i++)
        pieces[i] = oldest(lanes[at[i]]);
    for (uint32_t i = 0; i < count && count > 1;) { /* marks have nothing to add */
        if (pieces[i]->tensor_count > 0) {
            i++;
            continue;
        }
        mrc_replay_withdraw(lanes[at[i]], pieces[i]);
        mrc_push_free(pieces[i]);
        pieces[i] = pieces[--count];
        at[i] = at[count];
    }
    if (count == 1)
        return at[0];
    whole = mrc_push_join(pieces, count);
    uint64_t number = pieces[0]->number, after = pieces[0]->after;

    if (whole == NULL)
        mrc_remap_failed(node, mrc_replay_sequence(lanes[at[0]], pieces[0]), MR_NO_MEMORY);
    for (uint32_t i = 0; i < count; i++) {
        mrc_replay_drop(lanes[at[i]], pieces[i], whole == NULL ? MR_NO_MEMORY : MR_OK);
        lanes[at[i]]->dropped -= whole != NULL;
    }
    if (whole != NULL)
        mrc_replay_put_back(lanes[at[0]], whole, number, after);
    return at[0];
}

/* Cores that got nothing of a number are also sent the number, so that their record of the lane has no
 * gaps. */
static void mark_elsewhere(struct mrc_node *node, const struct mrc_replay *from, uint64_t number)
{
    if (mr_push_lane_cores(from->lane) == node->core_count) /* the lane's own core has all of it */
        return;
    for (uint32_t core = 0; core < node->core_count; core++) {
        const struct mrc_replay *to = mrc_remap_former_lane(node->links[core], from->lane, from->whole);
        struct mrc_push *empty;
        if (to == NULL || to->next > number)
            continue;
        empty = mrc_push_new(MR_OP_PUSH_GRAD, 0, 0, 0, NULL, 0);
        if (empty != NULL)
            (void)give(node, core, from, empty, number, 0);
    }
}

/* Splits what the links had of one lane. */
static void split_lanes(struct mrc_node *node, struct mrc_replay *lanes[], uint32_t count)
{
    uint32_t at[MR_CORE_MAX + 1], found;
    while ((found = find_pieces(lanes, count, at)) > 0) {
        if (found > 1)
            at[0] = unite(node, lanes, at, found);
        struct mrc_push *push = oldest(lanes[at[0]]);

        if (push == NULL) /* no memory for it: reported as a loss */
            continue;
        uint64_t number = push->number;

        split_push(node, lanes[at[0]], push);
        mark_elsewhere(node, lanes[at[0]], number);
    }
    for (uint32_t i = 0; i < count; i++) {
        mrc_replay_retire(lanes[i], &node->links[0]->own);
        free(lanes[i]);
    }
}

/* Splits the lanes in the order in which they were begun. A lane has been at most once on each link, and once
 * more as its own. */
void mrc_remap_split(struct mrc_node *node)
{
    struct mrc_remap *remap = &node->remap;
    struct mrc_replay *lanes[MR_CORE_MAX + 1];
    for (uint32_t m = 0; m < remap->mark_count; m++) {
        uint32_t count = 0;
        for (uint32_t i = 0; i < remap->lane_count; i++) {
            struct mrc_replay *lane = remap->lanes[i];
            if (lane == NULL || lane->lane != remap->marks[m].lane)
                continue;
            lanes[count++] = lane;
            remap->lanes[i] = NULL; /* freed after it is split */
        }
        split_lanes(node, lanes, count);
    }
    remap->lane_count = 0;
}
