#include "ps/core/ownership.h"

#include <string.h>
#include "ps/core/core.h"

void ps_ownership_init(struct ps_core *core)
{
    const struct ps_node *node = core->node;
    core->owns.all_since = 0;
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++) {
        const bool is_own = !node->is_member && node->partition_core[p] == core->index;
        core->owns.since[p] = is_own ? 0 : PS_NOT_OWNED;
        core->owns.all_since |= core->owns.since[p];
    }
}

void ps_ownership_arrive(struct ps_ownership *o, const struct ps_partition_set *partitions)
{
    o->arriving = ps_partitions_or(&o->arriving, partitions);
    o->has_arriving = !ps_partitions_empty(&o->arriving);
}

void ps_ownership_settle(struct ps_ownership *o, const struct ps_partition_set *partitions)
{
    o->arriving = ps_partitions_without(&o->arriving, partitions);
    o->has_arriving = !ps_partitions_empty(&o->arriving);
}

enum mr_status ps_core_own(struct ps_core *core, const struct ps_owned *owned, char *text)
{
    struct ps_ownership *o = &core->owns;
    o->info = owned->info;
    o->epoch = owned->epoch;
    o->newest = o->all_since = 0;
    o->has_loading = false;
    struct ps_partition_set owned_now = {{0}};
    bool changes = false;
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++) {
        const uint32_t before = o->since[p];
        o->since[p] = core->node->partition_core[p] == core->index ? owned->since[p] : PS_NOT_OWNED;
        o->all_since = o->since[p] > o->all_since ? o->since[p] : o->all_since;
        changes |= ps_since_is_owned(before) != ps_since_is_owned(o->since[p]);
        o->has_loading |= o->since[p] == PS_LOADING;
        if (!ps_since_is_owned(o->since[p]))
            continue;
        ps_partitions_add(&owned_now, p);
        if (o->since[p] > o->newest)
            o->newest = o->since[p];
    }
    ps_ownership_settle(o, &owned_now);
    if (changes) /* they were split by another map: what was fed lacks keys, or has too many */
        ps_batch_cache_clear(core->batches);
    enum mr_status status = MR_OK;
    for (uint32_t id = 1; id <= core->feature_id_max && status == MR_OK; id++)
        if (core->features[id] != NULL)
            status = ps_feature_own(core->features[id], text);
    return status;
}
