#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/integration/cluster/zookeeper_server.h"
#include "tests/integration/end_with_test.h"

#define JAR     "/usr/share/java/zookeeper.jar"
#define LIMIT_S 60
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
                  ZOOKEEPER_TICK_MS, s->directory, s->port);
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
    const time_t end = time(NULL) + LIMIT_S;
    while (!answers(s->port)) {
        if (waitpid(s->pid, NULL, WNOHANG) == s->pid || time(NULL) > end)
            fail_msg("ZooKeeper does not start: see %s/output", s->directory);
        (void)nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
}

void zookeeper_server_create(struct zookeeper_server *s)
{
    *s = (struct zookeeper_server){.port = free_port(), .directory = "/tmp/millrace-test-XXXXXX"};
    assert_non_null(mkdtemp(s->directory));
    write_configuration(s);
    zookeeper_server_start(s);
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
    char command[128];
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", path);
    assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c): a path of our own */
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
