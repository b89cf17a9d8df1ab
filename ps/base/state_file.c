#include "ps/base/state_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES 512

enum mr_status ps_state_directory(const char *directory, char *error, size_t error_bytes)
{
    if (mkdir(directory, 0755) != 0 && errno != EEXIST) {
        snprintf(error, error_bytes, "checkpoint.directory %s: %s", directory, strerror(errno));
        return MR_IO_ERROR;
    }
    return MR_OK;
}

static ssize_t read_all(int fd, char *text, size_t bytes)
{
    size_t at = 0;
    ssize_t got = 1;
    while (at < bytes && got > 0) {
        got = read(fd, text + at, bytes - at);
        at += got > 0 ? (size_t)got : 0;
    }
    return got < 0 ? -1 : (ssize_t)at;
}

enum mr_status ps_state_file_read(const char *directory, const char *name, char *text, size_t text_bytes,
                                  bool *is_there, char *error, size_t error_bytes)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    *is_there = fd >= 0 || errno != ENOENT;
    if (!*is_there)
        return MR_OK;
    ssize_t bytes = fd >= 0 ? read_all(fd, text, text_bytes) : -1;
    int why = errno;
    if (fd >= 0)
        close(fd);
    if (bytes < 0 || (size_t)bytes == text_bytes) {
        snprintf(error, error_bytes, "%s: %s", path,
                 bytes < 0 ? strerror(why) : "longer than such a file can be; restore it, or remove it");
        return MR_IO_ERROR;
    }
    text[bytes] = '\0';
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
    if (fd >= 0)
        close(fd);
    return synced;
}

/* Under another name first. */
enum mr_status ps_state_file_write(const char *directory, const char *name, const char *text, char *error,
                                   size_t error_bytes)
{
    char path[PATH_BYTES], temporary[PATH_BYTES + 8];
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    snprintf(temporary, sizeof(temporary), "%s.new", path);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    bool written = fd >= 0 && write_synced(fd, text);
    int why = errno;
    if (fd >= 0 && close(fd) != 0)
        written = false;
    if (!written || rename(temporary, path) != 0 || !sync_directory(directory)) {
        snprintf(error, error_bytes, "%s: cannot be written: %s", path, strerror(written ? errno : why));
        return MR_IO_ERROR;
    }
    return MR_OK;
}
