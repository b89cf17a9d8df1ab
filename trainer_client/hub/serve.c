#include "trainer_client/hub/hub.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "dataplane/wire/base/log.h"
#include "dataplane/wire/base/plural.h"
#include "trainer_client/hub/hub_metrics.h"
#include "trainer_client/hub/service.h"
#include "trainer_client/socket/socket_server.h"

#define SERVE_WAIT_MS        5
#define PROGRESS_INTERVAL_US 500000u

struct progress {
    uint64_t shown_us, samples;
};

static void show_progress(struct hub *hub, struct progress *last, uint64_t now_us)
{
    if (now_us - last->shown_us < PROGRESS_INTERVAL_US || !isatty(STDERR_FILENO))
        return;
    pthread_mutex_lock(&hub->lock);
    uint64_t applied = hub->plan.applied, batches = hub->batches, samples = hub->samples_read;
    uint32_t trainers =
        hub_trainers_alive(&hub->trainers, hub->plan_number, now_us, hub->config.trainer_timeout_us);
    bool running = hub->stage == HUB_RUNNING, away = hub->server_away;
    pthread_mutex_unlock(&hub->lock);
    double rate = (double)(samples - last->samples) * 1e6 / (double)(now_us - last->shown_us);
    if (running && last->shown_us != 0) {
        dprintf(STDERR_FILENO,
                "\r\033[Kmillrace-hub: %" PRIu64 " of %" PRIu64
                " batches applied, %.0f samples/s, %u trainer%s%s",
                applied, batches, rate, trainers, mr_plural(trainers),
                away ? ", waiting for the server" : "");
    }
    *last = (struct progress){now_us, samples};
}

static void answer(struct hub *hub, struct mrc_socket_server *server, struct hub_service *service,
                   struct hub_metrics *metrics)
{
    struct progress progress = {0};
    while (!atomic_load(&hub->stop)) {
        mrc_socket_server_run(server, SERVE_WAIT_MS);
        hub_service_poll(service, mrc_socket_server_endpoint(server));
        hub_metrics_note(metrics, mrc_socket_server_endpoint(server));
        show_progress(hub, &progress, mr_clock_us());
    }
}

enum mr_status hub_serve(struct hub *hub, char *error)
{
    struct hub_service *service = hub_service_create(hub);
    const struct mrc_socket_server_options options = {.listen = hub->config.listen,
                                                      .key_file = hub->config.key_file,
                                                      .incarnation = hub->incarnation,
                                                      .start_id = hub->start_id,
                                                      .on_request = hub_service_on_request,
                                                      .app = service};
    struct mrc_socket_server *server = NULL;
    struct hub_metrics *metrics = NULL;
    pthread_t feeder;
    enum mr_status status = MR_NO_MEMORY;
    snprintf(error, HUB_ERROR_BYTES, "no memory");
    if (service == NULL)
        goto out;
    status = mrc_socket_server_create(&options, &server, error, HUB_ERROR_BYTES);
    if (status != MR_OK)
        goto out;
    status = hub_metrics_start(hub, &metrics, error);
    if (status != MR_OK)
        goto out;
    atomic_store(&hub->metrics_port, hub_metrics_port(metrics));
    if (pthread_create(&feeder, NULL, hub_feeder_run, hub) != 0) {
        snprintf(error, HUB_ERROR_BYTES, "cannot start a thread");
        status = MR_INTERNAL;
        goto out;
    }
    atomic_store(&hub->port, mrc_socket_server_port(server));
    mr_log_with(MR_LOG_INFO, MR_LOG_FIELDS({"port", .number = atomic_load(&hub->port)}), "listening",
                "listening on %s (UDP port %u), feeding %s", hub->config.listen, atomic_load(&hub->port),
                hub->config.server);
    answer(hub, server, service, metrics);
    pthread_mutex_lock(&hub->lock);
    hub_nudge(hub);
    pthread_mutex_unlock(&hub->lock);
    pthread_join(feeder, NULL);
    status = hub->fatal;
    if (status != MR_OK)
        memcpy(error, hub->error, HUB_ERROR_BYTES);
    mr_log_info("stopped", "stopped");
out:
    hub_metrics_stop(metrics);
    mrc_socket_server_destroy(server);
    hub_service_destroy(service);
    return status;
}
