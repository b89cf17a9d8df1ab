/* Blocks of samples in binary: what they hold, and what is refused. */
#include <math.h>
#include <stdio.h>
#include "tests/test.h"
#include "tests/unit/trainer_client/hub/format/block_bytes.h"

TEST(a_block_has_its_arrays)
{
    struct block_bytes bytes = {.used = 0};
    struct hub_block block;
    block_put_samples(&bytes, 5, 3, true);
    const struct hub_block_head *head = (const void *)bytes.bytes;
    assert_null(hub_block_check_head(head));
    assert_int_equal(hub_block_body_bytes(head), bytes.used - sizeof(*head));
    assert_null(hub_block_open(head, head + 1, &block));
    uint64_t key;
    memcpy(&key, block.keys + 4 * sizeof(key), sizeof(key));
    assert_int_equal(key, 1006);
    assert_true(block.labels[0] == 1 && block.labels[1] == 0);
    assert_true(block.dense[4] == 7 && block.dense[5] == -7);
    assert_int_equal(block.offsets[3], 4);
    assert_true(block.weights[8] == 2007 / 2.0f);
    block_put_end(&bytes);
    const struct hub_block_head *end = (const void *)(bytes.bytes + bytes.used - sizeof(*end));
    assert_null(hub_block_check_head(end));
    assert_int_equal(hub_block_body_bytes(end), 0);
}

/* Samples to be scored: what follows the labels moves up. */
TEST(a_block_may_have_no_labels)
{
    struct block_bytes bytes = {.used = 0};
    struct hub_block block;
    block_put_flagged(&bytes, 5, 3, HUB_BLOCK_NO_LABELS | HUB_BLOCK_WEIGHTS);
    const struct hub_block_head *head = (const void *)bytes.bytes;
    assert_null(hub_block_check_head(head));
    assert_int_equal(hub_block_body_bytes(head), bytes.used - sizeof(*head));
    assert_null(hub_block_open(head, head + 1, &block));
    assert_null(block.labels);
    assert_true(block.dense[4] == 7 && block.dense[5] == -7);
    assert_int_equal(block.offsets[3], 4);
    assert_true(block.weights[8] == 2007 / 2.0f);
}

TEST(heads_that_are_wrong_are_refused)
{
    const struct hub_block_head good = {
        .magic = HUB_BLOCK_MAGIC, .samples = 1, .slots = 1, .dense = 0, .keys = 0};
    struct hub_block_head bad[] = {good, good, good, good, good, good, good, good, good};
    bad[0].magic++;
    bad[1].flags = 16;
    bad[2].reserved[1] = 1;
    bad[3].samples = HUB_BLOCK_SAMPLES_MAX + 1;
    bad[4].slots = 0;
    bad[5].dense = HUB_BLOCK_DENSE_MAX + 1;
    bad[6].keys = HUB_BLOCK_KEYS_MAX + 1;
    bad[7].flags = HUB_BLOCK_END;
    bad[8].flags = HUB_BLOCK_FAILED;
    bad[8].samples = 0;
    bad[8].keys = HUB_BLOCK_REASON_MAX + 1;
    assert_null(hub_block_check_head(&good));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_non_null(hub_block_check_head(&bad[i]));
}

TEST(bodies_that_are_wrong_are_refused)
{
    struct block_bytes bytes;
    struct hub_block block;
    for (int what = 0; what < 3; what++) {
        bytes.used = 0;
        block_put_samples(&bytes, 0, 2, false);
        const struct hub_block_head *head = (const void *)bytes.bytes;
        assert_null(hub_block_open(head, head + 1, &block));
        uint32_t *offsets =
            (uint32_t *)(void *)(bytes.bytes + ((const uint8_t *)block.offsets - bytes.bytes));
        if (what == 0)
            offsets[0] = 1;
        else if (what == 1)
            offsets[4] = 5;
        else
            offsets[2] = 7;
        assert_non_null(hub_block_open(head, head + 1, &block));
    }
}

/* Wherever it is: the server takes no such weight, and no model learns from such a value. */
TEST(numbers_that_are_not_finite_are_refused)
{
    static const float values[] = {NAN, INFINITY, -INFINITY};
    struct block_bytes bytes;
    struct hub_block block;
    for (size_t v = 0; v < sizeof(values) / sizeof(values[0]); v++) {
        for (int what = 0; what < 3; what++) {
            bytes.used = 0;
            block_put_samples(&bytes, 0, 4, true);
            const struct hub_block_head *head = (const void *)bytes.bytes;
            assert_null(hub_block_open(head, head + 1, &block));
            const float *place = what == 0   ? block.labels + 1
                                 : what == 1 ? block.dense + 5
                                             : block.weights + 8;
            *(float *)(void *)(bytes.bytes + ((const uint8_t *)place - bytes.bytes)) = values[v];
            const char *wrong = hub_block_open(head, head + 1, &block);
            char says[96];
            snprintf(says, sizeof(says),
                     what == 0   ? "sample 1: its label is %g"
                     : what == 1 ? "sample 2: dense value 1 is %g"
                                 : "sample 2, slot 1: the weight of key 1 is %g",
                     (double)values[v]);
            assert_non_null(wrong);
            assert_string_equal(wrong, says);
        }
    }
}
