#include "trainer_client/hub/hub_metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include "dataplane/metrics/metrics_process.h"
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/format/wire_counters.h"
#include "trainer_client/hub/kafka/kafka_path.h"

#define WIRE_COUNTERS (sizeof(struct mr_wire_counters) / sizeof(uint64_t))

/* X(name, kind, unit, help), see dataplane/wire/base/counter_set.h. Counters begin again with each plan. */
#define HUB_METRIC_LIST(X)                                                                                   \
    X(plan_batches, GAUGE, NONE, "batches of the plan; 0 while their number is not known")                   \
    X(plan_applied, GAUGE, NONE, "batches of the plan that the server has applied")                          \
    X(batches_ahead, GAUGE, NONE, "batches fed, or being fed, that no trainer has yet")                      \
    X(batches_fed, COUNTER, NONE, "batches of the plan fed to the server")                                   \
    X(batches_handed_out, COUNTER, NONE, "batches of the plan given to trainers")                            \
    X(batches_handed_again, COUNTER, NONE, "batches of the plan given to a trainer more than once")          \
    X(batches_expired, COUNTER, NONE, "batches of the plan that a trainer did not finish in time")           \
    X(samples_read, COUNTER, NONE, "samples read")                                                           \
    X(trainers, GAUGE, NONE, "trainers that are alive")                                                      \
    X(server_away, GAUGE, NONE, "1: the hub waits for the server")

static const struct mr_counter hub_counters[] = {HUB_METRIC_LIST(MR_COUNTER_DESCRIPTION)};
static const struct mr_counter_set hub_set = {
    .name = "hub", .help = "the hub", MR_COUNTERS(hub_counters), .of_process = true};

struct hub_values {
    HUB_METRIC_LIST(MR_COUNTER_FIELD)
};

struct hub_metrics {
    struct hub *hub;
    struct mr_metrics_server *server;
    uint64_t wire[WIRE_COUNTERS]; /* of the endpoint that trainers call; its thread writes */
};

static struct hub_values values_of(struct hub *hub, enum hub_stage *stage)
{
    const uint64_t now_us = mr_clock_us();
    pthread_mutex_lock(&hub->lock);
    const struct hub_parts_counts counts = hub_parts_count(&hub->parts);
    const struct hub_values values = {.plan_batches = hub->batches,
                                      .plan_applied = counts.applied,
                                      .batches_ahead = counts.ahead,
                                      .batches_fed = counts.fed,
                                      .batches_handed_out = counts.handed_out,
                                      .batches_handed_again = counts.handed_again,
                                      .batches_expired = counts.expired,
                                      .samples_read = hub->samples_read,
                                      .trainers = hub_trainers_alive(&hub->trainers, hub->plan_number, now_us,
                                                                     hub->config.trainer_timeout_us),
                                      .server_away = hub->server_away};
    *stage = hub->stage;
    pthread_mutex_unlock(&hub->lock);
    return values;
}

static void write_stage(struct mr_metrics_text *text, enum hub_stage now)
{
    static const char *const names[] = {
        [HUB_IDLE] = "idle", [HUB_OPENING] = "opening", [HUB_RUNNING] = "running", [HUB_FAILED] = "failed"};
    mr_metrics_family_named(text, "millrace_hub_stage", MR_GAUGE, MR_UNIT_NONE,
                            "1 for the stage that the hub's plan is in, 0 for the others");
    for (uint32_t stage = HUB_IDLE; stage <= HUB_FAILED; stage++) {
        struct mr_labels labels = {.bytes = 0};
        mr_labels_add(&labels, "stage", names[stage]);
        mr_metrics_sample(text, &labels, stage == now);
    }
}

/* Of a plan over a topic. */
static void write_lag(struct mr_metrics_text *text, struct hub *hub)
{
    pthread_mutex_lock(&hub->lock);
    const bool is_topic = hub->stage == HUB_RUNNING && hub_kafka_path_is(hub->request.path);
    if (is_topic)
        mr_metrics_family_named(text, "millrace_hub_kafka_lag", MR_GAUGE, MR_UNIT_NONE,
                                "messages of the partition that the server has not applied yet");
    for (uint32_t i = 0; is_topic && i < hub->parts.count; i++) {
        struct mr_labels labels = {.bytes = 0};
        mr_labels_add_number(&labels, "partition", i);
        mr_metrics_sample(text, &labels, hub->parts.all[i].lag);
    }
    pthread_mutex_unlock(&hub->lock);
}

static void write_metrics(void *app, struct mr_metrics_text *text)
{
    const struct hub_metrics *m = app;
    const struct mr_labels none = {.bytes = 0};
    struct mr_counter_set wire_set = mr_wire_counter_set;
    enum hub_stage stage;
    const struct hub_values values = values_of(m->hub, &stage);
    wire_set.name = "hub_wire"; /* sums over nodes must not have the hub in them */
    mr_metrics_process(text, &none);
    write_stage(text, stage);
    write_lag(text, m->hub);
    mr_metrics_set(text, NULL, &hub_set, 0, (const uint64_t *)&values);
    mr_metrics_set(text, NULL, &wire_set, 0, m->wire);
}

static bool ailment_of(void *app, char *out, size_t out_bytes)
{
    const struct hub_metrics *m = app;
    enum hub_stage stage;
    const struct hub_values values = values_of(m->hub, &stage);
    const bool has_failed = stage == HUB_FAILED;
    if (!has_failed && values.server_away == 0)
        return false;
    (void)snprintf(out, out_bytes, "%s", has_failed ? "the plan has failed" : "waiting for the server");
    return true;
}

void hub_metrics_note(struct hub_metrics *m, const struct mr_endpoint *ep)
{
    if (m == NULL)
        return;
    const uint64_t *counters = (const uint64_t *)mr_endpoint_counters(ep);
    for (size_t i = 0; i < WIRE_COUNTERS; i++)
        __atomic_store_n(&m->wire[i], counters[i], __ATOMIC_RELAXED);
}

enum mr_status hub_metrics_start(struct hub *hub, struct hub_metrics **out, char *error)
{
    *out = NULL;
    if (hub->config.metrics == NULL)
        return MR_OK;
    struct hub_metrics *m = calloc(1, sizeof(*m));
    if (m == NULL) {
        snprintf(error, HUB_ERROR_BYTES, "no memory");
        return MR_NO_MEMORY;
    }
    m->hub = hub;
    const struct mr_metrics_server_options options = {
        .listen = hub->config.metrics, .app = m, .write = write_metrics, .ailment = ailment_of};
    char why[256];
    enum mr_status status = mr_metrics_server_start(&options, &m->server, why, sizeof(why));
    if (status != MR_OK) {
        snprintf(error, HUB_ERROR_BYTES, "--metrics %s", why);
        free(m);
        return status;
    }
    *out = m;
    return MR_OK;
}

uint16_t hub_metrics_port(const struct hub_metrics *m)
{
    return m == NULL ? 0 : mr_metrics_server_port(m->server);
}

void hub_metrics_stop(struct hub_metrics *m)
{
    if (m == NULL)
        return;
    mr_metrics_server_stop(m->server);
    free(m);
}
