#include "trainer_client/examples/fm.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(const struct fm_options *options);
    } subcommands[] = {{"plan", fm_plan},
                       {"train", fm_train},
                       {"evaluate", fm_evaluate},
                       {"record", fm_record},
                       {"wait", fm_wait}};
    if (argc >= 2 && strcmp(argv[1], "--help") == 0) {
        fm_usage();
        return 0;
    }
    if (argc >= 2 && strcmp(argv[1], "--version") == 0) {
        puts("fm " MR_VERSION);
        return 0;
    }
    for (size_t i = 0; argc >= 2 && i < sizeof(subcommands) / sizeof(subcommands[0]); i++) {
        if (strcmp(argv[1], subcommands[i].name) == 0) {
            struct fm_options options;
            fm_options_parse(argc - 1, argv + 1, &options);
            return subcommands[i].run(&options);
        }
    }
    fputs("fm: the first argument is plan, train, evaluate, record or wait; see --help\n", stderr);
    return 2;
}
