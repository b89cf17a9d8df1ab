#include "tools/perf/core_cycles.h"

#include <inttypes.h>
#include <string.h>

#include "tools/core_rates.h"

#define COLUMN_MIN 6

static bool has_prefix(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

void tool_cycles_visit(void *arg, const char *name, uint64_t value)
{
    static const char *const wanted[] = {
        "phase.", "op_calls.",       "op_cycles.",           "op_instructions.", "op_cache_misses.",
        "cpu.",   "wire.rx_packets", "table.keys_looked_up", "table.keys_pushed"};
    struct tool_cycles_sample *s = arg;
    bool is_wanted = false;
    for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++)
        is_wanted |= has_prefix(name, wanted[i]);
    if (!is_wanted || s->count == TOOL_CYCLES_COUNTERS_MAX || strlen(name) >= TOOL_CYCLES_NAME_BYTES)
        return;
    struct tool_cycles_counter *counter = &s->list[s->count++];
    (void)snprintf(counter->name, sizeof(counter->name), "%s", name);
    counter->value = value;
}

static uint64_t value_of(const struct tool_cycles_sample *s, const char *name)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (strcmp(s->list[i].name, name) == 0)
            return s->list[i].value;
    return 0;
}

static bool is_phase(const char *name)
{
    return has_prefix(name, "phase.") && strcmp(name, "phase.tsc_hz") != 0 &&
           strcmp(name, "phase.turns_measured") != 0;
}

/* The i-th counter's growth; those of one version of a server stand in one order. */
static double growth(const struct tool_cycles *c, uint32_t i)
{
    const struct tool_cycles_counter *now = &c->now->list[i], *was = &c->before->list[i];
    const bool is_same = i < c->before->count && strcmp(was->name, now->name) == 0;
    const uint64_t before = is_same ? was->value : value_of(c->before, now->name);
    return now->value > before ? (double)(now->value - before) : 0.0;
}

static double growth_of(const struct tool_cycles *c, const char *name)
{
    for (uint32_t i = 0; i < c->now->count; i++)
        if (strcmp(c->now->list[i].name, name) == 0)
            return growth(c, i);
    return 0.0;
}

static double all_cycles(const struct tool_cycles *c)
{
    double sum = 0.0;
    for (uint32_t i = 0; i < c->now->count; i++)
        if (is_phase(c->now->list[i].name))
            sum += growth(c, i);
    return sum;
}

static double busy_cycles(const struct tool_cycles *c)
{
    return all_cycles(c) - growth_of(c, "phase.idle") - growth_of(c, "phase.sleep");
}

static double packets(const struct tool_cycles *c)
{
    return growth_of(c, "wire.rx_packets");
}

static double keys(const struct tool_cycles *c)
{
    return growth_of(c, "table.keys_looked_up") + growth_of(c, "table.keys_pushed");
}

bool tool_cycles_measured(const struct tool_cycles_sample *now)
{
    return value_of(now, "phase.turns_measured") > 0;
}

bool tool_cycles_between(const struct tool_cycles_sample *before, const struct tool_cycles_sample *now,
                         struct tool_cycles *out)
{
    *out = (struct tool_cycles){.before = before, .now = now};
    if (before->count == 0 || now->count == 0 || now->time_us <= before->time_us)
        return false;
    for (uint32_t i = 0; i < now->count; i++)
        if (is_phase(now->list[i].name) && now->list[i].value < value_of(before, now->list[i].name))
            return false; /* another start */
    out->seconds = (double)(now->time_us - before->time_us) / 1e6;
    return all_cycles(out) > 0.0;
}

/* ---- text ---- */

static int column_width(const char *name)
{
    const int bytes = (int)strlen(name);
    return (bytes > COLUMN_MIN ? bytes : COLUMN_MIN) + 1;
}

void tool_cycles_heading(const struct tool_cycles_sample *sample, FILE *out)
{
    (void)fprintf(out, "core");
    for (uint32_t i = 0; i < sample->count; i++) {
        const char *name = sample->list[i].name;
        if (is_phase(name))
            (void)fprintf(out, "%*s", column_width(name + strlen("phase.")), name + strlen("phase."));
    }
    (void)fprintf(out, "  cycles/packet  cycles/key\n");
}

/* Of nothing: "-". */
static void print_ratio(FILE *out, int width, double part, double whole)
{
    char number[16] = "-";
    if (whole > 0.0 && part / whole < 10.0)
        (void)snprintf(number, sizeof(number), "%.2f", part / whole);
    else if (whole > 0.0)
        tool_short_number(part / whole, number);
    (void)fprintf(out, "%*s", width, number);
}

void tool_cycles_line(const struct tool_cycles *c, uint32_t core, FILE *out)
{
    const double all = all_cycles(c);
    (void)fprintf(out, "%4" PRIu32, core);
    for (uint32_t i = 0; i < c->now->count; i++) {
        const char *name = c->now->list[i].name;
        if (is_phase(name))
            (void)fprintf(out, "%*.1f%%", column_width(name + strlen("phase.")) - 1,
                          100.0 * growth(c, i) / all);
    }
    print_ratio(out, 15, busy_cycles(c), packets(c));
    print_ratio(out, 12, busy_cycles(c), keys(c));
    (void)fputc('\n', out);
}

/* What calls of a class did, of the set `what`. */
static double of_op(const struct tool_cycles *c, const char *what, const char *op)
{
    char name[2 * TOOL_CYCLES_NAME_BYTES];
    (void)snprintf(name, sizeof(name), "%s.%s", what, op);
    return growth_of(c, name);
}

void tool_cycles_ops(const struct tool_cycles *c, uint32_t core, FILE *out)
{
    for (uint32_t i = 0; i < c->now->count; i++) {
        const char *op = c->now->list[i].name + strlen("op_calls.");
        const double calls = growth(c, i);
        char rate[16];
        if (!has_prefix(c->now->list[i].name, "op_calls.") || !(calls > 0.0))
            continue;
        const double cycles = of_op(c, "op_cycles", op), instructions = of_op(c, "op_instructions", op);
        tool_short_number(calls / c->seconds, rate);
        (void)fprintf(out, "core %" PRIu32 ": %-8s %7s calls/s, %.1f%% of all cycles; a call: cycles", core,
                      op, rate, 100.0 * cycles / all_cycles(c));
        print_ratio(out, COLUMN_MIN, cycles, cycles > 0.0 ? calls : 0.0);
        if (instructions > 0.0) {
            (void)fprintf(out, ", instructions");
            print_ratio(out, COLUMN_MIN, instructions, calls);
            (void)fprintf(out, ", cache_misses");
            print_ratio(out, COLUMN_MIN, of_op(c, "op_cache_misses", op), calls);
        }
        (void)fputc('\n', out);
    }
}

/* enum dp_cpu_state on the server, in the words that an operator needs. */
static const char *why_no_events(const struct tool_cycles_sample *s)
{
    static const char *const texts[] = {
        "switched off (cores.cpu_events = no)",
        "",
        "in user space only: the kernel allows no more (sysctl kernel.perf_event_paranoid, CAP_PERFMON)",
        "none: the server's machine has none, as most virtual machines",
        "none: the kernel does not allow them (sysctl kernel.perf_event_paranoid, CAP_PERFMON)",
        "none: they could not be opened; the server's log says why",
    };
    const uint64_t state = value_of(s, "cpu.events_state");
    return state < sizeof(texts) / sizeof(*texts) ? texts[state] : "none that this version knows of";
}

/* The events come first in the set, each with its bit. */
static bool is_event(const struct tool_cycles_sample *s, uint32_t i)
{
    uint32_t first = 0;
    while (first < s->count && !has_prefix(s->list[first].name, "cpu."))
        first++;
    return i >= first && i - first < 64 && has_prefix(s->list[i].name, "cpu.") &&
           (value_of(s, "cpu.events") >> (i - first) & 1) != 0;
}

static void print_events(const struct tool_cycles *c, uint32_t core, FILE *out)
{
    const struct {
        const char *name;
        double count;
    } bases[] = {{"packet", packets(c)}, {"key", keys(c)}};
    const char *why = why_no_events(c->now);
    (void)fprintf(out, "core %" PRIu32 ": instructions a cycle:", core);
    print_ratio(out, 5, growth_of(c, "cpu.instructions"), growth_of(c, "cpu.cycles"));
    (void)fprintf(out, "%s%s\n", why[0] != '\0' ? "; counted " : "", why);
    for (size_t b = 0; b < sizeof(bases) / sizeof(*bases); b++) {
        const char *between = "";
        if (!(bases[b].count > 0.0))
            continue;
        (void)fprintf(out, "core %" PRIu32 ": a %s:", core, bases[b].name);
        for (uint32_t i = 0; i < c->now->count; i++) {
            if (!is_event(c->now, i))
                continue;
            (void)fprintf(out, "%s %s", between, c->now->list[i].name + strlen("cpu."));
            print_ratio(out, COLUMN_MIN, growth(c, i), bases[b].count);
            between = ",";
        }
        (void)fputc('\n', out);
    }
}

/* The server looks at these a few times a second, so the interval that they are of differs a little. */
static double share(const struct tool_cycles *c, const char *name)
{
    const double percent = 1e-4 * growth_of(c, name) / c->seconds;
    return percent < 100.0 ? percent : 100.0;
}

void tool_cycles_cpu(const struct tool_cycles *c, uint32_t core, FILE *out)
{
    if (value_of(c->now, "cpu.events") != 0)
        print_events(c, core, out);
    else
        (void)fprintf(out, "core %" PRIu32 ": hardware counters: %s\n", core, why_no_events(c->now));
    (void)fprintf(
        out,
        "core %" PRIu32 ": CPU %" PRIu64 ", NUMA node %" PRIu64
        ": ran %.1f%%, waited for the CPU %.1f%%, stolen %.1f%%, interrupts %.1f%%; a second: "
        "%.0f faults, %.0f switches\n",
        core, value_of(c->now, "cpu.cpu"), value_of(c->now, "cpu.numa_node"), share(c, "cpu.run_us"),
        share(c, "cpu.wait_us"), share(c, "cpu.steal_us"), share(c, "cpu.irq_us"),
        (growth_of(c, "cpu.faults_minor") + growth_of(c, "cpu.faults_major")) / c->seconds,
        (growth_of(c, "cpu.switches_voluntary") + growth_of(c, "cpu.switches_forced")) / c->seconds);
}

/* ---- JSON ---- */

static json_t *ratio(double part, double whole)
{
    return whole > 0.0 ? json_real(part / whole) : json_null();
}

static json_t *phases_json(const struct tool_cycles *c)
{
    const double all = all_cycles(c);
    json_t *object = json_object();
    for (uint32_t i = 0; i < c->now->count; i++)
        if (is_phase(c->now->list[i].name))
            (void)json_object_set_new(object, c->now->list[i].name + strlen("phase."),
                                      json_real(growth(c, i) / all));
    return object;
}

static json_t *op_json(const struct tool_cycles *c, const char *op, double calls)
{
    const double cycles = of_op(c, "op_cycles", op), instructions = of_op(c, "op_instructions", op);
    const double measured = cycles > 0.0 ? calls : 0.0, counted = instructions > 0.0 ? calls : 0.0;
    return json_pack("{s:f, s:f, s:o, s:o, s:o}", "calls_per_s", calls / c->seconds, "share",
                     cycles / all_cycles(c), "cycles_per_call", ratio(cycles, measured),
                     "instructions_per_call", ratio(instructions, counted), "cache_misses_per_call",
                     ratio(of_op(c, "op_cache_misses", op), counted));
}

static json_t *ops_json(const struct tool_cycles *c)
{
    json_t *object = json_object();
    for (uint32_t i = 0; i < c->now->count; i++) {
        const char *op = c->now->list[i].name + strlen("op_calls.");
        if (has_prefix(c->now->list[i].name, "op_calls."))
            (void)json_object_set_new(object, op, op_json(c, op, growth(c, i)));
    }
    return object;
}

/* The events: a second, a packet, a key. */
static json_t *hardware_json(const struct tool_cycles *c)
{
    const char *why = why_no_events(c->now);
    json_t *object = json_object();
    json_t *events = json_object();
    for (uint32_t i = 0; i < c->now->count; i++)
        if (is_event(c->now, i))
            (void)json_object_set_new(events, c->now->list[i].name + strlen("cpu."),
                                      json_pack("{s:f, s:o, s:o}", "per_s", growth(c, i) / c->seconds,
                                                "per_packet", ratio(growth(c, i), packets(c)), "per_key",
                                                ratio(growth(c, i), keys(c))));
    (void)json_object_set_new(object, "events", events);
    (void)json_object_set_new(object, "instructions_per_cycle",
                              ratio(growth_of(c, "cpu.instructions"), growth_of(c, "cpu.cycles")));
    (void)json_object_set_new(object, "missing", why[0] != '\0' ? json_string(why) : json_null());
    return object;
}

static json_t *software_json(const struct tool_cycles *c)
{
    json_t *object = json_object();
    bool is_software = false;
    for (uint32_t i = 0; i < c->now->count; i++) {
        const char *name = c->now->list[i].name;
        if (is_software && has_prefix(name, "cpu.") && strcmp(name, "cpu.cpu") != 0 &&
            strcmp(name, "cpu.numa_node") != 0)
            (void)json_object_set_new(object, name + strlen("cpu."), json_real(growth(c, i) / c->seconds));
        is_software |= strcmp(name, "cpu.events_state") == 0;
    }
    return object;
}

json_t *tool_cycles_json(const struct tool_cycles *c, uint32_t core)
{
    return json_pack("{s:I, s:f, s:I, s:f, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "core", (json_int_t)core,
                     "seconds", c->seconds, "tsc_hz", (json_int_t)value_of(c->now, "phase.tsc_hz"), "cycles",
                     all_cycles(c), "cpu", (json_int_t)value_of(c->now, "cpu.cpu"), "numa_node",
                     (json_int_t)value_of(c->now, "cpu.numa_node"), "phases", phases_json(c),
                     "cycles_per_packet", ratio(busy_cycles(c), packets(c)), "cycles_per_key",
                     ratio(busy_cycles(c), keys(c)), "operations", ops_json(c), "hardware", hardware_json(c),
                     "software_per_s", software_json(c));
}
