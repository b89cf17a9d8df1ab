/* Names and numbers of features. */
#include <stdio.h>
#include "ps/core/catalog.h"
#include "tests/test.h"

TEST(finds_by_name_and_number)
{
    static struct ps_catalog c;
    struct mr_feature a = mr_feature_table("a", 1), b = mr_feature_table("b", 1);
    assert_int_equal(ps_catalog_last_id(&c), 0);
    ps_catalog_add(&c, 2, &a);
    assert_int_equal(ps_catalog_last_id(&c), 2);
    ps_catalog_add(&c, 1, &b);
    assert_int_equal(ps_catalog_last_id(&c), 2);
    assert_int_equal(ps_catalog_find(&c, "a"), 0);
    assert_int_equal(ps_catalog_find(&c, "b"), 1);
    assert_int_equal(ps_catalog_find(&c, "ab"), c.count);
    assert_int_equal(ps_catalog_find_id(&c, 1), 1);
    assert_int_equal(ps_catalog_find_id(&c, 3), c.count);
    ps_catalog_pop(&c);
    assert_int_equal(ps_catalog_find(&c, "b"), 1);
    assert_int_equal(c.count, 1);
}
