#include "dataplane/dpdk/eal.h"
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_log.h>
#include "dataplane/dpdk/hugepages.h"
#include "dataplane/dpdk/runtime_directory.h"

#define EAL_ARGUMENTS_MAX 24
#define LOG_LINE_BYTES    256
#define CPUS_PATH         "/sys/devices/system/cpu"
#define SAYS_NO_CAUSE     "cannot be used" /* the bus's last line about a device; the cause is above it */

static bool eal_started;
static struct dp_runtime_directory runtime_directory;

/* The log's last line at error level or above. DPDK may log from its own threads. */
static struct {
    pthread_mutex_t lock;
    char line[LOG_LINE_BYTES];
    bool to_stderr;
} eal_log = {.lock = PTHREAD_MUTEX_INITIALIZER};

static ssize_t log_write(void *cookie, const char *text, size_t bytes)
{
    if (eal_log.to_stderr)
        (void)fwrite(text, 1, bytes, stderr);
    if (rte_log_cur_msg_loglevel() > (int)RTE_LOG_ERR || bytes <= 1 ||
        memmem(text, bytes, SAYS_NO_CAUSE, strlen(SAYS_NO_CAUSE)) != NULL)
        return (ssize_t)bytes;
    pthread_mutex_lock(&eal_log.lock);
    size_t kept = bytes < sizeof(eal_log.line) ? bytes : sizeof(eal_log.line) - 1;
    memcpy(eal_log.line, text, kept);
    while (kept > 0 && (eal_log.line[kept - 1] == '\n' || eal_log.line[kept - 1] == ' '))
        kept--;
    eal_log.line[kept] = '\0';
    for (char *c = eal_log.line; *c != '\0'; c++)
        if (*c == '\n')
            *c = ' ';
    pthread_mutex_unlock(&eal_log.lock);
    return (ssize_t)bytes;
}

const char *dp_eal_last_error(void)
{
    static char copy[LOG_LINE_BYTES];
    pthread_mutex_lock(&eal_log.lock);
    memcpy(copy, eal_log.line, sizeof(copy));
    pthread_mutex_unlock(&eal_log.lock);
    return copy;
}

void dp_eal_forget_error(void)
{
    pthread_mutex_lock(&eal_log.lock);
    eal_log.line[0] = '\0';
    pthread_mutex_unlock(&eal_log.lock);
}

static bool choose_memory(const struct dp_config *config, bool *hugepages, char error[DP_ERROR_BYTES])
{
    struct dp_hugepages pages = {.free_mib = 0};
    const uint32_t wanted_mib = config->hugepage_memory_mib;
    if (config->hugepages != 0)
        dp_hugepages_find(DP_HUGEPAGES_ROOT, wanted_mib, &pages);
    *hugepages = config->hugepages != 0 && pages.usable_mib >= wanted_mib;
    if (config->hugepages != 1 || *hugepages)
        return true;
    if (pages.free_mib >= wanted_mib)
        snprintf(
            error, DP_ERROR_BYTES,
            "memory: hugepages = always, and %llu MiB are free, but this process may use only %llu MiB of "
            "the "
            "%u MiB wanted: raise the limit of its cgroup (hugetlb.*.max, in Kubernetes hugepages-2Mi), or "
            "set hugepages = auto",
            (unsigned long long)pages.free_mib, (unsigned long long)pages.usable_mib, wanted_mib);
    else
        snprintf(
            error, DP_ERROR_BYTES,
            "memory: hugepages = always, but of the %u MiB wanted only %llu MiB are free; reserve them with "
            "\"sysctl vm.nr_hugepages=%u\", or set hugepages = auto",
            wanted_mib, (unsigned long long)pages.free_mib, wanted_mib / 2 + 1);
    return false;
}

struct arguments {
    char text[EAL_ARGUMENTS_MAX][96];
    char *argv[EAL_ARGUMENTS_MAX + 1];
    int argc;
};

__attribute__((format(printf, 2, 3))) static void add_argument(struct arguments *a, const char *format, ...)
{
    va_list list;
    if (a->argc == EAL_ARGUMENTS_MAX)
        abort();
    va_start(list, format);
    vsnprintf(a->text[a->argc], sizeof(a->text[0]), format, list);
    va_end(list);
    a->argv[a->argc] = a->text[a->argc];
    a->argc++;
}

static void make_arguments(struct arguments *a, const struct dp_config *config, bool hugepages, int cpu)
{
    const char *level = getenv("MILLRACE_DPDK_LOG");
    eal_log.to_stderr = level != NULL && level[0] != '\0';
    add_argument(a, "millraced");
    add_argument(a, "--lcores=0@%d", cpu);
    add_argument(a, "--file-prefix=%s", config->file_prefix);
    /* No files remain either way. */
    if (hugepages) {
        add_argument(a, "--in-memory");
    } else {
        add_argument(a, "--no-huge");
        add_argument(a, "--no-shconf");
    }
    add_argument(a, "-m");
    add_argument(a, "%u", config->hugepage_memory_mib);
    if (config->driver == DP_DRIVER_PCI) {
        add_argument(a, "--allow=%s", config->device);
    } else {
        add_argument(a, "--no-pci");
        add_argument(a, "--iova-mode=va");
    }
    add_argument(a, "--log-level=*:%s", eal_log.to_stderr ? level : "error");
}

/* libbpf and libxdp print warnings to stderr by themselves; what matters of them comes back as a failure of
 * the port. */
static void silence_library(const char *library_name, const char *setter_name)
{
    void *library = dlopen(library_name, RTLD_LAZY | RTLD_NOLOAD);
    void *(*set_print)(void *);
    if (library == NULL)
        return;
    void *symbol = dlsym(library, setter_name);
    memcpy(&set_print, &symbol, sizeof(set_print));
    if (symbol != NULL)
        (void)set_print(NULL);
    dlclose(library);
}

static int first_allowed_cpu(const cpu_set_t *set)
{
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET((size_t)cpu, set))
            return cpu;
    return 0;
}

bool dp_eal_start(const struct dp_config *config, bool *hugepages_used, char error[DP_ERROR_BYTES])
{
    static const cookie_io_functions_t log_functions = {.write = log_write};
    static struct arguments arguments; /* the EAL keeps pointers into it */
    struct rlimit unlimited = {RLIM_INFINITY, RLIM_INFINITY};
    cpu_set_t affinity;
    bool hugepages;
    if (eal_started) {
        snprintf(error, DP_ERROR_BYTES, "the data plane can be started once per process");
        return false;
    }
    if (access(CPUS_PATH, F_OK) != 0) { /* DPDK would print how to use it */
        snprintf(error, DP_ERROR_BYTES,
                 "%s: %s: DPDK finds the processors there: mount -t sysfs sysfs /sys, or let the container "
                 "have it",
                 CPUS_PATH, strerror(errno));
        return false;
    }
    if (!choose_memory(config, &hugepages, error) ||
        !dp_runtime_directory_open(&runtime_directory, config->file_prefix, "/tmp", error))
        return false;
    FILE *stream = fopencookie(NULL, "w", log_functions);
    if (stream != NULL) {
        setvbuf(stream, NULL, _IOLBF, 0);
        rte_openlog_stream(stream);
    }
    /* AF_XDP locks packet memory; without the privilege to raise the limit the port says so when it opens. */
    (void)setrlimit(RLIMIT_MEMLOCK, &unlimited);
    CPU_ZERO(&affinity);
    (void)sched_getaffinity(0, sizeof(affinity), &affinity);
    make_arguments(&arguments, config, hugepages, first_allowed_cpu(&affinity));
    int used = rte_eal_init(arguments.argc, arguments.argv);
    (void)sched_setaffinity(0, sizeof(affinity), &affinity);
    if (used < 0) {
        dp_runtime_directory_remove(&runtime_directory);
        snprintf(error, DP_ERROR_BYTES,
                 "DPDK does not start with %u MiB of %s memory: %s (%s); MILLRACE_DPDK_LOG=debug shows all "
                 "it says",
                 config->hugepage_memory_mib, hugepages ? "hugepage" : "ordinary", rte_strerror(rte_errno),
                 dp_eal_last_error());
        return false;
    }
    eal_started = true;
    if (!eal_log.to_stderr) {
        silence_library("libbpf.so.1", "libbpf_set_print");
        silence_library("libxdp.so.1", "libxdp_set_print");
    }
    *hugepages_used = hugepages;
    return true;
}

void dp_eal_stop(void)
{
    (void)rte_eal_cleanup();
    dp_runtime_directory_remove(&runtime_directory);
}
