/* millrace ctl heartbeat, stats. */
#include <inttypes.h>
#include <stdio.h>

#include "tools/core_rates.h"
#include "tools/ctl/ctl.h"
#include "dataplane/wire/base/cli.h"

#define CORES_MAX 64u /* of one server: the wire protocol's limit */

static json_t *state_json(const struct mr_core_state *s)
{
    return json_pack(
        "{s:I, s:s, s:I, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "core", (json_int_t)s->core,
        "state", tool_node_state_name(s->state), "incarnation", (json_int_t)s->incarnation, "uptime_s",
        (double)s->uptime_us / 1e6, "busy_share", s->busy_share, "last_step", (json_int_t)s->last_step,
        "cached_batches", (json_int_t)s->cached_batches, "rows", (json_int_t)s->rows, "memory_bytes",
        (json_int_t)s->memory_bytes, "rtt_us", (json_int_t)s->rtt_us, "rows_refused",
        (json_int_t)s->rows_refused, "gradients_without_row", (json_int_t)s->gradients_without_row,
        "gradients_skipped", (json_int_t)s->gradients_skipped, "steps_ignored", (json_int_t)s->steps_ignored);
}

static int print_states(const struct tool_query *q, const struct mr_core_state *states, uint32_t count)
{
    if (q->json) {
        json_t *list = json_array();
        for (uint32_t i = 0; i < count; i++)
            json_array_append_new(list, state_json(&states[i]));
        return tool_print_json(q->command, list);
    }
    (void)printf("%4s  %-10s %11s %10s %6s %10s %8s %12s %10s %8s %10s %10s %10s %10s\n", "core", "state",
                 "incarnation", "uptime s", "busy", "last step", "batches", "rows", "memory MiB", "rtt us",
                 "refused", "no row", "skipped", "far steps");
    for (uint32_t i = 0; i < count; i++) {
        const struct mr_core_state *s = &states[i];
        (void)printf("%4" PRIu32 "  %-10s %11" PRIu32 " %10.1f %5.1f%% %10" PRIu64 " %8" PRIu64 " %12" PRIu64
                     " %10.1f %8" PRIu64 " %10" PRIu64 " %10" PRIu64 " %10" PRIu64 " %10" PRIu64 "\n",
                     s->core, tool_node_state_name(s->state), s->incarnation, (double)s->uptime_us / 1e6,
                     100.0 * s->busy_share, s->last_step, s->cached_batches, s->rows,
                     (double)s->memory_bytes / (1024.0 * 1024.0), s->rtt_us, s->rows_refused,
                     s->gradients_without_row, s->gradients_skipped, s->steps_ignored);
    }
    return 0;
}

int tool_ctl_heartbeat(const struct tool_query *q)
{
    struct mr_core_state states[CORES_MAX];
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
        json_array_append_new(list, json_pack("{s:I, s:o}", "core", (json_int_t)core, "counters", counters));
    }
    if (status == MR_OK && q->json)
        return tool_print_json(q->command, list);
    json_decref(list);
    return status == MR_OK ? 0 : tool_call_failed(q->command, status);
}
