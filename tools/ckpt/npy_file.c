#include "tools/ckpt/npy_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool fail(const char *path, const char *what, char *text)
{
    (void)snprintf(text, TOOL_NPY_TEXT_BYTES, "%s: %s", path, what);
    return false;
}

/* 0, or an errno; the file's end is EIO. */
static int read_all(int fd, void *out, size_t bytes, uint64_t offset)
{
    uint8_t *to = out;
    while (bytes > 0) {
        const ssize_t n = pread(fd, to, bytes, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : EIO;
        to += n;
        offset += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return 0;
}

static bool read_header(struct tool_npy_file *f, char *text)
{
    struct stat st;
    char error[TOOL_NPY_ERROR_BYTES];
    if (fstat(f->fd, &st) != 0)
        return fail(f->path, strerror(errno), text);
    if (!S_ISREG(st.st_mode))
        return fail(f->path, "it is no regular file", text);
    const uint64_t file_bytes = (uint64_t)st.st_size;
    const size_t head_bytes = file_bytes < TOOL_NPY_HEADER_BYTES_MAX ? file_bytes : TOOL_NPY_HEADER_BYTES_MAX;
    uint8_t *head = malloc(TOOL_NPY_HEADER_BYTES_MAX);
    if (!head)
        return fail(f->path, strerror(ENOMEM), text);
    const int failed = read_all(f->fd, head, head_bytes, 0);
    bool good = failed == 0;
    if (!good)
        (void)fail(f->path, strerror(failed), text);
    else if (!tool_npy_parse(head, head_bytes, file_bytes, &f->array, error))
        good = fail(f->path, error, text);
    free(head);
    return good;
}

bool tool_npy_open(struct tool_npy_file *f, const char *path, char *text)
{
    *f = (struct tool_npy_file){.path = path};
    f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (f->fd < 0)
        return fail(path, strerror(errno), text);
    if (read_header(f, text))
        return true;
    tool_npy_close(f);
    return false;
}

uint64_t tool_npy_row_bytes(const struct tool_npy *array)
{
    uint64_t bytes = mr_dtype_bytes(array->dtype);
    for (uint32_t i = 1; i < array->rank; i++)
        bytes *= array->shape[i];
    return bytes;
}

bool tool_npy_read(const struct tool_npy_file *f, uint64_t first, uint64_t count, void *out, char *text)
{
    const uint64_t row = tool_npy_row_bytes(&f->array);
    const int failed = read_all(f->fd, out, count * row, f->array.data_offset + first * row);
    return failed == 0 ? true : fail(f->path, strerror(failed), text);
}

void tool_npy_close(struct tool_npy_file *f)
{
    if (f->fd >= 0)
        (void)close(f->fd);
    f->fd = -1;
}
