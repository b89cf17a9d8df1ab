#include "ps/memory/block_pool.h"

#include <string.h>

#define BLOCK_BYTES_MIN 4096u
#define BLOCK_ALIGN     64u

void ps_block_pool_init(struct ps_block_pool *pool, struct ps_arena *arena, size_t limit_bytes)
{
    memset(pool, 0, sizeof(*pool));
    pool->arena = arena;
    pool->limit_bytes = limit_bytes;
}

static void release_spare(struct ps_block_pool *pool, uint32_t index)
{
    ps_arena_free(pool->arena, pool->spare[index].data, pool->spare[index].bytes, BLOCK_ALIGN);
    pool->spare_bytes -= pool->spare[index].bytes;
    pool->spare[index] = pool->spare[--pool->spare_count];
}

void ps_block_pool_drain(struct ps_block_pool *pool)
{
    while (pool->spare_count > 0)
        release_spare(pool, pool->spare_count - 1);
}

/* Eight sizes to a power of two: a block wastes at most an eighth, and nearly equal batches share a size. */
size_t ps_block_pool_round(size_t bytes)
{
    if (bytes <= BLOCK_BYTES_MIN)
        return BLOCK_BYTES_MIN;
    size_t step = (size_t)1 << (60 - __builtin_clzll(bytes - 1));
    return (bytes + step - 1) & ~(step - 1);
}

uint8_t *ps_block_pool_alloc(struct ps_block_pool *pool, size_t bytes)
{
    size_t block_bytes = ps_block_pool_round(bytes);
    uint8_t *block = NULL;
    for (uint32_t i = 0; i < pool->spare_count && block == NULL; i++) {
        if (pool->spare[i].bytes == block_bytes) {
            block = pool->spare[i].data;
            pool->spare_bytes -= block_bytes;
            pool->spare[i] = pool->spare[--pool->spare_count];
        }
    }
    if (block == NULL) {
        if (block_bytes > pool->limit_bytes - pool->used_bytes)
            return NULL;
        while (pool->used_bytes + pool->spare_bytes + block_bytes > pool->limit_bytes)
            release_spare(pool, pool->spare_count - 1);
        block = ps_arena_alloc(pool->arena, block_bytes, BLOCK_ALIGN);
    }
    if (block == NULL && pool->spare_count > 0) {
        ps_block_pool_drain(pool);
        block = ps_arena_alloc(pool->arena, block_bytes, BLOCK_ALIGN);
    }
    pool->used_bytes += block != NULL ? block_bytes : 0;
    return block;
}

void ps_block_pool_free(struct ps_block_pool *pool, uint8_t *block, size_t bytes)
{
    size_t block_bytes = ps_block_pool_round(bytes);
    pool->used_bytes -= block_bytes;
    if (pool->spare_count == PS_BLOCK_POOL_SPARE_MAX)
        release_spare(pool, 0);
    pool->spare[pool->spare_count].data = block;
    pool->spare[pool->spare_count++].bytes = block_bytes;
    pool->spare_bytes += block_bytes;
}
