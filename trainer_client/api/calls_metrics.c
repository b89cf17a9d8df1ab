/* A client's own metrics in a file. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "dataplane/metrics/metrics_file.h"
#include "dataplane/wire/format/wire_counters.h"
#include "millrace_observe.h"
#include "trainer_client/api/calls.h"

#define LATENCY_METRIC "millrace_client_call_seconds"
#define WIRE_COUNTERS  (sizeof(struct mr_wire_counters) / sizeof(uint64_t))

/* X(name, kind, unit, help), see dataplane/wire/base/counter_set.h. */
#define CLIENT_METRIC_LIST(X)                                                                                \
    X(links, GAUGE, NONE, "cores of nodes that the client has a link to")                                    \
    X(calls_in_flight, GAUGE, NONE, "calls sent and not answered yet")                                       \
    X(replay_kept, GAUGE, NONE, "pushes kept for a server that restarts, counted for each core")             \
    X(replay_kept_bytes, GAUGE, BYTES, "bytes of the pushes kept for a server that restarts")                \
    X(replayed, COUNTER, NONE, "pushes sent again to a server that has restarted")                           \
    X(replay_given_up, COUNTER, NONE,                                                                        \
      "pushes dropped for lack of room before they were known to be on disk")                                \
    X(replay_dropped, COUNTER, NONE, "pushes that a restarted server refused")

static const struct mr_counter client_metrics[] = {CLIENT_METRIC_LIST(MR_COUNTER_DESCRIPTION)};
static const struct mr_counter_set client_set = {
    .name = "client", .help = "a client", MR_COUNTERS(client_metrics), .of_process = true};

struct client_values {
    CLIENT_METRIC_LIST(MR_COUNTER_FIELD)
};

/* What all links have counted. */
static void sum_links(struct mr_client *client, uint64_t sums[WIRE_COUNTERS], struct client_values *values)
{
    pthread_mutex_lock(&client->lock);
    values->links = client->link_count;
    values->calls_in_flight = mrc_client_calls_pending(client);
    for (uint32_t i = 0; i < client->link_count; i++) {
        const uint64_t *counters = (const uint64_t *)mr_endpoint_counters(client->links[i]->ep);
        for (size_t j = 0; j < WIRE_COUNTERS; j++)
            sums[j] += counters[j];
    }
    pthread_mutex_unlock(&client->lock);
}

struct latency_writer {
    struct mr_metrics_text *text;
    const struct mr_labels *labels;
};

static void write_latency(void *arg, const char *op, const struct mr_histogram *histogram)
{
    const struct latency_writer *writer = arg;
    struct mr_labels labels = *writer->labels;
    mr_labels_add(&labels, "op", op);
    mr_metrics_histogram(writer->text, &labels, histogram);
}

static enum mr_status write_text(struct mr_client *client, const struct mr_labels *labels,
                                 struct mr_metrics_text *text)
{
    struct mr_counter_set wire_set = mr_wire_counter_set;
    struct client_values values = {0};
    uint64_t sums[WIRE_COUNTERS] = {0};
    struct mr_replay_info replay;
    wire_set.name = "client_wire"; /* sums over nodes must not have clients in them */
    mr_client_replay_info(client, &replay);
    sum_links(client, sums, &values);
    values.replay_kept = replay.kept;
    values.replay_kept_bytes = replay.kept_bytes;
    values.replayed = replay.replayed;
    values.replay_given_up = replay.given_up;
    values.replay_dropped = replay.dropped;
    mr_metrics_set(text, labels, &client_set, 0, (const uint64_t *)&values);
    mr_metrics_set(text, labels, &wire_set, 0, sums);
    mr_metrics_histogram_family(text, LATENCY_METRIC, "time from a call to the last answer to it");
    enum mr_status status =
        mr_client_latencies(client, write_latency, &(struct latency_writer){text, labels});
    return status == MR_OK && !mr_metrics_end(text) ? MR_NO_MEMORY : status;
}

static struct mr_labels labels_of(const char *name)
{
    struct mr_labels labels = {.bytes = 0};
    char own[64];
    snprintf(own, sizeof(own), "%.40s-%d", program_invocation_short_name, (int)getpid());
    mr_labels_add(&labels, "client", name != NULL ? name : own);
    return labels;
}

enum mr_status mr_client_write_metrics(struct mr_client *client, const char *path, const char *name)
{
    struct mr_metrics_text text = {.open_metrics = false};
    if (client == NULL || path == NULL)
        return mrc_bad_argument("mr_client_write_metrics",
                                client == NULL ? "client is NULL" : "path is NULL");
    if (mrc_is_inherited(client))
        return mrc_check_process(client, "mr_client_write_metrics");
    const struct mr_labels labels = labels_of(name);
    enum mr_status status = write_text(client, &labels, &text);
    if (status == MR_NO_MEMORY)
        status = mrc_error(MR_NO_MEMORY, "mr_client_write_metrics: no memory");
    else if (status == MR_OK && !mr_metrics_write_file(&text, path))
        status = mrc_error(MR_IO_ERROR, "mr_client_write_metrics: %s: %s", path, strerror(errno));
    free(text.data);
    return status;
}
