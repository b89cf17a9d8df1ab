/* What a push's sequence holds: both kinds of lanes, and numbers up to their highest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "dataplane/wire/format/push_number.h"

static void check(uint32_t lane, uint64_t number)
{
    const uint64_t sequence = mr_push_sequence(lane, number);
    assert_int_equal(mr_push_lane(sequence), lane);
    assert_int_equal(mr_push_number(sequence), number);
}

static void a_sequence_is_a_lane_and_a_number(void **state)
{
    (void)state;
    for (uint32_t cores = 1; cores <= MR_CORE_MAX; cores++) {
        const uint32_t lane = mr_push_lane_of(cores, cores - 1);
        assert_false(mr_push_lane_is_chosen(lane));
        assert_true(mr_push_lane_is_valid(lane));
        assert_int_equal(mr_push_lane_cores(lane), cores);
        assert_int_equal(mr_push_lane_core(lane), cores - 1);
        check(lane, 1);
        check(lane, MR_PUSH_NUMBER_MAX);
    }
    check(0, MR_PUSH_NUMBER_MAX);
    for (uint32_t i = 0; i <= MR_PUSH_CHOSEN_MAX; i = 2 * i + 1) {
        const uint32_t lane = mr_push_lane_chosen(i);
        assert_true(mr_push_lane_is_chosen(lane));
        assert_true(mr_push_lane_is_valid(lane));
        check(lane, 1);
        check(lane, MR_PUSH_CHOSEN_NUMBER_MAX);
    }
}

static void some_are_no_lanes(void **state)
{
    (void)state;
    assert_false(mr_push_lane_is_valid(0));
    assert_false(mr_push_lane_is_valid(mr_push_lane_of(2, 2)));
    assert_false(mr_push_lane_is_valid(mr_push_lane_of(MR_CORE_MAX + 1, 0)));
    assert_false(mr_push_lane_is_valid(mr_push_lane_chosen(MR_PUSH_CHOSEN_MAX) + 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sequence_is_a_lane_and_a_number),
        cmocka_unit_test(some_are_no_lanes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
