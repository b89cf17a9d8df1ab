/* A file of given content that is gone when the test ends, however it ends: it has no name but that of its
 * descriptor. */
#ifndef TESTS_TEMP_FILE_H
#define TESTS_TEMP_FILE_H

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct temp_file {
    int fd;
    char path[64];
};

static inline struct temp_file temp_file_make(const char *content, size_t bytes)
{
    struct temp_file f;
    f.fd = memfd_create("samples", 0);
    assert_true(f.fd >= 0);
    snprintf(f.path, sizeof(f.path), "/proc/self/fd/%d", f.fd);
    assert_int_equal(write(f.fd, content, bytes), bytes);
    return f;
}

static inline struct temp_file temp_file_text(const char *content)
{
    return temp_file_make(content, strlen(content));
}

#endif
