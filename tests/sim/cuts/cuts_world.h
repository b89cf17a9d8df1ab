/* One run of the simulation of checkpoints; see cuts.h. */
#ifndef SIM_CUTS_WORLD_H
#define SIM_CUTS_WORLD_H

#include <stdbool.h>
#include <stdint.h>

/* What a run has seen, beside having passed. */
struct cuts_stats {
    uint64_t restores, deltas, at_steps;
    uint64_t under_way; /* trainers of which a checkpoint holds a part of a push */
    uint64_t trace;
};

/* Runs the world of a seed with files in `directory`, which is there and empty. Does not return when it fails: the process ends with
 * status 1, having said why. Once per process. */
void cuts_run(uint64_t seed, const char *directory, bool verbose, struct cuts_stats *stats);

#endif
