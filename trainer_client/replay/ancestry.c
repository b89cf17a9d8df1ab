#include "trainer_client/replay/ancestry.h"

void mrc_ancestry_meet(struct mrc_ancestry *a, uint64_t start_id)
{
    *a = (struct mrc_ancestry){.start_id = start_id};
}

bool mrc_ancestry_knows(const struct mrc_ancestry *a, uint64_t start_id)
{
    return a->start_id == start_id;
}

/* Numbers rise in a directory: the start has written this checkpoint, unless it loaded it. */
void mrc_ancestry_saved(struct mrc_ancestry *a, uint32_t restores, uint64_t checkpoint)
{
    if (checkpoint == 0 || restores < a->restores)
        return;
    a->restores = restores;
    if (checkpoint <= a->checkpoint)
        return;
    a->checkpoint = checkpoint;
    a->writer = a->start_id;
}

static bool has_all(const struct mrc_ancestry *a, const struct mrc_origin *o)
{
    if (a->checkpoint == 0)
        return true;
    if (!o->same_lineage || o->restores < a->restores) /* another directory, or an older copy */
        return false;
    if (o->whole > a->restores) /* somebody restored an earlier state */
        return true;
    for (uint32_t i = 0; i + 1 < o->count; i++)
        if (o->starts[i + 1][MR_LIST_START_ID] == a->writer)
            return o->starts[i][MR_LIST_START_FROM] >= a->checkpoint;
    return false;
}

void mrc_ancestry_judge(struct mrc_ancestry *a, uint64_t start_id, const struct mrc_origin *o)
{
    if (start_id != a->start_id)
        *a = (struct mrc_ancestry){
            .start_id = start_id,
            .lacks = !has_all(a, o),
            .writer = o->count > 1 ? o->starts[1][MR_LIST_START_ID] : 0,
            .checkpoint = o->count > 0 ? o->starts[0][MR_LIST_START_FROM] : 0,
            .restores = o->restores,
        };
}

bool mrc_ancestry_lacks(const struct mrc_ancestry *a, uint64_t start_id)
{
    return a->start_id == start_id && a->lacks;
}
