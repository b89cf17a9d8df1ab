/* A performance event that the watched thread itself reads, by an instruction and without a system call:
 * where processor and kernel allow it, for what is too short to ask the kernel. */
#ifndef DP_PERF_PAGE_H
#define DP_PERF_PAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <linux/perf_event.h>

/* The kernel's page of an open event; NULL: it gives none. */
struct perf_event_mmap_page *dp_perf_page_map(int fd);
void dp_perf_page_unmap(struct perf_event_mmap_page *page); /* NULL is fine */

/* Reads counter `index` of this processor. NULL where there is no such instruction. */
typedef uint64_t dp_read_counter(uint32_t index);
extern dp_read_counter *const dp_read_processor_counter;

/* What the event has counted so far. The thread that is watched. False: not now, because the event has no
 * counter at the moment, or never, because user space may not read it. */
bool dp_perf_page_read(const volatile struct perf_event_mmap_page *page, dp_read_counter *read_counter,
                       uint64_t *value);

#endif
