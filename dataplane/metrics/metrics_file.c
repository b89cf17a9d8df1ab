#include "dataplane/metrics/metrics_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MODE 0644 /* the collector is another user */

static bool write_all(int fd, const char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t written = write(fd, data, bytes);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return false;
        data += written;
        bytes -= (size_t)written;
    }
    return true;
}

bool mr_metrics_write_file(const struct mr_metrics_text *text, const char *path)
{
    char beside[PATH_MAX];
    /* The collector reads files that end with .prom, so this one does not. */
    if ((size_t)snprintf(beside, sizeof(beside), "%s.XXXXXX", path) >= sizeof(beside)) {
        errno = ENAMETOOLONG;
        return false;
    }
    int fd = mkostemp(beside, O_CLOEXEC);
    if (fd < 0)
        return false;
    bool good = write_all(fd, text->data, text->bytes) && fchmod(fd, MODE) == 0;
    int error = errno;
    if (close(fd) != 0 && good) {
        error = errno;
        good = false;
    }
    if (good && rename(beside, path) == 0)
        return true;
    errno = good ? errno : error;
    error = errno;
    (void)unlink(beside);
    errno = error;
    return false;
}
