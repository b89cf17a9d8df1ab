#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#define FORMAT "libsvm"
#include "tests/test.h"
#include "tests/unit/trainer_client/hub/format/format_check.h"

static uint32_t slots_used(void)
{
    uint32_t used = 0, begin = 0;
    for (uint32_t slot = 0; slot < format->slots; begin = sample.bag_end[slot], slot++)
        used += sample.bag_end[slot] > begin;
    return used;
}

TEST(labels)
{
    static const struct {
        const char *line;
        int label;
    } good[] = {{"+1 3:1", 1}, {"1 3:1", 1}, {"-1 3:1", 0}, {"0 3:1", 0}, {"1.0 3:1", 1}, {" -1\t3:1 ", 0}};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_int_equal(parse_line(good[i].line), HUB_PARSED);
        assert_int_equal((int)sample.label, good[i].label);
        assert_int_equal(sample.key_count, 1);
    }
    static const char *const bad[] = {"2 3:1", "0.5 3:1", "3:1", "x 3:1", "nan 3:1", "-2 1:1", "++1 1:1"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(parse_line(bad[i]), HUB_BROKEN);
}

TEST(a_feature_keeps_its_key_and_slot)
{
    assert_int_equal(parse_line("+1 3:1 11:1 123:1"), HUB_PARSED);
    assert_int_equal(sample.key_count, 3);
    assert_true(slots_used() >= 2);
    assert_int_equal(parse_line("-1 11:1.0"), HUB_PARSED);
    uint64_t key = sample.keys[0];
    uint32_t slot = 0;
    while (sample.bag_end[slot] == 0)
        slot++;
    assert_int_equal(parse_line("-1 11:0.5"), HUB_PARSED);
    assert_int_not_equal(sample.keys[0], key); /* another range of values */
    assert_int_equal(sample.bag_end[slot], 1); /* in the same slot */
    assert_int_equal(slot == 0 ? 0 : sample.bag_end[slot - 1], 0);
    assert_int_equal(parse_line("-1 11:1.0001"), HUB_PARSED);
    assert_int_equal(sample.keys[0], key);
    assert_int_equal(parse_line("-1 11:-1"), HUB_PARSED);
    assert_int_not_equal(sample.keys[0], key);
}

TEST(zeros_comments_and_blanks)
{
    assert_int_equal(parse_line("1 3:0 4:0.0 5:1 # 6:1"), HUB_PARSED);
    assert_int_equal(sample.key_count, 1);
    assert_int_equal(parse_line("1"), HUB_PARSED);
    assert_int_equal(sample.key_count, 0);
    assert_int_equal(parse_line(""), HUB_NO_SAMPLE);
    assert_int_equal(parse_line("  \t "), HUB_NO_SAMPLE);
    assert_int_equal(parse_line("# all of it"), HUB_NO_SAMPLE);
}

TEST(broken_features)
{
    static const char *const bad[] = {"1 3",     "1 3:",    "1 :1",    "1 3:x",
                                      "1 -3:1",  "1 3:nan", "1 3:inf", "1 qid:3 1:1",
                                      "1 3:1:2", "1 3 :1",  "1 3.5:1", "1 99999999999999999999:1"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(parse_line(bad[i]), HUB_BROKEN);
}

TEST(features_are_bounded)
{
    char *line = malloc(HUB_SAMPLE_KEYS_MAX * 8 + 100);
    assert_non_null(line);
    size_t bytes = 1;
    line[0] = '1';
    for (uint32_t i = 0; i < HUB_SAMPLE_KEYS_MAX; i++)
        bytes += (size_t)sprintf(line + bytes, " %u:1", i);
    assert_int_equal(parse_line(line), HUB_PARSED);
    assert_int_equal(sample.key_count, HUB_SAMPLE_KEYS_MAX);
    snprintf(line + bytes, 10, " 5000:1");
    assert_int_equal(parse_line(line), HUB_BROKEN);
    free(line);
}

/* Rows of trained tables are found by them. */
TEST(keys_are_those_of_earlier_versions)
{
    assert_int_equal(parse_line("+1 3:1 11:-0.25 123:1e9"), HUB_PARSED);
    assert_int_equal(XXH3_64bits(sample.keys, sample.key_count * sizeof(*sample.keys)),
                     UINT64_C(0xa9f0d9845ed3b678));
}

TEST(garbage_does_no_harm)
{
    static const char *const pieces[] = {"1", "-1", " ", "3:1", ":", "0", "1e5", "#", "+", "."};
    parse_garbage(pieces, sizeof(pieces) / sizeof(pieces[0]));
}

int main(void)
{
    return tests_run(make_formats_and_find, free_formats);
}
