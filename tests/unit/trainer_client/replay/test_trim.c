#include "trainer_client/replay/trim.h"
#include "tests/test.h"

/* Numbers from..to, of steps 100 more. */
static struct mrc_trim gone_of(uint64_t from, uint64_t to)
{
    struct mrc_trim trim;
    mrc_trim_init(&trim);
    for (uint64_t i = from; i <= to; i++)
        mrc_trim_add(&trim, i, 100 + i, 0);
    return trim;
}

static void check_loss(struct mrc_loss loss, uint64_t pushes, uint64_t from_step, uint64_t to_step)
{
    assert_int_equal(loss.pushes, pushes);
    assert_int_equal(loss.from_step, from_step);
    assert_int_equal(loss.to_step, to_step);
    assert_int_equal(loss.refused, MR_OK);
}

TEST(test_what_was_on_disk_is_missing_where_that_may_be)
{
    struct mrc_trim trim = gone_of(1, 10);
    check_loss(mrc_trim_compare(&trim, 4), 0, 0, 0);
    trim.is_suspect = true;
    check_loss(mrc_trim_compare(&trim, 10), 0, 0, 0);
    trim.is_suspect = true;
    check_loss(mrc_trim_compare(&trim, 4), 6, 105, 110);
    assert_int_equal(trim.to, 4); /* the rest is known to be lost */
    assert_false(trim.is_suspect);
    trim.is_suspect = true;
    check_loss(mrc_trim_compare(&trim, 3), 1, 104, 104);
}

/* A restart says nothing of what goes after it. */
TEST(test_nothing_gone_is_nothing_to_suspect)
{
    struct mrc_trim trim = gone_of(1, 0);
    mrc_trim_suspect(&trim);
    mrc_trim_add(&trim, 1, 101, 0);
    check_loss(mrc_trim_compare(&trim, 0), 0, 0, 0);
    mrc_trim_suspect(&trim);
    check_loss(mrc_trim_compare(&trim, 0), 1, 101, 101);
}

TEST(test_what_was_given_up_is_missing_until_it_is_on_disk)
{
    struct mrc_trim trim = gone_of(1, 10);
    trim.given_up_to = 8;
    mrc_trim_saved(&trim, 7);
    check_loss(mrc_trim_compare(&trim, 7), 1, 108, 110);
    check_loss(mrc_trim_compare(&trim, 7), 0, 0, 0); /* once */
    trim.given_up_to = 8;
    check_loss(mrc_trim_compare(&trim, 8), 0, 0, 0);
    trim.given_up_to = 8;
    mrc_trim_saved(&trim, 8);
    check_loss(mrc_trim_compare(&trim, 0), 0, 0, 0);
}

TEST(test_what_a_restore_took_is_no_loss)
{
    struct mrc_trim trim = gone_of(1, 10);
    mrc_trim_add(&trim, 11, 111, 2);
    trim.is_suspect = true;
    struct mrc_trim other = trim;

    mrc_trim_restored(&trim, 2);
    check_loss(mrc_trim_compare(&trim, 0), 11, 101, 111);
    mrc_trim_restored(&other, 3);
    check_loss(mrc_trim_compare(&other, 0), 0, 0, 0);
    assert_int_equal(other.to, 0);
}

TEST(test_lower_numbers_are_passed_over)
{
    struct mrc_trim trim = gone_of(5, 6);
    mrc_trim_add(&trim, 6, 999, 9);
    mrc_trim_add(&trim, 2, 999, 9);
    assert_int_equal(trim.to, 6);
    assert_int_equal(trim.to_step, 106);
    assert_int_equal(trim.restores, 0);
}

/* Each order, and overlapping: nothing of either side is forgotten. */
TEST(test_moving_keeps_what_both_have)
{
    static const uint64_t sides[][4] = {{1, 10, 11, 12}, {11, 12, 1, 10}, {1, 12, 10, 10}, {10, 12, 1, 12},
                                        {1, 11, 10, 12}, {1, 12, 0, 0},   {0, 0, 1, 12}};
    for (uint32_t i = 0; i < sizeof(sides) / sizeof(sides[0]); i++) {
        struct mrc_trim to, from;
        mrc_trim_init(&to);
        mrc_trim_init(&from);
        if (sides[i][0] > 0)
            to = gone_of(sides[i][0], sides[i][1]);
        if (sides[i][2] > 0)
            from = gone_of(sides[i][2], sides[i][3]);
        from.is_suspect = true;
        mrc_trim_move(&to, &from);
        assert_int_equal(from.to, 0);
        assert_int_equal(from.trail.count, 0);
        check_loss(mrc_trim_compare(&to, 0), 12, 101, 112);
        assert_int_equal(to.to, 0);
    }
}

TEST(test_moving_keeps_what_was_given_up)
{
    struct mrc_trim to = gone_of(1, 4), from = gone_of(1, 3);
    to.is_suspect = true;
    to.restores = 2;
    from.given_up_to = 3;
    mrc_trim_move(&to, &from);
    assert_int_equal(to.given_up_to, 3);
    assert_int_equal(to.restores, 2);
    assert_true(to.is_suspect);
    assert_int_equal(from.given_up_to, 0);
}

/* Steps are reported as widely as the notes are apart, never too narrowly. */
TEST(test_a_long_trail)
{
    for (uint64_t length = MRC_TRAIL_NOTES - 1; length < 6000; length += 61) {
        struct mrc_trim trim = gone_of(1, length);
        const uint64_t floor = length * 2 / 3;
        trim.is_suspect = true;
        const struct mrc_loss loss = mrc_trim_compare(&trim, floor);

        assert_int_equal(loss.pushes, length - floor);
        assert_int_in_range(loss.from_step, 101 + floor - 4 * length / MRC_TRAIL_NOTES - 1, 101 + floor);
        assert_int_equal(loss.to_step, 100 + length);
        assert_int_in_range(trim.to_step, 100 + floor - 4 * length / MRC_TRAIL_NOTES - 1, 100 + floor);
    }
}
