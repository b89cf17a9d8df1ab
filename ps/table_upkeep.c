/* What is done to tables when there is time: removals leave room behind, in the index and in the slabs, and it is here that it
 * goes back. */
#include "ps/table_internal.h"

#define TRIM_COST_BYTES (64u << 10) /* of a call into the kernel that gives a slab back */

void ps_table_row_remove(struct ps_table *t, struct ps_place place, uint64_t hash)
{
    ps_table_cut_before_change(t, place);
    uint32_t row = place.bucket->rows[place.slot];
    ps_table_note_gone(t, place.bucket->keys[place.slot], hash);
    ps_index_remove(&t->index, place, hash);
    ps_slabs_give(&t->slabs, row);
    t->counters.rows = t->index.rows;
}

static void budget_use(uint64_t *budget_bytes, uint64_t cost_bytes)
{
    *budget_bytes -= cost_bytes < *budget_bytes ? cost_bytes : *budget_bytes;
}

/* Moves the bucket's rows that are in slabs to be emptied; false when it must stop. */
static bool bucket_compact(struct ps_table *t, struct ps_bucket *b, uint64_t *budget_bytes)
{
    uint32_t moving = 0;
    for (uint32_t taken = b->flags & PS_BUCKET_ALL; taken != 0; taken &= taken - 1) {
        uint32_t slot = (uint32_t)__builtin_ctz(taken);
        if (!ps_slabs_is_leaving(&t->slabs, b->rows[slot]))
            continue;
        moving |= 1u << slot;
        ps_row_prefetch(t, ps_slabs_row(&t->slabs, b->rows[slot]), t->layout.bytes);
    }
    for (; moving != 0; moving &= moving - 1) {
        if (!ps_slabs_move(&t->slabs, &b->rows[__builtin_ctz(moving)]))
            return false;
        budget_use(budget_bytes, PS_KEY_COST_BYTES + 2 * t->slabs.stride_bytes);
    }
    return true;
}

/* Goes through the index once and empties the slabs that were picked. A partition that is written anew under the cursor is gone
 * through again. */
static void rows_compact(struct ps_table *t, uint64_t *budget_bytes)
{
    struct ps_upkeep *u = &t->upkeep;
    while (t->slabs.leaving_count > 0 && *budget_bytes > 0) {
        const struct ps_partition *p = &t->index.partitions[u->partition];
        if (u->rewrites != t->index.upkeep[u->partition].rewrites) {
            u->rewrites = t->index.upkeep[u->partition].rewrites;
            u->bucket = 0;
        }
        if (u->bucket == p->bucket_count) {
            if (u->partition == MR_PARTITION_COUNT - 1) {
                ps_slabs_compact_end(&t->slabs);
                return;
            }
            u->rewrites = t->index.upkeep[++u->partition].rewrites;
            u->bucket = 0;
            continue;
        }
        budget_use(budget_bytes, sizeof(struct ps_bucket));
        if (!bucket_compact(t, &p->buckets[u->bucket++], budget_bytes))
            return;
    }
}

bool ps_table_maintain(struct ps_table *t, uint64_t budget_bytes)
{
    struct ps_slabs *s = &t->slabs;
    bool more = ps_index_maintain(&t->index, &budget_bytes);
    while (budget_bytes > 0 && ps_slabs_trim(s))
        budget_use(&budget_bytes, TRIM_COST_BYTES);
    if (s->leaving_count == 0 && !more && ps_slabs_compact_begin(s))
        t->upkeep = (struct ps_upkeep){.rewrites = t->index.upkeep[0].rewrites};
    rows_compact(t, &budget_bytes);
    return more || s->leaving_count > 0 || s->empty_count > 1;
}
