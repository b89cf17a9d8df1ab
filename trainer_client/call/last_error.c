#include "trainer_client/call/last_error.h"

#include <stdarg.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "dataplane/wire/base/printable.h"
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
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    mr_make_printable(line, sizeof(line)); /* much of it is what servers say */
}

const char *mrc_of_steps(uint64_t from, uint64_t to, char *text)
{
    if (to == 0)
        text[0] = '\0';
    else if (from == to)
        snprintf(text, MRC_STEPS_BYTES, " of step %" PRIu64, to);
    else
        snprintf(text, MRC_STEPS_BYTES, " of steps %" PRIu64 "..%" PRIu64, from, to);
    return text;
}

static void end_with_failure(int status, void *arg)
{
    if (status == 0) {
        (void)fflush(NULL);
        _exit(1);
    }
}

void mr_fail_at_exit(void)
{
    (void)on_exit(end_with_failure, NULL);
}
