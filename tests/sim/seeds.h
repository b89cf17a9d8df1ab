/* Runs a program's seeds: command line, and processes that share the seeds among them, so that one that
 * crashes or hangs is reported like any other failure. Each seed is run once, every sixteenth twice, to see
 * that it tells the whole story. */
#ifndef SIM_SEEDS_H
#define SIM_SEEDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct seeds_program {
    const char *name;      /* as it begins its lines */
    const char *describe;  /* what it does with N of them, for --help */
    void *(*create)(void); /* for all runs of a process; NULL: it cannot */
    void (*destroy)(void *world);
    /* One run. *trace: a hash over all that happened in it. False: it failed, and `why` says how. */
    bool (*run)(void *world, uint64_t seed, bool verbose, uint64_t *trace, char *why, size_t why_bytes);
};

/* The program's exit status. */
int seeds_main(const struct seeds_program *program, int argc, char **argv);

#endif
