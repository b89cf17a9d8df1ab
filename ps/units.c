#include "ps/units.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "ps/prefault.h"

#define UNIT       PS_UNIT_BYTES
#define PAGE_BYTES 4096u

static void account(_Atomic size_t *counter, size_t add, size_t subtract)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + add - subtract,
                          memory_order_relaxed);
}

static size_t mapped(const struct ps_units *u)
{
    return atomic_load_explicit(&u->mapped_bytes, memory_order_relaxed);
}

static uint8_t *address(const struct ps_units *u, size_t unit)
{
    return u->base + unit * UNIT;
}

bool ps_units_init(struct ps_units *u, size_t limit_bytes)
{
    memset(u, 0, sizeof(*u));
    u->limit_bytes = limit_bytes;
    u->ahead_wanted = PS_UNITS_AHEAD_MIN;
    u->unit_count = limit_bytes / UNIT;
    u->used = calloc((u->unit_count + 63) / 64, sizeof(*u->used));
    if (u->used == NULL)
        return false;
    u->reserved_bytes = (u->unit_count + 1) * UNIT;
    u->reserved =
        mmap(NULL, u->reserved_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (u->reserved == MAP_FAILED) {
        free(u->used);
        return false;
    }
    u->base = u->reserved + (UNIT - (uintptr_t)u->reserved % UNIT) % UNIT;
    return true;
}

void ps_units_free(struct ps_units *u)
{
    assert(u->helper == NULL);
    munmap(u->reserved, u->reserved_bytes);
    free(u->used);
}

/* ---- which are free ---- */

static bool unit_is_used(const struct ps_units *u, size_t unit)
{
    return (u->used[unit / 64] >> (unit % 64) & 1) != 0;
}

static void units_mark(struct ps_units *u, size_t first, size_t count, bool used)
{
    for (size_t unit = first; unit < first + count; unit++) {
        uint64_t bit = (uint64_t)1 << (unit % 64);
        if (used)
            u->used[unit / 64] |= bit;
        else
            u->used[unit / 64] &= ~bit;
    }
    if (!used && first < u->search_from)
        u->search_from = first;
    account(&u->mapped_bytes, used ? count * UNIT : 0, used ? 0 : count * UNIT);
}

/* First run of `count` free units that starts at a multiple of `step`; unit_count when there is none. */
static size_t units_find(struct ps_units *u, size_t count, size_t step)
{
    while (u->search_from < u->unit_count && unit_is_used(u, u->search_from))
        u->search_from++;
    size_t first = (u->search_from + step - 1) / step * step;
    while (first + count <= u->unit_count) {
        size_t run = 0;
        while (run < count && !unit_is_used(u, first + run))
            run++;
        if (run == count)
            return first;
        first = (first + run + step) / step * step;
    }
    return u->unit_count;
}

/* ---- the kernel's part ---- */

static bool units_open(uint8_t *p, size_t bytes)
{
    if (mprotect(p, bytes, PROT_READ | PROT_WRITE) != 0)
        return false;
    (void)madvise(p, bytes, MADV_HUGEPAGE); /* kernels without it serve small pages */
    return true;
}

/* Mapping afresh drops the pages, and their promise of memory, in one call. */
static bool units_close(uint8_t *p, size_t bytes)
{
    return mmap(p, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == p;
}

/* All pages are there afterwards. False when there is no memory for them. */
static bool units_populate(uint8_t *p, size_t bytes)
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

/* ---- units ahead ---- */

static enum ps_ahead_state state_of(struct ps_unit_ahead *a)
{
    return (enum ps_ahead_state)atomic_load_explicit(&a->state, memory_order_acquire);
}

static bool state_change(struct ps_unit_ahead *a, enum ps_ahead_state from, enum ps_ahead_state to)
{
    uint32_t expected = from;
    return atomic_compare_exchange_strong_explicit(&a->state, &expected, to, memory_order_acq_rel,
                                                   memory_order_acquire);
}

/* The slot's unit is an ordinary one in use from now on. */
static uint8_t *ahead_leave(struct ps_units *u, struct ps_unit_ahead *a)
{
    account(&u->ahead_bytes, 0, UNIT);
    atomic_store_explicit(&a->state, PS_AHEAD_EMPTY, memory_order_relaxed);
    return address(u, a->unit);
}

static void ahead_failed(struct ps_units *u, struct ps_unit_ahead *a)
{
    (void)ahead_leave(u, a);
    units_mark(u, a->unit, 1, false);
    u->memory_is_short = true;
    atomic_fetch_add_explicit(&u->units_failed, 1, memory_order_relaxed);
}

/* A unit that is ready, or NULL. */
static uint8_t *ahead_take(struct ps_units *u)
{
    for (uint32_t i = 0; i < PS_UNITS_AHEAD_MAX; i++) {
        enum ps_ahead_state state = state_of(&u->ahead[i]);
        if (state == PS_AHEAD_FAILED)
            ahead_failed(u, &u->ahead[i]);
        if (state == PS_AHEAD_READY) {
            u->memory_is_short = false;
            return ahead_leave(u, &u->ahead[i]);
        }
    }
    return NULL;
}

static void ahead_refill(struct ps_units *u)
{
    bool wanted = false;
    for (uint32_t i = 0; u->helper != NULL && i < u->ahead_wanted && !u->memory_is_short; i++) {
        struct ps_unit_ahead *a = &u->ahead[i];
        if (state_of(a) != PS_AHEAD_EMPTY || mapped(u) + UNIT > u->limit_bytes)
            continue;
        a->unit = units_find(u, 1, 1);
        if (a->unit >= u->unit_count)
            return;
        units_mark(u, a->unit, 1, true);
        account(&u->ahead_bytes, UNIT, 0);
        atomic_store_explicit(&a->state, PS_AHEAD_WANTED, memory_order_release);
        wanted = true;
    }
    if (wanted)
        ps_prefault_wake(u->helper);
}

void ps_units_give_ahead(struct ps_units *u)
{
    for (uint32_t i = 0; i < PS_UNITS_AHEAD_MAX; i++) {
        struct ps_unit_ahead *a = &u->ahead[i];
        if (state_change(a, PS_AHEAD_WANTED, PS_AHEAD_FAILED)) { /* it was not begun, and is closed still */
            (void)ahead_leave(u, a);
            units_mark(u, a->unit, 1, false);
            continue;
        }
        while (state_of(a) == PS_AHEAD_BUSY) /* for as long as one unit takes; at the limit only */
            sched_yield();
        if (state_of(a) == PS_AHEAD_FAILED)
            ahead_failed(u, a);
        else if (state_of(a) == PS_AHEAD_READY)
            (void)ps_units_give(u, ahead_leave(u, a), UNIT);
    }
}

bool ps_units_prepare(struct ps_units *u)
{
    for (uint32_t i = 0; i < PS_UNITS_AHEAD_MAX; i++) {
        struct ps_unit_ahead *a = &u->ahead[i];
        if (!state_change(a, PS_AHEAD_WANTED, PS_AHEAD_BUSY))
            continue;
        uint8_t *p = address(u, a->unit);
        bool good = units_open(p, UNIT) && units_populate(p, UNIT);
        if (!good)
            (void)units_close(p, UNIT);
        atomic_store_explicit(&a->state, good ? PS_AHEAD_READY : PS_AHEAD_FAILED, memory_order_release);
        return true;
    }
    return false;
}

/* ---- taking and giving ---- */

static uint8_t *take_now(struct ps_units *u, size_t bytes, size_t alignment)
{
    size_t step = alignment > UNIT ? alignment / UNIT : 1;
    size_t first = mapped(u) + bytes > u->limit_bytes ? u->unit_count : units_find(u, bytes / UNIT, step);
    if (first >= u->unit_count)
        return NULL;
    uint8_t *p = address(u, first);
    if ((uintptr_t)p % alignment != 0) /* more than a unit, and the base is not aligned to as much */
        return NULL;
    if (!units_open(p, bytes))
        return NULL;
    if (u->memory_is_short) {
        u->memory_is_short = !units_populate(p, bytes);
        if (u->memory_is_short) {
            (void)units_close(p, bytes);
            atomic_fetch_add_explicit(&u->units_failed, bytes / UNIT, memory_order_relaxed);
            return NULL;
        }
    }
    units_mark(u, first, bytes / UNIT, true);
    return p;
}

static void ahead_adapt(struct ps_units *u, bool in_time)
{
    uint32_t wanted = u->ahead_wanted;
    u->takes_in_time = in_time ? u->takes_in_time + 1 : 0;
    if (!in_time) {
        u->ahead_wanted = 2 * wanted < PS_UNITS_AHEAD_MAX ? 2 * wanted : PS_UNITS_AHEAD_MAX;
    } else if (u->takes_in_time == PS_UNITS_IN_TIME) {
        u->ahead_wanted = wanted > PS_UNITS_AHEAD_MIN ? wanted - 1 : wanted;
        u->takes_in_time = 0;
    }
}

void *ps_units_take(struct ps_units *u, size_t bytes, size_t alignment)
{
    bytes = (bytes + UNIT - 1) / UNIT * UNIT;
    bool is_one = bytes == UNIT && alignment <= UNIT;
    size_t ahead_bytes = atomic_load_explicit(&u->ahead_bytes, memory_order_relaxed);
    uint8_t *p = is_one ? ahead_take(u) : NULL;
    if (is_one && ahead_bytes > 0)
        ahead_adapt(u, p != NULL);
    if (p == NULL)
        p = take_now(u, bytes, alignment);
    if (p == NULL && atomic_load_explicit(&u->ahead_bytes, memory_order_relaxed) > 0) {
        ps_units_give_ahead(u);
        p = take_now(u, bytes, alignment);
    }
    ahead_refill(u);
    return p;
}

bool ps_units_give(struct ps_units *u, uint8_t *p, size_t bytes)
{
    if (!units_close(p, bytes))
        return false;
    units_mark(u, (size_t)(p - u->base) / UNIT, bytes / UNIT, false);
    return true;
}
