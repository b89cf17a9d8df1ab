/* The one way in which a test runs a command of the shell to its end. */
#ifndef MR_TEST_COMMAND_H
#define MR_TEST_COMMAND_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include "tests/test.h"

static inline int command_code(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Returns its exit code; 128 + N: signal N ended it. */
static inline __attribute__((format(printf, 1, 2), unused)) int command_run(const char *format, ...)
{
    char *line;
    va_list list;
    va_start(list, format);
    assert_true(vasprintf(&line, format, list) > 0);
    va_end(list);
    const int status = system(line); /* NOLINT(cert-env33-c): words of our own */
    free(line);
    return command_code(status);
}

/* The same, and `out` has what it wrote to stdout, which must fit into `room` bytes with a zero behind it. */
static inline __attribute__((format(printf, 3, 4), unused)) int command_output(char *out, size_t room,
                                                                               const char *format, ...)
{
    char *line;
    va_list list;
    va_start(list, format);
    assert_true(vasprintf(&line, format, list) > 0);
    va_end(list);
    FILE *pipe = popen(line, "re"); /* NOLINT(cert-env33-c): words of our own */
    assert_non_null(pipe);
    const size_t bytes = fread(out, 1, room, pipe);
    assert_true(bytes < room);
    out[bytes] = '\0';
    free(line);
    return command_code(pclose(pipe));
}

#endif
