/* What doctor knows about a machine, read from /proc and /sys below a root directory ("" is the machine
 * itself). */
#ifndef TOOL_DOCTOR_FACTS_H
#define TOOL_DOCTOR_FACTS_H

#include <stdbool.h>
#include <stdint.h>

#define DOCTOR_NICS_MAX   64u
#define DOCTOR_NODES_MAX  16u
#define DOCTOR_QUEUES_MAX 1024u

struct doctor_nic {
    char name[32];
    char driver[32]; /* "" = a virtual interface */
    char state[16];  /* "up", "down", "unknown" */
    uint32_t mtu;
    uint32_t queue_count; /* receive queues; 0 = not known */
    int32_t numa_node;    /* -1: not known */
};

struct doctor_facts {
    bool has_proc; /* /proc/meminfo could be read */
    uint64_t hugepages_total, hugepages_free, hugepage_kib;
    uint32_t node_count;
    uint64_t node_hugepages[DOCTOR_NODES_MAX]; /* of the default size */
    uint32_t cpu_count, isolated_count;
    char isolated[128];
    uint32_t governed_count, slow_governor_count; /* cpus with a governor, and those not on "performance" */
    char governor[32];                            /* one of the latter */
    struct doctor_nic nics[DOCTOR_NICS_MAX];
    uint32_t nic_count;
    uint32_t dpdk_nic_count; /* bound to vfio-pci and the like */
    uint64_t rmem_max, wmem_max;
    bool has_io_uring_switch;
    uint64_t io_uring_disabled; /* kernel.io_uring_disabled */
    int io_uring_error;         /* errno of trying it; 0 = works, or not tried */
    uint64_t memory_lock_bytes; /* UINT64_MAX = unlimited */
    uint64_t capabilities;      /* effective ones */
    char huge_transparent[32];  /* "" = not known */
    bool has_sse42, has_avx2, has_avx512, is_x86;
    char release[64];
    uint32_t kernel_major, kernel_minor;
    bool has_af_xdp, has_af_packet, has_tun;
};

/* Reads what there is; what is missing stays zero. */
void doctor_read(const char *root, struct doctor_facts *facts);

#endif
