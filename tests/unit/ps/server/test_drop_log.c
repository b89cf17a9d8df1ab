/* When a line is due about packets that were dropped. */

#include "ps/server/drop_log.h"
#include "tests/test.h"

#define S UINT64_C(1000000)

static const struct mr_drop_cause always = {.counter = "port.a"};
static const struct mr_drop_cause often = {.counter = "wire.b", .normal_percent = 10};

TEST(a_rise_has_a_line_at_once_and_then_one_a_minute)
{
    struct ps_drop_counter c = {0};
    assert_int_equal(ps_drop_log_due(&c, &always, 0, 1000, 100 * S), 0);
    assert_int_equal(ps_drop_log_due(&c, &always, 3, 2000, 105 * S), 3);
    assert_int_equal(ps_drop_log_due(&c, &always, 7, 3000, 110 * S), 0);
    assert_int_equal(ps_drop_log_due(&c, &always, 9, 4000, 164 * S), 0);
    assert_int_equal(ps_drop_log_due(&c, &always, 9, 5000, 165 * S), 6); /* all since the last line */
    assert_int_equal(ps_drop_log_due(&c, &always, 9, 6000, 400 * S), 0);
    assert_int_equal(ps_drop_log_due(&c, &always, 10, 6000, 405 * S), 1);
}

TEST(what_is_normal_has_none)
{
    struct ps_drop_counter c = {0};
    assert_int_equal(ps_drop_log_due(&c, &often, 0, 0, 100 * S), 0);
    assert_int_equal(ps_drop_log_due(&c, &often, 90, 1000, 105 * S), 0);
    assert_int_equal(ps_drop_log_due(&c, &often, 180, 2000, 160 * S), 0); /* the span ends */
    assert_int_equal(ps_drop_log_due(&c, &often, 400, 3000, 165 * S), 220);
}
