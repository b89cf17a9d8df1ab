/* Blocks of memory for kept batches: bounded in sum, and reused without returning to the arena, because
 * batches of one stream have nearly the same size. Belongs to one thread. */
#ifndef PS_BLOCK_POOL_H
#define PS_BLOCK_POOL_H

#include <stddef.h>
#include <stdint.h>
#include "ps/memory/arena.h"

#define PS_BLOCK_POOL_SPARE_MAX 64u /* unused blocks kept for the next batches */

struct ps_block_pool {
    struct ps_arena *arena;
    size_t limit_bytes;
    size_t used_bytes;  /* handed out */
    size_t spare_bytes; /* kept; used + spare never exceed the limit */
    uint32_t spare_count;
    struct {
        uint8_t *data;
        size_t bytes;
    } spare[PS_BLOCK_POOL_SPARE_MAX];
};

void ps_block_pool_init(struct ps_block_pool *pool, struct ps_arena *arena, size_t limit_bytes);
/* Returns all spare blocks to the arena; blocks handed out must have been freed. */
void ps_block_pool_drain(struct ps_block_pool *pool);
/* Returns how much a block for `bytes` takes. */
size_t ps_block_pool_round(size_t bytes);
/* Returns a block, 64-byte aligned, not zeroed; NULL when this limit or the arena's is reached. */
uint8_t *ps_block_pool_alloc(struct ps_block_pool *pool, size_t bytes);
void ps_block_pool_free(struct ps_block_pool *pool, uint8_t *block, size_t bytes);

#endif
