/* The program: simulated clusters. */
#include <stdlib.h>
#include "cluster_world.h"
#include "tests/sim/seeds.h"

static void *create(void)
{
    return calloc(1, sizeof(struct world));
}

int main(int argc, char **argv)
{
    static const struct seeds_program program = {
        .name = "cluster",
        .describe = "simulates N clusters of nodes, with faults, and checks that nothing is lost, applied "
                    "twice or stale",
        .create = create,
        .destroy = free,
        .run = cluster_run,
    };
    return seeds_main(&program, argc, argv);
}
