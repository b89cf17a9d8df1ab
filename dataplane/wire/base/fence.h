/* A fence between what this thread wrote and what it reads next: of two threads that each write, pass one,
 * and read what the other writes, one at least sees the other's. The thread sanitizer knows no fences; an
 * exchange on one variable orders as much for it. */
#ifndef MR_FENCE_H
#define MR_FENCE_H

#include <stdatomic.h>

static inline void mr_fence(void)
{
#ifdef __SANITIZE_THREAD__
    static _Atomic unsigned all;
    (void)atomic_fetch_add(&all, 1);
#else
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

#endif
