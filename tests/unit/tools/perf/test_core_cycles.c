#include <stdio.h>
#include <string.h>

#include "tools/perf/core_cycles.h"
#include "tests/test.h"

#define HZ 2000000000

struct counter {
    const char *name;
    uint64_t before, now;
};

/* 2 s: 4e9 cycles, of which 1e9 are idle. */
static const struct counter busy[] = {
    {"port.loops", 1, 2},
    {"wire.rx_packets", 100, 1000100},
    {"phase.poll", 1000, 200001000},
    {"phase.idle", 500, 1000000500},
    {"phase.check", 0, 800000000},
    {"phase.dispatch", 7, 400000007},
    {"phase.gather", 0, 1600000000},
    {"phase.tsc_hz", HZ, HZ},
    {"phase.turns_measured", 10, 5010},
    {"op_calls.lookup", 0, 400000},
    {"op_calls.push", 5, 5},
    {"op_calls.other", 0, 2},
    {"op_cycles.lookup", 0, 2000000000},
    {"op_cycles.push", 5000, 5000},
    {"op_cycles.other", 0, 0},
    {"op_instructions.lookup", 1000, 3600001000},
    {"op_cache_misses.lookup", 0, 480000},
    {"cpu.cycles", 0, 6000000000},
    {"cpu.instructions", 0, 9000000000},
    {"cpu.cache_misses", 0, 12000000},
    {"cpu.events", 3, 3},
    {"cpu.events_state", 1, 1},
    {"cpu.run_us", 0, 1900000},
    {"cpu.wait_us", 0, 100000},
    {"cpu.faults_minor", 0, 6},
    {"cpu.switches_forced", 0, 40},
    {"cpu.steal_us", 0, 20000},
    {"cpu.cpu", 3, 3},
    {"cpu.numa_node", 1, 1},
    {"table.keys_looked_up", 0, 6000000},
    {"table.keys_pushed", 0, 0},
    {"table.keys_missing", 0, 77},
};

static struct tool_cycles_sample before, now;
static struct tool_cycles c;

static struct tool_cycles_counter *core_cycles_find(struct tool_cycles_sample *s, const char *name)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (strcmp(s->list[i].name, name) == 0)
            return &s->list[i];
    return NULL;
}

static int setup(void **state)
{
    before = (struct tool_cycles_sample){.time_us = 1000000};
    now = (struct tool_cycles_sample){.time_us = 3000000};
    for (size_t i = 0; i < sizeof(busy) / sizeof(*busy); i++) {
        tool_cycles_visit(&before, busy[i].name, busy[i].before);
        tool_cycles_visit(&now, busy[i].name, busy[i].now);
    }
    assert_true(tool_cycles_between(&before, &now, &c));
    return 0;
}

/* What a printer prints; valid until the next call. */
static const char *printed(void (*print)(const struct tool_cycles *c, uint32_t core, FILE *out))
{
    static char text[4096];
    FILE *out = fmemopen(text, sizeof(text), "w");
    print(&c, 5, out);
    assert_int_equal(fclose(out), 0);
    return text;
}

TEST(only_what_is_needed_is_kept, setup)
{
    assert_null(core_cycles_find(&now, "port.loops"));
    assert_null(core_cycles_find(&now, "table.keys_missing"));
    assert_int_equal(core_cycles_find(&now, "wire.rx_packets")->value, 1000100);
    tool_cycles_visit(&now, "phase.a_name_that_is_longer_than_any_counter_has", 1);
    assert_int_equal(now.count, before.count);
    for (uint32_t i = 0; i < 2 * TOOL_CYCLES_COUNTERS_MAX; i++)
        tool_cycles_visit(&now, "phase.poll", 1);
    assert_int_equal(now.count, TOOL_CYCLES_COUNTERS_MAX);
}

TEST(shares_are_of_all_cycles, setup)
{
    char heading[512];
    FILE *out = fmemopen(heading, sizeof(heading), "w");
    tool_cycles_heading(&now, out);
    assert_int_equal(fclose(out), 0);
    const char *line = printed(tool_cycles_line);
    assert_string_equal(heading, "core   poll   idle  check dispatch gather  cycles/packet  cycles/key\n");
    assert_string_equal(line, "   5   5.0%  25.0%  20.0%    10.0%  40.0%          3.00k         500\n");
    assert_int_equal(strlen(line), strlen(heading)); /* numbers stand under their names */
}

TEST(operations_cost_what_they_cost, setup)
{
    assert_string_equal(printed(tool_cycles_ops),
                        "core 5: lookup      200k calls/s, 50.0% of all cycles; a call: cycles 5.00k, "
                        "instructions 9.00k, cache_misses  1.20\n"
                        "core 5: other          1 calls/s, 0.0% of all cycles; a call: cycles     -\n");
}

TEST(hardware_is_told_a_packet_and_a_key, setup)
{
    const char *text = printed(tool_cycles_cpu);
    assert_non_null(strstr(text, "core 5: instructions a cycle: 1.50\n"));
    assert_non_null(strstr(text, "core 5: a packet: cycles 6.00k, instructions 9.00k\n"));
    assert_non_null(strstr(text, "core 5: a key: cycles 1.00k, instructions 1.50k\n"));
    assert_null(strstr(text, "cache_misses")); /* its bit is not set */
    assert_non_null(strstr(text, "CPU 3, NUMA node 1: ran 95.0%, waited for the CPU 5.0%, stolen 1.0%"));
    assert_non_null(strstr(text, "a second: 3 faults, 20 switches\n"));
}

TEST(without_hardware_it_says_why, setup)
{
    core_cycles_find(&now, "cpu.events")->value = 0;
    core_cycles_find(&now, "cpu.events_state")->value = 3;
    const char *text = printed(tool_cycles_cpu);
    assert_non_null(strstr(text, "core 5: hardware counters: none: the server's machine has none"));
    assert_null(strstr(text, "instructions"));
    assert_non_null(strstr(text, "ran 95.0%"));
    core_cycles_find(&now, "cpu.events_state")->value = 4;
    assert_non_null(strstr(printed(tool_cycles_cpu), "perf_event_paranoid"));
    core_cycles_find(&now, "cpu.events_state")->value = 99;
    assert_non_null(strstr(printed(tool_cycles_cpu), "none that this version knows of"));
}

TEST(json_has_it_all, setup)
{
    json_t *root = tool_cycles_json(&c, 5);
    assert_non_null(root);
    double sum = 0.0;
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(root, "phases"), name, value) sum += json_real_value(value);
    assert_true(sum > 0.999999 && sum < 1.000001);
    double per_packet, per_key, per_call, rate, ipc, per_s, misses;
    json_t *missing;
    assert_int_equal(json_unpack(root, "{s:F, s:F, s:{s:{s:F, s:F}}, s:{s:F, s:o, s:{s:{s:F, s:F}}}}",
                                 "cycles_per_packet", &per_packet, "cycles_per_key", &per_key, "operations",
                                 "lookup", "calls_per_s", &rate, "cycles_per_call", &per_call, "hardware",
                                 "instructions_per_cycle", &ipc, "missing", &missing, "events",
                                 "instructions", "per_s", &per_s, "per_key", &misses),
                     0);
    assert_true(per_packet > 2999.9 && per_packet < 3000.1 && per_key > 499.9 && per_key < 500.1);
    assert_true(rate > 199999 && rate < 200001 && per_call > 4999 && per_call < 5001);
    assert_true(ipc > 1.4999 && ipc < 1.5001 && per_s > 4.4e9 && per_s < 4.6e9 && misses > 1499);
    assert_true(json_is_null(missing));
    json_t *software = json_object_get(root, "software_per_s");
    assert_true(json_real_value(json_object_get(software, "switches_forced")) > 19.9);
    assert_null(json_object_get(software, "cpu"));
    assert_null(json_object_get(software, "cycles"));
    json_decref(root);
}

TEST(nothing_is_shown_of_another_start, setup)
{
    core_cycles_find(&now, "phase.gather")->value = 0;
    core_cycles_find(&before, "phase.gather")->value = 1;
    assert_false(tool_cycles_between(&before, &now, &c));
}

TEST(two_answers_are_needed, setup)
{
    struct tool_cycles_sample none = {.time_us = 2000000};
    assert_false(tool_cycles_between(&none, &now, &c));
    assert_false(tool_cycles_between(&before, &none, &c));
    assert_false(tool_cycles_between(&now, &now, &c));
    assert_false(tool_cycles_measured(&none));
    assert_true(tool_cycles_measured(&now));
}
