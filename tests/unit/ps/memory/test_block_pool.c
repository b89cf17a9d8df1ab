/* Blocks: sizes, use again, and the limit. */
#include "dataplane/wire/base/bytes.h"
#include "ps/memory/block_pool.h"
#include "tests/test.h"

TEST(sizes_waste_an_eighth_at_most)
{
    for (size_t bytes = 1; bytes < 40 * MR_MIB; bytes = bytes * 9 / 8 + 1) {
        size_t rounded = ps_block_pool_round(bytes);
        assert_true(rounded >= bytes);
        assert_true(rounded <= 4096 || rounded - bytes <= bytes / 8);
        assert_int_equal(ps_block_pool_round(rounded), rounded);
        assert_int_equal(rounded % 64, 0);
    }
}

TEST(a_block_is_used_again)
{
    struct ps_arena *arena = ps_arena_create(64 * MR_MIB);
    struct ps_block_pool pool;
    ps_block_pool_init(&pool, arena, 16 * MR_MIB);
    uint8_t *block = ps_block_pool_alloc(&pool, 100000);
    assert_non_null(block);
    ps_block_pool_free(&pool, block, 100000);
    assert_int_equal(pool.used_bytes, 0);
    assert_int_equal(pool.spare_bytes, ps_block_pool_round(100000));
    assert_ptr_equal(ps_block_pool_alloc(&pool, 100001), block); /* the same size after rounding */
    assert_int_equal(pool.spare_bytes, 0);
    ps_block_pool_free(&pool, block, 100001);
    ps_block_pool_drain(&pool);
    assert_int_equal(ps_arena_allocated_bytes(arena), 0);
    ps_arena_destroy(arena);
}

TEST(the_limit_counts_spare_blocks_too)
{
    struct ps_arena *arena = ps_arena_create(64 * MR_MIB);
    struct ps_block_pool pool;
    uint8_t *blocks[4];
    ps_block_pool_init(&pool, arena, 4 * MR_MIB);
    for (int i = 0; i < 4; i++) {
        blocks[i] = ps_block_pool_alloc(&pool, MR_MIB);
        assert_non_null(blocks[i]);
    }
    assert_null(ps_block_pool_alloc(&pool, 1));
    for (int i = 0; i < 4; i++)
        ps_block_pool_free(&pool, blocks[i], MR_MIB);
    uint8_t *big = ps_block_pool_alloc(&pool, 3 * MR_MIB); /* spare ones make way */
    assert_non_null(big);
    assert_true(pool.used_bytes + pool.spare_bytes <= pool.limit_bytes);
    assert_true(ps_arena_allocated_bytes(arena) <= 4 * MR_MIB);
    ps_block_pool_free(&pool, big, 3 * MR_MIB);
    ps_block_pool_drain(&pool);
    ps_arena_destroy(arena);
}

TEST(few_spare_blocks_are_held_back)
{
    struct ps_arena *arena = ps_arena_create(64 * MR_MIB);
    struct ps_block_pool pool;
    uint8_t *blocks[PS_BLOCK_POOL_SPARE_MAX + 10];
    ps_block_pool_init(&pool, arena, 64 * MR_MIB);
    for (uint32_t i = 0; i < PS_BLOCK_POOL_SPARE_MAX + 10; i++)
        blocks[i] = ps_block_pool_alloc(&pool, 5000);
    for (uint32_t i = 0; i < PS_BLOCK_POOL_SPARE_MAX + 10; i++)
        ps_block_pool_free(&pool, blocks[i], 5000);
    assert_int_equal(pool.spare_count, PS_BLOCK_POOL_SPARE_MAX);
    ps_block_pool_drain(&pool);
    assert_int_equal(ps_arena_allocated_bytes(arena), 0);
    ps_arena_destroy(arena);
}
