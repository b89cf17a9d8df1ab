/* A kernel made here, with and without counters, allowed and denied. */
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include "dataplane/loop/cpu_counters.h"
#include "tests/test.h"

#define FIRST_FD 1000

static struct {
    int error;          /* of events that are counted in the kernel, too */
    int user_error;     /* of those in user space */
    bool has_no_caches; /* PERF_TYPE_HW_CACHE */
    bool maps_nothing;
    uint32_t opened, closed, mapped;
    uint64_t looks;
} kernel;

static int fake_open(struct perf_event_attr *attributes, pid_t tid, int leader)
{
    errno = attributes->exclude_kernel ? kernel.user_error : kernel.error;
    if (errno == 0 && kernel.has_no_caches && attributes->type == PERF_TYPE_HW_CACHE)
        errno = ENOENT;
    return errno != 0 ? -1 : FIRST_FD + (int)kernel.opened++;
}

static int fake_enable(int leader)
{
    return 0;
}

/* Each look finds 100 more of the group's first event, 200 of the second, and so on. */
static ssize_t fake_read(int fd, void *to, size_t bytes)
{
    uint64_t *words = to;
    kernel.looks++;
    words[0] = bytes / sizeof(uint64_t) - 3;
    words[1] = words[2] = kernel.looks * 1000;
    for (uint64_t i = 0; i < words[0]; i++)
        words[3 + i] = kernel.looks * 100 * (i + 1);
    return (ssize_t)bytes;
}

static struct perf_event_mmap_page pages[DP_CPU_EVENTS];

static struct perf_event_mmap_page *fake_map(int fd)
{
    if (kernel.maps_nothing)
        return NULL;
    kernel.mapped++;
    return &pages[fd - FIRST_FD];
}

static void fake_unmap(struct perf_event_mmap_page *page)
{
    assert_int_in_range(page - pages, 0, DP_CPU_EVENTS - 1);
    kernel.mapped--;
}

static uint64_t fake_counter(uint32_t index)
{
    return 10 * (uint64_t)index + 1;
}

static int fake_close(int fd)
{
    kernel.closed++;
    return 0;
}

static const struct dp_perf_calls fake = {fake_open,  fake_enable, fake_read,
                                          fake_close, fake_map,    fake_unmap};
static struct dp_cpu cpu;
static char why[512];

static int setup(void **state)
{
    memset(&kernel, 0, sizeof(kernel));
    memset(&cpu, 0, sizeof(cpu));
    memset(pages, 0, sizeof(pages));
    return 0;
}

static int teardown(void **state)
{
    dp_cpu_close(&cpu);
    assert_int_equal(kernel.closed, kernel.opened);
    assert_int_equal(kernel.mapped, 0);
    return 0;
}

TEST(every_event_has_its_counter, setup, teardown)
{
    dp_cpu_open(&cpu, &fake, gettid(), true);
    assert_int_equal(kernel.opened, DP_CPU_EVENTS);
    assert_int_equal(cpu.counters.events, (1u << DP_CPU_EVENTS) - 1);
    assert_int_equal(cpu.counters.events_state, DP_CPU_COUNTED);
    dp_cpu_refresh(&cpu); /* looks at three groups */
    assert_int_equal(cpu.counters.cycles, 100);
    assert_int_equal(cpu.counters.instructions, 200);
    assert_int_equal(cpu.counters.branch_misses, 400);
    assert_int_equal(cpu.counters.stalls_frontend, 200);
    assert_int_equal(cpu.counters.stalls_backend, 400);
    assert_int_equal(cpu.counters.l1d_misses, 300);
    assert_int_equal(cpu.counters.remote_reads, 1200);
    assert_false(dp_cpu_explain(&cpu, 1, why, sizeof(why)));
    assert_string_equal(dp_cpu_counter_set.counters[DP_CPU_remote_reads].name, "remote_reads");
    assert_string_equal(dp_cpu_counter_set.counters[DP_CPU_EVENTS].name, "events");
}

/* As the kernel does for the second and third event of the group: instructions, cache misses. */
static void allow_reading(void)
{
    for (uint32_t i = 1; i <= 2; i++) {
        pages[i].cap_user_rdpmc = 1;
        pages[i].index = i + 1;
        pages[i].pmc_width = 48;
        pages[i].offset = 1000 * (int64_t)i;
    }
}

TEST(the_thread_reads_what_its_operations_do, setup, teardown)
{
    struct dp_op_events e;
    assert_false(dp_cpu_read_op_events(&cpu, &e)); /* not open yet */
    allow_reading();
    dp_cpu_open(&cpu, &fake, gettid(), true);
    cpu.read_counter = fake_counter;
    assert_true(dp_cpu_read_op_events(&cpu, &e));
    assert_int_equal(e.counts[DP_OP_INSTRUCTIONS], 1011);
    assert_int_equal(e.counts[DP_OP_CACHE_MISSES], 2021);
    pages[2].index = 0; /* it has no counter just now */
    assert_false(dp_cpu_read_op_events(&cpu, &e));
}

TEST(without_pages_the_thread_reads_nothing, setup, teardown)
{
    struct dp_op_events e;
    kernel.maps_nothing = true;
    dp_cpu_open(&cpu, &fake, gettid(), true);
    assert_int_equal(cpu.counters.events_state, DP_CPU_COUNTED);
    assert_false(dp_cpu_read_op_events(&cpu, &e));
}

TEST(missing_events_are_marked, setup, teardown)
{
    kernel.has_no_caches = true;
    dp_cpu_open(&cpu, &fake, gettid(), true);
    assert_int_equal(cpu.counters.events, (1u << DP_CPU_l1d_misses) - 1);
    assert_int_equal(cpu.counters.events_state, DP_CPU_COUNTED);
    dp_cpu_refresh(&cpu);
    assert_int_equal(cpu.counters.l1d_misses, 0);
    assert_int_equal(cpu.counters.stalls_backend, 400);
}

TEST(user_space_is_counted_where_the_kernel_may_not_be, setup, teardown)
{
    kernel.error = EACCES;
    dp_cpu_open(&cpu, &fake, gettid(), true);
    assert_int_equal(cpu.counters.events_state, DP_CPU_USER_ONLY);
    assert_int_equal(cpu.counters.events, (1u << DP_CPU_EVENTS) - 1);
    assert_true(dp_cpu_explain(&cpu, 2, why, sizeof(why)));
    assert_non_null(strstr(why, "perf_event_paranoid is 2"));
    assert_non_null(strstr(why, "CAP_PERFMON"));
}

TEST(what_is_denied_is_said_with_the_mend, setup, teardown)
{
    kernel.error = kernel.user_error = EACCES;
    dp_cpu_open(&cpu, &fake, gettid(), true);
    assert_int_equal(cpu.counters.events_state, DP_CPU_DENIED);
    assert_int_equal(cpu.counters.events, 0);
    assert_true(dp_cpu_explain(&cpu, 4, why, sizeof(why)));
    assert_non_null(strstr(why, "perf_event_paranoid is 4"));
    assert_non_null(strstr(why, "CAP_PERFMON"));
    assert_null(strchr(why, '\n'));
}

TEST(a_machine_without_counters_has_those_of_the_kernel, setup, teardown)
{
    kernel.error = kernel.user_error = ENOENT;
    dp_cpu_open(&cpu, &fake, gettid(), true);
    assert_int_equal(cpu.counters.events_state, DP_CPU_NONE);
    assert_true(dp_cpu_explain(&cpu, 2, why, sizeof(why)));
    assert_non_null(strstr(why, "virtual machine"));
    dp_cpu_refresh(&cpu);
    assert_int_equal(cpu.counters.cycles, 0);
    assert_true(cpu.counters.faults_minor > 0);
}

TEST(other_failures_name_the_error, setup, teardown)
{
    kernel.error = EMFILE;
    dp_cpu_open(&cpu, &fake, gettid(), true);
    assert_int_equal(cpu.counters.events_state, DP_CPU_FAILED);
    assert_true(dp_cpu_explain(&cpu, 2, why, sizeof(why)));
    assert_non_null(strstr(why, strerror(EMFILE)));
}

TEST(switched_off_nothing_is_opened_nor_said, setup, teardown)
{
    dp_cpu_open(&cpu, &fake, gettid(), false);
    dp_cpu_refresh(&cpu);
    assert_int_equal(kernel.opened, 0);
    assert_int_equal(cpu.counters.events_state, DP_CPU_OFF);
    assert_true(cpu.counters.faults_minor > 0);
    assert_false(dp_cpu_explain(&cpu, 2, why, sizeof(why)));
}

TEST(a_thread_that_ended_keeps_its_counts, setup, teardown)
{
    dp_cpu_open(&cpu, &fake, gettid(), false);
    dp_cpu_refresh(&cpu);
    uint64_t faults = cpu.counters.faults_minor;
    cpu.tid = -1;
    dp_cpu_refresh(&cpu);
    assert_int_equal(cpu.counters.faults_minor, faults);
    assert_true(faults > 0);
}
