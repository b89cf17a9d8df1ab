#include <string.h>
#include "dataplane/wire/format/bodies.h"
#include "tests/test.h"

/* What a peer of another version reads where this one writes. */
TEST(words_have_their_places)
{
    assert_int_equal(MR_RESTORED_PARAMETERS, 5);
    assert_int_equal(MR_RESTORED_WORDS, 6);
    assert_int_equal(MR_SAVE_ASK_CANCEL, 4);
    assert_int_equal(MR_PROGRESS_ERRNO, 7);
    assert_int_equal(MR_DETAIL_TRAINERS_AWAITED, 8);
    assert_int_equal(MR_DETAIL_WORDS, 10);
    assert_int_equal(MR_SAVE_ROW_IS_AUTOMATIC, 11);
    assert_int_equal(MR_SAVE_ROW_REMOTE, 14);
    assert_int_equal(MR_HEARTBEAT_STEPS_IGNORED, 11);
    assert_int_equal(MR_HUB_IS_AT_END, 10);
    assert_int_equal(MR_HUB_WORDS, 12);
    assert_int_equal(MR_MEMORY_CHECKPOINT, 10);
    assert_int_equal(MR_MEMORY_TABLE_LIMIT, 7);
    assert_int_equal(MR_SAMPLE_PLAN_RUN, 6);
    assert_int_equal(MR_SAMPLE_INFO_BROKEN_LINES, 6);
    assert_int_equal(MR_WORLD_CONTEXT_OLDEST_S, 20);
    assert_int_equal(MR_WORLD_WORDS, 24);
}

TEST(a_span_takes_several_places)
{
    assert_int_equal(MR_CAPTURE_ASK_IP, 6);
    assert_int_equal(MR_CAPTURE_ASK_PORT, 8);
    assert_int_equal(MR_CAPTURE_ASK_OPS, 9);
    assert_int_equal(MR_CAPTURE_ASK_OPS_LAST, 12);
    assert_int_equal(MR_STREAM_PLAN, 4);
    assert_int_equal(MR_STREAM_USED, 7);
    assert_int_equal(MR_MOVES_DRAINED, 2);
    assert_int_equal(MR_MOVES_DRAINED_LAST, 5);
}

TEST(tensors_have_the_words_of_the_body)
{
    const uint64_t words[MR_MOVES_WORDS] = {0};
    struct mr_tensor t = mr_body_tensor(MR_BODY_MOVES, words);
    assert_int_equal(t.dtype, MR_U64);
    assert_int_equal(t.rank, 1);
    assert_int_equal(t.dims[0], 8);
    assert_ptr_equal(t.data, words);
    t = mr_body_rows(MR_BODY_MOVES_ROW, 3, NULL);
    assert_int_equal(t.rank, 2);
    assert_int_equal(t.dims[0], 3);
    assert_int_equal(t.dims[1], 16);
    t = mr_body_tensor(MR_BODY_NODE_INFO, words);
    assert_int_equal(t.dtype, MR_U32);
    assert_int_equal(t.bytes, 4 * sizeof(uint32_t));
}

TEST(missing_words_of_older_senders_are_zero)
{
    const uint64_t sent[MR_RESTORED_WORDS + 2] = {1, 2, 3, 4, 5, 6, 7, 8};
    for (uint32_t count = 0; count <= MR_RESTORED_WORDS + 2; count++) {
        uint64_t words[MR_RESTORED_WORDS + 1];
        memset(words, 0xff, sizeof(words));
        const struct mr_tensor t = mr_tensor_1d(MR_U64, count, sent);
        assert_int_equal(mr_body_read(MR_BODY_RESTORED, &t, words), count >= 1);
        for (uint32_t i = 0; i < MR_RESTORED_WORDS && count >= 1; i++)
            assert_int_equal(words[i], i < count ? i + 1 : 0);
        assert_true(words[MR_RESTORED_WORDS] == UINT64_MAX); /* a newer sender's have no place */
    }
}

TEST(tensors_of_another_form_are_refused)
{
    const uint64_t sent[32] = {0};
    uint64_t words[MR_HEARTBEAT_WORDS];
    const struct mr_tensor other[] = {
        mr_tensor_1d(MR_U64, MR_HEARTBEAT_WORDS - 1, sent),
        mr_tensor_1d(MR_U32, MR_HEARTBEAT_WORDS, sent),
        mr_tensor_2d(MR_U64, MR_HEARTBEAT_WORDS, 1, sent),
    };
    for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++)
        assert_false(mr_body_read(MR_BODY_HEARTBEAT, &other[i], words));
    const struct mr_tensor rows[] = {
        mr_tensor_1d(MR_U64, 15, sent),
        mr_tensor_2d(MR_U32, 1, 15, sent),
        mr_tensor_2d(MR_U64, 1, 11, sent),
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_false(mr_body_is_rows(MR_BODY_SAVE_ROW, &rows[i]));
}

TEST(rows_of_any_width_are_read)
{
    uint64_t sent[2][16] = {{0}}, words[MR_SAVE_ROW_WORDS];
    const struct mr_tensor none = mr_tensor_2d(MR_U64, 0, 0, sent);
    assert_true(mr_body_is_rows(MR_BODY_SAVE_ROW, &none));
    for (uint32_t width = 12; width <= 16; width++) {
        for (uint32_t i = 0; i < 2 * width; i++)
            (&sent[0][0])[i] = 100 + i;
        const struct mr_tensor t = mr_tensor_2d(MR_U64, 2, width, sent);
        assert_true(mr_body_is_rows(MR_BODY_SAVE_ROW, &t));
        mr_body_read_row(MR_BODY_SAVE_ROW, &t, 1, words);
        for (uint32_t i = 0; i < MR_SAVE_ROW_WORDS; i++)
            assert_int_equal(words[i], i < width ? 100 + width + i : 0);
    }
}
