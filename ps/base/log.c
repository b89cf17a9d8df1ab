#include "ps/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

void ps_log(const char *format, ...)
{
    char line[1024];
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    size_t at = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &utc);
    at += (size_t)snprintf(line + at, sizeof(line) - at, ".%03ldZ millraced: ", now.tv_nsec / 1000000);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + at, sizeof(line) - at, format, arguments);
    va_end(arguments);
    fprintf(stderr, "%s\n", line);
}
