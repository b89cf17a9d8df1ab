/* millrace-hub: reads samples, feeds their keys to the parameter server, hands labels and dense values to
 * trainers. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include "dataplane/wire/base/cli.h"
#include "trainer_client/hub/hub.h"

#define PROGRAM               "millrace-hub"
#define PORT_DEFAULT          "7800"
#define PREFETCH_DEFAULT      4u
#define SAMPLE_MEMORY_MIB     256u
#define SAMPLE_MEMORY_MIB_MAX (1u << 20)
#define TRAINER_TIMEOUT_S     15u
#define TRAINER_TIMEOUT_S_MAX 86400u

static atomic_bool *stop_flag; /* for the signal handler */

static void on_signal(int signal_number)
{
    atomic_store(stop_flag, true);
}

static struct hub_config parse_arguments(int argc, char **argv)
{
    struct hub_config config = {.listen = "0.0.0.0:" PORT_DEFAULT, .prefetch = PREFETCH_DEFAULT};
    uint32_t trainer_timeout_s = TRAINER_TIMEOUT_S, sample_memory_mib = SAMPLE_MEMORY_MIB;
    const struct cli_option options[] = {
        {"server", CLI_STRING, &config.server, "HOST[:PORT],...",
         "parameter server to feed; default port 7700. Of a cluster: some or all of its nodes"},
        {"listen", CLI_STRING, &config.listen, "HOST:PORT",
         "address at which trainers reach this hub; default 0.0.0.0:" PORT_DEFAULT},
        {"key-file", CLI_STRING, &config.key_file, "FILE",
         "file with the pre-shared key, 64 hex digits; default: $MILLRACE_KEY_FILE, else no key"},
        {"prefetch", CLI_U32_IN(1, HUB_PREFETCH_MAX), &config.prefetch, "N",
         "batches that are fed ahead of the trainers, 1 to 64; default 4. More hide the server's\n"
         "latency better, but the rows of a batch are that many batches old when it is trained on"},
        {"sample-memory", CLI_U32_IN(0, SAMPLE_MEMORY_MIB_MAX), &sample_memory_mib, "MIB",
         "for samples that stay in memory; others are read from the file in each epoch; default 256"},
        {"metrics", CLI_STRING, &config.metrics, "ADDRESS:PORT",
         "answer GET /metrics and GET /healthz at this TCP address, for Prometheus; default: nowhere"},
        {"trace", CLI_STRING, &config.trace, "FILE",
         "write a timeline of the hub's work when it stops: trace events in JSON"},
        {"trainer-timeout", CLI_U32_IN(1, TRAINER_TIMEOUT_S_MAX), &trainer_timeout_s, "S",
         "seconds after which another trainer gets a batch that its trainer did not finish; default 15"},
    };
    const struct cli_usage usage = {
        .program = PROGRAM,
        .synopsis = "--server HOST[:PORT],... [options]",
        .summary =
            "Reads samples, feeds their keys to the parameter server, and hands batches to trainers.\n\n"
            "  millrace-hub --server 10.0.0.1 --listen 10.0.0.2:7800",
        CLI_OPTIONS(options),
        .has_version = true,
    };
    (void)cli_parse(&usage, argc, argv, NULL);
    if (config.server == NULL)
        cli_refuse(PROGRAM, "--server is missing");
    if (config.key_file == NULL)
        config.key_file = getenv("MILLRACE_KEY_FILE");
    config.sample_memory_bytes = (size_t)sample_memory_mib << 20;
    config.trainer_timeout_us = trainer_timeout_s * UINT64_C(1000000);
    return config;
}

static void install_signals(struct hub *hub)
{
    stop_flag = &hub->stop;
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

int main(int argc, char **argv)
{
    static struct hub hub;
    char error[HUB_ERROR_BYTES];
    struct hub_config config = parse_arguments(argc, argv);
    if (!hub_init(&hub, &config))
        return cli_fail(PROGRAM, "no memory");
    if (!mr_trace_open(config.trace, PROGRAM, &hub.trace, error, sizeof(error)))
        return cli_fail(PROGRAM, "%s", error);
    mr_trace_name(hub.trace, HUB_TRACK_SERVING, "serving");
    mr_trace_name(hub.trace, HUB_TRACK_FEEDING, "feeding");
    install_signals(&hub);
    enum mr_status status = hub_serve(&hub, error);
    if (status != MR_OK)
        (void)cli_fail(PROGRAM, "%s", error);
    bool written = mr_trace_close(hub.trace, error, sizeof(error));
    if (!written)
        (void)cli_fail(PROGRAM, "%s", error);
    hub_free(&hub);
    return status == MR_OK && written ? 0 : CLI_EXIT_FAILED;
}
