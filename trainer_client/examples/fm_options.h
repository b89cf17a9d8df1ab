/* Command line of `fm`, shared by its subcommands. */
#ifndef EXAMPLES_FM_OPTIONS_H
#define EXAMPLES_FM_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include "millrace.h"

#define FM_LEARNING_RATE 0.05f /* of Adagrad */

struct fm_options {
    const char *hub, *server, *key_file;
    struct mr_sample_plan plan;
    uint32_t factors;   /* 0: logistic regression */
    uint32_t optimizer; /* enum mr_optimizer, of the table */
    float optimizer_args[6];
    uint32_t optimizer_arg_count; /* 0: the defaults */
    float learning_rate, weight_decay, initial_accumulator, initial_deviation;
    uint32_t pipeline;     /* batches in flight */
    uint32_t save_every;   /* steps; 0 = never */
    uint32_t pause_after;  /* steps; 0 = never */
    uint32_t give_up_s;    /* without any progress */
    uint64_t until_learnt; /* `fm wait` */
    bool replay;           /* of the server's client, see millrace.h */
    bool ledger, quiet;
    bool logistic_regression;
};

/* Reads the command line; returns the subcommand, as it is given. Exits with 2 and one line when something is
 * wrong. */
const char *fm_options_parse(int argc, char **argv, struct fm_options *options);

#endif
