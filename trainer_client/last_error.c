#include "trainer_client/last_error.h"

#include <stdarg.h>
#include <stdio.h>
#include "trainer_client/millrace.h"

static _Thread_local char line[MRC_ERROR_BYTES];

const char *mr_last_error(void)
{
    return line;
}

enum mr_status mrc_error(enum mr_status status, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    return status;
}

enum mr_status mrc_bad_argument(const char *call, const char *what)
{
    return mrc_error(MR_INVALID_ARGUMENT, "%s: %s", call, what);
}
