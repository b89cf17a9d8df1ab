/* Pieces of huge pages: memory for bucket arrays and small slabs, of which there are many, in few sizes,
 * allocated and freed together.
 *
 * A huge page is cut into chunks of 4 KiB, chunks make runs, a run holds a few pieces of one size, or one
 * large piece. So when a table's partitions grow or shrink from one size to the next, the runs of the old
 * size become empty, and so do huge pages, which are returned to the kernel at once. (Runs of one size per
 * class, as in Bonwick's slab allocator, USENIX 1994.)
 *
 * When pieces are freed in another order than they were allocated in, huge pages and runs stay partly empty.
 * One such huge page at a time may be cleared: nothing new is placed there, and the owners of its pieces move
 * them, as far as they can, to other pieces.
 *
 * Sizes are 1, 2, .. 16 lines of 64 bytes, then sixteen from one power of two to the next; others are rounded
 * up. Belongs to the arena's thread. The arena keeps the accounts.
 */
#ifndef PS_SIZE_CLASSES_H
#define PS_SIZE_CLASSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ps/memory/huge_pages.h"

#define PS_PIECE_LINE_BYTES     ((size_t)64)
#define PS_PIECE_BYTES_MAX      ((size_t)1 << 20)
#define PS_SIZE_CLASSES         176u
#define PS_CHUNKS_PER_HUGE_PAGE 512u
#define PS_CHUNK_ORDERS         10u /* runs of 1, 2 .. 3, 4 .. 7, .. 512 chunks */

#define PS_PIECE_NO_HUGE_PAGE UINT32_MAX

struct ps_cut_huge_page;

struct ps_size_classes {
    struct ps_huge_pages *space;
    /* by number; memory is there only for those cut into pieces, 1/200 of them at most */
    struct ps_cut_huge_page *huge_pages;
    size_t huge_pages_bytes;
    /* by number: the most free chunks in a row; 0 for huge pages that are not cut, or are being cleared */
    uint16_t *longest;
    size_t longest_bytes;
    uint32_t *used; /* by number: bytes of pieces in use; 0 for huge pages that are not cut */
    size_t used_map_bytes;
    size_t used_bytes;        /* of all */
    uint32_t huge_page_count; /* cut into pieces */
    uint32_t clear_huge_page; /* being cleared; PS_PIECE_NO_HUGE_PAGE: none is */
    uint32_t clear_from;      /* where the next one is looked for */
    uint32_t clear_count;     /* huge pages cleared so far */
    struct {
        uint32_t chunks;    /* of a run */
        uint32_t pieces;    /* of a run */
        uint32_t with_room; /* number + 1 of the first run with room */
    } classes[PS_SIZE_CLASSES];
    uint32_t search_from[PS_CHUNK_ORDERS]; /* no huge page below has 1 << order free chunks in a row */
    uint32_t huge_pages_end;               /* no huge page from here on is cut */
};

/* False when memory is short. */
bool ps_size_classes_init(struct ps_size_classes *p, struct ps_huge_pages *space);
void ps_size_classes_free(struct ps_size_classes *p); /* the bookkeeping only */
/* Returns at least `bytes`, 1 .. PS_PIECE_BYTES_MAX, aligned to a line, not zeroed; NULL when the limit or
 * the memory is reached. */
void *ps_size_classes_take(struct ps_size_classes *p, size_t bytes);
void ps_size_classes_give(struct ps_size_classes *p, void *piece, size_t bytes);
/* Returns how much a piece for `bytes` takes. */
size_t ps_piece_bytes(size_t bytes);

/* Begins to clear a huge page, unless one is being cleared already. False when there is little to gain, or no
 * huge page is empty enough. */
bool ps_size_classes_clear_begin(struct ps_size_classes *p);
/* Ends that: the huge page is used like others again. This also happens when memory is used up; when its last
 * piece is freed, the huge page is returned. */
void ps_size_classes_clear_end(struct ps_size_classes *p);
/* Whether a piece should be moved. */
static inline bool ps_piece_is_leaving(const struct ps_size_classes *p, const void *piece)
{
    return (size_t)((const uint8_t *)piece - p->space->base) / PS_HUGE_PAGE_BYTES == p->clear_huge_page;
}

#endif
