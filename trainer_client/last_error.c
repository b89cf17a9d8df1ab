#include "trainer_client/last_error.h"

#include <stdarg.h>
#include <stdio.h>
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
