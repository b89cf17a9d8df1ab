/* The set of keys that are gone, beside a plain list of flags. */
#include <stdlib.h>
#include <string.h>
#include "ps/base/key_hash.h"
#include "ps/table/tombstones.h"
#include "table_fixture.h"
#include "tests/test.h"

#define SEED        11u
#define UNIVERSE    5000u
#define LIMIT_BYTES ((size_t)64 << 20)

struct fixture {
    struct ps_arena *arena;
    struct ps_key_hasher hasher;
    struct ps_tombstones tombstones;
    size_t bytes_before;
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    f->arena = ps_arena_create(LIMIT_BYTES);
    assert_non_null(f->arena);
    const struct ps_key_secret secret = fixture_key_secret();
    f->hasher = ps_key_hasher_of(SEED, &secret);
    ps_tombstones_init(&f->tombstones, f->arena, &f->hasher);
    f->bytes_before = ps_arena_allocated_bytes(f->arena);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    ps_tombstones_clear(&f->tombstones);
    assert_int_equal(ps_arena_allocated_bytes(f->arena), f->bytes_before);
    ps_arena_destroy(f->arena);
    free(f);
    return 0;
}

/* 0 and all ones among them. */
static uint64_t key_at(uint32_t i)
{
    return i == 0 ? 0 : i == 1 ? UINT64_MAX : i * UINT64_C(0x9e3779b97f4a7c15);
}

static bool tombstones_add(struct fixture *f, uint64_t key)
{
    return ps_tombstones_add(&f->tombstones, key, ps_placed_hash(&f->hasher, key), UINT64_MAX);
}

static void remove_key(struct fixture *f, uint64_t key)
{
    ps_tombstones_remove(&f->tombstones, key, ps_placed_hash(&f->hasher, key));
}

/* Each key of the list comes once, and no other. */
static void take_all(struct fixture *f, bool *is_in, uint32_t most)
{
    uint64_t keys[64];
    uint32_t count, number = 0;
    while ((count = ps_tombstones_take(&f->tombstones, keys, most)) > 0) {
        assert_true(count <= most);
        for (uint32_t i = 0; i < count; i++) {
            for (number = 0; key_at(number) != keys[i]; number++)
                assert_true(number < UNIVERSE);
            assert_true(is_in[number]);
            is_in[number] = false;
        }
    }
    for (number = 0; number < UNIVERSE; number++)
        assert_false(is_in[number]);
    assert_int_equal(f->tombstones.count, 0);
    assert_int_equal(ps_arena_allocated_bytes(f->arena), f->bytes_before);
}

TEST(test_random_keys_come_and_go, set_up, tear_down)
{
    struct fixture *f = *state;
    static bool is_in[UNIVERSE];
    uint64_t rng = fixture_seed("gone");
    for (uint32_t round = 0; round < 20; round++) {
        uint64_t count = 0;
        uint32_t universe = 1 + random_below(&rng, UNIVERSE);
        for (uint32_t i = 0; i < 20000; i++) {
            uint32_t number = random_below(&rng, universe);
            bool adds = random_below(&rng, 3) != 0;
            count += (uint64_t)(adds && !is_in[number]) - (uint64_t)(!adds && is_in[number]);
            is_in[number] = adds;
            if (adds)
                assert_true(tombstones_add(f, key_at(number)));
            else
                remove_key(f, key_at(number));
            assert_int_equal(f->tombstones.count, count);
        }
        take_all(f, is_in, 1 + random_below(&rng, 64));
    }
}

TEST(test_a_full_set_says_so_and_is_empty, set_up, tear_down)
{
    struct fixture *f = *state;
    for (uint32_t i = 0; i < 100; i++)
        assert_true(ps_tombstones_add(&f->tombstones, key_at(i), ps_placed_hash(&f->hasher, key_at(i)), 100));
    assert_false(
        ps_tombstones_add(&f->tombstones, key_at(100), ps_placed_hash(&f->hasher, key_at(100)), 100));
    assert_int_equal(f->tombstones.count, 0);
    assert_int_equal(ps_arena_allocated_bytes(f->arena), f->bytes_before);
}

TEST(test_without_memory_it_says_so_and_is_empty, set_up, tear_down)
{
    struct fixture *f = *state;
    uint64_t key = 1;
    while (tombstones_add(f, key))
        key++;
    assert_int_equal(f->tombstones.count, 0);
    assert_int_in_range(key, LIMIT_BYTES / 24,
                        LIMIT_BYTES / 8); /* bytes a key, growing segments counted twice */
    assert_int_equal(ps_arena_allocated_bytes(f->arena), f->bytes_before);
    assert_true(tombstones_add(f, key));
    remove_key(f, key);
}
