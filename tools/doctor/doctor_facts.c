#include "tools/doctor/doctor_facts.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "dataplane/wire/base/system_file.h"
#include "tools/doctor/doctor_parse.h"

#define TEXT_BYTES 65536u /* of one file; the first cpu in /proc/cpuinfo is enough */
#define PATH_BYTES 512u

struct reader {
    const char *root;
    char text[TEXT_BYTES];
};

/* The file's beginning in r->text, "" when it cannot be read. */
static const char *read_file(struct reader *r, const char *path)
{
    return mr_system_read(r->root, path, r->text, sizeof(r->text));
}

/* Calls visit for each name in a directory, at most 4096. */
static void each_name(struct reader *r, const char *path, struct doctor_facts *facts,
                      void (*visit)(struct reader *r, struct doctor_facts *facts, const char *name))
{
    char full[PATH_BYTES];
    if (snprintf(full, sizeof(full), "%s%s", r->root, path) >= (int)sizeof(full))
        return;
    DIR *directory = opendir(full);
    const struct dirent *entry;
    for (uint32_t i = 0; directory && i < 4096 && (entry = readdir(directory)); i++)
        if (entry->d_name[0] != '.')
            visit(r, facts, entry->d_name);
    if (directory)
        closedir(directory);
}

static void read_memory(struct reader *r, struct doctor_facts *f)
{
    const char *meminfo = read_file(r, MR_SYSTEM_MEMINFO);
    f->has_proc = meminfo[0] != '\0';
    (void)tool_field_u64(meminfo, MR_SYSTEM_HUGE_PAGES, &f->hugepages_total);
    (void)tool_field_u64(meminfo, "HugePages_Free:", &f->hugepages_free);
    (void)tool_field_u64(meminfo, MR_SYSTEM_HUGE_PAGE_SIZE, &f->hugepage_kib);
    (void)tool_list_count(read_file(r, MR_SYSTEM_NUMA_NODES), &f->node_count);
    for (uint32_t node = 0; node < f->node_count && node < DOCTOR_NODES_MAX; node++) {
        char path[128];
        (void)snprintf(path, sizeof(path),
                       "/sys/devices/system/node/node%u/hugepages/hugepages-%llukB/nr_hugepages", node,
                       (unsigned long long)f->hugepage_kib);
        (void)tool_field_u64(read_file(r, path), "", &f->node_hugepages[node]);
    }
    (void)tool_selected(read_file(r, MR_SYSTEM_TRANSPARENT), f->huge_transparent,
                        sizeof(f->huge_transparent));
    (void)tool_limit(read_file(r, "/proc/self/limits"), "Max locked memory", &f->memory_lock_bytes);
}

static void read_governor(struct reader *r, struct doctor_facts *f, const char *name)
{
    char path[PATH_BYTES], governor[32];
    if (strncmp(name, "cpu", 3) != 0 || name[3] < '0' || name[3] > '9')
        return;
    (void)snprintf(path, sizeof(path), MR_SYSTEM_CPUS "/%.64s/" MR_SYSTEM_GOVERNOR, name);
    (void)mr_system_read_line(r->root, path, governor, sizeof(governor));
    if (governor[0] == '\0')
        return;
    f->governed_count++;
    if (strcmp(governor, "performance") != 0) {
        f->slow_governor_count++;
        memcpy(f->governor, governor, sizeof(governor));
    }
}

static void read_cpus(struct reader *r, struct doctor_facts *f)
{
    (void)tool_list_count(read_file(r, MR_SYSTEM_CPUS "/online"), &f->cpu_count);
    (void)mr_system_read_line(r->root, MR_SYSTEM_ISOLATED_CPUS, f->isolated, sizeof(f->isolated));
    (void)tool_list_count(f->isolated, &f->isolated_count);
    each_name(r, MR_SYSTEM_CPUS, f, read_governor);
    const char *cpuinfo = read_file(r, MR_SYSTEM_CPUINFO);
    f->has_sse42 = tool_line_has_word(cpuinfo, "flags", "sse4_2");
    f->has_avx2 = tool_line_has_word(cpuinfo, "flags", "avx2");
    f->has_avx512 = tool_line_has_word(cpuinfo, "flags", "avx512f");
    f->is_x86 = strncmp(cpuinfo, "processor", 9) == 0 && strstr(cpuinfo, "vendor_id") != NULL;
}

/* The last part of what a symbolic link points at, "" when there is none. */
static void link_name(struct reader *r, const char *path, char *out, size_t out_bytes)
{
    char full[PATH_BYTES], target[PATH_BYTES];
    out[0] = '\0';
    if (snprintf(full, sizeof(full), "%s%s", r->root, path) >= (int)sizeof(full))
        return;
    ssize_t n = readlink(full, target, sizeof(target) - 1);
    if (n <= 0)
        return;
    target[n] = '\0';
    const char *slash = strrchr(target, '/');
    (void)snprintf(out, out_bytes, "%.*s", (int)out_bytes - 1, slash ? slash + 1 : target);
}

/* Receive queues are directories rx-0, rx-1, ... */
static uint32_t count_queues(const struct reader *r, const char *name)
{
    char path[PATH_BYTES];
    uint32_t count = 0;
    do {
        int n = snprintf(path, sizeof(path), "%s/sys/class/net/%.64s/queues/rx-%u", r->root, name, count);
        if (n >= (int)sizeof(path) || access(path, F_OK) != 0)
            break;
    } while (++count < DOCTOR_QUEUES_MAX);
    return count;
}

static void read_nic(struct reader *r, struct doctor_facts *f, const char *name)
{
    if (f->nic_count == DOCTOR_NICS_MAX || strcmp(name, "lo") == 0 || strcmp(name, "bonding_masters") == 0)
        return;
    struct doctor_nic *nic = &f->nics[f->nic_count++];
    char path[PATH_BYTES], number[32];
    *nic = (struct doctor_nic){.numa_node = -1};
    (void)snprintf(nic->name, sizeof(nic->name), "%.31s", name);
    (void)snprintf(path, sizeof(path), "/sys/class/net/%.64s/device/driver", name);
    link_name(r, path, nic->driver, sizeof(nic->driver));
    (void)snprintf(path, sizeof(path), "/sys/class/net/%.64s/operstate", name);
    (void)mr_system_read_line(r->root, path, nic->state, sizeof(nic->state));
    (void)snprintf(path, sizeof(path), "/sys/class/net/%.64s/mtu", name);
    (void)mr_system_read_line(r->root, path, number, sizeof(number));
    nic->mtu = (uint32_t)strtoul(number, NULL, 10);
    nic->queue_count = count_queues(r, name);
    (void)snprintf(path, sizeof(path), "/sys/class/net/%.64s/device/numa_node", name);
    (void)mr_system_read_line(r->root, path, number, sizeof(number));
    if (number[0] != '\0')
        nic->numa_node = (int32_t)strtol(number, NULL, 10);
}

/* PCI devices are links named by their address below the driver's directory. */
static void count_device(struct reader *r, struct doctor_facts *f, const char *name)
{
    if (strchr(name, ':'))
        f->dpdk_nic_count++;
}

static int compare_nics(const void *a, const void *b)
{
    return strcmp(((const struct doctor_nic *)a)->name, ((const struct doctor_nic *)b)->name);
}

static void read_network(struct reader *r, struct doctor_facts *f)
{
    static const char *const drivers[] = {"vfio-pci", "igb_uio", "uio_pci_generic"};
    each_name(r, "/sys/class/net", f, read_nic);
    qsort(f->nics, f->nic_count, sizeof(*f->nics), compare_nics);
    for (size_t i = 0; i < sizeof(drivers) / sizeof(*drivers); i++) {
        char path[64];
        (void)snprintf(path, sizeof(path), "/sys/bus/pci/drivers/%s", drivers[i]);
        each_name(r, path, f, count_device);
    }
    (void)tool_field_u64(read_file(r, MR_SYSTEM_RECEIVE_BYTES_MAX), "", &f->rmem_max);
    (void)tool_field_u64(read_file(r, MR_SYSTEM_SEND_BYTES_MAX), "", &f->wmem_max);
    const char *protocols = read_file(r, "/proc/net/protocols");
    f->has_af_xdp = tool_has_protocol(protocols, "XDP");
    f->has_af_packet = tool_has_protocol(protocols, "PACKET");
    char path[PATH_BYTES];
    f->has_tun = snprintf(path, sizeof(path), "%s/dev/net/tun", r->root) < (int)sizeof(path) &&
                 access(path, F_OK) == 0;
}

static void read_kernel(struct reader *r, struct doctor_facts *f)
{
    (void)mr_system_read_line(r->root, "/proc/sys/kernel/osrelease", f->release, sizeof(f->release));
    (void)tool_release(f->release, &f->kernel_major, &f->kernel_minor);
    f->has_io_uring_switch =
        tool_field_u64(read_file(r, MR_SYSTEM_IO_URING_DISABLED), "", &f->io_uring_disabled);
    (void)tool_field_hex(read_file(r, "/proc/self/status"), "CapEff:", &f->capabilities);
    /* Without parameters the call fails in any case, but in another way where it is forbidden. */
    if (r->root[0] == '\0' && syscall(SYS_io_uring_setup, 1, NULL) < 0 && (errno == ENOSYS || errno == EPERM))
        f->io_uring_error = errno;
}

void doctor_read(const char *root, struct doctor_facts *facts)
{
    memset(facts, 0, sizeof(*facts));
    struct reader *r = malloc(sizeof(*r));
    if (!r)
        return;
    r->root = root;
    read_memory(r, facts);
    read_cpus(r, facts);
    read_network(r, facts);
    read_kernel(r, facts);
    free(r);
}
