/* millrace: the program for operators. One command per file. */
#include <stdio.h>
#include <string.h>

#include "tools/commands.h"
#include "dataplane/wire/base/cli.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
    {"ctl", tool_ctl, "make tables and variables, save, restore, freeze and inspect one server"},
    {"top", tool_top, "show what each core does, live"},
    {"ckpt", tool_ckpt, "list, verify, compare, dump, export and import checkpoints on disk"},
    {"doctor", tool_doctor, "show what is in the way on this machine, and the command that fixes it"},
};

static void print_help(void)
{
    (void)printf("usage: millrace COMMAND [arguments]\n\nTools for the Millrace parameter server.\n\n");
    for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
        (void)printf("  %-12s%s\n", commands[i].name, commands[i].help);
    (void)printf("  %-12s%s\n  %-12s%s\n\nmillrace COMMAND --help says more.\n", "--version",
                 "print the version", "--help", "this text");
}

/* What was to be printed and could not be (a full disk) is no success. */
static int end_output(int exit_code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return exit_code;
    if (exit_code == 0)
        (void)fprintf(stderr, "millrace: the output could not be written\n");
    return exit_code != 0 ? exit_code : CLI_EXIT_FAILED;
}

int main(int argc, char **argv)
{
    const char *word = argc >= 2 ? argv[1] : "";
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        print_help();
        return end_output(0);
    }
    if (strcmp(word, "--version") == 0) {
        (void)printf("millrace %s\n", MR_VERSION);
        return end_output(0);
    }
    for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
        if (strcmp(word, commands[i].name) == 0)
            return end_output(commands[i].run(argc - 1, argv + 1));
    cli_refuse("millrace", "%s%s", argc < 2 ? "a command is missing" : "no command ", word);
}
