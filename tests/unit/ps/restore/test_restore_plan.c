/* What a restore takes, under which names and numbers, and what it refuses. */
#include <stdio.h>
#include <string.h>
#include "ps/restore/restore_plan.h"
#include "tests/test.h"

static struct ps_catalog held, node;
static struct ps_restore_plan plan;
static char text[PS_RESTORE_PLAN_TEXT_BYTES];
static uint32_t next_id;

static void restore_plan_add(struct ps_catalog *c, uint32_t id, const char *name, uint32_t dim)
{
    struct mr_feature f = mr_feature_table(name, dim);
    ps_catalog_add(c, id, &f);
}

/* The checkpoint: a 1, b 2, variable v 7. The node: b 1 and x 2. */
static int set_up(void **state)
{
    struct mr_feature v = mr_feature_variable("v", 0, NULL);
    memset(&held, 0, sizeof(held));
    memset(&node, 0, sizeof(node));
    memset(&plan, 0xa5, sizeof(plan));
    restore_plan_add(&held, 1, "a", 4);
    restore_plan_add(&held, 2, "b", 4);
    ps_catalog_add(&held, 7, &v);
    restore_plan_add(&node, 1, "b", 4);
    restore_plan_add(&node, 2, "x", 4);
    text[0] = '\0';
    next_id = 3;
    return 0;
}

static struct mr_restore_pair pair(const char *name, const char *new_name)
{
    struct mr_restore_pair p = {0};
    snprintf(p.name, sizeof(p.name), "%s", name);
    snprintf(p.new_name, sizeof(p.new_name), "%s", new_name);
    return p;
}

static enum mr_status restore_plan_make(const struct mr_restore_pair *pairs, uint32_t count, bool replace)
{
    return ps_restore_plan_make(&held, &node, pairs, count, replace, next_id, &plan, text);
}

static void check_entry(uint32_t i, const char *name, uint32_t checkpoint_id, uint32_t id,
                        uint32_t replaced_id)
{
    assert_string_equal(plan.entries[i].feature.name, name);
    assert_int_equal(plan.entries[i].checkpoint_id, checkpoint_id);
    assert_int_equal(plan.entries[i].id, id);
    assert_int_equal(plan.entries[i].replaced_id, replaced_id);
}

static void check_refused(const struct mr_restore_pair *pairs, uint32_t count, bool replace,
                          enum mr_status status, const char *says)
{
    assert_int_equal(restore_plan_make(pairs, count, replace), status);
    assert_says(text, says);
}

TEST(all_of_it_keeps_its_numbers, set_up)
{
    assert_int_equal(restore_plan_make(NULL, 0, false), MR_OK);
    assert_true(plan.whole);
    assert_int_equal(plan.count, 3);
    check_entry(0, "a", 1, 1, 0);
    check_entry(2, "v", 7, 7, 0);
    ps_restore_plan_apply(&plan, &node);
    assert_int_equal(node.count, 3);
    assert_memory_equal(node.features, held.features, 3 * sizeof(held.features[0]));
    assert_memory_equal(node.ids, held.ids, 3 * sizeof(held.ids[0]));
}

TEST(named_ones_get_free_numbers, set_up)
{
    const struct mr_restore_pair pairs[3] = {pair("v", ""), pair("b", "b_old"), pair("a", "z/1")};
    assert_int_equal(restore_plan_make(pairs, 3, false), MR_OK);
    assert_false(plan.whole);
    assert_int_equal(plan.count, 3);
    check_entry(0, "v", 7, 3, 0);
    check_entry(1, "b_old", 2, 4, 0);
    check_entry(2, "z/1", 1, 5, 0);
    assert_int_equal(plan.entries[1].feature.dims[0], 4);
    ps_restore_plan_apply(&plan, &node);
    assert_int_equal(node.count, 5);
    assert_int_equal(node.ids[ps_catalog_find(&node, "x")], 2);
    assert_int_equal(node.ids[ps_catalog_find(&node, "b_old")], 4);
}

TEST(numbers_begin_where_the_node_says, set_up)
{
    const struct mr_restore_pair pairs[2] = {pair("a", ""), pair("v", "")};
    next_id = MR_FEATURE_ID_MAX - 1;
    assert_int_equal(restore_plan_make(pairs, 2, false), MR_OK);
    check_entry(0, "a", 1, MR_FEATURE_ID_MAX - 1, 0);
    check_entry(1, "v", 7, MR_FEATURE_ID_MAX, 0);
    next_id = MR_FEATURE_ID_MAX;
    check_refused(pairs, 2, false, MR_INVALID_ARGUMENT,
                  "v: a node has at most 4096 features, and all numbers");
}

TEST(one_that_is_there_is_refused_or_replaced, set_up)
{
    const struct mr_restore_pair pairs[2] = {pair("a", ""), pair("b", "")}, other = pair("a", "x");
    check_refused(pairs, 2, false, MR_INVALID_ARGUMENT, "b is there already");
    check_refused(&other, 1, false, MR_INVALID_ARGUMENT, "x is there already");
    assert_int_equal(restore_plan_make(pairs, 2, true), MR_OK);
    check_entry(0, "a", 1, 3, 0);
    check_entry(1, "b", 2, 1, 1); /* under its number on the node */
    ps_restore_plan_apply(&plan, &node);
    assert_int_equal(node.count, 3);
    assert_int_equal(node.ids[ps_catalog_find(&node, "b")], 1);
    assert_int_equal(node.ids[ps_catalog_find(&node, "a")], 3);
}

TEST(a_table_does_not_replace_a_variable, set_up)
{
    const struct mr_restore_pair pairs[1] = {pair("v", "x")};
    check_refused(pairs, 1, true, MR_INVALID_ARGUMENT, "x is a table in one");
}

TEST(names_are_checked, set_up)
{
    struct mr_restore_pair pairs[2] = {pair("a", ""), pair("c", "")};
    check_refused(pairs, 2, false, MR_UNKNOWN_TABLE, "no table, variable or parameter named c");
    pairs[1] = pair("a", "a2");
    check_refused(pairs, 2, false, MR_INVALID_ARGUMENT, "a is asked for twice");
    pairs[1] = pair("v", "a");
    check_refused(pairs, 2, false, MR_INVALID_ARGUMENT, "two of the names to restore would be a");
    pairs[1] = pair("v", "not good");
    check_refused(pairs, 2, false, MR_INVALID_ARGUMENT, "cannot be named not good");
    pairs[1] = pair("", "x");
    check_refused(pairs, 2, false, MR_INVALID_ARGUMENT, "entry 1");
    memset(pairs[1].name, 'n', sizeof(pairs[1].name)); /* no end */
    check_refused(pairs, 2, false, MR_INVALID_ARGUMENT, "entry 1");
    pairs[1] = pair("v", "");
    memset(pairs[1].new_name, 'n', sizeof(pairs[1].new_name));
    check_refused(pairs, 2, false, MR_INVALID_ARGUMENT, "entry 1");
    held.count = 0;
    check_refused(pairs, 1, false, MR_UNKNOWN_TABLE, "it has 0");
}

TEST(a_full_node_takes_no_more, set_up)
{
    const struct mr_restore_pair pairs[2] = {pair("a", ""), pair("v", "")};
    char name[MR_NAME_BYTES];
    for (uint32_t id = 3; id < MR_FEATURE_MAX; id++) {
        snprintf(name, sizeof(name), "t%u", id);
        restore_plan_add(&node, id, name, 1);
    }
    next_id = 5000;
    assert_int_equal(restore_plan_make(pairs, 1, false), MR_OK);
    check_entry(0, "a", 1, next_id, 0);
    check_refused(pairs, 2, false, MR_INVALID_ARGUMENT, "v: a node has at most 4096 features");
}
