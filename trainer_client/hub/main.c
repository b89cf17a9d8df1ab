/* millrace-hub: reads samples, feeds their keys to the parameter server, hands labels and dense values to
 * trainers. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "dataplane/wire/base/cli.h"
#include "dataplane/wire/base/log.h"
#include "trainer_client/hub/check_format.h"
#include "trainer_client/hub/hub.h"
#include "trainer_client/hub/samples/sample_file.h"

#define PROGRAM               "millrace-hub"
#define PREFETCH_DEFAULT      4u
#define SAMPLE_MEMORY_MIB     256u
#define SAMPLE_MEMORY_MIB_MAX (1u << 20)
#define TRAINER_TIMEOUT_S     15u
#define TRAINER_TIMEOUT_S_MAX 86400u
#define LOG_RATE_PER_S        50u
#define OWN_FORMATS_MAX       32u

static struct hub *signalled; /* for the signal handler */

/* The second one does not wait for what is in flight. */
static void on_signal(int signal_number)
{
    if (atomic_exchange(&signalled->ending, true))
        atomic_store(&signalled->stop, true);
}

struct log_arguments {
    const char *level, *format;
};

static void configure_log(const struct log_arguments *arguments)
{
    char node[256] = "";
    (void)gethostname(node, sizeof(node) - 1);
    struct mr_log_options options = {.program = PROGRAM,
                                     .node = node,
                                     .level = MR_LOG_INFO,
                                     .rate_per_s = LOG_RATE_PER_S,
                                     .has_progress = true};
    if (!mr_log_level_parse(arguments->level, &options.level))
        cli_refuse(PROGRAM, "--log-level: error, warning, info or debug");
    if (!mr_log_format_parse(arguments->format, &options.format))
        cli_refuse(PROGRAM, "--log-format: text, logfmt or json");
    (void)mr_log_configure(&options, NULL); /* it asks for nothing that may be missing */
}

/* As programs say it on a terminal, or as a line of the log. Returns the exit code. */
static int hub_fail(const char *why)
{
    if (mr_log_is_text())
        return cli_fail(PROGRAM, "%s", why);
    mr_log_error("ended", "%s", why);
    return CLI_EXIT_FAILED;
}

/* Those that are built in, and those of files. Ends the program where one cannot be read. */
static struct hub_formats *read_formats(const struct cli_list *files)
{
    char error[HUB_FORMAT_ERROR_BYTES];
    struct hub_formats *formats = hub_formats_create();
    if (formats == NULL)
        exit(hub_fail("no memory"));
    for (uint32_t i = 0; i < files->count; i++)
        if (hub_formats_add(formats, files->items[i], error) != MR_OK)
            exit(hub_fail(error));
    return formats;
}

/* --check-format: `wanted` is the name of a format or a file. Ends the program. */
static _Noreturn void check_format(struct hub_formats *formats, const char *wanted, const char *data)
{
    char error[HUB_ERROR_BYTES];
    const struct hub_format *format = hub_formats_find(formats, wanted);
    if (format == NULL) {
        if (hub_formats_add(formats, wanted, error) != MR_OK)
            exit(hub_fail(error));
        format = formats->all[formats->count - 1];
    }
    if (hub_check_format(formats, format, data, stdout, error) != MR_OK)
        exit(hub_fail(error));
    exit(fflush(stdout) == 0 ? 0 : hub_fail("cannot write to standard output"));
}

static const struct hub_allowed *allow_directories(const struct cli_list *directories)
{
    char error[HUB_ERROR_BYTES];
    const struct hub_allowed *allowed = hub_allowed_create(directories->items, directories->count, error);
    if (allowed == NULL)
        exit(hub_fail(error));
    return allowed;
}

static struct hub_config parse_arguments(int argc, char **argv)
{
    struct log_arguments log = {.level = "info", .format = "text"};
    struct hub_config config = {.prefetch = PREFETCH_DEFAULT};
    const char *format_files[OWN_FORMATS_MAX], *directories[HUB_ALLOWED_MAX];
    struct cli_list allowed = {.items = directories, .items_max = HUB_ALLOWED_MAX};
    struct cli_list own_formats = {.items = format_files, .items_max = OWN_FORMATS_MAX};
    const char *checked_format = NULL, *data = NULL;
    uint32_t trainer_timeout_s = TRAINER_TIMEOUT_S, sample_memory_mib = SAMPLE_MEMORY_MIB;
    const struct cli_option options[] = {
        {"server", CLI_STRING, &config.server, "HOST[:PORT],...",
         "parameter server to feed; default port 7700. Of a cluster: some or all of its nodes"},
        {"listen", CLI_STRING, &config.listen, "HOST:PORT",
         "address at which trainers reach this hub; default: port 7800, without a key only from this "
         "machine"},
        {"allow", CLI_LIST, &allowed, "DIR",
         "trainers may name files below DIR; without it they may name none. May be given several times"},
        {"key-file", CLI_STRING, &config.key_file, "FILE",
         "file with the pre-shared key, 64 hex digits; default: $MILLRACE_KEY_FILE, else no key"},
        {"without-key", CLI_FLAG, &config.without_key, NULL,
         "serve other machines without a key, too: everybody who reaches the hub may use it"},
        {"format", CLI_LIST, &own_formats, "FILE",
         "describes a format of samples (docs/data-formats.md), beside libsvm, criteo and flights, which\n"
         "are built in; trainers ask for it by the name that it has there. May be given several times"},
        {"check-format", CLI_STRING, &checked_format, "NAME|FILE",
         "check a format, show what it makes of DATA, and exit; DATA is a path as in trainers' plans"},
        {"prefetch", CLI_U32_IN(1, HUB_PREFETCH_MAX), &config.prefetch, "N",
         "batches that are fed ahead of the trainers, 1 to 64; default 4. More hide the server's\n"
         "latency better, but the rows of a batch are that many batches old when it is trained on"},
        {"sample-memory", CLI_U32_IN(0, SAMPLE_MEMORY_MIB_MAX), &sample_memory_mib, "MIB",
         "for samples that stay in memory; others are read from the file in each epoch; default 256"},
        {"follow", CLI_FLAG, &config.follow, NULL,
         "read sample files once, in their order, and go on as they grow, until they are renamed "
         "or\nremoved"},
        {"repeatable", CLI_FLAG, &config.is_repeated, NULL,
         "standard input (a plan's path is -) is the same at each start: its plan continues after what\n"
         "was applied, instead of counting all as new"},
        {"kafka", CLI_STRING, &config.kafka_brokers, "HOST:PORT,...",
         "brokers of the Kafka cluster that plans with a path kafka:TOPIC read; some of them suffice"},
        {"kafka-config", CLI_STRING, &config.kafka_config, "FILE",
         "properties of librdkafka, key=value in each line: TLS, SASL and others"},
        {"with-stdin", CLI_FLAG, &config.ends_with_input, NULL,
         "stop once whoever writes standard input has closed it, as by SIGTERM"},
        {"metrics", CLI_STRING, &config.metrics, "ADDRESS:PORT",
         "answer GET /metrics and GET /healthz at this TCP address, for Prometheus; default: nowhere"},
        {"trace", CLI_STRING, &config.trace, "FILE",
         "write a timeline of the hub's work when it stops: trace events in JSON"},
        {"log-level", CLI_STRING, &log.level, "LEVEL",
         "log events of this level and of the more important ones: error, warning, info or debug;\ndefault "
         "info"},
        {"log-format", CLI_STRING, &log.format, "FORMAT",
         "text, logfmt or json: a sentence, key=value, or an object on each line; default text"},
        {"trainer-timeout", CLI_U32_IN(1, TRAINER_TIMEOUT_S_MAX), &trainer_timeout_s, "S",
         "seconds after which another trainer gets a batch that its trainer did not finish; default 15"},
    };
    const struct cli_usage usage = {
        .program = PROGRAM,
        .synopsis = "--server HOST[:PORT],... [options] | --check-format NAME|FILE [DATA]",
        .words_max = 1,
        .summary =
            "Reads samples, feeds their keys to the parameter server, and hands batches to trainers.\n\n"
            "  millrace-hub --server 10.0.0.1 --key-file /etc/millrace/trainer.key --allow /data\n"
            "  millrace-hub --check-format clicks.ini clicks.csv",
        CLI_OPTIONS(options),
        .has_version = true,
    };
    (void)cli_parse(&usage, argc, argv, &data);
    configure_log(&log);
    struct hub_formats *formats = read_formats(&own_formats);
    if (checked_format != NULL)
        check_format(formats, checked_format, data);
    if (data != NULL)
        cli_refuse(PROGRAM, "%s: data are named by trainers, or after --check-format", data);
    config.formats = formats;
    if (config.server == NULL)
        cli_refuse(PROGRAM, "--server is missing");
    if (config.key_file == NULL)
        config.key_file = getenv("MILLRACE_KEY_FILE");
    if (config.key_file != NULL && config.key_file[0] == '\0') /* as for clients */
        config.key_file = NULL;
    config.allowed = allow_directories(&allowed);
    config.sample_memory_bytes = (size_t)sample_memory_mib << 20;
    config.trainer_timeout_us = trainer_timeout_s * UINT64_C(1000000);
    return config;
}

static void install_signals(struct hub *hub)
{
    signalled = hub;
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGXFSZ, SIG_IGN); /* a write beyond the limit (ulimit -f) fails, as on a full disk */
}

static int hub_run(struct hub *hub, const struct hub_config *config)
{
    char error[HUB_ERROR_BYTES];
    if (!hub_init(hub, config))
        return hub_fail("no memory");
    if (!mr_trace_open(config->trace, PROGRAM, &hub->trace, error, sizeof(error)))
        return hub_fail(error);
    mr_trace_name(hub->trace, HUB_TRACK_SERVING, "serving");
    mr_trace_name(hub->trace, HUB_TRACK_FEEDING, "feeding");
    install_signals(hub);
    enum mr_status status = hub_serve(hub, error);
    if (status != MR_OK)
        (void)hub_fail(error);
    bool written = mr_trace_close(hub->trace, error, sizeof(error));
    if (!written)
        (void)hub_fail(error);
    hub_free(hub);
    return status == MR_OK && written ? 0 : CLI_EXIT_FAILED;
}

int main(int argc, char **argv)
{
    static struct hub hub;
    struct hub_config config = parse_arguments(argc, argv);
    (void)mr_log_start(); /* without its thread those who log write their lines themselves */
    const int code = hub_run(&hub, &config);
    mr_log_stop();
    return code;
}
