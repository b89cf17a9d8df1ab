#include "trainer_client/call/forks.h"

#include <pthread.h>
#include <stdatomic.h>

static _Atomic uint32_t forks;

static void in_child(void)
{
    atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
}

/* Runs before any handle is made. Without memory for this, there are no handles either. */
__attribute__((constructor)) static void watch(void)
{
    (void)pthread_atfork(NULL, NULL, in_child);
}

uint32_t mrc_forks(void)
{
    return atomic_load_explicit(&forks, memory_order_relaxed);
}
