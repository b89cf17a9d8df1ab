#include "ps/incarnation.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PATH_BYTES 512
#define TEXT_BYTES 32

/* 0 when there is no such file. */
static enum mr_status read_last(const char *path, uint32_t *last, char *error, size_t error_bytes)
{
    char text[TEXT_BYTES] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    *last = 0;
    if (fd < 0 && errno == ENOENT) {
        return MR_OK;
    }
    ssize_t bytes = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    int why = errno;
    if (fd >= 0) {
        close(fd);
    }
    if (bytes < 0) {
        snprintf(error, error_bytes, "%s: %s", path, strerror(why));
        return MR_IO_ERROR;
    }
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (end == text || strcmp(end, "\n") != 0 || value >= UINT32_MAX) {
        snprintf(error, error_bytes,
                 "%s: expected a number; write the last incarnation there, or remove the file", path);
        return MR_IO_ERROR;
    }
    *last = (uint32_t)value;
    return MR_OK;
}

static bool write_synced(int fd, const char *text)
{
    size_t bytes = strlen(text);
    return write(fd, text, bytes) == (ssize_t)bytes && fsync(fd) == 0;
}

static bool sync_directory(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool synced = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0) {
        close(fd);
    }
    return synced;
}

/* Under another name first: a crash leaves the old number or the new one. */
static bool replace_file(const char *directory, const char *path, const char *text)
{
    char temporary[PATH_BYTES + 8];
    snprintf(temporary, sizeof(temporary), "%s.new", path);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    bool written = fd >= 0 && write_synced(fd, text);
    if (fd >= 0 && close(fd) != 0) {
        written = false;
    }
    return written && rename(temporary, path) == 0 && sync_directory(directory);
}

enum mr_status ps_incarnation_next(const char *directory, uint32_t *incarnation, char *error,
                                   size_t error_bytes)
{
    char path[PATH_BYTES], text[TEXT_BYTES];
    uint32_t last;
    if (directory[0] == '\0') {
        *incarnation = (uint32_t)time(NULL);
        return MR_OK;
    }
    snprintf(path, sizeof(path), "%s/incarnation", directory);
    if (mkdir(directory, 0755) != 0 && errno != EEXIST) {
        snprintf(error, error_bytes, "checkpoint.directory %s: %s", directory, strerror(errno));
        return MR_IO_ERROR;
    }
    enum mr_status status = read_last(path, &last, error, error_bytes);
    if (status != MR_OK) {
        return status;
    }
    snprintf(text, sizeof(text), "%" PRIu32 "\n", last + 1);
    if (!replace_file(directory, path, text)) {
        snprintf(error, error_bytes, "%s: cannot be written: %s", path, strerror(errno));
        return MR_IO_ERROR;
    }
    *incarnation = last + 1;
    return MR_OK;
}
