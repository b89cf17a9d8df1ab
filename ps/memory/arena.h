/* One core's memory for tables, with a limit and an exact account.
 *
 * The arena hands out huge pages of 2 MiB (ps/memory/huge_pages.h): whole ones (row slabs) straight to the
 * caller; pieces of a few sizes (bucket arrays, small slabs) from huge pages cut into runs of pieces of one
 * size (ps/memory/size_classes.h); requests of any other kind through a jemalloc arena whose extent hooks
 * take their extents from the same huge pages. Slabs do not use jemalloc because it pads large allocations by
 * a page, which would break every second huge page; bucket arrays do not because it would not return their
 * memory.
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

/* Creates an arena. limit_bytes: the huge pages in use never exceed it; at least PS_ARENA_LIMIT_BYTES_MIN.
 * NULL when it is less, or when memory is short. */
struct ps_arena *ps_arena_create(size_t limit_bytes);
/* Unmaps everything allocated from it. NULL is fine. */
void ps_arena_destroy(struct ps_arena *a);
/* Returns zeroed memory, or NULL when the limit or the machine's memory is reached. bytes > 0; alignment is a
 * power of two, at most PS_ARENA_HUGE_PAGE_BYTES. Multiples of PS_ARENA_HUGE_PAGE_BYTES are whole huge pages,
 * aligned to them. */
void *ps_arena_alloc(struct ps_arena *a, size_t bytes, size_t alignment);
/* Frees memory; bytes and alignment are those of its allocation. Whole huge pages are returned to the kernel;
 * smaller memory stays counted as mapped and serves later requests. NULL is fine. */
void ps_arena_free(struct ps_arena *a, void *p, size_t bytes, size_t alignment);
/* Returns a piece: 1 .. PS_PIECE_BYTES_MAX (ps/memory/size_classes.h), aligned to 64 bytes, not zeroed. NULL
 * as above. */
void *ps_arena_piece_alloc(struct ps_arena *a, size_t bytes);
/* Frees a piece. Huge pages without a piece in use are returned to the kernel. */
void ps_arena_piece_free(struct ps_arena *a, void *p, size_t bytes);
/* Begins to gather the pieces of bucket arrays in fewer huge pages: see ps/memory/size_classes.h. `count`
 * distinguishes one huge page that is cleared from the next. */
bool ps_arena_clear_begin(struct ps_arena *a, uint32_t *count);
void ps_arena_clear_end(struct ps_arena *a);
bool ps_arena_piece_is_leaving(const struct ps_arena *a, const void *p);
/* Returns where the address space of pieces and huge pages begins. */
uint8_t *ps_arena_base(const struct ps_arena *a);
/* The same as pieces for slabs of rows, whose huge pages hold nothing else: they become free as a whole when
 * a table shrinks. */
void *ps_arena_slab_alloc(struct ps_arena *a, size_t bytes);
void ps_arena_slab_free(struct ps_arena *a, void *p, size_t bytes);
/* Lets `helper` keep a few huge pages ready, from the next one taken on, until the arena is destroyed. */
struct ps_prefault;
void ps_arena_prefault(struct ps_arena *a, struct ps_prefault *helper);
size_t ps_arena_ahead_bytes(const struct ps_arena *a);         /* of mapped_bytes: kept ready */
uint64_t ps_arena_huge_pages_failed(const struct ps_arena *a); /* huge pages for which there was no memory */
size_t
ps_arena_mapped_bytes(const struct ps_arena *a); /* huge pages in use: what the process may hold for it */
size_t ps_arena_allocated_bytes(const struct ps_arena *a); /* allocated and not freed */
size_t ps_arena_limit_bytes(const struct ps_arena *a);
/* Keeps so much of the limit for later, at first nothing; returns how much was kept before. */
size_t ps_arena_keep(struct ps_arena *a, size_t bytes);
/* Returns how much of a core's limit a node keeps for restores, which may place the same rows a little less
 * densely: a 64th, at least a huge page; nothing of an arena of less than 32 MiB. */
size_t ps_arena_restore_bytes(size_t limit_bytes);

/* A limit on what one slice of work frees: so many pieces, and no more once a huge page was returned with
 * them, which takes longest. */
struct ps_arena_slice {
    const struct ps_arena *arena;
    uint32_t pieces; /* left */
    uint64_t huge_pages_given;
};

uint64_t ps_arena_huge_pages_given(const struct ps_arena *a); /* so far */
struct ps_arena_slice ps_arena_slice_begin(const struct ps_arena *a, uint32_t pieces);
/* Whether this slice may free one more piece. */
bool ps_arena_slice_take(struct ps_arena_slice *s);

/* Working memory for one call, shared by all users of the arena: 64-byte aligned, not zeroed, valid until the
 * next call of this function with the same `which`. It never fails: *bytes is what there is, at least the
 * smaller of wanted_bytes and PS_ARENA_SCRATCH_BYTES_MIN. It is taken from the process's heap, outside the
 * limit, and only grows. */
enum ps_scratch {
    PS_SCRATCH_ONCE,  /* for a call that is executed at once */
    PS_SCRATCH_STEPS, /* for the one call that is executed in slices, with others in between */
    PS_SCRATCH_EARLY, /* for the push whose keys are brought together while it arrives */
    PS_SCRATCH_COUNT,
};
size_t ps_arena_scratch_bytes(const struct ps_arena *a); /* of all */
void *ps_arena_scratch(struct ps_arena *a, enum ps_scratch which, size_t wanted_bytes, size_t *bytes);

#endif
