#include <string.h>
#include "dataplane/capture/ring.h"
#include "tests/test.h"

static void put_counting(struct dp_ring *ring, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t byte = (uint8_t)(ring->end % 251);
        dp_ring_put(ring, &byte, 1);
    }
}

static void expect_oldest(const struct dp_ring *ring, uint32_t count)
{
    uint8_t out[4096];
    dp_ring_peek(ring, out, count);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(out[i], (ring->first + i) % 251);
}

TEST(its_memory_is_a_power_of_two)
{
    struct dp_ring ring;
    assert_true(dp_ring_create(&ring, 5000));
    assert_int_equal(ring.capacity, 8192);
    assert_int_equal(dp_ring_room(&ring), 8192);
    dp_ring_destroy(&ring);
    dp_ring_destroy(&ring); /* once more does no harm */
    assert_false(dp_ring_create(&ring, UINT64_C(1) << 60));
}

TEST(what_was_put_comes_out_across_the_end)
{
    struct dp_ring ring;
    assert_true(dp_ring_create(&ring, 4096));
    put_counting(&ring, 4000);
    expect_oldest(&ring, 4000);
    assert_true(dp_ring_forget(&ring, 3900));
    assert_int_equal(dp_ring_room(&ring), 3996);
    uint8_t piece[500];
    for (uint32_t i = 0; i < sizeof(piece); i++)
        piece[i] = (uint8_t)((ring.end + i) % 251);
    dp_ring_put(&ring, piece, sizeof(piece)); /* around the end, in one go */
    expect_oldest(&ring, 600);
    assert_true(dp_ring_forget(&ring, 4097));
    expect_oldest(&ring, 403);
    dp_ring_destroy(&ring);
}

TEST(it_takes_as_much_as_it_has_room_for)
{
    struct dp_ring ring;
    assert_true(dp_ring_create(&ring, 4096));
    put_counting(&ring, 4096);
    assert_int_equal(dp_ring_room(&ring), 0);
    expect_oldest(&ring, 4096);
    assert_true(dp_ring_forget(&ring, 4096));
    assert_int_equal(dp_ring_room(&ring), 4096);
    dp_ring_destroy(&ring);
}

TEST(only_what_it_keeps_can_be_given_up)
{
    struct dp_ring ring;
    assert_true(dp_ring_create(&ring, 4096));
    put_counting(&ring, 100);
    assert_false(dp_ring_forget(&ring, 101));
    assert_true(dp_ring_forget(&ring, 50));
    assert_true(dp_ring_forget(&ring, 50)); /* a question that came twice */
    assert_false(dp_ring_forget(&ring, 49));
    assert_true(dp_ring_forget(&ring, 100));
    dp_ring_destroy(&ring);
}
