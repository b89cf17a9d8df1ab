/* jemalloc is linked in for its arenas (the mallocx family). As a side effect it is also the server's malloc; in sanitizer
 * builds the sanitizer's malloc comes before it and stays the process's (test_arena.c holds that). */
#include "ps/arena.h"

#include <assert.h>
#include <jemalloc/jemalloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define UNIT PS_ARENA_UNIT_BYTES

struct ps_arena {
    extent_hooks_t hooks; /* first: the hooks get this pointer back */
    unsigned jemalloc_arena;
    uint8_t *reserved; /* as mapped */
    size_t reserved_bytes;
    uint8_t *base;      /* unit 0; aligned to a unit */
    size_t unit_count;  /* units within the limit */
    uint64_t *used;     /* a bit per unit */
    size_t search_from; /* no unit below is free */
    size_t limit_bytes;
    _Atomic size_t mapped_bytes;
    _Atomic size_t allocated_bytes;
    struct scratch {
        void *memory;
        size_t bytes;
    } scratch[PS_SCRATCH_COUNT];
};

static void account(_Atomic size_t *counter, size_t add, size_t subtract)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + add - subtract,
                          memory_order_relaxed);
}

/* ---- units ---- */

static bool unit_is_used(const struct ps_arena *a, size_t unit)
{
    return (a->used[unit / 64] >> (unit % 64) & 1) != 0;
}

static void units_mark(struct ps_arena *a, size_t first, size_t count, bool used)
{
    for (size_t unit = first; unit < first + count; unit++) {
        uint64_t bit = (uint64_t)1 << (unit % 64);
        if (used)
            a->used[unit / 64] |= bit;
        else
            a->used[unit / 64] &= ~bit;
    }
}

/* First run of `count` free units that starts at a multiple of `step`; unit_count when there is none. */
static size_t units_find(struct ps_arena *a, size_t count, size_t step)
{
    while (a->search_from < a->unit_count && unit_is_used(a, a->search_from))
        a->search_from++;
    size_t first = (a->search_from + step - 1) / step * step;
    while (first + count <= a->unit_count) {
        size_t run = 0;
        while (run < count && !unit_is_used(a, first + run))
            run++;
        if (run == count)
            return first;
        first = (first + run + step) / step * step;
    }
    return a->unit_count;
}

static void *units_take(struct ps_arena *a, size_t bytes, size_t alignment)
{
    size_t count = (bytes + UNIT - 1) / UNIT;
    if (atomic_load_explicit(&a->mapped_bytes, memory_order_relaxed) + count * UNIT > a->limit_bytes)
        return NULL;
    size_t step = alignment > UNIT ? alignment / UNIT : 1;
    size_t first = units_find(a, count, step);
    if (first >= a->unit_count)
        return NULL;
    uint8_t *p = a->base + first * UNIT;
    if ((uintptr_t)p % alignment != 0) /* more than a unit, and the base is not aligned to as much */
        return NULL;
    if (mprotect(p, count * UNIT, PROT_READ | PROT_WRITE) != 0)
        return NULL;
    (void)madvise(p, count * UNIT, MADV_HUGEPAGE); /* kernels without it serve small pages */
    units_mark(a, first, count, true);
    account(&a->mapped_bytes, count * UNIT, 0);
    return p;
}

/* False when the kernel would not take them back: they stay in use. */
static bool units_give(struct ps_arena *a, uint8_t *p, size_t bytes)
{
    /* Mapping afresh drops the pages, and their promise of memory, in one call. */
    if (mmap(p, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != p)
        return false;
    size_t first = (size_t)(p - a->base) / UNIT;
    units_mark(a, first, bytes / UNIT, false);
    if (first < a->search_from)
        a->search_from = first;
    account(&a->mapped_bytes, 0, bytes);
    return true;
}

/* ---- jemalloc's extent hooks ---- */

static void *hook_alloc(extent_hooks_t *hooks, void *new_addr, size_t size, size_t alignment, bool *zero,
                        bool *commit, unsigned arena)
{
    if (new_addr != NULL) /* extending in place is not offered */
        return NULL;
    void *p = units_take((struct ps_arena *)hooks, size, alignment);
    if (p == NULL)
        return NULL;
    *zero = true;
    *commit = true;
    return p;
}

/* Whole units go back to the kernel; true keeps the rest with jemalloc for its next request. */
static bool hook_dalloc(extent_hooks_t *hooks, void *addr, size_t size, bool committed, unsigned arena)
{
    if ((uintptr_t)addr % UNIT != 0 || size % UNIT != 0)
        return true;
    return !units_give((struct ps_arena *)hooks, addr, size);
}

/* ps_arena_destroy() unmaps the whole reservation afterwards. */
static void hook_destroy(extent_hooks_t *hooks, void *addr, size_t size, bool committed, unsigned arena)
{
}

static bool hook_split(extent_hooks_t *hooks, void *addr, size_t size, size_t size_a, size_t size_b,
                       bool committed, unsigned arena)
{
    return false; /* all units are one reservation: any cut and any join is fine */
}

static bool hook_merge(extent_hooks_t *hooks, void *addr_a, size_t size_a, void *addr_b, size_t size_b,
                       bool committed, unsigned arena)
{
    return false;
}

static bool jemalloc_start(struct ps_arena *a)
{
    a->hooks = (extent_hooks_t){.alloc = hook_alloc,
                                .dalloc = hook_dalloc,
                                .destroy = hook_destroy,
                                .split = hook_split,
                                .merge = hook_merge};
    void *hooks = &a->hooks;
    size_t size = sizeof(a->jemalloc_arena);
    if (mallctl("arenas.create", &a->jemalloc_arena, &size, &hooks, sizeof(hooks)) != 0)
        return false;
    char name[64];
    /* Freed memory goes at once to where it is joined with its neighbours and used again. Its pages stay: there is no
     * purge hook, because giving back parts of units would split huge pages and cost system calls on a polling core. */
    ssize_t at_once = 0;
    snprintf(name, sizeof(name), "arena.%u.dirty_decay_ms", a->jemalloc_arena);
    (void)mallctl(name, NULL, NULL, &at_once, sizeof(at_once));
    /* Take units one by one, not in ever larger runs. */
    size_t grow_bytes = UNIT;
    snprintf(name, sizeof(name), "arena.%u.retain_grow_limit", a->jemalloc_arena);
    (void)mallctl(name, NULL, NULL, &grow_bytes, sizeof(grow_bytes));
    return true;
}

static void jemalloc_stop(const struct ps_arena *a)
{
    char name[64];
    snprintf(name, sizeof(name), "arena.%u.destroy", a->jemalloc_arena);
    (void)mallctl(name, NULL, NULL, NULL, 0);
}

/* ---- the arena ---- */

static bool scratch_start(struct ps_arena *a)
{
    bool good = true;
    for (uint32_t i = 0; i < PS_SCRATCH_COUNT; i++) {
        a->scratch[i].memory = aligned_alloc(64, PS_ARENA_SCRATCH_BYTES_MIN);
        a->scratch[i].bytes = PS_ARENA_SCRATCH_BYTES_MIN;
        good &= a->scratch[i].memory != NULL;
    }
    return good;
}

static void scratch_free(struct ps_arena *a)
{
    for (uint32_t i = 0; i < PS_SCRATCH_COUNT; i++)
        free(a->scratch[i].memory);
}

struct ps_arena *ps_arena_create(size_t limit_bytes)
{
    if (limit_bytes < PS_ARENA_LIMIT_BYTES_MIN)
        return NULL;
    if (limit_bytes > PS_ARENA_LIMIT_BYTES_MAX)
        limit_bytes = PS_ARENA_LIMIT_BYTES_MAX;
    struct ps_arena *a = calloc(1, sizeof(*a));
    if (a == NULL)
        return NULL;
    a->limit_bytes = limit_bytes;
    a->unit_count = limit_bytes / UNIT;
    a->used = calloc((a->unit_count + 63) / 64, sizeof(*a->used));
    if (a->used == NULL || !scratch_start(a))
        goto fail;
    a->reserved_bytes = (a->unit_count + 1) * UNIT;
    a->reserved =
        mmap(NULL, a->reserved_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (a->reserved == MAP_FAILED)
        goto fail;
    a->base = a->reserved + (UNIT - (uintptr_t)a->reserved % UNIT) % UNIT;
    if (!jemalloc_start(a))
        goto fail_mapped;
    return a;

fail_mapped:
    munmap(a->reserved, a->reserved_bytes);
fail:
    scratch_free(a);
    free(a->used);
    free(a);
    return NULL;
}

void ps_arena_destroy(struct ps_arena *a)
{
    if (a == NULL)
        return;
    jemalloc_stop(a);
    munmap(a->reserved, a->reserved_bytes);
    scratch_free(a);
    free(a->used);
    free(a);
}

static int jemalloc_flags(const struct ps_arena *a, size_t alignment)
{
    return MALLOCX_ARENA(a->jemalloc_arena) | MALLOCX_TCACHE_NONE | MALLOCX_ALIGN(alignment);
}

void *ps_arena_alloc(struct ps_arena *a, size_t bytes, size_t alignment)
{
    assert(bytes > 0 && alignment > 0 && (alignment & (alignment - 1)) == 0 && alignment <= UNIT);
    void *p = bytes % UNIT == 0 ? units_take(a, bytes, UNIT)
                                : mallocx(bytes, jemalloc_flags(a, alignment) | MALLOCX_ZERO);
    if (p != NULL)
        account(&a->allocated_bytes, bytes, 0);
    return p;
}

void ps_arena_free(struct ps_arena *a, void *p, size_t bytes, size_t alignment)
{
    if (p == NULL)
        return;
    account(&a->allocated_bytes, 0, bytes);
    if (bytes % UNIT == 0)
        (void)units_give(a, p, bytes);
    else
        sdallocx(p, bytes, jemalloc_flags(a, alignment));
}

size_t ps_arena_mapped_bytes(const struct ps_arena *a)
{
    return atomic_load_explicit(&a->mapped_bytes, memory_order_relaxed);
}

size_t ps_arena_allocated_bytes(const struct ps_arena *a)
{
    return atomic_load_explicit(&a->allocated_bytes, memory_order_relaxed);
}

size_t ps_arena_limit_bytes(const struct ps_arena *a)
{
    return a->limit_bytes;
}

void *ps_arena_scratch(struct ps_arena *a, enum ps_scratch which, size_t wanted_bytes, size_t *bytes)
{
    struct scratch *s = &a->scratch[which];
    if (wanted_bytes > s->bytes) {
        size_t grown_bytes = (wanted_bytes + 63) / 64 * 64;
        if (grown_bytes < 2 * s->bytes)
            grown_bytes = 2 * s->bytes;
        void *grown = aligned_alloc(64, grown_bytes);
        if (grown != NULL) {
            free(s->memory);
            s->memory = grown;
            s->bytes = grown_bytes;
        }
    }
    *bytes = s->bytes;
    return s->memory;
}
