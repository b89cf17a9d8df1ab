/* A table's rows: fixed-size rows in slabs of the arena. A row never moves, so its address holds until the slabs are cleared.
 * Slabs double from PS_SLAB_BYTES_MIN to PS_SLAB_BYTES_MAX, so a small table costs little and a large one lies on huge
 * pages. Belongs to one thread. */
#ifndef PS_SLAB_H
#define PS_SLAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ps/arena.h"

#define PS_SLAB_BYTES_MIN ((size_t)16 << 10)
#define PS_SLAB_BYTES_MAX PS_ARENA_UNIT_BYTES

struct ps_slabs {
    struct ps_arena *arena;
    uint8_t **slab;         /* by slab number */
    uint32_t slab_count;    /* slabs there are */
    uint32_t slab_capacity; /* entries of `slab` */
    uint32_t stride_bytes;  /* from row to row; at least the row's bytes */
    uint32_t index_bits;    /* row number = slab number << index_bits | place in the slab */
    uint32_t next_index;    /* next free place in the last slab */
    uint32_t last_rows;     /* places of the last slab */
    uint64_t rows;
    size_t bytes; /* of all slabs */
};

/* row_bytes: 4 .. PS_SLAB_BYTES_MIN. Allocates nothing. */
void ps_slabs_init(struct ps_slabs *s, struct ps_arena *arena, uint32_t row_bytes);
/* Gives all rows back. The slabs stay usable. */
void ps_slabs_clear(struct ps_slabs *s);
/* A new row, zeroed or as the row of an undone take. False when memory or row numbers are used up. */
bool ps_slabs_take(struct ps_slabs *s, uint32_t *row);
/* Takes back the last ps_slabs_take(). */
void ps_slabs_untake(struct ps_slabs *s);

static inline uint8_t *ps_slabs_row(const struct ps_slabs *s, uint32_t row)
{
    uint32_t index = row & (((uint32_t)1 << s->index_bits) - 1);
    return s->slab[row >> s->index_bits] + (size_t)index * s->stride_bytes;
}

#endif
