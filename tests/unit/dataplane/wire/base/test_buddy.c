#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/buddy.h"
#include "tests/test.h"

static uint8_t *region_of(size_t bytes)
{
    void *p = NULL;
    assert_int_equal(posix_memalign(&p, MR_BUDDY_ALIGN, bytes), 0);
    return p;
}

static uint64_t next_random(uint64_t *seed)
{
    *seed += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = *seed;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

TEST(sizes_are_powers_of_two)
{
    assert_int_equal(mr_buddy_block_bytes(0), 256);
    assert_int_equal(mr_buddy_block_bytes(1), 256);
    assert_int_equal(mr_buddy_block_bytes(256), 256);
    assert_int_equal(mr_buddy_block_bytes(257), 512);
    assert_int_equal(mr_buddy_block_bytes(4096), 4096);
    assert_int_equal(mr_buddy_block_bytes(4097), 8192);
    assert_true(mr_buddy_block_bytes((size_t)1 << 40) == (size_t)1 << 40);
    assert_int_equal(mr_buddy_block_bytes(((size_t)1 << 40) + 1), 0);
    assert_int_equal(mr_buddy_block_bytes(SIZE_MAX), 0);
}

TEST(a_region_without_room_for_a_block_is_refused)
{
    uint8_t *region = region_of(256);
    assert_null(mr_buddy_create(region, 0));
    assert_null(mr_buddy_create(region, 255));
    struct mr_buddy *b = mr_buddy_create(region, 256);
    assert_non_null(b);
    assert_ptr_equal(mr_buddy_alloc(b, 200), region);
    assert_null(mr_buddy_alloc(b, 1));
    mr_buddy_destroy(b);
    mr_buddy_destroy(NULL);
    free(region);
}

TEST(the_whole_region_can_be_one_block)
{
    size_t bytes = 1u << 20;
    uint8_t *region = region_of(bytes);
    struct mr_buddy *b = mr_buddy_create(region, bytes);
    assert_int_equal(mr_buddy_capacity_bytes(b), bytes);
    assert_null(mr_buddy_alloc(b, bytes + 1));
    assert_null(mr_buddy_alloc(b, SIZE_MAX));
    void *p = mr_buddy_alloc(b, bytes);
    assert_ptr_equal(p, region);
    memset(p, 0xcd, bytes);
    assert_int_equal(mr_buddy_used_bytes(b), bytes);
    assert_null(mr_buddy_alloc(b, 1));
    mr_buddy_free(b, p);
    mr_buddy_free(b, NULL);
    assert_int_equal(mr_buddy_used_bytes(b), 0);
    mr_buddy_destroy(b);
    memset(region, 0, bytes); /* the caller's again */
    free(region);
}

/* Small blocks are kept unmerged; something larger must still find their room. */
TEST(small_blocks_are_merged_when_a_large_one_needs_them)
{
    enum { BLOCKS = 4096 };
    size_t bytes = BLOCKS * 256;
    static void *blocks[BLOCKS];
    uint8_t *region = region_of(bytes);
    struct mr_buddy *b = mr_buddy_create(region, bytes);
    for (uint32_t i = 0; i < BLOCKS; i++)
        assert_non_null(blocks[i] = mr_buddy_alloc(b, 256));
    assert_null(mr_buddy_alloc(b, 1));
    for (uint32_t i = 0; i < BLOCKS; i += 2)
        mr_buddy_free(b, blocks[i]);
    assert_null(mr_buddy_alloc(b, 512)); /* half is free, but no two neighbours */
    for (uint32_t i = 1; i < BLOCKS; i += 2)
        mr_buddy_free(b, blocks[i]);
    void *whole = mr_buddy_alloc(b, bytes);
    assert_ptr_equal(whole, region);
    mr_buddy_free(b, whole);
    mr_buddy_destroy(b);
    free(region);
}

TEST(a_region_of_any_length_is_used_whole)
{
    static const size_t units[] = {1, 2, 3, 5, 7, 100, 1023, 1025, 1999};
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        size_t bytes = units[i] * 256 + 128;
        uint8_t *region = region_of(bytes);
        for (uint32_t round = 0; round < 3; round++) {
            struct mr_buddy *b = mr_buddy_create(region, bytes);
            assert_int_equal(mr_buddy_capacity_bytes(b), units[i] * 256);
            size_t got = 0;
            while (mr_buddy_alloc(b, 1) != NULL)
                got++;
            assert_int_equal(got, units[i]);
            assert_int_equal(mr_buddy_used_bytes(b), units[i] * 256);
            mr_buddy_destroy(b);
        }
        free(region);
    }
}

TEST(the_last_small_block_freed_is_the_next_one_given)
{
    uint8_t *region = region_of(1u << 16);
    struct mr_buddy *b = mr_buddy_create(region, 1u << 16);
    void *first = mr_buddy_alloc(b, 300), *second = mr_buddy_alloc(b, 300);
    assert_ptr_not_equal(first, second);
    mr_buddy_free(b, first);
    mr_buddy_free(b, second);
    assert_ptr_equal(mr_buddy_alloc(b, 400), second);
    assert_ptr_equal(mr_buddy_alloc(b, 500), first);
    mr_buddy_destroy(b);
    free(region);
}

/* ---- against a model: a map of who owns each 256-byte unit ---- */

enum { MODEL_UNITS = 1500, LIVE_MAX = 400 };
struct live {
    uint8_t *p;
    size_t bytes;
    uint8_t mark;
};

struct model {
    uint8_t *region;
    struct mr_buddy *b;
    bool owned[MODEL_UNITS];
    struct live live[LIVE_MAX];
    uint32_t live_count;
    size_t used;
};

/* Whether an aligned power-of-two run of free units exists: then the allocator must find one. */
static bool model_has_room(const struct model *m, size_t block)
{
    size_t need = block / 256;
    for (size_t at = 0; at + need <= MODEL_UNITS; at += need) {
        size_t free_units = 0;
        while (free_units < need && !m->owned[at + free_units])
            free_units++;
        if (free_units == need)
            return true;
    }
    return false;
}

static void model_alloc(struct model *m, size_t bytes, uint8_t mark)
{
    size_t block = mr_buddy_block_bytes(bytes);
    bool room = model_has_room(m, block);
    uint8_t *p = mr_buddy_alloc(m->b, bytes);
    assert_int_equal(p != NULL, room);
    if (p == NULL)
        return;
    size_t at = (size_t)(p - m->region);
    assert_int_equal(at % block, 0);
    assert_true(at + block <= MODEL_UNITS * 256);
    for (size_t i = at / 256; i < (at + block) / 256; i++) {
        assert_false(m->owned[i]);
        m->owned[i] = true;
    }
    memset(p, mark, bytes);
    m->used += block;
    m->live[m->live_count++] = (struct live){p, bytes, mark};
}

static void model_free(struct model *m, uint32_t index)
{
    struct live l = m->live[index];
    size_t at = (size_t)(l.p - m->region), block = mr_buddy_block_bytes(l.bytes);
    for (size_t i = 0; i < l.bytes; i++)
        assert_int_equal(l.p[i], l.mark); /* nobody else wrote here */
    for (size_t i = at / 256; i < (at + block) / 256; i++)
        m->owned[i] = false;
    mr_buddy_free(m->b, l.p);
    m->used -= block;
    m->live[index] = m->live[--m->live_count];
}

TEST(random_use_agrees_with_a_model)
{
    static struct model m;
    for (uint64_t run = 0; run < 8; run++) {
        uint64_t seed = run;
        memset(&m, 0, sizeof(m));
        m.region = region_of(MODEL_UNITS * 256);
        m.b = mr_buddy_create(m.region, MODEL_UNITS * 256);
        for (uint32_t step = 0; step < 4000; step++) {
            uint64_t r = next_random(&seed);
            bool grow = (step / 500) % 2 == 0; /* fill up, drain, ... */
            bool alloc = m.live_count == 0 || (m.live_count < LIVE_MAX && (r & 7) < (grow ? 6u : 2u));
            if (alloc)
                model_alloc(&m, (size_t)1 + (next_random(&seed) % (UINT64_C(64) << ((r >> 8) % 12))),
                            (uint8_t)step);
            else
                model_free(&m, (uint32_t)((r >> 16) % m.live_count));
            assert_int_equal(mr_buddy_used_bytes(m.b), m.used);
        }
        while (m.live_count > 0)
            model_free(&m, m.live_count - 1);
        assert_int_equal(mr_buddy_used_bytes(m.b), 0);
        assert_ptr_equal(mr_buddy_alloc(m.b, 1024 * 256), m.region); /* all merged again */
        mr_buddy_destroy(m.b);
        free(m.region);
    }
}

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>

/* AddressSanitizer notices what touches free blocks, and the memory beyond the last block in use. */
TEST(what_is_not_in_use_is_marked)
{
    enum { BLOCK = 4096, FAR = 8 << 20, BYTES = 64 << 20, NEAR = 1 << 20 };
    uint8_t *region = region_of(BYTES);
    struct mr_buddy *b = mr_buddy_create(region, BYTES);
    assert_ptr_equal(__asan_region_is_poisoned(region, 1), region);
    uint8_t *small = mr_buddy_alloc(b, BLOCK - 100);
    assert_null(__asan_region_is_poisoned(small, BLOCK - 100));
    for (uint8_t *beyond = small + BLOCK - 100; beyond < small + NEAR; beyond++)
        assert_true(__asan_address_is_poisoned(beyond));
    uint8_t *large = mr_buddy_alloc(b, FAR);
    assert_true(large >= small + FAR);
    assert_null(__asan_region_is_poisoned(large, FAR));
    for (uint8_t *between = small + BLOCK; between < large; between += MR_BUDDY_BLOCK_BYTES_MIN)
        assert_true(__asan_address_is_poisoned(between));
    assert_true(__asan_address_is_poisoned(large + FAR));
    mr_buddy_free(b, small);
    assert_true(__asan_address_is_poisoned(small));
    mr_buddy_destroy(b);
    assert_null(__asan_region_is_poisoned(region, BYTES));
    free(region);
}
#endif
