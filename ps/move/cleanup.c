#include "ps/move/cleanup.h"

#include <stdatomic.h>
#include <stdlib.h>
#include "ps/core/core.h"
#include "ps/move/copy_source.h"
#include "ps/table/table_copy.h"

#define STEP_BYTES (16u << 10) /* of memory touched: some microseconds */

void ps_cleanup_add(struct ps_core *core, const struct ps_partition_set *partitions)
{
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        if (ps_partitions_has(partitions, p) && core->node->partition_core[p] == core->index &&
            !ps_since_is_owned(core->owns.since[p]))
            ps_partitions_add(&core->cleanup, p);
    core->has_cleanup = !ps_partitions_empty(&core->cleanup);
    ps_ownership_settle(&core->owns, &core->cleanup);
    struct ps_records records = ps_core_records(core);
    (void)ps_records_forget(&records, &core->cleanup); /* what is left is replaced if they come back */
    if (core->copies != NULL)
        ps_copies_note_all(core);
    ps_save_marks_lost(core);
}

/* Its memory is freed with the features that leave. */
static void cleanup_range(struct ps_core *core, const struct ps_feature *f, struct ps_range *range)
{
    struct ps_feature *gone = calloc(1, sizeof(*gone) + sizeof(gone->ranges[0]));
    if (gone == NULL) {
        ps_variable_destroy(range->variable);
    } else {
        gone->core = core;
        gone->feature = f->feature;
        gone->range_count = 1;
        gone->ranges[0].variable = range->variable;
        ps_pending_free_add(core, gone);
    }
    range->variable = NULL;
    free(range->loading);
    range->loading = NULL;
    range->loaded_bytes = 0;
}

/* True when there is more of it. */
static bool cleanup_some(struct ps_core *core, uint32_t partition, uint64_t *budget_bytes)
{
    for (uint32_t id = 1; id <= core->feature_id_max; id++) {
        struct ps_feature *f = core->features[id];
        if (f == NULL)
            continue;
        if (f->table != NULL && ps_table_drop_partition(f->table, partition, budget_bytes))
            return true;
        for (uint32_t i = 0; i < f->range_count; i++)
            if (f->ranges[i].variable != NULL && f->ranges[i].partition == partition)
                cleanup_range(core, f, &f->ranges[i]);
    }
    return false;
}

bool ps_cleanup_step(struct ps_core *core)
{
    uint64_t budget_bytes = STEP_BYTES;
    if (!core->has_cleanup || core->save.writer != NULL)
        return false;
    for (uint32_t word = 0; word < PS_PARTITION_WORDS; word++) {
        uint64_t *bits = &core->cleanup.words[word];
        while (*bits != 0) {
            if (budget_bytes == 0 ||
                cleanup_some(core, word * 64 + (uint32_t)__builtin_ctzll(*bits), &budget_bytes))
                return true;
            *bits &= *bits - 1;
        }
    }
    core->has_cleanup = false;
    return false;
}

bool ps_cleanup_has(const struct ps_core *core, const struct ps_partition_set *partitions)
{
    const struct ps_partition_set both = ps_partitions_and(&core->cleanup, partitions);
    return core->has_cleanup && !ps_partitions_empty(&both);
}

/* ---- on all cores ---- */

static void cleanup_add_on_core(struct ps_core *core, void *arg)
{
    ps_cleanup_add(core, arg);
}

void ps_cleanup_add_everywhere(struct ps_node *node, const struct ps_partition_set *partitions)
{
    struct ps_partition_set set = *partitions;
    ps_node_each_core(node, cleanup_add_on_core, &set);
}

struct cleanup_look {
    const struct ps_partition_set *partitions;
    _Atomic bool has_any;
};

static void cleanup_look_on_core(struct ps_core *core, void *arg)
{
    struct cleanup_look *look = arg;
    if (ps_cleanup_has(core, look->partitions))
        atomic_store(&look->has_any, true);
}

bool ps_cleanup_has_anywhere(struct ps_node *node, const struct ps_partition_set *partitions)
{
    struct cleanup_look look = {.partitions = partitions};
    ps_node_each_core(node, cleanup_look_on_core, &look);
    return atomic_load(&look.has_any);
}
