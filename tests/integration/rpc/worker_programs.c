#include "tests/integration/rpc/worker_programs.h"
#include "tests/integration/end_with_test.h"
#include "tests/test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARGUMENTS_MAX 40
#define LINE_BYTES    1024

unsigned worker_free_port(void)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(sa);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&sa, &bytes), 0);
    close(fd);
    return ntohs(sa.sin_port);
}

void worker_start(struct worker_program *p, const char *path, const char *format, ...)
{
    char *argv[ARGUMENTS_MAX + 1] = {(char *)(uintptr_t)path}, line[LINE_BYTES], *rest = line;
    int ends[2], count = 1;
    va_list arguments;
    va_start(arguments, format);
    assert_true(vsnprintf(line, sizeof(line), format, arguments) < (int)sizeof(line));
    va_end(arguments);
    while (count < ARGUMENTS_MAX && (argv[count] = strtok_r(rest, " ", &rest)) != NULL)
        count++;
    assert_true(count < ARGUMENTS_MAX);
    assert_int_equal(pipe(ends), 0);
    const pid_t test = getpid();
    p->pid = fork();
    assert_true(p->pid >= 0);
    if (p->pid == 0) {
        end_with_test(test);
        (void)dup2(ends[1], STDOUT_FILENO);
        (void)dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        execv(path, argv);
        _exit(127);
    }
    close(ends[1]);
    p->from = fdopen(ends[0], "r");
    assert_non_null(p->from);
}

void worker_finish(struct worker_program *p, int code)
{
    int status = 0;
    size_t bytes = fread(p->text, 1, sizeof(p->text) - 1, p->from);
    p->text[bytes] = 0;
    (void)fclose(p->from);
    assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
    int ended = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);

    if (ended != code)
        fail_msg("it ended with %d: %s", ended, p->text);
}

void worker_said(const struct worker_program *p, const char *part)
{
    if (strstr(p->text, part) == NULL)
        fail_msg("not said: \"%s\", but: %s", part, p->text);
}

double worker_number(const struct worker_program *p, const char *key)
{
    char wanted[64];
    const char *at = NULL;
    snprintf(wanted, sizeof(wanted), " %s=", key);
    for (const char *next = p->text; (next = strstr(next, wanted)) != NULL; next++)
        at = next;
    if (at == NULL)
        fail_msg("no %s in: %s", wanted, p->text);
    return at == NULL ? 0 : strtod(at + strlen(wanted), NULL);
}
