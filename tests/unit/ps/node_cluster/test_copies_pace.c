/* How far a backup is behind, and when one that has failed begins again. */
#include "ps/node_cluster/copies_pace.h"
#include "tests/test.h"

#define S UINT64_C(1000000)

static struct ps_copy_status status[2];
static struct ps_copies_lag lag;
static uint64_t now_us;

static void set_status(uint64_t applied, uint64_t end)
{
    for (uint32_t i = 0; i < 2; i++) {
        atomic_store(&status[i].applied, applied);
        atomic_store(&status[i].end, end);
    }
}

static void look_at(uint64_t at_us)
{
    now_us = at_us;
    ps_copies_lag_measure(&lag, status, 2, now_us);
}

static int lag_begins(void **state)
{
    (void)state;
    lag = (struct ps_copies_lag){0};
    set_status(1, 1);
    look_at(S);
    assert_int_equal(lag.bytes, 0);
    return 0;
}

/* There is always something in flight; at each look, what was there at the one before has been applied. */
TEST(a_backup_that_keeps_up_is_behind_by_bytes_alone, lag_begins)
{
    for (uint64_t i = 1; i < 10; i++) {
        set_status(i * 100, i * 100 + 50);
        look_at(S + i * S / 4);
        assert_int_equal(lag.bytes, 100);
        assert_int_equal(lag.us, 0);
    }
}

TEST(the_lag_grows_until_what_was_there_is_applied, lag_begins)
{
    set_status(1, 1001);
    look_at(2 * S);
    assert_int_equal(lag.us, 0); /* it may have come just now */
    look_at(3 * S);
    assert_int_equal(lag.us, S);
    set_status(900, 2001);
    look_at(5 * S);
    assert_int_equal(lag.us, 3 * S);
    assert_int_equal(lag.bytes, 2 * 1101);
    set_status(1001, 2001); /* what was there at 2 s */
    look_at(6 * S);
    assert_int_equal(lag.us, 4 * S);
    look_at(7 * S); /* what was there at 6 s is not applied: it was 4 s before, and is not less yet */
    assert_int_equal(lag.us, 4 * S);
    set_status(2001, 2002);
    look_at(8 * S);
    assert_int_equal(lag.us, 2 * S);
    set_status(2002, 2002);
    look_at(9 * S);
    assert_int_equal(lag.us, 0);
    assert_int_equal(lag.bytes, 0);
}

/* One core that stands still is enough. */
TEST(the_slowest_core_counts, lag_begins)
{
    set_status(1, 1001);
    look_at(2 * S);
    atomic_store(&status[0].applied, 1001);
    look_at(4 * S);
    assert_int_equal(lag.us, 2 * S);
    assert_int_equal(lag.bytes, 1000);
}

TEST(failures_in_a_row_are_followed_by_longer_pauses)
{
    struct ps_copies_retry r = {0};
    static const uint64_t pauses_s[] = {1, 2, 4, 8, 16, 32, 60, 60, 60};
    for (uint32_t i = 0; i < sizeof(pauses_s) / sizeof(*pauses_s); i++) {
        ps_copies_retry_failed(&r, 100 * S);
        assert_int_equal(r.at_us, (100 + pauses_s[i]) * S);
    }
    ps_copies_retry_well(&r, 200 * S); /* not for long */
    ps_copies_retry_well(&r, 220 * S);
    ps_copies_retry_failed(&r, 230 * S);
    assert_int_equal(r.at_us, 290 * S);
    ps_copies_retry_well(&r, 300 * S);
    ps_copies_retry_failed(&r, 361 * S);
    assert_int_equal(r.at_us, 362 * S);
}
