#include "trainer_client/call/answer_time.h"
#include "tests/test.h"

enum { OP = MR_OP_PUSH_GRAD, BYTES = 900000, SENT_US = 1000000 };

static struct mrc_answer_watch watch_of(const struct mrc_answer_times *t)
{
    return mrc_answer_watch(t, OP, BYTES, SENT_US);
}

TEST(nothing_is_known_at_first)
{
    static const struct mrc_answer_times t;
    assert_int_equal(watch_of(&t).until_us, 0);
    assert_false(mrc_answer_crowded(&t, SENT_US));
}

TEST(the_watch_is_around_the_expected_end)
{
    struct mrc_answer_times t = {0};
    for (uint32_t i = 0; i < 20; i++)
        mrc_answer_note(&t, OP, BYTES, 800);
    struct mrc_answer_watch watch = watch_of(&t);
    assert_true(watch.from_us > SENT_US && watch.from_us < SENT_US + 800);
    assert_true(watch.until_us > SENT_US + 800 && watch.until_us < SENT_US + 1600);
    assert_int_equal(mrc_answer_watch(&t, OP, BYTES / 4, SENT_US).until_us, 0); /* another length, ... */
    assert_int_equal(mrc_answer_watch(&t, MR_OP_LOOKUP, BYTES, SENT_US).until_us, 0); /* another call */
    assert_int_equal(mrc_answer_watch(&t, OP, 0, SENT_US).until_us, 0);
}

TEST(it_follows_what_calls_take)
{
    struct mrc_answer_times t = {0};
    mrc_answer_note(&t, OP, BYTES, 4000);
    for (uint32_t i = 0; i < 40; i++)
        mrc_answer_note(&t, OP, BYTES, 500);
    assert_true(watch_of(&t).until_us < SENT_US + 800);
    mrc_answer_note(&t, OP, BYTES, 1000000000); /* a pause of the machine's counts for little */
    assert_true(watch_of(&t).until_us < SENT_US + 1500);
}

TEST(short_and_very_long_calls_are_not_watched)
{
    struct mrc_answer_times t = {0};
    mrc_answer_note(&t, OP, BYTES, 20);
    assert_int_equal(watch_of(&t).until_us, 0);
    mrc_answer_note(&t, OP, BYTES, 60);
    assert_int_not_equal(watch_of(&t).until_us, 0);
    for (uint32_t i = 0; i < 40; i++)
        mrc_answer_note(&t, OP, BYTES, 10);
    assert_int_equal(watch_of(&t).until_us, 0);
    for (uint32_t i = 0; i < 100; i++)
        mrc_answer_note(&t, OP, BYTES, 10 * MRC_ANSWER_US_MAX);
    assert_int_equal(watch_of(&t).until_us, 0);
}

TEST(who_is_kept_away_spins_no_more_for_a_while)
{
    struct mrc_answer_times t = {0};
    uint64_t now_us = SENT_US, last_us = 0;
    mrc_answer_yielded(&t, now_us, MRC_ANSWER_YIELD_US_MAX);
    assert_false(mrc_answer_crowded(&t, now_us));
    for (uint32_t i = 0; i < 6; i++) { /* each time for longer */
        mrc_answer_yielded(&t, now_us, MRC_ANSWER_YIELD_US_MAX + 1);
        uint64_t pause_us = t.crowded_until_us - now_us;
        assert_true(mrc_answer_crowded(&t, now_us + pause_us - 1));
        assert_false(mrc_answer_crowded(&t, now_us + pause_us));
        assert_true(pause_us > last_us);
        last_us = pause_us;
        now_us += pause_us;
    }
    for (uint32_t i = 0; i < 40; i++)
        mrc_answer_yielded(&t, now_us, 1000000);
    assert_true(t.crowded_until_us - now_us <= 10000000); /* but never for good */
    mrc_answer_yielded(&t, now_us, 1);
    mrc_answer_yielded(&t, now_us, 1000000);
    assert_true(t.crowded_until_us - now_us < last_us);
}
