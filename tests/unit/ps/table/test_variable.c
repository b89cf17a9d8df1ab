#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "ps/row/initializer.h"
#include "ps/table/variable.h"
#include "table_fixture.h"
#include "tests/test.h"

struct fixture {
    struct ps_arena *arena;
    struct ps_variable *v;
};

static const uint32_t dims[] = {3, 5};

static struct mr_feature feature(void)
{
    struct mr_feature f = mr_feature_variable("v", 2, dims);
    f.optimizer = MR_OPT_ADAGRAD;
    f.learning_rate = 0.5f;
    f.optimizer_args[0] = 1;
    f.initializer = MR_INIT_NORMAL;
    f.init_b = 1;
    f.seed = 4;
    return f;
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct mr_feature descriptor = feature();
    const char *what = NULL;
    assert_non_null(f);
    f->arena = ps_arena_create(FIXTURE_LIMIT_BYTES);
    assert_non_null(f->arena);
    assert_null(mr_feature_check(&descriptor));
    assert_int_equal(ps_variable_create(&descriptor, 0, f->arena, &f->v, &what), MR_OK);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    ps_variable_destroy(f->v);
    assert_int_equal(ps_arena_allocated_bytes(f->arena), 0);
    ps_arena_destroy(f->arena);
    free(f);
    return 0;
}

TEST(test_first_values, set_up, tear_down)
{
    struct fixture *f = *state;
    struct mr_feature descriptor = feature();
    struct ps_initializer init;
    const char *what = NULL;
    float expected[15];
    assert_int_equal(ps_initializer_init(&descriptor, &init, &what), MR_OK);
    ps_initializer_fill(&init, 0, expected, 15);
    assert_int_equal(ps_variable_elements(f->v), 15);
    assert_memory_equal(ps_variable_values(f->v), expected, sizeof(expected));
}

TEST(test_a_range_is_set_and_bounds_hold, set_up, tear_down)
{
    struct fixture *f = *state;
    const float values[3] = {7, 8, 9};
    float before[15];
    memcpy(before, ps_variable_values(f->v), sizeof(before));
    assert_int_equal(ps_variable_set(f->v, 13, values, 3), MR_WRONG_SHAPE);
    assert_int_equal(ps_variable_set(f->v, 16, values, 0), MR_WRONG_SHAPE);
    assert_int_equal(ps_variable_set(f->v, UINT64_MAX, values, 2), MR_WRONG_SHAPE);
    assert_int_equal(ps_variable_set(f->v, 1, values, UINT64_MAX), MR_WRONG_SHAPE);
    assert_memory_equal(ps_variable_values(f->v), before, sizeof(before));
    assert_int_equal(ps_variable_set(f->v, 12, values, 3), MR_OK);
    assert_int_equal(ps_variable_set(f->v, 15, NULL, 0), MR_OK);
    assert_memory_equal(ps_variable_values(f->v), before, 12 * sizeof(float));
    assert_true(ps_variable_values(f->v)[12] == 7 && ps_variable_values(f->v)[14] == 9);
}

TEST(test_a_push_is_one_step_of_the_optimizer, set_up, tear_down)
{
    struct fixture *f = *state;
    float zero[15] = {0}, gradient[15];
    for (uint32_t i = 0; i < 15; i++)
        gradient[i] = (float)i;
    ps_variable_set(f->v, 0, zero, 15);
    assert_true(ps_variable_push(f->v, 0, 0, gradient));
    for (uint32_t i = 0; i < 15; i++) {
        double expected = -0.5 * i / sqrt(1.0 + i * i);
        assert_true(fabs((double)ps_variable_values(f->v)[i] - expected) < 1e-6);
    }
}

TEST(test_a_bad_gradient_changes_nothing, set_up, tear_down)
{
    struct fixture *f = *state;
    float gradient[15] = {1}, before[30], after[30];
    gradient[14] = INFINITY;
    assert_int_equal(ps_variable_stored_bytes(f->v), sizeof(before));
    ps_variable_store(f->v, 0, ps_variable_stored_bytes(f->v), (uint8_t *)before);
    assert_false(ps_variable_push(f->v, 0, 0, gradient));
    ps_variable_store(f->v, 0, ps_variable_stored_bytes(f->v), (uint8_t *)after);
    assert_memory_equal(before, after, sizeof(before));
}

TEST(test_what_is_stored_goes_on_as_before, set_up, tear_down)
{
    struct fixture *f = *state;
    struct mr_feature descriptor = feature();
    struct ps_variable *other = NULL;
    const char *what = NULL;
    float gradient[15], stored[30], again[30];
    for (uint32_t i = 0; i < 15; i++)
        gradient[i] = 0.1f * (float)i;
    descriptor.seed = 99;
    assert_int_equal(ps_variable_create(&descriptor, 0, f->arena, &other, &what), MR_OK);
    assert_true(ps_variable_push(f->v, 0, 0, gradient));
    ps_variable_store(f->v, 0, ps_variable_stored_bytes(f->v), (uint8_t *)stored);
    ps_variable_load(other, (const uint8_t *)stored);
    assert_true(ps_variable_push(f->v, 0, 0, gradient) && ps_variable_push(other, 0, 0, gradient));
    ps_variable_store(f->v, 0, ps_variable_stored_bytes(f->v), (uint8_t *)stored);
    ps_variable_store(other, 0, ps_variable_stored_bytes(other), (uint8_t *)again);
    assert_memory_equal(stored, again, sizeof(stored));
    ps_variable_destroy(other);
}

TEST(test_a_scalar_has_one_element, set_up, tear_down)
{
    struct fixture *f = *state;
    struct mr_feature descriptor = mr_feature_variable("bias", 0, NULL);
    struct ps_variable *bias = NULL;
    const char *what = NULL;
    const float gradient[1] = {2};
    descriptor.learning_rate = 0.5f;
    assert_int_equal(ps_variable_create(&descriptor, 0, f->arena, &bias, &what), MR_OK);
    assert_int_equal(ps_variable_elements(bias), 1);
    assert_true(ps_variable_push(bias, 0, 0, gradient));
    assert_true(ps_variable_values(bias)[0] == -1);
    ps_variable_destroy(bias);
    ps_variable_destroy(NULL);
}

/* Values that are set stay, whatever the optimizer's state says; a push goes on from them. */
TEST(test_values_that_are_set_are_a_start_for_every_optimizer, set_up, tear_down)
{
    struct fixture *f = *state;
    const uint32_t shape[1] = {6};
    for (uint32_t kind = MR_OPT_SGD; kind <= MR_OPT_GROUP_FTRL; kind++) {
        struct mr_feature descriptor = mr_feature_variable("v", 1, shape);
        struct ps_variable *v = NULL;
        const char *what = NULL;
        const float gradient[6] = {1, -1, 2, -2, 0.5f, 0}, none[6] = {0}, set[4] = {0.5f, -3, 0.125f, 0};
        mr_feature_set_optimizer(&descriptor, (enum mr_optimizer)kind);
        if (kind == MR_OPT_GROUP_FTRL)
            descriptor.optimizer_args[4] = 0.1f;
        assert_int_equal(ps_variable_create(&descriptor, 0, f->arena, &v, &what), MR_OK);
        assert_true(ps_variable_push(v, 0, 0, gradient) && ps_variable_push(v, 1, &(float){0.02f}, gradient));
        float before[6];
        memcpy(before, ps_variable_values(v), sizeof(before));
        assert_true(before[0] < 0 && before[1] > 0 && before[5] == 0);
        assert_int_equal(ps_variable_set(v, 1, set, 4), MR_OK);
        memcpy(before + 1, set, sizeof(set));
        assert_memory_equal(ps_variable_values(v), before, sizeof(before));
        assert_true(ps_variable_push(v, 2, &(float){1e-6f},
                                     none)); /* momentum goes on, but in steps of next to nothing */
        for (uint32_t i = 0; i < 6; i++)
            assert_true(fabsf(ps_variable_values(v)[i] - before[i]) < 1e-5f);
        assert_true(ps_variable_push(v, 3, 0, gradient));
        assert_true(ps_variable_values(v)[1] > before[1] || kind == MR_OPT_MOMENTUM);
        ps_variable_destroy(v);
    }
}

TEST(test_a_push_to_a_variable_that_is_set_is_its_value, set_up, tear_down)
{
    struct fixture *f = *state;
    const uint32_t shape[1] = {3};
    const float first[3] = {1, -2, 3.5f}, next[3] = {-0.0f, 7, 1e-42f}, bad[3] = {1, NAN, 1}, rate = 0.25f;
    struct mr_feature descriptor = mr_feature_variable("v", 1, shape);
    struct ps_variable *v = NULL;
    const char *what = NULL;
    mr_feature_set_optimizer(&descriptor, MR_OPT_ASSIGN);
    assert_int_equal(ps_variable_create(&descriptor, 0, f->arena, &v, &what), MR_OK);
    assert_int_equal(ps_variable_stored_bytes(v), sizeof(first));
    assert_true(ps_variable_push(v, 0, 0, first));
    assert_memory_equal(ps_variable_values(v), first, sizeof(first));
    assert_true(ps_variable_push(v, 9, &rate, next) && !ps_variable_push(v, 9, &rate, bad));
    assert_memory_equal(ps_variable_values(v), next, sizeof(next));
    ps_variable_destroy(v);
}

/* A core serves others in between. */
TEST(test_a_large_variable_that_nobody_uses_goes_back_unit_by_unit, set_up, tear_down)
{
    struct fixture *f = *state;
    struct mr_feature descriptor = feature();
    struct ps_variable *v = NULL;
    const char *what = NULL;
    descriptor.dims[0] = (5u << 20) / descriptor.dims[1] / sizeof(float) + 1;
    size_t before = ps_arena_allocated_bytes(f->arena);
    assert_int_equal(ps_variable_create(&descriptor, 0, f->arena, &v, &what), MR_OK);
    uint64_t units = ps_variable_stored_bytes(v) / PS_ARENA_HUGE_PAGE_BYTES, slices = 1;
    for (uint64_t given = ps_arena_huge_pages_given(f->arena); ps_variable_destroy_some(v); slices++)
        assert_int_equal(ps_arena_huge_pages_given(f->arena), ++given);
    assert_int_in_range(slices, units, units + 1);
    assert_false(ps_variable_destroy_some(v));
    ps_variable_destroy(v);
    assert_int_equal(ps_arena_allocated_bytes(f->arena), before);
    assert_false(ps_variable_destroy_some(f->v)); /* a small one has none to give */
}

TEST(test_refusals, set_up, tear_down)
{
    struct fixture *f = *state;
    struct mr_feature descriptor = feature();
    struct ps_variable *v = NULL;
    const char *what = NULL;
    descriptor.dtype = MR_F16;
    assert_int_equal(ps_variable_create(&descriptor, 0, f->arena, &v, &what), MR_UNSUPPORTED);
    assert_string_equal(what, "dtype other than f32");
    descriptor = feature();
    descriptor.optimizer = 77;
    assert_int_equal(ps_variable_create(&descriptor, 0, f->arena, &v, &what), MR_UNSUPPORTED);
    assert_string_equal(what, "optimizer of an unknown number");
    descriptor = feature();
    descriptor.dims[0] = 1u << 14;
    descriptor.dims[1] = 1u << 14;
    size_t allocated = ps_arena_allocated_bytes(f->arena);
    assert_int_equal(ps_variable_create(&descriptor, 0, f->arena, &v, &what), MR_OUT_OF_MEMORY);
    assert_int_equal(ps_arena_allocated_bytes(f->arena), allocated);
    assert_null(v);
}
