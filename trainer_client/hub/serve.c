/* Serves trainers: the hub's socket, and the loop that answers them. */
#include "trainer_client/hub/hub.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "dataplane/udp/other_version.h"
#include "dataplane/wire/base/log.h"
#include "dataplane/wire/base/plural.h"
#include "dataplane/udp/address.h"
#include "dataplane/wire/session/key_file.h"
#include "trainer_client/hub/hub_metrics.h"
#include "trainer_client/hub/service.h"
#include "trainer_client/socket/socket_server.h"

#define PORT_DEFAULT         "7800"
#define SERVE_WAIT_MS        5
#define PROGRESS_INTERVAL_US 500000u

struct progress {
    uint64_t shown_us, samples;
};

/* How an input that is read once comes to its end. */
struct ending {
    uint64_t applied, trainers; /* as last seen */
    uint64_t since_us;          /* when they changed last; 0: it has not begun */
};

static void show_progress(struct hub *hub, struct progress *last, uint64_t now_us)
{
    if (now_us - last->shown_us < PROGRESS_INTERVAL_US || !isatty(STDERR_FILENO))
        return;
    pthread_mutex_lock(&hub->lock);
    uint64_t applied = hub_parts_count(&hub->parts).applied, batches = hub->batches,
             samples = hub->samples_read;
    uint32_t trainers =
        hub_trainers_alive(&hub->trainers, hub->plan_number, now_us, hub->config.trainer_timeout_us);
    bool running = hub->stage == HUB_RUNNING, away = hub->server_away;
    pthread_mutex_unlock(&hub->lock);
    double rate = (double)(samples - last->samples) * 1e6 / (double)(now_us - last->shown_us);
    char of[32] = "";
    if (batches > 0)
        snprintf(of, sizeof(of), "of %" PRIu64 " ", batches);
    if (running && last->shown_us != 0) {
        dprintf(STDERR_FILENO,
                "\r\033[Kmillrace-hub: %" PRIu64 " %sbatches applied, %.0f samples/s, %u trainer%s%s",
                applied, of, rate, trainers, mr_plural(trainers), away ? ", waiting for the server" : "");
    }
    *last = (struct progress){now_us, samples};
}

/* Whether the writer of standard input has closed it. */
static bool input_closed(void)
{
    struct pollfd input = {.fd = STDIN_FILENO};
    return poll(&input, 1, 0) > 0 && (input.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
}

/* Whether the hub may stop: what has come is applied and every trainer knows the end, or nothing has moved
 * for as long as a trainer may take. A plan over a file continues at the next start, and is not waited
 * for. */
static bool has_ended(struct hub *hub, struct ending *e, uint64_t now_us)
{
    pthread_mutex_lock(&hub->lock);
    const uint64_t applied = hub_parts_count(&hub->parts).applied;
    const uint64_t trainers =
        hub_trainers_in_plan(&hub->trainers, hub->plan_number, now_us, hub->config.trainer_timeout_us);
    const bool is_live = hub->is_live && hub->stage == HUB_RUNNING, at_end = hub_parts_at_end(&hub->parts);
    pthread_mutex_unlock(&hub->lock);
    if (e->since_us == 0 || e->applied != applied || e->trainers != trainers)
        *e = (struct ending){applied, trainers, now_us};
    if (!is_live || (trainers == 0 && at_end))
        return true;
    if (trainers > 0 && now_us - e->since_us < hub->config.trainer_timeout_us)
        return false;
    mr_log_warning("ended_early", "stopping with batches that are not applied: no trainer finishes them");
    return true;
}

static void stop_at_end(struct hub *hub, struct ending *e)
{
    if (hub->config.ends_with_input && !atomic_load(&hub->ending) && input_closed())
        atomic_store(&hub->ending, true);
    if (atomic_load(&hub->ending) && has_ended(hub, e, mr_clock_us()))
        atomic_store(&hub->stop, true);
}

#define OTHER_VERSION_US UINT64_C(60000000) /* between two lines: anybody can send such a HELLO */

/* Peers of another version of the protocol that have asked, as of the last line about them. */
struct other_versions {
    uint64_t count, next_us;
};

static void note_other_versions(struct other_versions *noted, const struct mr_endpoint *ep, uint64_t now_us)
{
    const struct mr_other_version *other = mr_endpoint_other_version(ep);
    char text[MR_OTHER_VERSION_TEXT_BYTES];
    if (other->count == noted->count || now_us < noted->next_us)
        return;
    mr_other_version_text(other, "hub", text);
    mr_log_warning("other_version", "%s (HELLOs of other versions since the last line: %llu)", text,
                   (unsigned long long)(other->count - noted->count));
    *noted = (struct other_versions){.count = other->count, .next_us = now_us + OTHER_VERSION_US};
}

static void serve_answer(struct hub *hub, struct mrc_socket_server *server, struct hub_service *service,
                         struct hub_metrics *metrics)
{
    struct progress progress = {0};
    struct ending ending = {0};
    struct other_versions noted = {0};
    while (!atomic_load(&hub->stop)) {
        mrc_socket_server_run(server, SERVE_WAIT_MS);
        hub_service_poll(service, mrc_socket_server_endpoint(server));
        hub_metrics_note(metrics, mrc_socket_server_endpoint(server));
        note_other_versions(&noted, mrc_socket_server_endpoint(server), mr_clock_us());
        show_progress(hub, &progress, mr_clock_us());
        stop_at_end(hub, &ending);
    }
}

/* Where trainers reach it: without a key other machines do so only if the command line says it. NULL, with
 * `error`: they must not. */
static const char *listen_address(const struct hub_config *config, char *error)
{
    struct mr_address at;
    const bool is_open = config->key_file != NULL || config->without_key;
    if (config->listen == NULL)
        return is_open ? "0.0.0.0:" PORT_DEFAULT : "127.0.0.1:" PORT_DEFAULT;
    if (is_open || mr_address_resolve(config->listen, true, &at, error, HUB_ERROR_BYTES) != MR_OK ||
        mr_address_is_loopback(&at))
        return config->listen; /* one that is wrong is refused when it is used */
    snprintf(error, HUB_ERROR_BYTES,
             "--listen %.200s needs a key, since everybody who reaches the hub could use it: name one with "
             "--key-file "
             "FILE, or say --without-key",
             config->listen);
    return NULL;
}

enum mr_status hub_serve(struct hub *hub, char *error)
{
    const char *listen = listen_address(&hub->config, error);
    if (listen == NULL)
        return MR_INVALID_ARGUMENT;
    if (hub->config.key_file != NULL && mr_key_file_is_exposed(hub->config.key_file))
        mr_log_warning("key_file_exposed",
                       "key file %s can be read by other users of this machine, or changed: chmod 600 %s",
                       hub->config.key_file, hub->config.key_file);
    if (hub->config.key_file == NULL)
        mr_log_warning("no_key", "no key: everybody who reaches %s may use this hub (set --key-file)",
                       listen);
    struct hub_service *service = hub_service_create(hub);
    const struct mrc_socket_server_options options = {.listen = listen,
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
                "listening on %s (UDP port %u), feeding %s", listen, atomic_load(&hub->port),
                hub->config.server);
    serve_answer(hub, server, service, metrics);
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
