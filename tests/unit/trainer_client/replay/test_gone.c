#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "trainer_client/replay/gone.h"

/* Numbers from..to, of steps 100 more. */
static struct mrc_gone gone_of(uint64_t from, uint64_t to)
{
    struct mrc_gone gone;
    mrc_gone_init(&gone);
    for (uint64_t i = from; i <= to; i++)
        mrc_gone_add(&gone, i, 100 + i, 0);
    return gone;
}

static void check_loss(struct mrc_loss loss, uint64_t pushes, uint64_t from_step, uint64_t to_step)
{
    assert_int_equal(loss.pushes, pushes);
    assert_int_equal(loss.from_step, from_step);
    assert_int_equal(loss.to_step, to_step);
    assert_int_equal(loss.refused, MR_OK);
}

static void test_what_was_on_disk_is_missing_where_that_may_be(void **state)
{
    struct mrc_gone gone = gone_of(1, 10);
    (void)state;
    check_loss(mrc_gone_compare(&gone, 4), 0, 0, 0);
    gone.is_suspect = true;
    check_loss(mrc_gone_compare(&gone, 10), 0, 0, 0);
    gone.is_suspect = true;
    check_loss(mrc_gone_compare(&gone, 4), 6, 105, 110);
    assert_int_equal(gone.to, 4); /* the rest is known to be lost */
    assert_false(gone.is_suspect);
    gone.is_suspect = true;
    check_loss(mrc_gone_compare(&gone, 3), 1, 104, 104);
}

/* A restart says nothing of what goes after it. */
static void test_nothing_gone_is_nothing_to_suspect(void **state)
{
    struct mrc_gone gone = gone_of(1, 0);
    (void)state;
    mrc_gone_suspect(&gone);
    mrc_gone_add(&gone, 1, 101, 0);
    check_loss(mrc_gone_compare(&gone, 0), 0, 0, 0);
    mrc_gone_suspect(&gone);
    check_loss(mrc_gone_compare(&gone, 0), 1, 101, 101);
}

static void test_what_was_given_up_is_missing_until_it_is_on_disk(void **state)
{
    struct mrc_gone gone = gone_of(1, 10);
    (void)state;
    gone.given_up_to = 8;
    mrc_gone_saved(&gone, 7);
    check_loss(mrc_gone_compare(&gone, 7), 1, 108, 110);
    check_loss(mrc_gone_compare(&gone, 7), 0, 0, 0); /* once */
    gone.given_up_to = 8;
    check_loss(mrc_gone_compare(&gone, 8), 0, 0, 0);
    gone.given_up_to = 8;
    mrc_gone_saved(&gone, 8);
    check_loss(mrc_gone_compare(&gone, 0), 0, 0, 0);
}

static void test_what_a_restore_took_is_no_loss(void **state)
{
    struct mrc_gone gone = gone_of(1, 10);
    (void)state;
    mrc_gone_add(&gone, 11, 111, 2);
    gone.is_suspect = true;
    struct mrc_gone other = gone;

    mrc_gone_restored(&gone, 2);
    check_loss(mrc_gone_compare(&gone, 0), 11, 101, 111);
    mrc_gone_restored(&other, 3);
    check_loss(mrc_gone_compare(&other, 0), 0, 0, 0);
    assert_int_equal(other.to, 0);
}

static void test_lower_numbers_are_passed_over(void **state)
{
    struct mrc_gone gone = gone_of(5, 6);
    (void)state;
    mrc_gone_add(&gone, 6, 999, 9);
    mrc_gone_add(&gone, 2, 999, 9);
    assert_int_equal(gone.to, 6);
    assert_int_equal(gone.to_step, 106);
    assert_int_equal(gone.restores, 0);
}

/* Each order, and overlapping: nothing of either side is forgotten. */
static void test_moving_keeps_what_both_have(void **state)
{
    static const uint64_t sides[][4] = {{1, 10, 11, 12}, {11, 12, 1, 10}, {1, 12, 10, 10}, {10, 12, 1, 12},
                                        {1, 11, 10, 12}, {1, 12, 0, 0},   {0, 0, 1, 12}};
    (void)state;
    for (uint32_t i = 0; i < sizeof(sides) / sizeof(sides[0]); i++) {
        struct mrc_gone to, from;
        mrc_gone_init(&to);
        mrc_gone_init(&from);
        if (sides[i][0] > 0)
            to = gone_of(sides[i][0], sides[i][1]);
        if (sides[i][2] > 0)
            from = gone_of(sides[i][2], sides[i][3]);
        from.is_suspect = true;
        mrc_gone_move(&to, &from);
        assert_int_equal(from.to, 0);
        assert_int_equal(from.trail.count, 0);
        check_loss(mrc_gone_compare(&to, 0), 12, 101, 112);
        assert_int_equal(to.to, 0);
    }
}

static void test_moving_keeps_what_was_given_up(void **state)
{
    struct mrc_gone to = gone_of(1, 4), from = gone_of(1, 3);
    (void)state;
    to.is_suspect = true;
    to.restores = 2;
    from.given_up_to = 3;
    mrc_gone_move(&to, &from);
    assert_int_equal(to.given_up_to, 3);
    assert_int_equal(to.restores, 2);
    assert_true(to.is_suspect);
    assert_int_equal(from.given_up_to, 0);
}

/* Steps are reported as widely as the notes are apart, never too narrowly. */
static void test_a_long_trail(void **state)
{
    (void)state;
    for (uint64_t length = MRC_TRAIL_NOTES - 1; length < 6000; length += 61) {
        struct mrc_gone gone = gone_of(1, length);
        const uint64_t floor = length * 2 / 3;
        gone.is_suspect = true;
        const struct mrc_loss loss = mrc_gone_compare(&gone, floor);

        assert_int_equal(loss.pushes, length - floor);
        assert_int_in_range(loss.from_step, 101 + floor - 4 * length / MRC_TRAIL_NOTES - 1, 101 + floor);
        assert_int_equal(loss.to_step, 100 + length);
        assert_int_in_range(gone.to_step, 100 + floor - 4 * length / MRC_TRAIL_NOTES - 1, 100 + floor);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_on_disk_is_missing_where_that_may_be),
        cmocka_unit_test(test_nothing_gone_is_nothing_to_suspect),
        cmocka_unit_test(test_what_was_given_up_is_missing_until_it_is_on_disk),
        cmocka_unit_test(test_what_a_restore_took_is_no_loss),
        cmocka_unit_test(test_lower_numbers_are_passed_over),
        cmocka_unit_test(test_moving_keeps_what_both_have),
        cmocka_unit_test(test_moving_keeps_what_was_given_up),
        cmocka_unit_test(test_a_long_trail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
