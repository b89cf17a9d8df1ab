/* Variables that are split: each range on the core that owns its partition, by pieces and whole, with
 * every optimizer the same bits as unsplit; in checkpoints, restored onto other cores. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "dataplane/wire/format/push_number.h"
#include "dataplane/wire/format/ranges.h"
#include "fake_dp.h"
#include "node_fixture.h"
#include "ps/core/core.h"
#include "tests/test.h"

enum { ELEMENTS = 41, RANGE_VALUES = 4, RANGES = 11, CORES_MAX = 3 };

/* A whole variable, or one of eleven ranges; both begin with the same values. */
static struct mr_feature variable(const char *name, uint32_t range_values)
{
    struct mr_feature f = node_variable(name, ELEMENTS);
    f.initializer = MR_INIT_NORMAL;
    f.init_a = 0;
    f.init_b = 1;
    f.range_values = range_values;
    return f;
}

static uint32_t core_of_range(const struct node_fixture *n, const char *name, uint32_t range)
{
    return mr_range_partition(name, range) * n->core_count / MR_PARTITION_COUNT;
}

/* The pieces of a core: its ranges, each a piece. Returns the number of words; *elements of all. */
static uint32_t pieces_of(const struct node_fixture *n, const char *name, uint32_t core, uint64_t words[],
                          uint32_t *elements)
{
    uint32_t count = 0;
    *elements = 0;
    for (uint32_t r = 0; r < RANGES; r++) {
        if (core_of_range(n, name, r) != core)
            continue;
        words[count++] = r * RANGE_VALUES;
        words[count] = r == RANGES - 1 ? ELEMENTS - r * RANGE_VALUES : RANGE_VALUES;
        *elements += (uint32_t)words[count++];
    }
    return count;
}

static void gather(const uint64_t words[], uint32_t word_count, const float all[], float out[])
{
    for (uint32_t w = 0; w < word_count; w += MR_PIECE_WORDS) {
        memcpy(out, all + words[w], words[w + 1] * sizeof(*out));
        out += words[w + 1];
    }
}

/* Reads a split variable, core by core. */
static void pull_ranges(struct node_fixture *n, const char *name, uint32_t id, float out[ELEMENTS])
{
    for (uint32_t core = 0; core < n->core_count; core++) {
        uint64_t words[2 * RANGES];
        uint32_t elements;
        const uint32_t word_count = pieces_of(n, name, core, words, &elements);
        if (word_count == 0)
            continue;
        const struct mr_tensor t = mr_tensor_1d(MR_U64, word_count, words);
        const struct node_reply *reply = node_call(n, core, MR_OP_VARIABLE_PULL, (uint16_t)id, &t, 1);
        node_check(reply, MR_OK, NULL);
        assert_int_equal(reply->tensors[0].dims[0], elements);
        const float *values = reply->tensors[0].data;
        for (uint32_t w = 0; w < word_count; w += MR_PIECE_WORDS) {
            memcpy(out + words[w], values, words[w + 1] * sizeof(*out));
            values += words[w + 1];
        }
    }
}

static const struct node_reply *push_share(struct node_fixture *n, const char *name, uint32_t id,
                                           uint32_t core, const float gradient[ELEMENTS], uint16_t flags)
{
    uint64_t words[2 * RANGES];
    float share[ELEMENTS];
    uint32_t elements;
    const struct mr_push_head head = {.feature = id, .flags = MR_PUSH_PIECES};
    const uint32_t word_count = pieces_of(n, name, core, words, &elements);
    gather(words, word_count, gradient, share);
    const struct mr_tensor tensors[3] = {mr_tensor_1d(MR_U32, MR_PUSH_HEAD_WORDS, &head),
                                         mr_tensor_1d(MR_U64, word_count, words),
                                         mr_tensor_1d(MR_F32, elements, share)};
    return word_count == 0 ? NULL : node_call_step(n, core, MR_OP_PUSH_GRAD, 0, 1, flags, tensors, 3);
}

static void push_ranges(struct node_fixture *n, const char *name, uint32_t id, const float gradient[ELEMENTS])
{
    for (uint32_t core = 0; core < n->core_count; core++) {
        const struct node_reply *reply = push_share(n, name, id, core, gradient, 0);
        if (reply != NULL)
            node_check(reply, MR_OK, NULL);
    }
}

static void push_whole(struct node_fixture *n, const char *name, uint32_t id, const float gradient[ELEMENTS])
{
    const struct mr_push_head head = {.feature = id};
    const struct mr_tensor tensors[2] = {mr_tensor_1d(MR_U32, MR_PUSH_HEAD_WORDS, &head),
                                         mr_tensor_1d(MR_F32, ELEMENTS, gradient)};
    node_check(node_call_step(n, node_core_of_variable(n, name), MR_OP_PUSH_GRAD, 0, 1, 0, tensors, 2), MR_OK,
               NULL);
}

static void pull_whole(struct node_fixture *n, const char *name, uint32_t id, float out[ELEMENTS])
{
    const uint64_t all[2] = {0, 0};
    const struct mr_tensor t = mr_tensor_1d(MR_U64, 2, all);
    const struct node_reply *reply =
        node_call(n, node_core_of_variable(n, name), MR_OP_VARIABLE_PULL, (uint16_t)id, &t, 1);
    node_check(reply, MR_OK, NULL);
    memcpy(out, reply->tensors[0].data, ELEMENTS * sizeof(*out));
}

static void make_gradient(uint32_t seed, float out[ELEMENTS])
{
    for (uint32_t i = 0; i < ELEMENTS; i++)
        out[i] = (float)((i * 37 + seed * 101) % 23) / 7.0f - 1.5f;
}

TEST(every_optimizer_ends_with_the_same_bits, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    uint32_t split_count = 0;
    for (uint32_t kind = MR_OPT_SGD; kind <= MR_OPT_LAST; kind++) {
        char one[16], many[16];
        float a[ELEMENTS], b[ELEMENTS], gradient[ELEMENTS];
        (void)snprintf(one, sizeof(one), "one%u", kind);
        (void)snprintf(many, sizeof(many), "many%u", kind);
        struct mr_feature whole = variable(one, MR_VARIABLE_WHOLE), split = variable(many, RANGE_VALUES);
        mr_feature_set_optimizer(&whole, (enum mr_optimizer)kind);
        mr_feature_set_optimizer(&split, (enum mr_optimizer)kind);
        whole.learning_rate = split.learning_rate = 0.1f;
        if (kind != MR_OPT_ASSIGN)
            whole.weight_decay = split.weight_decay = 0.01f;
        if (mr_feature_check(&split) != NULL) {
            assert_true(kind == MR_OPT_ROWWISE_ADAGRAD || kind == MR_OPT_GROUP_FTRL);
            continue;
        }
        const uint32_t whole_id = node_create(n, &whole), split_id = node_create(n, &split);
        for (uint32_t p = 0; p < 4; p++) {
            pull_whole(n, one, whole_id, a);
            pull_ranges(n, many, split_id, b);
            assert_memory_equal(a, b, sizeof(a));
            make_gradient(p, gradient);
            push_whole(n, one, whole_id, gradient);
            push_ranges(n, many, split_id, gradient);
        }
        split_count++;
    }
    assert_int_equal(split_count, MR_OPT_LAST - 2);
}

TEST(each_core_has_its_ranges, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    const struct mr_feature f = variable("wide", RANGE_VALUES);
    const uint32_t id = node_create(n, &f);
    uint32_t cores_with_some = 0;
    for (uint32_t core = 0; core < n->core_count; core++) {
        uint64_t words[2 * RANGES];
        uint32_t elements;
        (void)pieces_of(n, "wide", core, words, &elements);
        const struct ps_feature *own = ps_core_feature(fake_dp_app(core), id);
        assert_int_equal(ps_feature_variable_bytes(own), elements * sizeof(float));
        cores_with_some += elements > 0;
    }
    assert_true(cores_with_some > 1);
    const struct node_reply *reply = node_call(n, 0, MR_OP_LIST, 0, NULL, 0);
    assert_int_equal(((const uint64_t *)reply->tensors[2].data)[MR_LIST_BYTES], ELEMENTS * sizeof(float));
    reply = node_call(n, 0, MR_OP_CREATE, 0, (struct mr_tensor[]){mr_tensor_2d(MR_U8, 1, sizeof(f), &f)}, 1);
    assert_int_equal(*(const uint32_t *)reply->tensors[1].data, RANGE_VALUES);
    node_drop(n, "wide");
}

TEST(wrong_pieces_are_refused, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    const struct mr_feature f = variable("wide", RANGE_VALUES);
    const uint32_t id = node_create(n, &f);
    const uint32_t mine = core_of_range(n, "wide", 1), other = (mine + 1) % n->core_count;
    const float values[ELEMENTS] = {0};
    static const struct {
        uint64_t words[4];
        uint32_t count, values;
        enum mr_status status;
        bool pushes; /* a gradient */
        const char *text;
    } wrong[] = {
        {{4, 4, 0}, 3, 4, MR_WRONG_SHAPE, false, "pieces are u64[3]"},
        {{40, 2}, 2, 2, MR_WRONG_SHAPE, false, "41 elements; 2 from 40"},
        {{4, 4, 5, 1}, 4, 5, MR_INVALID_ARGUMENT, false, "piece 1, 1 from 5 on, is empty, or begins before"},
        {{4, 0}, 2, 0, MR_INVALID_ARGUMENT, false, "piece 0"},
        {{4, 4}, 2, 3, MR_WRONG_SHAPE, false, "3 values for pieces of 4"},
        {{5, 3}, 2, 3, MR_WRONG_SHAPE, true, "whole ranges of 4 elements, not of [5, 8)"},
        {{4, 4}, 2, 3, MR_WRONG_SHAPE, true, "3 gradients for pieces of 4"},
    };
    for (uint32_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        const struct mr_push_head head = {.feature = id, .flags = MR_PUSH_PIECES};
        const struct mr_tensor tensors[3] = {mr_tensor_1d(MR_U32, MR_PUSH_HEAD_WORDS, &head),
                                             mr_tensor_1d(MR_U64, wrong[i].count, wrong[i].words),
                                             mr_tensor_1d(MR_F32, wrong[i].values, values)};
        node_check(wrong[i].pushes ? node_call(n, mine, MR_OP_PUSH_GRAD, 0, tensors, 3)
                                   : node_call(n, mine, MR_OP_VARIABLE_PUSH, (uint16_t)id, &tensors[1], 2),
                   wrong[i].status, wrong[i].text);
    }
    const uint64_t range[2] = {4, 4};
    const struct mr_tensor t = mr_tensor_1d(MR_U64, 2, range);
    node_check(node_call(n, mine, MR_OP_VARIABLE_PULL, (uint16_t)id, &t, 1), MR_OK, NULL);
    node_check(node_call(n, other, MR_OP_VARIABLE_PULL, (uint16_t)id, &t, 1), MR_INVALID_ARGUMENT,
               "range 1 of variable wide belongs to core");
}

/* One range's gradient that is no number leaves that range alone out. */
TEST(a_range_is_left_out_by_itself, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    const struct mr_feature f = variable("wide", RANGE_VALUES);
    const uint32_t id = node_create(n, &f), core = core_of_range(n, "wide", 2);
    uint64_t words[2 * RANGES];
    uint32_t elements;
    const uint32_t ranges = pieces_of(n, "wide", core, words, &elements) / MR_PIECE_WORDS;
    float before[ELEMENTS], after[ELEMENTS], gradient[ELEMENTS];
    make_gradient(1, gradient);
    gradient[2 * RANGE_VALUES + 1] = NAN;
    pull_ranges(n, "wide", id, before);
    const struct node_reply *reply = push_share(n, "wide", id, core, gradient, MR_PUSH_COUNTS);
    node_check(reply, MR_OK, NULL);
    const uint32_t *counts = reply->tensors[0].data;
    assert_int_equal(counts[MR_PUSHED_SENT], ranges);
    assert_int_equal(counts[MR_PUSHED_APPLIED], ranges - 1);
    assert_int_equal(counts[MR_PUSHED_NOT_FINITE], 1);
    pull_ranges(n, "wide", id, after);
    for (uint32_t r = 0; r < RANGES; r++) {
        const bool changes = core_of_range(n, "wide", r) == core && r != 2;
        assert_true((before[r * RANGE_VALUES] != after[r * RANGE_VALUES]) == changes);
    }
}

TEST(checkpoints_hold_ranges, node_setup_3_cores, node_teardown)
{
    static const uint32_t cores[] = {1, 2, 3, 3};
    struct node_fixture *n = *state;
    struct mr_feature f = variable("wide", RANGE_VALUES), small = variable("small", 0);
    float saved[ELEMENTS], now[ELEMENTS], gradient[ELEMENTS], expected[ELEMENTS];
    mr_feature_set_optimizer(&f, MR_OPT_ADAM);
    uint32_t id = node_create(n, &f);
    const uint32_t small_id = node_create(n, &small);
    make_gradient(3, gradient);
    push_ranges(n, "wide", id, gradient);
    pull_ranges(n, "wide", id, saved);
    const uint64_t checkpoint = node_save(n);
    push_ranges(n, "wide", id, gradient); /* Adam's state decides what comes of it */
    pull_ranges(n, "wide", id, expected);
    for (uint32_t i = 0; i < sizeof(cores) / sizeof(*cores); i++) {
        node_restart(n, cores[i]);
        node_check(node_restore(n, checkpoint), MR_OK, NULL);
        pull_ranges(n, "wide", id, now);
        assert_memory_equal(now, saved, sizeof(now));
        push_ranges(n, "wide", id, gradient);
        pull_ranges(n, "wide", id, now);
        assert_memory_equal(now, expected, sizeof(now));
        pull_whole(n, "small", small_id, now);
    }
}

/* Not all options fit ranges. */
TEST(what_needs_all_values_cannot_come_later, node_setup_3_cores, node_teardown)
{
    struct node_fixture *n = *state;
    const struct mr_feature f = variable("wide", RANGE_VALUES);
    (void)node_create(n, &f);
    struct mr_feature both[2] = {f, f};
    both[1].clip_norm = 1;
    const struct mr_tensor t = mr_tensor_2d(MR_U8, 2, sizeof(f), both);
    node_check(node_call(n, 0, MR_OP_ALTER, 0, &t, 1), MR_INVALID_ARGUMENT, "one range with rowwise_adagrad");
}
