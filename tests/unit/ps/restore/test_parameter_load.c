/* A checkpoint's parameters while they are loaded: in pieces of any order, and refused when they are not
 * whole or do not fit the node's. */
#include <stdio.h>
#include <string.h>
#include "ps/restore/parameter_load.h"
#include "tests/test.h"

static struct ps_saved_parameter saved[] = {
    {.name = "a", .rank = 2, .dims = {2, 3}, .step = 8},
    {.name = "a", .optimizer = "t", .rule = MR_OPT_MOMENTUM, .rank = 1, .dims = {2}, .step = 7},
    {.name = "a", .optimizer = "u", .rule = MR_OPT_SGD, .rank = 1, .dims = {0}, .step = 9},
};
static const struct ps_manifest manifest = {.parameters = saved, .parameter_count = 3};
static const float values[] = {1, 2, 3, 4, 5, 6}, state_values[] = {7, 8};

static struct ps_parameter_load *parameter_load_begin(void)
{
    struct ps_parameter_load *load = NULL;
    char text[PS_PARAMETER_TEXT_BYTES];
    assert_int_equal(ps_parameter_load_create(&manifest, NULL, 0, &load, text), MR_OK);
    return load;
}

static enum mr_status parameter_load_add(struct ps_parameter_load *load, uint32_t index, const float *from,
                                         uint32_t first, uint32_t count, char *text)
{
    const struct ps_record record = {.kind = PS_RECORD_PARAMETER,
                                     .feature = index,
                                     .count = count * 4,
                                     .bytes = count * 4,
                                     .offset = (uint64_t)first * 4};
    return ps_parameter_load_add(load, &record, (const uint8_t *)(from + first), text);
}

static void add_all(struct ps_parameter_load *load)
{
    char text[PS_PARAMETER_TEXT_BYTES];
    assert_int_equal(parameter_load_add(load, 0, values, 4, 2, text), MR_OK);
    assert_int_equal(parameter_load_add(load, 1, state_values, 0, 2, text), MR_OK);
    assert_int_equal(parameter_load_add(load, 0, values, 0, 4, text), MR_OK);
    assert_int_equal(ps_parameter_load_check(load, text), MR_OK);
}

TEST(what_is_whole_becomes_the_nodes)
{
    struct mr_named_parameters *node = mr_named_create();
    struct ps_parameter_load *load = parameter_load_begin();
    struct mr_versions *versions;
    char text[PS_PARAMETER_TEXT_BYTES];
    float zeros[6] = {0};
    add_all(load);
    assert_int_equal(ps_parameter_load_fits(load, node, true, text), MR_OK);
    assert_int_equal(ps_parameter_load_give(load, node, true, text), MR_OK);
    ps_parameter_load_destroy(load);
    const struct mr_tensor initial = mr_tensor_2d(MR_F32, 2, 3, zeros);
    assert_int_equal(mr_named_open(node, "a", &initial, &versions, text), MR_OK);
    struct mr_parameter_version *v = mr_versions_hold(versions);
    assert_int_equal(mr_version_number(v), 8);
    assert_memory_equal(mr_version_values(v), values, sizeof(values));
    mr_version_release(v);
    mr_versions_release(versions);
    assert_int_equal(mr_named_steps(mr_named_optimizer(node, "t")), 7);
    assert_int_equal(mr_named_steps(mr_named_optimizer(node, "u")), 9);
    mr_named_destroy(node);
}

TEST(what_is_not_whole_is_refused)
{
    struct ps_parameter_load *load = parameter_load_begin();
    char text[PS_PARAMETER_TEXT_BYTES];
    assert_int_equal(parameter_load_add(load, 0, values, 0, 6, text), MR_OK);
    assert_int_equal(parameter_load_add(load, 0, values, 0, 1, text), MR_CHECKPOINT_CORRUPT);
    assert_string_equal(text, "parameter a: a piece reaches beyond its end, or comes twice");
    assert_int_equal(parameter_load_add(load, 1, values, 2, 1, text), MR_CHECKPOINT_CORRUPT);
    assert_int_equal(parameter_load_add(load, 3, values, 0, 1, text), MR_CHECKPOINT_CORRUPT);
    assert_string_equal(text, "a record belongs to parameter 3, which is not in the manifest");
    assert_int_equal(parameter_load_add(load, 1, state_values, 0, 1, text), MR_OK);
    assert_int_equal(ps_parameter_load_check(load, text), MR_CHECKPOINT_CORRUPT);
    assert_string_equal(text, "parameter a, state of t: it is not whole");
    ps_parameter_load_destroy(load);
}

TEST(what_does_not_fit_changes_nothing)
{
    struct mr_named_parameters *node = mr_named_create();
    struct ps_parameter_load *load = parameter_load_begin();
    struct mr_versions *versions;
    char text[PS_PARAMETER_TEXT_BYTES];
    float zeros[6] = {0};
    const struct mr_tensor other = mr_tensor_2d(MR_F32, 3, 2, zeros);
    assert_int_equal(mr_named_open(node, "a", &other, &versions, text), MR_OK);
    add_all(load);
    assert_int_equal(ps_parameter_load_fits(load, node, true, text), MR_WRONG_SHAPE);
    assert_non_null(strstr(text, "parameter a of the node has another shape"));
    assert_int_equal(ps_parameter_load_give(load, node, true, text), MR_WRONG_SHAPE);
    struct mr_parameter_version *v = mr_versions_hold(versions);
    assert_true(mr_version_values(v)[0] == 0);
    mr_version_release(v);
    mr_versions_release(versions);
    ps_parameter_load_destroy(load);
    mr_named_destroy(node);
}

/* ---- by name ---- */

static const struct ps_manifest two = {
    .parameters =
        (struct ps_saved_parameter[]){
            {.name = "a", .rank = 1, .dims = {2}, .step = 8},
            {.name = "b", .rank = 1, .dims = {2}, .step = 5},
            {.name = "b", .optimizer = "t", .rank = 1, .dims = {2}, .step = 7},
        },
    .parameter_count = 3};

static struct ps_parameter_load *begin_named(const char *name, const char *new_name)
{
    struct ps_parameter_load *load = NULL;
    struct mr_restore_pair pair = {{0}, {0}};
    char text[PS_PARAMETER_TEXT_BYTES];
    snprintf(pair.name, sizeof(pair.name), "%s", name);
    snprintf(pair.new_name, sizeof(pair.new_name), "%s", new_name);
    assert_int_equal(ps_parameter_load_create(&two, &pair, 1, &load, text), MR_OK);
    assert_int_equal(ps_parameter_load_count(load), 1);
    return load;
}

static void add_two(struct ps_parameter_load *load)
{
    char text[PS_PARAMETER_TEXT_BYTES];
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(parameter_load_add(load, i, values + 2 * i, 0, 2, text), MR_OK);
    assert_int_equal(ps_parameter_load_check(load, text), MR_OK);
}

static float first_of(struct mr_named_parameters *node, const char *name)
{
    char text[MR_NAMED_TEXT_BYTES];
    float zeros[2] = {0};
    struct mr_versions *versions;
    const struct mr_tensor initial = mr_tensor_1d(MR_F32, 2, zeros);
    assert_int_equal(mr_named_open(node, name, &initial, &versions, text), MR_OK);
    struct mr_parameter_version *v = mr_versions_hold(versions);
    const float value = mr_version_values(v)[0];
    mr_version_release(v);
    mr_versions_release(versions);
    return value;
}

/* One that the node has is replaced only on demand; a new name takes the values alone. */
TEST(names_choose)
{
    struct mr_named_parameters *node = mr_named_create();
    char text[PS_PARAMETER_TEXT_BYTES];
    assert_true(first_of(node, "b") == 0);
    struct ps_parameter_load *load = begin_named("b", "");
    add_two(load);
    assert_int_equal(ps_parameter_load_fits(load, node, false, text), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(text, "parameter b is there already"));
    assert_int_equal(ps_parameter_load_give(load, node, false, text), MR_INVALID_ARGUMENT);
    assert_true(first_of(node, "b") == 0);
    assert_int_equal(ps_parameter_load_give(load, node, true, text), MR_OK);
    assert_true(first_of(node, "b") == 3);
    assert_false(mr_named_is_there(node, "a"));
    assert_int_equal(mr_named_steps(mr_named_optimizer(node, "t")), 7);
    ps_parameter_load_destroy(load);
    load = begin_named("b", "b_before");
    add_two(load);
    assert_int_equal(ps_parameter_load_give(load, node, false, text), MR_OK);
    ps_parameter_load_destroy(load);
    struct mr_named_cut *cut = mr_named_cut(node, NULL, 0);
    assert_int_equal(cut->count, 3); /* b, its state, and the other's values */
    assert_string_equal(cut->items[2].name, "b_before");
    assert_string_equal(cut->items[2].optimizer, "");
    assert_int_equal(cut->items[2].step, 5);
    mr_named_cut_free(cut);
    assert_true(first_of(node, "b_before") == 3);
    mr_named_destroy(node);
}

TEST(names_that_clash_are_refused)
{
    struct mr_restore_pair pairs[2] = {{"a", "c"}, {"b", "c"}};
    struct ps_parameter_load *load = NULL;
    char text[PS_PARAMETER_TEXT_BYTES];
    assert_true(ps_parameter_is_listed(&two, "b") && !ps_parameter_is_listed(&two, "c"));
    assert_int_equal(ps_parameters_listed(&two), 2);
    assert_int_equal(ps_parameter_load_create(&two, pairs, 2, &load, text), MR_INVALID_ARGUMENT);
    assert_string_equal(text, "two of the names to restore are, or would be, c");
    snprintf(pairs[1].new_name, sizeof(pairs[1].new_name), "no name");
    assert_int_equal(ps_parameter_load_create(&two, pairs, 2, &load, text), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(text, "b cannot be named no name"));
}
