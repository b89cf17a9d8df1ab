/* Groups of the kernel's performance events of one thread: opened, read and scaled.
 *
 * The events of a group are counted together or not at all. Where the processor has fewer counters than there
 * are groups, the kernel takes turns; what was counted is scaled by the time that it was not. An event that
 * the processor does not know is left out of its group. The counts may be read by any thread of the process:
 * the one that is watched is not disturbed, but for an interrupt of about a microsecond.
 */
#ifndef DP_PERF_GROUP_H
#define DP_PERF_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <linux/perf_event.h>

#define DP_PERF_GROUP_MAX 4u /* events of one group: as many as nearly every processor counts at once */

/* The kernel, or a test in its place. Each returns -1 and sets errno on failure. */
struct dp_perf_calls {
    int (*open)(struct perf_event_attr *attributes, pid_t tid, int leader); /* leader -1: it leads */
    int (*enable)(int leader);                                              /* and those that it leads */
    ssize_t (*read)(int fd, void *to, size_t bytes);
    int (*close)(int fd);
    struct perf_event_mmap_page *(*map)(int fd); /* as dp_perf_page_map() */
    void (*unmap)(struct perf_event_mmap_page *page);
};
extern const struct dp_perf_calls dp_perf_kernel;

struct dp_perf_event {
    uint32_t type; /* PERF_TYPE_... */
    uint64_t config;
};

struct dp_perf_group {
    uint32_t count; /* 0: none was opened */
    int fds[DP_PERF_GROUP_MAX];
    uint8_t events[DP_PERF_GROUP_MAX]; /* which of those that were asked for */
    uint64_t last[DP_PERF_GROUP_MAX], last_enabled, last_running;
};

/* Opens those of `count` events of thread `tid` that the processor has; with `user_only` they are not counted
 * in the kernel. 0: at least one was opened, else the errno of the first. */
int dp_perf_group_open(struct dp_perf_group *group, const struct dp_perf_calls *calls, pid_t tid,
                       const struct dp_perf_event *events, uint32_t count, bool user_only);
/* Adds to sums[event] what has happened since the last read, scaled. While the group has no turn its sums
 * stay as they are; the next read estimates that time as well. False: the thread has ended, or nothing could
 * be read. */
bool dp_perf_group_read(struct dp_perf_group *group, const struct dp_perf_calls *calls, uint64_t *sums);
void dp_perf_group_close(struct dp_perf_group *group, const struct dp_perf_calls *calls);

#endif
