#include "ps/memory/huge_pages.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define UNIT       PS_HUGE_PAGE_BYTES
#define PAGE_BYTES 4096u

static void account(_Atomic size_t *counter, size_t add, size_t subtract)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + add - subtract,
                          memory_order_relaxed);
}

static uint8_t *address(const struct ps_huge_pages *u, size_t huge_page)
{
    return u->base + huge_page * UNIT;
}

/* Whether writable address space counts as memory promised to the process, although none of it is touched. */
static bool address_space_is_charged(void)
{
    FILE *policy = fopen("/proc/sys/vm/overcommit_memory", "re");
    if (policy == NULL)
        return true;
    int never_overcommits = '2', first = fgetc(policy);
    (void)fclose(policy);
    return first == EOF || first == never_overcommits;
}

static uint8_t *reserve(size_t bytes, int protection)
{
    return mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

bool ps_huge_pages_init(struct ps_huge_pages *u, size_t limit_bytes)
{
    memset(u, 0, sizeof(*u));
    u->limit_bytes = limit_bytes;
    u->ahead_wanted = PS_HUGE_PAGES_AHEAD_MIN;
    u->huge_page_count = limit_bytes / UNIT;
    u->used = calloc((u->huge_page_count + 63) / 64, sizeof(*u->used));
    if (u->used == NULL)
        return false;
    u->reserved_bytes = (u->huge_page_count + 1) * UNIT;
    u->reserved =
        address_space_is_charged() ? MAP_FAILED : reserve(u->reserved_bytes, PROT_READ | PROT_WRITE);
    u->is_open = u->reserved != MAP_FAILED;
    if (u->is_open)
        (void)madvise(u->reserved, u->reserved_bytes, MADV_HUGEPAGE);
    else
        u->reserved = reserve(u->reserved_bytes, PROT_NONE);
    if (u->reserved == MAP_FAILED) {
        free(u->used);
        return false;
    }
    u->base = u->reserved + (UNIT - (uintptr_t)u->reserved % UNIT) % UNIT;
    return true;
}

void ps_huge_pages_free(struct ps_huge_pages *u)
{
    assert(u->helper_wake == NULL);
    munmap(u->reserved, u->reserved_bytes);
    free(u->used);
}

/* ---- which are free ---- */

static bool huge_page_is_used(const struct ps_huge_pages *u, size_t huge_page)
{
    return (u->used[huge_page / 64] >> (huge_page % 64) & 1) != 0;
}

static void bits_set(struct ps_huge_pages *u, size_t first, size_t count, bool used)
{
    for (size_t huge_page = first; huge_page < first + count; huge_page++) {
        uint64_t bit = (uint64_t)1 << (huge_page % 64);
        if (used)
            u->used[huge_page / 64] |= bit;
        else
            u->used[huge_page / 64] &= ~bit;
    }
    if (!used && first < u->search_from)
        u->search_from = first;
}

static void huge_pages_mark(struct ps_huge_pages *u, size_t first, size_t count, bool used)
{
    bits_set(u, first, count, used);
    account(&u->mapped_bytes, used ? count * UNIT : 0, used ? 0 : count * UNIT);
}

/* First run of `count` free huge pages that starts at a multiple of `step`; huge_page_count when there is
 * none. */
static size_t huge_pages_find(struct ps_huge_pages *u, size_t count, size_t step)
{
    while (u->search_from < u->huge_page_count && huge_page_is_used(u, u->search_from))
        u->search_from++;
    size_t first = (u->search_from + step - 1) / step * step;
    while (first + count <= u->huge_page_count) {
        size_t run = 0;
        while (run < count && !huge_page_is_used(u, first + run))
            run++;
        if (run == count)
            return first;
        first = (first + run + step) / step * step;
    }
    return u->huge_page_count;
}

/* ---- the kernel's part ---- */

static bool huge_pages_open(const struct ps_huge_pages *u, uint8_t *p, size_t bytes)
{
    if (u->is_open)
        return true;
    if (mprotect(p, bytes, PROT_READ | PROT_WRITE) != 0)
        return false;
    (void)madvise(p, bytes, MADV_HUGEPAGE); /* kernels without it serve small pages */
    return true;
}

/* Where memory was promised, a new mapping drops the pages and the promise in one call. */
static bool huge_pages_close(const struct ps_huge_pages *u, uint8_t *p, size_t bytes)
{
    if (u->is_open)
        return madvise(p, bytes, MADV_DONTNEED) == 0;
    return mmap(p, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == p;
}

/* Populates all pages. False when there is no memory for them. */
static bool huge_pages_populate(uint8_t *p, size_t bytes)
{
#ifdef MADV_POPULATE_WRITE
    int result;
    do
        result = madvise(p, bytes, MADV_POPULATE_WRITE);
    while (result != 0 && errno == EINTR);
    if (result == 0 || errno != EINVAL)
        return result == 0;
#endif
    for (size_t i = 0; i < bytes; i += PAGE_BYTES) /* a kernel before 5.14 */
        *(volatile uint8_t *)(p + i) = 0;
    return true;
}

/* ---- orders ---- */

static enum ps_order_state state_of(struct ps_huge_page_order *a)
{
    return (enum ps_order_state)atomic_load_explicit(&a->state, memory_order_acquire);
}

static bool state_change(struct ps_huge_page_order *a, enum ps_order_state from, enum ps_order_state to)
{
    uint32_t expected = from;
    return atomic_compare_exchange_strong_explicit(&a->state, &expected, to, memory_order_acq_rel,
                                                   memory_order_acquire);
}

/* ---- huge pages on their way out ---- */

static void out_serve(struct ps_huge_pages *u, struct ps_huge_page_order *o)
{
    bool good = huge_pages_close(u, address(u, o->huge_page), UNIT);
    atomic_fetch_sub_explicit(&u->out_bytes, UNIT, memory_order_relaxed);
    atomic_store_explicit(&o->state, good ? PS_ORDER_DONE : PS_ORDER_FAILED, memory_order_release);
}

/* Marks huge pages as free that have been returned. */
static void out_collect(struct ps_huge_pages *u)
{
    for (uint32_t i = 0; u->out_count > 0 && i < PS_HUGE_PAGES_OUT_MAX; i++) {
        struct ps_huge_page_order *o = &u->out[i];
        enum ps_order_state state = state_of(o);
        if (state != PS_ORDER_DONE && state != PS_ORDER_FAILED)
            continue;
        if (state == PS_ORDER_DONE)
            bits_set(u, o->huge_page, 1, false);
        else
            account(&u->mapped_bytes, UNIT, 0);
        atomic_store_explicit(&o->state, PS_ORDER_EMPTY, memory_order_relaxed);
        u->out_count--;
    }
}

static void out_finish(struct ps_huge_pages *u)
{
    for (uint32_t i = 0; u->out_count > 0 && i < PS_HUGE_PAGES_OUT_MAX; i++) {
        if (state_change(&u->out[i], PS_ORDER_WANTED, PS_ORDER_BUSY))
            out_serve(u, &u->out[i]);
        while (state_of(&u->out[i]) == PS_ORDER_BUSY)
            sched_yield();
    }
    out_collect(u);
}

static void out_order(struct ps_huge_pages *u, size_t huge_page)
{
    struct ps_huge_page_order *o = u->out;
    while (state_of(o) != PS_ORDER_EMPTY)
        o++;
    o->huge_page = huge_page;
    u->out_count++;
    atomic_fetch_add_explicit(&u->out_bytes, UNIT, memory_order_relaxed);
    account(&u->mapped_bytes, 0, UNIT);
    atomic_store_explicit(&o->state, PS_ORDER_WANTED, memory_order_release);
}

/* ---- huge pages ahead ---- */

/* Turns the slot's huge page into an ordinary one in use. */
static uint8_t *ahead_leave(struct ps_huge_pages *u, struct ps_huge_page_order *a)
{
    account(&u->ahead_bytes, 0, UNIT);
    atomic_store_explicit(&a->state, PS_ORDER_EMPTY, memory_order_relaxed);
    return address(u, a->huge_page);
}

static void ahead_failed(struct ps_huge_pages *u, struct ps_huge_page_order *a)
{
    (void)ahead_leave(u, a);
    huge_pages_mark(u, a->huge_page, 1, false);
    u->memory_is_short = true;
    atomic_fetch_add_explicit(&u->huge_pages_failed, 1, memory_order_relaxed);
}

/* A huge page that is ready, or NULL. */
static uint8_t *ahead_take(struct ps_huge_pages *u)
{
    for (uint32_t i = 0; i < PS_HUGE_PAGES_AHEAD_MAX; i++) {
        enum ps_order_state state = state_of(&u->ahead[i]);
        if (state == PS_ORDER_FAILED)
            ahead_failed(u, &u->ahead[i]);
        if (state == PS_ORDER_DONE) {
            u->memory_is_short = false;
            return ahead_leave(u, &u->ahead[i]);
        }
    }
    return NULL;
}

static void ahead_refill(struct ps_huge_pages *u)
{
    bool wanted = false;
    if (u->helper_wake == NULL)
        return;
    for (uint32_t i = 0; i < u->ahead_wanted && !u->memory_is_short; i++) {
        struct ps_huge_page_order *a = &u->ahead[i];
        if (state_of(a) != PS_ORDER_EMPTY ||
            ps_huge_pages_mapped_bytes(u) + UNIT > u->limit_bytes - u->kept_bytes)
            continue;
        a->huge_page = huge_pages_find(u, 1, 1);
        if (a->huge_page >= u->huge_page_count)
            break;
        huge_pages_mark(u, a->huge_page, 1, true);
        account(&u->ahead_bytes, UNIT, 0);
        atomic_store_explicit(&a->state, PS_ORDER_WANTED, memory_order_release);
        wanted = true;
    }
    if (wanted)
        sem_post(u->helper_wake);
}

static bool give_now(struct ps_huge_pages *u, uint8_t *p, size_t bytes)
{
    if (!huge_pages_close(u, p, bytes))
        return false;
    huge_pages_mark(u, (size_t)(p - u->base) / UNIT, bytes / UNIT, false);
    return true;
}

void ps_huge_pages_give_ahead(struct ps_huge_pages *u)
{
    for (uint32_t i = 0; i < PS_HUGE_PAGES_AHEAD_MAX; i++) {
        struct ps_huge_page_order *a = &u->ahead[i];
        if (state_change(a, PS_ORDER_WANTED,
                         PS_ORDER_FAILED)) { /* the helper has not begun it: it is still closed */
            (void)ahead_leave(u, a);
            huge_pages_mark(u, a->huge_page, 1, false);
            continue;
        }
        while (state_of(a) == PS_ORDER_BUSY) /* as long as one huge page takes, and only at the limit */
            sched_yield();
        if (state_of(a) == PS_ORDER_FAILED)
            ahead_failed(u, a);
        else if (state_of(a) == PS_ORDER_DONE)
            (void)give_now(u, ahead_leave(u, a), UNIT);
    }
    out_finish(u);
}

static void ahead_serve(struct ps_huge_pages *u, struct ps_huge_page_order *a)
{
    uint8_t *p = address(u, a->huge_page);
    bool good = huge_pages_open(u, p, UNIT) && huge_pages_populate(p, UNIT);
    if (!good)
        (void)huge_pages_close(u, p, UNIT);
    atomic_store_explicit(&a->state, good ? PS_ORDER_DONE : PS_ORDER_FAILED, memory_order_release);
}

bool ps_huge_pages_serve(struct ps_huge_pages *u)
{
    for (uint32_t i = 0; i < PS_HUGE_PAGES_AHEAD_MAX; i++) {
        if (state_change(&u->ahead[i], PS_ORDER_WANTED, PS_ORDER_BUSY)) {
            ahead_serve(u, &u->ahead[i]);
            return true;
        }
    }
    for (uint32_t i = 0; i < PS_HUGE_PAGES_OUT_MAX; i++) {
        if (state_change(&u->out[i], PS_ORDER_WANTED, PS_ORDER_BUSY)) {
            out_serve(u, &u->out[i]);
            return true;
        }
    }
    return false;
}

/* ---- taking and giving ---- */

static uint8_t *take_now(struct ps_huge_pages *u, size_t bytes, size_t alignment)
{
    size_t step = alignment > UNIT ? alignment / UNIT : 1;
    size_t first = ps_huge_pages_mapped_bytes(u) + bytes > u->limit_bytes - u->kept_bytes
                       ? u->huge_page_count
                       : huge_pages_find(u, bytes / UNIT, step);
    if (first >= u->huge_page_count)
        return NULL;
    uint8_t *p = address(u, first);
    if ((uintptr_t)p % alignment != 0) /* the base is aligned to a huge page only */
        return NULL;
    if (!huge_pages_open(u, p, bytes))
        return NULL;
    if (u->memory_is_short) {
        u->memory_is_short = !huge_pages_populate(p, bytes);
        if (u->memory_is_short) {
            (void)huge_pages_close(u, p, bytes);
            atomic_fetch_add_explicit(&u->huge_pages_failed, bytes / UNIT, memory_order_relaxed);
            return NULL;
        }
    }
    huge_pages_mark(u, first, bytes / UNIT, true);
    return p;
}

static void ahead_adapt(struct ps_huge_pages *u, bool in_time)
{
    uint32_t wanted = u->ahead_wanted;
    u->takes_in_time = in_time ? u->takes_in_time + 1 : 0;
    if (!in_time) {
        u->ahead_wanted = 2 * wanted < PS_HUGE_PAGES_AHEAD_MAX ? 2 * wanted : PS_HUGE_PAGES_AHEAD_MAX;
    } else if (u->takes_in_time == PS_HUGE_PAGES_IN_TIME) {
        u->ahead_wanted = wanted > PS_HUGE_PAGES_AHEAD_MIN ? wanted - 1 : wanted;
        u->takes_in_time = 0;
    }
}

void *ps_huge_pages_take(struct ps_huge_pages *u, size_t bytes, size_t alignment)
{
    bytes = (bytes + UNIT - 1) / UNIT * UNIT;
    bool is_one = bytes == UNIT && alignment <= UNIT;
    size_t ahead_bytes = atomic_load_explicit(&u->ahead_bytes, memory_order_relaxed);
    uint8_t *p = is_one ? ahead_take(u) : NULL;
    out_collect(u);
    if (is_one && ahead_bytes > 0)
        ahead_adapt(u, p != NULL);
    if (p == NULL)
        p = take_now(u, bytes, alignment);
    if (p == NULL && (u->out_count > 0 || atomic_load_explicit(&u->ahead_bytes, memory_order_relaxed) > 0)) {
        ps_huge_pages_give_ahead(u);
        p = take_now(u, bytes, alignment);
    }
    ahead_refill(u);
    return p;
}

bool ps_huge_pages_give(struct ps_huge_pages *u, uint8_t *p, size_t bytes)
{
    size_t first = (size_t)(p - u->base) / UNIT, count = bytes / UNIT;
    out_collect(u);
    u->given += count;
    if (u->helper_wake == NULL || u->out_count + count > PS_HUGE_PAGES_OUT_MAX)
        return give_now(u, p, bytes);
    for (size_t huge_page = first; huge_page < first + count; huge_page++)
        out_order(u, huge_page);
    sem_post(u->helper_wake);
    return true;
}
