/* When automatic checkpoints are due. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "ps/save/save_policy.h"

static void off_it_is_never_due(void **state)
{
    struct ps_save_schedule s;
    (void)state;
    ps_save_schedule_start(&s, 0, 0, 5, 10);
    assert_false(ps_save_schedule_is_on(&s));
    assert_false(ps_save_schedule_step_is_due(&s, UINT64_MAX));
    assert_false(ps_save_schedule_time_is_due(&s, UINT64_MAX));
}

static void steps_are_multiples(void **state)
{
    struct ps_save_schedule s;
    (void)state;
    ps_save_schedule_start(&s, 100, 0, 250, 0);
    assert_true(ps_save_schedule_is_on(&s));
    assert_int_equal(s.next_step, 300);
    assert_false(ps_save_schedule_step_is_due(&s, 299));
    assert_true(ps_save_schedule_step_is_due(&s, 300));
    ps_save_schedule_began(&s, 300, 0);
    assert_int_equal(s.next_step, 400);
}

/* However many were passed while one was written, one follows. */
static void what_was_missed_is_one(void **state)
{
    struct ps_save_schedule s;
    (void)state;
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

static void steps_may_fall(void **state)
{
    struct ps_save_schedule s;
    (void)state;
    ps_save_schedule_start(&s, 100, 0, 1000000, 0);
    assert_false(ps_save_schedule_step_is_due(&s, 50)); /* begun again */
    assert_int_equal(s.next_step, 100);
    assert_true(ps_save_schedule_step_is_due(&s, 100));
}

static void the_last_multiple_has_no_next(void **state)
{
    struct ps_save_schedule s;
    (void)state;
    ps_save_schedule_start(&s, 100, 0, UINT64_MAX - 5, 0);
    assert_int_equal(s.next_step, UINT64_MAX);
    assert_false(ps_save_schedule_step_is_due(&s, UINT64_MAX - 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(off_it_is_never_due),           cmocka_unit_test(steps_are_multiples),
        cmocka_unit_test(what_was_missed_is_one),        cmocka_unit_test(steps_may_fall),
        cmocka_unit_test(the_last_multiple_has_no_next),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
