/* The command line of millrace bench: what it comes to, and what is refused with which words. */
#include <stdio.h>
#include <string.h>

#include "tools/bench/bench_options.h"
#include "tests/test.h"

static struct tool_bench_options o;
static char error_text[256];

static void read_well(int argc, char **argv)
{
    tool_bench_options_read(&o, argc, argv); /* ends the test if it refuses them */
}

#define READ(...)                                                                                            \
    read_well((int)(sizeof((char *[]){"bench", ##__VA_ARGS__}) / sizeof(char *)),                            \
              (char *[]){"bench", ##__VA_ARGS__, NULL})

TEST(test_defaults)
{
    READ();
    const struct tool_bench_plan *p = &o.plan;
    assert_int_equal(p->clients, 1);
    assert_int_equal(p->in_flight, TOOL_IN_FLIGHT_CLOSED);
    assert_true(p->rate == 0 && p->seconds == 10 && p->warm_up_s == 1 && p->interval_s == 1);
    assert_int_equal(p->keys.kind, TOOL_KEYS_UNIFORM);
    assert_int_equal(p->keys.count, 1000000);
    assert_int_equal(p->preload, 1000000);
    assert_int_equal(p->keys_per_call.min, 100);
    assert_int_equal(p->mix.weights[TOOL_LOOKUP], 80);
    assert_int_equal(p->mix.weights[TOOL_PUSH], 20);
    assert_int_equal(p->wire_dtype, MR_F32);
    assert_int_equal(p->feature.dims[0], 16);
    assert_int_equal(p->feature.optimizer, MR_OPT_SGD);
    assert_null(o.table);
}

TEST(test_everything)
{
    READ("--clients", "3", "--in-flight", "7", "--rate", "1500.5", "--arrivals", "even", "--seconds", "2.5",
         "--warm-up", "0", "--mix", "push=1,echo=3", "--keys", "zipf:5000:1.1", "--keys-per-call", "4..9",
         "--bag-keys", "5", "--variable-values", "11", "--echo-bytes", "13", "--wire-dtype", "bf16", "--seed",
         "17", "--dim", "24", "--optimizer", "adagrad", "--optimizer-args", "0.5", "--preload", "40",
         "--interval", "0.1", "--out", "file", "--server", "there", "--json");
    const struct tool_bench_plan *p = &o.plan;
    assert_int_equal(p->clients, 3);
    assert_int_equal(p->in_flight, 7);
    assert_true(p->rate == 1500.5 && p->seconds == 2.5 && p->warm_up_s == 0 && p->interval_s == 0.1);
    assert_true(p->is_even);
    assert_int_equal(p->mix.weights[TOOL_ECHO], 3);
    assert_int_equal(p->keys.kind, TOOL_KEYS_ZIPF);
    assert_int_equal(p->keys_per_call.min, 4);
    assert_int_equal(p->keys_per_call.max, 9);
    assert_int_equal(p->bag_keys, 5);
    assert_int_equal(p->variable_values, 11);
    assert_int_equal(p->echo_bytes, 13);
    assert_int_equal(p->wire_dtype, MR_BF16);
    assert_int_equal(p->seed, 17);
    assert_int_equal(p->feature.dims[0], 24);
    assert_int_equal(p->feature.optimizer, MR_OPT_ADAGRAD);
    assert_true(p->feature.optimizer_args[0] == 0.5f);
    assert_int_equal(p->preload, 40);
    assert_string_equal(o.out, "file");
    assert_string_equal(o.connection.server, "there");
    assert_true(o.connection.json);
}

TEST(test_what_follows_from_others)
{
    READ("--rate", "5");
    assert_int_equal(o.plan.in_flight, TOOL_IN_FLIGHT_OPEN);
    assert_false(o.plan.is_even);
    READ("--keys", "hot:500:0.5:5");
    assert_int_equal(o.plan.preload, 500);
    READ("--keys", "uniform:1000001");
    assert_int_equal(o.plan.preload, 1000000);
    READ("--mix", "echo=1,variable=1");
    assert_int_equal(o.plan.preload, 0);
    READ("--table", "mine", "--mix", "lookup=1,bags=1");
    assert_int_equal(o.plan.preload, 0);
    READ("--table", "mine", "--write-existing", "--preload", "5");
    assert_int_equal(o.plan.preload, 5);
    READ("--table", "mine", "--mix", "lookup=1", "--preload", "0");
    assert_int_equal(o.plan.preload, 0);
}

static void bench_options_begin(void)
{
    tool_bench_options_init(&o);
    error_text[0] = '\0';
}

static void expect_refused(const char *says)
{
    assert_false(tool_bench_options_finish(&o, error_text, sizeof(error_text)));
    if (strstr(error_text, says) == NULL || strchr(error_text, '\n') != NULL)
        fail_msg("\"%s\" does not say \"%s\"", error_text, says);
}

TEST(test_texts_that_are_refused)
{
    bench_options_begin();
    o.keys = "zipf:5";
    expect_refused("zipf:N:S");
    bench_options_begin();
    o.mix = "read=1";
    expect_refused("no call \"read\"");
    bench_options_begin();
    o.keys_per_call = "0";
    expect_refused("--keys-per-call must be a whole number from 1 to 1000000");
    bench_options_begin();
    o.arrivals = "odd";
    expect_refused("--arrivals must be poisson or even, not \"odd\"");
    bench_options_begin();
    o.wire_dtype = "f64";
    expect_refused("--wire-dtype must be f32, f16, bf16 or i8, not \"f64\"");
    bench_options_begin();
    o.dim = 1025;
    expect_refused("--dim must be 1 to 1024");
    bench_options_begin();
    o.feature.optimizer = "best";
    expect_refused("--optimizer must be one of sgd");
    bench_options_begin();
    o.plan.preload = 1000001;
    expect_refused("--preload must be at most the N of --keys, 1000000");
    bench_options_begin();
    o.mix = "echo=1";
    o.plan.preload = 1;
    expect_refused("--preload belongs to a --mix with lookup, bags or push");
}

/* Nothing changes somebody's table unless the user says so. */
TEST(test_tables_that_are_there)
{
    bench_options_begin();
    o.table = "mine";
    expect_refused("allow it with --write-existing");
    bench_options_begin();
    o.table = "mine";
    o.mix = "lookup=1";
    o.plan.preload = 1;
    expect_refused("--preload would make rows in the table");
    bench_options_begin();
    o.write_existing = true;
    expect_refused("--write-existing belongs to --table");
    bench_options_begin();
    o.table = "mine";
    o.mix = "lookup=1";
    o.dim = 8;
    expect_refused("belong to a table that the command makes");
    bench_options_begin();
    o.table = "mine";
    o.mix = "lookup=1";
    o.feature.optimizer = "sgd";
    expect_refused("belong to a table that the command makes");
}
