#include "ps/server/facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>
#include "dataplane/dataplane.h"
#include "ps/core/node.h"

#define FACTS_BYTES 8192u
#define LINE_BYTES  512u

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

static void add_machine(FILE *out)
{
    struct utsname system;
    struct sysinfo memory;
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
    read_line("/sys/devices/system/clocksource/clocksource0/current_clocksource", text);
    add(out, "machine.clock_source", text);
    read_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", text);
    add(out, "machine.governor", text);
    read_line("/sys/class/dmi/id/sys_vendor", text);
    add(out, "machine.vendor", text);
    read_line("/sys/kernel/mm/transparent_hugepage/enabled", text);
    add(out, "machine.transparent_huge_pages", text);
}

static void add_port(const struct dp *dp, FILE *out)
{
    add(out, "port.driver", dp_driver_name(dp));
    add(out, "port.driver_why", dp_driver_why(dp));
    add(out, "port.carrier", dp_carrier_name(dp));
    add(out, "port.memory", dp_memory_name(dp));
    add(out, "port.steering", dp_steering_name(dp));
}

char *ps_facts_gather(const struct ps_node *node)
{
    char *text = malloc(FACTS_BYTES);
    FILE *out = text == NULL ? NULL : fmemopen(text, FACTS_BYTES, "w");
    if (out == NULL) {
        free(text);
        return NULL;
    }
    (void)fprintf(out, "millraced = %s\ndpdk = %s\n", MR_VERSION, dp_dpdk_version());
    add_machine(out);
    add_port(node->dp, out);
    for (uint32_t i = 0; i < node->cpu_count; i++)
        (void)fprintf(out, "core.%u.cpu = %d\n", i, node->cpus[i]);
    (void)fclose(out);
    text[FACTS_BYTES - 1] = '\0';
    return text;
}
