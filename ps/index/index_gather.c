/* Partitions do not all grow in the order that their buckets lie in memory: where the next one is full
 * before its turn, holes are left, which are too small for what comes. So with each partition that gets
 * other buckets, a few arrays of others are moved out of the huge page that is emptiest, which goes back
 * to the kernel then. Their buckets keep their numbers. */
#include <string.h>
#include "ps/index/index_internal.h"
#include "ps/memory/size_classes.h"

#define LOOK_PARTITIONS 1024u
#define MOVE_ARRAYS     3u
#define MOVE_BYTES_MAX  ((size_t)128 << 10) /* about; larger arrays stay where they are */

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
