#include "ps/base/cpu_affinity.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>

/* "0-3,6" */
static void cpus_write(const cpu_set_t *set, char *out, size_t out_bytes)
{
    size_t used = 0;
    out[0] = '\0';
    for (size_t first = 0; first < CPU_SETSIZE && used < out_bytes; first++) {
        size_t last = first;
        if (!CPU_ISSET(first, set))
            continue;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, set))
            last++;
        used += (size_t)snprintf(out + used, out_bytes - used, last > first ? "%s%zu-%zu" : "%s%zu",
                                 used > 0 ? "," : "", first, last);
        first = last;
    }
}

/* An affinity is cut to what the kernel lets the thread have, and refused if nothing is left. */
static bool cpu_is_barred(int cpu)
{
    cpu_set_t one;
    if (cpu < 0)
        return false;
    if (cpu >= CPU_SETSIZE)
        return true;
    CPU_ZERO(&one);
    CPU_SET((size_t)cpu, &one);
    return sched_setaffinity(0, sizeof(one), &one) != 0 && errno == EINVAL;
}

int ps_cpu_affinity_find_barred(const int *cpus, uint32_t cpu_count, char *allowed, size_t allowed_bytes)
{
    cpu_set_t before, all;
    int barred = -1;
    if (sched_getaffinity(0, sizeof(before), &before) != 0)
        return -1;
    for (uint32_t i = 0; i < cpu_count && barred < 0; i++)
        if (cpu_is_barred(cpus[i]))
            barred = cpus[i];
    CPU_ZERO(&all);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        CPU_SET(cpu, &all);
    if (sched_setaffinity(0, sizeof(all), &all) == 0)
        (void)sched_getaffinity(0, sizeof(all), &all);
    cpus_write(&all, allowed, allowed_bytes);
    (void)sched_setaffinity(0, sizeof(before), &before);
    return barred;
}
