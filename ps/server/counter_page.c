#include "ps/server/counter_page.h"

#include <ctype.h>
#include "dataplane/dataplane.h"
#include "dataplane/loop/cpu_counters.h"
#include "dataplane/loop/socket_port.h"
#include "dataplane/metrics/metrics_text.h"
#include "ps/server/metric_sets.h"
#include "ps/server/node_counters.h"

/* In the page's order. */
static const struct mr_counter_set *const sets[] = {
    &dp_port_counter_set,       &dp_phase_counter_set,           &dp_op_calls_counter_set,
    &dp_op_cycles_counter_set,  &dp_op_instructions_counter_set, &dp_op_cache_misses_counter_set,
    &dp_cpu_counter_set,        &dp_socket_counter_set,          &mr_wire_counter_set,
    &ps_core_counter_set,       &ps_table_counter_set,           &ps_log_counter_set,
    &ps_checkpoint_counter_set, &ps_cluster_counter_set,         &ps_uring_counter_set,
    &ps_scrubber_counter_set,   &ps_copier_counter_set,          &ps_rpc_counter_set,
};

static const struct mr_counter_set *const metric_sets[] = {
    &ps_node_metric_set, &ps_cluster_metric_set, &ps_core_metric_set,
    &ps_core_memory_set, &ps_table_memory_set,   &ps_variable_metric_set,
};

static const char *kind_text(enum mr_counter_kind kind)
{
    return kind == MR_COUNTER ? "counter" : "gauge";
}

static const char *unit_text(enum mr_unit unit)
{
    static const char *const texts[] = {[MR_UNIT_NONE] = "",
                                        [MR_UNIT_BYTES] = "bytes",
                                        [MR_UNIT_SECONDS] = "seconds",
                                        [MR_UNIT_MICROSECONDS] = "microseconds",
                                        [MR_UNIT_TIMESTAMP] = "seconds since 1970",
                                        [MR_UNIT_PPM] = "millionths"};
    return texts[unit];
}

static void print_name(FILE *out, const struct mr_counter_set *set, const struct mr_counter *c)
{
    char metric[MR_METRIC_NAME_BYTES];
    mr_metric_name(set, c, metric);
    fprintf(out, "| `%s%s` | %s |", metric, c->kind == MR_COUNTER ? "_total" : "", kind_text(c->kind));
}

static void print_set(FILE *out, const struct mr_counter_set *set)
{
    fprintf(out, "\n### %s\n\n%c%s. %s\n\n", set->name, toupper(set->help[0]), set->help + 1,
            set->of_process ? "A node has one set of them." : "Each core has its own.");
    fputs("| counter | metric | kind | unit | meaning |\n|---|---|---|---|---|\n", out);
    for (uint32_t i = 0; i < set->count; i++) {
        const struct mr_counter *c = &set->counters[i];
        fprintf(out, "| `%s.%s` ", set->name, c->name);
        print_name(out, set, c);
        fprintf(out, " %s | %s |\n", unit_text(c->unit), c->help);
    }
}

static void print_metrics(FILE *out, const struct mr_counter_set *set)
{
    for (uint32_t i = 0; i < set->count; i++) {
        print_name(out, set, &set->counters[i]);
        fprintf(out, " %s |\n", set->counters[i].help);
    }
}

void ps_counter_page_print(FILE *out)
{
    fputs("# Counters and metrics of a node\n\n"
          "A *counter* only grows, and begins at 0 when the node starts; a *gauge* goes up and down, or "
          "stands\n"
          "for what its meaning says. `millraced --print-counters` prints this page.\n\n"
          "## Counters\n\n"
          "Every counter by its set, as `millrace ctl stats` and DPDK's telemetry show it, and its name "
          "among the\n"
          "[metrics](observe.md#metrics). Metrics of a core have the label `core`; those of the set `table` "
          "are\n"
          "sums over the cores, with the label `table`.\n",
          out);
    for (uint32_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++)
        print_set(out, sets[i]);
    fputs("\n## Metrics beside the counters\n\n"
          "Labels: `state` of `millrace_node_state`, `core`, `table`, `variable`, `op` and `phase` (wait, "
          "work, send).\n"
          " `millrace_cluster_` "
          "metrics are\n"
          "those of members of a cluster.\n\n"
          "| metric | kind | meaning |\n|---|---|---|\n",
          out);
    for (uint32_t i = 0; i < sizeof(metric_sets) / sizeof(metric_sets[0]); i++)
        print_metrics(out, metric_sets[i]);
    fprintf(out, "| `%s` | histogram | %s |\n", PS_LATENCY_METRIC, PS_LATENCY_METRIC_HELP);
}
