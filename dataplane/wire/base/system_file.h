/* What the kernel says of a machine in files of /proc and /sys: those that both a node and `millrace doctor`
 * look at, and how they are read. Any thread. */
#ifndef MR_SYSTEM_FILE_H
#define MR_SYSTEM_FILE_H

#include <stddef.h>

#define MR_SYSTEM_CPUINFO           "/proc/cpuinfo"
#define MR_SYSTEM_MEMINFO           "/proc/meminfo"
#define MR_SYSTEM_HUGE_PAGES        "HugePages_Total:" /* of meminfo; of the default size */
#define MR_SYSTEM_HUGE_PAGE_SIZE    "Hugepagesize:"    /* of meminfo */
#define MR_SYSTEM_TRANSPARENT       "/sys/kernel/mm/transparent_hugepage/enabled"
#define MR_SYSTEM_NUMA_NODES        "/sys/devices/system/node/online"
#define MR_SYSTEM_CPUS              "/sys/devices/system/cpu"
#define MR_SYSTEM_ISOLATED_CPUS     MR_SYSTEM_CPUS "/isolated"
#define MR_SYSTEM_GOVERNOR          "cpufreq/scaling_governor" /* below the folder of a CPU */
#define MR_SYSTEM_RECEIVE_BYTES_MAX "/proc/sys/net/core/rmem_max"
#define MR_SYSTEM_SEND_BYTES_MAX    "/proc/sys/net/core/wmem_max"
#define MR_SYSTEM_IO_URING_DISABLED "/proc/sys/kernel/io_uring_disabled"

/* Reads the beginning of a file below `root`, "" for the machine itself, into text[text_bytes], with a NUL.
 * Returns text; it is "" when the file cannot be read. */
const char *mr_system_read(const char *root, const char *path, char *text, size_t text_bytes);
/* The same of its first line, without the line's end. */
const char *mr_system_read_line(const char *root, const char *path, char *line, size_t line_bytes);
/* What follows `field` on the line that begins with it; NULL: there is no such line. */
const char *mr_system_field(const char *text, const char *field);

#endif
