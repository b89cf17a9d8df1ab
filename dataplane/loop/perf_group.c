#include "dataplane/loop/perf_group.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "dataplane/loop/perf_page.h"

static int kernel_open(struct perf_event_attr *attributes, pid_t tid, int leader)
{
    return (int)syscall(SYS_perf_event_open, attributes, tid, -1, leader, PERF_FLAG_FD_CLOEXEC);
}

static int kernel_enable(int leader)
{
    return ioctl(leader, PERF_EVENT_IOC_ENABLE, 0);
}

const struct dp_perf_calls dp_perf_kernel = {.open = kernel_open,
                                             .enable = kernel_enable,
                                             .read = read,
                                             .close = close,
                                             .map = dp_perf_page_map,
                                             .unmap = dp_perf_page_unmap};

int dp_perf_group_open(struct dp_perf_group *group, const struct dp_perf_calls *calls, pid_t tid,
                       const struct dp_perf_event *events, uint32_t count, bool user_only)
{
    int error = ENOENT;
    *group = (struct dp_perf_group){.count = 0};
    for (uint32_t i = 0; i < count && group->count < DP_PERF_GROUP_MAX; i++) {
        struct perf_event_attr attributes = {
            .size = sizeof(attributes),
            .type = events[i].type,
            .config = events[i].config,
            .disabled =
                group->count == 0, /* until all are there: then they are put on the processor together */
            .exclude_kernel = user_only,
            .exclude_hv = user_only,
            .read_format =
                PERF_FORMAT_GROUP | PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING};
        int fd = calls->open(&attributes, tid, group->count > 0 ? group->fds[0] : -1);
        if (fd >= 0) {
            group->events[group->count] = (uint8_t)i;
            group->fds[group->count++] = fd;
        } else if (i == 0) {
            error = errno;
        }
    }
    if (group->count == 0)
        return error;
    if (calls->enable(group->fds[0]) == 0)
        return 0;
    error = errno;
    dp_perf_group_close(group, calls);
    return error;
}

static uint64_t scaled(uint64_t counted, uint64_t enabled, uint64_t running)
{
    return running >= enabled ? counted : (uint64_t)((unsigned __int128)counted * enabled / running);
}

bool dp_perf_group_read(struct dp_perf_group *group, const struct dp_perf_calls *calls, uint64_t *sums)
{
    struct {
        uint64_t count, enabled, running, values[DP_PERF_GROUP_MAX];
    } now;
    const size_t bytes = offsetof(typeof(now), values) + group->count * sizeof(uint64_t);
    if (group->count == 0 || calls->read(group->fds[0], &now, bytes) != (ssize_t)bytes ||
        now.count != group->count)
        return false;
    const uint64_t running = now.running - group->last_running;
    if (running == 0)
        return true;
    for (uint32_t i = 0; i < group->count; i++) {
        sums[group->events[i]] +=
            scaled(now.values[i] - group->last[i], now.enabled - group->last_enabled, running);
        group->last[i] = now.values[i];
    }
    group->last_enabled = now.enabled;
    group->last_running = now.running;
    return true;
}

void dp_perf_group_close(struct dp_perf_group *group, const struct dp_perf_calls *calls)
{
    while (group->count > 0) /* the leader last */
        (void)calls->close(group->fds[--group->count]);
}
