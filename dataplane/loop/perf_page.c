#include "dataplane/loop/perf_page.h"

#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
static uint64_t read_pmc(uint32_t index)
{
    return (uint64_t)__builtin_ia32_rdpmc((int)index);
}

dp_read_counter *const dp_read_processor_counter = read_pmc;
#else
dp_read_counter *const dp_read_processor_counter = NULL;
#endif

struct perf_event_mmap_page *dp_perf_page_map(int fd)
{
    void *page = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ, MAP_SHARED, fd, 0);
    return page != MAP_FAILED ? page : NULL;
}

void dp_perf_page_unmap(struct perf_event_mmap_page *page)
{
    if (page != NULL)
        (void)munmap(page, (size_t)sysconf(_SC_PAGESIZE));
}

/* A counter has fewer than 64 bits, and its sign: the kernel lets it overflow at 0. */
static int64_t widened(uint64_t counter, uint32_t bits)
{
    const uint32_t unused = bits > 0 && bits < 64 ? 64 - bits : 0;
    return (int64_t)(counter << unused) >> unused;
}

bool dp_perf_page_read(const volatile struct perf_event_mmap_page *page, dp_read_counter *read_counter,
                       uint64_t *value)
{
    uint32_t before;
    if (page == NULL || read_counter == NULL)
        return false;
    do { /* the kernel counts `lock` up when it moves the event */
        before = page->lock;
        atomic_signal_fence(memory_order_seq_cst);
        const uint32_t index = page->index;
        if (!page->cap_user_rdpmc || index == 0)
            return false;
        *value = (uint64_t)page->offset + (uint64_t)widened(read_counter(index - 1), page->pmc_width);
        atomic_signal_fence(memory_order_seq_cst);
    } while (page->lock != before);
    return true;
}
