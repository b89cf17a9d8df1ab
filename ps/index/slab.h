/* A table's rows: fixed-size rows in slabs of the arena. A row stays where it is unless ps_slabs_move() moves
 * it.
 *
 * Rows are numbered from 0 within groups, which are the index's groups of partitions (ps/index/index.h): so
 * that a number takes few bits. Each group has slabs of its own, 64 of each size, every size twice the one
 * before, from about 1 KiB to PS_PIECE_BYTES_MAX: so the last one is about 1/128 of the group, or less. They
 * are found by a few shifts, for they hold a power of two of rows. Places that were given back are in a list,
 * which is used first. Belongs to one thread. */
#ifndef PS_SLAB_H
#define PS_SLAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ps/index/index.h"
#include "ps/memory/arena.h"

#define PS_SLAB_FIRST_BYTES ((size_t)1 << 10) /* the first ones at most, but for larger rows */
#define PS_SLAB_ROW_MAX     ((size_t)16 << 10)
#define PS_SLABS_SHIFT      6u /* binary logarithm of PS_SLABS_PER_SIZE */
#define PS_SLABS_PER_SIZE   (1u << PS_SLABS_SHIFT)
#define PS_SLAB_LINE_BYTES  64u
#define PS_ROW_NONE         UINT32_MAX
#define PS_GROUP_ROWS_MAX   ((1u << 29) - 2) /* what entries of the index hold */

struct ps_slab_group {
    uint32_t slab_capacity; /* entries of its directory */
    uint32_t slab_count;
    uint32_t places; /* in all slabs */
    uint32_t rows;
    /* of the free list, each place of which holds the next one's number; PS_ROW_NONE: empty */
    uint32_t free_first;
};

/* A group whose rows are moved into its lowest places. */
struct ps_slab_compaction {
    uint32_t group; /* PS_ROW_NONE: none is */
    uint32_t end;   /* rows from this one on leave */
    /* free places that may be on either side of it; those before it are in the group's list */
    uint32_t unsorted_first;
    uint32_t high_first, high_last; /* free places from it on */
    uint32_t high_count;
};

/* Of slabs of one size. */
struct ps_slab_size {
    uint32_t shift;       /* binary logarithm of the rows in one */
    uint32_t place_mask;  /* their number less 1 */
    uint32_t slab_offset; /* see ps_slabs_row(); modulo 2^32 */
};

struct ps_slabs {
    struct ps_arena *arena;
    uint8_t *base;
    uint32_t stride_bytes; /* from row to row; at least the row's bytes */
    uint32_t first_shift;  /* binary logarithm of the rows in a slab of the first size, */
    uint32_t last_shift;   /* and of the last */
    uint32_t row_bias;
    uint64_t rows;
    uint64_t places; /* of all slabs */
    size_t bytes;    /* of all slabs, and of where they are */
    struct ps_slab_compaction compaction;
    uint64_t sparse[PS_ROW_GROUPS / 64];  /* a bit per group: compaction may gain something, */
    uint64_t loose[PS_ROW_GROUPS / 64];   /* slabs after the last row could be freed */
    uint32_t row_ends[PS_ROW_GROUPS];     /* places from here on hold no row, and are not in the free list */
    struct ps_slab_size sizes[32];        /* by the highest bit of a row's number, biased */
    uint32_t *directories[PS_ROW_GROUPS]; /* where a group's slabs are: lines from the arena's start */
    struct ps_slab_group groups[PS_ROW_GROUPS];
};

/* row_bytes: 4 .. PS_SLAB_ROW_MAX. Allocates nothing. */
void ps_slabs_init(struct ps_slabs *s, struct ps_arena *arena, uint32_t row_bytes);
/* Gives all rows back. The slabs stay usable. */
void ps_slabs_clear(struct ps_slabs *s);
/* The same a little at a time: true when there is more. Until it is done, nothing else may be called but
 * ps_slabs_clear(). */
bool ps_slabs_clear_some(struct ps_slabs *s, struct ps_arena_slice *slice);
/* A new row of this group, zeroed. False when memory or row numbers are used up. */
bool ps_slabs_take(struct ps_slabs *s, uint32_t group, uint32_t *row);
/* Bytes that the next take in this group adds to `bytes`, at most; 0 while it has free places. */
size_t ps_slabs_take_bytes(const struct ps_slabs *s, uint32_t group);
/* The row's place is free for another. What it held is lost. */
void ps_slabs_give(struct ps_slabs *s, uint32_t group, uint32_t row);
/* Returns one slab after the last row of some group to the arena. False when there is none. */
bool ps_slabs_trim(struct ps_slabs *s);
/* Some group is loose, or sparse, or is being compacted. */
bool ps_slabs_want_upkeep(const struct ps_slabs *s);

/* ---- bringing rows together ----
 * A group that removals have left sparse is compacted: begin chooses one, sort looks at its free places, then
 * the caller moves each row for which ps_slabs_is_leaving(): it finds them, for slabs do not know whose a row
 * is. */
/* False when no group has much to gain: 1/PS_SLABS_FREE_SHARE of its places, and a slab at least. */
#define PS_SLABS_FREE_SHARE 8u
bool ps_slabs_compact_begin(struct ps_slabs *s);
/* Up to so many free places; true when all are sorted, and rows may be moved. */
bool ps_slabs_compact_sort(struct ps_slabs *s, uint32_t count);
/* A lower number for a row that leaves, whose place is free then. PS_ROW_NONE: there is none. */
uint32_t ps_slabs_move(struct ps_slabs *s, uint32_t row);
/* All rows have been moved that could be: when none is left, the places after them are given up. */
void ps_slabs_compact_end(struct ps_slabs *s);

static inline bool ps_slabs_is_leaving(const struct ps_slabs *s, uint32_t row)
{
    return row >= s->compaction.end;
}

/* By the directory of a group that has it. */
static inline uint8_t *ps_slabs_row_in(const struct ps_slabs *s, const uint32_t *directory, uint32_t row)
{
    /* Numbered as if there were slabs of smaller sizes before, of 64 places for each of the first size: then
     * the highest bit tells the size. */
    uint32_t biased = row + s->row_bias;
    const struct ps_slab_size *size = &s->sizes[31 - (uint32_t)__builtin_clz(biased)];
    uint32_t slab = (biased >> size->shift) + size->slab_offset, place = biased & size->place_mask;
    return s->base + (size_t)directory[slab] * PS_SLAB_LINE_BYTES + (size_t)place * s->stride_bytes;
}

/* Of a group that has it. */
static inline uint8_t *ps_slabs_row(const struct ps_slabs *s, uint32_t group, uint32_t row)
{
    return ps_slabs_row_in(s, s->directories[group], row);
}

#endif
