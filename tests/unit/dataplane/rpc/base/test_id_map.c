
#include "dataplane/rpc/base/id_map.h"
#include "tests/test.h"

#define NODES 5000u

static struct mr_id_node nodes[NODES];

/* As they come in the world: rank and counter. */
static uint64_t id_of(uint32_t i)
{
    return (uint64_t)(i % 3) << 48 | (i / 3 + 1);
}

TEST(finds_what_was_put_in_and_not_removed)
{
    struct mr_id_map map;
    mr_id_map_init(&map);
    assert_null(mr_id_map_get(&map, 1));
    assert_null(mr_id_map_next(&map, NULL));
    for (uint32_t i = 0; i < NODES; i++) {
        nodes[i].id = id_of(i);
        mr_id_map_put(&map, &nodes[i]);
    }
    assert_int_equal(map.count, NODES);
    assert_true(map.bucket_count >= NODES / 4);
    for (uint32_t i = 0; i < NODES; i += 2)
        mr_id_map_remove(&map, &nodes[i]);
    assert_int_equal(map.count, NODES / 2);
    for (uint32_t i = 0; i < NODES; i++)
        assert_ptr_equal(mr_id_map_get(&map, id_of(i)), i % 2 == 0 ? NULL : &nodes[i]);
    mr_id_map_destroy(&map);
    assert_int_equal(map.count, 0);
}

TEST(goes_through_each_once_also_while_they_are_removed)
{
    struct mr_id_map map;
    static uint8_t seen[NODES];
    mr_id_map_init(&map);
    for (uint32_t i = 0; i < NODES; i++) {
        nodes[i].id = id_of(i);
        mr_id_map_put(&map, &nodes[i]);
    }
    struct mr_id_node *next;
    for (struct mr_id_node *node = mr_id_map_next(&map, NULL); node != NULL; node = next) {
        next = mr_id_map_next(&map, node);
        assert_int_equal(seen[node - nodes]++, 0);
        mr_id_map_remove(&map, node);
    }
    for (uint32_t i = 0; i < NODES; i++)
        assert_int_equal(seen[i], 1);
    assert_int_equal(map.count, 0);
    mr_id_map_destroy(&map);
}
