#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "ps/memory/arena.h"
#include "tests/test.h"

#if defined(__SANITIZE_ADDRESS__)
#define ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ASAN 1
#endif
#endif
#ifdef ASAN
/* <sanitizer/allocator_interface.h>, which does not come with every compiler */
int __sanitizer_get_ownership(const volatile void *p);
#endif

/* Linked with --wrap=aligned_alloc, so that the heap can be made to fail. */
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
static bool heap_is_short;

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return heap_is_short ? NULL : __real_aligned_alloc(alignment, size);
}

#define LIMIT ((size_t)32 << 20)
#define UNIT  PS_ARENA_HUGE_PAGE_BYTES

static bool all_zero(const uint8_t *p, size_t bytes)
{
    return p[0] == 0 && memcmp(p, p + 1, bytes - 1) == 0;
}

TEST(test_a_limit_too_small_is_refused)
{
    assert_null(ps_arena_create(PS_ARENA_LIMIT_BYTES_MIN - 1));
    struct ps_arena *a = ps_arena_create(PS_ARENA_LIMIT_BYTES_MIN);
    assert_non_null(a);
    assert_int_equal(ps_arena_limit_bytes(a), PS_ARENA_LIMIT_BYTES_MIN);
    ps_arena_destroy(a);
    ps_arena_destroy(NULL);
}

TEST(test_an_unlimited_arena_is_cut_to_the_largest)
{
    struct ps_arena *a = ps_arena_create(SIZE_MAX);
    assert_non_null(a);
    assert_int_equal(ps_arena_limit_bytes(a), PS_ARENA_LIMIT_BYTES_MAX);
    void *p = ps_arena_alloc(a, 2 * UNIT, UNIT);
    assert_non_null(p);
    memset(p, 1, 2 * UNIT);
    ps_arena_destroy(a);
}

TEST(test_memory_is_aligned_and_zeroed_also_when_reused)
{
    static const size_t sizes[] = {1, 64, 4096, 5000, 100000, UNIT / 2, UNIT, 2 * UNIT};
    struct ps_arena *a = ps_arena_create(LIMIT);
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            for (size_t alignment = 8; alignment <= 4096; alignment *= 8) {
                uint8_t *p = ps_arena_alloc(a, sizes[i], alignment);
                assert_non_null(p);
                assert_int_equal((uintptr_t)p % alignment, 0);
                assert_true(sizes[i] == 1 ? p[0] == 0 : all_zero(p, sizes[i]));
                memset(p, 0xff, sizes[i]);
                ps_arena_free(a, p, sizes[i], alignment);
            }
        }
    }
    assert_int_equal(ps_arena_allocated_bytes(a), 0);
    ps_arena_destroy(a);
}

TEST(test_the_account_is_exact)
{
    struct ps_arena *a = ps_arena_create(LIMIT);
    size_t empty = ps_arena_mapped_bytes(a);
    assert_int_equal(ps_arena_allocated_bytes(a), 0);
    void *p = ps_arena_alloc(a, 100, 64), *q = ps_arena_alloc(a, 3 * UNIT, 64);
    assert_int_equal(ps_arena_allocated_bytes(a), 100 + 3 * UNIT);
    assert_int_in_range(ps_arena_mapped_bytes(a), empty + 3 * UNIT, empty + 4 * UNIT);
    assert_int_equal((uintptr_t)q % UNIT, 0);
    ps_arena_free(a, q, 3 * UNIT, 64);
    ps_arena_free(a, p, 100, 64);
    ps_arena_free(a, NULL, 100, 64);
    assert_int_equal(ps_arena_allocated_bytes(a), 0);
    assert_int_in_range(ps_arena_mapped_bytes(a), empty, empty + UNIT);
    ps_arena_destroy(a);
}

TEST(test_the_limit_holds_and_freed_memory_comes_back)
{
    struct ps_arena *a = ps_arena_create(LIMIT);
    void *huge_pages[LIMIT / UNIT] = {0};
    uint32_t count = 0;
    while ((huge_pages[count] = ps_arena_alloc(a, UNIT, 64)) != NULL) {
        assert_true(ps_arena_mapped_bytes(a) <= LIMIT);
        count++;
    }
    assert_int_in_range(count, LIMIT / UNIT - 2, LIMIT / UNIT);
    assert_null(ps_arena_alloc(a, UNIT, 64));
    /* Two huge pages that are not neighbours are no room for two in a row. */
    ps_arena_free(a, huge_pages[1], UNIT, 64);
    ps_arena_free(a, huge_pages[3], UNIT, 64);
    assert_null(ps_arena_alloc(a, 2 * UNIT, 64));
    ps_arena_free(a, huge_pages[2], UNIT, 64);
    void *three = ps_arena_alloc(a, 3 * UNIT, 64);
    assert_ptr_equal(three, huge_pages[1]);
    assert_true(all_zero(three, 3 * UNIT));
    ps_arena_destroy(a);
}

TEST(test_small_requests_stop_at_the_limit_too)
{
    enum { BYTES = 4096, MOST = LIMIT / BYTES };
    struct ps_arena *a = ps_arena_create(LIMIT);
    void **p = calloc(MOST, sizeof(*p));
    uint32_t count = 0;
    while (count < MOST && (p[count] = ps_arena_alloc(a, BYTES, 64)) != NULL)
        count++;
    assert_int_in_range(count, MOST / 2, MOST - 1);
    assert_true(ps_arena_mapped_bytes(a) <= LIMIT);
    for (uint32_t i = 0; i < count; i++)
        ps_arena_free(a, p[i], BYTES, 64);
    assert_int_equal(ps_arena_allocated_bytes(a), 0);
    /* What they leave is joined, so that larger requests find room in it too. */
    void *larger = ps_arena_alloc(a, UNIT / 2, 64);
    assert_non_null(larger);
    assert_true(all_zero(larger, UNIT / 2));
    ps_arena_destroy(a);
    free(p);
}

TEST(test_scratch_grows_and_is_kept)
{
    struct ps_arena *a = ps_arena_create(LIMIT);
    size_t bytes = 0;
    void *p = ps_arena_scratch(a, PS_SCRATCH_ONCE, 1, &bytes);
    assert_int_equal(bytes, PS_ARENA_SCRATCH_BYTES_MIN);
    assert_int_equal((uintptr_t)p % 64, 0);
    p = ps_arena_scratch(a, PS_SCRATCH_ONCE, 3 * PS_ARENA_SCRATCH_BYTES_MIN + 1, &bytes);
    assert_true(bytes > 3 * PS_ARENA_SCRATCH_BYTES_MIN);
    memset(p, 1, bytes);
    size_t again = 0;
    assert_ptr_equal(ps_arena_scratch(a, PS_SCRATCH_ONCE, 100, &again), p);
    assert_int_equal(again, bytes);
    assert_ptr_not_equal(ps_arena_scratch(a, PS_SCRATCH_STEPS, 100, &again), p);
    assert_int_equal(again, PS_ARENA_SCRATCH_BYTES_MIN);
    ps_arena_destroy(a);
}

TEST(test_scratch_that_cannot_be_had_leaves_what_there_is)
{
    struct ps_arena *a = ps_arena_create(LIMIT);
    size_t bytes = 0;
    heap_is_short = true;
    assert_null(ps_arena_create(LIMIT));
    void *p = ps_arena_scratch(a, PS_SCRATCH_ONCE, 2 * PS_ARENA_SCRATCH_BYTES_MIN, &bytes);
    heap_is_short = false;
    assert_non_null(p);
    assert_int_equal(bytes, PS_ARENA_SCRATCH_BYTES_MIN);
    ps_arena_destroy(a);
}

/* jemalloc is linked in for its arenas; the sanitizer must stay the process's malloc, or it would see no heap
 * error. */
TEST(test_a_sanitizer_keeps_malloc)
{
#ifdef ASAN
    void *p = calloc(1, 10);
    assert_true(__sanitizer_get_ownership(p));
    free(p);
    struct ps_arena *a = ps_arena_create(LIMIT);
    p = ps_arena_alloc(a, 10, 64);
    assert_false(__sanitizer_get_ownership(p));
    ps_arena_destroy(a);
#else
    skip();
#endif
}
