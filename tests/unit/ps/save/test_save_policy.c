/* Full or delta. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "ps/checkpoint/checkpoint.h"
#include "ps/save/save_policy.h"

static const struct ps_save_chain_limits limits = {.deltas_max = 3, .delta_share_percent = 50};

static bool is_possible(const struct ps_save_chain *chain, const char *directory)
{
    return ps_save_chain_no_delta(chain, &limits, directory, true, NULL) == NULL;
}

static void a_delta_needs_its_parent(void **state)
{
    struct ps_save_chain chain = {0};
    (void)state;
    assert_non_null(strstr(ps_save_chain_no_delta(&chain, &limits, "/a", true, NULL), "no checkpoint yet"));
    ps_save_chain_published(&chain, "/a", 7, false, 1000);
    assert_true(is_possible(&chain, "/a"));
    assert_int_equal(chain.last_id, 7);
    assert_non_null(strstr(ps_save_chain_no_delta(&chain, &limits, "/b", true, NULL), "another directory"));
    assert_non_null(strstr(ps_save_chain_no_delta(&chain, &limits, "/a", false, NULL), "no longer"));
    assert_non_null(strstr(ps_save_chain_no_delta(&chain, &limits, "/a", true, "rows went"), "rows went"));
    ps_save_chain_break(&chain, "it failed");
    assert_string_equal(ps_save_chain_no_delta(&chain, &limits, "/a", true, NULL), "it failed");
    ps_save_chain_restored(&chain, "/b", 4, 1, 1000, 10);
    assert_true(is_possible(&chain, "/b"));
    assert_int_equal(chain.last_id, 4);
    assert_int_equal(chain.deltas, 1);
    ps_save_chain_published(&chain, "/b", 5, false, 1000);
    ps_save_chain_break(&chain, NULL);
    assert_non_null(strstr(ps_save_chain_no_delta(&chain, &limits, "/b", true, NULL), "no checkpoint yet"));
}

static void switched_off_there_are_none(void **state)
{
    struct ps_save_chain chain = {0};
    struct ps_save_chain_limits off = {.deltas_max = 0, .delta_share_percent = 50};
    (void)state;
    ps_save_chain_published(&chain, "/a", 7, false, 1000);
    assert_non_null(strstr(ps_save_chain_no_delta(&chain, &off, "/a", true, NULL), "checkpoint.deltas is 0"));
    assert_true(ps_save_chain_is_long(&chain, &off));
}

/* Also when each delta was asked for: what cannot be read back is not written. */
static void a_chain_is_no_longer_than_can_be_read(void **state)
{
    struct ps_save_chain chain = {0};
    (void)state;
    ps_save_chain_published(&chain, "/a", 1, false, 1000);
    for (uint32_t links = 1; links < PS_CHAIN_LINKS_MAX; links++) {
        assert_true(is_possible(&chain, "/a"));
        ps_save_chain_published(&chain, "/a", 1 + links, true, 1);
    }
    assert_non_null(
        strstr(ps_save_chain_no_delta(&chain, &limits, "/a", true, NULL), "as long as one can be"));
    ps_save_chain_restored(&chain, "/a", PS_CHAIN_LINKS_MAX, PS_CHAIN_LINKS_MAX - 1, 1000, 10);
    assert_false(is_possible(&chain, "/a"));
}

static void so_many_deltas_and_then_a_full_one(void **state)
{
    struct ps_save_chain chain = {0};
    (void)state;
    ps_save_chain_published(&chain, "/a", 1, false, 1000);
    for (uint32_t i = 0; i < 3; i++) {
        assert_false(ps_save_chain_is_long(&chain, &limits));
        ps_save_chain_published(&chain, "/a", 2 + i, true, 1);
    }
    assert_true(ps_save_chain_is_long(&chain, &limits));
    ps_save_chain_published(&chain, "/a", 5, false, 1000);
    assert_false(ps_save_chain_is_long(&chain, &limits));
    assert_int_equal(chain.last_id, 5);
}

static void so_many_bytes_and_then_a_full_one(void **state)
{
    struct ps_save_chain chain = {0};
    (void)state;
    ps_save_chain_published(&chain, "/a", 1, false, 1000);
    ps_save_chain_published(&chain, "/a", 2, true, 500);
    assert_false(ps_save_chain_is_long(&chain, &limits));
    ps_save_chain_published(&chain, "/a", 3, true, 1);
    assert_true(ps_save_chain_is_long(&chain, &limits));
    ps_save_chain_restored(&chain, "/a", 3, 2, UINT64_MAX / 2, UINT64_MAX / 2);
    assert_true(ps_save_chain_is_long(&chain, &limits));
    ps_save_chain_restored(&chain, "/a", 3, 2, UINT64_MAX / 2, UINT64_MAX / 5);
    assert_false(ps_save_chain_is_long(&chain, &limits));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_delta_needs_its_parent),
        cmocka_unit_test(switched_off_there_are_none),
        cmocka_unit_test(a_chain_is_no_longer_than_can_be_read),
        cmocka_unit_test(so_many_deltas_and_then_a_full_one),
        cmocka_unit_test(so_many_bytes_and_then_a_full_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
