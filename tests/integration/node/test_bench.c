/* millrace bench against a running node: what it says that it called is what the node has served, and it
 * leaves nothing behind. */
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "dataplane/wire/base/clock.h"
#include "tests/integration/node_fixture.h"
#include "tests/integration/program.h"
#include "tests/test.h"
#include "tests/wait.h"

enum { DIM = 8, KEYS = 1000, CLIENTS = 2, RATE = 1000, STALL_MS = 300, LATE_MS = 100, WAIT_MS = 60000 };

#define TRIES_S_MAX 16.0 /* a run of so many seconds is the last try */

static const char *millrace;
static uint32_t cores;

struct fixture {
    struct node_fixture node;
    struct mr_client *client;
    struct program_result result;
    struct counted {
        uint64_t calls, looked_up, pushed, pushes;
    } before;                       /* what the server had counted when run_json() ran the tool last */
    char out[NODE_PATH_BYTES + 16]; /* for --out */
};

static int set_up(void **state)
{
    static struct fixture x;
    static const char *const settings[] = {"port.driver=socket", "transport.message_mib_max=4", NULL};
    const struct netns_options cable = {.server_kernel = true};
    node_fixture_start_over(&x.node, &cable, cores, settings);
    x.client = node_fixture_connect(&x.node);
    snprintf(x.out, sizeof(x.out), "%s/out", x.node.directory);
    *state = &x;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *x = *state;
    mr_client_destroy(x->client);
    node_fixture_stop(&x->node);
    return 0;
}

static void bench_run(struct fixture *x, const char *arguments)
{
    program_run(&x->node.net, NETNS_CLIENT, &x->result, "%s bench %s --server %s", millrace, arguments,
                x->node.address);
}

static json_t *bench_parse(const char *text)
{
    json_error_t error;
    json_t *value = json_loads(text, 0, &error);
    if (value == NULL)
        fail_msg("%s: %s", error.text, text);
    return value;
}

static void expect_refused(struct fixture *x, const char *arguments, int code, const char *says)
{
    bench_run(x, arguments);
    program_expect(&x->result, code, says);
    assert_ptr_equal(strchr(x->result.err, '\n'), x->result.err + strlen(x->result.err) - 1); /* one line */
    assert_string_equal(x->result.out, "");
}

static uint64_t number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value))
        fail_msg("no whole number \"%s\"", key);
    return (uint64_t)json_integer_value(value);
}

static uint64_t of_op(const json_t *result, const char *op, const char *key)
{
    return number(json_object_get(json_object_get(result, "ops"), op), key);
}

static uint32_t feature_count(struct fixture *x)
{
    struct mr_feature_info *infos;
    uint32_t count;
    assert_int_equal(mr_list(x->client, NULL, &infos, &count), MR_OK);
    free(infos);
    return count;
}

static void bench_create(struct fixture *x)
{
    const struct mr_feature feature = mr_feature_table("mine", DIM);
    uint32_t id;
    assert_int_equal(mr_create(x->client, NULL, &feature, 1, &id), MR_OK);
}

static uint64_t rows(struct fixture *x)
{
    struct mr_feature_info *infos;
    uint32_t count;
    assert_int_equal(mr_list(x->client, NULL, &infos, &count), MR_OK);
    assert_int_equal(count, 1);
    const uint64_t rows = infos[0].rows;
    free(infos);
    return rows;
}

/* ---- what it counts ---- */

static struct counted counters(struct fixture *x)
{
    return (struct counted){
        node_fixture_sum(x->client, "wire.calls_served"), node_fixture_sum(x->client, "table.keys_looked_up"),
        node_fixture_sum(x->client, "table.keys_pushed"), node_fixture_sum(x->client, "ps.pushes_applied")};
}

static const char *const any[] = {NULL}; /* of the calls */

static bool made_each(const json_t *result, const char *const *ops)
{
    bool each = true;
    for (; *ops != NULL; ops++)
        each &= of_op(result, *ops, "calls") > 0;
    return each;
}

/* It ends well. In so short a time on a busy machine no call may succeed: then for twice as many seconds, and
 * so on. */
static void run_well(struct fixture *x, double *seconds, const char *arguments)
{
    char line[400];
    for (;; *seconds *= 2) {
        snprintf(line, sizeof(line), "%s --seconds %g", arguments, *seconds);
        x->before = counters(x);
        bench_run(x, line);
        if (*seconds < TRIES_S_MAX && x->result.code == 1 &&
            strstr(x->result.err, "no call succeeded") != NULL)
            continue;
        program_expect(&x->result, 0, "");
        assert_string_equal(x->result.err, "");
        return;
    }
}

/* The same, and it prints one JSON value, alone on one line. None of these calls (up to a NULL) may succeed,
 * either. */
static json_t *run_json(struct fixture *x, double *seconds, const char *const *ops, const char *arguments)
{
    char line[400];
    snprintf(line, sizeof(line), "%s --json", arguments);
    for (;; *seconds *= 2) {
        run_well(x, seconds, line);
        assert_ptr_equal(strchr(x->result.out, '\n'), x->result.out + strlen(x->result.out) - 1);
        json_t *result = bench_parse(x->result.out);
        if (*seconds >= TRIES_S_MAX || made_each(result, ops))
            return result;
        json_decref(result);
    }
}

/* Runs a mix on the table "mine", checks its keys and pushes against the server's, and returns how many more
 * calls than the tool's own the server has served: to connect, to look and to clean up. */
static uint64_t check_mix(struct fixture *x, double seconds, const char *arguments)
{
    static const char *const ops[] = {"lookup", "bags", "push", "variable", "variable-push", "echo", NULL};
    char line[400];
    snprintf(line, sizeof(line),
             "--table mine --write-existing --warm-up 0 --clients %d --keys uniform:%d --keys-per-call 5..60 "
             "--mix lookup=5,bags=2,push=4,variable=1,variable-push=1,echo=3 %s",
             CLIENTS, KEYS, arguments);
    json_t *result = run_json(x, &seconds, ops, line);
    const struct counted before = x->before, after = counters(x);
    const uint64_t pushes = of_op(result, "push", "calls") + of_op(result, "variable-push", "calls");

    assert_int_equal(number(result, "failed"), 0);
    assert_int_equal(number(result, "warm_up_calls"), 0);
    assert_true(of_op(result, "lookup", "calls") > 0 && of_op(result, "bags", "calls") > 0);
    assert_true(of_op(result, "push", "calls") > 0 && of_op(result, "variable", "calls") > 0);
    assert_true(of_op(result, "echo", "calls") > 0 && of_op(result, "variable-push", "calls") > 0);
    /* each client looks one key up before it starts */
    assert_int_equal(after.looked_up - before.looked_up,
                     of_op(result, "lookup", "keys") + of_op(result, "bags", "keys") + CLIENTS);
    assert_int_equal(after.pushed - before.pushed, of_op(result, "push", "keys"));
    if (cores == 1) /* a push is one call then */
        assert_int_equal(after.pushes - before.pushes, pushes);
    const uint64_t more = after.calls - before.calls - number(result, "calls");
    json_decref(result);
    assert_int_equal(feature_count(x), 1); /* its variable is gone */
    return more;
}

static void test_closed_loop(void **state)
{
    struct fixture *x = *state;
    double seconds = 0.2;
    bench_create(x);
    json_decref(run_json(x, &seconds, any,
                         "--table mine --write-existing --preload 1000 --keys uniform:1000 --warm-up 0"));
    assert_int_equal(rows(x), KEYS);
    const uint64_t more = check_mix(x, 0.3, "--in-flight 8");
    const uint64_t more_again = check_mix(x, 0.6, "--in-flight 1");
    if (cores == 1)
        assert_int_equal(more, more_again);
}

/* As many calls as are due, whether or not the node keeps up. */
static void test_open_loop(void **state)
{
    struct fixture *x = *state;
    double seconds = 0.5;
    bench_create(x);
    (void)check_mix(x, 0.5, "--rate 400");
    json_t *result =
        run_json(x, &seconds, any,
                 "--rate 400 --arrivals even --clients 2 --warm-up 0.2 --mix echo=1 --echo-bytes 100");
    assert_int_equal(number(result, "calls") + number(result, "unsent"), 400 * seconds);
    assert_int_equal(of_op(result, "echo", "bytes"),
                     (number(result, "calls") - number(result, "failed")) * 200);
    assert_string_equal(json_string_value(json_object_get(result, "table")), "");
    json_decref(result);
    /* more than any node can do */
    seconds = 0.1;
    result = run_json(x, &seconds, any,
                      "--rate 10000000 --arrivals even --in-flight 4 --warm-up 0.05 --mix echo=1");
    assert_int_equal(number(result, "calls") + number(result, "unsent"), 10000000 * seconds);
    assert_true(number(result, "unsent") > 0);
    assert_true(json_number_value(json_object_get(result, "behind_ms")) > 0);
    json_decref(result);
}

/* ---- a stall ---- */

static json_t *next_line(FILE *file)
{
    char *line = NULL;
    size_t bytes = 0;
    json_t *value = getline(&line, &bytes, file) > 0 ? bench_parse(line) : NULL;
    free(line);
    return value;
}

static const char *type_of(const json_t *line)
{
    return json_string_value(json_object_get(line, "type"));
}

/* Of a block's op: calls in buckets from this latency on. */
static uint64_t slower(const json_t *block, const char *op, uint64_t ns)
{
    const json_t *histogram =
        json_object_get(json_object_get(json_object_get(block, "ops"), op), "histogram");
    uint64_t count = 0;
    for (size_t i = 0; i < json_array_size(histogram); i++) {
        const json_t *bucket = json_array_get(histogram, i);
        if ((uint64_t)json_integer_value(json_array_get(bucket, 0)) >= ns)
            count += (uint64_t)json_integer_value(json_array_get(bucket, 1));
    }
    return count;
}

static void bench_start(struct fixture *x, struct netns_process *bench, const char *const *arguments)
{
    char *argv[32] = {(char *)millrace, "bench", "--server", x->node.address, "--out", x->out};
    for (uint32_t i = 0; arguments[i] != NULL; i++) {
        assert_true(6 + i + 1 < sizeof(argv) / sizeof(*argv));
        argv[6 + i] = (char *)arguments[i];
    }
    netns_spawn(&x->node.net, NETNS_CLIENT, argv, bench);
}

/* Waits until the node has looked so many keys up. */
static void wait_looked_up(struct fixture *x, uint64_t keys)
{
    WAIT_UNTIL(node_fixture_sum(x->client, "table.keys_looked_up") >= keys);
}

/* The node is stopped for a while. All calls that were due meanwhile count with their wait, although 4 at
 * most were in flight: of those due in the first two thirds, each is late by a third at least. The tool runs
 * until all of them are answered, however slow the machine is. */
static void test_a_stall_is_charged_to_calls_that_were_not_sent(void **state)
{
    struct fixture *x = *state;
    static const char *const arguments[] = {
        "--rate",    "1000",     "--arrivals",      "even", "--in-flight", "4",
        "--seconds", "0",        "--warm-up",       "0",    "--preload",   "0",
        "--mix",     "lookup=1", "--keys-per-call", "1",    "--json",      NULL};
    struct netns_process bench;
    uint64_t late = 0, counted = 0;
    const uint64_t started_ns = mr_clock_ns();
    bench_start(x, &bench, arguments);
    wait_looked_up(x, 200);
    netns_suspend(x->node.server.pid);
    const uint64_t stalled_ns = mr_clock_ns();
    WAIT_UNTIL(mr_clock_ns() - stalled_ns >= STALL_MS * UINT64_C(1000000));
    netns_resume(x->node.server.pid);
    /* one key a call, and one to look before it starts: all that were due by now */
    wait_looked_up(x, 1 + (mr_clock_ns() - started_ns) * RATE / 1000000000);
    assert_int_equal(kill(bench.pid, SIGINT), 0);
    assert_true(netns_wait_line(&bench, "{", WAIT_MS));
    json_t *result = bench_parse(bench.line);
    assert_int_equal(netns_end(&bench, 0), 0);

    FILE *file = fopen(x->out, "r");
    assert_non_null(file);
    for (json_t *line; (line = next_line(file)) != NULL; json_decref(line)) {
        if (strcmp(type_of(line), "block") != 0)
            continue;
        late += slower(line, "lookup", LATE_MS * UINT64_C(1000000));
        counted += slower(line, "lookup", 0);
    }
    (void)fclose(file);
    assert_int_equal(counted, number(result, "calls") + number(result, "unsent"));
    assert_true(late >= (STALL_MS - LATE_MS) * RATE / 1000 - 4);
    json_decref(result);
}

/* ---- the file ---- */

static void test_file(void **state)
{
    struct fixture *x = *state;
    char line[300];
    uint64_t calls = 0, keys = 0, counted = 0;
    double seconds = 0.5;
    snprintf(line, sizeof(line),
             "--interval 0.1 --warm-up 0.1 --keys zipf:2000:1.05 --mix lookup=1,push=1 --out %s", x->out);
    run_well(x, &seconds, line);
    assert_non_null(strstr(x->result.out, "p99.9 us"));
    assert_non_null(strstr(x->result.out, " lookup "));
    assert_non_null(strstr(x->result.out, " all "));

    FILE *file = fopen(x->out, "r");
    assert_non_null(file);
    json_t *first = next_line(file), *at = next_line(file);
    assert_string_equal(type_of(first), "start");
    assert_int_equal(number(first, "cores"), cores);
    assert_string_equal(json_string_value(json_object_get(json_object_get(first, "options"), "keys")),
                        "zipf:2000:1.05");
    uint32_t blocks = 0;
    for (; strcmp(type_of(at), "block") == 0; blocks++) {
        calls += number(at, "calls");
        keys += number(at, "keys");
        counted += slower(at, "lookup", 0) + slower(at, "push", 0);
        json_decref(at);
        at = next_line(file);
        assert_non_null(at);
    }
    assert_string_equal(type_of(at), "end");
    assert_int_equal(blocks, 10 * seconds);
    assert_int_equal(number(at, "calls"), calls);
    assert_int_equal(number(at, "keys"), keys);
    assert_int_equal(counted, calls);
    assert_true(calls > 0);
    json_decref(first);
    json_decref(at);
    assert_null(next_line(file));
    (void)fclose(file);
    assert_int_equal(feature_count(x), 0);
    expect_refused(x, "--out /nowhere/file", 1, "--out /nowhere/file: No such file or directory");
    assert_int_equal(feature_count(x), 0);
}

/* ---- signals ---- */

static void check_signal(struct fixture *x, int signal)
{
    static const char *const arguments[] = {
        "--seconds", "0",           "--warm-up", "0", "--mix", "lookup=1,push=1,variable=1",
        "--keys",    "uniform:500", "--json",    NULL};
    struct netns_process bench;
    const uint64_t before = node_fixture_sum(x->client, "table.keys_looked_up");
    bench_start(x, &bench, arguments);
    wait_looked_up(x, before + 20000);
    assert_int_equal(feature_count(x), 2);
    assert_int_equal(kill(bench.pid, signal), 0);
    assert_true(netns_wait_line(&bench, "{", WAIT_MS));
    json_t *result = bench_parse(bench.line);
    assert_int_equal(netns_end(&bench, 0), 0);
    assert_true(json_is_true(json_object_get(result, "stopped")));
    assert_true(of_op(result, "lookup", "calls") > 0);
    json_decref(result);
    assert_int_equal(feature_count(x), 0);
}

static void test_signals(void **state)
{
    check_signal(*state, SIGINT);
    check_signal(*state, SIGTERM);
}

/* ---- a table that is there ---- */

static void test_a_table_that_is_there(void **state)
{
    struct fixture *x = *state;
    bench_create(x);
    expect_refused(x, "--table mine", 2, "allow it with --write-existing");
    expect_refused(x, "--table mine --mix lookup=1 --preload 5", 2, "--preload would make rows");
    expect_refused(x, "--table other --mix lookup=1", 1, "there is no table named other");
    double seconds = 0.2;
    json_t *result = run_json(x, &seconds, (const char *const[]){"lookup", NULL},
                              "--table mine --mix lookup=1,bags=1 --warm-up 0.1 --keys uniform:500");
    assert_true(of_op(result, "lookup", "calls") > 0);
    assert_string_equal(json_string_value(json_object_get(result, "table")), "mine");
    json_decref(result);
    assert_int_equal(rows(x), 0); /* it is as it was */
    assert_int_equal(node_fixture_sum(x->client, "ps.pushes_applied"), 0);
    result = run_json(x, &seconds, (const char *const[]){"push", NULL},
                      "--table mine --write-existing --warm-up 0 --keys sequential:500");
    json_decref(result);
    assert_int_equal(rows(x), 500);
    assert_true(node_fixture_sum(x->client, "ps.pushes_applied") > 0);
}

static void test_mistakes(void **state)
{
    struct fixture *x = *state;
    const uint32_t shape = 4;
    const struct mr_feature variable = mr_feature_variable("weights", 1, &shape);
    uint32_t id;
    assert_int_equal(mr_create(x->client, NULL, &variable, 1, &id), MR_OK);
    expect_refused(x, "--table weights --mix lookup=1", 1, "weights is a variable; --table takes a table");
    expect_refused(x, "--keys zipf:5", 2, "zipf:N:S");
    expect_refused(x, "--mix read=1", 2, "there is no call \"read\"");
    expect_refused(x, "--clients 0", 2, "--clients must be a whole number from 1 to 256");
    expect_refused(x, "word", 2, "unexpected argument");
    program_run(&x->node.net, NETNS_CLIENT, &x->result, "%s bench --server %s:9 --deadline-ms 300", millrace,
                NETNS_CLIENT_IPV4);
    program_expect(&x->result, 1, "nothing listens there");
    /* calls that fail are counted, and named */
    bench_run(x, "--mix echo=1 --echo-bytes 8000000 --seconds 0.2 --warm-up 0 --json");
    program_expect(&x->result, 1, "no call succeeded");
    json_t *result = bench_parse(x->result.out);
    assert_true(number(result, "calls") > 0);
    assert_int_equal(number(result, "failed"), number(result, "calls"));
    assert_int_equal(number(json_object_get(result, "failures"), mr_status_text(MR_TOO_LARGE)),
                     number(result, "calls"));
    json_decref(result);
    assert_int_equal(feature_count(x), 1);
}

#define BENCH_TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(int argc, char **argv)
{
    /* where it matters how many cores there are */
    const struct CMUnitTest counts[] = {
        BENCH_TEST(test_closed_loop),
        BENCH_TEST(test_open_loop),
        BENCH_TEST(test_file),
    };
    const struct CMUnitTest others[] = {
        BENCH_TEST(test_a_stall_is_charged_to_calls_that_were_not_sent),
        BENCH_TEST(test_signals),
        BENCH_TEST(test_a_table_that_is_there),
        BENCH_TEST(test_mistakes),
    };
    if (argc != 4) {
        fprintf(stderr, "usage: test_bench MILLRACED MILLRACE CORES\n");
        return 2;
    }
    node_fixture_server = argv[1];
    millrace = argv[2];
    cores = (uint32_t)strtoul(argv[3], NULL, 10);
    netns_require_root();
    const int failed = cmocka_run_group_tests(counts, NULL, NULL);
    return cores > 1 ? failed : failed + cmocka_run_group_tests(others, NULL, NULL);
}
