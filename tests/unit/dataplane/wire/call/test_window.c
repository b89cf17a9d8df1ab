#include "dataplane/wire/call/window.h"
#include "tests/test.h"

#define SEGMENT  1000u
#define MOST     256000u
#define LEAST    (MR_WINDOW_SEGMENTS_LEAST * SEGMENT)
#define RTT_US   100u
#define ROUND_US (RTT_US + MR_QUEUE_TARGET_US)

static struct mr_window w;
static uint64_t now_us;

static int setup(void **state)
{
    mr_window_init(&w, MOST, SEGMENT);
    now_us = 1000000;
    return 0;
}

/* One round trip with samples between `least_us` and twice that. Returns how often the window shrank. */
static uint32_t round_trip(uint32_t least_us)
{
    uint32_t shrank = 0;
    for (uint32_t i = 0; i < 10; i++) {
        shrank += mr_window_delay(&w, now_us, RTT_US, i == 5 ? least_us : 2 * least_us);
        now_us += ROUND_US / 10;
    }
    return shrank;
}

TEST(starts_with_all, setup)
{
    assert_int_equal(w.bytes, MOST);
    for (uint32_t i = 0; i < 100; i++)
        assert_int_equal(round_trip(10), 0);
    assert_int_equal(w.bytes, MOST);
    mr_window_init(&w, 1, SEGMENT);
    assert_int_equal(w.bytes, LEAST);
}

TEST(a_queue_at_the_target_is_well, setup)
{
    for (uint32_t i = 0; i < 10; i++)
        assert_int_equal(round_trip(mr_window_target_us(&w)), 0);
    assert_int_equal(w.bytes, MOST);
}

TEST(shrinks_by_how_far_the_delay_is_over, setup)
{
    uint32_t target_us = mr_window_target_us(&w), queue_us = 450;
    round_trip(queue_us);
    assert_int_equal(round_trip(0), 1);
    assert_int_equal(w.bytes, MOST - (uint64_t)MOST * 4 * (queue_us - target_us) / (5 * queue_us));
}

TEST(never_by_more_than_half_nor_more_often_than_once_a_round, setup)
{
    uint32_t before = w.bytes, shrank = 0;
    round_trip(100 * MR_QUEUE_TARGET_US);
    while (w.bytes > LEAST) {
        assert_int_equal(round_trip(100 * MR_QUEUE_TARGET_US), 1);
        assert_true(w.bytes >= before / 2);
        before = w.bytes;
        shrank++;
    }
    assert_int_equal(shrank, 6);
    assert_int_equal(round_trip(100 * MR_QUEUE_TARGET_US), 0); /* the least is the least */
    assert_int_equal(w.bytes, LEAST);
}

TEST(one_packet_that_was_quick_shows_that_there_is_no_queue, setup)
{
    for (uint32_t i = 0; i < 1000; i++)
        mr_window_delay(&w, now_us += ROUND_US / 10, RTT_US, i % 8 == 0 ? 20 : 10000);
    assert_int_equal(w.bytes, MOST);
}

/* Its packets waited for 50 ms, and it takes them all at once. */
TEST(a_process_that_was_asleep_halves_at_most_once, setup)
{
    round_trip(10);
    now_us += 50000;
    uint32_t shrank = 0;
    for (uint32_t i = 0; i < 500; i++)
        shrank += mr_window_delay(&w, now_us, RTT_US, 50000);
    now_us += ROUND_US;
    shrank += round_trip(10);
    assert_true(shrank <= 1);
    assert_true(w.bytes >= MOST / 2);
    for (uint32_t i = 0; i < 16; i++)
        round_trip(10);
    assert_int_equal(w.bytes, MOST); /* and is back within some milliseconds */
}

TEST(grows_faster_the_longer_it_is_calm, setup)
{
    (void)mr_window_collapse(&w);
    assert_int_equal(w.bytes, LEAST);
    for (uint32_t i = 0; i < 4; i++) /* each is judged with the next one's first packet */
        round_trip(10);
    assert_int_equal(w.bytes, LEAST + (1 + 2 + 3) * SEGMENT);
    uint32_t rounds = 4;
    for (; w.bytes < MOST; rounds++)
        round_trip(10);
    assert_int_in_range(rounds, 20, 24);
}

TEST(a_hundredth_lost_is_bad_luck, setup)
{
    for (uint32_t i = 0; i < 100000; i++)
        mr_window_segments(&w, now_us += 10, RTT_US, 99, 1);
    assert_int_equal(w.bytes, MOST);
}

TEST(a_tenth_lost_is_a_full_buffer, setup)
{
    uint32_t shrank = 0;
    for (uint32_t i = 0; i < 5; i++)
        shrank += mr_window_segments(&w, now_us, RTT_US, 9, 1);
    assert_int_equal(shrank, 1);
    assert_int_equal(w.bytes, MOST / 2);
    for (uint32_t i = 0; i < 100; i++)
        shrank += mr_window_segments(&w, now_us + ROUND_US - 1, RTT_US, 9, 1);
    assert_int_equal(shrank, 1); /* once a round trip */
    now_us += ROUND_US;
    for (uint32_t i = 0; i < 5; i++)
        shrank += mr_window_segments(&w, now_us, RTT_US, 9, 1);
    assert_int_equal(shrank, 2);
}

/* ---- shares of a link ---- */

TEST(a_small_window_puts_up_with_more, setup)
{
    uint32_t before_us = mr_window_target_us(&w);
    assert_int_in_range(before_us, MR_QUEUE_TARGET_US / 2, MR_QUEUE_TARGET_US);
    for (w.bytes = MOST - SEGMENT; w.bytes >= LEAST; w.bytes -= SEGMENT) {
        assert_true(mr_window_target_us(&w) >= before_us);
        before_us = mr_window_target_us(&w);
    }
    assert_int_equal(before_us, MR_QUEUE_TARGET_US * 5 / 2);
    w.bytes = 222 * SEGMENT; /* the figures of docs/protocol.md */
    assert_int_equal(mr_window_target_us(&w), 378);
    w.bytes = 256 * SEGMENT;
    assert_int_equal(mr_window_target_us(&w), 362);
}

/* The same queue for both, as on one link. */
TEST(a_large_and_a_small_one_become_equal, setup)
{
    struct mr_window other;
    mr_window_init(&other, MOST, SEGMENT);
    (void)mr_window_collapse(&other);
    for (uint32_t i = 0; i < 4000; i++) {
        uint32_t queue_us = (w.bytes + other.bytes) / 300; /* through 2.4 Gb/s */
        mr_window_delay(&w, now_us, RTT_US, queue_us);
        mr_window_delay(&other, now_us, RTT_US, queue_us);
        now_us += ROUND_US / 4;
    }
    assert_int_in_range(other.bytes * 10, w.bytes * 8, w.bytes * 12);
}

/* Its queue drains, and then it is what it was. What it hears meanwhile says nothing of its window. */
TEST(a_long_transfer_slows_down_now_and_then, setup)
{
    uint64_t slow_us = 0, begun_us = now_us, first_us = 0;
    while (now_us < begun_us + 1000000) {
        mr_window_delay(&w, now_us, RTT_US, 10);
        if (w.bytes == LEAST) {
            first_us = first_us == 0 ? now_us - begun_us : first_us;
            slow_us += 10;
        } else {
            assert_int_equal(w.bytes, MOST);
        }
        now_us += 10;
    }
    assert_int_in_range(first_us, 1, 4 * MR_SLOWDOWN_FIRST * ROUND_US);
    assert_int_in_range(slow_us, 1000000 / MR_SLOWDOWN_SHARE / 4, 1000000 / MR_SLOWDOWN_SHARE);
}

TEST(two_of_one_clock_slow_down_together, setup)
{
    struct mr_window other;
    uint32_t together = 0;
    mr_window_init(&other, MOST / 2, SEGMENT);
    for (uint32_t i = 0; i < 50000; i++) {
        mr_window_delay(&w, now_us, RTT_US, 10);
        if (i > 1234) /* it comes late, and is farther away */
            mr_window_delay(&other, now_us, 3 * RTT_US, 10);
        if (w.kept_bytes != 0 && other.kept_bytes != 0)
            together++;
        now_us += 10;
    }
    assert_true(together > 50);
}

TEST(what_pauses_by_itself_does_not_slow_down, setup)
{
    for (uint32_t i = 0; i < 5000; i++) {
        mr_window_delay(&w, now_us, RTT_US, 10);
        assert_int_equal(w.bytes, MOST);
        now_us += i % 10 == 0 ? 1000 : 100;
    }
}

TEST(what_is_long_past_is_forgotten, setup)
{
    round_trip(10);
    (void)mr_window_collapse(&w);
    now_us += MR_WINDOW_FORGET_US;
    mr_window_delay(&w, now_us, RTT_US, 10000);
    assert_int_equal(w.bytes, MOST);
}

/* The clock starts with the machine. */
TEST(the_base_is_known_in_the_first_minute_too)
{
    struct mr_base_delay base = {0};
    assert_int_equal(mr_base_delay_sample(&base, 1, 50), 0);
    assert_int_equal(mr_base_delay_sample(&base, 2000, 70), 20);
    assert_int_equal(mr_base_delay_sample(&base, MR_BASE_INTERVAL_US - 1, 60), 10);
    assert_int_equal(mr_base_delay_sample(&base, MR_BASE_INTERVAL_US, 60), 10);
}

TEST(the_base_is_the_least_of_ten_minutes)
{
    struct mr_base_delay base = {0};
    uint64_t minute_us = MR_BASE_INTERVAL_US;
    assert_int_equal(mr_base_delay_sample(&base, 100 * minute_us, 50), 0);
    assert_int_equal(mr_base_delay_sample(&base, 100 * minute_us, 30), 0);
    assert_int_equal(mr_base_delay_sample(&base, 100 * minute_us, 70), 40);
    for (uint32_t i = 1; i < 10; i++)
        assert_int_equal(mr_base_delay_sample(&base, (100 + i) * minute_us, 1000 + i), 970 + i);
    assert_int_equal(mr_base_delay_sample(&base, 110 * minute_us, 1100), 99); /* 1001 is the least now */
    assert_int_equal(mr_base_delay_sample(&base, 117 * minute_us, 1100), 92); /* 1008 */
    assert_int_equal(mr_base_delay_sample(&base, 500 * minute_us, 9000), 0);
    assert_int_equal(mr_base_delay_sample(&base, 500 * minute_us, 9001), 1);
}
