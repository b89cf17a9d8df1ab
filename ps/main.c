/* millraced: a Millrace node. Reads the command line and the configuration, serves until it is told to
 * stop. */
#include <assert.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "ps/base/log.h"
#include "ps/config/config.h"
#include "ps/config/config_rules.h"
#include "ps/server/keys.h"
#include "ps/server/server.h"

#define SETS_MAX   64
#define EXIT_USAGE 2

#define PORT_LOOK_NS 250000000L /* between two looks at the port: a loss is known within a second */

static const char usage[] =
    "usage: millraced --config FILE [--set SECTION.KEY=VALUE]... [--restore latest|ID|none]\n"
    "       millraced --config FILE [--set SECTION.KEY=VALUE]... --serve PATH\n"
    "       millraced --check-config FILE [--set SECTION.KEY=VALUE]...\n"
    "       millraced --print-config\n"
    "\n"
    "A node of the Millrace parameter server.\n"
    "\n"
    "  --config FILE        serve with this configuration\n"
    "  --set S.KEY=VALUE    one key, in place of the file's; of one key the last counts\n"
    "  --restore WHAT       what to load at start, in place of checkpoint.restore\n"
    "  --serve PATH         serve a checkpoint (DIR/ckpt-7), or the newest of DIR, read only: nothing is\n"
    "                       learnt or saved\n"
    "  --check-config FILE  say whether a configuration and its key files are good, and stop\n"
    "  --print-config       print every key with its help and default, and stop; port.device is to be filled "
    "in\n"
    "  --version            print the version, and stop\n"
    "  --help               print this, and stop\n"
    "\n"
    "SIGTERM and SIGINT stop it; SIGHUP has it read the key files again. It prints a line\n"
    "\"millraced: ready ...\" once it serves.\n";

struct arguments {
    const char *config_path;
    bool check_only;
    const char *restore, *serve;
    const char *sets[SETS_MAX];
    uint32_t set_count;
};

enum {
    OPTION_CONFIG = 256,
    OPTION_SET,
    OPTION_RESTORE,
    OPTION_SERVE,
    OPTION_CHECK,
    OPTION_PRINT,
    OPTION_VERSION,
    OPTION_HELP
};

static const struct option options[] = {
    {"config", required_argument, NULL, OPTION_CONFIG},
    {"set", required_argument, NULL, OPTION_SET},
    {"restore", required_argument, NULL, OPTION_RESTORE},
    {"serve", required_argument, NULL, OPTION_SERVE},
    {"check-config", required_argument, NULL, OPTION_CHECK},
    {"print-config", no_argument, NULL, OPTION_PRINT},
    {"version", no_argument, NULL, OPTION_VERSION},
    {"help", no_argument, NULL, OPTION_HELP},
    {NULL, 0, NULL, 0},
};

static _Noreturn void refuse_usage(const char *what)
{
    fprintf(stderr, "millraced: %s; see millraced --help\n", what);
    exit(EXIT_USAGE);
}

static void read_option(int option, struct arguments *arguments)
{
    switch (option) {
    case OPTION_CHECK:
    case OPTION_CONFIG:
        if (arguments->config_path != NULL) {
            refuse_usage("one configuration file, please");
        }
        arguments->config_path = optarg;
        arguments->check_only = option == OPTION_CHECK;
        return;
    case OPTION_SET:
        if (arguments->set_count == SETS_MAX) {
            refuse_usage("too many --set");
        }
        arguments->sets[arguments->set_count++] = optarg;
        return;
    case OPTION_RESTORE:
        if (arguments->restore != NULL) {
            refuse_usage("given twice: --restore");
        }
        if (ps_rule_restore(optarg) != NULL) {
            refuse_usage("--restore: latest, none, or the number of a checkpoint");
        }
        arguments->restore = optarg;
        return;
    case OPTION_SERVE:
        if (arguments->serve != NULL) {
            refuse_usage("given twice: --serve");
        }
        if (optarg[0] == '\0' || strlen(optarg) >= sizeof(((struct ps_config *)NULL)->checkpoint_serve)) {
            refuse_usage("--serve: the path of a checkpoint, DIR/ckpt-7, or of a directory of them");
        }
        arguments->serve = optarg;
        return;
    case OPTION_PRINT:
        ps_config_print(stdout);
        exit(EXIT_SUCCESS);
    case OPTION_VERSION:
        puts("millraced " MR_VERSION);
        exit(EXIT_SUCCESS);
    case OPTION_HELP:
        fputs(usage, stdout);
        exit(EXIT_SUCCESS);
    default:
        exit(EXIT_USAGE); /* getopt has said why */
    }
}

static void read_arguments(int argc, char **argv, struct arguments *arguments)
{
    for (int option = getopt_long(argc, argv, "", options, NULL); option != -1;
         option = getopt_long(argc, argv, "", options, NULL)) {
        read_option(option, arguments);
    }
    if (optind < argc) {
        fprintf(stderr, "millraced: unexpected \"%s\"; see millraced --help\n", argv[optind]);
        exit(EXIT_USAGE);
    }
    if (arguments->config_path == NULL) {
        refuse_usage("--config FILE is missing");
    }
    if (arguments->serve != NULL && arguments->restore != NULL) {
        refuse_usage("--restore and --serve: one of them, please");
    }
}

static enum mr_status read_config(const struct arguments *arguments, struct ps_config *config, char *error)
{
    ps_config_default(config);
    enum mr_status status = ps_config_load(arguments->config_path, config, error);
    for (uint32_t i = 0; i < arguments->set_count && status == MR_OK; i++) {
        status = ps_config_set(config, arguments->sets[i], error);
    }
    if (status == MR_OK && arguments->restore != NULL) {
        snprintf(config->checkpoint_restore, sizeof(config->checkpoint_restore), "%s", arguments->restore);
    }
    if (status == MR_OK && arguments->serve != NULL) {
        snprintf(config->checkpoint_serve, sizeof(config->checkpoint_serve), "%s", arguments->serve);
    }
    if (status == MR_OK) {
        ps_config_settle(config);
        status = ps_config_check(config, error);
    }
    return status;
}

static void reload_keys(struct ps_server *server)
{
    char error[DP_ERROR_BYTES];
    uint32_t count;
    if (ps_server_reload_keys(server, &count, error) == MR_OK) {
        ps_log("keys read again: %u in use", count);
    } else {
        ps_log("keys stay as they are: %s", error);
    }
}

/* The signal that says stop, or 0 when the port is lost. */
static int wait_for_end(struct ps_server *server, const sigset_t *signals)
{
    const struct timespec interval = {.tv_nsec = PORT_LOOK_NS};
    for (;;) {
        int number = sigtimedwait(signals, NULL, &interval);
        if (number == SIGHUP) {
            reload_keys(server);
        } else if (number > 0) {
            return number;
        }
        if (!ps_server_watch_port(server)) {
            return 0;
        }
    }
}

/* Serves until a signal says stop, or the port is lost. Signals are blocked before any thread is made, so
 * that only this one takes them. */
static int serve(const struct ps_config *config)
{
    char error[DP_ERROR_BYTES];
    struct ps_server *server;
    sigset_t signals;
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    if (ps_server_start(config, &server, error) != MR_OK) {
        fprintf(stderr, "millraced: %s\n", error);
        return EXIT_FAILURE;
    }
    ps_log("serving");
    ps_server_print_ready(
        server, stdout); /* the last word of a start: who waits for it finds nothing more in the log */
    int number = wait_for_end(server, &signals);
    ps_log("%s: stopping", number != 0 ? strsignal(number) : "the port is lost");
    enum mr_status status = ps_server_stop(server);
    ps_log("stopped");
    if (number == 0) {
        fprintf(stderr,
                "millraced: the port %s is lost, see the log above; start the node again once it is there\n",
                config->port_device);
    }
    return status == MR_OK && number != 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* What the configuration names must be there, or a start would fail all the same. */
static bool check_files(const struct ps_config *config, char error[PS_CONFIG_ERROR_BYTES])
{
    static_assert(PS_CONFIG_ERROR_BYTES >= PS_KEYS_ERROR_BYTES, "one line of either");
    struct ps_keys keys;
    bool is_good = ps_keys_read(config, &keys, error) == MR_OK;
    explicit_bzero(&keys, sizeof(keys));
    return is_good;
}

int main(int argc, char **argv)
{
    static struct ps_config config;
    struct arguments arguments = {0};
    char error[PS_CONFIG_ERROR_BYTES];
    read_arguments(argc, argv, &arguments);
    if (read_config(&arguments, &config, error) != MR_OK) {
        fprintf(stderr, "millraced: %s\n", error);
        return EXIT_USAGE;
    }
    if (arguments.check_only) {
        if (!check_files(&config, error)) {
            fprintf(stderr, "millraced: %s\n", error);
            return EXIT_USAGE;
        }
        printf("%s: ok\n", arguments.config_path);
        return EXIT_SUCCESS;
    }
    return serve(&config);
}
