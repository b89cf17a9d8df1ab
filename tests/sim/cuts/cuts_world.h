/* One run of the simulation of checkpoints; see cuts.h. */
#ifndef SIM_CUTS_WORLD_H
#define SIM_CUTS_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#define CUTS_WHY_BYTES 320u

/* What a run has seen, and why it failed. */
struct cuts_outcome {
    uint64_t restores, deltas, at_steps;
    uint64_t in_flight;                  /* trainers of which a checkpoint holds a part of a push */
    uint64_t by_hand, put_backs, losses; /* reports */
    uint64_t go_ons;                     /* starts that had to go on from a restore by hand */
    uint64_t partials, drops, alters;
    uint64_t trace;
    char why[CUTS_WHY_BYTES];
};

/* Runs the world of a seed with files in `directory`, which is there and empty. Does not return when it
 * fails: the process ends with status 1, and outcome->why says why. Once per process. */
void cuts_run(uint64_t seed, const char *directory, bool verbose, struct cuts_outcome *outcome);

#endif
