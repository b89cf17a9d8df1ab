/* jemalloc is linked in for its arenas (the mallocx family). As a side effect it is also the server's malloc;
 * in sanitizer builds the sanitizer's malloc comes before it and stays the process's (test_arena.c holds
 * that). */
#include "ps/memory/arena.h"

#include <assert.h>
#include <jemalloc/jemalloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include "ps/memory/size_classes.h"
#include "ps/memory/prefault.h"
#include "ps/memory/huge_pages.h"

#define UNIT                    PS_ARENA_HUGE_PAGE_BYTES
#define RESTORE_SHARE           64u
#define RESTORE_LIMIT_BYTES_MIN (16 * UNIT)

struct ps_arena {
    extent_hooks_t hooks; /* first: the hooks get this pointer back */
    unsigned jemalloc_arena;
    struct ps_huge_pages huge_pages;
    struct ps_size_classes pieces, slabs;
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

/* ---- jemalloc's extent hooks ---- */

static void *hook_alloc(extent_hooks_t *hooks, void *new_addr, size_t size, size_t alignment, bool *zero,
                        bool *commit, unsigned arena)
{
    if (new_addr != NULL) /* extending in place is not offered */
        return NULL;
    void *p = ps_huge_pages_take(&((struct ps_arena *)hooks)->huge_pages, size, alignment);
    if (p == NULL)
        return NULL;
    *zero = true;
    *commit = true;
    return p;
}

/* Whole huge pages go back to the kernel; true keeps the rest with jemalloc for its next request. */
static bool hook_dalloc(extent_hooks_t *hooks, void *addr, size_t size, bool committed, unsigned arena)
{
    if ((uintptr_t)addr % UNIT != 0 || size % UNIT != 0)
        return true;
    return !ps_huge_pages_give(&((struct ps_arena *)hooks)->huge_pages, addr, size);
}

/* ps_arena_destroy() unmaps the whole reservation afterwards. */
static void hook_destroy(extent_hooks_t *hooks, void *addr, size_t size, bool committed, unsigned arena)
{
}

static bool hook_split(extent_hooks_t *hooks, void *addr, size_t size, size_t size_a, size_t size_b,
                       bool committed, unsigned arena)
{
    return false; /* all huge pages are one reservation: any cut and any join is fine */
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
    /* Freed memory goes at once to where it is joined with its neighbours and used again. Its pages stay:
     * there is no purge hook, because giving back parts of huge pages would split huge pages and cost
     * system calls on a polling core. */
    ssize_t at_once = 0;
    snprintf(name, sizeof(name), "arena.%u.dirty_decay_ms", a->jemalloc_arena);
    (void)mallctl(name, NULL, NULL, &at_once, sizeof(at_once));
    /* Take huge pages one by one, not in ever larger runs. */
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
    if (!ps_huge_pages_init(&a->huge_pages, limit_bytes))
        goto fail;
    if (!ps_size_classes_init(&a->pieces, &a->huge_pages))
        goto fail_huge_pages;
    if (!ps_size_classes_init(&a->slabs, &a->huge_pages))
        goto fail_slabs;
    if (!scratch_start(a) || !jemalloc_start(a))
        goto fail_pieces;
    return a;

fail_pieces:
    ps_size_classes_free(&a->slabs);
fail_slabs:
    ps_size_classes_free(&a->pieces);
fail_huge_pages:
    ps_huge_pages_free(&a->huge_pages);
fail:
    scratch_free(a);
    free(a);
    return NULL;
}

void ps_arena_destroy(struct ps_arena *a)
{
    if (a == NULL)
        return;
    ps_prefault_detach(&a->huge_pages);
    jemalloc_stop(a);
    ps_size_classes_free(&a->slabs);
    ps_size_classes_free(&a->pieces);
    ps_huge_pages_free(&a->huge_pages);
    scratch_free(a);
    free(a);
}

static int jemalloc_flags(const struct ps_arena *a, size_t alignment)
{
    return MALLOCX_ARENA(a->jemalloc_arena) | MALLOCX_TCACHE_NONE | MALLOCX_ALIGN(alignment);
}

void *ps_arena_alloc(struct ps_arena *a, size_t bytes, size_t alignment)
{
    assert(bytes > 0 && alignment > 0 && (alignment & (alignment - 1)) == 0 && alignment <= UNIT);
    void *p = bytes % UNIT == 0 ? ps_huge_pages_take(&a->huge_pages, bytes, UNIT)
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
        (void)ps_huge_pages_give(&a->huge_pages, p, bytes);
    else
        sdallocx(p, bytes, jemalloc_flags(a, alignment));
}

void *ps_arena_piece_alloc(struct ps_arena *a, size_t bytes)
{
    void *p = ps_size_classes_take(&a->pieces, bytes);
    if (p != NULL)
        account(&a->allocated_bytes, bytes, 0);
    return p;
}

void ps_arena_piece_free(struct ps_arena *a, void *p, size_t bytes)
{
    account(&a->allocated_bytes, 0, bytes);
    ps_size_classes_give(&a->pieces, p, bytes);
}

bool ps_arena_clear_begin(struct ps_arena *a, uint32_t *count)
{
    bool begun = ps_size_classes_clear_begin(&a->pieces);
    *count = a->pieces.clear_count;
    return begun;
}

void ps_arena_clear_end(struct ps_arena *a)
{
    ps_size_classes_clear_end(&a->pieces);
}

bool ps_arena_piece_is_leaving(const struct ps_arena *a, const void *p)
{
    return ps_piece_is_leaving(&a->pieces, p);
}

void *ps_arena_slab_alloc(struct ps_arena *a, size_t bytes)
{
    void *p = ps_size_classes_take(&a->slabs, bytes);
    if (p != NULL)
        account(&a->allocated_bytes, bytes, 0);
    return p;
}

void ps_arena_slab_free(struct ps_arena *a, void *p, size_t bytes)
{
    account(&a->allocated_bytes, 0, bytes);
    ps_size_classes_give(&a->slabs, p, bytes);
}

uint8_t *ps_arena_base(const struct ps_arena *a)
{
    return a->huge_pages.base;
}

void ps_arena_prefault(struct ps_arena *a, struct ps_prefault *helper)
{
    ps_prefault_attach(helper, &a->huge_pages);
}

size_t ps_arena_mapped_bytes(const struct ps_arena *a)
{
    return ps_huge_pages_mapped_bytes(&a->huge_pages);
}

size_t ps_arena_ahead_bytes(const struct ps_arena *a)
{
    return atomic_load_explicit(&a->huge_pages.ahead_bytes, memory_order_relaxed);
}

uint64_t ps_arena_huge_pages_failed(const struct ps_arena *a)
{
    return atomic_load_explicit(&a->huge_pages.huge_pages_failed, memory_order_relaxed);
}

size_t ps_arena_allocated_bytes(const struct ps_arena *a)
{
    return atomic_load_explicit(&a->allocated_bytes, memory_order_relaxed);
}

size_t ps_arena_limit_bytes(const struct ps_arena *a)
{
    return a->huge_pages.limit_bytes;
}

size_t ps_arena_keep(struct ps_arena *a, size_t bytes)
{
    size_t before = a->huge_pages.kept_bytes;
    assert(bytes <= a->huge_pages.limit_bytes);
    a->huge_pages.kept_bytes = bytes;
    return before;
}

size_t ps_arena_restore_bytes(size_t limit_bytes)
{
    size_t huge_pages = (limit_bytes / RESTORE_SHARE + UNIT - 1) / UNIT;
    return limit_bytes < RESTORE_LIMIT_BYTES_MIN ? 0 : huge_pages * UNIT;
}

uint64_t ps_arena_huge_pages_given(const struct ps_arena *a)
{
    return a->huge_pages.given;
}

struct ps_arena_slice ps_arena_slice_begin(const struct ps_arena *a, uint32_t pieces)
{
    return (struct ps_arena_slice){
        .arena = a, .pieces = pieces, .huge_pages_given = ps_arena_huge_pages_given(a)};
}

bool ps_arena_slice_take(struct ps_arena_slice *s)
{
    if (s->pieces == 0 || ps_arena_huge_pages_given(s->arena) != s->huge_pages_given)
        return false;
    s->pieces--;
    return true;
}

size_t ps_arena_scratch_bytes(const struct ps_arena *a)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < PS_SCRATCH_COUNT; i++)
        bytes += a->scratch[i].bytes;
    return bytes;
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
