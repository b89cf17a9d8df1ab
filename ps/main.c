/* millraced: a Millrace node. Reads the command line and the configuration, serves until it is asked to
 * stop. */
#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "dataplane/wire/base/cli.h"
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/log.h"
#include "ps/base/cpu_affinity.h"
#include "ps/config/config.h"
#include "ps/config/config_rules.h"
#include "ps/server/counter_page.h"
#include "ps/server/keys.h"
#include "ps/server/node_log.h"
#include "ps/server/checkpoint_sync.h"
#include "ps/server/server.h"
#include "ps/server/watch.h"

#define PROGRAM  "millraced"
#define SETS_MAX 64

#define PORT_LOOK_NS 250000000L /* between two looks at the port: a loss is known within a second */

struct arguments {
    const char *config_path, *check_path, *restore, *serve;
    const char *set_items[SETS_MAX];
    struct cli_list sets;
    bool print_config, print_counters;
};

static void check_arguments(const struct arguments *a)
{
    if (a->config_path == NULL && a->check_path == NULL)
        cli_refuse(PROGRAM, "--config FILE is missing");
    if (a->config_path != NULL && a->check_path != NULL)
        cli_refuse(PROGRAM, "--config and --check-config cannot be used together");
    if (a->restore != NULL && ps_rule_restore(a->restore) != NULL)
        cli_refuse(PROGRAM, "--restore: latest, none, or the number of a checkpoint");
    if (a->serve != NULL &&
        (a->serve[0] == '\0' || strlen(a->serve) >= sizeof(((struct ps_config *)NULL)->checkpoint_serve)))
        cli_refuse(PROGRAM, "--serve: the path of a checkpoint, DIR/ckpt-7, or of a directory of them");
    if (a->serve != NULL && a->restore != NULL)
        cli_refuse(PROGRAM, "--restore and --serve cannot be used together");
}

static void read_arguments(int argc, char **argv, struct arguments *a)
{
    a->sets = (struct cli_list){.items = a->set_items, .items_max = SETS_MAX};
    const struct cli_option options[] = {
        {"config", CLI_STRING, &a->config_path, "FILE", "serve with this configuration"},
        {"set", CLI_LIST, &a->sets, "S.KEY=VALUE",
         "set one key, overriding the file's value; may be given several times; if a key is set\n"
         "more than once, the last value counts"},
        {"restore", CLI_STRING, &a->restore, "WHAT", "what to load at start, instead of checkpoint.restore"},
        {"serve", CLI_STRING, &a->serve, "PATH",
         "serve a checkpoint (DIR/ckpt-7), or the newest one in DIR, read only: nothing is\ntrained or "
         "saved"},
        {"check-config", CLI_STRING, &a->check_path, "FILE",
         "check a configuration and the key files that it names, and exit"},
        {"print-config", CLI_FLAG, &a->print_config, NULL,
         "print every key with its help and default, and exit; only port.device must then be set"},
        {"print-counters", CLI_FLAG, &a->print_counters, NULL,
         "print every counter with its kind, unit and meaning, as Markdown, and exit"},
    };
    const struct cli_usage usage = {
        .program = PROGRAM,
        .synopsis = "--config FILE [--set SECTION.KEY=VALUE]... [--restore latest|ID|none]\n"
                    "       millraced --config FILE [--set SECTION.KEY=VALUE]... --serve PATH\n"
                    "       millraced --check-config FILE [--set SECTION.KEY=VALUE]...\n"
                    "       millraced --print-config\n"
                    "       millraced --print-counters",
        .summary = "A node of the Millrace parameter server.\n\n"
                   "SIGTERM and SIGINT stop it, also while it starts; SIGHUP makes it read its configuration "
                   "and the key files again.\n"
                   "When it is ready to serve, it prints a line that begins with \"millraced: ready\".\n\n"
                   "  millraced --print-config > millraced.conf\n"
                   "  millraced --config millraced.conf --set port.device=mr0",
        CLI_OPTIONS(options),
        .has_version = true,
    };
    (void)cli_parse(&usage, argc, argv, NULL);
    if (a->print_config) {
        ps_config_print(stdout);
        exit(EXIT_SUCCESS);
    }
    if (a->print_counters) {
        ps_counter_page_print(stdout);
        exit(EXIT_SUCCESS);
    }
    check_arguments(a);
}

static enum mr_status read_config(const struct arguments *arguments, struct ps_config *config, char *error)
{
    ps_config_default(config);
    const char *path = arguments->check_path != NULL ? arguments->check_path : arguments->config_path;
    enum mr_status status = ps_config_load(path, config, error);
    for (uint32_t i = 0; i < arguments->sets.count && status == MR_OK; i++)
        status = ps_config_set(config, arguments->sets.items[i], error);
    if (status == MR_OK && arguments->restore != NULL)
        snprintf(config->checkpoint_restore, sizeof(config->checkpoint_restore), "%s", arguments->restore);
    if (status == MR_OK && arguments->serve != NULL)
        snprintf(config->checkpoint_serve, sizeof(config->checkpoint_serve), "%s", arguments->serve);
    if (status == MR_OK) {
        ps_config_settle(config);
        status = ps_config_check(config, error);
    }
    return status;
}

/* A configuration that cannot be followed changes nothing. */
static void reload(const struct arguments *arguments, struct ps_server *server)
{
    static struct ps_config config;
    char error[DP_ERROR_BYTES];
    ps_notify("RELOADING=1\nMONOTONIC_USEC=%" PRIu64, mr_clock_us());
    enum mr_status status = read_config(arguments, &config, error);
    if (status == MR_OK)
        status = ps_server_reload(server, &config, error);
    if (status != MR_OK)
        mr_log_error("config_refused",
                     "configuration and keys stay as they are, also keys that were removed: %s", error);
    ps_notify("READY=1");
}

/* The signal that says stop, or 0 when the port is lost. */
static int wait_for_end(const struct arguments *arguments, struct ps_server *server, const sigset_t *signals)
{
    const struct timespec interval = {.tv_nsec = PORT_LOOK_NS};
    for (;;) {
        int number = sigtimedwait(signals, NULL, &interval);
        if (number == SIGHUP)
            reload(arguments, server);
        else if (number > 0)
            return number;
        if (!ps_server_watch_port(server))
            return 0;
    }
}

/* Why the program ends, as programs say it on a terminal, or as the log's last line. */
static void say_why(const char *text)
{
    if (mr_log_is_text())
        (void)cli_fail(PROGRAM, "%s", text);
    else
        mr_log_error("ended", "%s", text);
}

/* Signals are blocked before any thread is made, so that only this one takes them. */
static void block_signals(sigset_t *signals)
{
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a write beyond the limit (ulimit -f) fails, and is told, as on a full disk */
    sigemptyset(signals);
    sigaddset(signals, SIGTERM);
    sigaddset(signals, SIGINT);
    sigaddset(signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, signals, NULL);
}

/* ---- a signal while it starts ---- */

/* A start may take long, as that of a node that gets a checkpoint from a store, and leaves no more behind
 * than one that is killed: so the signal ends the process as if it had not been blocked. One that the process
 * itself sends to this thread says that the start is over. */
static void *watch_start(void *arg)
{
    sigset_t signals;
    siginfo_t info;
    int number;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    while ((number = sigwaitinfo(&signals, &info)) < 0)
        ;
    if (info.si_pid == getpid())
        return NULL;
    mr_log_info("start_ended", "%s: ending, before the start is over", strsignal(number));
    mr_log_stop();
    signal(number, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &signals, NULL);
    (void)raise(number);
    return NULL;
}

static enum mr_status millraced_start(const struct ps_config *config, struct ps_server **server, char *error)
{
    pthread_t watch;
    const bool is_watched = pthread_create(&watch, NULL, watch_start, NULL) == 0;
    const enum mr_status status = ps_server_start(config, server, error);
    if (is_watched) {
        pthread_kill(watch, SIGINT);
        pthread_join(watch, NULL);
    }
    return status;
}

/* Serves until a signal says stop, or the port is lost. */
static int serve(const struct arguments *arguments, const struct ps_config *config)
{
    char error[DP_ERROR_BYTES];
    struct ps_server *server;
    sigset_t signals;
    block_signals(&signals);
    ps_server_leave_cores(config);
    (void)mr_log_start(); /* without its thread those who log write their lines themselves */
    if (!ps_node_log_configure(config, error, sizeof(error)) ||
        millraced_start(config, &server, error) != MR_OK) {
        say_why(error);
        return EXIT_FAILURE;
    }
    if (config->cluster_name[0] == '\0') /* a member says when it does */
        mr_log_info("serving", "serving");
    ps_server_tell_ready(server);
    ps_server_print_ready(
        server, stdout); /* the last word of a start: who waits for it finds nothing more in the log */
    int number = wait_for_end(arguments, server, &signals);
    mr_log_info("stopping", "%s: stopping", number != 0 ? strsignal(number) : "the port is lost");
    enum mr_status status = ps_server_stop(server);
    mr_log_info("stopped", "stopped");
    if (number == 0) {
        snprintf(error, sizeof(error),
                 "the port %s is lost, see the log above; start the node again once it is there",
                 config->port_device);
        say_why(error);
    }
    return status == MR_OK && number != 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* What the configuration names must be there, or a start would fail all the same. */
static bool check_files(const struct ps_config *config, char error[PS_CONFIG_ERROR_BYTES])
{
    static_assert(PS_CONFIG_ERROR_BYTES >= PS_KEYS_ERROR_BYTES, "one line of each");
    struct ps_keys keys;
    bool is_good = ps_keys_read(config, &keys, error) == MR_OK;
    explicit_bzero(&keys, sizeof(keys));
    return is_good && ps_checkpoint_sync_check(config, error);
}

/* A container or a systemd unit may have some of the machine's processors only. */
static bool check_cpus(const struct ps_config *config, char error[PS_CONFIG_ERROR_BYTES])
{
    int cpus[DP_CORES_MAX];
    char allowed[128], place[PS_CONFIG_PLACE_BYTES];
    const int named = ps_cpus_parse(config->cores_cpus, cpus, DP_CORES_MAX);
    const int barred =
        named > 0 ? ps_cpu_affinity_find_barred(cpus, (uint32_t)named, allowed, sizeof(allowed)) : -1;
    if (barred < 0)
        return true;
    ps_config_place(config, config->lines[PS_CONFIG_KEY_cores_cpus], place, sizeof(place));
    snprintf(
        error, PS_CONFIG_ERROR_BYTES,
        "%s%scores.cpus: this process may not run on CPU %d, but on %.40s: see \"lscpu -e\", AllowedCPUs= "
        "of systemd, --cpuset-cpus of Docker",
        place, place[0] != '\0' ? ": " : "", barred, allowed);
    return false;
}

int main(int argc, char **argv)
{
    static struct ps_config config;
    static struct arguments arguments;
    char error[PS_CONFIG_ERROR_BYTES];
    read_arguments(argc, argv, &arguments);
    if (read_config(&arguments, &config, error) != MR_OK) {
        (void)cli_fail(PROGRAM, "%s", error);
        return CLI_EXIT_USAGE;
    }
    if (arguments.check_path != NULL) {
        if (!check_cpus(&config, error) || !check_files(&config, error)) {
            (void)cli_fail(PROGRAM, "%s", error);
            return CLI_EXIT_USAGE;
        }
        printf("%s: ok\n", arguments.check_path);
        return EXIT_SUCCESS;
    }
    const int code = serve(&arguments, &config);
    mr_log_stop();
    return code;
}
