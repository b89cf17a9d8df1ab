/* Parameters with names: found again with what they have learnt, cut between two steps, and replaced by what
 * a checkpoint has. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "dataplane/optimizer/named_parameters.h"
#include "tests/test.h"

#define FLOATS 6u

static int setup(void **state)
{
    *state = mr_named_create();
    assert_non_null(*state);
    return 0;
}

static int teardown(void **state)
{
    mr_named_destroy(*state);
    return 0;
}

static struct mr_tensor tensor(uint32_t count, float *values, float first)
{
    for (uint32_t i = 0; i < count; i++)
        values[i] = first + (float)i;
    return mr_tensor_1d(MR_F32, count, values);
}

static struct mr_versions *open_one(struct mr_named_parameters *all, const char *name, float first)
{
    float values[FLOATS];
    struct mr_versions *versions = NULL;
    char text[MR_NAMED_TEXT_BYTES];
    const struct mr_tensor initial = tensor(FLOATS, values, first);
    assert_int_equal(mr_named_open(all, name, &initial, &versions, text), MR_OK);
    return versions;
}

static void add_one(void *context, float *values)
{
    for (uint32_t i = 0; i < FLOATS; i++)
        values[i] += 1;
}

static float first_of(struct mr_versions *versions)
{
    struct mr_parameter_version *v = mr_versions_hold(versions);
    float first = mr_version_values(v)[0];
    mr_version_release(v);
    return first;
}

TEST(names_are_those_of_tables)
{
    assert_true(mr_named_is_name("mnist/conv1.weight"));
    assert_true(mr_named_is_name("a"));
    assert_false(mr_named_is_name(""));
    assert_false(mr_named_is_name("two words"));
    assert_false(mr_named_is_name("a name that is longer than the sixty-three bytes that names may have"));
}

TEST(a_name_is_found_again, setup, teardown)
{
    struct mr_named_parameters *all = *state;
    float values[FLOATS];
    char text[MR_NAMED_TEXT_BYTES];
    uint64_t changes = mr_named_changes(all);
    struct mr_versions *a = open_one(all, "a", 1), *other = open_one(all, "b", 50);
    assert_true(mr_named_changes(all) > changes);
    assert_int_equal(mr_versions_change(a, add_one, NULL), MR_OK);
    mr_versions_release(a); /* nobody uses it any more */
    struct mr_versions *again = open_one(all, "a", 100);
    assert_ptr_equal(again, a);
    assert_true(first_of(again) == 2);
    mr_versions_release(again);
    mr_versions_release(other);

    const struct mr_tensor wrong = tensor(FLOATS - 1, values, 0);
    assert_int_equal(mr_named_open(all, "a", &wrong, &again, text), MR_WRONG_SHAPE);
    assert_string_equal(
        text, "parameter a is there already, with the shape [6], not [5]: use another name, or drop it");
    assert_true(mr_named_drop(all, "a"));
    assert_false(mr_named_drop(all, "a"));
    assert_false(mr_named_is_there(all, "a"));
    assert_true(mr_named_is_there(all, "b"));
    again = open_one(all, "a", 100);
    assert_true(first_of(again) == 100);
    mr_versions_release(again);
}

TEST(states_are_told_apart_by_optimizer, setup, teardown)
{
    struct mr_named_parameters *all = *state;
    float values[FLOATS];
    char text[MR_NAMED_TEXT_BYTES];
    struct mr_versions *a = open_one(all, "a", 1), *nameless, *of_x, *again, *of_y;
    struct mr_named_optimizer *x = mr_named_optimizer(all, "x"), *y = mr_named_optimizer(all, "y");
    assert_ptr_equal(mr_named_optimizer(all, "x"), x);
    const struct mr_tensor seven = tensor(FLOATS, values, 7);
    assert_int_equal(mr_named_state(all, x, a, MR_OPT_MOMENTUM, &seven, &of_x, text), MR_OK);
    assert_int_equal(mr_versions_change(of_x, add_one, NULL), MR_OK);
    mr_named_stepped(all, x);
    mr_named_stepped(all, x);
    assert_int_equal(mr_named_steps(x), 2);
    assert_int_equal(mr_named_steps(y), 0);
    assert_int_equal(mr_named_state(all, y, a, MR_OPT_MOMENTUM, &seven, &of_y, text), MR_OK);
    assert_int_equal(mr_named_state(all, x, a, MR_OPT_MOMENTUM, &seven, &again, text), MR_OK);
    assert_ptr_equal(again, of_x);
    assert_ptr_not_equal(of_x, of_y);
    assert_true(first_of(of_x) == 8 && first_of(of_y) == 7);
    mr_versions_release(again);
    assert_int_equal(mr_named_state(all, x, a, MR_OPT_ADAGRAD, &seven, &again, text), MR_INVALID_ARGUMENT);
    assert_non_null(strstr(text, "another kind"));
    assert_int_equal(mr_versions_create(&seven, &nameless), MR_OK);
    assert_int_equal(mr_named_state(all, x, nameless, MR_OPT_MOMENTUM, &seven, &again, text),
                     MR_INVALID_ARGUMENT);
    assert_non_null(strstr(text, "has no name"));
    mr_versions_release(nameless);
    mr_versions_release(of_x);
    mr_versions_release(of_y);
    mr_versions_release(a);
}

TEST(a_cut_stays_as_it_was, setup, teardown)
{
    struct mr_named_parameters *all = *state;
    float values[FLOATS];
    char text[MR_NAMED_TEXT_BYTES];
    struct mr_versions *b = open_one(all, "b", 10), *a = open_one(all, "a", 1), *of_x;
    struct mr_named_optimizer *x = mr_named_optimizer(all, "x");
    const struct mr_tensor seven = tensor(FLOATS, values, 7);
    assert_int_equal(mr_named_state(all, x, a, MR_OPT_MOMENTUM, &seven, &of_x, text), MR_OK);
    mr_named_stepped(all, x);
    const char names[][MR_NAME_BYTES] = {"a", "nobody"};
    struct mr_named_cut *some = mr_named_cut(all, names, 2), *none = mr_named_cut(all, names, 0);
    assert_int_equal(some->count, 2); /* with its state */
    assert_string_equal(some->items[0].name, "a");
    assert_string_equal(some->items[1].optimizer, "x");
    assert_int_equal(none->count, 0);
    mr_named_cut_free(some);
    mr_named_cut_free(none);
    struct mr_named_cut *cut = mr_named_cut(all, NULL, 0);
    assert_non_null(cut);
    assert_int_equal(mr_versions_change(a, add_one, NULL), MR_OK);
    assert_int_equal(mr_versions_change(of_x, add_one, NULL), MR_OK);
    mr_named_stepped(all, x);
    assert_true(mr_named_drop(all, "b"));
    assert_int_equal(cut->count, 3);
    assert_string_equal(cut->items[0].name, "a");
    assert_string_equal(cut->items[0].optimizer, "");
    assert_int_equal(cut->items[0].step, 1);
    assert_string_equal(cut->items[1].optimizer, "x");
    assert_int_equal(cut->items[1].rule, MR_OPT_MOMENTUM);
    assert_int_equal(cut->items[1].step, 1);
    assert_string_equal(cut->items[2].name, "b");
    assert_true(mr_version_values(cut->items[0].version)[0] == 1);
    assert_true(mr_version_values(cut->items[1].version)[0] == 7);
    assert_true(mr_version_values(cut->items[2].version)[0] == 10);
    assert_true(first_of(a) == 2 && first_of(of_x) == 8);
    assert_true(mr_named_drop(all, "a")); /* and its state */
    none = mr_named_cut(all, NULL, 0);
    assert_int_equal(none->count, 0);
    mr_named_cut_free(none);
    mr_named_cut_free(cut);
    mr_versions_release(of_x);
    mr_versions_release(a);
    mr_versions_release(b);
}

static struct mr_named_item item(const char *name, const char *optimizer, uint32_t rule, uint64_t step,
                                 float first)
{
    const struct mr_tensor shape = mr_tensor_1d(MR_F32, FLOATS, NULL);
    struct mr_named_item item = {.rule = rule, .step = step, .shape = shape};
    float *values;
    snprintf(item.name, sizeof(item.name), "%s", name);
    snprintf(item.optimizer, sizeof(item.optimizer), "%s", optimizer);
    assert_int_equal(mr_versions_create_from(&shape, step, &item.versions, &values), MR_OK);
    (void)tensor(FLOATS, values, first);
    return item;
}

TEST(what_a_checkpoint_has_replaces_what_is_there, setup, teardown)
{
    struct mr_named_parameters *all = *state;
    float values[FLOATS];
    char text[MR_NAMED_TEXT_BYTES];
    struct mr_versions *a = open_one(all, "a", 1), *stays = open_one(all, "stays", 3), *of_x, *b;
    struct mr_named_optimizer *x = mr_named_optimizer(all, "x");
    const struct mr_tensor seven = tensor(FLOATS, values, 7);
    assert_int_equal(mr_named_state(all, x, a, MR_OPT_MOMENTUM, &seven, &of_x, text), MR_OK);
    struct mr_parameter_version *held = mr_versions_hold(a);
    struct mr_named_item items[] = {item("a", "", 0, 40, 20), item("a", "x", MR_OPT_MOMENTUM, 39, 21),
                                    item("b", "", 0, 5, 22), item("b", "z", MR_OPT_ADAM, 4, 23)};
    assert_null(mr_named_misfit(all, items, 4));
    items[1].rule = MR_OPT_ADAGRAD;
    assert_ptr_equal(mr_named_misfit(all, items, 4), &items[1]);
    items[1].rule = MR_OPT_MOMENTUM;
    items[0].shape.dims[0]--;
    assert_ptr_equal(mr_named_misfit(all, items, 4), &items[0]);
    items[0].shape.dims[0]++;

    assert_int_equal(mr_named_replace(all, items, 4), MR_OK);
    assert_true(mr_version_values(held)[0] == 1); /* whoever computes with it goes on with what it had */
    mr_version_release(held);
    assert_true(first_of(a) == 20 && first_of(of_x) == 21 && first_of(stays) == 3);
    assert_int_equal(mr_named_steps(x), 39);
    held = mr_versions_hold(a);
    assert_int_equal(mr_version_number(held), 40);
    mr_version_release(held);
    assert_int_equal(mr_versions_change(a, add_one, NULL), MR_OK);
    assert_true(first_of(a) == 21);
    b = open_one(all, "b", 0);
    assert_true(first_of(b) == 22);
    assert_int_equal(mr_named_steps(mr_named_optimizer(all, "z")), 4);
    mr_versions_release(b);
    mr_versions_release(of_x);
    mr_versions_release(stays);
    mr_versions_release(a);
}

/* ---- threads ---- */

struct stepper {
    struct mr_named_parameters *all;
    struct mr_named_optimizer *optimizer;
    struct mr_versions *values, *state;
};

static void *step_often(void *arg)
{
    struct stepper *s = arg;
    for (uint32_t i = 0; i < 2000; i++) {
        pthread_mutex_lock(mr_named_lock(s->all));
        assert_int_equal(mr_versions_change(s->values, add_one, NULL), MR_OK);
        assert_int_equal(mr_versions_change(s->state, add_one, NULL), MR_OK);
        mr_named_stepped(s->all, s->optimizer);
        pthread_mutex_unlock(mr_named_lock(s->all));
    }
    return NULL;
}

/* Values, state and count of steps agree in every cut, whenever it is made. */
TEST(cuts_lie_between_steps, setup, teardown)
{
    struct mr_named_parameters *all = *state;
    float values[FLOATS];
    char text[MR_NAMED_TEXT_BYTES];
    struct stepper s = {
        .all = all, .values = open_one(all, "a", 0), .optimizer = mr_named_optimizer(all, "x")};
    const struct mr_tensor zero = tensor(FLOATS, values, 0);
    assert_int_equal(mr_named_state(all, s.optimizer, s.values, MR_OPT_MOMENTUM, &zero, &s.state, text),
                     MR_OK);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, step_often, &s), 0);
    for (uint64_t steps = 0; steps < 2000;) {
        pthread_mutex_lock(mr_named_lock(all));
        struct mr_named_cut *cut = mr_named_cut(all, NULL, 0);
        pthread_mutex_unlock(mr_named_lock(all));
        assert_non_null(cut);
        steps = cut->items[1].step;
        for (uint32_t i = 0; i < FLOATS; i++) {
            assert_true(mr_version_values(cut->items[0].version)[i] == (float)(steps + i));
            assert_true(mr_version_values(cut->items[1].version)[i] == (float)(steps + i));
        }
        mr_named_cut_free(cut);
    }
    pthread_join(thread, NULL);
    mr_versions_release(s.values);
    mr_versions_release(s.state);
}
