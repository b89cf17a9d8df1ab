#include "dataplane/dpdk/runtime_directory.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "dataplane/wire/base/log.h"

#define SOCKET_PREFIX "dpdk_telemetry.v" /* all that DPDK creates without shared files */

/* Whether only this user and root can change what is in the directory. */
static bool is_private(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && (st.st_uid == geteuid() || st.st_uid == 0) &&
           (st.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/* Opens a directory below `at`, and creates it if it is missing. -1: it is a link, or open to other users. */
static int directory_open_below(int at, const char *name)
{
    if (mkdirat(at, name, 0700) != 0 && errno != EEXIST)
        return -1;
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && !is_private(fd)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* The base is the caller's choice, so links in its path are followed. */
static bool directory_open_in(struct dp_runtime_directory *d, const char *base)
{
    int fd = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && is_private(fd))
        d->parent = directory_open_below(fd, "dpdk");
    if (fd >= 0)
        close(fd);
    if (d->parent >= 0)
        d->own = directory_open_below(d->parent, d->name);
    if (d->own >= 0) {
        snprintf(d->base, sizeof(d->base), "%s", base);
        return true;
    }
    if (d->parent >= 0)
        close(d->parent);
    d->parent = -1;
    return false;
}

/* As eal_create_runtime_dir() of DPDK chooses it. */
static const char *directory_default_base(void)
{
    const char *base = getenv("RUNTIME_DIRECTORY");
    if (base == NULL && getuid() == 0)
        base = "/var/run";
    if (base == NULL)
        base = getenv("XDG_RUNTIME_DIR");
    return base != NULL ? base : "/tmp";
}

/* In a sticky directory others can neither rename nor replace this user's entries. */
static bool is_sticky_or_private(int fd)
{
    struct stat st;
    return is_private(fd) ||
           (fstat(fd, &st) == 0 && (st.st_mode & S_ISVTX) != 0 && (st.st_uid == geteuid() || st.st_uid == 0));
}

static bool directory_open_fallback(struct dp_runtime_directory *d, const char *shared)
{
    char path[PATH_MAX], name[32];
    bool is_open = false;
    int fd = open(shared, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && is_sticky_or_private(fd)) {
        snprintf(name, sizeof(name), "millrace-%u", (unsigned)geteuid());
        snprintf(path, sizeof(path), "%s/%s", shared, name);
        int below = directory_open_below(fd, name);
        is_open = below >= 0 && directory_open_in(d, path);
        if (below >= 0)
            close(below);
        if (!is_open) { /* another user has that name */
            snprintf(path, sizeof(path), "%s/millrace-XXXXXX", shared);
            is_open = mkdtemp(path) != NULL && directory_open_in(d, path);
        }
    }
    if (fd >= 0)
        close(fd);
    d->is_fallback = is_open;
    return is_open;
}

bool dp_runtime_directory_open(struct dp_runtime_directory *d, const char *name, const char *shared,
                               char error[DP_ERROR_BYTES])
{
    const char *base = directory_default_base();
    *d = (struct dp_runtime_directory){.parent = -1, .own = -1};
    snprintf(d->name, sizeof(d->name), "%s", name);
    if (directory_open_in(d, base))
        return true;
    if (!directory_open_fallback(d, shared)) {
        snprintf(error, DP_ERROR_BYTES,
                 "no directory for DPDK's sockets: %s is missing, or other users can write to it, its dpdk "
                 "or dpdk/%s; set "
                 "RUNTIME_DIRECTORY to a directory of the node's user",
                 base, name);
        return false;
    }
    (void)setenv("RUNTIME_DIRECTORY", d->base, 1);
    mr_log_info("runtime_directory",
                "DPDK's sockets are in %s/dpdk/%s: %s, or what has their names in it, is open to other users",
                d->base, d->name, base);
    return true;
}

/* Whether another process answers on this socket. */
static bool is_served_by_other(int directory, const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int length = snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", directory, name);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return true;
    struct ucred peer = {0};
    socklen_t bytes = sizeof(peer);
    bool is_other = (size_t)length < sizeof(address.sun_path) &&
                    connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 &&
                    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.pid != getpid();
    close(fd);
    return is_other;
}

static void directory_remove_sockets(int directory)
{
    struct stat st;
    int listed = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = listed >= 0 ? fdopendir(listed) : NULL;
    if (dir == NULL) {
        if (listed >= 0)
            close(listed);
        return;
    }
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir))
        if (strncmp(entry->d_name, SOCKET_PREFIX, sizeof(SOCKET_PREFIX) - 1) == 0 &&
            fstatat(directory, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(st.st_mode) &&
            !is_served_by_other(directory, entry->d_name))
            (void)unlinkat(directory, entry->d_name, 0);
    closedir(dir);
}

void dp_runtime_directory_remove(struct dp_runtime_directory *d)
{
    if (d->own < 0)
        return;
    directory_remove_sockets(d->own);
    (void)unlinkat(d->parent, d->name, AT_REMOVEDIR);
    if (d->is_fallback) {
        char path[PATH_MAX];
        if ((size_t)snprintf(path, sizeof(path), "%s/dpdk", d->base) < sizeof(path))
            (void)rmdir(path);
        (void)rmdir(d->base);
    }
    close(d->own);
    close(d->parent);
    *d = (struct dp_runtime_directory){.parent = -1, .own = -1};
}
