/* A node as a service of systemd, whose sockets are the test's: what it tells, its watchdog while threads
 * hang, its lines in the journal; and its configuration, read again while it serves. */
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include "millrace_admin.h"
#include "tests/command.h"
#include "tests/integration/node_fixture.h"
#include "tests/test.h"
#include "tests/wait.h"

#define CORES       2u
#define WAIT_MS     60000
#define WATCHDOG_US "400000"
#define TEXT_BYTES  65536

struct fixture {
    struct node_fixture node;
    char directory[64]; /* of the test's sockets and the log */
    char log[96];
    int socket; /* -1: none */
    char message[TEXT_BYTES];
};

/* ---- sockets ---- */

static int listen_at(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0 && strlen(path) < sizeof(address.sun_path));
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

/* The next datagram; false: none came so soon. */
static bool next_message(struct fixture *x, int wait_ms)
{
    struct pollfd readable = {.fd = x->socket, .events = POLLIN};
    if (poll(&readable, 1, wait_ms) <= 0)
        return false;
    const ssize_t bytes = recv(x->socket, x->message, sizeof(x->message) - 1, 0);
    assert_true(bytes >= 0);
    x->message[bytes] = '\0';
    return true;
}

static void expect_message(struct fixture *x, const char *begins)
{
    while (next_message(x, WAIT_MS))
        if (strncmp(x->message, begins, strlen(begins)) == 0)
            return;
    fail_msg("no message that begins with %s", begins);
}

/* ---- the node and its log ---- */

static struct fixture *service_make(void)
{
    struct fixture *x = calloc(1, sizeof(*x));
    assert_non_null(x);
    x->socket = -1;
    snprintf(x->directory, sizeof(x->directory), "/tmp/millrace-test-service-XXXXXX");
    assert_non_null(mkdtemp(x->directory));
    snprintf(x->log, sizeof(x->log), "%s/log", x->directory);
    return x;
}

/* Starts the node with its standard error at `fd`. */
static void service_start(struct fixture *x, int fd, const char *const *settings)
{
    const int before = dup(STDERR_FILENO);
    assert_true(before >= 0 && dup2(fd, STDERR_FILENO) >= 0);
    node_fixture_start(&x->node, CORES, settings);
    dup2(before, STDERR_FILENO);
    close(before);
}

static void start_with_log(struct fixture *x, const char *const *settings)
{
    const int fd = open(x->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    service_start(x, fd, settings);
    close(fd);
}

static void service_end(struct fixture *x)
{
    if (x->socket >= 0)
        close(x->socket);
    assert_int_equal(command_run("rm -rf %s", x->directory), 0);
    free(x);
}

static void read_file(const char *path, char out[TEXT_BYTES])
{
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    const size_t bytes = fread(out, 1, TEXT_BYTES - 1, file);
    assert_true(bytes < TEXT_BYTES - 1);
    out[bytes] = '\0';
    fclose(file);
}

static uint32_t count_in_log(const struct fixture *x, const char *what)
{
    static char text[TEXT_BYTES];
    uint32_t count = 0;
    read_file(x->log, text);
    for (const char *at = strstr(text, what); at != NULL; at = strstr(at + 1, what))
        count++;
    return count;
}

/* Until the log has it so many times. */
static void wait_log(const struct fixture *x, const char *what, uint32_t times)
{
    if (WAIT_WITHIN(WAIT_LIMIT_S, count_in_log(x, what) >= times))
        return;
    static char text[TEXT_BYTES];
    read_file(x->log, text);
    fail_msg("not %u times in the log: %s\n%s", times, what, text);
}

/* ---- systemd is told ---- */

/* A thread of the node, by its name. */
static pid_t thread_of(pid_t process, const char *name)
{
    char path[384], comm[32];
    pid_t found = 0;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)process);
    DIR *tasks = opendir(path);
    assert_non_null(tasks);
    for (struct dirent *task = readdir(tasks); task != NULL && found == 0; task = readdir(tasks)) {
        snprintf(path, sizeof(path), "/proc/%d/task/%s/comm", (int)process, task->d_name);
        FILE *file = isdigit((unsigned char)task->d_name[0]) ? fopen(path, "re") : NULL;
        if (file == NULL)
            continue;
        if (fgets(comm, sizeof(comm), file) != NULL && strncmp(comm, name, strlen(name)) == 0)
            found = (pid_t)strtol(task->d_name, NULL, 10);
        fclose(file);
    }
    closedir(tasks);
    if (found == 0)
        fail_msg("no thread %s", name);
    return found;
}

static uint32_t watchdogs_so_far(struct fixture *x)
{
    uint32_t count = 0;
    while (next_message(x, 0))
        count += strcmp(x->message, "WATCHDOG=1") == 0;
    return count;
}

/* While one thread stands, nothing says that the node lives; when it goes on, it does again. */
static void hangs(struct fixture *x, const char *thread, const char *name, uint32_t times)
{
    int status;
    char line[96];
    const pid_t id = thread_of(x->node.server.pid, thread);
    assert_int_equal(ptrace(PTRACE_SEIZE, id, NULL, NULL), 0);
    assert_int_equal(ptrace(PTRACE_INTERRUPT, id, NULL, NULL), 0);
    assert_int_equal(waitpid(id, &status, __WALL), id);
    snprintf(line, sizeof(line), "error: %s has not gone on for", name);
    (void)watchdogs_so_far(x);
    wait_log(x, line, times);
    assert_true(watchdogs_so_far(x) <= 1); /* of a turn that was not seen before */
    assert_false(next_message(x, 300));
    assert_int_equal(ptrace(PTRACE_DETACH, id, NULL, NULL), 0);
    expect_message(x, "WATCHDOG=1");
}

static void need_systemd(void)
{
#ifndef MR_HAVE_SYSTEMD
    skip();
#endif
}

TEST(systemd_is_told)
{
    need_systemd();
    struct fixture *x = service_make();
    char path[96];
    snprintf(path, sizeof(path), "%s/notify", x->directory);
    x->socket = listen_at(path);
    setenv("NOTIFY_SOCKET", path, 1);
    setenv("WATCHDOG_USEC", WATCHDOG_US, 1);
    start_with_log(x, NULL);
    assert_true(next_message(x, WAIT_MS));
    assert_string_equal(x->message, "STATUS=starting");
    expect_message(x, "READY=1");
    expect_message(x, "STATUS=serving");
    expect_message(x, "WATCHDOG=1");
    hangs(x, "data-core-1", "data core 1", 1);
    hangs(x, "mr-control", "the control thread", 1);
    hangs(x, "data-core-0", "data core 0", 1);
    assert_int_equal(kill(x->node.server.pid, SIGHUP), 0);
    expect_message(x, "RELOADING=1\nMONOTONIC_USEC=");
    assert_true(strtoull(strrchr(x->message, '=') + 1, NULL, 10) > 0);
    expect_message(x, "READY=1");
    expect_message(x, "WATCHDOG=1");
    node_fixture_stop(&x->node);
    expect_message(x, "STOPPING=1");
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    service_end(x);
}

/* Without a watchdog there is no WATCHDOG=1. */
TEST(nobody_watches)
{
    need_systemd();
    struct fixture *x = service_make();
    char path[96];
    snprintf(path, sizeof(path), "%s/notify", x->directory);
    x->socket = listen_at(path);
    setenv("NOTIFY_SOCKET", path, 1);
    start_with_log(x, NULL);
    expect_message(x, "READY=1");
    node_fixture_stop(&x->node);
    assert_true(next_message(x, WAIT_MS));
    while (strcmp(x->message, "STOPPING=1") != 0) {
        assert_string_not_equal(x->message, "WATCHDOG=1");
        assert_true(next_message(x, WAIT_MS));
    }
    unsetenv("NOTIFY_SOCKET");
    service_end(x);
}

/* ---- the journal ---- */

/* A field of the datagram, in the journal's own form: NAME=VALUE and a newline, or, for a value with
 * newlines, NAME, a newline, its length in eight bytes, and the value. */
static bool has_field(const struct fixture *x, const char *field)
{
    const size_t length = strlen(field);
    for (const char *line = x->message; line != NULL && *line != '\0';) {
        if (strncmp(line, field, length) == 0 && line[length] == '\n')
            return true;
        line = strchr(line, '\n');
        line = line != NULL ? line + 1 : NULL;
    }
    return false;
}

static void expect_entry(struct fixture *x, const char *event)
{
    char field[64];
    snprintf(field, sizeof(field), "MILLRACE_EVENT=%s", event);
    while (next_message(x, WAIT_MS))
        if (has_field(x, field))
            return;
    fail_msg("no entry with %s", field);
}

/* ---- JSON, and SIGHUP ---- */

/* Every line of the log is an object with what each has. */
static void check_lines(const struct fixture *x)
{
    static char text[TEXT_BYTES];
    char *rest = NULL;
    uint32_t lines = 0;
    read_file(x->log, text);
    for (const char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        static const char *const names[] = {"ts", "level", "node", "component", "event", "msg"};
        json_error_t error;
        json_t *o = json_loads(line, JSON_REJECT_DUPLICATES, &error);
        if (o == NULL)
            fail_msg("%s: %s", error.text, line);
        for (uint32_t i = 0; i < sizeof(names) / sizeof(*names); i++)
            assert_true(json_is_string(json_object_get(o, names[i])));
        json_decref(o);
        lines++;
    }
    assert_true(lines > 5);
}

/* Writes the configuration with `now` in place of `was`, and `more` behind it. */
static void rewrite(const struct fixture *x, const char *text, const char *was, const char *now,
                    const char *more)
{
    const char *at = strstr(text, was);
    assert_non_null(at);
    FILE *file = fopen(x->node.config, "we");
    assert_non_null(file);
    fprintf(file, "%.*s%s%s%s", (int)(at - text), text, now, at + strlen(was), more);
    assert_int_equal(fclose(file), 0);
}

static void hang_up(const struct fixture *x)
{
    assert_int_equal(kill(x->node.server.pid, SIGHUP), 0);
}

static void service_create(struct mr_client *client, const char *name)
{
    struct mr_feature table = mr_feature_table(name, 4);
    uint32_t id;
    if (mr_create(client, NULL, &table, 1, &id) != MR_OK)
        fail_msg("%s", mr_last_error());
}

TEST(the_configuration_is_read_again)
{
    struct fixture *x = service_make();
    char broken[128];
    start_with_log(x, (const char *const[]){"log.format=json", NULL});
    static char text[TEXT_BYTES];
    read_file(x->node.config, text);
    struct mr_client *client = node_fixture_connect(&x->node);
    service_create(client, "first");
    struct mr_checkpoint_info status = {.bytes = sizeof(status)};
    assert_int_equal(mr_checkpoint_info(client, NULL, 0, &status, NULL, NULL), MR_OK);
    assert_int_equal(status.last_good_id, 0);

    /* What can change does: the node saves by itself from now on. */
    rewrite(x, text, "every_s = 0", "every_s = 1\nkeep = 5", "[log]\nlevel = debug\n");
    hang_up(x);
    wait_log(x, "\"event\":\"config_read\"", 1);
    assert_int_equal(count_in_log(x, "\"key\":\"checkpoint.every_s\",\"old\":\"0\",\"new\":\"1\""), 1);
    assert_int_equal(count_in_log(x, "\"key\":\"checkpoint.keep\",\"old\":\"3\",\"new\":\"5\""), 1);
    assert_int_equal(count_in_log(x, "\"key\":\"log.level\",\"old\":\"info\",\"new\":\"debug\""), 1);
    wait_log(x, "\"event\":\"saved\"", 1);
    service_create(client, "second");
    wait_log(x, "\"level\":\"debug\"", 1);

    /* A file with a mistake changes nothing, and its line is named. */
    rewrite(x, text, "[cores]\ncount = ", "[cores]\ncount = x", "");
    hang_up(x);
    wait_log(x, "\"event\":\"config_refused\"", 1);
    uint32_t line = 2; /* of the key; its section's begins with the match */
    for (const char *at = text; at != strstr(text, "[cores]\ncount = "); at++)
        line += *at == '\n';
    snprintf(broken, sizeof(broken), "%s:%u: cores.count = ", x->node.config, line);
    assert_int_equal(count_in_log(x, broken), 1);
    assert_int_equal(count_in_log(x, "\"event\":\"config_changed\""), 3);

    /* What needs a restart is named, and the rest is taken; --set still counts. */
    rewrite(x, text, "every_s = 0", "every_s = 0",
            "[port]\nmtu = 1400\n[node]\ntrace = /tmp/x\n[log]\nformat = text\n");
    hang_up(x);
    wait_log(x, "\"event\":\"config_read\"", 2);
    assert_int_equal(count_in_log(x, "\"keys\":\"node.trace, port.mtu\""), 1);
    assert_int_equal(count_in_log(x, "\"key\":\"checkpoint.every_s\",\"old\":\"1\",\"new\":\"0\""), 1);
    assert_int_equal(count_in_log(x, "\"key\":\"log.format\""), 0);
    mr_client_destroy(client);
    node_fixture_stop(&x->node);
    check_lines(x);
    service_end(x);
}

/* systemd's directory is one of the test's, in a mount namespace of its own. It is the last test, as its
 * mounts stay until the end. */
TEST(the_journal_gets_lines)
{
    need_systemd();
    struct fixture *x = service_make();
    struct stat at;
    int stream[2];
    char name[64], text[64];
    assert_int_equal(unshare(CLONE_NEWNS), 0);
    assert_int_equal(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    assert_int_equal(mount("tmpfs", "/run", "tmpfs", 0, NULL), 0);
    assert_int_equal(mkdir("/run/systemd", 0755), 0);
    assert_int_equal(mkdir("/run/systemd/journal", 0755), 0);
    x->socket = listen_at("/run/systemd/journal/socket");
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, stream), 0);
    assert_int_equal(fstat(stream[1], &at), 0);
    snprintf(text, sizeof(text), "%ju:%ju", (uintmax_t)at.st_dev, (uintmax_t)at.st_ino);
    setenv("JOURNAL_STREAM", text, 1);
    service_start(x, stream[1], (const char *const[]){"node.key_file=", NULL});
    unsetenv("JOURNAL_STREAM");
    expect_entry(x, "no_key");
    assert_true(has_field(x, "PRIORITY=4"));
    expect_entry(x, "serving");
    snprintf(name, sizeof(name), "MILLRACE_NODE=%s", strrchr(x->node.directory, '/') + 1);
    assert_true(has_field(x, name));
    assert_true(has_field(x, "MESSAGE=serving"));
    assert_true(has_field(x, "PRIORITY=6"));
    assert_true(has_field(x, "SYSLOG_IDENTIFIER=millraced"));
    assert_true(has_field(x, "MILLRACE_COMPONENT=ps"));
    node_fixture_stop(&x->node);
    expect_entry(x, "stopped");
    assert_int_equal(recv(stream[0], text, sizeof(text), MSG_DONTWAIT), -1); /* nothing twice */
    close(stream[0]);
    close(stream[1]);
    service_end(x);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fputs("usage: test_service MILLRACED\n", stderr);
        return 2;
    }
    node_fixture_server = argv[1];
    netns_require_root();
    return tests_run(NULL, NULL);
}
