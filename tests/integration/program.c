#include <stdio.h>
#include <string.h>
#include "tests/test.h"
#include "tests/integration/program.h"

#define COMMAND_BYTES 800

static void read_output(const struct netns *net, const char *name, char out[PROGRAM_OUTPUT_BYTES])
{
    char path[128];
    snprintf(path, sizeof(path), "%s/program.%s", net->directory, name);

    FILE *file = fopen(path, "r");

    assert_non_null(file);

    size_t bytes = fread(out, 1, PROGRAM_OUTPUT_BYTES, file);

    (void)fclose(file);
    assert_true(bytes < PROGRAM_OUTPUT_BYTES);
    out[bytes] = '\0';
}

void program_run(const struct netns *net, enum netns_side side, struct program_result *result,
                 const char *format, ...)
{
    char command[COMMAND_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(command, sizeof(command), format, list);
    va_end(list);
    result->code = netns_run(net, side, "timeout %d %s >%s/program.out 2>%s/program.err </dev/null",
                             PROGRAM_LIMIT_S, command, net->directory, net->directory);
    read_output(net, "out", result->out);
    read_output(net, "err", result->err);
}

void program_expect(const struct program_result *result, int code, const char *says)
{
    if (result->code != code || strstr(result->err, says) == NULL)
        fail_msg("exit code %d, not %d, or \"%s\" is not in:\n%s%s", result->code, code, says, result->out,
                 result->err);
}
