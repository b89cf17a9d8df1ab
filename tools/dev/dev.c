/* millrace dev: a server for a notebook, a test or one command, which ends with it. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/commands.h"
#include "tools/dev/dev_server.h"
#include "dataplane/wire/base/cli.h"

#define SETS_MAX       64u
#define CORES_MAX      64
#define EXIT_NOT_FOUND 127 /* as shells have it */
#define EXIT_BY_SIGNAL 128

static const char command[] = "millrace dev";

/* What it waits for: signals, a child's end among them, and the end of its standard input. */
struct events {
    int signals;
    bool with_stdin;
};

static int block_signals(struct events *events)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGCHLD};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
        sigaddset(&set, numbers[i]);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    events->signals = signalfd(-1, &set, SFD_CLOEXEC);
    return events->signals >= 0 ? 0 : cli_fail(command, "no signalfd: %s", strerror(errno));
}

/* The signal that came; 0: standard input has ended. */
static int next_event(struct events *events)
{
    for (;;) {
        struct pollfd look[] = {{.fd = events->signals, .events = POLLIN},
                                {.fd = events->with_stdin ? STDIN_FILENO : -1, .events = POLLIN}};
        struct signalfd_siginfo info;
        char text[256];
        if (poll(look, 2, -1) < 0)
            continue;
        if (look[0].revents != 0 && read(events->signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
            return (int)info.ssi_signo;
        if (look[1].revents != 0 && read(STDIN_FILENO, text, sizeof(text)) <= 0)
            return 0;
    }
}

static int dev_say(const struct dev_server *server, bool json)
{
    if (json)
        return tool_print_json(command, json_pack("{s:s, s:s, s:s, s:s, s:i, s:b}", "address",
                                                  server->address, "directory", server->directory, "log",
                                                  server->log, "key_file", server->key_file, "pid",
                                                  (int)server->pid, "is_temporary", server->is_temporary));
    const bool has_key = server->key_file[0] != '\0';
    (void)printf("A server for development at %s, over the kernel's UDP sockets: it carries less than a\n"
                 "port of its own (docs/install.md). Checkpoints and the log (millraced.log) are in\n"
                 "%s%s.\n\n"
                 "  import millrace\n"
                 "  client = millrace.Client(\"%s\"%s%s%s)\n"
                 "  table = client.table(\"items\", dim=16)\n\n",
                 server->address, server->directory,
                 server->is_temporary ? ", which is removed at the end (--directory DIR keeps them)" : "",
                 server->address, has_key ? ", key_file=\"" : "", server->key_file, has_key ? "\"" : "");
    if (has_key)
        (void)printf("For other programs: export MILLRACE_KEY_FILE=%s\n", server->key_file);
    (void)printf("Ctrl-C ends it.\n");
    return fflush(stdout) == 0 ? 0 : cli_fail(command, "the output could not be written");
}

/* Serves until a signal, the end of standard input, or the server's own. */
static int serve(struct events *events, struct dev_server *server)
{
    for (;;) {
        int status;
        if (next_event(events) != SIGCHLD)
            return 0;
        if (waitpid(server->pid, &status, WNOHANG) == server->pid)
            return dev_server_ended(command, server, status);
    }
}

static pid_t launch(char *const *words, const struct dev_server *server)
{
    const pid_t pid = fork();
    if (pid != 0)
        return pid;
    sigset_t none;
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)setenv("MILLRACE_SERVER", server->address, 1);
    (void)setenv("MILLRACE_KEY_FILE", server->key_file, 1);
    (void)execvp(words[0], words);
    (void)cli_fail(command, "%s: %s", words[0], strerror(errno));
    _exit(EXIT_NOT_FOUND);
}

/* Runs a command and returns its exit code. Ctrl-C reaches it by itself; other signals are passed on. */
static int run_command(struct events *events, struct dev_server *server, char *const *words)
{
    const pid_t pid = launch(words, server);
    if (pid < 0)
        return cli_fail(command, "no process for %s: %s", words[0], strerror(errno));
    for (;;) {
        const int number = next_event(events);
        int status;
        if (number == SIGTERM || number == SIGHUP || number == 0)
            (void)kill(pid, number != 0 ? number : SIGTERM);
        if (server->pid > 0 && waitpid(server->pid, &status, WNOHANG) == server->pid)
            (void)dev_server_ended(command, server, status);
        if (waitpid(pid, &status, WNOHANG) == pid)
            return WIFSIGNALED(status) ? EXIT_BY_SIGNAL + WTERMSIG(status) : WEXITSTATUS(status);
    }
}

static int dev_run(const struct dev_options *options, struct events *events, bool json, char *const *words)
{
    static struct dev_server server;
    int exit_code = block_signals(events);
    if (exit_code == 0)
        exit_code = dev_server_start(command, options, &server);
    if (exit_code != 0)
        return exit_code;
    if (words[0] != NULL) {
        exit_code = run_command(events, &server, words);
    } else {
        exit_code = dev_say(&server, json);
        if (exit_code == 0)
            exit_code = serve(events, &server);
    }
    const int stopped = dev_server_stop(command, &server);
    return exit_code != 0 ? exit_code : stopped;
}

int tool_dev(int argc, char **argv)
{
    const char *sets[SETS_MAX];
    struct dev_options dev = {.cores = 1, .sets = {.items = sets, .items_max = SETS_MAX}};
    struct events events = {0};
    bool json = false;
    const struct cli_option options[] = {
        {"directory", CLI_STRING, &dev.directory, "DIR",
         "for checkpoints and the log, and the newest checkpoint there is restored;\n"
         "default: a temporary one, removed at the end"},
        {"port", CLI_U32_IN(1, 65000), &dev.port, "N",
         "UDP port of core 0, core i has N + i; default: 7700, or others if that is taken"},
        {"cores", CLI_U32_IN(1, CORES_MAX), &dev.cores, "N", "number of data cores; default 1"},
        {"set", CLI_LIST, &dev.sets, "SECTION.KEY=VALUE", "a further setting, as millraced takes it"},
        {"with-stdin", CLI_FLAG, &events.with_stdin, NULL, "end when standard input ends, too"},
        {"json", CLI_FLAG, &json, NULL, "print one JSON value when it serves, instead of text"},
    };
    const struct cli_usage usage = {
        .program = command,
        .synopsis = "[options] [-- COMMAND...]",
        .summary =
            "Starts a server for development on this machine and ends it at Ctrl-C. With a command, runs\n"
            "that with MILLRACE_SERVER and MILLRACE_KEY_FILE set, ends the server after it, and has its "
            "exit\n"
            "code. The key is a new one, unless MILLRACE_KEY_FILE or --set node.key_file=FILE names one. The "
            "server\n"
            "uses the kernel's UDP sockets on 127.0.0.1: it needs neither root, hugepages nor a network\n"
            "interface, and is slower than one that has them.\n"
            "\n"
            "  millrace dev\n"
            "  millrace dev --cores 2 -- python3 train.py",
        CLI_OPTIONS(options),
        .words_max = (uint32_t)argc,
    };
    char **words = calloc((size_t)argc + 1, sizeof(*words));
    if (words == NULL)
        return cli_fail(command, "no memory left");
    (void)cli_parse(&usage, argc, argv, (const char **)words);
    const int exit_code = dev_run(&dev, &events, json, words);
    free(words);
    return exit_code;
}
