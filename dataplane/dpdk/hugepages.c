#include "dataplane/dpdk/hugepages.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MAP_HUGE_SHIFT
#define MAP_HUGE_SHIFT 26
#endif

static int hugepages_flags(uint64_t page_bytes)
{
    return MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | (__builtin_ctzll(page_bytes) << MAP_HUGE_SHIFT);
}

/* Whether the process can have so many bytes of such pages at once. A limit that is met when a page is
 * touched ends a process with SIGBUS; asked for in this way, it is an error. Kernels before 5.14 cannot be
 * asked. */
static bool hugepages_can_have(uint64_t page_bytes, uint64_t bytes)
{
    void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, hugepages_flags(page_bytes), -1, 0);
    if (pages == MAP_FAILED)
        return false;
    const bool is_had = madvise(pages, bytes, MADV_POPULATE_WRITE) == 0 || errno == EINVAL;
    (void)munmap(pages, bytes);
    return is_had;
}

/* Returns how many of `count` pages the process can have. */
static uint64_t hugepages_usable(uint64_t page_bytes, uint64_t count)
{
    uint64_t good = 0, bad = count;
    if (count == 0 || hugepages_can_have(page_bytes, count * page_bytes))
        return count;
    while (good + 1 < bad) {
        const uint64_t middle = good + (bad - good) / 2;
        if (hugepages_can_have(page_bytes, middle * page_bytes))
            good = middle;
        else
            bad = middle;
    }
    return good;
}

static uint64_t hugepages_free(const char *root, const char *name)
{
    char path[512];
    unsigned long count = 0;
    (void)snprintf(path, sizeof(path), "%s/%s/free_hugepages", root, name);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    const bool is_read = fscanf(file, "%lu", &count) == 1;
    (void)fclose(file);
    return is_read ? count : 0;
}

void dp_hugepages_find(const char *root, uint64_t wanted_mib, struct dp_hugepages *out)
{
    uint64_t free_kib = 0, usable_kib = 0, left_kib = wanted_mib * 1024;
    *out = (struct dp_hugepages){.free_mib = 0};
    DIR *dir = opendir(root);
    if (dir == NULL)
        return;
    for (const struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        unsigned long page_kib;
        if (sscanf(entry->d_name, "hugepages-%lukB", &page_kib) != 1 || page_kib == 0)
            continue;
        const uint64_t count = hugepages_free(root, entry->d_name);
        const uint64_t wanted = (left_kib + page_kib - 1) / page_kib;
        const uint64_t usable = hugepages_usable(page_kib * 1024, wanted < count ? wanted : count);
        free_kib += count * page_kib;
        usable_kib += usable * page_kib;
        left_kib -= usable * page_kib < left_kib ? usable * page_kib : left_kib;
    }
    (void)closedir(dir);
    out->free_mib = free_kib / 1024;
    out->usable_mib = usable_kib / 1024;
}
