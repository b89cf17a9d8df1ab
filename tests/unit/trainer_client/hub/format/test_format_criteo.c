#include <string.h>
#include <xxhash.h>
#include <math.h>
#define FORMAT "criteo"
#include "tests/test.h"
#include "tests/unit/trainer_client/hub/format/format_check.h"

#define INTEGERS "1\t\t-3\t0\t5\t6\t7\t8\t9\t10\t11\t12\t1300"
#define CATEGORIES                                                                                           \
    "68fd1e64\t80e26c9b\t\tc\td\te\tf\tg\th\ti\tj\tk\tl\tm\tn\to\tp\tq\tr\ts\tt\tu\tv\tw\tx\t68fd1e64"

TEST(a_line)
{
    assert_int_equal(parse_line("1\t" INTEGERS "\t" CATEGORIES), HUB_PARSED);
    assert_int_equal((int)sample.label, 1);
    assert_true(fabsf(sample.dense[0] - logf(2)) < 1e-6f);
    assert_true(fabsf(sample.dense[1]) < 1e-6f);           /* missing */
    assert_true(fabsf(sample.dense[2] + logf(4)) < 1e-6f); /* the sign is kept */
    assert_true(fabsf(sample.dense[12] - logf(1301)) < 1e-6f);
    assert_int_equal(sample.key_count, 25);
    assert_int_equal(sample.bag_end[1], 2);
    assert_int_equal(sample.bag_end[2], 2); /* missing: an empty bag */
    assert_int_equal(sample.bag_end[25], 25);
    assert_int_not_equal(sample.keys[0], sample.keys[24]); /* the same text in another slot is another key */
}

TEST(all_but_the_label_may_be_missing)
{
    char line[80] = "0";
    memset(line + 1, '\t', 39);
    assert_int_equal(parse_line(line), HUB_PARSED);
    assert_int_equal((int)sample.label, 0);
    assert_int_equal(sample.key_count, 0);
    line[0] = '\t';
    line[39] = '\0';
    assert_int_equal(parse_line(line), HUB_BROKEN);
    assert_int_equal(parse_line(""), HUB_NO_SAMPLE);
}

TEST(broken_lines)
{
    /* In brackets: strings put together, not a forgotten comma. */
    static const char *const bad[] = {
        ("2\t" INTEGERS "\t" CATEGORIES),       ("1\t" INTEGERS "\t" CATEGORIES "\t"),
        ("1\t" INTEGERS "\t" CATEGORIES "\tx"), (INTEGERS "\t" CATEGORIES),
        ("1\tx\t" INTEGERS "\t" CATEGORIES),    ("1,2,3"),
        ("-1\t" INTEGERS "\t" CATEGORIES),      ("1\t1.5\t\t\t\t\t\t\t\t\t\t\t\t\t" CATEGORIES),
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(parse_line(bad[i]), HUB_BROKEN);
}

/* Rows of trained tables are found by them. */
TEST(keys_are_those_of_earlier_versions)
{
    assert_int_equal(parse_line("1\t" INTEGERS "\t" CATEGORIES), HUB_PARSED);
    assert_int_equal(XXH3_64bits(sample.keys, sample.key_count * sizeof(*sample.keys)),
                     UINT64_C(0x2507119e0b6796bb));
}

TEST(garbage_does_no_harm)
{
    static const char *const pieces[] = {"1", "0", "\t", "\t", "\t\t\t\t\t", "68fd1e64", "-5", " "};
    parse_garbage(pieces, sizeof(pieces) / sizeof(pieces[0]));
}

int main(void)
{
    return tests_run(make_formats_and_find, free_formats);
}
