/* millrace-hub: reads samples, feeds their keys to the parameter server, hands labels and dense values to
 * trainers. */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include "trainer_client/hub/hub.h"
#include "trainer_client/hub/serve.h"

#define PORT_DEFAULT          "7800"
#define PREFETCH_DEFAULT      4u
#define TRAINER_TIMEOUT_S     15u
#define TRAINER_TIMEOUT_S_MAX 86400u

static const char usage[] =
    "usage: millrace-hub --server HOST[:PORT] [options]\n"
    "Reads samples, feeds their keys to the parameter server, and hands batches to trainers.\n"
    "\n"
    "  --server HOST[:PORT]   parameter server to feed (port 7700 when left out)\n"
    "  --listen HOST:PORT     where trainers reach this hub (default 0.0.0.0:7800)\n"
    "  --key-file FILE        pre-shared key, 64 hexadecimal digits (default $MILLRACE_KEY_FILE)\n"
    "  --prefetch N           batches fed ahead of the trainers, 1..64 (default 4). More hides the server's\n"
    "                         latency better; a looked-up batch is older by as many when it is trained on\n"
    "  --trainer-timeout S    seconds after which a batch that its trainer did not finish goes to another "
    "one\n"
    "                         (default 15)\n"
    "  --help, --version\n";

static atomic_bool *stop_flag; /* for the signal handler */

static void on_signal(int signal_number)
{
    atomic_store(stop_flag, true);
}

static uint32_t parse_number(const char *option, const char *text, uint32_t low, uint32_t high)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || value < low || value > high) {
        fprintf(stderr, "millrace-hub: --%s takes a number in %u..%u, not '%s'\n", option, low, high, text);
        exit(2);
    }
    return (uint32_t)value;
}

static struct hub_config parse_arguments(int argc, char **argv)
{
    static const struct option options[] = {
        {"listen", required_argument, NULL, 'l'},   {"server", required_argument, NULL, 's'},
        {"key-file", required_argument, NULL, 'k'}, {"prefetch", required_argument, NULL, 'p'},
        {"help", no_argument, NULL, 'h'},           {"trainer-timeout", required_argument, NULL, 't'},
        {"version", no_argument, NULL, 'v'},        {NULL, 0, NULL, 0},
    };
    struct hub_config config = {.listen = "0.0.0.0:" PORT_DEFAULT,
                                .prefetch = PREFETCH_DEFAULT,
                                .trainer_timeout_us = TRAINER_TIMEOUT_S * UINT64_C(1000000)};
    bool seen[sizeof(options) / sizeof(options[0])] = {false};
    int index = 0;
    for (int c; (c = getopt_long(argc, argv, "", options, &index)) != -1;) {
        if (c != '?' && seen[index]) {
            fprintf(stderr, "millrace-hub: given twice: --%s; see --help\n", options[index].name);
            exit(2);
        }
        seen[index] |= c != '?';
        switch (c) {
        case 'l':
            config.listen = optarg;
            break;
        case 's':
            config.server = optarg;
            break;
        case 'k':
            config.key_file = optarg;
            break;
        case 'p':
            config.prefetch = parse_number("prefetch", optarg, 1, HUB_PREFETCH_MAX);
            break;
        case 't':
            config.trainer_timeout_us =
                parse_number("trainer-timeout", optarg, 1, TRAINER_TIMEOUT_S_MAX) * UINT64_C(1000000);
            break;
        case 'h':
            fputs(usage, stdout);
            exit(0);
        case 'v':
            puts("millrace-hub " MR_VERSION);
            exit(0);
        default:
            fputs("millrace-hub: see --help\n", stderr);
            exit(2);
        }
    }
    if (optind < argc || config.server == NULL) {
        fprintf(stderr, "millrace-hub: %s%s; see --help\n",
                config.server == NULL ? "--server is missing" : "unknown argument ",
                config.server == NULL ? "" : argv[optind]);
        exit(2);
    }
    if (config.key_file == NULL) {
        config.key_file = getenv("MILLRACE_KEY_FILE");
    }
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
    if (!hub_init(&hub, &config)) {
        fputs("millrace-hub: no memory\n", stderr);
        return 1;
    }
    install_signals(&hub);
    enum mr_status status = hub_serve(&hub, error);
    if (status != MR_OK) {
        fprintf(stderr, "millrace-hub: %s\n", error);
    }
    hub_free(&hub);
    return status == MR_OK ? 0 : 1;
}
