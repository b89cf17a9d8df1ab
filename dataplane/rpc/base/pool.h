/* Reuses blocks of one size, so that calls need no allocator. Any thread. */
#ifndef MR_RPC_POOL_H
#define MR_RPC_POOL_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

struct mr_pool {
    pthread_mutex_t lock;
    size_t block_bytes; /* a multiple of 64 */
    void *free;         /* each begins with the next */
    uint32_t free_count, free_max, taken;
};

/* The pool keeps up to `free_max` free blocks of `block_bytes`; more of them go back to the system. */
void mr_pool_init(struct mr_pool *pool, size_t block_bytes, uint32_t free_max);
/* All blocks must have been given back. */
void mr_pool_fini(struct mr_pool *pool);
/* Returns a block, 64-byte aligned and not cleared. NULL: no memory. */
void *mr_pool_take(struct mr_pool *pool);
void mr_pool_give(struct mr_pool *pool, void *block);

#endif
