/* What a push's sequence holds: both kinds of push streams, and numbers up to their highest. */
#include "dataplane/wire/format/push_number.h"
#include "tests/test.h"

static void push_number_check(uint32_t stream_id, uint64_t number)
{
    const uint64_t sequence = mr_push_sequence(stream_id, number);
    assert_int_equal(mr_push_stream_id(sequence), stream_id);
    assert_int_equal(mr_push_number(sequence), number);
}

TEST(a_sequence_is_a_stream_and_a_number)
{
    for (uint32_t cores = 1; cores <= MR_CORE_MAX; cores++) {
        const uint32_t stream_id = mr_push_stream_of_core(cores, cores - 1);
        assert_false(mr_push_stream_is_chosen(stream_id));
        assert_true(mr_push_stream_is_valid(stream_id));
        assert_int_equal(mr_push_stream_cores(stream_id), cores);
        assert_int_equal(mr_push_stream_core(stream_id), cores - 1);
        push_number_check(stream_id, 1);
        push_number_check(stream_id, MR_PUSH_NUMBER_MAX);
    }
    push_number_check(0, MR_PUSH_NUMBER_MAX);
    for (uint32_t i = 0; i <= MR_PUSH_CHOSEN_MAX; i = 2 * i + 1) {
        const uint32_t stream_id = mr_push_stream_chosen(i);
        assert_true(mr_push_stream_is_chosen(stream_id));
        assert_true(mr_push_stream_is_valid(stream_id));
        push_number_check(stream_id, 1);
        push_number_check(stream_id, MR_PUSH_CHOSEN_NUMBER_MAX);
    }
}

TEST(some_are_no_streams)
{
    assert_false(mr_push_stream_is_valid(0));
    assert_false(mr_push_stream_is_valid(mr_push_stream_of_core(2, 2)));
    assert_false(mr_push_stream_is_valid(mr_push_stream_of_core(MR_CORE_MAX + 1, 0)));
    assert_false(mr_push_stream_is_valid(mr_push_stream_chosen(MR_PUSH_CHOSEN_MAX) + 1));
}
