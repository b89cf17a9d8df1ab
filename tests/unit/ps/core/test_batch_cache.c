/* Batches kept by id: found, replaced, expired, bounded in number and bytes. */
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/bytes.h"
#include "ps/core/batch_cache.h"
#include "tests/test.h"

#define SECRET UINT64_C(0xd6e8feb86659fd93)
#define TTL_US 1000

static int make_arena(void **state)
{
    *state = ps_arena_create(64 * MR_MIB);
    return *state == NULL;
}

static int destroy_arena(void **state)
{
    ps_arena_destroy(*state);
    return 0;
}

static const struct ps_batch_part shape = {.feature = 3, .samples = 8, .slots = 2, .dim = 4, .key_count = 20};

static enum mr_status add_shapes(struct ps_batch_cache *c, uint64_t id, bool read_only,
                                 const struct ps_batch_part *shapes, uint32_t part_count, uint64_t now_us,
                                 struct ps_batch **out)
{
    enum mr_status status = ps_batch_prepare(c, id, read_only, shapes, part_count, out);
    if (status == MR_OK)
        ps_batch_publish(c, *out, now_us);
    return status;
}

static struct ps_batch *batch_cache_add(struct ps_batch_cache *c, uint64_t id, uint64_t now_us)
{
    struct ps_batch *b = NULL;
    assert_int_equal(add_shapes(c, id, false, &shape, 1, now_us, &b), MR_OK);
    return b;
}

TEST(keeps_what_is_written)
{
    struct ps_batch_cache *c = ps_batch_cache_create(*state, 16, MR_MIB, TTL_US, SECRET);
    struct ps_batch_part shapes[2] = {shape,
                                      {.feature = 9, .samples = 1, .slots = 1, .dim = 1024, .key_count = 0}};
    struct ps_batch *b;
    assert_int_equal(add_shapes(c, 77, true, shapes, 2, 0, &b), MR_OK);
    assert_true(b->read_only);
    for (uint32_t p = 0; p < 2; p++) {
        memset(b->parts[p].keys, 0x11, b->parts[p].key_count * sizeof(uint64_t));
        memset(b->parts[p].offsets, 0x22, (b->parts[p].samples * b->parts[p].slots + 1) * sizeof(uint32_t));
        memset(b->parts[p].values, 0x33,
               b->parts[p].samples * b->parts[p].slots * b->parts[p].dim * sizeof(float));
    }
    assert_ptr_equal(ps_batch_find(c, 77), b);
    assert_null(ps_batch_find(c, 78));
    assert_null(ps_batch_part_of(b, 4));
    struct ps_batch_part *part = ps_batch_part_of(b, 3);
    assert_int_equal(part->keys[19], 0x1111111111111111);
    assert_int_equal(part->offsets[16], 0x22222222);
    assert_int_equal(ps_batch_part_of(b, 9)->dim, 1024);
    assert_int_equal((uintptr_t)part->values % 64, 0);
    ps_batch_cache_destroy(c);
}

TEST(the_same_id_takes_the_place)
{
    struct ps_batch_cache *c = ps_batch_cache_create(*state, 1, MR_MIB, TTL_US, SECRET);
    batch_cache_add(c, 5, 0);
    struct ps_batch_part bigger = shape;
    bigger.key_count = 21;
    struct ps_batch *b;
    assert_int_equal(add_shapes(c, 5, false, &bigger, 1, 0, &b), MR_OK);
    assert_int_equal(ps_batch_cache_count(c), 1);
    assert_int_equal(ps_batch_find(c, 5)->parts[0].key_count, 21);
    ps_batch_cache_destroy(c);
}

TEST(is_bounded_in_number)
{
    struct ps_batch_cache *c = ps_batch_cache_create(*state, 3, MR_MIB, TTL_US, SECRET);
    struct ps_batch *b = NULL;
    for (uint64_t id = 0; id < 3; id++)
        batch_cache_add(c, id, 0);
    assert_int_equal(add_shapes(c, 3, false, &shape, 1, 0, &b), MR_BATCH_CACHE_FULL);
    assert_null(b);
    assert_null(ps_batch_find(c, 3));
    ps_batch_remove(c, ps_batch_find(c, 1));
    batch_cache_add(c, 3, 0);
    assert_non_null(ps_batch_find(c, 0));
    assert_null(ps_batch_find(c, 1));
    ps_batch_cache_destroy(c);
}

TEST(is_bounded_in_bytes)
{
    struct ps_batch_cache *c = ps_batch_cache_create(*state, 1000, MR_MIB, TTL_US, SECRET);
    struct ps_batch_part big = shape, huge = shape;
    struct ps_batch *b;
    big.key_count = 50000; /* 400 kB */
    huge.key_count = 200000;
    assert_int_equal(add_shapes(c, 1, false, &huge, 1, 0, &b), MR_TOO_LARGE);
    assert_int_equal(add_shapes(c, 1, false, &big, 1, 0, &b), MR_OK);
    assert_int_equal(add_shapes(c, 2, false, &big, 1, 0, &b), MR_OK);
    assert_int_equal(add_shapes(c, 3, false, &big, 1, 0, &b), MR_BATCH_CACHE_FULL);
    assert_true(ps_batch_cache_bytes(c) <= MR_MIB);
    ps_batch_remove(c, ps_batch_find(c, 1));
    assert_int_equal(add_shapes(c, 3, false, &big, 1, 0, &b), MR_OK);
    /* Spare memory of one size is given back for another. */
    ps_batch_cache_clear(c);
    big.key_count = 90000;
    assert_int_equal(add_shapes(c, 4, false, &big, 1, 0, &b), MR_OK);
    ps_batch_cache_destroy(c);
}

TEST(tells_when_tables_use_up_the_memory)
{
    struct ps_arena *arena = ps_arena_create(16 * MR_MIB);
    struct ps_batch_cache *c = ps_batch_cache_create(arena, 10, 64 * MR_MIB, TTL_US, SECRET);
    assert_non_null(c);
    struct ps_batch_part big = shape;
    struct ps_batch *b;
    big.key_count = 4000000;
    assert_int_equal(add_shapes(c, 1, false, &big, 1, 0, &b), MR_OUT_OF_MEMORY);
    ps_batch_cache_destroy(c);
    ps_arena_destroy(arena);
}

TEST(expires_in_the_order_of_last_use)
{
    struct ps_batch_cache *c = ps_batch_cache_create(*state, 16, MR_MIB, TTL_US, SECRET);
    batch_cache_add(c, 1, 0);
    batch_cache_add(c, 2, 100);
    batch_cache_add(c, 3, 200);
    assert_int_equal(ps_batch_expire(c, TTL_US - 1, 10), 0);
    ps_batch_touch(c, ps_batch_find(c, 1), 500);
    assert_int_equal(ps_batch_expire(c, TTL_US + 200, 1), 1); /* no more than asked for */
    assert_null(ps_batch_find(c, 2));
    assert_int_equal(ps_batch_expire(c, TTL_US + 200, 10), 1);
    assert_null(ps_batch_find(c, 3));
    assert_non_null(ps_batch_find(c, 1));
    assert_true(ps_batch_expired(c, 2));
    assert_true(ps_batch_expired(c, 3));
    assert_false(ps_batch_expired(c, 1));
    batch_cache_add(c, 2, 600);
    assert_false(ps_batch_expired(c, 2)); /* fed again */
    ps_batch_cache_clear(c);
    assert_false(ps_batch_expired(c, 3));
    ps_batch_cache_destroy(c);
}

TEST(remembers_the_last_expired_only)
{
    struct ps_batch_cache *c = ps_batch_cache_create(*state, 4, MR_MIB, TTL_US, SECRET);
    for (uint64_t id = 0; id <= PS_EXPIRED_IDS_MAX; id++) {
        batch_cache_add(c, id, id);
        assert_int_equal(ps_batch_expire(c, id + TTL_US, 1), 1);
    }
    assert_false(ps_batch_expired(c, 0));
    assert_true(ps_batch_expired(c, 1));
    assert_true(ps_batch_expired(c, PS_EXPIRED_IDS_MAX));
    ps_batch_cache_destroy(c);
}

/* Against a plain list, with ids that collide in the index as often as not. */
TEST(agrees_with_a_list)
{
    enum { IDS = 64, KEPT_MAX = 32, TURNS = 20000 };
    struct ps_batch_cache *c = ps_batch_cache_create(*state, KEPT_MAX, MR_MIB, TTL_US, SECRET);
    bool is_kept[IDS] = {false};
    uint32_t kept = 0, random = 12345;
    for (uint32_t i = 0; i < TURNS; i++) {
        random = random * 1664525 + 1013904223;
        uint32_t id = random >> 26;
        struct ps_batch *b = ps_batch_find(c, id);
        assert_int_equal(b != NULL, is_kept[id]);
        if (b != NULL) {
            assert_int_equal(b->id, id);
            ps_batch_remove(c, b);
            is_kept[id] = false;
            kept--;
        } else if (kept < KEPT_MAX) {
            batch_cache_add(c, id, i);
            is_kept[id] = true;
            kept++;
        }
        assert_int_equal(ps_batch_cache_count(c), kept);
    }
    ps_batch_cache_destroy(c);
}

TEST(a_prepared_batch_is_found_once_it_is_published)
{
    struct ps_batch_cache *c = ps_batch_cache_create(*state, 2, MR_MIB, TTL_US, SECRET);
    struct ps_batch *b = NULL, *other = NULL;
    struct ps_batch *old = batch_cache_add(c, 5, 0);
    batch_cache_add(c, 6, 0);
    assert_int_equal(ps_batch_prepare(c, 7, false, &shape, 1, &b), MR_BATCH_CACHE_FULL);
    assert_int_equal(ps_batch_prepare(c, 5, false, &shape, 1, &b), MR_OK);
    assert_ptr_equal(ps_batch_find(c, 5), old);
    assert_int_equal(ps_batch_cache_count(c), 2);
    assert_int_equal(add_shapes(c, 6, false, &shape, 1, 0, &other), MR_OK); /* beside it */
    assert_int_equal(ps_batch_expire(c, TTL_US, 10), 2);
    assert_null(ps_batch_find(c, 5));
    ps_batch_publish(c, b, TTL_US);
    assert_ptr_equal(ps_batch_find(c, 5), b);
    assert_false(ps_batch_expired(c, 5));
    assert_true(ps_batch_expired(c, 6));
    assert_int_equal(ps_batch_expire(c, 2 * TTL_US - 1, 10), 0);
    assert_int_equal(ps_batch_prepare(c, 8, false, &shape, 1, &other), MR_OK);
    ps_batch_remove(c, other); /* given up */
    assert_int_equal(ps_batch_cache_count(c), 1);
    ps_batch_remove(c, b);
    assert_int_equal(ps_batch_cache_bytes(c), 0);
    ps_batch_cache_destroy(c);
}

TEST(a_pinned_batch_outlives_its_removal)
{
    struct ps_batch_cache *c = ps_batch_cache_create(*state, 2, MR_MIB, TTL_US, SECRET);
    struct ps_batch *b = batch_cache_add(c, 5, 0);
    ps_batch_pin(b);
    ps_batch_pin(b);
    ps_batch_remove(c, b);
    assert_null(ps_batch_find(c, 5));
    struct ps_batch *again = batch_cache_add(c, 5, 0);
    batch_cache_add(c, 6, 0);
    assert_ptr_not_equal(again->parts, b->parts);
    memset(b->parts[0].keys, 0x11, b->parts[0].key_count * sizeof(uint64_t));
    ps_batch_unpin(c, b);
    ps_batch_remove(c, b); /* once more: it is gone already */
    memset(b->parts[0].keys, 0x22, b->parts[0].key_count * sizeof(uint64_t));
    ps_batch_unpin(c, b);
    ps_batch_pin(again);
    ps_batch_unpin(c, again);
    assert_ptr_equal(ps_batch_find(c, 5), again);
    ps_batch_remove(c, again);
    ps_batch_remove(c, ps_batch_find(c, 6));
    assert_int_equal(ps_batch_cache_bytes(c), 0);
    ps_batch_cache_destroy(c);
}

TEST(gives_everything_back)
{
    size_t before = ps_arena_allocated_bytes(*state);
    struct ps_batch_cache *c = ps_batch_cache_create(*state, 100, 16 * MR_MIB, TTL_US, SECRET);
    for (uint64_t id = 0; id < 100; id++)
        batch_cache_add(c, id, 0);
    ps_batch_cache_destroy(c);
    assert_int_equal(ps_arena_allocated_bytes(*state), before);
}

int main(void)
{
    return tests_run(make_arena, destroy_arena);
}
