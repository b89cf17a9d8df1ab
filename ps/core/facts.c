#include "ps/core/facts.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>
#include "dataplane/dataplane.h"
#include "ps/config/config_reload.h"
#include "ps/core/node.h"

#define LINE_BYTES 512u

struct ps_facts {
    pthread_mutex_t lock; /* of the configuration */
    struct ps_config config;
    char *machine;
};

/* The first line of a file; "": there is none. */
static void read_line(const char *path, char line[LINE_BYTES])
{
    FILE *f = fopen(path, "re");
    line[0] = '\0';
    if (f == NULL)
        return;
    if (fgets(line, LINE_BYTES, f) == NULL)
        line[0] = '\0';
    (void)fclose(f);
    line[strcspn(line, "\n")] = '\0';
}

/* The value of "name : value" in a file of /proc; "": it is not there. */
static void read_value(const char *path, const char *name, char value[LINE_BYTES])
{
    char line[LINE_BYTES];
    FILE *f = fopen(path, "re");
    value[0] = '\0';
    while (f != NULL && value[0] == '\0' && fgets(line, sizeof(line), f) != NULL) {
        const char *colon = strchr(line, ':');
        if (colon == NULL || strncmp(line, name, strlen(name)) != 0)
            continue;
        (void)snprintf(value, LINE_BYTES, "%s", colon + 1 + strspn(colon + 1, " \t"));
        value[strcspn(value, "\n")] = '\0';
    }
    if (f != NULL)
        (void)fclose(f);
}

static void add(FILE *out, const char *name, const char *value)
{
    if (value[0] != '\0')
        (void)fprintf(out, "%s = %s\n", name, value);
}

/* What millrace doctor looks at, too. */
static const struct {
    const char *name, *path;
} files[] = {
    {"machine.clock_source", "/sys/devices/system/clocksource/clocksource0/current_clocksource"},
    {"machine.governor", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"},
    {"machine.isolated_cpus", "/sys/devices/system/cpu/isolated"},
    {"machine.smt", "/sys/devices/system/cpu/smt/control"},
    {"machine.numa_nodes", "/sys/devices/system/node/online"},
    {"machine.vendor", "/sys/class/dmi/id/sys_vendor"},
    {"machine.transparent_huge_pages", "/sys/kernel/mm/transparent_hugepage/enabled"},
    {"machine.receive_buffer_max", "/proc/sys/net/core/rmem_max"},
    {"machine.send_buffer_max", "/proc/sys/net/core/wmem_max"},
    {"machine.io_uring_disabled", "/proc/sys/kernel/io_uring_disabled"},
};

static void add_machine(FILE *out)
{
    struct utsname system;
    struct sysinfo memory;
    struct rlimit locked;
    char text[LINE_BYTES];
    if (uname(&system) == 0)
        (void)fprintf(out, "machine.host = %s\nmachine.kernel = %s %s\n", system.nodename, system.sysname,
                      system.release);
    read_value("/proc/cpuinfo", "model name", text);
    add(out, "machine.processor", text);
    (void)fprintf(out, "machine.cpus = %ld\n", sysconf(_SC_NPROCESSORS_ONLN));
    if (sysinfo(&memory) == 0)
        (void)fprintf(out, "machine.memory_mib = %llu\n",
                      (unsigned long long)memory.totalram * memory.mem_unit >> 20);
    read_value("/proc/meminfo", "HugePages_Total", text);
    add(out, "machine.huge_pages", text);
    read_value("/proc/meminfo", "Hugepagesize", text);
    add(out, "machine.huge_page_size", text);
    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
        read_line(files[i].path, text);
        add(out, files[i].name, text);
    }
    if (getrlimit(RLIMIT_MEMLOCK, &locked) == 0 && locked.rlim_cur != RLIM_INFINITY)
        (void)fprintf(out, "machine.memory_lock_bytes = %llu\n", (unsigned long long)locked.rlim_cur);
}

static void add_port(const struct dp *dp, FILE *out)
{
    add(out, "port.driver", dp_driver_name(dp));
    add(out, "port.driver_why", dp_driver_why(dp));
    add(out, "port.carrier", dp_carrier_name(dp));
    add(out, "port.memory", dp_memory_name(dp));
    add(out, "port.steering", dp_steering_name(dp));
}

static char *gather(const struct ps_node *node)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (out == NULL)
        return NULL;
    (void)fprintf(out, "millraced = %s\ndpdk = %s\n", MR_VERSION, dp_dpdk_version());
    add_machine(out);
    add_port(node->dp, out);
    for (uint32_t i = 0; i < node->cpu_count; i++)
        (void)fprintf(out, "core.%u.cpu = %d\n", i, node->cpus[i]);
    (void)fclose(out);
    return text;
}

struct ps_facts *ps_facts_create(const struct ps_node *node)
{
    struct ps_facts *f = calloc(1, sizeof(*f));
    if (f == NULL)
        return NULL;
    (void)pthread_mutex_init(&f->lock, NULL);
    f->config = *node->config;
    f->machine = gather(node);
    return f;
}

void ps_facts_destroy(struct ps_facts *f)
{
    if (f == NULL)
        return;
    (void)pthread_mutex_destroy(&f->lock);
    free(f->machine);
    free(f);
}

void ps_facts_take(struct ps_facts *f, const struct ps_config *fresh, uint32_t key)
{
    if (f == NULL)
        return;
    pthread_mutex_lock(&f->lock);
    ps_config_take(&f->config, fresh, key);
    pthread_mutex_unlock(&f->lock);
}

static void print_config(const struct ps_config *config, FILE *out)
{
    char name[PS_CONFIG_SHOWN_BYTES], value[PS_CONFIG_SHOWN_BYTES];
    for (uint32_t key = 0; key < PS_CONFIG_KEY_COUNT; key++) {
        ps_config_key_name(key, name);
        ps_config_show(config, key, value);
        (void)fprintf(out, "config.%s = %s\n", name, value);
    }
}

char *ps_facts_text(struct ps_facts *f)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (out == NULL)
        return NULL;
    if (f != NULL) {
        (void)fputs(f->machine != NULL ? f->machine : "", out);
        pthread_mutex_lock(&f->lock);
        print_config(&f->config, out);
        pthread_mutex_unlock(&f->lock);
    }
    (void)fclose(out);
    return text;
}
