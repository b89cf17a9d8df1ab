/* Workers that died: their forks stay until all that they passed on is known. */
#include <assert.h>

#include "dataplane/rpc/rref/references_internal.h"

/* All who were asked have answered, about each: then no living worker has, or will get, a fork from one of
 * them that is not known here. */
static void finish_if_settled(struct mr_references *refs)
{
    uint32_t world_size = refs->config.world_size;
    if (refs->settling == 0)
        return;
    for (uint32_t rank = 0; rank < world_size; rank++)
        if (refs->peers[rank].settle == MR_SETTLE_RUNNING && refs->peers[rank].settle_missing > 0)
            return;
    for (uint32_t rank = 0; rank < world_size; rank++)
        if (refs->peers[rank].settle == MR_SETTLE_RUNNING)
            refs->peers[rank].settle = MR_SETTLE_DONE;
    refs->settling = 0;
    struct mr_id_node *next;
    for (struct mr_id_node *node = mr_id_map_next(&refs->forks, NULL); node != NULL; node = next) {
        struct mr_fork *fork = MR_CONTAINER(node, struct mr_fork, by_fork);
        next = mr_id_map_next(&refs->forks, node);
        if (refs->peers[fork->holder].settle == MR_SETTLE_DONE)
            mr_fork_remove(refs, fork);
    }
}

static void ask_about(struct mr_references *refs, uint32_t rank)
{
    struct mr_peer *peer = &refs->peers[rank];
    peer->settle = MR_SETTLE_RUNNING;
    refs->settling++;
    for (uint32_t other = 0; other < refs->config.world_size; other++) {
        bool ask = other != refs->config.rank && !refs->peers[other].dead;
        mr_references_set_bit(refs, refs->answered, rank, other, !ask);
        peer->settle_missing += ask;
        if (ask)
            mr_references_send(refs, other, MR_REFERENCE_SETTLE, rank, 0, 0);
    }
}

/* About all that are dead, not only whose forks we know: one of them may have passed on what another one,
 * whose fork we know, had passed to it. */
void mr_settle_begin(struct mr_references *refs)
{
    for (uint32_t rank = 0; rank < refs->config.world_size; rank++)
        if (refs->peers[rank].dead && refs->peers[rank].settle == MR_SETTLE_NONE)
            ask_about(refs, rank);
    finish_if_settled(refs);
}

static void answered(struct mr_references *refs, uint32_t rank, uint32_t by)
{
    struct mr_peer *peer = &refs->peers[rank];
    if (peer->settle != MR_SETTLE_RUNNING || mr_references_bit(refs, refs->answered, rank, by))
        return;
    mr_references_set_bit(refs, refs->answered, rank, by, true);
    peer->settle_missing--;
}

void mr_settle_on_answer(struct mr_references *refs, uint32_t from, uint32_t rank)
{
    answered(refs, rank, from);
    finish_if_settled(refs);
}

/* ---- being asked ---- */

static bool waits_for(const struct mr_references *refs, uint32_t owner, uint32_t parent)
{
    for (struct mr_id_node *node = mr_id_map_next(&refs->holds, NULL); node != NULL;
         node = mr_id_map_next(&refs->holds, node)) {
        const struct mr_reference *hold = MR_CONTAINER(node, struct mr_reference, by_fork);
        if (hold->owner == owner && hold->parent == parent && !hold->confirmed)
            return true;
    }
    return false;
}

void mr_settle_on_ask(struct mr_references *refs, uint32_t from, uint32_t rank)
{
    mr_references_died(refs, rank);
    mr_references_set_bit(refs, refs->asked, rank, from, true);
    mr_settle_confirmed(refs, from, rank);
}

void mr_settle_confirmed(struct mr_references *refs, uint32_t owner, uint32_t parent)
{
    if (!mr_references_bit(refs, refs->asked, parent, owner) || waits_for(refs, owner, parent))
        return;
    mr_references_set_bit(refs, refs->asked, parent, owner, false);
    mr_references_send(refs, owner, MR_REFERENCE_SETTLED, parent, 0, 0);
}

/* ---- dying ---- */

void mr_references_died(struct mr_references *refs, uint32_t rank)
{
    uint32_t world_size = refs->config.world_size;
    assert(rank < world_size && rank != refs->config.rank);
    if (refs->peers[rank].dead)
        return;
    refs->peers[rank].dead = true;
    mr_hold_owner_died(refs, rank);
    mr_hold_child_died(refs, rank);
    mr_owned_creator_died(refs, rank);
    if (refs->settling > 0 || mr_references_held_by(refs, rank) > 0)
        mr_settle_begin(refs);
    for (uint32_t other = 0; other < world_size; other++)
        answered(refs, other, rank);
    finish_if_settled(refs);
    mr_references_run_due(refs);
}
