#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tools/save_outcome.h"

static void test_the_saves_own_outcome_counts(void **state)
{
    (void)state;
    struct mr_checkpoint_status s = {.id = 3, .last_good_id = 3, .last_status = MR_OK};
    assert_true(tool_save_is_good(&s, 3));
    s.last_status = MR_IO_ERROR;
    s.last_good_id = 2;
    assert_false(tool_save_is_good(&s, 3));
}

static void test_a_higher_number_in_another_directory_is_no_success(void **state)
{
    (void)state;
    const struct mr_checkpoint_status s = {.id = 1, .last_good_id = 50, .last_status = MR_IO_ERROR};
    assert_false(tool_save_is_good(&s, 1));
}

static void test_a_later_save_does_not_hide_it(void **state)
{
    (void)state;
    struct mr_checkpoint_status s = {.state = MR_CHECKPOINT_SAVING, .id = 4, .last_good_id = 3};
    assert_true(tool_save_is_good(&s, 3));
    s.last_good_id = 2;
    assert_false(tool_save_is_good(&s, 3));
}

static void test_a_server_that_restarted_knows_nothing_of_it(void **state)
{
    (void)state;
    const struct mr_checkpoint_status s = {.id = 0};
    assert_false(tool_save_is_good(&s, 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_saves_own_outcome_counts),
        cmocka_unit_test(test_a_higher_number_in_another_directory_is_no_success),
        cmocka_unit_test(test_a_later_save_does_not_hide_it),
        cmocka_unit_test(test_a_server_that_restarted_knows_nothing_of_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
