/* What the files of the index share. Each calls those below it: index_insert.c puts keys in and takes them
 * out, index_grow.c decides when partitions get other buckets, index_move.c moves them there, and index.c
 * puts entries into buckets. */
#ifndef PS_INDEX_INTERNAL_H
#define PS_INDEX_INTERNAL_H

#include "ps/index/index.h"

/* Buckets that entries are put into. */
struct ps_bucket_array {
    struct ps_bucket *buckets;
    uint32_t bucket_count;
};

/* All partitions without buckets point at it: lookups look into it, and nobody writes to it. */
extern struct ps_bucket ps_empty_bucket;

static inline struct ps_partition ps_partition_without_buckets(void)
{
    return (struct ps_partition){.buckets = &ps_empty_bucket, .bucket_count = 1, .limit = ps_entry_limit(1)};
}

static inline bool ps_partition_is_empty(const struct ps_partition *p)
{
    return p->buckets == &ps_empty_bucket;
}

/* The highest row number that entries of so many buckets can hold. */
static inline uint32_t ps_row_max(uint32_t bucket_count)
{
    return ps_entry_limit(bucket_count) / PS_ENTRY_STATES - 2;
}

/* Puts a key in, making others give way. row <= ps_row_max(). False when no place is found: nothing is
 * changed. */
bool ps_entry_place(struct ps_index *ix, struct ps_bucket_array to, uint64_t hash, uint32_t row,
                    uint32_t state);
/* A partition of no more buckets grows at once while another one is being moved. */
#define PS_BESIDE_BUCKETS_MAX 2048u

/* Looked at for a free place, about. */
#define PS_SEARCH_BUCKETS_MAX 256u

/* Takes them off what may be searched or moved in vain; false when there are not so many. */
static inline bool ps_spare_take(struct ps_index *ix, uint32_t buckets)
{
    const bool has = ix->spare_buckets >= buckets;
    ix->spare_buckets -= has ? buckets : 0;
    return has;
}

/* Buckets for one more key, row number included, or for `row` at all. False when there is no memory, or when
 * so few of the places are used that keys like these can not be held. */
bool ps_partition_grow(struct ps_index *ix, uint32_t partition, uint32_t row);
/* Most rows before it should grow. */
uint32_t ps_partition_rows_max(const struct ps_partition *p);
/* Bytes that ps_partition_grow() takes. */
size_t ps_partition_grow_bytes(const struct ps_partition *p);
/* The next larger size of a partition. */
uint32_t ps_next_bucket_count(uint32_t bucket_count);
/* bucket_count 0: it has no rows. The partition is not being moved. False when there is no memory, or not
 * enough room: then all is as it was. */
bool ps_move_at_once(struct ps_index *ix, uint32_t partition, uint32_t bucket_count);
/* No partition is being moved. False when there is no memory. */
bool ps_move_begin(struct ps_index *ix, uint32_t partition, uint32_t bucket_count);
/* Does a little of the running move; there is one. */
void ps_move_step(struct ps_index *ix, uint32_t bucket_count);
/* Does the rest of it, if there is one. It may not finish: then the partition has keys chosen for their
 * places. */
void ps_move_finish(struct ps_index *ix);
/* Lets the next partition in turn begin to grow, unless one is being moved. */
void ps_index_grow_in_turn(struct ps_index *ix);
/* Gives entries with codes of no meaning the base's, a partition at a time, until the budget is used up. */
void ps_index_sweep(struct ps_index *ix, uint64_t *budget_bytes);
/* The index has so many rows that partitions without any have a bucket as well. */
static inline bool ps_index_keeps_first(const struct ps_index *ix)
{
    return ix->rows >= MR_PARTITION_COUNT;
}

/* The next partition in turn gets its first bucket, if others of its group have some: later there may be no
 * memory for it. */
void ps_index_first_in_turn(struct ps_index *ix);
/* Moves a few bucket arrays to where memory is used better. Buckets move; a running cut continues. */
void ps_index_gather(struct ps_index *ix);
/* Frees the buckets of all. */
void ps_index_free_all(struct ps_index *ix);
/* Sets or clears its untidy bit. */
void ps_partition_set_untidy(struct ps_index *ix, uint32_t partition, bool untidy);
/* It would do with fewer buckets. */
bool ps_partition_is_too_large(const struct ps_index *ix, uint32_t partition);

#endif
