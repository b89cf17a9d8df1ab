/* A machine made of files: /proc and /sys below a directory of the test's own. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/test.h"
#include "tests/unit/temporary_directory.h"
#include "tools/doctor/doctor_facts.h"

static char *root;

static void full_path(const char *path, char out[512])
{
    (void)snprintf(out, 512, "%s%s", root, path);
    for (char *slash = strchr(out + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(out, 0755) != 0 && errno != EEXIST)
            fail_msg("mkdir %s: %s", out, strerror(errno));
        *slash = '/';
    }
}

static void doctor_facts_put(const char *path, const char *text)
{
    char full[512];
    full_path(path, full);
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void put_link(const char *path, const char *target)
{
    char full[512];
    full_path(path, full);
    assert_int_equal(symlink(target, full), 0);
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

TEST(test_a_whole_machine, setup, teardown)
{
    doctor_facts_put("/proc/meminfo",
                     "HugePages_Total:    1024\nHugePages_Free:      512\nHugepagesize:       2048 kB\n");
    doctor_facts_put("/proc/self/limits",
                     "Max locked memory         65536                65536                bytes\n");
    doctor_facts_put("/proc/self/status", "CapEff:\t0000000000003000\n");
    doctor_facts_put("/proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t: sse4_2 avx2\n");
    doctor_facts_put("/proc/sys/kernel/osrelease", "5.10.0-9-amd64\n");
    doctor_facts_put("/proc/sys/kernel/io_uring_disabled", "2\n");
    doctor_facts_put("/proc/sys/net/core/rmem_max", "212992\n");
    doctor_facts_put("/proc/sys/net/core/wmem_max", "425984\n");
    doctor_facts_put("/proc/net/protocols", "protocol  size\nXDP       1024\nPACKET    1536\n");
    doctor_facts_put("/dev/net/tun", "");
    doctor_facts_put("/sys/devices/system/node/online", "0-1\n");
    doctor_facts_put("/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages", "1024\n");
    doctor_facts_put("/sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages", "0\n");
    doctor_facts_put("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
    doctor_facts_put("/sys/devices/system/cpu/online", "0-7\n");
    doctor_facts_put("/sys/devices/system/cpu/isolated", "6-7\n");
    doctor_facts_put("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n");
    doctor_facts_put("/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n");
    doctor_facts_put("/sys/devices/system/cpu/cpufreq/boost", "1\n");
    doctor_facts_put("/sys/class/net/lo/mtu", "65536\n");
    doctor_facts_put("/sys/class/net/ens5/operstate", "up\n");
    doctor_facts_put("/sys/class/net/ens5/mtu", "9001\n");
    doctor_facts_put("/sys/class/net/ens5/device/numa_node", "1\n");
    put_link("/sys/class/net/ens5/device/driver", "../../../bus/pci/drivers/ena");
    doctor_facts_put("/sys/class/net/ens5/queues/rx-0/rps_cpus", "00\n");
    doctor_facts_put("/sys/class/net/ens5/queues/rx-1/rps_cpus", "00\n");
    doctor_facts_put("/sys/class/net/ens5/queues/tx-2/xps_cpus", "00\n");
    doctor_facts_put("/sys/class/net/docker0/mtu", "1500\n");
    doctor_facts_put("/sys/bus/pci/drivers/vfio-pci/new_id", "");
    put_link("/sys/bus/pci/drivers/vfio-pci/0000:3b:00.0", "../../0000:3b:00.0");

    struct doctor_facts f;
    doctor_read(root, &f);
    assert_true(f.has_proc);
    assert_int_equal(f.hugepages_total, 1024);
    assert_int_equal(f.hugepages_free, 512);
    assert_int_equal(f.hugepage_kib, 2048);
    assert_int_equal(f.node_count, 2);
    assert_int_equal(f.node_hugepages[0], 1024);
    assert_int_equal(f.node_hugepages[1], 0);
    assert_string_equal(f.huge_transparent, "never");
    assert_int_equal(f.memory_lock_bytes, 65536);
    assert_int_equal(f.capabilities, 0x3000);
    assert_int_equal(f.cpu_count, 8);
    assert_int_equal(f.isolated_count, 2);
    assert_string_equal(f.isolated, "6-7");
    assert_int_equal(f.governed_count, 2);
    assert_int_equal(f.slow_governor_count, 1);
    assert_string_equal(f.governor, "powersave");
    assert_true(f.is_x86 && f.has_sse42 && f.has_avx2 && !f.has_avx512);
    assert_int_equal(f.nic_count, 2);
    assert_string_equal(f.nics[0].name, "docker0");
    assert_string_equal(f.nics[0].driver, "");
    assert_int_equal(f.nics[0].numa_node, -1);
    assert_string_equal(f.nics[1].name, "ens5");
    assert_string_equal(f.nics[1].driver, "ena");
    assert_string_equal(f.nics[1].state, "up");
    assert_int_equal(f.nics[1].mtu, 9001);
    assert_int_equal(f.nics[0].queue_count, 0);
    assert_int_equal(f.nics[1].queue_count, 2);
    assert_int_equal(f.nics[1].numa_node, 1);
    assert_int_equal(f.dpdk_nic_count, 1);
    assert_int_equal(f.rmem_max, 212992);
    assert_int_equal(f.wmem_max, 425984);
    assert_true(f.has_af_xdp && f.has_af_packet && f.has_tun);
    assert_string_equal(f.release, "5.10.0-9-amd64");
    assert_int_equal(f.kernel_major, 5);
    assert_int_equal(f.kernel_minor, 10);
    assert_true(f.has_io_uring_switch);
    assert_int_equal(f.io_uring_disabled, 2);
    assert_int_equal(f.io_uring_error, 0); /* another machine's is not tried here */
}

TEST(test_an_empty_directory, setup, teardown)
{
    struct doctor_facts f, zero = {0};
    doctor_read(root, &f);
    assert_memory_equal(&f, &zero, sizeof(f));
}

TEST(test_more_nics_than_are_kept, setup, teardown)
{
    for (uint32_t i = 0; i < DOCTOR_NICS_MAX + 5; i++) {
        char path[64];
        (void)snprintf(path, sizeof(path), "/sys/class/net/veth%u/mtu", i);
        doctor_facts_put(path, "1500\n");
    }
    struct doctor_facts f;
    doctor_read(root, &f);
    assert_int_equal(f.nic_count, DOCTOR_NICS_MAX);
}
