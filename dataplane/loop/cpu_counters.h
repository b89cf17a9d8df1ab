/* What a data core's thread costs its processor, and what the processor costs it: hardware counters where
 * there are any, and what the kernel's files tell. Refreshed a few times a second by one thread that is not a
 * data core, so that the core spends nothing on it; anybody may read the counters.
 */
#ifndef DP_CPU_COUNTERS_H
#define DP_CPU_COUNTERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "dataplane/loop/perf_group.h"
#include "dataplane/loop/perf_page.h"
#include "dataplane/loop/phases.h"

/* X(name, kind, unit, help): events of the processor, in the order of their bits in `events`. */
#define DP_CPU_EVENT_LIST(X)                                                                                 \
    X(cycles, COUNTER, NONE, "cycles of the processor, at its clock of the moment")                          \
    X(instructions, COUNTER, NONE, "instructions")                                                           \
    X(cache_misses, COUNTER, NONE, "misses of the last level of cache")                                      \
    X(branch_misses, COUNTER, NONE, "branches that were predicted wrongly")                                  \
    X(stalls_frontend, COUNTER, NONE, "cycles that waited for instructions")                                 \
    X(stalls_backend, COUNTER, NONE, "cycles that waited for data or for a unit of the processor")           \
    X(l1d_misses, COUNTER, NONE, "reads that missed the first level of cache")                               \
    X(dtlb_misses, COUNTER, NONE, "reads whose page was not in the TLB")                                     \
    X(itlb_misses, COUNTER, NONE, "instructions whose page was not in the TLB")                              \
    X(remote_reads, COUNTER, NONE, "reads from the memory of another NUMA node")

/* What is known without them. */
#define DP_CPU_COUNTER_LIST(X)                                                                               \
    DP_CPU_EVENT_LIST(X)                                                                                     \
    X(events, GAUGE, NONE, "which of the events above are counted, one bit each from the lowest on")         \
    X(events_state, GAUGE, NONE,                                                                             \
      "0 switched off, 1 counted, 2 counted in user space only, 3 the processor has none, 4 not allowed, "   \
      "5 failed")                                                                                            \
    X(run_us, COUNTER, MICROSECONDS, "time on a CPU")                                                        \
    X(wait_us, COUNTER, MICROSECONDS, "time ready to run while another thread had the CPU")                  \
    X(faults_minor, COUNTER, NONE, "page faults that needed no disk")                                        \
    X(faults_major, COUNTER, NONE, "page faults that needed one")                                            \
    X(switches_voluntary, COUNTER, NONE, "times the thread gave the CPU away")                               \
    X(switches_forced, COUNTER, NONE, "times the CPU was taken from it")                                     \
    X(steal_us, COUNTER, MICROSECONDS, "time in which another virtual machine had its CPU")                  \
    X(irq_us, COUNTER, MICROSECONDS, "time that interrupts took on its CPU")                                 \
    X(cpu, GAUGE, NONE, "the CPU that it runs on")                                                           \
    X(numa_node, GAUGE, NONE, "the NUMA node of that CPU")

struct dp_cpu_counters {
    DP_CPU_COUNTER_LIST(MR_COUNTER_FIELD)
};
extern const struct mr_counter_set dp_cpu_counter_set;

enum dp_cpu_event {
#define DP_CPU_ENUM(name, kind, unit, help) DP_CPU_##name,
    DP_CPU_EVENT_LIST(DP_CPU_ENUM)
#undef DP_CPU_ENUM
        DP_CPU_EVENTS
};

/* In `events_state`. */
enum dp_cpu_state {
    DP_CPU_OFF,
    DP_CPU_COUNTED,
    DP_CPU_USER_ONLY,
    DP_CPU_NONE,
    DP_CPU_DENIED,
    DP_CPU_FAILED,
};

#define DP_CPU_GROUPS 3u

struct dp_cpu {
    const struct dp_perf_calls *calls;
    const char *proc, *sys; /* "/proc", "/sys" */
    int tid;
    int error;    /* errno, if nothing is counted */
    bool is_seen; /* numa_node is that of its CPU */
    struct dp_perf_group groups[DP_CPU_GROUPS];
    struct perf_event_mmap_page *pages[DP_OP_EVENTS]; /* that the thread reads by itself; NULL: none */
    dp_read_counter *read_counter;
    _Atomic bool has_pages;
    struct dp_cpu_counters mine;     /* of the thread that refreshes */
    struct dp_cpu_counters counters; /* the same, for everybody */
};

/* `cpu` is all zero. Begins to watch thread `tid` of this process; with `events` false, without the
 * processor's. */
void dp_cpu_open(struct dp_cpu *cpu, const struct dp_perf_calls *calls, int tid, bool events);
/* For dp_phases_read_events(): the thread reads what it has done so far by itself. `cpu` is a struct
 * dp_cpu. */
bool dp_cpu_read_op_events(void *cpu, struct dp_op_events *out);
/* Looks again. */
void dp_cpu_refresh(struct dp_cpu *cpu);
/* Once the thread has ended. */
void dp_cpu_close(struct dp_cpu *cpu);

/* One line about counters that are missing or not whole, with the way to get them; false: there is nothing to
 * say. `paranoid` is the kernel's perf_event_paranoid. */
bool dp_cpu_explain(const struct dp_cpu *cpu, int paranoid, char *out, size_t out_bytes);
/* 2 where it cannot be read. */
int dp_cpu_paranoid(const char *proc);

#endif
