/* Where every byte of a core is. Answered whatever the node's state. */
#include <string.h>
#include "ps/ops/ops.h"

static void core_words(const struct ps_core *core, uint64_t words[MR_MEMORY_CORE_WORDS])
{
    uint64_t variable_bytes = 0;
    for (uint32_t id = 1; id <= core->feature_id_max; id++) {
        const struct ps_feature *f = core->features[id];
        if (f != NULL && f->variable != NULL) {
            variable_bytes += ps_variable_stored_bytes(f->variable);
        }
    }
    const uint64_t all[MR_MEMORY_CORE_WORDS] = {
        ps_arena_limit_bytes(core->arena),
        ps_arena_mapped_bytes(core->arena),
        ps_arena_allocated_bytes(core->arena),
        ps_arena_ahead_bytes(core->arena),
        ps_arena_huge_pages_failed(core->arena),
        ps_arena_limit_bytes(core->batch_arena),
        ps_arena_mapped_bytes(core->batch_arena),
        ps_batch_cache_bytes(core->batches),
        variable_bytes,
        ps_arena_scratch_bytes(core->arena) + ps_arena_scratch_bytes(core->batch_arena),
        core->save.capacity_bytes + core->save.copy_bytes + core->save.variable_copy_bytes,
        0,
    };
    memcpy(words, all, sizeof(all));
}

static void table_words(const struct ps_feature *f, uint64_t *words)
{
    struct ps_table_memory m;
    ps_table_memory(f->table, &m);
    const uint64_t all[MR_MEMORY_TABLE_WORDS] = {
        f->id,         m.rows,        m.index_bytes,  m.values_bytes,
        m.state_bytes, m.slack_bytes, m.filter_bytes, f->feature.memory_bytes};
    memcpy(words, all, sizeof(all));
}

void ps_op_memory(void *core_app, struct mr_endpoint *ep, const struct mr_request *request)
{
    struct ps_core *core = core_app;
    uint64_t words[MR_MEMORY_CORE_WORDS];
    uint32_t table_count = 0;
    for (uint32_t id = 1; id <= core->feature_id_max; id++) {
        table_count += core->features[id] != NULL && core->features[id]->table != NULL;
    }
    core_words(core, words);
    struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U64, MR_MEMORY_CORE_WORDS, words),
                                   mr_tensor_2d(MR_U64, table_count, MR_MEMORY_TABLE_WORDS, NULL)};
    if (!mr_reply_begin(ep, request->ref, MR_OK, tensors, 2)) {
        mr_reply_busy(ep, request->ref);
        return;
    }
    uint64_t *at = tensors[1].data;
    for (uint32_t id = 1; id <= core->feature_id_max; id++) {
        if (core->features[id] != NULL && core->features[id]->table != NULL) {
            table_words(core->features[id], at);
            at += MR_MEMORY_TABLE_WORDS;
        }
    }
    mr_reply_end(ep, request->ref);
}
