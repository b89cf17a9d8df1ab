/* Memory for messages: a buddy allocator over one region that the caller provides.
 *
 * Blocks are powers of two from MR_BUDDY_BLOCK_BYTES_MIN up, each at a multiple of its size from the region's
 * start, so at least 64-byte aligned in a 64-byte aligned region. Book-keeping lies outside the region:
 * writing over the end of a block damages a neighbour's content, never the allocator. Built with
 * AddressSanitizer, such a write is caught: all bytes that were not asked for are poisoned.
 *
 * Small blocks are kept unmerged, last freed first, so that short calls take one for a few nanoseconds; they
 * are merged when something larger does not fit. O(log n) otherwise. One thread.
 */
#ifndef MR_BUDDY_H
#define MR_BUDDY_H

#include <stddef.h>
#include <stdint.h>

#define MR_BUDDY_BLOCK_BYTES_MIN 256u
#define MR_BUDDY_ALIGN           64u

struct mr_buddy;

/* Creates an allocator over `region`, which is MR_BUDDY_ALIGN aligned and remains the caller's; bytes beyond
 * a multiple of MR_BUDDY_BLOCK_BYTES_MIN are not used. At most 2^40 bytes. NULL: no memory for the
 * book-keeping, or no block fits. */
struct mr_buddy *mr_buddy_create(void *region, size_t region_bytes);
/* Destroys it; the region's content is the caller's again, even if blocks are still allocated. NULL is
 * fine. */
void mr_buddy_destroy(struct mr_buddy *b);

/* Allocates a block of at least `bytes` (0 counts as 1). NULL when none is free. */
void *mr_buddy_alloc(struct mr_buddy *b, size_t bytes);
/* Frees a block that mr_buddy_alloc returned and that was not freed since (asserted). NULL is fine. */
void mr_buddy_free(struct mr_buddy *b, void *p);

/* Returns the bytes of the allocated blocks: whole blocks, so at least what was asked for. 0 when all are
 * free. */
size_t mr_buddy_used_bytes(const struct mr_buddy *b);
/* Returns the bytes that all blocks together can hold. */
size_t mr_buddy_capacity_bytes(const struct mr_buddy *b);
/* Returns the size of the block that a request for `bytes` takes; 0 when it is larger than any block can
 * be. */
size_t mr_buddy_block_bytes(size_t bytes);

#endif
