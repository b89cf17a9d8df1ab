/* Full or delta, and when automatic checkpoints are due. */
#include <string.h>
#include "ps/checkpoint/checkpoint.h"
#include "ps/save/save_policy.h"
#include "tests/test.h"

static const struct ps_save_chain_limits limits = {.deltas_max = 3, .delta_share_percent = 50};

static bool is_possible(const struct ps_save_chain *chain, const char *directory)
{
    return ps_save_chain_no_delta(chain, &limits, directory, true, NULL) == NULL;
}

TEST(a_delta_needs_its_parent)
{
    struct ps_save_chain chain = {0};
    assert_non_null(strstr(ps_save_chain_no_delta(&chain, &limits, "/a", true, NULL), "no checkpoint yet"));
    ps_save_chain_published(&chain, "/a", 7, false, 1000);
    assert_true(is_possible(&chain, "/a"));
    assert_int_equal(chain.last_id, 7);
    assert_non_null(strstr(ps_save_chain_no_delta(&chain, &limits, "/b", true, NULL), "another directory"));
    assert_non_null(strstr(ps_save_chain_no_delta(&chain, &limits, "/a", false, NULL), "no longer"));
    assert_non_null(strstr(ps_save_chain_no_delta(&chain, &limits, "/a", true, "rows went"), "rows went"));
    ps_save_chain_break(&chain, "it failed");
    assert_string_equal(ps_save_chain_no_delta(&chain, &limits, "/a", true, NULL), "it failed");
    ps_save_chain_restored(&chain, "/b", 4, 1, 1000, 10);
    assert_true(is_possible(&chain, "/b"));
    assert_int_equal(chain.last_id, 4);
    assert_int_equal(chain.deltas, 1);
    ps_save_chain_published(&chain, "/b", 5, false, 1000);
    ps_save_chain_break(&chain, NULL);
    assert_non_null(strstr(ps_save_chain_no_delta(&chain, &limits, "/b", true, NULL), "no checkpoint yet"));
}

TEST(trainers_may_ask_so_often)
{
    static struct ps_trainer_saves saves;
    assert_true(ps_trainer_saves_next_us(&saves, 0) == UINT64_MAX);
    for (uint64_t i = 1; i <= 3; i++) {
        assert_true(ps_trainer_saves_next_us(&saves, 3) <= i);
        ps_trainer_saves_note(&saves, i);
    }
    assert_true(ps_trainer_saves_next_us(&saves, 3) == 1 + PS_TRAINER_SAVES_SPAN_US);
    assert_true(ps_trainer_saves_next_us(&saves, 1) == 3 + PS_TRAINER_SAVES_SPAN_US);
    assert_true(ps_trainer_saves_next_us(&saves, 4) <= 3);
    for (uint64_t i = 4; i <= PS_TRAINER_SAVES_MAX + 10; i++)
        ps_trainer_saves_note(&saves, i);
    assert_true(ps_trainer_saves_next_us(&saves, PS_TRAINER_SAVES_MAX) == 11 + PS_TRAINER_SAVES_SPAN_US);
}

TEST(switched_off_there_are_none)
{
    struct ps_save_chain chain = {0};
    struct ps_save_chain_limits off = {.deltas_max = 0, .delta_share_percent = 50};
    ps_save_chain_published(&chain, "/a", 7, false, 1000);
    assert_non_null(strstr(ps_save_chain_no_delta(&chain, &off, "/a", true, NULL), "checkpoint.deltas is 0"));
    assert_true(ps_save_chain_is_long(&chain, &off));
}

/* Also when each delta was asked for: what cannot be read back is not written. */
TEST(a_chain_is_no_longer_than_can_be_read)
{
    struct ps_save_chain chain = {0};
    ps_save_chain_published(&chain, "/a", 1, false, 1000);
    for (uint32_t links = 1; links < PS_CHAIN_LINKS_MAX; links++) {
        assert_true(is_possible(&chain, "/a"));
        ps_save_chain_published(&chain, "/a", 1 + links, true, 1);
    }
    assert_non_null(
        strstr(ps_save_chain_no_delta(&chain, &limits, "/a", true, NULL), "as long as one can be"));
    ps_save_chain_restored(&chain, "/a", PS_CHAIN_LINKS_MAX, PS_CHAIN_LINKS_MAX - 1, 1000, 10);
    assert_false(is_possible(&chain, "/a"));
}

TEST(so_many_deltas_and_then_a_full_one)
{
    struct ps_save_chain chain = {0};
    ps_save_chain_published(&chain, "/a", 1, false, 1000);
    for (uint32_t i = 0; i < 3; i++) {
        assert_false(ps_save_chain_is_long(&chain, &limits));
        ps_save_chain_published(&chain, "/a", 2 + i, true, 1);
    }
    assert_true(ps_save_chain_is_long(&chain, &limits));
    ps_save_chain_published(&chain, "/a", 5, false, 1000);
    assert_false(ps_save_chain_is_long(&chain, &limits));
    assert_int_equal(chain.last_id, 5);
}

TEST(so_many_bytes_and_then_a_full_one)
{
    struct ps_save_chain chain = {0};
    ps_save_chain_published(&chain, "/a", 1, false, 1000);
    ps_save_chain_published(&chain, "/a", 2, true, 500);
    assert_false(ps_save_chain_is_long(&chain, &limits));
    ps_save_chain_published(&chain, "/a", 3, true, 1);
    assert_true(ps_save_chain_is_long(&chain, &limits));
    ps_save_chain_restored(&chain, "/a", 3, 2, UINT64_MAX / 2, UINT64_MAX / 2);
    assert_true(ps_save_chain_is_long(&chain, &limits));
    ps_save_chain_restored(&chain, "/a", 3, 2, UINT64_MAX / 2, UINT64_MAX / 5);
    assert_false(ps_save_chain_is_long(&chain, &limits));
}

TEST(off_it_is_never_due)
{
    struct ps_save_schedule s;
    ps_save_schedule_start(&s, 0, 0, 5, 10);
    assert_false(ps_save_schedule_is_on(&s));
    assert_false(ps_save_schedule_step_is_due(&s, UINT64_MAX));
    assert_false(ps_save_schedule_time_is_due(&s, UINT64_MAX));
}

TEST(steps_are_multiples)
{
    struct ps_save_schedule s;
    ps_save_schedule_start(&s, 100, 0, 250, 0);
    assert_true(ps_save_schedule_is_on(&s));
    assert_int_equal(s.next_step, 300);
    assert_false(ps_save_schedule_step_is_due(&s, 299));
    assert_true(ps_save_schedule_step_is_due(&s, 300));
    ps_save_schedule_began(&s, 300, 0);
    assert_int_equal(s.next_step, 400);
}

/* However many were passed while one was written, one follows. */
TEST(what_was_missed_is_one)
{
    struct ps_save_schedule s;
    ps_save_schedule_start(&s, 100, 1000, 0, 0);
    ps_save_schedule_began(&s, 100, 1000);
    assert_true(ps_save_schedule_step_is_due(&s, 570));
    assert_true(ps_save_schedule_time_is_due(&s, 9500));
    ps_save_schedule_began(&s, 570, 9500);
    assert_false(ps_save_schedule_step_is_due(&s, 570));
    assert_false(ps_save_schedule_time_is_due(&s, 10499));
    assert_true(ps_save_schedule_time_is_due(&s, 10500));
    assert_true(ps_save_schedule_step_is_due(&s, 600));
}

TEST(steps_may_fall)
{
    struct ps_save_schedule s;
    ps_save_schedule_start(&s, 100, 0, 1000000, 0);
    assert_false(ps_save_schedule_step_is_due(&s, 50)); /* begun again */
    assert_int_equal(s.next_step, 100);
    assert_true(ps_save_schedule_step_is_due(&s, 100));
}

TEST(the_last_multiple_has_no_next)
{
    struct ps_save_schedule s;
    ps_save_schedule_start(&s, 100, 0, UINT64_MAX - 5, 0);
    assert_int_equal(s.next_step, UINT64_MAX);
    assert_false(ps_save_schedule_step_is_due(&s, UINT64_MAX - 1));
}

/* A reload of the configuration. The time counts from the last checkpoint on, whenever the interval
 * changes. */
TEST(intervals_change_on_the_way)
{
    struct ps_save_schedule s;
    ps_save_schedule_start(&s, 100, 1000, 0, 5000);
    ps_save_schedule_change(&s, 100, 1000, 250, 5900); /* nothing changes */
    assert_int_equal(s.next_us, 6000);
    assert_int_equal(s.next_step, 100);
    ps_save_schedule_change(&s, 100, 400, 90, 5300);
    assert_false(ps_save_schedule_time_is_due(&s, 5399));
    assert_true(ps_save_schedule_time_is_due(&s, 5400));
    assert_int_equal(s.next_step, 100);
    ps_save_schedule_change(&s, 30, 400, 95, 5300);
    assert_int_equal(s.next_step, 120);
    ps_save_schedule_change(&s, 0, 0, 95, 5500);
    assert_false(ps_save_schedule_is_on(&s));
    ps_save_schedule_change(&s, 0, 700, 95, 9000); /* it was off: from now on */
    assert_false(ps_save_schedule_time_is_due(&s, 9699));
    assert_true(ps_save_schedule_time_is_due(&s, 9700));
}
