/* What the kernel's files tell of a thread, of the CPU that it runs on, and of that CPU's place: needs no
 * permission, and is there in every virtual machine. Pure, but for the files. */
#ifndef DP_THREAD_STAT_H
#define DP_THREAD_STAT_H

#include <stdbool.h>
#include <stdint.h>

struct dp_thread_stat {
    uint64_t run_ns, wait_ns; /* on a CPU; ready, but another thread had the CPU */
    uint64_t faults_minor, faults_major;
    uint64_t switches_voluntary, switches_forced;
    uint32_t cpu; /* that it ran on last */
};

struct dp_cpu_stat {
    uint64_t steal_us; /* another virtual machine had the processor */
    uint64_t irq_us;   /* interrupts, soft ones included */
};

/* Of thread `tid` of this process; `proc` is "/proc". False: there is no such thread. What a kernel does not
 * tell is 0. */
bool dp_thread_stat_read(const char *proc, int tid, struct dp_thread_stat *out);
/* False: no such CPU. */
bool dp_cpu_stat_read(const char *proc, uint32_t cpu, struct dp_cpu_stat *out);
/* The NUMA node of a CPU; 0 where there is only one. `sys` is "/sys". */
uint32_t dp_cpu_numa_node(const char *sys, uint32_t cpu);

#endif
