/* The subcommands of `fm`. Each returns the program's exit code. */
#ifndef EXAMPLES_FM_H
#define EXAMPLES_FM_H

#include "trainer_client/examples/fm_options.h"

int fm_plan(const struct fm_options *options);
int fm_train(const struct fm_options *options);
int fm_evaluate(const struct fm_options *options);
int fm_record(const struct fm_options *options);
int fm_wait(const struct fm_options *options);

#endif
