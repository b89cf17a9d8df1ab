/* When the log has a line about what was left out, and what it says. */
#include <stdio.h>
#include <string.h>
#include "ps/core/drop_stats.h"
#include "tests/test.h"

TEST(a_line_a_minute_with_what_came_since)
{
    struct ps_drop_stats_log log = {0};
    struct ps_drop_stats now = {0}, since = {.rows_refused = 77};
    const uint64_t start_us = 5;
    assert_false(ps_drop_stats_due(&log, &now, start_us, &since)); /* nothing was left out */
    assert_int_equal(since.rows_refused, 77);
    now.gradients_skipped = 3;
    assert_true(ps_drop_stats_due(&log, &now, start_us, &since)); /* the first line comes at once */
    assert_int_equal(since.gradients_skipped, 3);
    assert_int_equal(since.rows_refused, 0);
    assert_false(ps_drop_stats_pends(&log, &now));
    now.gradients_skipped = 4;
    now.rows_refused = 100;
    assert_true(ps_drop_stats_pends(&log, &now));
    assert_false(ps_drop_stats_due(&log, &now, start_us + PS_DROP_STATS_INTERVAL_US - 1, &since));
    now.gradients_without_row = 9;
    assert_true(ps_drop_stats_due(&log, &now, start_us + PS_DROP_STATS_INTERVAL_US, &since));
    assert_int_equal(since.gradients_skipped, 1);
    assert_int_equal(since.rows_refused, 100);
    assert_int_equal(since.gradients_without_row, 9);
    assert_false(ps_drop_stats_due(&log, &now, UINT64_MAX, &since));
}

/* The table was restored: its counts began again. */
TEST(counts_that_begin_again_are_counted_whole)
{
    struct ps_drop_stats_log log = {.reported = {.rows_refused = 1000, .gradients_skipped = 5}};
    struct ps_drop_stats now = {.rows_refused = 7, .gradients_skipped = 5}, since;
    assert_true(ps_drop_stats_due(&log, &now, 1, &since));
    assert_int_equal(since.rows_refused, 7);
    assert_int_equal(since.gradients_skipped, 0);
}

static void check_line(const struct mr_feature *f, const struct ps_drop_stats *since, const char *expected)
{
    char line[PS_DROP_STATS_LINE_BYTES_MAX];
    ps_drop_stats_line(f, since, 144, line);
    assert_string_equal(line, expected);
}

TEST(the_line_says_what_and_what_to_set)
{
    static const char tail[] = " (since the last line about it; millrace ctl list has the sums)";
    struct mr_feature t = mr_feature_table("user", 4), v = mr_feature_variable("bias", 0, NULL);
    struct ps_drop_stats since = {.rows_refused = 549728, .limit = PS_LIMIT_NODE};
    char expected[PS_DROP_STATS_LINE_BYTES_MAX];
#define EXPECT(f, text)                                                                                      \
    (void)snprintf(expected, sizeof(expected), "%s%s", text, tail);                                          \
    check_line(f, &since, expected)
    EXPECT(&t,
           "table user: 549728 new rows refused at the node's memory.limit_mib 144: raise it, or make the "
           "table with eviction lru, lfu, age or steps");
    t.eviction = MR_EVICT_LRU;
    EXPECT(&t, "table user: 549728 new rows refused at the node's memory.limit_mib 144: raise it");
    since.limit = PS_LIMIT_ROWS;
    t.capacity_rows = 1000;
    EXPECT(&t, "table user: 549728 new rows refused at capacity_rows 1000: make the table with a larger one");
    t.eviction = MR_EVICT_NEVER;
    since = (struct ps_drop_stats){1, 1, 2, PS_LIMIT_MEMORY};
    t.memory_bytes = 5000000;
    EXPECT(&t,
           "table user: 1 new row refused at memory_bytes 5000000: make the table with more, or with "
           "eviction lru, lfu, age or steps; 1 gradient left out for want of a row (keys not looked up, not "
           "admitted, "
           "refused or evicted); 2 gradients left out because of NaN or Inf: check the loss and the learning "
           "rate");
    since = (struct ps_drop_stats){.gradients_skipped = 1};
    EXPECT(&v,
           "variable bias: 1 gradient left out because of NaN or Inf: check the loss and the learning rate");
}

/* The longest of all still fits. */
TEST(no_line_is_cut)
{
    char name[MR_NAME_BYTES] = {0}, line[PS_DROP_STATS_LINE_BYTES_MAX];
    memset(name, 'x', sizeof(name) - 1);
    struct mr_feature t = mr_feature_table(name, 4);
    t.memory_bytes = UINT64_MAX;
    struct ps_drop_stats since = {UINT64_MAX, UINT64_MAX, UINT64_MAX, PS_LIMIT_NODE};
    ps_drop_stats_line(&t, &since, UINT64_MAX, line);
    assert_string_equal(line + strlen(line) - 5, "sums)");
}
