/* What is done to tables when there is time: removals leave room in the index and in the slabs, which is
 * freed here. */
#include "ps/table/table_internal.h"

#define TRIM_COST_BYTES 4096u /* of giving a slab back: now and then that is a call into the kernel */

void ps_table_row_remove(struct ps_table *t, struct ps_place place, uint64_t hash)
{
    ps_table_cut_before_change(t, place);
    if (t->keeps_marks)
        ps_table_note_tombstone(t, ps_index_key(&t->index, hash), hash);
    if (t->notes)
        ps_table_note_key(t, hash);
    t->counters.rows_copied -= ps_table_is_followed(t, hash);
    ps_index_remove(&t->index, place);
    ps_slabs_give(&t->slabs, place.partition / PS_GROUP_PARTITIONS, place.row);
    t->counters.rows = t->index.rows;
}

static void budget_use(uint64_t *budget_bytes, uint64_t cost_bytes)
{
    *budget_bytes -= cost_bytes < *budget_bytes ? cost_bytes : *budget_bytes;
}

/* Moves the bucket's rows that are to leave; false when there is no room for them any more. */
static bool bucket_compact(struct ps_table *t, struct ps_bucket *b, uint64_t *budget_bytes)
{
    uint32_t partition = t->upkeep.partition, leaving = 0;
    for (uint32_t taken = ps_bucket_taken(b); taken != 0; taken &= taken - 1) {
        uint32_t slot = (uint32_t)__builtin_ctz(taken);
        struct ps_place place = ps_index_place_at(&t->index, partition, b, slot);
        if (!ps_slabs_is_leaving(&t->slabs, place.row))
            continue;
        leaving |= 1u << slot;
        ps_row_prefetch(t, ps_table_row(t, place), t->layout.bytes);
    }
    for (; leaving != 0; leaving &= leaving - 1) {
        struct ps_place place = ps_index_place_at(&t->index, partition, b, (uint32_t)__builtin_ctz(leaving));
        uint32_t row = ps_slabs_move(&t->slabs, place.row);
        if (row == PS_ROW_NONE)
            return false;
        bool has_room = ps_index_set_row(&t->index, place, row);
        assert(has_room); /* for a lower number */
        (void)has_room;
        budget_use(budget_bytes, PS_KEY_COST_BYTES + 2 * t->slabs.stride_bytes);
    }
    return true;
}

/* The cursor's next bucket of the group; NULL after the last. A partition that is given other buckets under
 * the cursor is started over. */
static struct ps_bucket *group_next(struct ps_table *t, uint32_t group)
{
    struct ps_upkeep *u = &t->upkeep;
    for (; u->partition < (group + 1) * PS_GROUP_PARTITIONS; u->partition++, u->bucket = 0) {
        if (u->bucket == 0 || u->version != t->index.versions[u->partition]) {
            u->version = t->index.versions[u->partition];
            u->bucket = 0;
        }
        if (u->bucket < ps_index_bucket_count(&t->index, u->partition))
            return ps_index_bucket(&t->index, u->partition, u->bucket++);
    }
    return NULL;
}

static void group_end(struct ps_table *t)
{
    uint32_t group = t->slabs.compaction.group;
    ps_slabs_compact_end(&t->slabs);
    ps_index_tidy_group(&t->index, group); /* its row numbers need fewer bits now */
}

#define SORT_AT_A_TIME 64u

/* Brings the rows of one group together. */
static void rows_compact(struct ps_table *t, uint64_t *budget_bytes)
{
    struct ps_slabs *s = &t->slabs;
    while (*budget_bytes > 0 && s->compaction.group != PS_ROW_NONE) {
        if (!ps_slabs_compact_sort(s, SORT_AT_A_TIME)) {
            budget_use(budget_bytes, SORT_AT_A_TIME * PS_SLAB_LINE_BYTES);
            continue;
        }
        struct ps_bucket *b = group_next(t, s->compaction.group);
        budget_use(budget_bytes, sizeof(struct ps_bucket));
        if (b == NULL || !bucket_compact(t, b, budget_bytes))
            group_end(t);
    }
}

bool ps_table_maintain(struct ps_table *t, uint64_t budget_bytes)
{
    struct ps_slabs *s = &t->slabs;
    bool more = ps_index_maintain(&t->index, s->row_ends, &budget_bytes);
    while (budget_bytes > 0 && ps_slabs_trim(s))
        budget_use(&budget_bytes, TRIM_COST_BYTES);
    while (budget_bytes > 0) {
        if (s->compaction.group == PS_ROW_NONE) {
            if (!ps_slabs_compact_begin(s))
                break;
            t->upkeep = (struct ps_upkeep){.partition = s->compaction.group * PS_GROUP_PARTITIONS};
        }
        rows_compact(t, &budget_bytes);
    }
    more |= t->index.untidy_count > 0 && t->index.move.partition == PS_PARTITION_NONE;
    return more || ps_slabs_want_upkeep(s);
}
