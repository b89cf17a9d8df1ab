/* One core's memory for tables, with a limit and an exact account.
 *
 * The arena hands out huge pages of 2 MiB (ps/memory/huge_pages.h): whole ones (row slabs) straight to the
 * caller; pieces of a few sizes (bucket arrays, small slabs) from huge pages cut into runs of pieces of one
 * size (ps/memory/size_classes.h); requests of any other kind through a jemalloc arena whose extent hooks
 * take their extents from the same huge pages. Slabs do not go through jemalloc because it pads large
 * allocations by a page, which would break every second huge page; bucket arrays do not because it would not
 * give their memory back.
 *
 * Belongs to one thread; the byte counts may be read from any.
 */
#ifndef PS_ARENA_H
#define PS_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ps/memory/huge_pages.h"

#define PS_ARENA_HUGE_PAGE_BYTES PS_HUGE_PAGE_BYTES
#define PS_ARENA_LIMIT_BYTES_MIN                                                                             \
    (4 * PS_ARENA_HUGE_PAGE_BYTES)                   /* jemalloc's own bookkeeping takes one huge page */
#define PS_ARENA_LIMIT_BYTES_MAX   ((size_t)1 << 38) /* larger limits are cut to this */
#define PS_ARENA_SCRATCH_BYTES_MIN ((size_t)1 << 20)

struct ps_arena;

/* limit_bytes: the huge pages in use never exceed it; at least PS_ARENA_LIMIT_BYTES_MIN. NULL when it is
 * less, or when memory is short. */
struct ps_arena *ps_arena_create(size_t limit_bytes);
/* Unmaps everything allocated from it. NULL is fine. */
void ps_arena_destroy(struct ps_arena *a);
/* NULL when the limit or the machine's memory is reached. Zeroed. bytes > 0; alignment is a power of two,
 * at most PS_ARENA_HUGE_PAGE_BYTES. Multiples of PS_ARENA_HUGE_PAGE_BYTES are whole huge pages, aligned to
 * them. */
void *ps_arena_alloc(struct ps_arena *a, size_t bytes, size_t alignment);
/* With the bytes and alignment it was allocated with. Whole huge pages go back to the kernel; smaller
 * pieces stay counted as mapped and serve the next such requests. NULL is fine. */
void ps_arena_free(struct ps_arena *a, void *p, size_t bytes, size_t alignment);
/* A piece: 1 .. PS_PIECE_BYTES_MAX (ps/memory/size_classes.h), aligned to 64 bytes, not zeroed. NULL as
 * above. */
void *ps_arena_piece_alloc(struct ps_arena *a, size_t bytes);
/* Huge pages without a piece in use go back to the kernel. */
void ps_arena_piece_free(struct ps_arena *a, void *p, size_t bytes);
/* Pieces of bucket arrays are being gathered in fewer huge pages: see ps/memory/size_classes.h. `count`
 * tells one huge page that is cleared from the next. */
bool ps_arena_clear_begin(struct ps_arena *a, uint32_t *count);
void ps_arena_clear_end(struct ps_arena *a);
bool ps_arena_piece_is_leaving(const struct ps_arena *a, const void *p);
/* Pieces and huge pages lie behind this, up to the limit. */
uint8_t *ps_arena_base(const struct ps_arena *a);
/* The same for slabs of rows, whose huge pages hold nothing else: they are freed as a whole when a table
 * becomes smaller. */
void *ps_arena_slab_alloc(struct ps_arena *a, size_t bytes);
void ps_arena_slab_free(struct ps_arena *a, void *p, size_t bytes);
/* Lets `helper` keep a few huge pages ready, from the next one taken on, until the arena is destroyed. */
struct ps_prefault;
void ps_arena_prefault(struct ps_arena *a, struct ps_prefault *helper);
size_t ps_arena_ahead_bytes(const struct ps_arena *a);         /* of mapped_bytes: kept ready */
uint64_t ps_arena_huge_pages_failed(const struct ps_arena *a); /* huge pages there was no memory for */
size_t
ps_arena_mapped_bytes(const struct ps_arena *a); /* huge pages in use: what the process may hold for it */
size_t ps_arena_allocated_bytes(const struct ps_arena *a); /* what was asked for and not freed */
size_t ps_arena_limit_bytes(const struct ps_arena *a);
/* Leaves so much of the limit for later, none to begin with; returns how much it was. */
size_t ps_arena_keep(struct ps_arena *a, size_t bytes);
/* What a node leaves of a core's limit for restores: the same rows may lie a little less well then. A 64th, a
 * huge page at least; nothing of an arena of less than 32 MiB. */
size_t ps_arena_restore_bytes(size_t limit_bytes);

/* What is given back a little at a time: so many pieces in one go, and no more once a huge page went with
 * them, which takes the longest. */
struct ps_arena_slice {
    const struct ps_arena *arena;
    uint32_t pieces; /* left */
    uint64_t huge_pages_given;
};

uint64_t ps_arena_huge_pages_given(const struct ps_arena *a); /* so far */
struct ps_arena_slice ps_arena_slice_begin(const struct ps_arena *a, uint32_t pieces);
/* One more piece may be given back in this one. */
bool ps_arena_slice_take(struct ps_arena_slice *s);

/* Working memory for one call, shared by all users of the arena: 64-byte aligned, not zeroed, valid until the
 * next call of this function for the same one. Asks for `wanted_bytes`, never fails: *bytes is what there is,
 * at least the smaller of wanted_bytes and PS_ARENA_SCRATCH_BYTES_MIN. From the process's heap, so outside
 * the limit; it only grows. */
enum ps_scratch {
    PS_SCRATCH_ONCE,  /* for a call that is done at once */
    PS_SCRATCH_STEPS, /* for the one call that others come in between of */
    PS_SCRATCH_COUNT,
};
size_t ps_arena_scratch_bytes(const struct ps_arena *a); /* of all, as far as they have grown */
void *ps_arena_scratch(struct ps_arena *a, enum ps_scratch which, size_t wanted_bytes, size_t *bytes);

#endif
