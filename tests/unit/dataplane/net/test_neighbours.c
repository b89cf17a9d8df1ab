#include <stdlib.h>
#include "dataplane/net/neighbours.h"
#include "tests/test.h"

static const uint8_t ip[16] = {[10] = 0xff, 0xff, 10, 0, 0, 2}, other[16] = {[10] = 0xff, 0xff, 10, 0, 0, 3};
static const uint8_t mac[6] = {2, 0x80, 3, 4, 5, 0xff}, later[6] = {2, 1, 1, 1, 1, 1};

static int setup(void **state)
{
    *state = calloc(1, sizeof(struct dp_neighbours));
    return *state == NULL;
}

static int teardown(void **state)
{
    free(*state);
    return 0;
}

TEST(one_that_is_not_known_is_asked_for, setup, teardown)
{
    struct dp_neighbours *n = *state;
    uint64_t now_us = 5;
    uint8_t found[6];
    bool ask;
    assert_false(dp_neighbour_find(n, ip, now_us, found, &ask));
    assert_true(ask);
    assert_false(dp_neighbour_find(n, ip, now_us + DP_NEIGHBOUR_ASK_US - 1, found, &ask));
    assert_false(ask); /* it was, a moment ago */
    assert_false(dp_neighbour_find(n, ip, now_us + DP_NEIGHBOUR_ASK_US, found, &ask));
    assert_true(ask);
    assert_false(dp_neighbour_find(n, other, now_us, found, &ask));
    assert_true(ask);
}

TEST(one_that_answers_is_known, setup, teardown)
{
    struct dp_neighbours *n = *state;
    uint64_t now_us = 5;
    uint8_t found[6];
    bool ask;
    (void)dp_neighbour_find(n, ip, now_us, found, &ask);
    (void)dp_neighbour_find(n, other, now_us, found, &ask);
    dp_neighbour_learn(n, ip, mac);
    assert_true(dp_neighbour_find(n, ip, now_us + DP_NEIGHBOUR_REFRESH_US - 1, found, &ask));
    assert_false(ask);
    assert_memory_equal(found, mac, 6);
    assert_false(dp_neighbour_find(n, other, now_us, found, &ask));
    /* It is asked again now and then, and goes on meanwhile. */
    assert_true(dp_neighbour_find(n, ip, now_us + DP_NEIGHBOUR_REFRESH_US, found, &ask));
    assert_true(ask);
    dp_neighbour_learn(n, ip, later);
    assert_true(dp_neighbour_find(n, ip, now_us + DP_NEIGHBOUR_REFRESH_US, found, &ask));
    assert_memory_equal(found, later, 6);
}

TEST(who_was_not_asked_for_is_not_kept, setup, teardown)
{
    struct dp_neighbours *n = *state;
    uint8_t found[6];
    bool ask;
    dp_neighbour_learn(n, ip, mac);
    assert_int_equal(n->count, 0);
    assert_false(dp_neighbour_find(n, ip, 5, found, &ask));
}

/* Each half of an address counts. */
TEST(addresses_of_both_families_are_told_apart, setup, teardown)
{
    static const uint8_t same_end[16] = {0xfd, [8] = 0, 0, 0xff, 0xff, 10, 0, 0, 2};
    struct dp_neighbours *n = *state;
    uint8_t found[6];
    bool ask;
    (void)dp_neighbour_find(n, ip, 5, found, &ask);
    (void)dp_neighbour_find(n, same_end, 5, found, &ask);
    assert_true(ask);
    dp_neighbour_learn(n, ip, mac);
    assert_false(dp_neighbour_find(n, same_end, 5, found, &ask));
    dp_neighbour_learn(n, same_end, later);
    assert_true(dp_neighbour_find(n, same_end, 5, found, &ask));
    assert_memory_equal(found, later, 6);
    assert_true(dp_neighbour_find(n, ip, 5, found, &ask));
    assert_memory_equal(found, mac, 6);
}

/* The one that was looked up longest ago leaves; those in use stay, and are known. */
TEST(another_takes_the_place_of_the_least_used, setup, teardown)
{
    struct dp_neighbours *n = *state;
    uint64_t now_us = 5;
    uint8_t found[6];
    bool ask;
    (void)dp_neighbour_find(n, ip, now_us, found, &ask);
    dp_neighbour_learn(n, ip, mac);
    for (uint32_t i = 0; i < 3 * DP_NEIGHBOURS_MAX; i++) {
        const uint8_t many[16] = {0xfd, [14] = (uint8_t)(i >> 8), (uint8_t)i};
        assert_false(dp_neighbour_find(n, many, ++now_us, found, &ask));
        assert_true(ask);
        dp_neighbour_learn(n, many, later);
        assert_true(dp_neighbour_find(n, many, now_us, found, &ask));
        assert_memory_equal(found, later, 6);
        assert_true(dp_neighbour_find(n, ip, now_us, found, &ask));
        assert_memory_equal(found, mac, 6);
    }
    const uint8_t first[16] = {0xfd};

    dp_neighbour_learn(n, first, later); /* it has left, and is asked for again */
    assert_false(dp_neighbour_find(n, first, ++now_us, found, &ask));
    assert_true(ask);
    assert_int_equal(n->count, DP_NEIGHBOURS_MAX);
}
