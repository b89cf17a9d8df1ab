#include <string.h>

#include "tools/ckpt/ckpt_map.h"
#include "tests/test.h"

struct seen {
    struct ckpt_range range;
    uint64_t count;
};

static void see(void *arg, struct ckpt_entry *entry)
{
    struct seen *seen = arg;
    assert_true(ckpt_range_has(&seen->range, entry->key));
    assert_int_equal(entry->mark, entry->key + 1);
    assert_int_equal(entry->payload[0], entry->key & 0x7f);
    seen->count++;
}

TEST(test_finds_what_was_added)
{
    struct ckpt_map *map = ckpt_map_create(1 << 20);
    bool is_new;
    for (uint64_t key = 0; key < 10000; key++) {
        struct ckpt_entry *entry =
            ckpt_map_add(map, (uint32_t)(key % 3), key * 7, (uint32_t)(key % 20), &is_new);
        assert_non_null(entry);
        assert_true(is_new);
        assert_int_equal(entry->mark, 0);
        entry->mark = (uint32_t)key;
        memset(entry->payload, (int)(key & 0xff), key % 20);
    }
    for (uint64_t key = 0; key < 10000; key++) {
        const struct ckpt_entry *entry = ckpt_map_find(map, (uint32_t)(key % 3), key * 7);
        assert_non_null(entry);
        assert_int_equal(entry->mark, key);
        for (uint32_t i = 0; i < key % 20; i++)
            assert_int_equal(entry->payload[i], key & 0xff);
        assert_null(ckpt_map_find(map, 3, key * 7));
        assert_ptr_equal(ckpt_map_add(map, (uint32_t)(key % 3), key * 7, 5, &is_new), entry);
        assert_false(is_new);
    }
    ckpt_map_clear(map);
    struct seen seen = {0};
    ckpt_map_each(map, see, &seen);
    assert_int_equal(seen.count, 0);
    assert_null(ckpt_map_find(map, 0, 0));
    ckpt_map_destroy(map);
    ckpt_map_destroy(NULL);
}

/* It refuses before it is so full that a search would not end, and not long before its memory is used. */
TEST(test_is_full_in_time)
{
    for (uint32_t payload = 0; payload < 200; payload += 40) {
        struct ckpt_map *map = ckpt_map_create(0);
        uint64_t count = 0;
        bool is_new;
        while (ckpt_map_add(map, 1, count, payload, &is_new))
            count++;
        const uint64_t bytes = count * (sizeof(struct ckpt_entry) + payload);
        assert_true(bytes <= CKPT_MAP_BYTES_MIN && bytes > CKPT_MAP_BYTES_MIN / 2);
        assert_null(ckpt_map_find(map, 1, count));
        assert_non_null(ckpt_map_find(map, 1, count - 1));
        ckpt_map_destroy(map);
    }
}

TEST(test_keeps_a_range)
{
    struct ckpt_map *map = ckpt_map_create(1 << 20);
    struct seen seen = {.range = {0, CKPT_PLACES}};
    bool is_new;
    for (uint64_t key = 0; key < 5000; key++) {
        struct ckpt_entry *entry = ckpt_map_add(map, 2, key, 1 + (uint32_t)(key % 9), &is_new);
        entry->mark = (uint32_t)key + 1;
        entry->payload[0] = (uint8_t)(key & 0x7f);
    }
    for (uint64_t expected = 5000; seen.range.end > 1; seen.range.end /= 2) {
        uint64_t in_range = 0;
        ckpt_map_keep(map, &seen.range);
        for (uint64_t key = 0; key < 5000; key++) {
            const bool has = ckpt_range_has(&seen.range, key);
            in_range += has;
            assert_true((ckpt_map_find(map, 2, key) != NULL) == has);
        }
        seen.count = 0;
        ckpt_map_each(map, see, &seen);
        assert_int_equal(seen.count, in_range);
        assert_true(in_range <= expected);
        /* Spread evenly: half of the places have half of the keys, about. */
        assert_true(expected < 1000 || (in_range > expected / 2 - 200 && in_range <= 5000));
        expected = in_range;
    }
    ckpt_map_destroy(map);
}
