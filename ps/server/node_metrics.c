#include "ps/server/node_metrics.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include "dataplane/metrics/metrics_process.h"
#include "dataplane/metrics/metrics_server.h"
#include "dataplane/wire/base/bytes.h"
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/log.h"
#include "ps/core/core.h"
#include "ps/server/core_snapshot.h"
#include "ps/server/metrics_tables.h"
#include "ps/server/node_counters.h"

#define ANSWER_MS    500u /* that a core has, of the ten seconds after which Prometheus gives up */
#define COUNTERS_MAX 512u /* of a core */

/* One core's counters as they were visited. */
struct core_counters {
    uint32_t count;
    struct {
        const struct mr_counter_set *set;
        const struct mr_counter *counter;
        uint64_t value;
    } all[COUNTERS_MAX];
};

struct ps_node_metrics {
    struct ps_node *node;
    struct ps_core_snapshots *snapshots;
    struct core_counters *counters; /* [core_count], for one text */
    struct mr_labels labels;        /* of each sample */
    struct mr_metrics_server *server;
};

/* ---- the node ---- */

/* A node that has failed says why, in a label. */
static void write_state(const struct ps_node_metrics *m, struct mr_metrics_text *text)
{
    char why[PS_WHY_BYTES];
    const enum mr_node_state now = ps_node_state(m->node, why);
    for (uint32_t state = MR_NODE_SERVING; state < MR_NODE_STATES; state++) {
        struct mr_labels labels = m->labels;
        mr_labels_add(&labels, "state", ps_node_state_name((enum mr_node_state)state));
        if (state == now && why[0] != '\0')
            mr_labels_add(&labels, "reason", why);
        mr_metrics_sample(text, &labels, state == now);
    }
}

/* The time between automatic saves, if there are any. */
static uint64_t checkpoint_every_s(const struct ps_node *node)
{
    return node->config->checkpoint_directory[0] != '\0' && !node->is_read_only
               ? atomic_load_explicit(&node->checkpoint_every_s, memory_order_relaxed)
               : 0;
}

/* A value for each family of the set from `first` on. */
static void write_values(struct mr_metrics_text *text, const struct mr_labels *labels,
                         const struct mr_counter_set *set, uint32_t first, const uint64_t *values,
                         size_t count)
{
    assert(first + count == set->count);
    mr_metrics_set(text, labels, set, first, values);
}

static void write_node(const struct ps_node_metrics *m, struct mr_metrics_text *text)
{
    const struct ps_node *node = m->node;
    const struct mr_counter_set *set = &ps_node_metric_set;
    const uint64_t values[] = {node->incarnation, node->config->memory_limit_mib * MR_MIB,
                               checkpoint_every_s(node)};
    mr_metrics_family(text, set, &set->counters[0]);
    write_state(m, text);
    write_values(text, &m->labels, set, 1, values, sizeof(values) / sizeof(values[0]));
}

static uint64_t lease_left_us(const struct ps_node *node)
{
    const uint64_t end_us = atomic_load_explicit(&node->lease_end_us, memory_order_relaxed);
    const uint64_t now_us = mr_clock_boot_us();
    return end_us > now_us ? end_us - now_us : 0;
}

static void write_cluster(const struct ps_node_metrics *m, struct mr_metrics_text *text)
{
    const uint64_t values[] = {lease_left_us(m->node), m->node->config->cluster_session_ms * 1000 / 2};
    if (m->node->is_member)
        write_values(text, &m->labels, &ps_cluster_metric_set, 0, values, sizeof(values) / sizeof(values[0]));
}

/* ---- cores ---- */

static struct mr_labels core_labels(const struct ps_node_metrics *m, uint32_t core)
{
    struct mr_labels labels = m->labels;
    mr_labels_add_number(&labels, "core", core);
    return labels;
}

static void write_cores(const struct ps_node_metrics *m, struct mr_metrics_text *text)
{
    const struct mr_counter_set *set = &ps_core_metric_set;
    for (uint32_t i = 0; i < set->count; i++) {
        mr_metrics_family(text, set, &set->counters[i]);
        for (uint32_t core = 0; core < m->node->core_count; core++) {
            const struct mr_labels labels = core_labels(m, core);
            const uint64_t values[] = {dp_core_busy_ppm(m->node->cores[core]->dp_core),
                                       ps_core_snapshots_of(m->snapshots, core) != NULL};
            mr_metrics_sample(text, &labels, values[i]);
        }
    }
}

static void write_core_memory(const struct ps_node_metrics *m, struct mr_metrics_text *text)
{
    const struct mr_counter_set *set = &ps_core_memory_set;
    for (uint32_t i = 0; i < set->count; i++) {
        mr_metrics_family(text, set, &set->counters[i]);
        for (uint32_t core = 0; core < m->node->core_count; core++) {
            const struct ps_core_snapshot *snapshot = ps_core_snapshots_of(m->snapshots, core);
            const struct mr_labels labels = core_labels(m, core);
            if (snapshot != NULL)
                mr_metrics_sample(text, &labels, ((const uint64_t *)&snapshot->memory)[i]);
        }
    }
}

/* ---- counters ---- */

static void note_counter(void *arg, const struct mr_counter_set *set, const struct mr_counter *counter,
                         uint64_t value)
{
    struct core_counters *c = arg;
    if (set == &ps_table_counter_set || c->count == COUNTERS_MAX) /* tables come by their names */
        return;
    c->all[c->count].set = set;
    c->all[c->count].counter = counter;
    c->all[c->count++].value = value;
}

/* Where a core has the counter that core 0 has at `at`; a core's count: nowhere. Core 0 has more, in the same
 * order. */
static uint32_t place_of(const struct core_counters *c, const struct mr_counter *counter, uint32_t at)
{
    for (uint32_t i = at < c->count ? at : c->count; i > 0; i--)
        if (c->all[i - 1].counter == counter)
            return i - 1;
    return c->count;
}

static void write_counter(const struct ps_node_metrics *m, struct mr_metrics_text *text, uint32_t at)
{
    const struct mr_counter_set *set = m->counters[0].all[at].set;
    const struct mr_counter *counter = m->counters[0].all[at].counter;
    mr_metrics_family(text, set, counter);
    if (set->of_process) {
        mr_metrics_sample(text, &m->labels, m->counters[0].all[at].value);
        return;
    }
    for (uint32_t core = 0; core < m->node->core_count; core++) {
        const struct core_counters *c = &m->counters[core];
        const struct mr_labels labels = core_labels(m, core);
        const uint32_t place = place_of(c, counter, at + 1);
        if (place < c->count)
            mr_metrics_sample(text, &labels, c->all[place].value);
    }
}

static void write_counters(const struct ps_node_metrics *m, struct mr_metrics_text *text)
{
    for (uint32_t core = 0; core < m->node->core_count; core++) {
        m->counters[core].count = 0;
        dp_core_each_counter(m->node->cores[core]->dp_core, note_counter, &m->counters[core]);
    }
    for (uint32_t i = 0; i < m->counters[0].count; i++)
        write_counter(m, text, i);
}

/* ---- how long calls take ---- */

/* Of all cores; false: none has timed such a call. */
static bool sum_latency(const struct ps_node *node, uint32_t op, enum mr_latency_phase phase,
                        struct mr_histogram *sum)
{
    bool is_there = false;
    *sum = (struct mr_histogram){.count = 0};
    for (uint32_t core = 0; core < node->core_count; core++) {
        const struct mr_histogram *written = mr_endpoint_latency(node->cores[core]->ep, op, phase);
        struct mr_histogram copy;
        if (written == NULL)
            continue;
        mr_histogram_read(written, &copy);
        mr_histogram_merge(sum, &copy);
        is_there = true;
    }
    return is_there;
}

static void write_latencies(const struct ps_node_metrics *m, struct mr_metrics_text *text)
{
    static const char *const phases[] = {
        [MR_LATENCY_WAIT] = "wait", [MR_LATENCY_WORK] = "work", [MR_LATENCY_SEND] = "send"};
    mr_metrics_histogram_family(text, PS_LATENCY_METRIC, PS_LATENCY_METRIC_HELP);
    for (uint32_t op = 0; op < MR_OP_COUNT; op++) {
        for (uint32_t phase = 0; phase < MR_LATENCY_PHASES; phase++) {
            struct mr_labels labels = m->labels;
            struct mr_histogram sum;
            if (!sum_latency(m->node, op, (enum mr_latency_phase)phase, &sum))
                continue;
            mr_labels_add(&labels, "op", mr_op_name(op));
            mr_labels_add(&labels, "phase", phases[phase]);
            mr_metrics_histogram(text, &labels, &sum);
        }
    }
}

/* ---- all of it ---- */

void ps_node_metrics_write(struct ps_node_metrics *m, struct mr_metrics_text *text)
{
    ps_core_snapshots_ask(m->snapshots, ANSWER_MS);
    mr_metrics_process(text, &m->labels);
    write_node(m, text);
    write_cluster(m, text);
    write_cores(m, text);
    write_core_memory(m, text);
    write_counters(m, text);
    write_latencies(m, text);
    ps_metrics_tables(text, &m->labels, m->snapshots, m->node->core_count);
}

bool ps_node_metrics_ailment(const struct ps_node_metrics *m, char *out, size_t out_bytes)
{
    char why[PS_WHY_BYTES];
    const enum mr_node_state state = ps_node_state(m->node, why);
    if (state == MR_NODE_FAILED)
        (void)snprintf(out, out_bytes, "%s: %s", ps_node_state_name(state), why);
    else if (state == MR_NODE_RESTORING || state == MR_NODE_STOPPING)
        (void)snprintf(out, out_bytes, "%s", ps_node_state_name(state));
    else if (m->node->is_member && lease_left_us(m->node) == 0)
        (void)snprintf(out, out_bytes, "without a lease");
    else
        return false;
    return true;
}

static void write_of(void *app, struct mr_metrics_text *text)
{
    ps_node_metrics_write(app, text);
}

static bool ailment_of(void *app, char *out, size_t out_bytes)
{
    return ps_node_metrics_ailment(app, out, out_bytes);
}

static enum mr_status node_metrics_make(struct ps_node *node, struct ps_node_metrics **out)
{
    const struct ps_config *config = node->config;
    struct ps_node_metrics *m = calloc(1, sizeof(*m));
    if (m == NULL)
        return MR_NO_MEMORY;
    m->node = node;
    m->snapshots = ps_core_snapshots_create(node);
    m->counters = calloc(node->core_count, sizeof(*m->counters));
    mr_labels_add(&m->labels, "node", node->is_member ? config->cluster_node : config->node_name);
    if (node->is_member)
        mr_labels_add(&m->labels, "cluster", config->cluster_name);
    *out = m;
    return m->snapshots != NULL && m->counters != NULL ? MR_OK : MR_NO_MEMORY;
}

enum mr_status ps_node_metrics_start(struct ps_node *node, struct ps_node_metrics **out,
                                     char error[DP_ERROR_BYTES])
{
    char why[DP_ERROR_BYTES - 32];
    struct mr_metrics_server_options options = {
        .listen = node->config->metrics_listen, .write = write_of, .ailment = ailment_of};
    if (options.listen[0] == '\0')
        return MR_OK;
    if (node_metrics_make(node, out) != MR_OK) {
        snprintf(error, DP_ERROR_BYTES, "no memory for metrics");
        return MR_NO_MEMORY;
    }
    options.app = *out;
    enum mr_status status = mr_metrics_server_start(&options, &(*out)->server, why, sizeof(why));
    if (status != MR_OK)
        snprintf(error, DP_ERROR_BYTES, "metrics.listen = %s", why);
    else
        mr_log_info("metrics", "metrics at http://%s/metrics", options.listen);
    return status;
}

void ps_node_metrics_stop(struct ps_node_metrics *m)
{
    if (m == NULL)
        return;
    mr_metrics_server_stop(m->server);
    m->server = NULL;
}

void ps_node_metrics_destroy(struct ps_node_metrics *m)
{
    if (m == NULL)
        return;
    ps_core_snapshots_destroy(m->snapshots);
    free(m->counters);
    free(m);
}
