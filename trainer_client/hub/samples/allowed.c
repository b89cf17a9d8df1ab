#include "trainer_client/hub/samples/allowed.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "trainer_client/hub/samples/sample_file.h"

#define DESCRIPTOR_PATH_BYTES 48

struct hub_allowed {
    uint32_t count;
    char *given[HUB_ALLOWED_MAX]; /* absolute, without "." and ".." */
    char *real[HUB_ALLOWED_MAX];  /* without links */
};

/* An absolute path without empty parts, "." and "..", as if there were no links. False: too long. */
static bool path_normalise(const char *path, char out[PATH_MAX])
{
    char whole[2 * PATH_MAX], here[PATH_MAX] = "";
    size_t bytes = 0;
    if (path[0] != '/' && getcwd(here, sizeof(here)) == NULL)
        return false;
    if ((size_t)snprintf(whole, sizeof(whole), "%s/%s", here, path) >= sizeof(whole))
        return false;
    char *rest = whole;
    for (const char *part; (part = strsep(&rest, "/")) != NULL;) {
        const size_t part_bytes = strlen(part);
        if (part_bytes == 0 || strcmp(part, ".") == 0)
            continue;
        if (strcmp(part, "..") == 0) {
            while (bytes > 0 && out[--bytes] != '/')
                ;
            continue;
        }
        if (bytes + 1 + part_bytes >= PATH_MAX)
            return false;
        out[bytes] = '/';
        memcpy(out + bytes + 1, part, part_bytes);
        bytes += 1 + part_bytes;
    }
    if (bytes == 0)
        out[bytes++] = '/';
    out[bytes] = '\0';
    return true;
}

static bool path_is_below(const char *path, const char *directory)
{
    const size_t bytes = strlen(directory);
    return strcmp(directory, "/") == 0 ||
           (strncmp(path, directory, bytes) == 0 && (path[bytes] == '/' || path[bytes] == '\0'));
}

static bool path_begins(const struct hub_allowed *a, const char *path)
{
    char whole[PATH_MAX];
    if (!path_normalise(path, whole))
        return false;
    for (uint32_t i = 0; i < a->count; i++)
        if (path_is_below(whole, a->given[i]) || path_is_below(whole, a->real[i]))
            return true;
    return false;
}

struct hub_allowed *hub_allowed_create(const char *const *directories, uint32_t count, char *error)
{
    char whole[PATH_MAX];
    struct hub_allowed *a = calloc(1, sizeof(*a));
    if (a == NULL || count > HUB_ALLOWED_MAX) {
        snprintf(error, HUB_ERROR_BYTES, a == NULL ? "no memory" : "--allow: at most %u directories",
                 HUB_ALLOWED_MAX);
        free(a);
        return NULL;
    }
    for (uint32_t i = 0; i < count; i++) {
        const int fd = open(directories[i], O_PATH | O_DIRECTORY | O_CLOEXEC);
        const bool is_whole = fd >= 0 && path_normalise(directories[i], whole);
        const int error_number = fd >= 0 ? ENAMETOOLONG : errno;
        if (fd >= 0)
            close(fd);
        a->given[i] = is_whole ? strdup(whole) : NULL;
        a->real[i] = is_whole ? realpath(directories[i], NULL) : NULL;
        a->count = i + 1;
        if (a->given[i] == NULL || a->real[i] == NULL) {
            snprintf(error, HUB_ERROR_BYTES, "--allow %.300s: %s", directories[i],
                     is_whole ? strerror(errno) : strerror(error_number));
            hub_allowed_destroy(a);
            return NULL;
        }
    }
    return a;
}

void hub_allowed_destroy(struct hub_allowed *allowed)
{
    for (uint32_t i = 0; allowed != NULL && i < allowed->count; i++) {
        free(allowed->given[i]);
        free(allowed->real[i]);
    }
    free(allowed);
}

/* Where the descriptor's file is, however its path led there. */
static bool descriptor_is_below(const struct hub_allowed *a, const char *descriptor)
{
    char real[PATH_MAX];
    const ssize_t bytes = readlink(descriptor, real, sizeof(real) - 1);
    if (bytes <= 0)
        return false;
    real[bytes] = '\0';
    for (uint32_t i = 0; i < a->count; i++)
        if (path_is_below(real, a->real[i]))
            return true;
    return false;
}

int hub_allowed_open(const struct hub_allowed *allowed, const char *path, int flags)
{
    char descriptor[DESCRIPTOR_PATH_BYTES];
    if (allowed == NULL)
        return open(path, flags | O_CLOEXEC);
    if (!path_begins(allowed, path)) {
        errno = EACCES;
        return -1;
    }
    /* The descriptor pins the file: what is checked is what is opened. */
    const int pinned = open(path, O_PATH | O_CLOEXEC);
    if (pinned < 0)
        return -1;
    snprintf(descriptor, sizeof(descriptor), "/proc/self/fd/%d", pinned);
    int fd = -1;
    if (descriptor_is_below(allowed, descriptor))
        fd = open(descriptor, flags | O_CLOEXEC);
    else
        errno = EACCES;
    const int error_number = errno;
    close(pinned);
    errno = error_number;
    return fd;
}

enum mr_status hub_allowed_check(const struct hub_allowed *allowed, const char *path, char *error)
{
    if (allowed == NULL || path_begins(allowed, path))
        return MR_OK;
    if (allowed->count == 0)
        snprintf(
            error, HUB_ERROR_BYTES,
            "%.300s: this hub reads no files for trainers; start it with --allow DIR for those below DIR",
            path);
    else
        snprintf(error, HUB_ERROR_BYTES,
                 "%.300s: this hub reads files for trainers only below the directories of its --allow, such "
                 "as %.200s",
                 path, allowed->given[0]);
    return MR_UNAUTHORIZED;
}
