#include "ps/modules/model/thread_pool.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

struct work {
    struct work *next; /* of those with parts that nobody has taken */
    ps_thread_pool_part run;
    void *context;
    uint32_t count, taken, done;
    pthread_cond_t is_done;
};

struct ps_thread_pool {
    pthread_mutex_t lock; /* of all that is below, and of works */
    pthread_cond_t is_wanted;
    bool stopping;
    struct work *first;
    uint32_t thread_count;
    pthread_t threads[];
};

/* The lock is held, but while the part runs; the work has one that is not taken. */
static void run_next(struct ps_thread_pool *pool, struct work *work)
{
    uint32_t index = work->taken++;
    if (work->taken == work->count) {
        struct work **at = &pool->first;
        while (*at != work)
            at = &(*at)->next;
        *at = work->next;
    }
    pthread_mutex_unlock(&pool->lock);
    work->run(work->context, index);
    pthread_mutex_lock(&pool->lock);
    if (++work->done == work->count)
        pthread_cond_signal(&work->is_done);
}

static void *run_thread(void *arg)
{
    struct ps_thread_pool *pool = arg;
    (void)pthread_setname_np(pthread_self(), "mr-layers");
    pthread_mutex_lock(&pool->lock);
    while (!pool->stopping)
        if (pool->first != NULL)
            run_next(pool, pool->first);
        else
            pthread_cond_wait(&pool->is_wanted, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

struct ps_thread_pool *ps_thread_pool_create(uint32_t threads)
{
    struct ps_thread_pool *pool = calloc(1, sizeof(*pool) + threads * sizeof(pool->threads[0]));
    if (pool == NULL)
        return NULL;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->is_wanted, NULL);
    while (pool->thread_count < threads &&
           pthread_create(&pool->threads[pool->thread_count], NULL, run_thread, pool) == 0)
        pool->thread_count++;
    return pool;
}

void ps_thread_pool_destroy(struct ps_thread_pool *pool)
{
    if (pool == NULL)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->stopping = true;
    pthread_cond_broadcast(&pool->is_wanted);
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < pool->thread_count; i++)
        (void)pthread_join(pool->threads[i], NULL);
    pthread_cond_destroy(&pool->is_wanted);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

void ps_thread_pool_run(struct ps_thread_pool *pool, ps_thread_pool_part run, void *context, uint32_t count)
{
    struct work work = {.run = run, .context = context, .count = count};
    if (count == 0)
        return;
    pthread_cond_init(&work.is_done, NULL);
    pthread_mutex_lock(&pool->lock);
    work.next = pool->first;
    pool->first = &work; // cppcheck-suppress autoVariables ; out of the list before this returns
    for (uint32_t i = 1; i < count; i++)
        pthread_cond_signal(&pool->is_wanted);
    while (work.taken < count)
        run_next(pool, &work);
    while (work.done < count)
        pthread_cond_wait(&work.is_done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
    pthread_cond_destroy(&work.is_done);
}
