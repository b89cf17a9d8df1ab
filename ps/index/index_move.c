/* Bucket arrays: their memory, moving a partition from one into another, and moving arrays in memory. */
#include <string.h>
#include "ps/index/index_internal.h"
#include "ps/memory/size_classes.h"

#define BUCKET_ALIGN    64u
#define RESCUE_SIZES    8u  /* tried for a partition whose keys find no place in its new buckets, */
#define RETRY_SHARE     16u /* and again when it has so many more rows */
#define LOOK_PARTITIONS 1024u
#define MOVE_ARRAYS     3u
#define MOVE_BYTES_MAX  ((size_t)128 << 10) /* about; larger arrays stay where they are */

/* ---- memory ---- */

static size_t huge_pages_of(size_t bytes)
{
    return (bytes + PS_ARENA_HUGE_PAGE_BYTES - 1) / PS_ARENA_HUGE_PAGE_BYTES * PS_ARENA_HUGE_PAGE_BYTES;
}

/* As accounted. */
static size_t array_bytes(uint32_t bucket_count)
{
    size_t bytes = bucket_count * sizeof(struct ps_bucket);
    return bytes > PS_PIECE_BYTES_MAX ? huge_pages_of(bytes) : bytes;
}

/* Empty buckets, or NULL. */
static struct ps_bucket *array_take(struct ps_index *ix, uint32_t bucket_count)
{
    size_t bytes = array_bytes(bucket_count);
    if (bytes > ix->bytes_max || ix->bytes > ix->bytes_max - bytes)
        return NULL;
    struct ps_bucket *buckets = bytes > PS_PIECE_BYTES_MAX ? ps_arena_alloc(ix->arena, bytes, BUCKET_ALIGN)
                                                           : ps_arena_piece_alloc(ix->arena, bytes);
    if (buckets == NULL)
        return NULL;
    if (bytes <= PS_PIECE_BYTES_MAX)
        memset(buckets, 0, bytes);
    ix->bytes += bytes;
    return buckets;
}

static void array_give(struct ps_index *ix, struct ps_bucket *buckets, uint32_t bucket_count)
{
    size_t bytes = array_bytes(bucket_count);
    if (buckets == &ps_empty_bucket)
        return;
#ifdef PS_SCRUB /* who still looks into them is to find out */
    memset(buckets, 0xa5, bucket_count * sizeof(struct ps_bucket));
#endif
    if (bytes > PS_PIECE_BYTES_MAX)
        ps_arena_free(ix->arena, buckets, bytes, BUCKET_ALIGN);
    else
        ps_arena_piece_free(ix->arena, buckets, bytes);
    ix->bytes -= bytes;
}

void ps_index_free_all(struct ps_index *ix)
{
    if (ix->move.partition != PS_PARTITION_NONE)
        array_give(ix, ix->move.buckets, ix->move.bucket_count);
    for (uint32_t i = 0; i < MR_PARTITION_COUNT; i++)
        array_give(ix, ix->partitions[i].buckets, ix->partitions[i].bucket_count);
}

bool ps_index_clear_some(struct ps_index *ix, struct ps_arena_slice *slice)
{
    if (ix->move.partition != PS_PARTITION_NONE) {
        array_give(ix, ix->move.buckets, ix->move.bucket_count);
        ix->move.partition = PS_PARTITION_NONE;
    }
    for (uint32_t i = 0; i < MR_PARTITION_COUNT; i++) {
        struct ps_partition *p = &ix->partitions[i];
        if (ps_partition_is_empty(p))
            continue;
        if (!ps_arena_slice_take(slice))
            return true;
        array_give(ix, p->buckets, p->bucket_count);
        *p = ps_partition_without_buckets();
    }
    return false;
}

/* ---- moving ---- */

/* From bucket `number` of `from`; taken entries that find no place stay. True when none does. */
static bool bucket_move(struct ps_index *ix, uint32_t partition, struct ps_bucket_array from, uint32_t number,
                        struct ps_bucket_array to, bool clear)
{
    struct ps_bucket *b = &from.buckets[number];
    uint32_t limit = ps_entry_limit(from.bucket_count), row_max = ps_row_max(to.bucket_count);
    for (uint32_t taken = ps_bucket_taken(b); taken != 0; taken &= taken - 1) {
        uint32_t slot = (uint32_t)__builtin_ctz(taken);
        uint64_t entry = b->entries[slot], hash = ps_entry_hash(partition, number, from.bucket_count, entry);
        uint32_t row = ps_entry_row(entry, limit);
        if (row > row_max || !ps_entry_place(ix, to, hash, row, ps_entry_state(entry)))
            return false;
        if (clear)
            b->entries[slot] = 0;
    }
    return true;
}

static struct ps_bucket_array array_of(const struct ps_partition *p)
{
    return (struct ps_bucket_array){p->buckets, p->bucket_count};
}

static void buckets_change(struct ps_index *ix, uint32_t partition, struct ps_bucket_array to)
{
    struct ps_partition *p = &ix->partitions[partition];
    uint32_t before = ps_partition_is_empty(p) ? 0 : p->bucket_count;
    uint32_t after = to.buckets == &ps_empty_bucket ? 0 : to.bucket_count;
    p->buckets = to.buckets;
    p->bucket_count = to.bucket_count;
    p->limit = ps_entry_limit(to.bucket_count);
    ix->places += (uint64_t)after * PS_BUCKET_KEYS;
    ix->places -= (uint64_t)before * PS_BUCKET_KEYS;
    ix->partitions_used += after != 0;
    ix->partitions_used -= before != 0;
    ix->versions[partition]++;
    ix->rewrites++;
}

bool ps_move_at_once(struct ps_index *ix, uint32_t partition, uint32_t bucket_count)
{
    struct ps_bucket_array from = array_of(&ix->partitions[partition]), to = {&ps_empty_bucket, 1};
    if (bucket_count > 0) {
        to = (struct ps_bucket_array){array_take(ix, bucket_count), bucket_count};
        if (to.buckets == NULL)
            return false;
    }
    for (uint32_t i = 0; i < from.bucket_count && ix->partition_rows[partition] > 0; i++) {
        if (!bucket_move(ix, partition, from, i, to, false)) {
            array_give(ix, to.buckets, to.bucket_count);
            return false;
        }
    }
    buckets_change(ix, partition, to);
    array_give(ix, from.buckets, from.bucket_count);
    return true;
}

bool ps_move_begin(struct ps_index *ix, uint32_t partition, uint32_t bucket_count)
{
    struct ps_bucket_array from = array_of(&ix->partitions[partition]);
    struct ps_bucket_array to = {array_take(ix, bucket_count), bucket_count};
    if (to.buckets == NULL)
        return false;
    ix->move = (struct ps_index_move){
        .partition = partition, .bucket_count = from.bucket_count, .buckets = from.buckets};
    buckets_change(ix, partition, to);
    return true;
}

static void move_end(struct ps_index *ix)
{
    array_give(ix, ix->move.buckets, ix->move.bucket_count);
    ix->versions[ix->move.partition]++;
    ix->move.partition = PS_PARTITION_NONE;
}

static bool all_move(struct ps_index *ix, uint32_t partition, struct ps_bucket_array from,
                     struct ps_bucket_array to)
{
    for (uint32_t i = 0; i < from.bucket_count; i++)
        if (!bucket_move(ix, partition, from, i, to, false))
            return false;
    return true;
}

/* Keys chosen for it find no place in their partition's new buckets. In others they have other neighbours:
 * brings all, from old buckets and new, into such at once. False when there is no memory, or they were chosen
 * for these as well, or too much has been done for such: all is as it was. */
static __attribute__((cold, noinline)) bool move_rescue(struct ps_index *ix)
{
    uint32_t partition = ix->move.partition;
    struct ps_bucket_array old = {ix->move.buckets, ix->move.bucket_count},
                           from = array_of(&ix->partitions[partition]), to = from;
    for (uint32_t i = 0; i < RESCUE_SIZES && to.bucket_count < PS_PARTITION_BUCKETS_MAX / 2; i++) {
        if (!ps_spare_take(ix, old.bucket_count + from.bucket_count))
            return false;
        to.bucket_count = ps_next_bucket_count(to.bucket_count);
        to.buckets = array_take(ix, to.bucket_count);
        if (to.buckets == NULL)
            return false;
        if (all_move(ix, partition, old, to) && all_move(ix, partition, from, to)) {
            buckets_change(ix, partition, to);
            array_give(ix, from.buckets, from.bucket_count);
            move_end(ix);
            return true;
        }
        array_give(ix, to.buckets, to.bucket_count);
    }
    return false;
}

void ps_move_step(struct ps_index *ix, uint32_t bucket_count)
{
    struct ps_index_move *move = &ix->move;
    uint32_t rows = ix->partition_rows[move->partition];
    struct ps_bucket_array from = {move->buckets, move->bucket_count},
                           to = array_of(&ix->partitions[move->partition]);
    if (rows < move->retry_rows)
        return;
    for (; bucket_count > 0 && move->done < move->bucket_count; bucket_count--) {
        if (!bucket_move(ix, move->partition, from, move->done, to, true)) {
            if (!move_rescue(ix)) /* they stay where they are, and are found there */
                move->retry_rows = rows + rows / RETRY_SHARE + 1;
            return;
        }
        move->done++;
    }
    if (move->done == move->bucket_count)
        move_end(ix);
}

/* Unless it can not be: then partitions grow at once from here on, this one too, beside what it has left in
 * its old buckets. */
void ps_move_finish(struct ps_index *ix)
{
    if (ix->move.partition != PS_PARTITION_NONE)
        ps_move_step(ix, UINT32_MAX);
}

/* ---- gathering ----
 * Partitions do not all grow in the order that their buckets lie in memory: where the next one is full
 * before its turn, holes are left, which are too small for what comes. So with each partition that gets
 * other buckets, a few arrays of others are moved out of the huge page that is emptiest, which is returned
 * to the kernel then. Their buckets keep their numbers. */

static bool is_to_move(const struct ps_index *ix, uint32_t partition)
{
    const struct ps_partition *p = &ix->partitions[partition];
    return partition != ix->move.partition && !ps_partition_is_empty(p) &&
           p->bucket_count * sizeof(struct ps_bucket) <= MOVE_BYTES_MAX &&
           ps_arena_piece_is_leaving(ix->arena, p->buckets);
}

/* False when there is no memory. */
static bool array_move(struct ps_index *ix, uint32_t partition)
{
    struct ps_partition *p = &ix->partitions[partition];
    size_t bytes = p->bucket_count * sizeof(struct ps_bucket);
    struct ps_bucket *buckets = ps_arena_piece_alloc(ix->arena, bytes);
    if (buckets == NULL)
        return false;
    memcpy(buckets, p->buckets, bytes);
    ps_arena_piece_free(ix->arena, p->buckets, bytes);
    p->buckets = buckets;
    ix->rewrites++;
    return true;
}

void ps_index_gather(struct ps_index *ix)
{
    uint32_t count, moved = 0;
    size_t moved_bytes = 0;
    if (!ps_arena_clear_begin(ix->arena, &count))
        return;
    if (count != ix->gather_count) {
        ix->gather_count = count;
        ix->gather_next = 0;
    }
    for (uint32_t i = 0; i < LOOK_PARTITIONS && moved < MOVE_ARRAYS && moved_bytes < MOVE_BYTES_MAX; i++) {
        if (ix->gather_next == MR_PARTITION_COUNT) { /* what is left there is not this index's */
            ps_arena_clear_end(ix->arena);
            return;
        }
        uint32_t partition = ix->gather_next++;
        if (!is_to_move(ix, partition))
            continue;
        if (!array_move(ix, partition))
            return;
        moved++;
        moved_bytes += ix->partitions[partition].bucket_count * sizeof(struct ps_bucket);
    }
}
