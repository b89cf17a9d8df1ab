#include "dataplane/rpc/base/pool.h"

#include <assert.h>
#include <stdlib.h>

#define ALIGN 64u

void mr_pool_init(struct mr_pool *pool, size_t block_bytes, uint32_t free_max)
{
    *pool = (struct mr_pool){.block_bytes = (block_bytes + ALIGN - 1) / ALIGN * ALIGN, .free_max = free_max};
    pthread_mutex_init(&pool->lock, NULL);
}

void mr_pool_fini(struct mr_pool *pool)
{
    while (pool->free != NULL) {
        void *block = pool->free;
        pool->free = *(void **)block;
        free(block);
    }
    pthread_mutex_destroy(&pool->lock);
}

void *mr_pool_take(struct mr_pool *pool)
{
    void *block;
    pthread_mutex_lock(&pool->lock);
    block = pool->free;
    if (block != NULL) {
        pool->free = *(void **)block;
        pool->free_count--;
    }
    pool->taken++;
    pthread_mutex_unlock(&pool->lock);
    if (block == NULL)
        block = aligned_alloc(ALIGN, pool->block_bytes);
    if (block == NULL) {
        pthread_mutex_lock(&pool->lock);
        pool->taken--;
        pthread_mutex_unlock(&pool->lock);
    }
    return block;
}

void mr_pool_give(struct mr_pool *pool, void *block)
{
    if (block == NULL)
        return;
    pthread_mutex_lock(&pool->lock);
    assert(pool->taken > 0);
    pool->taken--;
    if (pool->free_count < pool->free_max) {
        *(void **)block = pool->free;
        pool->free = block;
        pool->free_count++;
        block = NULL;
    }
    pthread_mutex_unlock(&pool->lock);
    free(block);
}
