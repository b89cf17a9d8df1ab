/* A fence between what this thread wrote and what it reads next: if two threads each write, pass a fence, and
 * read what the other writes, at least one of them sees the other's write. The thread sanitizer does not know
 * fences; for it, an exchange on one variable has the same effect. */
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
