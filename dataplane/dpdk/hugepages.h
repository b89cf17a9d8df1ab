/* Huge pages that the process can have. The kernel's files tell how many are free on the machine; a cgroup
 * (of systemd, Kubernetes or Docker) may let the process have fewer, and then kills it when it touches one
 * more. */
#ifndef DP_HUGEPAGES_H
#define DP_HUGEPAGES_H

#include <stdbool.h>
#include <stdint.h>

#define DP_HUGEPAGES_ROOT "/sys/kernel/mm/hugepages"

struct dp_hugepages {
    uint64_t free_mib;   /* of all sizes */
    uint64_t usable_mib; /* of these: as far as asked for */
};

/* Finds out about `wanted_mib` by taking them, and gives them back. `root`: DP_HUGEPAGES_ROOT. */
void dp_hugepages_find(const char *root, uint64_t wanted_mib, struct dp_hugepages *out);

#endif
