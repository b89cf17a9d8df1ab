#include <string.h>
#include "trainer_client/hub/samples/distinct.h"
#include "tests/test.h"

TEST(exact_while_it_fits)
{
    struct hub_distinct *d = hub_distinct_create(1024);
    assert_non_null(d);
    assert_int_equal(hub_distinct_count(d), 0);
    for (int round = 0; round < 3; round++)
        for (uint64_t key = 0; key < 512; key++)
            hub_distinct_add(d, key * 977);
    assert_int_equal(hub_distinct_count(d), 512);
    assert_true(hub_distinct_is_exact(d));
    hub_distinct_add(d, UINT64_MAX);
    assert_false(hub_distinct_is_exact(d));
    hub_distinct_destroy(d);
}

TEST(an_estimate_beyond)
{
    struct hub_distinct *d = hub_distinct_create(1u << 14);
    assert_non_null(d);
    for (int round = 0; round < 2; round++)
        for (uint64_t key = 0; key < 1000000; key++)
            hub_distinct_add(d, key);
    assert_false(hub_distinct_is_exact(d));
    /* At least 4096 hashes are kept: a standard error of at most 1.6 %; keys and hash are fixed. */
    assert_true(hub_distinct_count(d) > 930000 && hub_distinct_count(d) < 1070000);
    hub_distinct_destroy(d);
}

TEST(nothing_to_destroy)
{
    hub_distinct_destroy(NULL);
}
