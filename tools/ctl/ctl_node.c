/* millrace ctl heartbeat, stats. */
#include <inttypes.h>
#include <stdio.h>

#include "millrace_observe.h"
#include "tools/core_rates.h"
#include "tools/ctl/ctl.h"
#include "dataplane/wire/base/cli.h"

/* The name of the node that a core is of; "" if it is in no cluster. */
static const char *node_of(const struct tool_query *q, uint32_t core, struct mr_core_place *place)
{
    return mr_client_core_place(q->client, core, place) ? place->node : "";
}

/* Cores of a cluster say their node. */
static json_t *with_node(const struct tool_query *q, uint32_t core, json_t *object)
{
    struct mr_core_place place;
    const char *node = node_of(q, core, &place);
    if (node[0] != '\0')
        (void)json_object_set_new(object, "node", json_string(node));
    return object;
}

static json_t *state_json(const struct mr_core_state *s)
{
    return json_pack("{s:I, s:s, s:s, s:I, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "core",
                     (json_int_t)s->core, "state", tool_node_state_name(s->state), "why", s->why,
                     "incarnation", (json_int_t)s->incarnation, "uptime_s", (double)s->uptime_us / 1e6,
                     "busy_share", s->busy_share, "last_step", (json_int_t)s->last_step, "cached_batches",
                     (json_int_t)s->cached_batches, "rows", (json_int_t)s->rows, "memory_bytes",
                     (json_int_t)s->memory_bytes, "rtt_us", (json_int_t)s->rtt_us, "rows_refused",
                     (json_int_t)s->rows_refused, "gradients_without_row",
                     (json_int_t)s->gradients_without_row, "gradients_skipped",
                     (json_int_t)s->gradients_skipped, "steps_ignored", (json_int_t)s->steps_ignored);
}

static int print_states(const struct tool_query *q, const struct mr_core_state *states, uint32_t count)
{
    if (q->json) {
        json_t *list = json_array();
        for (uint32_t i = 0; i < count; i++)
            json_array_append_new(list, with_node(q, i, state_json(&states[i])));
        return tool_print_json(q->command, list);
    }
    struct mr_core_place place;
    const bool is_cluster = count > 0 && node_of(q, 0, &place)[0] != '\0';
    if (is_cluster)
        (void)printf("%-12s ", "node");
    (void)printf("%4s  %-10s %11s %10s %6s %10s %8s %12s %10s %8s %10s %10s %10s %10s\n", "core", "state",
                 "incarnation", "uptime s", "busy", "last step", "batches", "rows", "memory MiB", "rtt us",
                 "refused", "no row", "skipped", "far steps");
    for (uint32_t i = 0; i < count; i++) {
        const struct mr_core_state *s = &states[i];
        if (is_cluster)
            (void)printf("%-12s ", node_of(q, i, &place));
        (void)printf("%4" PRIu32 "  %-10s %11" PRIu32 " %10.1f %5.1f%% %10" PRIu64 " %8" PRIu64 " %12" PRIu64
                     " %10.1f %8" PRIu64 " %10" PRIu64 " %10" PRIu64 " %10" PRIu64 " %10" PRIu64 "\n",
                     s->core, tool_node_state_name(s->state), s->incarnation, (double)s->uptime_us / 1e6,
                     100.0 * s->busy_share, s->last_step, s->cached_batches, s->rows,
                     (double)s->memory_bytes / (1024.0 * 1024.0), s->rtt_us, s->rows_refused,
                     s->gradients_without_row, s->gradients_skipped, s->steps_ignored);
    }
    for (uint32_t i = 0; i < count; i++) {
        const char *node = node_of(q, i, &place);
        if (states[i].why[0] != '\0' && (!is_cluster ? i == 0 : place.core == 0))
            (void)printf("%s%sserves nothing: %s\n", node, is_cluster ? ": " : "", states[i].why);
    }
    return 0;
}

int tool_ctl_heartbeat(const struct tool_query *q)
{
    static struct mr_core_state states[MR_CLIENT_CORES_MAX];
    enum mr_status status = mr_heartbeat(q->client, NULL, states);
    if (status != MR_OK)
        return tool_call_failed(q->command, status);
    return print_states(q, states, mr_client_core_count(q->client));
}

static void add_counter(void *arg, const char *name, uint64_t value)
{
    (void)json_object_set_new(arg, name, json_integer((json_int_t)value));
}

static void print_counter(void *arg, const char *name, uint64_t value)
{
    (void)printf("core %" PRIu32 "  %-40s %20" PRIu64 "\n", *(const uint32_t *)arg, name, value);
}

int tool_ctl_stats(const struct tool_query *q)
{
    json_t *list = json_array();
    enum mr_status status = MR_OK;
    for (uint32_t core = q->first_core; core < q->end_core && status == MR_OK; core++) {
        json_t *counters = json_object();
        if (q->json)
            status = mr_stats(q->client, NULL, core, add_counter, counters);
        else
            status = mr_stats(q->client, NULL, core, print_counter, &core);
        json_array_append_new(
            list,
            with_node(q, core, json_pack("{s:I, s:o}", "core", (json_int_t)core, "counters", counters)));
    }
    if (status == MR_OK && q->json)
        return tool_print_json(q->command, list);
    json_decref(list);
    return status == MR_OK ? 0 : tool_call_failed(q->command, status);
}
