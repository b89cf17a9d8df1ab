/* The program: simulated worlds of references. */
#include "refsim.h"
#include "tests/sim/seeds.h"

static void *sim_references_create(void)
{
    return refsim_create();
}

static void sim_references_destroy(void *world)
{
    refsim_destroy(world);
}

static bool sim_references_run(void *world, uint64_t seed, bool verbose, uint64_t *trace, char *why,
                               size_t why_bytes)
{
    struct refsim *sim = world;
    bool ok = refsim_run(sim, seed, verbose);
    *trace = sim->trace;
    if (!ok)
        (void)snprintf(why, why_bytes, "at %llu us: %s", (unsigned long long)sim->now_us, sim->why);
    return ok;
}

int main(int argc, char **argv)
{
    static const struct seeds_program program = {"sim_references", "Simulates N worlds of references",
                                                 sim_references_create, sim_references_destroy,
                                                 sim_references_run};
    return seeds_main(&program, argc, argv);
}
