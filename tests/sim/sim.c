/* The program: simulated worlds of the transport. */
#include "seeds.h"
#include "sim.h"

static void *create_sim(void)
{
    return sim_create();
}

static void destroy_sim(void *world)
{
    sim_destroy(world);
}

static bool run_sim(void *world, uint64_t seed, bool verbose, uint64_t *trace, char *why, size_t why_bytes)
{
    struct sim *sim = world;
    bool ok = sim_run(sim, seed, verbose);
    *trace = sim->trace;
    if (!ok)
        (void)snprintf(why, why_bytes, "at %llu us: %s", (unsigned long long)(sim->now_us - SIM_FIRST_US),
                       sim->why);
    return ok;
}

int main(int argc, char **argv)
{
    static const struct seeds_program program = {"sim", "Simulates N worlds of the transport", create_sim,
                                                 destroy_sim, run_sim};
    return seeds_main(&program, argc, argv);
}
