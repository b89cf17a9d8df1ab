#include <string.h>

#include "tools/ctl/feature_args.h"
#include "tools/ctl/feature_text.h"
#include "tests/test.h"

static char error_text[256];

/* A command line of options, and the feature it makes. */
static bool feature_args_make(const char *kind, const char *name, int argc, char **argv,
                              struct mr_feature *out)
{
    struct tool_feature_args args;
    struct cli_option rows[TOOL_FEATURE_OPTION_COUNT];
    tool_feature_args_init(&args, rows);
    const struct cli_usage usage = {.program = "x",
                                    .synopsis = "",
                                    .summary = "",
                                    .options = rows,
                                    .option_count = TOOL_FEATURE_OPTION_COUNT};
    assert_int_equal(cli_parse(&usage, argc, argv, NULL), 0);
    error_text[0] = '\0';
    return tool_feature_args_finish(&args, kind, name, out, error_text, sizeof(error_text));
}

#define MAKE(kind, name, out, ...)                                                                           \
    feature_args_make(kind, name, (int)(sizeof((char *[]){"x", ##__VA_ARGS__}) / sizeof(char *)),            \
                      (char *[]){"x", ##__VA_ARGS__, NULL}, out)

TEST(test_a_table_with_everything)
{
    struct mr_feature f;
    assert_true(MAKE("table", "user.id", &f, "--dim", "16", "--optimizer", "adagrad", "--optimizer-args",
                     "0.5,1e-10", "--learning-rate", "0.1", "--init", "normal", "--init-a", "0", "--init-b",
                     "0.01", "--seed", "18446744073709551615", "--weight-decay", "0.05", "--clip-value", "3",
                     "--clip-norm", "4", "--pooling", "mean", "--admission", "observations",
                     "--admission-arg", "2", "--eviction", "steps", "--eviction-arg", "5", "--capacity-rows",
                     "1000", "--memory-mib", "300", "--filter-mib", "3"));
    struct mr_feature wanted = mr_feature_table("user.id", 16);
    mr_feature_set_optimizer(&wanted, MR_OPT_ADAGRAD);
    wanted.optimizer_args[0] = 0.5f;
    wanted.optimizer_args[1] = 1e-10f;
    wanted.learning_rate = 0.1f;
    wanted.initializer = MR_INIT_NORMAL;
    wanted.init_b = 0.01f;
    wanted.seed = UINT64_MAX;
    wanted.weight_decay = 0.05f;
    wanted.clip_value = 3.0f;
    wanted.clip_norm = 4.0f;
    wanted.pooling = MR_POOL_MEAN;
    wanted.admission = MR_ADMIT_OBSERVATIONS;
    wanted.admission_arg = 2.0f;
    wanted.eviction = MR_EVICT_STEPS;
    wanted.eviction_arg = 5.0f;
    wanted.capacity_rows = 1000;
    wanted.memory_bytes = UINT64_C(300) << 20;
    wanted.filter_bytes = UINT64_C(3) << 20;
    assert_null(mr_feature_diff(&f, &wanted));
    assert_memory_equal(&f, &wanted, sizeof(f));
}

TEST(test_limits_are_refused_with_what_they_take)
{
    struct mr_feature f;
    assert_false(MAKE("table", "t", &f, "--dim", "8", "--eviction", "oldest"));
    assert_string_equal(error_text, "--eviction must be one of never age lru lfu norm steps, not \"oldest\"");
    assert_false(MAKE("table", "t", &f, "--dim", "8", "--eviction", "age"));
    assert_string_equal(error_text, "--eviction age, steps and norm need --eviction-arg, a number above 0");
    assert_false(
        MAKE("table", "t", &f, "--dim", "8", "--admission", "observations", "--admission-arg", "2.5"));
    assert_non_null(strstr(error_text, "a whole number from 1 to 255"));
    assert_false(MAKE("table", "t", &f, "--dim", "8", "--admission-arg", "5"));
    assert_string_equal(error_text, "--admission-arg belongs to --admission probability and observations");
    assert_false(MAKE("table", "t", &f, "--dim", "8", "--eviction", "lfu", "--eviction-arg", "5"));
    assert_string_equal(error_text, "--eviction-arg belongs to --eviction age, steps and norm");
    assert_false(MAKE("table", "t", &f, "--dim", "8", "--filter-mib", "5"));
    assert_non_null(strstr(error_text, "--filter-mib belongs to --admission observations"));
    assert_false(MAKE("table", "t", &f, "--dim", "8", "--memory-mib", "18446744073709551615"));
    assert_non_null(strstr(error_text, "--memory-mib must be at most 17592186044415"));
    assert_false(MAKE("variable", "v", &f, "--shape", "3", "--memory-mib", "5"));
    assert_string_equal(error_text, "--memory-mib belongs to tables");
    assert_false(MAKE("table", "t", &f, "--dim", "3", "--range-values", "5"));
    assert_non_null(strstr(error_text, "--range-values belongs to variables"));
    assert_true(MAKE("variable", "v", &f, "--shape", "30", "--range-values", "5"));
    assert_int_equal(f.range_values, 5);
    assert_false(MAKE("variable", "v", &f, "--shape", "30", "--range-values", "5", "--clip-norm", "1"));
    assert_non_null(strstr(error_text, "one range with --clip-norm"));
    assert_true(MAKE("table", "t", &f, "--dim", "8", "--eviction", "steps", "--eviction-arg", "1000"));
    assert_int_equal(f.eviction, MR_EVICT_STEPS);
}

TEST(test_defaults_are_the_librarys)
{
    struct mr_feature f, wanted = mr_feature_table("t", 8);
    assert_true(MAKE("table", "t", &f, "--dim", "8"));
    assert_memory_equal(&f, &wanted, sizeof(f));
    const uint32_t dims[] = {3, 4};
    wanted = mr_feature_variable("v", 2, dims);
    assert_true(MAKE("variable", "v", &f, "--shape", "3,4"));
    assert_memory_equal(&f, &wanted, sizeof(f));
    wanted = mr_feature_variable("v", 0, dims);
    assert_true(MAKE("variable", "v", &f, "--shape", ""));
    assert_memory_equal(&f, &wanted, sizeof(f));
}

TEST(test_optimizer_args_not_given_keep_their_default)
{
    struct mr_feature f;
    assert_true(MAKE("table", "t", &f, "--dim", "8", "--optimizer", "adagrad"));
    assert_true(f.optimizer_args[0] == 0.0f && f.optimizer_args[1] == 1e-10f);
    assert_true(
        MAKE("table", "t", &f, "--dim", "8", "--optimizer", "rowwise_adagrad", "--optimizer-args", "1"));
    assert_true(f.optimizer_args[0] == 1.0f && f.optimizer_args[1] == 1e-10f);
    assert_true(MAKE("table", "t", &f, "--dim", "8", "--optimizer", "adamw", "--optimizer-args", "0.8"));
    assert_true(f.optimizer == MR_OPT_ADAMW && f.optimizer_args[0] == 0.8f);
    assert_true(f.optimizer_args[1] == 0.999f && f.optimizer_args[2] == 1e-8f);
    assert_true(MAKE("table", "t", &f, "--dim", "8", "--optimizer", "ftrl"));
    assert_true(f.optimizer_args[0] == 0.0f && f.optimizer_args[1] == 1.0f);
}

/* What is given is no default. */
TEST(test_a_learning_rate_of_0)
{
    struct mr_feature f, frozen = mr_feature_table("t", 4);
    frozen.learning_rate = 0;
    assert_true(MAKE("table", "t", &f, "--dim", "4", "--learning-rate", "0"));
    assert_null(mr_feature_diff(&f, &frozen));
}

TEST(test_schedules)
{
    struct mr_feature f, wanted = mr_feature_table("t", 8);
    assert_true(MAKE("table", "t", &f, "--dim", "8", "--schedule", "cosine", "--schedule-steps", "1000",
                     "--schedule-warmup-steps", "50", "--learning-rate-end", "0.001"));
    wanted.schedule = MR_SCHEDULE_COSINE;
    wanted.schedule_steps = 1000;
    wanted.schedule_warmup_steps = 50;
    wanted.learning_rate_end = 0.001f;
    assert_memory_equal(&f, &wanted, sizeof(f));
}

static void expect(bool made, const char *text)
{
    assert_false(made);
    assert_says(error_text, text);
}

TEST(test_mistakes_are_named)
{
    struct mr_feature f;
    memset(&f, 0x5A, sizeof(f));
    const struct mr_feature before = f;
    expect(MAKE("tabel", "t", &f, "--dim", "8"), "must be table or variable, not \"tabel\"");
    expect(MAKE("table", "t", &f), "needs --dim");
    char *wants[] = {"--weight-decay",          "0.1", "--clip-value", "1", "--clip-norm", "1",
                     "--schedule-warmup-steps", "3"};
    for (uint32_t i = 0; i < 8; i += 2)
        expect(MAKE("table", "t", &f, "--dim", "8", "--optimizer", "assign", wants[i], wants[i + 1]),
               "do not belong to --optimizer assign");
    expect(MAKE("table", "t", &f, "--dim", "8", "--optimizer", "assign", "--schedule", "linear",
                "--schedule-steps", "9"),
           "do not belong to --optimizer assign");
    expect(MAKE("table", "t", &f, "--dim", "8", "--optimizer", "assign", "--optimizer-args", "1"),
           "assign has no --optimizer-args");
    expect(MAKE("table", "t", &f, "--dim", "1025"), "--dim must be 1 to 1024");
    expect(MAKE("table", "t", &f, "--dim", "4", "--shape", "4"), "--shape belongs to variables");
    expect(MAKE("variable", "v", &f), "needs --shape");
    expect(MAKE("variable", "v", &f, "--shape", "1", "--dim", "4"), "--dim belongs to tables");
    expect(MAKE("variable", "v", &f, "--shape", "1,2,3,4,5"), "needs --shape");
    expect(MAKE("variable", "v", &f, "--shape", "1,,2"), "needs --shape");
    expect(MAKE("variable", "v", &f, "--shape", "1,"), "needs --shape");
    expect(MAKE("variable", "v", &f, "--shape", "0"), "--shape must");
    expect(MAKE("table", "a b", &f, "--dim", "4"), "NAME must be");
    expect(MAKE("table", "", &f, "--dim", "4"), "NAME must be");
    expect(MAKE("table", "a123456789b123456789c123456789d123456789e123456789f123456789g123456789", &f,
                "--dim", "4"),
           "NAME must be");
    expect(MAKE("table", "t", &f, "--dim", "4", "--optimizer", "adam2"), "sgd momentum adagrad");
    expect(MAKE("table", "t", &f, "--dim", "4", "--optimizer", "?"), "--optimizer must be one of");
    expect(MAKE("table", "t", &f, "--dim", "4", "--init", "zeros"),
           "constant uniform normal truncated_normal");
    expect(MAKE("table", "t", &f, "--dim", "4", "--init", "uniform", "--init-a", "-3e38", "--init-b", "3e38"),
           "--init-b must");
    expect(MAKE("variable", "v", &f, "--shape", "3", "--pooling", "mean"), "--pooling belongs to tables");
    expect(MAKE("table", "t", &f, "--dim", "4", "--clip-norm", "-1"), "--clip-norm must be 0 or more");
    expect(MAKE("table", "t", &f, "--dim", "4", "--clip-value", "-1"), "--clip-value must be 0 or more");
    expect(MAKE("table", "t", &f, "--dim", "4", "--pooling", "max"), "sum mean sqrtn none, not \"max\"");
    expect(MAKE("table", "t", &f, "--dim", "4", "--optimizer-args", "1,2,3,4,5,6,7"), "--optimizer-args");
    expect(MAKE("table", "t", &f, "--dim", "4", "--optimizer-args", "a"), "--optimizer-args");
    expect(MAKE("table", "t", &f, "--dim", "4", "--learning-rate", "-1"),
           "--learning-rate must be 0 or more, above 0 for --schedule exponential");
    expect(MAKE("table", "t", &f, "--dim", "4", "--optimizer", "adagrad", "--optimizer-args", "0,0"),
           "--optimizer-args of adagrad");
    expect(MAKE("table", "t", &f, "--dim", "4", "--optimizer", "adam", "--optimizer-args", "1"),
           "--optimizer-args of adam");
    expect(MAKE("table", "t", &f, "--dim", "4", "--optimizer", "ftrl", "--optimizer-args", "0,1,0,0,1"),
           "--optimizer-args of ftrl");
    expect(MAKE("table", "t", &f, "--dim", "4", "--optimizer", "momentum", "--optimizer-args", "0.9,0.1,1"),
           "--optimizer-args of momentum");
    expect(MAKE("table", "t", &f, "--dim", "4", "--schedule", "step"), "constant linear cosine exponential");
    expect(MAKE("table", "t", &f, "--dim", "4", "--schedule", "linear"), "--schedule-steps must");
    expect(MAKE("table", "t", &f, "--dim", "4", "--learning-rate-end", "1"), "--learning-rate-end must");
    assert_memory_equal(&f, &before, sizeof(f));
}

TEST(test_shapes_for_people)
{
    char text[64];
    struct mr_feature f = mr_feature_table("t", 16);
    tool_feature_shape(&f, text, sizeof(text));
    assert_string_equal(text, "table f32[16]");
    f = mr_feature_variable("v", 3, (const uint32_t[]){2, 3, 4});
    tool_feature_shape(&f, text, sizeof(text));
    assert_string_equal(text, "variable f32[2,3,4]");
    f.rank = 0;
    tool_feature_shape(&f, text, sizeof(text));
    assert_string_equal(text, "variable f32[]");
    char little[8];
    tool_feature_shape(&f, little, sizeof(little));
    assert_string_equal(little, "variabl");
}

/* A feature's options make it again, to the last bit. */
static void expect_options(const struct mr_feature *f, const char *expected)
{
    char text[TOOL_FEATURE_OPTIONS_BYTES], copy[TOOL_FEATURE_OPTIONS_BYTES], *argv[64] = {"x", "--dim", "8"};
    struct mr_feature again;
    int argc = 3;
    tool_feature_options(f, text, sizeof(text));
    if (expected != NULL)
        assert_string_equal(text, expected);
    memcpy(copy, text, sizeof(copy));
    char *rest = copy;
    for (char *word; (word = strtok_r(rest, " ", &rest)) != NULL;)
        argv[argc++] = word;
    assert_true(feature_args_make("table", "t", argc, argv, &again));
    assert_null(mr_feature_diff(f, &again));
}

TEST(test_options_of_a_feature_make_it_again)
{
    struct mr_feature f = mr_feature_table("t", 8);
    expect_options(&f, "");
    mr_feature_set_optimizer(&f, MR_OPT_GROUP_FTRL);
    expect_options(&f, "--optimizer group_ftrl");
    mr_feature_set_optimizer(&f, MR_OPT_ASSIGN);
    expect_options(&f, "--optimizer assign");
    mr_feature_set_optimizer(&f, MR_OPT_GROUP_FTRL);
    f.optimizer_args[0] = 0.1f;
    f.optimizer_args[2] = 1.0f / 3;
    f.learning_rate = 0.05f;
    expect_options(&f, "--optimizer group_ftrl --optimizer-args 0.1,1,0.33333334 --learning-rate 0.05");
    f.eviction = MR_EVICT_AGE;
    f.eviction_arg = 86400;
    f.capacity_rows = 1000;
    f.admission = MR_ADMIT_OBSERVATIONS;
    f.admission_arg = 3;
    expect_options(&f, "--optimizer group_ftrl --optimizer-args 0.1,1,0.33333334 --learning-rate 0.05 "
                       "--admission observations --admission-arg 3 --eviction age --eviction-arg 86400 "
                       "--capacity-rows 1000");
}

TEST(test_options_say_everything)
{
    struct mr_feature f = mr_feature_table("t", 8);
    for (uint32_t optimizer = MR_OPT_SGD; optimizer <= MR_OPT_GROUP_FTRL; optimizer++) {
        mr_feature_set_optimizer(&f, (enum mr_optimizer)optimizer);
        f.optimizer_args[0] = 0.123456789f; /* in the range of all of them */
        f.initializer = MR_INIT_UNIFORM;
        f.init_a = -1.17549435e-38f;
        f.init_b = 3.40282347e+38f;
        f.seed = UINT64_MAX;
        f.learning_rate = 0.7f;
        f.schedule = MR_SCHEDULE_EXPONENTIAL;
        f.schedule_steps = UINT32_MAX;
        f.schedule_warmup_steps = 7;
        f.learning_rate_end = 1e-45f;
        f.weight_decay = 1e-5f;
        f.clip_value = 2.5f;
        f.clip_norm = 16777216.0f;
        f.pooling = MR_POOL_SQRTN;
        f.admission = MR_ADMIT_OBSERVATIONS;
        f.admission_arg = 255;
        f.filter_bytes = UINT64_C(8) << 30;
        f.eviction = MR_EVICT_STEPS;
        f.eviction_arg = 1e6f;
        f.capacity_rows = UINT64_MAX;
        f.memory_bytes = UINT64_C(3) << 40;
        assert_null(mr_feature_check(&f));
        expect_options(&f, NULL);
    }
    char little[8], none[1] = {'x'};
    tool_feature_options(&f, little, sizeof(little));
    assert_string_equal(little, "--init ");
    tool_feature_options(&f, none, sizeof(none));
    assert_string_equal(none, "");
}
