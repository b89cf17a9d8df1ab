#include "dataplane/metrics/metrics_process.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define STAT_START_FIELD 22u /* of /proc/self/stat: proc(5) */

/* "name value" in /proc/stat: when the machine started, in seconds since 1970. */
static uint64_t boot_s(void)
{
    FILE *file = fopen("/proc/stat", "re");
    char line[256];
    uint64_t value = 0;
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "btime %" SCNu64, &value) == 1)
            break;
    if (file != NULL)
        fclose(file);
    return value;
}

/* Ticks from the machine's start to the process's. Its name, in brackets, may have blanks and brackets. */
static uint64_t start_ticks(void)
{
    FILE *file = fopen("/proc/self/stat", "re");
    char text[1024] = "";
    uint64_t value = 0;
    if (file == NULL)
        return 0;
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    const char *at = strrchr(text, ')');
    for (uint32_t field = 2; at != NULL && field < STAT_START_FIELD; field++)
        at = strchr(at + 1, ' ');
    return at != NULL && sscanf(at, "%" SCNu64, &value) == 1 ? value : 0;
}

static uint64_t resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    uint64_t pages = 0;
    if (file == NULL)
        return 0;
    if (fscanf(file, "%*u %" SCNu64, &pages) != 1)
        pages = 0;
    fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t cpu_us(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (uint64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000 +
           (uint64_t)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

void mr_metrics_process(struct mr_metrics_text *text, const struct mr_labels *labels)
{
    struct mr_labels build = *labels;
    mr_labels_add(&build, "version", MR_VERSION);
    mr_metrics_family_named(text, "millrace_build_info", MR_GAUGE, MR_UNIT_NONE,
                            "1; the label says which version this is");
    mr_metrics_sample(text, &build, 1);
    const uint64_t ticks_per_s = (uint64_t)sysconf(_SC_CLK_TCK);
    mr_metrics_family_named(text, "process_start_time_seconds", MR_GAUGE, MR_UNIT_MICROSECONDS,
                            "when the process started, in seconds since 1970");
    mr_metrics_sample(text, labels, boot_s() * 1000000 + start_ticks() * 1000000 / ticks_per_s);
    mr_metrics_family_named(text, "process_cpu_seconds", MR_COUNTER, MR_UNIT_MICROSECONDS,
                            "processor time used by the user's and the kernel's part");
    mr_metrics_sample(text, labels, cpu_us());
    mr_metrics_family_named(text, "process_resident_memory_bytes", MR_GAUGE, MR_UNIT_BYTES,
                            "memory of the process that is in the machine's");
    mr_metrics_sample(text, labels, resident_bytes());
}
