/* Threads beside the data cores: these poll without a pause, and whoever shares a processor with one holds up
 * its calls. */
#ifndef PS_CPU_AFFINITY_H
#define PS_CPU_AFFINITY_H

#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>

/* The thread leaves these processors (below 0: none) as far as it has others. */
static inline void ps_cpu_affinity_avoid(pthread_t thread, const int *cpus, uint32_t cpu_count)
{
    cpu_set_t set;
    if (pthread_getaffinity_np(thread, sizeof(set), &set) != 0)
        return;
    for (uint32_t i = 0; i < cpu_count; i++)
        if (cpus[i] >= 0 && cpus[i] < CPU_SETSIZE)
            CPU_CLR((size_t)cpus[i], &set);
    if (CPU_COUNT(&set) > 0)
        (void)pthread_setaffinity_np(thread, sizeof(set), &set);
}

/* Finds one of these processors that the calling thread may not run on: it is not online, or not in the
 * cpuset of the process. Writes all that it may run on to `allowed`. Returns -1 if there is none such. The
 * thread has the affinity that it had. */
int ps_cpu_affinity_find_barred(const int *cpus, uint32_t cpu_count, char *allowed, size_t allowed_bytes);

#endif
