#include "tools/dev/dev_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PORT_DEFAULT    7700u
#define PORT_MAX        65000u /* of core 0 */
#define PORT_TRIES      64u
#define START_TRIES     4u /* another program may take the ports meanwhile */
#define SETTINGS_MAX    16u
#define EXIT_NO_PROGRAM 127 /* as shells have it */
#define LOG_TAIL_BYTES  2048
#define KEY_FILE_NAME   "dev.key"
#define KEY_BYTES       32u

/* ---- ports ---- */

/* The UDP port, or with 0 one that the kernel picks, if it is free on loopback; else 0. */
static uint32_t free_port(uint32_t port)
{
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(at);
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return 0;
    const bool is_free = bind(fd, (const struct sockaddr *)&at, sizeof(at)) == 0 &&
                         getsockname(fd, (struct sockaddr *)&at, &bytes) == 0;
    (void)close(fd);
    return is_free ? ntohs(at.sin_port) : 0;
}

/* Whether each core's port is free. */
static bool are_free(uint32_t port, uint32_t cores)
{
    if (port == 0 || port > PORT_MAX)
        return false;
    for (uint32_t core = 0; core < cores; core++)
        if (free_port(port + core) == 0)
            return false;
    return true;
}

/* The first of `cores` free ports in a row; 0: none found. */
static uint32_t pick_port(uint32_t cores)
{
    if (are_free(PORT_DEFAULT, cores))
        return PORT_DEFAULT;
    for (uint32_t i = 0; i < PORT_TRIES; i++) {
        const uint32_t port = free_port(0);
        if (are_free(port, cores))
            return port;
    }
    return 0;
}

/* ---- the directory ---- */

static int remove_entry(const char *path, const struct stat *about, int kind, struct FTW *where)
{
    (void)about, (void)kind, (void)where;
    return remove(path);
}

static void remove_directory(const struct dev_server *server)
{
    if (server->has_own_key)
        (void)unlink(server->key_file);
    if (server->is_temporary && server->directory[0] != '\0')
        (void)nftw(server->directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static int make_directory(const char *command, const char *wanted, struct dev_server *server)
{
    const char *base = getenv("TMPDIR");
    char path[sizeof(server->directory)];
    int length;
    server->is_temporary = wanted == NULL;
    if (wanted != NULL)
        length = snprintf(path, sizeof(path), "%s", wanted);
    else
        length = snprintf(path, sizeof(path), "%s/millrace-dev-XXXXXX",
                          base != NULL && base[0] != '\0' ? base : "/tmp");
    if (length >= (int)sizeof(path))
        return cli_fail(command, "the directory's name is too long: %s", path);
    if (wanted == NULL ? mkdtemp(path) == NULL : mkdir(path, 0777) != 0 && errno != EEXIST) {
        server->is_temporary = false;
        return cli_fail(command, "%s cannot be made: %s; name another directory with --directory", path,
                        strerror(errno));
    }
    struct stat made;
    if (stat(path, &made) == 0 && !S_ISDIR(made.st_mode))
        return cli_fail(command, "%s is no directory; name another with --directory", path);
    char *whole = realpath(path, NULL);
    (void)snprintf(server->directory, sizeof(server->directory), "%s", whole != NULL ? whole : path);
    free(whole);
    (void)snprintf(server->log, sizeof(server->log), "%s/millraced.log", server->directory);
    return 0;
}

/* ---- the key ---- */

/* Other users of the machine reach loopback, too: without a key they could read and drop everything. */
static int make_key(const char *command, struct dev_server *server)
{
    uint8_t key[KEY_BYTES];
    char text[2 * KEY_BYTES + 2] = "";
    const int length =
        snprintf(server->key_file, sizeof(server->key_file), "%s/" KEY_FILE_NAME, server->directory);
    if (length >= (int)sizeof(server->key_file) || getrandom(key, sizeof(key), 0) != (ssize_t)sizeof(key))
        return cli_fail(command, "no key can be made in %s", server->directory);
    for (size_t i = 0; i < KEY_BYTES; i++)
        (void)snprintf(text + 2 * i, 4, "%02x\n", key[i]);
    (void)unlink(server->key_file); /* of a start before */
    const int fd = open(server->key_file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    const bool is_written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    const int error_number = errno;
    if (fd >= 0)
        (void)close(fd);
    explicit_bzero(key, sizeof(key));
    explicit_bzero(text, sizeof(text));
    server->has_own_key = fd >= 0;
    return is_written ? 0 : cli_fail(command, "%s: %s", server->key_file, strerror(error_number));
}

/* That of a setting, which may say that there is none, else of the environment, which clients use, too,
 * else a new one: an empty variable names none, and does not open the server to everybody. */
static int choose_key(const char *command, const struct dev_options *options, struct dev_server *server)
{
    static const char setting[] = "node.key_file=";
    const char *path = getenv("MILLRACE_KEY_FILE");
    if (path != NULL && path[0] == '\0')
        path = NULL;
    for (uint32_t i = 0; i < options->sets.count; i++)
        if (strncmp(options->sets.items[i], setting, sizeof(setting) - 1) == 0)
            path = options->sets.items[i] + sizeof(setting) - 1;
    if (path == NULL)
        return make_key(command, server);
    (void)snprintf(server->key_file, sizeof(server->key_file), "%s", path);
    return 0;
}

/* ---- the process ---- */

/* $MILLRACED, or the file beside this program, or what is in $PATH. */
static void find_program(char path[PATH_MAX])
{
    const char *named = getenv("MILLRACED");
    if (named != NULL && named[0] != '\0') {
        (void)snprintf(path, PATH_MAX, "%s", named);
        return;
    }
    const ssize_t bytes = readlink("/proc/self/exe", path, PATH_MAX - sizeof("millraced"));
    char *slash = bytes > 0 ? memrchr(path, '/', (size_t)bytes) : NULL;
    if (slash != NULL) {
        (void)memcpy(slash + 1, "millraced", sizeof("millraced"));
        if (access(path, X_OK) == 0)
            return;
    }
    (void)memcpy(path, "millraced", sizeof("millraced"));
}

struct settings {
    char text[SETTINGS_MAX][PATH_MAX + 32];
    uint32_t count;
};

__attribute__((format(printf, 2, 3))) static void add_setting(struct settings *s, const char *format, ...)
{
    va_list list;
    if (s->count == SETTINGS_MAX)
        abort();
    va_start(list, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start() is one line above */
    (void)vsnprintf(s->text[s->count++], sizeof(s->text[0]), format, list);
    va_end(list);
}

static void make_settings(struct settings *s, const struct dev_options *options,
                          const struct dev_server *server)
{
    add_setting(s, "node.name=millrace-dev-%u", server->port);
    add_setting(s, "node.key_file=%s", server->key_file);
    add_setting(s, "log.journal=no");
    add_setting(s, "port.driver=socket");
    add_setting(s, "port.ipv4=127.0.0.1/8");
    add_setting(s, "port.udp_port=%u", server->port);
    add_setting(s, "cores.count=%u", options->cores);
    add_setting(s, "cores.poll_mode=adaptive");
    add_setting(s, "memory.hugepages=never");
    add_setting(s, "checkpoint.directory=%s", server->directory);
    add_setting(s, "checkpoint.save_on_stop=%s", server->is_temporary ? "no" : "yes");
}

static _Noreturn void exec_server(const struct dev_options *options, const struct dev_server *server, int out)
{
    static struct settings settings;
    char program[PATH_MAX];
    make_settings(&settings, options, server);
    const uint32_t words = 3 + 2 * (settings.count + options->sets.count);
    const char **argv = calloc(words + 1, sizeof(*argv));
    const int log = open(server->log, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0640);
    uint32_t n = 0;
    if (argv == NULL || log < 0 || dup2(out, STDOUT_FILENO) < 0)
        _exit(CLI_EXIT_FAILED);
    find_program(program);
    argv[n++] = "millraced";
    argv[n++] = "--config";
    argv[n++] = "/dev/null";
    for (uint32_t i = 0; i < settings.count + options->sets.count; i++) {
        argv[n++] = "--set";
        argv[n++] = i < settings.count ? settings.text[i] : options->sets.items[i - settings.count];
    }
    const int terminal = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    (void)dup2(log, STDERR_FILENO);
    (void)execvp(program, (char *const *)argv);
    (void)dprintf(
        terminal,
        "millrace dev: %s cannot be started: %s; install the package millrace-server, or name the program "
        "with the variable MILLRACED\n",
        program, strerror(errno));
    _exit(EXIT_NO_PROGRAM);
}

/* In a process group of its own: Ctrl-C is for whoever uses it. */
static int launch(const char *command, const struct dev_options *options, struct dev_server *server,
                  int *ready_fd)
{
    int out[2];
    const pid_t parent = getpid();
    if (pipe2(out, O_CLOEXEC) != 0)
        return cli_fail(command, "no pipe for the server: %s", strerror(errno));
    server->pid = fork();
    if (server->pid == 0) {
        sigset_t none;
        sigemptyset(&none);
        (void)setpgid(0, 0);
        (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent)
            _exit(CLI_EXIT_FAILED);
        (void)sigprocmask(SIG_SETMASK, &none, NULL);
        const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        (void)dup2(null, STDIN_FILENO);
        exec_server(options, server, out[1]);
    }
    (void)close(out[1]);
    *ready_fd = out[0];
    if (server->pid > 0)
        return 0;
    server->pid = 0;
    (void)close(out[0]);
    return cli_fail(command, "the server's process cannot be made: %s", strerror(errno));
}

/* Until it has said that it is ready. False: it has ended, or a signal says that this program shall. */
static bool wait_ready(int fd)
{
    char text[1024];
    size_t bytes = 0;
    for (;;) {
        struct pollfd look = {.fd = fd, .events = POLLIN};
        sigset_t pending;
        const int found = poll(&look, 1, 100);
        if (sigpending(&pending) == 0 && (sigismember(&pending, SIGINT) || sigismember(&pending, SIGTERM)))
            return false;
        if (found <= 0)
            continue;
        const ssize_t more = read(fd, text + bytes, sizeof(text) - 1 - bytes);
        if (more <= 0)
            return false;
        bytes += (size_t)more;
        text[bytes] = '\0';
        if (strstr(text, "millraced: ready") != NULL)
            return true;
        if (bytes == sizeof(text) - 1)
            bytes = 0;
    }
}

static void print_log_end(const struct dev_server *server)
{
    char text[LOG_TAIL_BYTES + 1];
    const int fd = open(server->log, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (lseek(fd, -LOG_TAIL_BYTES, SEEK_END) < 0)
        (void)lseek(fd, 0, SEEK_SET);
    const ssize_t bytes = read(fd, text, LOG_TAIL_BYTES);
    (void)close(fd);
    if (bytes > 0)
        (void)fwrite(text, 1, (size_t)bytes, stderr);
}

int dev_server_start(const char *command, const struct dev_options *options, struct dev_server *server)
{
    *server = (struct dev_server){0};
    int exit_code = make_directory(command, options->directory, server);
    if (exit_code == 0)
        exit_code = choose_key(command, options, server);
    for (uint32_t i = 0; exit_code == 0 && i < START_TRIES; i++) {
        int ready_fd = -1, status = 0;
        server->port = options->port != 0 ? options->port : pick_port(options->cores);
        if (!are_free(server->port, options->cores)) {
            exit_code =
                options->cores == 1
                    ? cli_fail(command, "UDP port %u is taken; leave --port out for a free one", server->port)
                    : cli_fail(command,
                               "not all UDP ports from %u to %u are free; leave --port out for others",
                               server->port, server->port + options->cores - 1);
            break;
        }
        (void)snprintf(server->address, sizeof(server->address), "127.0.0.1:%u", server->port);
        exit_code = launch(command, options, server, &ready_fd);
        if (exit_code != 0)
            break;
        const bool is_ready = wait_ready(ready_fd);
        (void)close(ready_fd);
        if (is_ready)
            return 0;
        (void)kill(server->pid, SIGTERM);
        (void)waitpid(server->pid, &status, 0);
        server->pid = 0;
        exit_code = CLI_EXIT_FAILED;
        if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_NO_PROGRAM)
            break; /* it has said why */
        if (options->port == 0 && !are_free(server->port, options->cores)) {
            exit_code = 0;
            continue; /* somebody was faster */
        }
        print_log_end(server);
        (void)cli_fail(command, "the server did not start; what it said is above%s%s",
                       server->is_temporary ? "" : ", and in ", server->is_temporary ? "" : server->log);
    }
    if (exit_code == 0)
        exit_code = cli_fail(command, "other programs took the ports each time; name some with --port");
    remove_directory(server);
    return exit_code;
}

int dev_server_stop(const char *command, struct dev_server *server)
{
    int status = 0;
    if (server->pid > 0) {
        (void)kill(server->pid, SIGTERM);
        while (waitpid(server->pid, &status, 0) < 0 && errno == EINTR)
            ;
        server->pid = 0;
    }
    int exit_code = 0;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        print_log_end(server);
        exit_code = cli_fail(command, "the server did not end well; what it said is above");
    }
    remove_directory(server);
    return exit_code;
}

int dev_server_ended(const char *command, struct dev_server *server, int wait_status)
{
    server->pid = 0;
    print_log_end(server);
    if (WIFSIGNALED(wait_status))
        return cli_fail(command, "the server was ended by a signal: %s", strsignal(WTERMSIG(wait_status)));
    return cli_fail(command, "the server ended with exit code %d; what it said is above",
                    WEXITSTATUS(wait_status));
}
