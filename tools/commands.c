#include "tools/commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/wire/base/cli.h"

static void print_help(const struct tool_commands *c)
{
    (void)printf("usage: %s COMMAND [arguments]\n\n%s\n\n", c->program, c->summary);
    for (size_t i = 0; i < c->count; i++)
        (void)printf("  %-*s%s\n", c->name_width, c->list[i].name, c->list[i].help);
    (void)printf("\n\"%s COMMAND --help\" explains a command and its options.\n", c->program);
}

int tool_run_command(const struct tool_commands *commands, int argc, char **argv)
{
    const char *word = argc >= 2 ? argv[1] : "";
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        print_help(commands);
        return 0;
    }
    if (strcmp(word, "--version") == 0) {
        (void)printf("millrace %s\n", MR_VERSION);
        return 0;
    }
    for (size_t i = 0; i < commands->count; i++)
        if (commands->list[i].run && strcmp(word, commands->list[i].name) == 0)
            return commands->list[i].run(argc - 1, argv + 1);
    cli_refuse(commands->program, "%s%s", argc < 2 ? "a command is missing" : "no command ", word);
}

int tool_print_json(const char *command, json_t *value)
{
    char *text = value ? json_dumps(value, JSON_REAL_PRECISION(7)) : NULL;
    json_decref(value);
    if (!text)
        return cli_fail(command, "no memory for the output");
    int failed = puts(text) < 0 || fflush(stdout) != 0;
    free(text);
    return failed ? cli_fail(command, "the output could not be written") : 0;
}
