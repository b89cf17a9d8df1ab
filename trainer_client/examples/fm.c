#include "trainer_client/examples/fm.h"

#include <string.h>
#include "dataplane/wire/base/cli.h"

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
    struct fm_options options;
    const char *subcommand = fm_options_parse(argc, argv, &options);
    for (size_t i = 0; i < sizeof(subcommands) / sizeof(subcommands[0]); i++)
        if (strcmp(subcommand, subcommands[i].name) == 0)
            return subcommands[i].run(&options);
    cli_refuse("fm", "the subcommand must be plan, train, evaluate, record or wait, not \"%s\"", subcommand);
}
