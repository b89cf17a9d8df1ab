/* sim [--first S] [--seeds N] [--verbose]: N worlds from seed S on. Each is run once, every sixteenth twice, to see that a
 * seed tells the whole story. Prints the seed of each that fails; exit 1 if any did. */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define REPLAY_EVERY 16u

static bool parse_number(const char *text, uint64_t *out)
{
    char *end;
    *out = strtoull(text, &end, 10);
    return *text != '\0' && *end == '\0';
}

static bool run_seed(struct sim *sim, uint64_t seed, bool verbose)
{
    if (!sim_run(sim, seed, verbose)) {
        printf("sim: seed %llu failed at %llu us: %s (sim --first %llu --seeds 1 --verbose)\n",
               (unsigned long long)seed, (unsigned long long)sim->now_us, sim->why, (unsigned long long)seed);
        return false;
    }
    uint64_t trace = sim->trace;
    if (seed % REPLAY_EVERY == 0 && (!sim_run(sim, seed, false) || sim->trace != trace)) {
        printf("sim: seed %llu does not replay\n", (unsigned long long)seed);
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    uint64_t first = 1, seeds = 100;
    bool verbose = false;
    for (int i = 1; i < argc; i++) {
        uint64_t *number = strcmp(argv[i], "--first") == 0   ? &first
                           : strcmp(argv[i], "--seeds") == 0 ? &seeds
                                                             : NULL;
        if (strcmp(argv[i], "--verbose") == 0) {
            verbose = true;
        } else if (number != NULL && i + 1 < argc && parse_number(argv[i + 1], number)) {
            i++;
        } else {
            fprintf(stderr, "sim: %s: use sim [--first S] [--seeds N] [--verbose], S and N numbers\n",
                    argv[i]);
            return 2;
        }
    }
    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* what failed is told even if the run is cut short */
    struct sim *sim = malloc(sizeof(*sim));
    if (sim == NULL)
        return 2;
    uint64_t failed = 0;
    for (uint64_t seed = first; seed < first + seeds; seed++)
        failed += !run_seed(sim, seed, verbose);
    if (failed == 0)
        printf("sim: %llu seeds from %llu: ok\n", (unsigned long long)seeds, (unsigned long long)first);
    free(sim);
    return failed == 0 ? 0 : 1;
}
