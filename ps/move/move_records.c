#include "ps/move/move_records.h"

#include <stdlib.h>
#include "ps/core/core.h"

bool ps_move_records_make(struct ps_core *core, const struct ps_partition_set *partitions, uint8_t **out,
                          size_t *bytes)
{
    const struct ps_records records = ps_core_records(core);
    *bytes = ps_records_export(&records, partitions, NULL);
    *out = malloc(*bytes + 1);
    if (*out != NULL)
        (void)ps_records_export(&records, partitions, *out);
    return *out != NULL;
}

enum mr_status ps_move_records_take(struct ps_core *core, const struct ps_partition_set *partitions,
                                    const struct ps_partition_set *before, const uint8_t *records,
                                    size_t bytes)
{
    struct ps_records own = ps_core_records(core);
    struct ps_partition_set slice = {{0}};
    struct ps_partition_set others = {{0}};
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++) {
        if (core->node->partition_core[p] != core->index)
            continue;
        if (ps_partitions_has(partitions, p))
            ps_partitions_add(&slice, p);
        else if (core->owns.since[p] != PS_NOT_OWNED || ps_partitions_has(before, p))
            ps_partitions_add(&others, p);
    }
    if (ps_partitions_empty(&slice))
        return MR_OK;
    ps_ownership_arrive(&core->owns, &slice);
    return ps_records_import(&own, &slice, &others, records, bytes);
}
