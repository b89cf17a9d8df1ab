/* Huge pages that are free, and that the process may not have. */
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include "dataplane/dpdk/hugepages.h"
#include "tests/test.h"
#include "tests/unit/temporary_directory.h"

#define KIB UINT64_C(1024)

/* What the kernel lets the process have of each size, in bytes, and where it says so. */
static struct {
    uint64_t limit_2m, limit_1g;
    bool says_at_mmap, is_old;
    uint64_t mapped; /* in bytes, now */
} kernel;

static uint64_t limit_of(int flags)
{
    return (flags >> 26 & 63) == 30 ? kernel.limit_1g : kernel.limit_2m;
}

static uint64_t limit_of_mapping;

void *test_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    (void)at, (void)protection, (void)fd, (void)offset;
    assert_true((flags & MAP_HUGETLB) != 0);
    limit_of_mapping = limit_of(flags);
    if (kernel.says_at_mmap && bytes > limit_of_mapping) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    kernel.mapped += bytes;
    return &kernel;
}

int test_madvise(void *at, size_t bytes, int advice)
{
    (void)advice;
    assert_ptr_equal(at, &kernel);
    errno = kernel.is_old ? EINVAL : EFAULT;
    return kernel.is_old || bytes > limit_of_mapping ? -1 : 0;
}

int test_munmap(void *at, size_t bytes)
{
    assert_ptr_equal(at, &kernel);
    kernel.mapped -= bytes;
    return 0;
}

static void write_free(const char *root, unsigned page_kib, unsigned count)
{
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/hugepages-%ukB", root, page_kib);
    (void)mkdir(path, 0755);
    (void)snprintf(path, sizeof(path), "%s/hugepages-%ukB/free_hugepages", root, page_kib);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    (void)fprintf(file, "%u\n", count);
    assert_int_equal(fclose(file), 0);
}

static void expect(const char *root, uint64_t wanted_mib, uint64_t free_mib, uint64_t usable_mib)
{
    struct dp_hugepages pages;
    dp_hugepages_find(root, wanted_mib, &pages);
    assert_int_equal(pages.free_mib, free_mib);
    assert_int_equal(pages.usable_mib, usable_mib);
    assert_int_equal(kernel.mapped, 0);
}

TEST(a_limit_below_what_is_free, temporary_directory_setup, temporary_directory_teardown)
{
    const char *root = *state;
    expect("/nowhere", 64, 0, 0);
    expect(root, 64, 0, 0);
    write_free(root, 2048, 320);
    for (uint32_t at_mmap = 0; at_mmap < 2; at_mmap++) {
        kernel.says_at_mmap = at_mmap == 1;
        kernel.limit_2m = UINT64_MAX;
        expect(root, 256, 640, 256);
        expect(root, 255, 640, 256);
        expect(root, 1000, 640, 640);
        kernel.limit_2m = 64 * KIB * KIB;
        expect(root, 64, 640, 64);
        expect(root, 256, 640, 64);
        kernel.limit_2m = 2 * KIB * KIB;
        expect(root, 256, 640, 2);
        kernel.limit_2m = 0;
        expect(root, 256, 640, 0);
    }
    kernel.is_old = true; /* it cannot be asked */
    kernel.says_at_mmap = false;
    expect(root, 256, 640, 256);
    kernel.is_old = false;
}

TEST(pages_of_two_sizes, temporary_directory_setup, temporary_directory_teardown)
{
    const char *root = *state;
    write_free(root, 2048, 100);
    write_free(root, 1048576, 2);
    kernel.limit_2m = 10 * 2 * KIB * KIB;
    kernel.limit_1g = KIB * KIB * KIB;
    struct dp_hugepages pages;
    dp_hugepages_find(root, 4096, &pages); /* in whatever order */
    assert_int_equal(pages.free_mib, 2248);
    assert_int_equal(pages.usable_mib, 1044);
}
