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
#include "dataplane/wire/base/system_file.h"
#include "ps/config/config_reload.h"
#include "ps/core/node.h"

#define TEXT_BYTES 8192u /* of one file; the first CPU in cpuinfo is enough */

struct ps_facts {
    pthread_mutex_t lock; /* of the configuration */
    struct ps_config config;
    char *machine;
};

static void facts_add(FILE *out, const char *name, const char *value)
{
    if (value[0] != '\0')
        (void)fprintf(out, "%s = %s\n", name, value);
}

/* Files of one line. */
static const struct {
    const char *name, *path;
} files[] = {
    {"machine.clock_source", "/sys/devices/system/clocksource/clocksource0/current_clocksource"},
    {"machine.governor", MR_SYSTEM_CPUS "/cpu0/" MR_SYSTEM_GOVERNOR},
    {"machine.isolated_cpus", MR_SYSTEM_ISOLATED_CPUS},
    {"machine.smt", MR_SYSTEM_CPUS "/smt/control"},
    {"machine.numa_nodes", MR_SYSTEM_NUMA_NODES},
    {"machine.vendor", "/sys/class/dmi/id/sys_vendor"},
    {"machine.transparent_huge_pages", MR_SYSTEM_TRANSPARENT},
    {"machine.receive_buffer_max", MR_SYSTEM_RECEIVE_BYTES_MAX},
    {"machine.send_buffer_max", MR_SYSTEM_SEND_BYTES_MAX},
    {"machine.io_uring_disabled", MR_SYSTEM_IO_URING_DISABLED},
};

/* What follows a field of a file, as far as it is there. */
static void add_field(FILE *out, const char *name, const char *file, const char *field)
{
    const char *value = mr_system_field(file, field);
    if (value == NULL)
        return;
    value += strspn(value, " \t:");
    const int bytes = (int)strcspn(value, "\n");
    if (bytes > 0)
        (void)fprintf(out, "%s = %.*s\n", name, bytes, value);
}

static void add_machine(FILE *out)
{
    struct utsname system;
    struct sysinfo memory;
    struct rlimit locked;
    char text[TEXT_BYTES];
    if (uname(&system) == 0)
        (void)fprintf(out, "machine.host = %s\nmachine.kernel = %s %s\n", system.nodename, system.sysname,
                      system.release);
    add_field(out, "machine.processor", mr_system_read("", MR_SYSTEM_CPUINFO, text, sizeof(text)),
              "model name");
    (void)fprintf(out, "machine.cpus = %ld\n", sysconf(_SC_NPROCESSORS_ONLN));
    if (sysinfo(&memory) == 0)
        (void)fprintf(out, "machine.memory_mib = %llu\n",
                      (unsigned long long)memory.totalram * memory.mem_unit >> 20);
    (void)mr_system_read("", MR_SYSTEM_MEMINFO, text, sizeof(text));
    add_field(out, "machine.huge_pages", text, MR_SYSTEM_HUGE_PAGES);
    add_field(out, "machine.huge_page_size", text, MR_SYSTEM_HUGE_PAGE_SIZE);
    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
        facts_add(out, files[i].name, mr_system_read_line("", files[i].path, text, sizeof(text)));
    if (getrlimit(RLIMIT_MEMLOCK, &locked) == 0 && locked.rlim_cur != RLIM_INFINITY)
        (void)fprintf(out, "machine.memory_lock_bytes = %llu\n", (unsigned long long)locked.rlim_cur);
}

static void add_port(const struct dp *dp, FILE *out)
{
    facts_add(out, "port.driver", dp_driver_name(dp));
    facts_add(out, "port.driver_why", dp_driver_why(dp));
    facts_add(out, "port.carrier", dp_carrier_name(dp));
    facts_add(out, "port.memory", dp_memory_name(dp));
    facts_add(out, "port.steering", dp_steering_name(dp));
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
