#include "dataplane/loop/thread_stat.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES 256
#define TEXT_BYTES 4096

/* Fields of a thread's stat, counted from its name on. */
enum { STAT_MINOR_FAULTS = 8, STAT_MAJOR_FAULTS = 10, STAT_PROCESSOR = 37 };

/* Reads the beginning of a file as text; false: there is none. */
static bool read_text(const char *path, char text[TEXT_BYTES])
{
    FILE *in = fopen(path, "re");
    if (in == NULL)
        return false;
    size_t bytes = fread(text, 1, TEXT_BYTES - 1, in);
    text[bytes] = '\0';
    (void)fclose(in);
    return bytes > 0;
}

static bool read_thread_file(const char *proc, int tid, const char *name, char text[TEXT_BYTES])
{
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof(path), "%s/self/task/%d/%s", proc, tid, name);
    return read_text(path, text);
}

/* The n-th number of those that blanks stand before; 0: there are fewer. */
static uint64_t field(const char *text, uint32_t n)
{
    for (; text != NULL && n > 0; n--)
        text = strchr(text + 1, ' ');
    return text != NULL ? strtoull(text, NULL, 10) : 0;
}

/* The number after a line's name; 0: there is no such line. */
static uint64_t number_after(const char *text, const char *name)
{
    uint64_t value = 0;
    const char *at = strstr(text, name);
    if (at != NULL)
        (void)sscanf(at + strlen(name), "%" SCNu64, &value);
    return value;
}

bool dp_thread_stat_read(const char *proc, int tid, struct dp_thread_stat *out)
{
    char text[TEXT_BYTES];
    *out = (struct dp_thread_stat){0};
    if (!read_thread_file(proc, tid, "stat", text))
        return false;
    const char *after_name = strrchr(text, ')'); /* the name may hold blanks and brackets */
    if (after_name == NULL)
        return false;
    out->faults_minor = field(after_name, STAT_MINOR_FAULTS);
    out->faults_major = field(after_name, STAT_MAJOR_FAULTS);
    out->cpu = (uint32_t)field(after_name, STAT_PROCESSOR);
    if (read_thread_file(proc, tid, "schedstat", text))
        (void)sscanf(text, "%" SCNu64 " %" SCNu64, &out->run_ns, &out->wait_ns);
    if (read_thread_file(proc, tid, "status", text)) {
        out->switches_voluntary = number_after(text, "\nvoluntary_ctxt_switches:");
        out->switches_forced = number_after(text, "\nnonvoluntary_ctxt_switches:");
    }
    return true;
}

bool dp_cpu_stat_read(const char *proc, uint32_t cpu, struct dp_cpu_stat *out)
{
    char path[PATH_BYTES], line[PATH_BYTES];
    uint64_t irq = 0, softirq = 0, steal = 0;
    const uint64_t us = 1000000u / (uint64_t)sysconf(_SC_CLK_TCK);
    bool found = false;
    *out = (struct dp_cpu_stat){0};
    (void)snprintf(path, sizeof(path), "%s/stat", proc);
    FILE *in = fopen(path, "re");
    while (in != NULL && !found && fgets(line, sizeof(line), in) != NULL) {
        uint32_t number;
        found = sscanf(line, "cpu%" SCNu32 " %*u %*u %*u %*u %*u %" SCNu64 " %" SCNu64 " %" SCNu64, &number,
                       &irq, &softirq, &steal) >= 3 &&
                number == cpu;
    }
    if (in != NULL)
        (void)fclose(in);
    if (found)
        *out = (struct dp_cpu_stat){.steal_us = steal * us, .irq_us = (irq + softirq) * us};
    return found;
}

uint32_t dp_cpu_numa_node(const char *sys, uint32_t cpu)
{
    char path[PATH_BYTES];
    uint32_t node = 0;
    (void)snprintf(path, sizeof(path), "%s/devices/system/cpu/cpu%" PRIu32, sys, cpu);
    DIR *directory = opendir(path);
    const struct dirent *entry;
    while (directory != NULL && (entry = readdir(directory)) != NULL)
        if (sscanf(entry->d_name, "node%" SCNu32, &node) == 1)
            break;
    if (directory != NULL)
        (void)closedir(directory);
    return node;
}
