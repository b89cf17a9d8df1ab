/* A table's rows: fixed-size rows in slabs of the arena. A row stays where it is unless ps_slabs_move() moves it.
 *
 * Slabs grow from PS_SLAB_BYTES_MIN to PS_SLAB_BYTES_MAX with the table, so that the last one is a small share of it and a
 * large table lies on huge pages. Each slab lists its free places; slabs with room are in a list. Belongs to one thread. */
#ifndef PS_SLAB_H
#define PS_SLAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ps/arena.h"

#define PS_SLAB_BYTES_MIN  ((size_t)16 << 10)
#define PS_SLAB_BYTES_MAX  PS_ARENA_UNIT_BYTES
#define PS_SLABS_PER_BYTES 16u /* slabs of one size before the next size, twice as large */
#define PS_SLAB_NONE       UINT32_MAX

/* What is known of a slab, beside where it is. */
struct ps_slab_state {
    uint32_t rows;       /* in use */
    uint32_t free_first; /* place of the free list's head, which holds the next one's; PS_SLAB_NONE: empty */
    uint32_t fresh;      /* places from here on have never been used */
    uint32_t previous, next; /* in the list of slabs with room, or (next) of numbers without a slab */
    bool leaving;            /* its rows are to move, and no others to come: it is in no list */
};

struct ps_slabs {
    struct ps_arena *arena;
    uint8_t **slab;              /* by slab number; NULL: it was given back */
    struct ps_slab_state *state; /* likewise */
    uint32_t slab_count;         /* numbers there are */
    uint32_t slab_capacity;      /* entries of `slab` and `state` */
    uint32_t stride_bytes;       /* from row to row; at least the row's bytes */
    uint32_t index_bits;         /* row number = slab number << index_bits | place in the slab */
    uint32_t room_first;         /* slabs with room, the one that is taken from first */
    uint32_t room_last;
    uint32_t number_free; /* first number without a slab */
    uint32_t empty_count; /* slabs without a row */
    uint32_t leaving_count;
    uint64_t rows;
    uint64_t places; /* of all slabs */
    size_t bytes;    /* of all slabs */
};

/* row_bytes: 4 .. PS_SLAB_BYTES_MIN. Allocates nothing. */
void ps_slabs_init(struct ps_slabs *s, struct ps_arena *arena, uint32_t row_bytes);
/* Gives all rows back. The slabs stay usable. */
void ps_slabs_clear(struct ps_slabs *s);
/* A new row, zeroed. False when memory or row numbers are used up. */
bool ps_slabs_take(struct ps_slabs *s, uint32_t *row);
/* Bytes that the next take adds to `bytes`; 0 while there are free places, also in slabs that leave. */
size_t ps_slabs_take_bytes(const struct ps_slabs *s);
/* The row's place is free for another. What it held is lost. */
void ps_slabs_give(struct ps_slabs *s, uint32_t row);
/* Gives one slab without rows back to the arena; one is kept for the next rows. False when there is none to give. */
bool ps_slabs_trim(struct ps_slabs *s);

/* ---- bringing rows together ----
 * Slabs that removals have left half empty are emptied and given back. begin picks the sparsest, as many as the others have
 * room for the rows of; then the caller moves each row for which ps_slabs_is_leaving(): it finds them, for slabs do not know
 * whose a row is. A slab goes when its last row does. */
/* False when too little is to be gained: less than 1/PS_SLABS_FREE_SHARE of the places is free, or no slab can be spared. */
#define PS_SLABS_FREE_SHARE 8u
bool ps_slabs_compact_begin(struct ps_slabs *s);
/* Moves a row out of a slab that leaves; *row is its new number. False when there is no room, and none leaves any more. */
bool ps_slabs_move(struct ps_slabs *s, uint32_t *row);
/* What has not left stays. Taking a row when there is no other room does this, too. */
void ps_slabs_compact_end(struct ps_slabs *s);

static inline bool ps_slabs_is_leaving(const struct ps_slabs *s, uint32_t row)
{
    return s->state[row >> s->index_bits].leaving;
}

static inline uint8_t *ps_slabs_row(const struct ps_slabs *s, uint32_t row)
{
    uint32_t index = row & (((uint32_t)1 << s->index_bits) - 1);
    return s->slab[row >> s->index_bits] + (size_t)index * s->stride_bytes;
}

#endif
