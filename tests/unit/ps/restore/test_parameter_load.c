/* A checkpoint's parameters while they are loaded: in pieces of any order, and refused when they are not
 * whole or do not fit the node's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "ps/restore/parameter_load.h"

static struct ps_saved_parameter saved[] = {
    {.name = "a", .rank = 2, .dims = {2, 3}, .step = 8},
    {.name = "a", .optimizer = "t", .rule = MR_OPT_MOMENTUM, .rank = 1, .dims = {2}, .step = 7},
    {.name = "a", .optimizer = "u", .rule = MR_OPT_SGD, .rank = 1, .dims = {0}, .step = 9},
};
static const struct ps_manifest manifest = {.parameters = saved, .parameter_count = 3};
static const float values[] = {1, 2, 3, 4, 5, 6}, state_values[] = {7, 8};

static struct ps_parameter_load *begin(void)
{
    struct ps_parameter_load *load = NULL;
    char text[PS_PARAMETER_TEXT_BYTES];
    assert_int_equal(ps_parameter_load_create(&manifest, &load, text), MR_OK);
    return load;
}

static enum mr_status add(struct ps_parameter_load *load, uint32_t index, const float *from, uint32_t first,
                          uint32_t count, char *text)
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
    assert_int_equal(add(load, 0, values, 4, 2, text), MR_OK);
    assert_int_equal(add(load, 1, state_values, 0, 2, text), MR_OK);
    assert_int_equal(add(load, 0, values, 0, 4, text), MR_OK);
    assert_int_equal(ps_parameter_load_check(load, text), MR_OK);
}

static void what_is_whole_becomes_the_nodes(void **state)
{
    struct mr_named_parameters *node = mr_named_create();
    struct ps_parameter_load *load = begin();
    struct mr_versions *versions;
    char text[PS_PARAMETER_TEXT_BYTES];
    float zeros[6] = {0};
    add_all(load);
    assert_int_equal(ps_parameter_load_fits(load, node, text), MR_OK);
    assert_int_equal(ps_parameter_load_give(load, node, text), MR_OK);
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

static void what_is_not_whole_is_refused(void **state)
{
    struct ps_parameter_load *load = begin();
    char text[PS_PARAMETER_TEXT_BYTES];
    assert_int_equal(add(load, 0, values, 0, 6, text), MR_OK);
    assert_int_equal(add(load, 0, values, 0, 1, text), MR_CHECKPOINT_CORRUPT);
    assert_string_equal(text, "parameter a: a piece reaches beyond its end, or comes twice");
    assert_int_equal(add(load, 1, values, 2, 1, text), MR_CHECKPOINT_CORRUPT);
    assert_int_equal(add(load, 3, values, 0, 1, text), MR_CHECKPOINT_CORRUPT);
    assert_string_equal(text, "a record belongs to parameter 3, which is not in the manifest");
    assert_int_equal(add(load, 1, state_values, 0, 1, text), MR_OK);
    assert_int_equal(ps_parameter_load_check(load, text), MR_CHECKPOINT_CORRUPT);
    assert_string_equal(text, "parameter a, state of t: it is not whole");
    ps_parameter_load_destroy(load);
}

static void what_does_not_fit_changes_nothing(void **state)
{
    struct mr_named_parameters *node = mr_named_create();
    struct ps_parameter_load *load = begin();
    struct mr_versions *versions;
    char text[PS_PARAMETER_TEXT_BYTES];
    float zeros[6] = {0};
    const struct mr_tensor other = mr_tensor_2d(MR_F32, 3, 2, zeros);
    assert_int_equal(mr_named_open(node, "a", &other, &versions, text), MR_OK);
    add_all(load);
    assert_int_equal(ps_parameter_load_fits(load, node, text), MR_WRONG_SHAPE);
    assert_non_null(strstr(text, "parameter a of the node has another shape"));
    assert_int_equal(ps_parameter_load_give(load, node, text), MR_WRONG_SHAPE);
    struct mr_parameter_version *v = mr_versions_hold(versions);
    assert_true(mr_version_values(v)[0] == 0);
    mr_version_release(v);
    mr_versions_release(versions);
    ps_parameter_load_destroy(load);
    mr_named_destroy(node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_whole_becomes_the_nodes),
        cmocka_unit_test(what_is_not_whole_is_refused),
        cmocka_unit_test(what_does_not_fit_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
