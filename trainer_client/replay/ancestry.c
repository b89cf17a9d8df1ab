#include "trainer_client/replay/ancestry.h"

#include <string.h>

static bool is_trusted(const struct mrc_ancestry *a, uint64_t start_id)
{
    for (uint32_t i = 0; i < a->count; i++) {
        if (a->trusted[i] == start_id)
            return true;
    }
    return false;
}

static void trust(struct mrc_ancestry *a, uint64_t start_id)
{
    if (a->count == MRC_STARTS_MAX)
        memmove(a->trusted, a->trusted + 1, --a->count * sizeof(a->trusted[0]));
    a->trusted[a->count++] = start_id;
}

void mrc_ancestry_meet(struct mrc_ancestry *a, uint64_t start_id)
{
    if (a->count == 0)
        trust(a, start_id);
}

/* A restore of everything takes the node to a checkpoint with a lower number: earlier answers no longer
 * count. */
void mrc_ancestry_saved(struct mrc_ancestry *a, uint32_t restores, uint64_t checkpoint)
{
    if (checkpoint == 0)
        return;
    if (restores > a->restores || (restores == a->restores && checkpoint > a->checkpoint)) {
        a->restores = restores;
        a->checkpoint = checkpoint;
    }
}

static bool has_all(const struct mrc_ancestry *a, const struct mrc_origin *o)
{
    if (a->checkpoint == 0)
        return true;
    if (!o->same_lineage || o->restores < a->restores) /* another directory, or an older copy */
        return false;
    if (o->whole > a->restores) /* somebody went back from all of it */
        return true;
    for (uint32_t i = 0; i + 1 < o->count; i++) {
        if (is_trusted(a, o->starts[i + 1][MR_LIST_START_ID]))
            return o->starts[i][MR_LIST_START_FROM] >= a->checkpoint;
    }
    return false;
}

bool mrc_ancestry_judge(struct mrc_ancestry *a, uint64_t start_id, const struct mrc_origin *o)
{
    if (is_trusted(a, start_id))
        return mrc_ancestry_lacks(a, start_id);
    a->judged = start_id;
    a->lacks = !has_all(a, o);
    if (a->lacks) {
        a->count = 0;
        a->restores = o->restores;
        a->checkpoint = o->count > 0 ? o->starts[0][MR_LIST_START_FROM] : 0;
    }
    trust(a, start_id);
    return a->lacks;
}

bool mrc_ancestry_lacks(const struct mrc_ancestry *a, uint64_t start_id)
{
    return a->judged == start_id && a->lacks;
}
