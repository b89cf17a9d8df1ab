#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/command.h"
#include "tests/integration/cluster/zookeeper_server.h"
#include "tests/integration/end_with_test.h"
#include "tests/test.h"
#include "tests/wait.h"

#define JAR     "/usr/share/java/zookeeper.jar"
#define SKIPPED 77 /* exit code by which a test says that it could not run */

static struct sockaddr_in loopback(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static uint16_t free_port(void)
{
    struct sockaddr_in address = loopback(0);
    socklen_t bytes = sizeof(address);
    const int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(s >= 0);
    assert_int_equal(bind(s, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(getsockname(s, (struct sockaddr *)&address, &bytes), 0);
    close(s);
    return ntohs(address.sin_port);
}

static bool answers(uint16_t port)
{
    const struct sockaddr_in address = loopback(port);
    const int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(s >= 0);
    const bool does = connect(s, (const struct sockaddr *)&address, sizeof(address)) == 0;
    close(s);
    return does;
}

void zookeeper_server_require(void)
{
    if (access(JAR, R_OK) == 0)
        return;
    (void)printf("skipped: install Debian's package zookeeper\n");
    exit(SKIPPED);
}

static void write_configuration(const struct zookeeper_server *s)
{
    char path[96];
    (void)snprintf(path, sizeof(path), "%s/zoo.cfg", s->directory);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    (void)fprintf(f,
                  "tickTime=%u\ndataDir=%s/data\nclientPort=%u\nclientPortAddress=127.0.0.1\n"
                  "admin.enableServer=false\nmaxClientCnxns=0\n",
                  s->tick_ms, s->directory, s->port);
    assert_int_equal(fclose(f), 0);
}

static _Noreturn void zookeeper_server_run(const struct zookeeper_server *s, pid_t test)
{
    char path[96];
    (void)snprintf(path, sizeof(path), "%s/output", s->directory);
    const int output = open(path, O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
    (void)dup2(output, STDOUT_FILENO);
    (void)dup2(output, STDERR_FILENO);
    (void)snprintf(path, sizeof(path), "%s/zoo.cfg", s->directory);
    end_with_test(test);
    (void)execlp("java", "java", "-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", JAR,
                 "org.apache.zookeeper.server.ZooKeeperServerMain", path, (char *)NULL);
    _exit(127);
}

void zookeeper_server_start(struct zookeeper_server *s)
{
    const pid_t test = getpid();
    zookeeper_server_kill(s); /* one that a failed test has left */
    s->pid = fork();
    assert_true(s->pid >= 0);
    if (s->pid == 0)
        zookeeper_server_run(s, test);
    bool does_answer = false;
    (void)WAIT_WITHIN(WAIT_LIMIT_S, does_answer = answers(s->port),
                      does_answer || waitpid(s->pid, NULL, WNOHANG) == s->pid);
    if (!does_answer)
        fail_msg("ZooKeeper does not start: see %s/output", s->directory);
}

void zookeeper_server_create(struct zookeeper_server *s)
{
    zookeeper_server_create_with(s, ZOOKEEPER_TICK_MS);
}

void zookeeper_server_create_with(struct zookeeper_server *s, uint32_t tick_ms)
{
    *s = (struct zookeeper_server){
        .port = free_port(), .tick_ms = tick_ms, .directory = "/tmp/millrace-test-XXXXXX"};
    assert_non_null(mkdtemp(s->directory));
    write_configuration(s);
    zookeeper_server_start(s);
}

/* A server that has just started to listen may never answer the first who asks. */
static bool answer_of(const struct zookeeper_server *s, char *answer, size_t room)
{
    const struct sockaddr_in address = loopback(s->port);
    const struct timeval limit = {.tv_sec = 1};
    size_t bytes = 0;
    ssize_t n;
    const int c = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(c >= 0);
    assert_int_equal(setsockopt(c, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
    if (connect(c, (const struct sockaddr *)&address, sizeof(address)) == 0 && send(c, "srvr", 4, 0) == 4)
        while ((n = recv(c, answer + bytes, room - 1 - bytes, 0)) > 0)
            bytes += (size_t)n;
    close(c);
    answer[bytes] = '\0';
    return bytes > 0;
}

uint64_t zookeeper_server_says(const struct zookeeper_server *s, const char *what)
{
    char answer[4096];
    const char *line = NULL;
    if (!WAIT_WITHIN(WAIT_LIMIT_S,
                     answer_of(s, answer, sizeof(answer)) && (line = strstr(answer, what)) != NULL))
        fail_msg("ZooKeeper does not say \"%s\": see %s/output", what, s->directory);
    return strtoull(line + strlen(what) + 2, NULL, 0);
}

void zookeeper_server_kill(struct zookeeper_server *s)
{
    if (s->pid <= 0)
        return;
    (void)kill(s->pid, SIGKILL);
    (void)waitpid(s->pid, NULL, 0);
    s->pid = 0;
}

static void remove_tree(const char *path)
{
    assert_int_equal(command_run("rm -rf '%s'", path), 0);
}

void zookeeper_server_forget(struct zookeeper_server *s)
{
    char path[96];
    (void)snprintf(path, sizeof(path), "%s/data", s->directory);
    remove_tree(path);
}

void zookeeper_server_destroy(struct zookeeper_server *s)
{
    zookeeper_server_kill(s);
    if (s->directory[0] != '\0')
        remove_tree(s->directory);
}
