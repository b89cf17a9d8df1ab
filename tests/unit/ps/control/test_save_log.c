/* The list of a node's saves. */
#include "ps/control/save_log.h"
#include "tests/test.h"

TEST(the_last_ones_are_known)
{
    struct ps_save_log log = {0};
    assert_null(ps_save_log_find(&log, 0));
    assert_null(ps_save_log_find(&log, 1));
    for (uint64_t i = 1; i <= 2 * PS_SAVE_LOG_MAX; i++) {
        struct ps_save_entry *entry = ps_save_log_add(&log);
        assert_int_equal(entry->number, i);
        assert_int_equal(entry->id, 0);
        entry->id = 1000 + i;
        assert_null(ps_save_log_find(&log, i + 1));
    }
    assert_null(ps_save_log_find(&log, PS_SAVE_LOG_MAX));
    for (uint64_t i = PS_SAVE_LOG_MAX + 1; i <= 2 * PS_SAVE_LOG_MAX; i++)
        assert_int_equal(ps_save_log_find(&log, i)->id, 1000 + i);
    assert_null(ps_save_log_find(&log, UINT64_MAX));
}
