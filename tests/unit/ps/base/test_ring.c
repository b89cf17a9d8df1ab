#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "ps/base/ring.h"
#include "tests/test.h"

TEST(test_first_in_first_out_and_bounded)
{
    struct ps_ring ring = {0};
    uintptr_t buffer;
    assert_false(ps_ring_take(&ring, &buffer));
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < PS_RING_CAPACITY; i++)
            assert_true(ps_ring_put(&ring, i + round));
        assert_false(ps_ring_put(&ring, 7));
        assert_int_equal(ps_ring_count(&ring), PS_RING_CAPACITY);
        for (uint32_t i = 0; i < PS_RING_CAPACITY; i++) {
            assert_true(ps_ring_take(&ring, &buffer));
            assert_int_equal(buffer, i + round);
        }
        assert_int_equal(ps_ring_count(&ring), 0);
    }
}

TEST(test_counts_wrap_around)
{
    struct ps_ring ring = {0};
    uintptr_t buffer;
    ring.put_count = ring.take_count = UINT32_MAX - 2;
    for (uint32_t i = 0; i < PS_RING_CAPACITY; i++)
        assert_true(ps_ring_put(&ring, i));
    assert_false(ps_ring_put(&ring, 7));
    for (uint32_t i = 0; i < PS_RING_CAPACITY; i++) {
        assert_true(ps_ring_take(&ring, &buffer));
        assert_int_equal(buffer, i);
    }
    assert_false(ps_ring_take(&ring, &buffer));
}

/* What a buffer holds must be visible to the thread that takes its number: the thread sanitizer watches. */
#define TURNS 20000u
static struct ps_ring there, back;
static uint32_t content[4];

static void *producer(void *arg)
{
    (void)arg;
    for (uint32_t turn = 0; turn < TURNS;) {
        uintptr_t buffer;
        if (!ps_ring_take(&back, &buffer)) {
            (void)sched_yield();
            continue;
        }
        content[buffer] = turn++;
        (void)ps_ring_put(&there, buffer);
    }
    return NULL;
}

TEST(test_two_threads)
{
    pthread_t thread;
    for (uint32_t i = 0; i < 4; i++)
        assert_true(ps_ring_put(&back, i));
    assert_int_equal(pthread_create(&thread, NULL, producer, NULL), 0);
    for (uint32_t turn = 0; turn < TURNS;) {
        uintptr_t buffer;
        if (!ps_ring_take(&there, &buffer)) {
            (void)sched_yield();
            continue;
        }
        assert_int_equal(content[buffer], turn);
        turn++;
        assert_true(ps_ring_put(&back, buffer));
    }
    pthread_join(thread, NULL);
}
