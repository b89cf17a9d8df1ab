/* Files as a kernel writes them, and those of this machine. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "dataplane/loop/thread_stat.h"
#include "tests/test.h"
#include "tests/unit/temporary_directory.h"

static char *root;

static void write_file(const char *name, const char *text)
{
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/%s", root, name);
    for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        (void)mkdir(path, 0700);
        *at = '/';
    }
    FILE *out = fopen(path, "we");
    assert_non_null(out);
    assert_true(fputs(text, out) >= 0);
    assert_int_equal(fclose(out), 0);
}

static int setup(void **state)
{
    root = temporary_directory_make();
    return 0;
}

static int teardown(void **state)
{
    return temporary_directory_remove(root);
}

TEST(a_thread_is_read, setup, teardown)
{
    struct dp_thread_stat t;
    write_file("self/task/42/stat",
               "42 (data-core-0) a) R 1 1 1 0 -1 4194304 12 99 3 98 5 6 7 8 20 0 4 0 222017 3133440 380 "
               "18446744073709551615 1 2 3 4 5 6 7 8 9 0 0 0 17 6 0 0 0 0 0\n");
    write_file("self/task/42/schedstat", "123456789 4567 89\n");
    write_file("self/task/42/status", "Name:\tdata-core-0\nvoluntary_ctxt_switches:\t17\n"
                                      "nonvoluntary_ctxt_switches:\t4\n");
    assert_true(dp_thread_stat_read(root, 42, &t));
    assert_int_equal(t.faults_minor, 12);
    assert_int_equal(t.faults_major, 3);
    assert_int_equal(t.cpu, 6);
    assert_int_equal(t.run_ns, 123456789);
    assert_int_equal(t.wait_ns, 4567);
    assert_int_equal(t.switches_voluntary, 17);
    assert_int_equal(t.switches_forced, 4);
    assert_false(dp_thread_stat_read(root, 43, &t));
}

TEST(a_kernel_without_all_files_tells_what_it_has, setup, teardown)
{
    struct dp_thread_stat t;
    write_file("self/task/7/stat", "7 (x) S 1 1 1 0 -1 4194304 12 99 3");
    assert_true(dp_thread_stat_read(root, 7, &t));
    assert_int_equal(t.faults_minor, 12);
    assert_int_equal(t.cpu + t.run_ns + t.wait_ns + t.switches_forced, 0);
    write_file("self/task/8/stat", "nonsense");
    assert_false(dp_thread_stat_read(root, 8, &t));
}

TEST(a_cpu_is_read, setup, teardown)
{
    struct dp_cpu_stat c;
    const uint64_t us = 1000000u / (uint64_t)sysconf(_SC_CLK_TCK);
    write_file("stat", "cpu  9 9 9 9 9 9 9 9 9 9\n"
                       "cpu0 1 2 3 4 5 6 7 8 0 0\n"
                       "cpu10 1 2 3 4 5 60 70 80 0 0\n"
                       "intr 12345 1 2 3\n");
    assert_true(dp_cpu_stat_read(root, 10, &c));
    assert_int_equal(c.irq_us, 130 * us);
    assert_int_equal(c.steal_us, 80 * us);
    assert_true(dp_cpu_stat_read(root, 0, &c));
    assert_int_equal(c.steal_us, 8 * us);
    assert_false(dp_cpu_stat_read(root, 1, &c));
    assert_int_equal(c.steal_us, 0);
}

TEST(a_node_is_found, setup, teardown)
{
    write_file("devices/system/cpu/cpu3/node2/x", "");
    write_file("devices/system/cpu/cpu4/cache/x", "");
    assert_int_equal(dp_cpu_numa_node(root, 3), 2);
    assert_int_equal(dp_cpu_numa_node(root, 4), 0);
    assert_int_equal(dp_cpu_numa_node(root, 5), 0);
}

TEST(this_machine_tells_the_same)
{
    struct dp_thread_stat before, after;
    struct dp_cpu_stat c;
    assert_true(dp_thread_stat_read("/proc", gettid(), &before));
    assert_true(sched_yield() == 0);
    uint8_t *memory = malloc(64 << 20);
    assert_non_null(memory);
    for (size_t i = 0; i < 64u << 20; i += 4096)
        ((volatile uint8_t *)memory)[i] = 1;
    free(memory);
    assert_true(dp_thread_stat_read("/proc", gettid(), &after));
    assert_true(after.run_ns >= before.run_ns);
    assert_true(after.faults_minor > before.faults_minor);
    assert_true(dp_cpu_stat_read("/proc", after.cpu, &c));
}
