#include "ps/checkpoint/checkpoint_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ps/checkpoint/checkpoint_format.h"

#define LOCK_NAME    "lock"
#define HOST_BYTES   65u
#define HOLDER_BYTES 160u

static enum mr_status fail(char *text, const char *what, const char *path, int error)
{
    ps_text_io(text, what, path, error);
    return MR_IO_ERROR;
}

static void write_holder(int fd, const char *who)
{
    char host[HOST_BYTES] = "?", line[HOLDER_BYTES];
    (void)gethostname(host, sizeof(host) - 1);
    int n = snprintf(line, sizeof(line), "%.48s on host %s, pid %d\n", who, host, (int)getpid());
    /* It is for people: a full disk is no reason to go without the lock. */
    if (ftruncate(fd, 0) == 0 && n > 0)
        (void)!pwrite(fd, line, (size_t)n, 0);
}

/* One line, or that nobody knows. */
static void read_holder(int fd, char holder[HOLDER_BYTES])
{
    ssize_t n = pread(fd, holder, HOLDER_BYTES - 1, 0);
    holder[n > 0 ? n : 0] = '\0';
    holder[strcspn(holder, "\n")] = '\0';
    if (holder[0] == '\0')
        (void)snprintf(holder, HOLDER_BYTES, "another process");
}

static enum mr_status refuse(int fd, const char *directory, int error, char *text)
{
    char holder[HOLDER_BYTES], why[PS_TEXT_BYTES];
    if (error == EWOULDBLOCK) {
        read_holder(fd, holder);
        (void)snprintf(why, sizeof(why), "in use by %s: give each server its own directory", holder);
    } else {
        (void)snprintf(why, sizeof(why),
                       "cannot be locked: %s; mount it with locks (NFS: version 4, or local_lock=flock if no "
                       "other machine writes there)",
                       strerror(error));
    }
    ps_text_path(text, directory, why);
    return MR_IO_ERROR;
}

enum mr_status ps_checkpoint_lock(const char *directory, const char *who, int *lock, char *text)
{
    char path[PS_PATH_BYTES];
    *lock = PS_NO_LOCK;
    if (!ps_path_join(directory, LOCK_NAME, path))
        return fail(text, "lock", directory, ENAMETOOLONG);
    if (mkdir(directory, 0755) != 0 && errno != EEXIST)
        return fail(text, "make directory", directory, errno);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
    if (fd < 0)
        return fail(text, "open", path, errno);
    enum mr_status status = flock(fd, LOCK_EX | LOCK_NB) == 0 ? MR_OK : refuse(fd, directory, errno, text);
    if (status != MR_OK) {
        close(fd);
        return status;
    }
    write_holder(fd, who);
    *lock = fd;
    return MR_OK;
}

bool ps_checkpoint_lock_is_on(int lock, const char *directory)
{
    char path[PS_PATH_BYTES];
    struct stat held, found;
    return lock != PS_NO_LOCK && ps_path_join(directory, LOCK_NAME, path) && fstat(lock, &held) == 0 &&
           stat(path, &found) == 0 && held.st_dev == found.st_dev && held.st_ino == found.st_ino;
}

void ps_checkpoint_unlock(int lock)
{
    if (lock != PS_NO_LOCK)
        close(lock);
}
