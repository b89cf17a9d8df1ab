/* A pool: every part once, whoever takes it, however many ask, and without threads. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include "ps/modules/model/thread_pool.h"
#include "tests/test.h"

enum { PARTS = 7, WORKS = 500, ASKERS = 4 };

struct counted {
    _Atomic uint32_t runs[PARTS];
};

static void thread_pool_count(void *context, uint32_t index)
{
    atomic_fetch_add(&((struct counted *)context)->runs[index], 1);
}

/* NULL: all was run once, by the time that the pool said so. */
static void *thread_pool_ask(void *arg)
{
    for (uint32_t w = 0; w < WORKS; w++) {
        struct counted c = {0};
        uint32_t parts = w % (PARTS + 1);
        ps_thread_pool_run(arg, thread_pool_count, &c, parts);
        for (uint32_t i = 0; i < PARTS; i++)
            if (atomic_load(&c.runs[i]) != (i < parts))
                return arg;
    }
    return NULL;
}

TEST(every_part_is_run_once)
{
    for (uint32_t threads = 0; threads < 4; threads++) {
        struct ps_thread_pool *pool = ps_thread_pool_create(threads);
        pthread_t askers[ASKERS];
        assert_non_null(pool);
        for (int i = 0; i < ASKERS; i++)
            assert_int_equal(pthread_create(&askers[i], NULL, thread_pool_ask, pool), 0);
        for (int i = 0; i < ASKERS; i++) {
            void *wrong = pool;
            assert_int_equal(pthread_join(askers[i], &wrong), 0);
            assert_null(wrong);
        }
        ps_thread_pool_destroy(pool);
    }
    ps_thread_pool_destroy(NULL);
}

struct meeting {
    pthread_barrier_t all;
};

static void meet(void *context, uint32_t index)
{
    struct meeting *m = context;
    (void)index;
    (void)pthread_barrier_wait(&m->all);
}

/* Three parts that wait for each other end only if three threads run them. */
TEST(parts_run_at_once)
{
    struct ps_thread_pool *pool = ps_thread_pool_create(2);
    struct meeting m;
    assert_non_null(pool);
    assert_int_equal(pthread_barrier_init(&m.all, NULL, 3), 0);
    for (int i = 0; i < 20; i++)
        ps_thread_pool_run(pool, meet, &m, 3);
    pthread_barrier_destroy(&m.all);
    ps_thread_pool_destroy(pool);
}
