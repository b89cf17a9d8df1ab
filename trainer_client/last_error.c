#include "trainer_client/last_error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "trainer_client/millrace.h"

static _Thread_local char line[MRC_ERROR_BYTES];

const char *mr_last_error(void)
{
    return line;
}

void mrc_error_line(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
}

static void end_with_failure(int status, void *arg)
{
    (void)arg;
    if (status == 0) {
        (void)fflush(NULL);
        _exit(1);
    }
}

void mr_fail_at_exit(void)
{
    (void)on_exit(end_with_failure, NULL);
}
