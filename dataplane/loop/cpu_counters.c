#include "dataplane/loop/cpu_counters.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "dataplane/loop/thread_stat.h"

static const struct mr_counter counters[] = {DP_CPU_COUNTER_LIST(MR_COUNTER_DESCRIPTION)};
const struct mr_counter_set dp_cpu_counter_set = {
    .name = "cpu", .help = "a core's thread, and the CPU that it runs on", MR_COUNTERS(counters)};

#define CACHE(cache)                                                                                         \
    (PERF_COUNT_HW_CACHE_##cache | PERF_COUNT_HW_CACHE_OP_READ << 8 | PERF_COUNT_HW_CACHE_RESULT_MISS << 16)

/* In the order of DP_CPU_EVENT_LIST. */
static const struct dp_perf_event events[DP_CPU_EVENTS] = {
    [DP_CPU_cycles] = {PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES},
    [DP_CPU_instructions] = {PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS},
    [DP_CPU_cache_misses] = {PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES},
    [DP_CPU_branch_misses] = {PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_MISSES},
    [DP_CPU_stalls_frontend] = {PERF_TYPE_HARDWARE, PERF_COUNT_HW_STALLED_CYCLES_FRONTEND},
    [DP_CPU_stalls_backend] = {PERF_TYPE_HARDWARE, PERF_COUNT_HW_STALLED_CYCLES_BACKEND},
    [DP_CPU_l1d_misses] = {PERF_TYPE_HW_CACHE, CACHE(L1D)},
    [DP_CPU_dtlb_misses] = {PERF_TYPE_HW_CACHE, CACHE(DTLB)},
    [DP_CPU_itlb_misses] = {PERF_TYPE_HW_CACHE, CACHE(ITLB)},
    [DP_CPU_remote_reads] = {PERF_TYPE_HW_CACHE, CACHE(NODE)},
};

/* What is compared with each other is in one group: [0] is the first event, [1] how many. */
static const uint8_t groups[DP_CPU_GROUPS][2] = {
    {DP_CPU_cycles, 4}, {DP_CPU_stalls_frontend, 2}, {DP_CPU_l1d_misses, 4}};
static_assert(DP_CPU_l1d_misses + 4 == DP_CPU_EVENTS, "every event is in a group");

static enum dp_cpu_state state_of(int error)
{
    switch (error) {
    case ENOENT:
    case ENODEV:
    case EOPNOTSUPP:
    case ENOSYS:
        return DP_CPU_NONE;
    case EACCES:
    case EPERM:
        return DP_CPU_DENIED;
    default:
        return DP_CPU_FAILED;
    }
}

static uint64_t open_groups(struct dp_cpu *cpu, bool user_only)
{
    uint64_t opened = 0;
    cpu->error = 0;
    for (uint32_t i = 0; i < DP_CPU_GROUPS; i++) {
        struct dp_perf_group *group = &cpu->groups[i];
        int error =
            dp_perf_group_open(group, cpu->calls, cpu->tid, events + groups[i][0], groups[i][1], user_only);
        if (error != 0 && cpu->error == 0)
            cpu->error = error;
        for (uint32_t j = 0; j < group->count; j++)
            opened |= UINT64_C(1) << (groups[i][0] + group->events[j]);
    }
    return opened;
}

/* Where the thread finds the counts of events that operations are measured in: all of them, or none. */
static void map_pages(struct dp_cpu *cpu)
{
    static const uint8_t wanted[DP_OP_EVENTS] = {
        [DP_OP_INSTRUCTIONS] = DP_CPU_instructions, [DP_OP_CACHE_MISSES] = DP_CPU_cache_misses};
    const struct dp_perf_group *group = &cpu->groups[0];
    uint32_t mapped = 0;
    for (uint32_t i = 0; i < DP_OP_EVENTS; i++) {
        for (uint32_t j = 0; j < group->count; j++)
            if (groups[0][0] + group->events[j] == wanted[i])
                cpu->pages[i] = cpu->calls->map(group->fds[j]);
        mapped += cpu->pages[i] != NULL;
    }
    atomic_store_explicit(&cpu->has_pages, mapped == DP_OP_EVENTS, memory_order_release);
}

bool dp_cpu_read_op_events(void *arg, struct dp_op_events *out)
{
    const struct dp_cpu *cpu = arg;
    if (!atomic_load_explicit(&cpu->has_pages, memory_order_acquire))
        return false;
    for (uint32_t i = 0; i < DP_OP_EVENTS; i++)
        if (!dp_perf_page_read(cpu->pages[i], cpu->read_counter, &out->counts[i]))
            return false;
    return true;
}

static void publish(struct dp_cpu *cpu)
{
    const uint64_t *from = (const uint64_t *)&cpu->mine;
    uint64_t *to = (uint64_t *)&cpu->counters;
    for (uint32_t i = 0; i < sizeof(cpu->mine) / sizeof(*from); i++)
        __atomic_store_n(&to[i], from[i], __ATOMIC_RELAXED);
}

void dp_cpu_open(struct dp_cpu *cpu, const struct dp_perf_calls *calls, int tid, bool with_events)
{
    struct dp_cpu_counters *mine = &cpu->mine;
    cpu->calls = calls;
    cpu->proc = "/proc";
    cpu->sys = "/sys";
    cpu->tid = tid;
    cpu->read_counter = dp_read_processor_counter;
    if (!with_events)
        return;
    mine->events_state = DP_CPU_COUNTED;
    mine->events = open_groups(cpu, false);
    if (mine->events == 0 && state_of(cpu->error) == DP_CPU_DENIED) {
        mine->events_state = DP_CPU_USER_ONLY;
        mine->events = open_groups(cpu, true);
    }
    if (mine->events == 0)
        mine->events_state = state_of(cpu->error);
    else
        map_pages(cpu);
    publish(cpu);
}

void dp_cpu_refresh(struct dp_cpu *cpu)
{
    struct dp_cpu_counters *mine = &cpu->mine;
    struct dp_thread_stat thread;
    struct dp_cpu_stat processor;
    for (uint32_t i = 0; i < DP_CPU_GROUPS; i++)
        (void)dp_perf_group_read(&cpu->groups[i], cpu->calls, (uint64_t *)mine + groups[i][0]);
    if (dp_thread_stat_read(cpu->proc, cpu->tid, &thread)) {
        mine->run_us = thread.run_ns / 1000;
        mine->wait_us = thread.wait_ns / 1000;
        mine->faults_minor = thread.faults_minor;
        mine->faults_major = thread.faults_major;
        mine->switches_voluntary = thread.switches_voluntary;
        mine->switches_forced = thread.switches_forced;
        if (mine->cpu != thread.cpu || !cpu->is_seen)
            mine->numa_node = dp_cpu_numa_node(cpu->sys, thread.cpu);
        cpu->is_seen = true;
        mine->cpu = thread.cpu;
    }
    if (dp_cpu_stat_read(cpu->proc, (uint32_t)mine->cpu, &processor)) {
        mine->steal_us = processor.steal_us;
        mine->irq_us = processor.irq_us;
    }
    publish(cpu);
}

void dp_cpu_close(struct dp_cpu *cpu)
{
    atomic_store(&cpu->has_pages, false);
    for (uint32_t i = 0; i < DP_OP_EVENTS; i++) {
        if (cpu->pages[i] != NULL)
            cpu->calls->unmap(cpu->pages[i]);
        cpu->pages[i] = NULL;
    }
    for (uint32_t i = 0; i < DP_CPU_GROUPS; i++)
        dp_perf_group_close(&cpu->groups[i], cpu->calls);
}

int dp_cpu_paranoid(const char *proc)
{
    char path[256];
    int level = 2;
    (void)snprintf(path, sizeof(path), "%s/sys/kernel/perf_event_paranoid", proc);
    FILE *in = fopen(path, "re");
    if (in != NULL && fscanf(in, "%d", &level) != 1)
        level = 2;
    if (in != NULL)
        (void)fclose(in);
    return level;
}

bool dp_cpu_explain(const struct dp_cpu *cpu, int paranoid, char *out, size_t out_bytes)
{
    switch ((enum dp_cpu_state)cpu->mine.events_state) {
    case DP_CPU_OFF:
    case DP_CPU_COUNTED:
        return false;
    case DP_CPU_USER_ONLY:
        (void)snprintf(out, out_bytes,
                       "counted in user space only, as kernel.perf_event_paranoid is %d; for the kernel's "
                       "part, too: sysctl kernel.perf_event_paranoid=1, or give millraced CAP_PERFMON",
                       paranoid);
        return true;
    case DP_CPU_NONE:
        (void)snprintf(out, out_bytes,
                       "this machine has none, as most virtual machines; a hypervisor that offers a PMU "
                       "(libvirt: <pmu state='on'/>) gives them. Until then there are the kernel's: run and "
                       "wait time, faults, switches, steal");
        return true;
    case DP_CPU_DENIED:
        (void)snprintf(out, out_bytes,
                       "not allowed, and kernel.perf_event_paranoid is %d: sysctl "
                       "kernel.perf_event_paranoid=1, or give millraced CAP_PERFMON; in a container, allow "
                       "perf_event_open in its seccomp profile, too",
                       paranoid);
        return true;
    case DP_CPU_FAILED:
        (void)snprintf(out, out_bytes, "they cannot be opened: %s; raise the limit of open files (ulimit -n)",
                       strerror(cpu->error));
        return true;
    }
    return false;
}
