/* Where a node says that its cores' cycles go, through the library and through `millrace perf top`. */
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/clock.h"
#include "millrace_observe.h"
#include "tests/integration/node_fixture.h"
#include "tests/integration/program.h"
#include "tests/test.h"

enum { CORES = 2, KEYS = 256, DIM = 16, LIMIT_S = 60 };

static const char *millrace;

struct fixture {
    struct node_fixture node;
    struct mr_client *client;
    uint32_t table;
    uint64_t keys[KEYS];
    float gradients[KEYS * DIM];
    struct program_result result;
};

static struct fixture x;

static void perf_top_start(const char *const *settings)
{
    const struct mr_feature feature = mr_feature_table("t", DIM);
    node_fixture_start(&x.node, CORES, settings);
    x.client = node_fixture_connect(&x.node);
    assert_int_equal(mr_create(x.client, NULL, &feature, 1, &x.table), MR_OK);
    for (uint64_t i = 0; i < KEYS; i++)
        x.keys[i] = i * 7919 + 1;
}

static int set_up(void **state)
{
    perf_top_start(NULL);
    return 0;
}

static int set_up_unmeasured(void **state)
{
    static const char *const settings[] = {"cores.measured_turns=0", "cores.cpu_events=no", NULL};
    perf_top_start(settings);
    return 0;
}

static int tear_down(void **state)
{
    mr_client_destroy(x.client);
    node_fixture_stop(&x.node);
    return 0;
}

/* ---- through the library ---- */

struct sums {
    uint64_t phases, lookup_cycles, push_cycles, gather, optimizer;
};

static void add_counter(void *arg, const char *name, uint64_t value)
{
    struct sums *s = arg;
    if (strncmp(name, "phase.", 6) == 0 && strcmp(name, "phase.tsc_hz") != 0 &&
        strcmp(name, "phase.turns_measured") != 0)
        s->phases += value;
    s->gather += strcmp(name, "phase.gather") == 0 ? value : 0;
    s->optimizer += strcmp(name, "phase.optimizer") == 0 ? value : 0;
    s->lookup_cycles += strcmp(name, "op_cycles.lookup") == 0 ? value : 0;
    s->push_cycles += strcmp(name, "op_cycles.push") == 0 ? value : 0;
}

static struct sums sums_of(uint32_t core)
{
    struct sums s = {0};
    assert_int_equal(mr_stats(x.client, NULL, core, add_counter, &s), MR_OK);
    return s;
}

static void look_up(void)
{
    assert_int_equal(mr_lookup(x.client, NULL, x.table, x.keys, KEYS, NULL), MR_OK);
}

static void perf_top_push(void)
{
    assert_int_equal(mr_push_gradients(x.client, NULL, x.table, x.keys, KEYS, DIM, x.gradients), MR_OK);
}

/* The counters follow within a tenth of a second, so over a long time they are the time. */
TEST(phases_are_the_time_that_passes, set_up, tear_down)
{
    const double hz = (double)node_fixture_counter(x.client, 0, "phase.tsc_hz");
    const uint64_t since_us = mr_clock_us();
    const struct sums before = sums_of(0);
    assert_true(hz > 1e6);
    for (double passed_s = 0, seen_s = 0; seen_s < 1 || seen_s < 0.9 * passed_s || seen_s > 1.1 * passed_s;) {
        look_up();
        seen_s = (double)(sums_of(0).phases - before.phases) / hz;
        passed_s = (double)(mr_clock_us() - since_us) / 1e6;
        if (passed_s > LIMIT_S)
            fail_msg("%.2f s of phases in %.2f s", seen_s, passed_s);
    }
}

TEST(cycles_go_to_the_operation_that_is_called, set_up, tear_down)
{
    const struct sums before = sums_of(1);
    struct sums now = before;
    const uint64_t limit_us = mr_clock_us() + LIMIT_S * UINT64_C(1000000);
    while (now.lookup_cycles == before.lookup_cycles || now.gather == before.gather) {
        look_up();
        now = sums_of(1);
        assert_true(mr_clock_us() < limit_us);
    }
    assert_int_equal(now.push_cycles, before.push_cycles);
    assert_int_equal(now.optimizer, before.optimizer);
    const uint64_t calls = node_fixture_counter(x.client, 1, "op_calls.push");
    while (now.push_cycles == before.push_cycles || now.optimizer == before.optimizer) {
        perf_top_push();
        now = sums_of(1);
        assert_true(mr_clock_us() < limit_us);
    }
    assert_true(node_fixture_counter(x.client, 1, "op_calls.push") > calls);
}

TEST(threads_and_the_port_are_watched, set_up, tear_down)
{
    const uint64_t limit_us = mr_clock_us() + LIMIT_S * UINT64_C(1000000);
    const uint64_t run_us = node_fixture_counter(x.client, 1, "cpu.run_us");
    const uint64_t packets = node_fixture_counter(x.client, 0, "nic.rx_good_packets");
    while (node_fixture_counter(x.client, 1, "cpu.run_us") == run_us ||
           node_fixture_counter(x.client, 0, "nic.rx_good_packets") == packets) {
        look_up();
        assert_true(mr_clock_us() < limit_us);
    }
    assert_true(node_fixture_counter(x.client, 1, "cpu.faults_minor") > 0);
    const uint64_t state_now = node_fixture_counter(x.client, 0, "cpu.events_state");
    const uint64_t cycles = node_fixture_counter(x.client, 0, "cpu.cycles");
    assert_true(state_now >= 1 && state_now <= 4);
    assert_int_equal(cycles > 0, (node_fixture_counter(x.client, 0, "cpu.events") & 1) != 0);
}

/* ---- the command ---- */

struct load {
    pthread_t thread;
    _Atomic bool stop;
};

/* Over a client of its own, in the namespace of the thread that began it. */
static void *run_load(void *arg)
{
    struct load *load = arg;
    struct mr_client *client = node_fixture_connect(&x.node);
    while (!atomic_load(&load->stop))
        if (mr_lookup(client, NULL, x.table, x.keys, KEYS, NULL) != MR_OK)
            break;
    mr_client_destroy(client);
    return NULL;
}

static void perf_top_run(const char *arguments)
{
    program_run(&x.node.net, NETNS_CLIENT, &x.result, "%s perf top %s --server %s", millrace, arguments,
                x.node.address);
}

static double real(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value))
        fail_msg("no number \"%s\" in:\n%s", key, x.result.out);
    return json_number_value(value);
}

static void check_core(const json_t *core, uint32_t index)
{
    const char *name;
    json_t *share;
    double sum = 0;
    assert_int_equal((uint32_t)real(core, "core"), index);
    json_object_foreach(json_object_get(core, "phases"), name, share)
    {
        assert_true(json_real_value(share) >= 0);
        sum += json_real_value(share);
    }
    assert_true(sum > 0.999 && sum < 1.001);
    const json_t *hardware = json_object_get(core, "hardware");
    const bool counts = json_object_size(json_object_get(hardware, "events")) > 0;
    assert_true(counts || json_is_string(json_object_get(hardware, "missing"))); /* why not */
    assert_true(json_is_number(json_object_get(json_object_get(core, "software_per_s"), "steal_us")));
}

/* What the command shows of an interval; the caller owns it. */
static json_t *shown_cores(void)
{
    json_error_t error;
    perf_top_run("--count 1 --interval 1 --json");
    program_expect(&x.result, 0, "");
    json_t *cores = json_loads(x.result.out, 0, &error);
    if (cores == NULL)
        fail_msg("%s: %s", error.text, x.result.out);
    return cores;
}

/* Whether each core had calls in the interval, and some of them in turns that were measured. */
static bool have_calls(const json_t *cores)
{
    size_t i;
    const json_t *core;
    bool have = true;
    json_array_foreach(cores, i, core)
    {
        const json_t *lookup = json_object_get(json_object_get(core, "operations"), "lookup");
        have &= lookup != NULL && real(lookup, "calls_per_s") > 0 && real(core, "cycles_per_packet") > 0 &&
                real(core, "cycles_per_key") > 0;
    }
    return have;
}

TEST(the_command_shows_it, set_up, tear_down)
{
    struct load load = {.stop = false};
    assert_int_equal(pthread_create(&load.thread, NULL, run_load, &load), 0);
    const uint64_t limit_us = mr_clock_us() + LIMIT_S * UINT64_C(1000000);
    while (node_fixture_sum(x.client, "op_calls.lookup") == 0)
        assert_true(mr_clock_us() < limit_us);
    json_t *cores = shown_cores();
    while (!have_calls(cores)) {
        assert_true(mr_clock_us() < limit_us);
        json_decref(cores);
        cores = shown_cores();
    }
    assert_int_equal(json_array_size(cores), CORES);
    for (uint32_t i = 0; i < CORES; i++)
        check_core(json_array_get(cores, i), i);
    json_decref(cores);

    do {
        assert_true(mr_clock_us() < limit_us);
        perf_top_run("--count 2 --interval 0.5 --core 1");
        program_expect(&x.result, 0, "");
    } while (strstr(x.result.out, "core 1: lookup ") == NULL);
    assert_non_null(strstr(x.result.out, "   poll   idle  sleep receive"));
    assert_non_null(strstr(x.result.out, "core 1: CPU "));
    assert_null(strstr(x.result.out, "core 0"));
    assert_null(strchr(x.result.out, '\033')); /* no terminal */
    atomic_store(&load.stop, true);
    assert_int_equal(pthread_join(load.thread, NULL), 0);
}

TEST(mistakes_are_told, set_up, tear_down)
{
    perf_top_run("--count 1 --core 7");
    program_expect(&x.result, 1, "--core 7: the server has cores 0 to 1\n");
    perf_top_run("--interval 0");
    program_expect(&x.result, 2, "--interval must be");
    program_run(&x.node.net, NETNS_CLIENT, &x.result, "%s perf tip", millrace);
    program_expect(&x.result, 2, "no command tip; see millrace perf --help");
}

TEST(an_unmeasured_server_is_told, set_up_unmeasured, tear_down)
{
    look_up();
    perf_top_run("--count 1");
    program_expect(&x.result, 1, "set cores.measured_turns = 64");
    assert_int_equal(sums_of(0).phases, 0);
    assert_true(node_fixture_sum(x.client, "op_calls.lookup") > 0); /* counted all the same */
    assert_int_equal(node_fixture_counter(x.client, 0, "cpu.events_state"), 0);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: test_perf_top MILLRACED MILLRACE\n");
        return 2;
    }
    node_fixture_server = argv[1];
    millrace = argv[2];
    netns_require_root();
    return tests_run(NULL, NULL);
}
