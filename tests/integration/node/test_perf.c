/* How long calls take, as a node and its client count it, and as `millrace perf` records and shows it. */
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/tick_clock.h"
#include "millrace_observe.h"
#include "tests/integration/node_fixture.h"
#include "tests/integration/program.h"
#include "tests/test.h"
#include "tests/unit/temporary_directory.h"
#include "tests/wait.h"

enum { CORES = 2, KEYS = 64, DIM = 8, CALLS = 3000 };

static const char *millrace;

struct fixture {
    struct node_fixture node;
    struct mr_client *client;
    struct program_result result;
    uint32_t table;
    char *directory;
};

static int set_up(void **state)
{
    static struct fixture x;
    struct mr_feature f;
    node_fixture_start(&x.node, CORES, NULL);
    x.client = node_fixture_connect(&x.node);
    f = mr_feature_table("emb", DIM);
    assert_int_equal(mr_create(x.client, NULL, &f, 1, &x.table), MR_OK);
    x.directory = temporary_directory_make();
    *state = &x;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *x = *state;
    mr_client_destroy(x->client);
    node_fixture_stop(&x->node);
    return temporary_directory_remove(x->directory);
}

static void look_up(struct fixture *x, uint64_t first)
{
    uint64_t keys[KEYS];
    struct mr_reply *reply = NULL;
    for (uint64_t i = 0; i < KEYS; i++)
        keys[i] = first + i;
    assert_int_equal(mr_lookup(x->client, NULL, x->table, keys, KEYS, &reply), MR_OK);
    mr_reply_free(reply);
}

static int by_value(const void *a, const void *b)
{
    const uint64_t p = *(const uint64_t *)a, q = *(const uint64_t *)b;
    return p < q ? -1 : p > q;
}

struct seen {
    const char *op, *phase;
    struct mr_histogram sum;
};

static void see_own(void *arg, const char *op, const struct mr_histogram *h)
{
    struct seen *s = arg;
    if (strcmp(op, s->op) == 0)
        mr_histogram_merge(&s->sum, h);
}

static void see(void *arg, const char *op, const char *phase, const struct mr_histogram *h)
{
    struct seen *s = arg;
    if (strcmp(op, s->op) == 0 && strcmp(phase, s->phase) == 0)
        mr_histogram_merge(&s->sum, h);
}

static void assert_near(double told, double truth)
{
    if (fabs(told - truth) > 0.02 * truth)
        fail_msg("%g is told, and %g is true", told, truth);
}

/* What the caller measures around a call contains what the client counts. */
TEST(the_client_tells_the_truth, set_up, tear_down)
{
    struct fixture *x = *state;
    static struct seen own;
    static const double shares[] = {0.5, 0.99};
    uint64_t *took_ns = calloc(CALLS, sizeof(*took_ns)), all_ns = 0;
    memset(&own, 0, sizeof(own));
    own.op = "lookup";
    for (uint64_t i = 0; i < CALLS; i++) {
        const uint64_t before_ns = mr_clock_ns();
        look_up(x, i);
        took_ns[i] = mr_clock_ns() - before_ns;
    }
    for (uint32_t i = 0; i < CALLS; i++)
        all_ns += took_ns[i];
    qsort(took_ns, CALLS, sizeof(*took_ns), by_value);
    assert_int_equal(mr_client_latencies(x->client, see_own, &own), MR_OK);
    assert_int_equal(own.sum.count, CALLS);
    for (size_t i = 0; i < sizeof(shares) / sizeof(*shares); i++) {
        const double truth = (double)took_ns[(uint32_t)ceil(shares[i] * CALLS) - 1];
        const double told = (double)mr_histogram_percentile_ns(&own.sum, shares[i]);
        assert_true(told < 1.02 * truth); /* waking the caller is not in it */
    }
    /* by another clock */
    assert_true((double)own.sum.max_ns <= (1 + MR_TICK_ERROR) * (double)took_ns[CALLS - 1]);
    assert_true((double)own.sum.sum_ns <= (1 + MR_TICK_ERROR) * (double)all_ns);
    free(took_ns);
}

/* The server's phases lie within the client's time, and every call is counted on some core. */
TEST(the_server_counts_each_call_once_in_each_phase, set_up, tear_down)
{
    struct fixture *x = *state;
    static const char *const phases[] = {"wait", "work", "send"};
    static struct seen own, s;
    double server_ns = 0;
    for (uint64_t i = 0; i < CALLS; i++)
        look_up(x, i);
    memset(&own, 0, sizeof(own));
    own.op = "lookup";
    assert_int_equal(mr_client_latencies(x->client, see_own, &own), MR_OK);
    for (size_t p = 0; p < sizeof(phases) / sizeof(*phases); p++) {
        memset(&s, 0, sizeof(s));
        s.op = "lookup";
        s.phase = phases[p];
        for (uint32_t core = 0; core < CORES; core++)
            assert_int_equal(mr_latencies(x->client, NULL, core, see, &s), MR_OK);
        assert_int_equal(s.sum.count, CORES * CALLS); /* each call has keys of both cores */
        server_ns += mr_histogram_mean_ns(&s.sum);
    }
    assert_true(server_ns > 0 && server_ns < mr_histogram_mean_ns(&own.sum));
    assert_int_equal(mr_latencies(x->client, NULL, CORES, see, &s), MR_INVALID_ARGUMENT);
    assert_int_equal(mr_latencies(x->client, NULL, 0, NULL, NULL), MR_INVALID_ARGUMENT);
}

/* ---- millrace perf ---- */

struct load {
    struct fixture *x;
    _Atomic bool stop;
    uint64_t calls;
};

static void *make_load(void *arg)
{
    struct load *l = arg;
    while (!atomic_load(&l->stop)) {
        look_up(l->x, l->calls++);
        if (l->calls % 50 == 0)
            assert_int_equal(mr_annotate(l->x->client, NULL, "another 50"), MR_OK);
    }
    return NULL;
}

static void record_of(struct fixture *x, const char *name, const char *server, const char *options)
{
    struct load load = {.x = x};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, make_load, &load), 0);
    program_run(&x->node.net, NETNS_CLIENT, &x->result,
                "%s perf record --hz 20 --seconds 2 --output %s/%s.mrp --server %s %s", millrace,
                x->directory, name, server, options);
    atomic_store(&load.stop, true);
    pthread_join(thread, NULL);
    program_expect(&x->result, 0, "samples in");
    assert_true(load.calls > 0);
}

static void record(struct fixture *x, const char *name, const char *options)
{
    record_of(x, name, x->node.address, options);
}

static double figure(const json_t *report, const char *name)
{
    size_t i;
    json_t *f;
    json_array_foreach(json_object_get(report, "figures"), i, f)
    {
        if (strcmp(json_string_value(json_object_get(f, "name")), name) == 0)
            return json_number_value(json_object_get(f, "value"));
    }
    fail_msg("there is no figure \"%s\"", name);
    return 0;
}

static json_t *report_json(struct fixture *x, const char *name)
{
    program_run(&x->node.net, NETNS_CLIENT, &x->result, "%s perf report --json %s/%s.mrp", millrace,
                x->directory, name);
    program_expect(&x->result, 0, "");
    json_t *report = json_loads(x->result.out, 0, NULL);
    assert_non_null(report);
    return report;
}

/* The caller frees it. */
static char *read_page(const struct fixture *x, const char *name)
{
    char path[256];
    struct stat file;
    (void)snprintf(path, sizeof(path), "%s/%s.html", x->directory, name);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    assert_int_equal(fstat(fileno(f), &file), 0);
    char *page = calloc(1, (size_t)file.st_size + 1);
    assert_non_null(page);
    assert_int_equal(fread(page, 1, (size_t)file.st_size, f), file.st_size);
    assert_int_equal(fclose(f), 0);
    return page;
}

static uint32_t occurrences(const char *text, const char *of)
{
    uint32_t count = 0;
    for (const char *at = strstr(text, of); at != NULL; at = strstr(at + 1, of))
        count++;
    return count;
}

/* Keys come from two counters' sums and calls from histograms: they agree about one run. */
TEST(a_run_is_recorded_and_shown, set_up, tear_down)
{
    struct fixture *x = *state;
    record(x, "a", "");
    json_t *report = report_json(x, "a");
    const json_t *facts = json_object_get(json_object_get(json_object_get(report, "header"), "facts"), "");
    assert_string_equal(json_string_value(json_object_get(facts, "config.cores.count")), "2");
    assert_non_null(json_object_get(facts, "machine.kernel"));
    const json_t *annotation = json_array_get(json_object_get(report, "annotations"), 0);
    assert_string_equal(json_string_value(json_object_get(annotation, "text")), "another 50");
    const double keys = figure(report, "keys looked up per second"),
                 calls = figure(report, "calls per second");
    assert_true(keys > 0 && calls > 2 * keys / KEYS * 0.9);
    assert_near((double)json_integer_value(json_object_get(report, "cores")), CORES);
    assert_true(figure(report, "lookup work p99") >= figure(report, "lookup work p50"));
    assert_true(figure(report, "lookup work max") > 0);
    json_decref(report);

    program_run(&x->node.net, NETNS_CLIENT, &x->result, "%s perf report %s/a.mrp", millrace, x->directory);
    program_expect(&x->result, 0, "");
    assert_non_null(strstr(x->result.out, "keys looked up per second"));
    assert_non_null(strstr(x->result.out, "a.html"));
    char *page = read_page(x, "a");
    assert_true(occurrences(page, "<svg") >= 8);
    assert_non_null(strstr(page, "lookup: how many calls took how long"));
    assert_null(strstr(page, "src="));
    assert_null(strstr(page, "href="));
    assert_null(strstr(page, "nan"));
    free(page);

    program_run(&x->node.net, NETNS_CLIENT, &x->result, "%s perf report --csv %s/a.mrp", millrace,
                x->directory);
    program_expect(&x->result, 0, "");
    assert_non_null(strstr(x->result.out, "wire.calls_served"));
    assert_int_equal(strncmp(x->result.out, "s,", 2), 0);
}

TEST(two_runs_are_compared, set_up, tear_down)
{
    struct fixture *x = *state;
    record(x, "a", "");
    record(x, "b", "");
    program_run(&x->node.net, NETNS_CLIENT, &x->result, "%s perf report --compare %s/a.mrp %s/b.mrp",
                millrace, x->directory, x->directory);
    program_expect(&x->result, 0, "");
    assert_non_null(strstr(x->result.out, "what changed most"));
    assert_non_null(strstr(x->result.out, "ratio"));
    assert_non_null(strstr(x->result.out, "what else differs, of configuration and machine:\nnothing\n"));
}

/* The same one twice, as if there were two. */
TEST(servers_in_no_cluster_are_recorded_together, set_up, tear_down)
{
    struct fixture *x = *state;
    char servers[256];
    (void)snprintf(servers, sizeof(servers), "%s,%s", x->node.address, x->node.address);
    record_of(x, "e", servers, "--each --on-slow 10s");
    json_t *report = report_json(x, "e");
    const json_t *header = json_object_get(report, "header"), *nodes = json_object_get(header, "nodes");
    assert_int_equal(json_integer_value(json_object_get(report, "cores")), 2 * CORES);
    assert_int_equal(json_array_size(nodes), 2 * CORES);
    assert_string_equal(json_string_value(json_array_get(nodes, 2 * CORES - 1)), x->node.address);
    assert_int_equal(json_object_size(json_object_get(header, "facts")), 1);
    json_decref(report);
    program_run(&x->node.net, NETNS_CLIENT, &x->result, "%s perf report %s/e.mrp", millrace, x->directory);
    program_expect(&x->result, 0, "");
    char *page = read_page(x, "e");
    char name[128];
    (void)snprintf(name, sizeof(name), "%s: core %d<", x->node.address, 2 * CORES - 1);
    assert_non_null(strstr(page, name));
    free(page);
}

/* Every call takes longer than a microsecond: the file has as many as there is room for, and tells the
 * rest. */
TEST(slow_calls_are_recorded_and_explained, set_up, tear_down)
{
    struct fixture *x = *state;
    record(x, "s", "--on-slow 1us");
    assert_non_null(strstr(x->result.err, " slow calls"));
    json_t *report = report_json(x, "s");
    const json_t *slow = json_object_get(report, "slow_calls");
    const json_t *list = json_object_get(slow, "slowest");
    json_int_t last_ns = INT64_MAX;
    uint32_t lookups = 0;
    size_t i;
    json_t *call;
    assert_int_equal(json_integer_value(json_object_get(slow, "slow_ns")), 1000);
    assert_true(json_integer_value(json_object_get(slow, "count")) >= (json_int_t)json_array_size(list));
    assert_true(json_array_size(list) > 0);
    json_array_foreach(list, i, call)
    {
        const json_int_t total_ns = json_integer_value(json_object_get(call, "total_ns"));
        assert_true(total_ns >= 1000 && total_ns <= last_ns);
        last_ns = total_ns;
        if (strcmp(json_string_value(json_object_get(call, "op")), "lookup") != 0)
            continue;
        lookups++;
        assert_int_in_range(json_integer_value(json_object_get(call, "keys")), 1, KEYS);
        assert_int_equal(json_integer_value(json_object_get(call, "table")), x->table);
        assert_true(json_integer_value(json_object_get(call, "request_bytes")) > 8);
        assert_non_null(strstr(json_string_value(json_object_get(call, "client")), NETNS_CLIENT_IPV4 ":"));
    }
    assert_true(lookups > 0);
    json_decref(report);

    program_run(&x->node.net, NETNS_CLIENT, &x->result, "%s perf report %s/s.mrp", millrace, x->directory);
    program_expect(&x->result, 0, "");
    assert_non_null(strstr(x->result.out, "slow calls, of 1 us or longer"));
    assert_non_null(strstr(x->result.out, "meanwhile: "));
    char *page = read_page(x, "s");
    assert_non_null(strstr(page, "<h2>Slow calls</h2>"));
    assert_non_null(strstr(page, "slow calls, up to")); /* an annotation in the plots */
    free(page);
}

static void see_call(void *arg, const struct mr_recent_call *call)
{
    uint64_t *lookups = arg;
    *lookups += strcmp(call->op, "lookup") == 0;
}

/* Of a core that serves more calls than it keeps, none that was slow is missed in silence. */
TEST(calls_that_are_gone_are_counted, set_up, tear_down)
{
    enum { MANY = 700, KEPT = 512 };
    struct fixture *x = *state;
    struct mr_recent_calls_state s;
    uint64_t seen = 0, lost = 0, position;
    assert_int_equal(mr_recent_calls(x->client, NULL, 0, 1, MR_RECENT_CALLS_FROM_NOW, &s, see_call, &seen),
                     MR_OK);
    position = s.next;
    for (uint64_t i = 0; i < MANY; i++)
        look_up(x, i);
    do {
        assert_int_equal(mr_recent_calls(x->client, NULL, 0, 1, position, &s, see_call, &seen), MR_OK);
        position = s.next;
        lost += s.lost;
    } while (s.left > 0);
    assert_true(seen >= KEPT - 8 && lost > 0 && seen + lost >= MANY);
}

/* Ctrl-C ends a recording well, also while the server is away. */
TEST(an_interrupted_recording_is_whole, set_up, tear_down)
{
    struct fixture *x = *state;
    struct netns_process recorder;
    char shell[512];
    snprintf(shell, sizeof(shell), "exec %s perf record --output %s/c.mrp --server %s 2>&1", millrace,
             x->directory, x->node.address);
    char *argv[] = {"sh", "-c", shell, NULL};
    netns_spawn(&x->node.net, NETNS_CLIENT, argv, &recorder);
    char path[256];
    struct stat file = {0};
    snprintf(path, sizeof(path), "%s/c.mrp", x->directory);
    WAIT_UNTIL(stat(path, &file) == 0 && file.st_size > 0); /* its first flush */
    const off_t first_bytes = file.st_size;
    for (uint64_t i = 0; file.st_size == first_bytes; i++) { /* until the next one: there are more samples */
        look_up(x, i);
        (void)stat(path, &file);
    }
    assert_int_equal(netns_end(&recorder, SIGINT), 0);
    json_t *report = report_json(x, "c");
    assert_true(figure(report, "keys looked up per second") > 0);
    json_decref(report);
}

TEST(mistakes_are_told, set_up, tear_down)
{
    struct fixture *x = *state;
    static const struct {
        const char *arguments, *says;
        int code;
    } mistakes[] = {
        {"record --output /nowhere/run.mrp --seconds 1", "cannot write /nowhere/run.mrp", 1},
        {"record --hz 1000", "--hz", 2},
        {"record --on-slow 5", "--on-slow is \"5\"; it is a number with a unit", 2},
        {"report /nowhere/run.mrp", "/nowhere/run.mrp: No such file", 1},
        {"report /etc/passwd", "is no run", 1},
        {"report a b", "two runs need --compare", 2},
        {"report --compare a", "needs two runs", 2},
        {"report --csv --json a", "--csv", 2},
    };
    for (size_t i = 0; i < sizeof(mistakes) / sizeof(*mistakes); i++) {
        const bool records =
            strncmp(mistakes[i].arguments, "record", 6) == 0 && mistakes[i].arguments[6] == ' ';
        program_run(&x->node.net, NETNS_CLIENT, &x->result, "%s perf %s%s%s", millrace, mistakes[i].arguments,
                    records ? " --server " : "", records ? x->node.address : "");
        program_expect(&x->result, mistakes[i].code, mistakes[i].says);
    }
}

int main(int argc, char **argv)
{
    netns_require_root();
    if (argc != 3) {
        fprintf(stderr, "usage: test_perf MILLRACED MILLRACE\n");
        return 2;
    }
    node_fixture_server = argv[1];
    millrace = argv[2];
    return tests_run(NULL, NULL);
}
