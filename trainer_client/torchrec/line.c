#include "trainer_client/torchrec/line.h"

#include <stdarg.h>
#include <stdio.h>

void tde_line(const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    (void)fprintf(stderr, "millrace: %s\n", text);
}
