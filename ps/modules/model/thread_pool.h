/* Threads that compute parts of a work beside whoever asks. The asker takes parts itself, so a pool that is
 * busy, or has no threads, only makes it slower. Any number of threads may ask at once. */
#ifndef PS_MODEL_THREAD_POOL_H
#define PS_MODEL_THREAD_POOL_H

#include <stdint.h>

struct ps_thread_pool;

/* With up to `threads` threads besides those who ask: as many as can be had. NULL: no memory. */
struct ps_thread_pool *ps_thread_pool_create(uint32_t threads);
void ps_thread_pool_destroy(struct ps_thread_pool *pool); /* nobody asks any more; NULL is fine */

/* run(context, 0) to run(context, count - 1), each once, at once where there are threads; returns when all
 * are done. */
typedef void (*ps_thread_pool_part)(void *context, uint32_t index);
void ps_thread_pool_run(struct ps_thread_pool *pool, ps_thread_pool_part run, void *context, uint32_t count);

#endif
