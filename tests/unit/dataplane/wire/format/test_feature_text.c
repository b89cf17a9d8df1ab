/* What people read of a feature: names, what is wrong with it, how two differ. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "dataplane/wire/format/mr_feature.h"
#include "tests/test.h"

/* Refused for `field`, with a text that begins so. */
static void explained(const struct mr_feature *f, const char *field, const char *begin)
{
    char text[MR_FEATURE_TEXT_BYTES];
    assert_string_equal(mr_feature_check(f), field);
    mr_feature_explain(f, field, text, sizeof(text));
    if (strncmp(text, begin, strlen(begin)) != 0)
        fail_msg("\"%s\" does not begin with \"%s\"", text, begin);
}

TEST(a_refusal_names_field_value_and_range)
{
#define EXPLAINED(change, field, begin)                                                                      \
    do {                                                                                                     \
        struct mr_feature f = mr_feature_table("emb", 16);                                                   \
        change;                                                                                              \
        explained(&f, field, begin);                                                                         \
    } while (0)
    EXPLAINED(f.name[0] = '%', "name", "name is \"%mb\": it has 1 to 63 ");
    EXPLAINED(f.kind = 7, "kind", "kind is 7: it is table or variable");
    EXPLAINED(f.dtype = 77, "dtype", "dtype is 77: it is f32, f16 or bf16");
    EXPLAINED(f.dtype = MR_U64, "dtype", "dtype is u64: it is f32, f16 or bf16");
    EXPLAINED(f.rank = 2, "rank", "rank is 2: it is 1 for a table");
    EXPLAINED(f.dims[0] = 2000, "dim", "dim is 2000: it goes from 1 to 1024");
    EXPLAINED(f.dims[2] = 1, "dims", "dims is [16]: ");
    EXPLAINED(f.initializer = 9, "initializer", "initializer is 9: it is constant");
    EXPLAINED(f.init_a = NAN, "init_a", "init_a is nan: it is finite");
    EXPLAINED((f.initializer = MR_INIT_UNIFORM, f.init_b = -2), "init_b",
              "init_b is -2: it is finite, at least");
    EXPLAINED(f.optimizer = 99, "optimizer", "optimizer is 99: it is one of enum mr_optimizer");
    EXPLAINED(f.learning_rate = -1.5f, "learning_rate", "learning_rate is -1.5: ");
    EXPLAINED((mr_feature_set_optimizer(&f, MR_OPT_ADAM), f.optimizer_args[0] = 1), "optimizer_args",
              "optimizer_args is [1,0.999,1e-08,0,0,0]: beta1 and beta2 go from 0");
    EXPLAINED((mr_feature_set_optimizer(&f, MR_OPT_MOMENTUM), f.optimizer_args[0] = -1), "optimizer_args",
              "optimizer_args is [-1,0,0,0,0,0]: momentum and dampening");
    EXPLAINED(f.optimizer_args[1] = INFINITY, "optimizer_args",
              "optimizer_args is [0,inf,0,0,0,0]: they are finite");
    EXPLAINED(f.weight_decay = -0.25f, "weight_decay", "weight_decay is -0.25: it is at least 0");
    EXPLAINED((mr_feature_set_optimizer(&f, MR_OPT_ASSIGN), f.weight_decay = 0.5f), "weight_decay",
              "weight_decay is 0.5: the optimizer assign");
    EXPLAINED(f.clip_value = -1, "clip_value", "clip_value is -1: it is at least 0");
    EXPLAINED(f.clip_norm = -1, "clip_norm", "clip_norm is -1: it is at least 0");
    EXPLAINED(f.schedule = 9, "schedule", "schedule is 9: it is constant, linear");
    EXPLAINED(f.schedule_steps = 5, "schedule_steps", "schedule_steps is 5: it is 0 with a constant");
    EXPLAINED(f.learning_rate_end = 1, "learning_rate_end",
              "learning_rate_end is 1: it is 0 with a constant");
    EXPLAINED(f.pooling = 9, "pooling", "pooling is 9: it is sum, mean");
    EXPLAINED(f.admission = 9, "admission", "admission is 9: it is always");
    EXPLAINED((f.admission = MR_ADMIT_OBSERVATIONS, f.admission_arg = 300), "admission_arg",
              "admission_arg is 300: ");
    EXPLAINED(f.eviction = 9, "eviction", "eviction is 9: it is never");
    EXPLAINED(f.eviction = MR_EVICT_AGE, "eviction_arg",
              "eviction_arg is 0: it is at least 0, above 0 for age");
    EXPLAINED(f.range_values = 9, "range_values", "range_values is 9: it is 0 for a table");
    EXPLAINED(f.memory_bytes = 4096, "memory_bytes", "memory_bytes is 4096: it is 0 (no limit of its own)");
    EXPLAINED(f.filter_bytes = 1, "filter_bytes", "filter_bytes is 1: it is 0 without observations");
    EXPLAINED(f.reserved[3] = 1, "reserved", "reserved is set: it is zero");
#undef EXPLAINED
    struct mr_feature v = mr_feature_variable("dense", 2, (uint32_t[]){3, 0});
    explained(&v, "dims", "dims is [3,0]: there are as many as the rank");
    v = mr_feature_variable("dense", 1, (uint32_t[]){3});
    v.capacity_rows = 10;
    explained(&v, "capacity_rows", "capacity_rows is 10: it is 0 for a variable");
}

TEST(a_difference_names_both_values)
{
    const struct mr_feature mine = mr_feature_table("emb", 16);
    char text[MR_FEATURE_TEXT_BYTES];
#define DIFFERS(change, expected)                                                                            \
    do {                                                                                                     \
        struct mr_feature f = mine;                                                                          \
        change;                                                                                              \
        mr_feature_explain_diff(&mine, &f, mr_feature_diff(&mine, &f), text, sizeof(text));                  \
        assert_string_equal(text, expected);                                                                 \
    } while (0)
    DIFFERS(f.dims[0] = 8, "dim 8, not 16");
    DIFFERS(f.optimizer = MR_OPT_ADAM, "optimizer adam, not sgd");
    DIFFERS(f.learning_rate = 0.5f, "learning_rate 0.5, not 0.01");
    DIFFERS(f.eviction = MR_EVICT_LRU, "eviction lru, not never");
    DIFFERS(f.seed = UINT64_MAX, "seed 18446744073709551615, not 0");
    DIFFERS(f.kind = MR_VARIABLE, "kind variable, not table");
#undef DIFFERS
}

/* A name of all its bytes, and the largest numbers: cut nowhere, and not past the end of a small buffer. */
TEST(texts_fit)
{
    struct mr_feature f = mr_feature_table("emb", 16);
    char text[MR_FEATURE_TEXT_BYTES], few[8];
    memset(f.name, 'x', sizeof(f.name));
    mr_feature_explain(&f, "name", text, sizeof(text));
    assert_non_null(strstr(text, "_ . / : -"));
    mr_feature_set_optimizer(&f, MR_OPT_GROUP_FTRL);
    for (uint32_t i = 0; i < MR_OPTIMIZER_ARGS; i++)
        f.optimizer_args[i] = -1.1754944e-38f;
    mr_feature_explain(&f, "optimizer_args", text, sizeof(text));
    assert_non_null(strstr(text, "not both 0"));
    mr_feature_explain(&f, "optimizer_args", few, sizeof(few));
    assert_string_equal(few, "optimiz");
}

TEST(names_of_members)
{
    for (uint32_t i = MR_OPT_SGD; i <= MR_OPT_LAST; i++)
        assert_string_not_equal(mr_optimizer_name(i), "?");
    for (uint32_t i = MR_INIT_CONSTANT; i <= MR_INIT_TRUNCATED_NORMAL; i++)
        assert_string_not_equal(mr_initializer_name(i), "?");
    assert_string_equal(mr_optimizer_name(MR_OPT_ADAGRAD), "adagrad");
    assert_string_equal(mr_optimizer_name(0), "?");
    assert_string_equal(mr_optimizer_name(MR_OPT_LAST + 1), "?");
    assert_string_equal(mr_initializer_name(MR_INIT_TRUNCATED_NORMAL), "truncated_normal");
    assert_string_equal(mr_initializer_name(99), "?");
    assert_string_equal(mr_schedule_name(MR_SCHEDULE_EXPONENTIAL), "exponential");
    assert_string_equal(mr_schedule_name(MR_SCHEDULE_EXPONENTIAL + 1), "?");
    assert_string_equal(mr_pooling_name(MR_POOL_NONE), "none");
    assert_string_equal(mr_pooling_name(MR_POOL_NONE + 1), "?");
    assert_string_equal(mr_admission_name(MR_ADMIT_OBSERVATIONS), "observations");
    assert_string_equal(mr_admission_name(MR_ADMIT_OBSERVATIONS + 1), "?");
    assert_string_equal(mr_eviction_name(MR_EVICT_STEPS), "steps");
    assert_string_equal(mr_eviction_name(MR_EVICT_STEPS + 1), "?");
}
