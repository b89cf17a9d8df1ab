/* One core's address space for tables, in huge pages of 2 MiB, with a limit and an exact account.
 *
 * Address space for the limit is reserved once; its huge pages are taken, and returned to the kernel, one by
 * one. They are backed by transparent huge pages where the kernel has them. The address space is writable
 * from the beginning, as a change of its protection waits for each thread that is touching pages; only a
 * kernel that never overcommits memory (vm.overcommit_memory = 2) would charge the whole limit for that, so
 * there each huge page is made writable when it is taken.
 *
 * The first touch of a huge page costs up to milliseconds. With a helper thread (ps/memory/prefault.h) a few
 * huge pages are kept ready: they count as mapped, and are used before any other. Their number follows the
 * need: it doubles when none was ready in time, and falls by one after each PS_HUGE_PAGES_IN_TIME that were.
 * When the helper cannot get the memory, it returns the huge page and counts that, and the owner populates
 * huge pages by itself, so that a shortage is an error instead of the end of the process.
 *
 * Returning a huge page to the kernel takes long, too, and may wait for whatever other threads are mapping.
 * So the helper does that as well; huge pages on their way out count until they are returned.
 *
 * Owner and helper pass a huge page to each other through the state of its order, without locks; the helper
 * touches a huge page only between PS_ORDER_WANTED and PS_ORDER_DONE.
 *
 * Belongs to one thread; the byte counts may be read from any.
 */
#ifndef PS_HUGE_PAGES_H
#define PS_HUGE_PAGES_H

#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PS_HUGE_PAGE_BYTES      ((size_t)2 << 20)
#define PS_HUGE_PAGES_AHEAD_MIN 4u
#define PS_HUGE_PAGES_AHEAD_MAX 32u
#define PS_HUGE_PAGES_IN_TIME   128u
#define PS_HUGE_PAGES_OUT_MAX   64u /* on their way out; the owner returns further ones itself */

/* A huge page that the helper is to prepare, or to return to the kernel. */
enum ps_order_state {
    PS_ORDER_EMPTY,  /* the owner's */
    PS_ORDER_WANTED, /* the helper's to begin, or the owner's to take back */
    PS_ORDER_BUSY,   /* the helper's */
    PS_ORDER_DONE,   /* the owner's again: its pages are there; or they are returned */
    PS_ORDER_FAILED, /* the owner's again: no memory; or the kernel did not take it back */
};

struct ps_huge_page_order {
    _Atomic uint32_t state; /* enum ps_order_state */
    size_t huge_page;
};

struct ps_huge_pages {
    uint8_t *reserved; /* as mapped */
    size_t reserved_bytes;
    bool is_open;           /* all of it is writable */
    uint8_t *base;          /* huge page 0; aligned to a huge page */
    size_t huge_page_count; /* huge pages within the limit */
    uint64_t *used;         /* a bit per huge page */
    size_t search_from;     /* no huge page below is free */
    size_t limit_bytes;
    size_t kept_bytes;                  /* of it, kept for later; set by the owner */
    _Atomic size_t mapped_bytes;        /* huge pages in use, with those ahead, */
    _Atomic size_t out_bytes;           /* and in addition those on their way out */
    _Atomic size_t ahead_bytes;         /* of huge pages ahead: ready, or being prepared */
    _Atomic uint64_t huge_pages_failed; /* huge pages that could not be populated */
    sem_t *helper_wake; /* posted when there is work for the helper; NULL: there is no helper */
    struct ps_huge_pages *helper_next; /* in its list */
    bool memory_is_short;              /* the last huge page could not be populated */
    uint32_t ahead_wanted;             /* how many are kept ready */
    uint32_t takes_in_time;            /* huge pages taken in a row that were ready */
    uint32_t out_count;                /* orders in `out` */
    uint64_t given;                    /* huge pages given back so far */
    struct ps_huge_page_order ahead[PS_HUGE_PAGES_AHEAD_MAX], out[PS_HUGE_PAGES_OUT_MAX];
};

/* False when memory is short. */
bool ps_huge_pages_init(struct ps_huge_pages *u, size_t limit_bytes);
/* No helper may be attached. */
void ps_huge_pages_free(struct ps_huge_pages *u);
/* Whole huge pages for `bytes`, zeroed; NULL when the limit or the machine's memory is reached. alignment:
 * a power of two. */
void *ps_huge_pages_take(struct ps_huge_pages *u, size_t bytes, size_t alignment);
/* bytes: a multiple of PS_HUGE_PAGE_BYTES. False when the kernel does not take them back: they stay in use,
 * as do those that it does not take from the helper. */
bool ps_huge_pages_give(struct ps_huge_pages *u, uint8_t *p, size_t bytes);
/* Returns the huge pages that are ready ahead to the kernel, and waits for those on their way out. */
void ps_huge_pages_give_ahead(struct ps_huge_pages *u);
/* For the helper: prepares one huge page, or returns one, if that is wanted. True when it has done
 * something. */
bool ps_huge_pages_serve(struct ps_huge_pages *u);
/* From any thread: huge pages in use, and those on their way out. */
static inline size_t ps_huge_pages_mapped_bytes(const struct ps_huge_pages *u)
{
    return atomic_load_explicit(&u->mapped_bytes, memory_order_relaxed) +
           atomic_load_explicit(&u->out_bytes, memory_order_relaxed);
}

#endif
