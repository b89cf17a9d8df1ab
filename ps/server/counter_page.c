#include "ps/server/counter_page.h"

#include <ctype.h>
#include "dataplane/dataplane.h"
#include "ps/server/node_counters.h"

/* In the page's order. */
static const struct mr_counter_set *const sets[] = {
    &dp_port_counter_set,       &mr_wire_counter_set,     &ps_core_counter_set,   &ps_table_counter_set,
    &ps_checkpoint_counter_set, &ps_scrubber_counter_set, &ps_copier_counter_set, &ps_rpc_counter_set,
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

static void print_set(FILE *out, const struct mr_counter_set *set)
{
    fprintf(out, "\n## %s\n\n%c%s. %s\n\n", set->name, toupper(set->help[0]), set->help + 1,
            set->of_process ? "A node has one set of them." : "Each core has its own.");
    fputs("| counter | kind | unit | meaning |\n|---|---|---|---|\n", out);
    for (uint32_t i = 0; i < set->count; i++) {
        const struct mr_counter *c = &set->counters[i];
        fprintf(out, "| `%s.%s` | %s | %s | %s |\n", set->name, c->name, kind_text(c->kind),
                unit_text(c->unit), c->help);
    }
}

void ps_counter_page_print(FILE *out)
{
    fputs("# Counters of a node\n\n"
          "Every counter by its set, as `millrace ctl stats` and DPDK's telemetry show it.\n"
          "A *counter* only grows, and begins at 0 when the node starts; a *gauge* goes up and down, or\n"
          "stands for what its meaning says. `millraced --print-counters` prints this page.\n",
          out);
    for (uint32_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++)
        print_set(out, sets[i]);
}
