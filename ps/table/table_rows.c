/* A row is made for a key, at the cost of another at a limit, or loaded from a checkpoint. */
#include <string.h>
#include "ps/table/table_internal.h"

/* PS_LIMIT_NONE, or what has no more memory for it. */
static enum ps_limit row_place(struct ps_table *t, uint64_t hash, bool was_stored, uint32_t *row)
{
    const bool is_unlimited = was_stored || t->replays;
    uint32_t group = ps_group_of(hash);
    bool is_copied = t->copy != NULL && ps_table_copy_notes(t, hash);
    bool marked = is_copied || (t->keeps_marks && !was_stored);
    if (!ps_slabs_take(&t->slabs, group, row))
        return PS_LIMIT_NODE;
    if (t->memory_max != 0) {
        const size_t used = ps_table_memory_bytes(t) - t->index.bytes, limit = ps_table_memory_limit(t);
        t->index.bytes_max = is_unlimited ? SIZE_MAX : limit > used ? limit - used : 0;
    }
    if (ps_index_insert(&t->index, hash, *row, marked))
        return PS_LIMIT_NONE;
    ps_slabs_give(&t->slabs, group, *row);
    return t->memory_max != 0 && !is_unlimited ? PS_LIMIT_MEMORY : PS_LIMIT_NODE;
}

/* A row for a key that has none, its values still to be written; at a limit another may be evicted for it.
 * The table's own limits do not stand against what was stored before. */
static void *row_add(struct ps_table *t, uint64_t key, uint64_t hash, bool was_stored)
{
    uint32_t row;
    for (uint32_t evicted = 0;; evicted++) {
        enum ps_limit limit = was_stored || t->replays ? PS_LIMIT_NONE : ps_table_limit_met(t, hash);
        if (limit == PS_LIMIT_NONE)
            limit = row_place(t, hash, was_stored, &row);
        if (limit == PS_LIMIT_NONE)
            break;
        if (evicted == PS_EVICT_PER_INSERT_MAX || t->replays || !ps_table_evict_for(t, hash, limit)) {
            t->counters.rows_refused++;
            t->refused_by = limit;
            return NULL;
        }
    }
    ps_table_note_made(t, key, hash);
    if (t->notes)
        ps_table_note_key(t, hash);
    t->counters.rows_copied += ps_table_is_followed(t, hash);
    t->counters.rows = t->index.rows;
    t->counters.rows_created++;
    return ps_slabs_row(&t->slabs, ps_group_of(hash), row);
}

__attribute__((cold, noinline)) void *ps_table_row_create(struct ps_table *t, uint64_t key, uint64_t hash)
{
    void *row = row_add(t, key, hash, false);
    if (row != NULL) {
        memset(row, 0, t->layout.state_offset);
        ps_row_use_start(&t->use, row);
        ps_table_initial_values(t, key, row);
        mr_rule_state_init(&t->optimizer, ps_table_row_values(t, row), ps_table_row_state(t, row), t->dim);
    }
    return row;
}

bool ps_table_row_is_finite(struct ps_table *t, const void *row)
{
    return t->kernels->all_finite(ps_table_row_values(t, row), t->dim);
}

enum mr_status ps_table_load(struct ps_table *t, uint64_t key, const uint8_t *stored_row)
{
    uint64_t hash = ps_index_hash(&t->index, key);
    struct ps_place place = ps_index_find(&t->index, hash);
    void *row;
    if (place.bucket != NULL) {
        ps_table_cut_before_change(t, place);
        row = ps_table_row(t, place);
        t->counters.rows_not_finite -= !ps_table_row_is_finite(t, row);
    } else {
        row = row_add(t, key, hash, true);
        if (row == NULL)
            return MR_OUT_OF_MEMORY;
    }
    memcpy(row, stored_row, t->layout.bytes);
    t->counters.rows_not_finite += !ps_table_row_is_finite(t, row);
    ps_row_use_loaded(&t->use, row);
    return MR_OK;
}

void ps_table_load_tombstone(struct ps_table *t, uint64_t key)
{
    uint64_t hash = ps_index_hash(&t->index, key);
    struct ps_place place = ps_index_find(&t->index, hash);
    if (place.bucket == NULL)
        return;
    t->counters.rows_not_finite -= !ps_table_row_is_finite(t, ps_table_row(t, place));
    ps_table_row_remove(t, place, hash);
    ps_tombstones_remove(&t->tombstones, key, hash);
}
