/* The tape alone. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/rpc/autograd/tape.h"
#include "tests/test.h"

enum { NODES = 64 };

struct fixture {
    _Atomic uint32_t numbers;
    struct mr_tape tape;
    uint32_t reached[NODES], reached_count;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    mr_tape_init(&f->tape, &f->numbers);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    mr_tape_fini(&f->tape);
    free(f);
    return 0;
}

static struct mr_value value_of(uint32_t elements)
{
    return mr_value_tensor(mr_tensor_1d(MR_F32, elements, NULL));
}

static struct mr_value leaf(struct fixture *f)
{
    struct mr_value v = value_of(1);
    uint32_t node;
    struct mr_tape_entry entry = {.outputs = &v, .output_count = 1, .is_leaf = true};
    assert_int_equal(mr_tape_add(&f->tape, &entry, &node), MR_OK);
    return v;
}

/* A node of one output. */
static struct mr_value op(struct fixture *f, const struct mr_value *inputs, uint32_t count)
{
    struct mr_value v = value_of(1);
    uint32_t node;
    struct mr_tape_entry entry = {.inputs = inputs, .input_count = count, .outputs = &v, .output_count = 1};
    assert_int_equal(mr_tape_add(&f->tape, &entry, &node), MR_OK);
    return v;
}

static void reached(void *self, uint32_t node)
{
    struct fixture *f = self;
    f->reached[f->reached_count++] = node;
}

static uint32_t node_of(struct fixture *f, struct mr_value v)
{
    return f->tape.values[mr_tape_find(&f->tape, v.gradient)].node;
}

static enum mr_status reach(struct fixture *f, struct mr_value v, uint32_t *gone)
{
    f->reached_count = 0;
    return mr_tape_reach(&f->tape, node_of(f, v), reached, f, gone);
}

static void tape_give(struct fixture *f, uint32_t value, float amount)
{
    float *sum = malloc(sizeof(*sum)), *other;
    *sum = amount;
    while ((other = mr_tape_put(&f->tape, value, sum)) != NULL) {
        *sum += *other;
        free(other);
    }
    mr_tape_arrived(&f->tape, value);
}

/* Every node gives each input its own gradient: so a gradient counts the ways. Returns how many nodes ran,
 * the latest first. */
static uint32_t tape_run(struct fixture *f)
{
    uint32_t count = 0, last = MR_TAPE_NONE, node;
    while ((node = mr_tape_next(&f->tape)) != MR_TAPE_NONE) {
        const uint32_t *inputs = mr_tape_inputs(&f->tape, node);
        float *sum = mr_tape_take(&f->tape, mr_tape_outputs(&f->tape, node)[0]);
        assert_true(node < last);
        last = node;
        for (uint32_t i = 0; i < f->tape.nodes[node].input_count; i++) {
            if (inputs[i] == MR_TAPE_NONE)
                continue;
            if (sum == NULL)
                mr_tape_arrived(&f->tape, inputs[i]);
            else
                tape_give(f, inputs[i], *sum);
        }
        free(sum);
        count++;
    }
    return count;
}

static float gradient(struct fixture *f, struct mr_value v)
{
    const float *sum = f->tape.values[mr_tape_find(&f->tape, v.gradient)].gradient;
    return sum == NULL ? -1 : *sum;
}

static void backward(struct fixture *f, struct mr_value loss, bool retain, uint32_t nodes)
{
    uint32_t gone;
    mr_tape_begin_pass(&f->tape, retain);
    assert_int_equal(reach(f, loss, &gone), MR_OK);
    tape_give(f, mr_tape_find(&f->tape, loss.gradient), 1);
    assert_int_equal(tape_run(f), nodes);
}

TEST(ways_add_up, setup, teardown)
{
    struct fixture *f = *state;
    struct mr_value x = leaf(f), both[2] = {x, x};
    struct mr_value y = op(f, both, 2); /* 2 ways */
    struct mr_value left = op(f, &y, 1), right = op(f, &y, 1);
    struct mr_value all[3] = {left, right, x};
    struct mr_value loss = op(f, all, 3);
    backward(f, loss, false, 4);
    assert_true(gradient(f, x) == 5);
    assert_true(gradient(f, y) == -1); /* taken */
}

TEST(deep_chain, setup, teardown)
{
    struct fixture *f = *state;
    struct mr_value x = leaf(f), y = x;
    for (uint32_t i = 0; i < 30; i++) {
        struct mr_value both[2] = {y, y};
        y = op(f, both, 2);
    }
    backward(f, y, false, 30);
    assert_true(gradient(f, x) == (float)(1 << 30));
}

TEST(what_is_not_used_is_not_waited_for, setup, teardown)
{
    struct fixture *f = *state;
    struct mr_value x = leaf(f), unused = leaf(f);
    struct mr_value aside = op(f, &x, 1);
    struct mr_value both[2] = {x, unused};
    struct mr_value more = op(f, both, 2), loss = op(f, &x, 1);
    (void)aside;
    (void)more;
    backward(f, loss, false, 1);
    assert_int_equal(f->reached_count, 2);
    assert_true(gradient(f, x) == 1);
    assert_true(gradient(f, unused) == -1);
}

TEST(nothing_goes_on_as_nothing, setup, teardown)
{
    struct fixture *f = *state;
    struct mr_value x = leaf(f), y = op(f, &x, 1);
    uint32_t gone;
    mr_tape_begin_pass(&f->tape, false);
    assert_int_equal(reach(f, y, &gone), MR_OK);
    mr_tape_arrived(&f->tape, mr_tape_find(&f->tape, y.gradient));
    assert_int_equal(tape_run(f), 1);
    assert_true(gradient(f, x) == -1);
}

TEST(once_unless_retained, setup, teardown)
{
    struct fixture *f = *state;
    struct mr_value x = leaf(f), y = op(f, &x, 1), loss = op(f, &y, 1), other = op(f, &y, 1);
    uint32_t gone = MR_TAPE_NONE;
    backward(f, loss, true, 2);
    backward(f, loss, true, 2);
    assert_true(gradient(f, x) == 2); /* leaves add up */
    backward(f, loss, false, 2);
    assert_true(gradient(f, x) == 3);
    mr_tape_begin_pass(&f->tape, false);
    assert_int_equal(reach(f, other, &gone), MR_INVALID_ARGUMENT);
    assert_int_equal(gone, node_of(f, y));
    struct mr_value fresh = op(f, &x, 1); /* what is new may be gone through */
    backward(f, fresh, false, 1);
    assert_true(gradient(f, x) == 4);
}

TEST(a_retained_node_takes_part_in_each_pass, setup, teardown)
{
    struct fixture *f = *state;
    struct mr_value x = leaf(f), shared = value_of(1);
    uint32_t node;
    struct mr_tape_entry entry = {
        .inputs = &x, .input_count = 1, .outputs = &shared, .output_count = 1, .is_retained = true};
    assert_int_equal(mr_tape_add(&f->tape, &entry, &node), MR_OK);
    struct mr_value both[2] = {shared, shared}, first = op(f, both, 2), second = op(f, &shared, 1);
    backward(f, first, false, 2); /* once for both */
    assert_true(gradient(f, x) == 2);
    backward(f, second, false, 2);
    assert_true(gradient(f, x) == 3);
}

TEST(what_was_left_midway_is_dropped, setup, teardown)
{
    struct fixture *f = *state;
    struct mr_value x = leaf(f), y = op(f, &x, 1), both[2] = {y, y};
    struct mr_value loss = op(f, both, 2);
    uint32_t gone;
    mr_tape_begin_pass(&f->tape, true);
    assert_int_equal(reach(f, loss, &gone), MR_OK);
    tape_give(f, mr_tape_find(&f->tape, y.gradient), 100); /* one of two, and then no more */
    assert_int_equal(mr_tape_next(&f->tape), MR_TAPE_NONE);
    backward(f, loss, false, 2);
    assert_true(gradient(f, x) == 2);
}

TEST(other_numbers_are_constants, setup, teardown)
{
    struct fixture *f = *state;
    struct mr_tape second;
    mr_tape_init(&second, &f->numbers);
    struct mr_value x = leaf(f), theirs = value_of(1);
    struct mr_tape_entry entry = {.outputs = &theirs, .output_count = 1, .is_leaf = true};
    uint32_t node;
    assert_int_equal(mr_tape_add(&second, &entry, &node), MR_OK);
    struct mr_value y = leaf(f);
    assert_true(theirs.gradient > x.gradient && theirs.gradient < y.gradient);
    assert_int_equal(mr_tape_find(&f->tape, theirs.gradient), MR_TAPE_NONE);
    assert_int_equal(mr_tape_find(&f->tape, 0), MR_TAPE_NONE);
    struct mr_value mixed[3] = {theirs, x, mr_value_i64(3)};
    struct mr_value loss = op(f, mixed, 3);
    backward(f, loss, false, 1);
    assert_true(gradient(f, x) == 1);
    mr_tape_fini(&second);
}

TEST(numbers_pass_zero, setup, teardown)
{
    struct fixture *f = *state;
    struct mr_value v[8];
    atomic_store(&f->numbers, UINT32_MAX - 3);
    for (uint32_t i = 0; i < 8; i++)
        v[i] = leaf(f);
    for (uint32_t i = 0; i < 8; i++) {
        assert_true(v[i].gradient != 0);
        assert_int_equal(mr_tape_find(&f->tape, v[i].gradient), i);
    }
    struct mr_value many[3] = {value_of(1), value_of(1), value_of(1)};
    struct mr_tape_entry entry = {.outputs = many, .output_count = 3};
    uint32_t node;
    atomic_store(&f->numbers, UINT32_MAX - 1); /* three in a row do not fit before 0 */
    assert_int_equal(mr_tape_add(&f->tape, &entry, &node), MR_OK);
    assert_true(many[0].gradient != 0 && many[1].gradient != 0 && many[2].gradient != 0);
}

TEST(only_f32_and_f64_tensors_have_gradients, setup, teardown)
{
    struct fixture *f = *state;
    struct mr_value v[4] = {mr_value_i64(1), value_of(2), mr_value_tensor(mr_tensor_1d(MR_F16, 2, NULL)),
                            mr_value_tensor(mr_tensor_1d(MR_F64, 2, NULL))};
    struct mr_tape_entry entry = {.outputs = v, .output_count = 4};
    uint32_t node;
    for (uint32_t i = 0; i < 3; i++)
        v[i].gradient = 77;
    assert_int_equal(mr_tape_add(&f->tape, &entry, &node), MR_OK);
    assert_true(v[0].gradient == 0 && v[2].gradient == 0 && v[1].gradient != 0 && v[3].gradient != 0);
    assert_int_equal(mr_tape_outputs(&f->tape, node)[0], MR_TAPE_NONE);
    v[1].gradient = 77;
    v[3].gradient = 0;
    entry.only_numbered = true;
    assert_int_equal(mr_tape_add(&f->tape, &entry, &node), MR_OK);
    assert_true(v[1].gradient != 0 && v[1].gradient != 77 && v[3].gradient == 0);
}

TEST(sums_are_of_their_type, setup, teardown)
{
    const double tiny = 1e-12, large[2] = {1, 2};
    struct mr_tensor f64 = mr_tensor_1d(MR_F64, 2, large),
                     f32 = mr_tensor_1d(MR_F32, 4, (float[4]){1, 2, 3, 4});
    double *sum = mr_gradient_copy(&f64);
    float *other = mr_gradient_copy(&f32);
    assert(sum != NULL && other != NULL);
    mr_gradient_add(&f64, sum, (double[2]){tiny, -tiny});
    assert_true(sum[0] == 1 + tiny && sum[1] == 2 - tiny);
    mr_gradient_add(&f32, other, f32.data);
    for (uint32_t i = 0; i < 4; i++)
        assert_true(other[i] == 2.0f * ((const float *)f32.data)[i]);
    free(sum);
    free(other);
}

TEST(nodes_that_are_entered, setup, teardown)
{
    struct fixture *f = *state;
    struct mr_value x = leaf(f), y = op(f, &x, 1);
    uint32_t node, gone;
    struct mr_tape_entry entry = {.inputs = &y, .input_count = 1};
    assert_int_equal(mr_tape_add(&f->tape, &entry, &node), MR_OK);
    mr_tape_begin_pass(&f->tape, false);
    assert_false(mr_tape_enter(&f->tape, node)); /* nothing was said of it */
    assert_int_equal(mr_tape_reach(&f->tape, node, reached, f, &gone), MR_OK);
    assert_true(mr_tape_enter(&f->tape, node));
    assert_false(mr_tape_enter(&f->tape, node)); /* once */
    assert_int_equal(mr_tape_next(&f->tape), MR_TAPE_NONE);
    tape_give(f, mr_tape_inputs(&f->tape, node)[0], 7);
    assert_int_equal(tape_run(f), 1);
    assert_true(gradient(f, x) == 7);
    mr_tape_begin_pass(&f->tape, false);
    assert_int_equal(mr_tape_reach(&f->tape, node, reached, f, &gone), MR_INVALID_ARGUMENT);
    assert_int_equal(gone, node);
}

/* The latest ready node comes first, whatever the order in which they become ready. */
TEST(the_latest_first, setup, teardown)
{
    struct fixture *f = *state;
    struct mr_value x = leaf(f), all[NODES / 2];
    uint32_t gone, last = MR_TAPE_NONE;
    for (uint32_t i = 0; i < NODES / 2; i++)
        all[i] = op(f, &x, 1);
    mr_tape_begin_pass(&f->tape, false);
    for (uint32_t i = 0; i < NODES / 2; i++)
        assert_int_equal(reach(f, all[i], &gone), MR_OK);
    for (uint32_t i = 0; i < NODES / 2; i++)
        tape_give(f, mr_tape_find(&f->tape, all[(i * 7) % (NODES / 2)].gradient), 1);
    for (uint32_t i = 0; i < NODES / 2; i++) {
        uint32_t node = mr_tape_next(&f->tape);
        assert_true(node < last);
        last = node;
    }
    assert_int_equal(mr_tape_next(&f->tape), MR_TAPE_NONE);
}
