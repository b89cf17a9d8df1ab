/* Partitions get other buckets: more, or fewer; at once when they are few, else in steps. */
#include "ps/index/index_internal.h"

#define AT_ONCE_MAX       8u   /* buckets that are moved at once */
#define FREE_SHARE        32u  /* of a partition's places: free when it grows out of turn */
#define GROW_LOOK_MAX     256u /* partitions looked at per insert: with several cores most are empty */
#define SIZES_TRIED       4u
#define SHRINK_ROOM_SHARE 16u
#define MOVE_BUCKETS      64u /* in ps_index_maintain(), at a time */
#define CROWDED_COUNT                                                                                        \
    16u /* from so many buckets on, keys that find no place in a half empty partition were chosen so */

/* ---- sizes ---- */

/* At the index's load. */
static uint64_t rows_wanted(uint32_t bucket_count)
{
    return (uint64_t)bucket_count * PS_BUCKET_KEYS * PS_INDEX_LOAD_NUM / PS_INDEX_LOAD_DEN;
}

uint32_t ps_partition_rows_max(const struct ps_partition *p)
{
    uint32_t places = p->bucket_count * PS_BUCKET_KEYS;
    return ps_partition_is_empty(p) ? 0 : places - places / FREE_SHARE;
}

static uint32_t grown_bucket_count(const struct ps_partition *p)
{
    return ps_partition_is_empty(p) ? 1 : ps_next_bucket_count(p->bucket_count);
}

size_t ps_partition_grow_bytes(const struct ps_partition *p)
{
    return grown_bucket_count(p) * sizeof(struct ps_bucket);
}

/* Buckets for these rows, and a sixteenth more: the next inserts are not to undo it. */
static uint32_t bucket_count_for(uint32_t rows)
{
    uint64_t wanted = (uint64_t)rows + rows / SHRINK_ROOM_SHARE;
    uint32_t least = (uint32_t)(wanted * PS_INDEX_LOAD_DEN / PS_INDEX_LOAD_NUM / PS_BUCKET_KEYS);
    uint32_t step = ps_next_bucket_count(least) - least;
    uint32_t count = (least + step - 1) / step * step;
    while (rows_wanted(count) < wanted)
        count = ps_next_bucket_count(count);
    return count;
}

static uint32_t wanted_count(const struct ps_index *ix, uint32_t partition)
{
    uint32_t count = bucket_count_for(ix->partition_rows[partition]);
    return count == 0 && ps_index_keeps_first(ix) ? 1 : count;
}

/* Two sizes at least. */
bool ps_partition_is_too_large(const struct ps_index *ix, uint32_t partition)
{
    const struct ps_partition *p = &ix->partitions[partition];
    uint32_t count = wanted_count(ix, partition);
    return !ps_partition_is_empty(p) && (count == 0 || ps_next_bucket_count(count) < p->bucket_count);
}

/* ---- growing ---- */

static bool move_to(struct ps_index *ix, uint32_t partition, uint32_t bucket_count)
{
    return ix->partitions[partition].bucket_count > AT_ONCE_MAX && ix->move.partition == PS_PARTITION_NONE
               ? ps_move_begin(ix, partition, bucket_count)
               : ps_move_at_once(ix, partition, bucket_count);
}

/* Whether it may be given other buckets for a key that finds no place, though it has free ones. */
static bool crowded_may_grow(struct ps_index *ix, uint32_t partition)
{
    const struct ps_partition *p = &ix->partitions[partition];
    return ix->partition_rows[partition] * 2 >= p->bucket_count * PS_BUCKET_KEYS &&
           ps_spare_take(ix, p->bucket_count);
}

bool ps_partition_grow(struct ps_index *ix, uint32_t partition, uint32_t row)
{
    const struct ps_partition *p = &ix->partitions[partition];
    const uint32_t before = p->bucket_count;
    if (ix->move.partition == partition || before > PS_BESIDE_BUCKETS_MAX)
        ps_move_finish(ix);
    if (p->bucket_count != before && row <= ps_row_max(p->bucket_count))
        return true;
    const bool is_crowded = p->bucket_count >= CROWDED_COUNT && row <= ps_row_max(p->bucket_count) &&
                            ix->partition_rows[partition] < ps_partition_rows_max(p);
    if (is_crowded && !crowded_may_grow(ix, partition))
        return false;
    uint64_t *crowded = &ix->crowded[partition / 64];
    const uint64_t bit = (uint64_t)1 << (partition % 64);
    uint32_t count = grown_bucket_count(p);
    while (ps_row_max(count) < row)
        count = 1u << (32 - (uint32_t)__builtin_clz(count));
    for (uint32_t i = 0; i < SIZES_TRIED && count <= PS_PARTITION_BUCKETS_MAX; i++) {
        const uint32_t in_vain = p->bucket_count >= CROWDED_COUNT ? p->bucket_count : 0;
        if ((*crowded & bit) != 0 && !ps_spare_take(ix, in_vain))
            return false;
        if (move_to(ix, partition, count)) {
            *crowded &= ~bit;
            return true;
        }
        *crowded |= bit;
        count = ps_next_bucket_count(count);
    }
    return false;
}

void ps_index_reserve(struct ps_index *ix, uint32_t partition, uint32_t rows)
{
    const struct ps_partition *p = &ix->partitions[partition];
    if (rows <= ps_partition_rows_max(p))
        return;
    uint32_t count = bucket_count_for(rows);
    if (ix->move.partition == partition)
        ps_move_finish(ix);
    if (ix->move.partition != partition && count <= PS_PARTITION_BUCKETS_MAX)
        (void)ps_move_at_once(ix, partition, count);
}

/* The next partition that is smaller than this round makes them all gets room: so buckets of one size are
 * freed in the order they were made, and with them their memory as a whole. One with few keys is passed
 * over. */
__attribute__((cold, noinline)) void ps_index_grow_in_turn(struct ps_index *ix)
{
    for (uint32_t looked_at = 0; looked_at < GROW_LOOK_MAX; looked_at++) {
        uint32_t number = ix->grow_next, count = ix->grow_count;
        uint32_t places = ix->partitions[number].bucket_count * PS_BUCKET_KEYS;
        if (++ix->grow_next == MR_PARTITION_COUNT) {
            ix->grow_next = 0;
            ix->grow_count = ps_next_bucket_count(count);
        }
        if (ix->partitions[number].bucket_count < count && ix->partition_rows[number] * 2 > places) {
            (void)move_to(ix, number, count); /* without memory for it, partitions fill up */
            return;
        }
    }
}

void ps_index_first_in_turn(struct ps_index *ix)
{
    uint32_t number = ix->first_next++, first = number / PS_GROUP_PARTITIONS * PS_GROUP_PARTITIONS;
    bool is_wanted = false;
    for (uint32_t i = first; i < first + PS_GROUP_PARTITIONS; i++)
        is_wanted |= ix->partition_rows[i] > 0;
    if (is_wanted && ps_partition_is_empty(&ix->partitions[number]))
        (void)ps_move_at_once(ix, number, 1);
}

/* ---- upkeep ---- */

void ps_partition_set_untidy(struct ps_index *ix, uint32_t partition, bool untidy)
{
    uint64_t bit = (uint64_t)1 << (partition % 64), *word = &ix->untidy[partition / 64];
    if (((*word & bit) != 0) == untidy)
        return;
    *word ^= bit;
    ix->untidy_count += untidy ? 1 : UINT32_MAX;
}

void ps_index_tidy_group(struct ps_index *ix, uint32_t group)
{
    for (uint32_t i = group * PS_GROUP_PARTITIONS; i < (group + 1) * PS_GROUP_PARTITIONS; i++)
        if (ps_partition_is_too_large(ix, i))
            ps_partition_set_untidy(ix, i, true);
}

static void budget_use(uint64_t *budget_bytes, uint64_t cost_bytes)
{
    *budget_bytes -= cost_bytes < *budget_bytes ? cost_bytes : *budget_bytes;
}

static void array_sweep(const struct ps_index *ix, struct ps_bucket *buckets, uint32_t bucket_count)
{
    for (uint32_t i = 0; i < bucket_count * PS_BUCKET_KEYS; i++) {
        uint64_t *entry = &buckets[i / PS_BUCKET_KEYS].entries[i % PS_BUCKET_KEYS];
        uint32_t state = ps_entry_state(*entry);
        if (*entry != 0 && state != ix->base && state != ix->mark)
            *entry = ps_entry_with_state(*entry, ix->base);
    }
}

void ps_index_sweep(struct ps_index *ix, uint64_t *budget_bytes)
{
    while (ix->is_unswept && *budget_bytes > 0) {
        uint32_t number = ix->sweep_partition;
        const struct ps_partition *p = &ix->partitions[number];
        uint32_t old_count = number == ix->move.partition ? ix->move.bucket_count : 0;
        if (!ps_partition_is_empty(p))
            array_sweep(ix, p->buckets, p->bucket_count);
        array_sweep(ix, ix->move.buckets, old_count);
        budget_use(budget_bytes, ((uint64_t)p->bucket_count + old_count) * sizeof(struct ps_bucket));
        ix->is_unswept = ++ix->sweep_partition < MR_PARTITION_COUNT;
    }
}

/* Continues the running move; false when it cannot. */
static bool move_on(struct ps_index *ix, uint64_t *budget_bytes)
{
    uint32_t before = ix->move.done;
    budget_use(budget_bytes, MOVE_BUCKETS * sizeof(struct ps_bucket) * 2);
    ps_move_step(ix, MOVE_BUCKETS);
    return ix->move.partition == PS_PARTITION_NONE || ix->move.done != before;
}

static void partition_tidy(struct ps_index *ix, uint32_t number, const uint32_t *row_ends,
                           uint64_t *budget_bytes)
{
    uint32_t count = wanted_count(ix, number), end = row_ends[number / PS_GROUP_PARTITIONS];
    while (count > 0 && end > 0 && ps_row_max(count) < end - 1)
        count = 1u << (32 - (uint32_t)__builtin_clz(count));
    ps_partition_set_untidy(ix, number, false);
    if (!ps_partition_is_too_large(ix, number) ||
        (count > 0 && ps_next_bucket_count(count) >= ix->partitions[number].bucket_count))
        return;
    budget_use(budget_bytes, (AT_ONCE_MAX + (uint64_t)count) * sizeof(struct ps_bucket));
    if (ix->grow_count > ps_next_bucket_count(count)) { /* growth begins again from there */
        ix->grow_count = ps_next_bucket_count(count);
        ix->grow_next = 0;
    }
    if (count > 0) {
        (void)move_to(ix, number, count);
    } else {
        (void)ps_move_at_once(ix, number, 0);
        ix->first_next = 0;
    }
}

bool ps_index_maintain(struct ps_index *ix, const uint32_t row_ends[PS_ROW_GROUPS], uint64_t *budget_bytes)
{
    ps_index_sweep(ix, budget_bytes);
    for (uint32_t word = 0;;) {
        if (ix->move.partition != PS_PARTITION_NONE) {
            if (*budget_bytes == 0)
                return true;
            if (!move_on(ix, budget_bytes))
                return false;
        } else if (ix->untidy_count == 0 || word == MR_PARTITION_COUNT / 64) {
            return ix->is_unswept;
        } else if (ix->untidy[word] == 0) {
            word++;
        } else if (*budget_bytes == 0) {
            return true;
        } else {
            partition_tidy(ix, word * 64 + (uint32_t)__builtin_ctzll(ix->untidy[word]), row_ends,
                           budget_bytes);
        }
    }
}
