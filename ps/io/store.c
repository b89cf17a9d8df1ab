#include "ps/io/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include "dataplane/wire/base/printable.h"

struct ps_store_file {
    int fd;
    bool direct;
};

static int local_make_directory(void *self, const char *path)
{
    (void)self;
    return mkdir(path, PS_DIRECTORY_MODE) == 0 ? 0 : -errno;
}

static int local_file_new(int fd, bool direct, struct ps_store_file **file)
{
    struct ps_store_file *f = malloc(sizeof(*f));
    if (!f) {
        close(fd);
        return -ENOMEM;
    }
    *f = (struct ps_store_file){.fd = fd, .direct = direct};
    *file = f;
    return 0;
}

static int local_create(void *self, const char *path, bool direct, struct ps_store_file **file)
{
    (void)self;
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
    int fd = direct ? open(path, flags | O_DIRECT, PS_FILE_MODE) : -1;
    if (direct && fd < 0 && errno != EINVAL)
        return -errno;
    if (fd < 0) {
        /* File systems without O_DIRECT answer EINVAL, some after creating the file. */
        if (direct)
            (void)unlink(path);
        direct = false;
        fd = open(path, flags, PS_FILE_MODE);
    }
    if (fd < 0)
        return -errno;
    return local_file_new(fd, direct, file);
}

static int local_open(void *self, const char *path, struct ps_store_file **file, uint64_t *file_bytes)
{
    (void)self;
    /* O_NONBLOCK: a FIFO in place of a file must not block the reader. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    struct stat st;
    int bad = fstat(fd, &st) != 0 ? -errno : 0;
    if (bad == 0 && !S_ISREG(st.st_mode))
        bad = S_ISDIR(st.st_mode) ? -EISDIR : -ESPIPE;
    if (bad != 0) {
        close(fd);
        return bad;
    }
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    int error = local_file_new(fd, false, file);
    if (error == 0)
        *file_bytes = (uint64_t)st.st_size;
    return error;
}

static int64_t local_write(struct ps_store_file *file, const void *data, size_t bytes, uint64_t offset)
{
    ssize_t n;
    do {
        n = pwrite(file->fd, data, bytes, (off_t)offset);
    } while (n < 0 && errno == EINTR);
    return n >= 0 ? n : -errno;
}

static int64_t local_read(struct ps_store_file *file, void *data, size_t bytes, uint64_t offset)
{
    ssize_t n;
    do {
        n = pread(file->fd, data, bytes, (off_t)offset);
    } while (n < 0 && errno == EINTR);
    /* The kernel answers ENODATA for a bad sector that is read past the page cache: the file does not end
     * there. */
    return n >= 0 ? n : errno == ENODATA ? -EIO : -errno;
}

static int local_sync(struct ps_store_file *file)
{
    return fsync(file->fd) == 0 ? 0 : -errno;
}

/* This sets the length as well: a write within it, to room that is allocated, needs no exclusive lock on the
 * file. */
static int local_reserve(struct ps_store_file *file, uint64_t bytes)
{
    return fallocate(file->fd, 0, 0, (off_t)bytes) == 0 ? 0 : -errno;
}

static int local_set_length(struct ps_store_file *file, uint64_t bytes)
{
    return ftruncate(file->fd, (off_t)bytes) == 0 ? 0 : -errno;
}

static int local_close(struct ps_store_file *file)
{
    int result = close(file->fd) == 0 ? 0 : -errno;
    free(file);
    return result;
}

static int local_descriptor(const struct ps_store_file *file)
{
    return file->fd;
}

static bool local_is_direct(const struct ps_store_file *file)
{
    return file->direct;
}

static int local_drop_direct(struct ps_store_file *file)
{
    int flags = fcntl(file->fd, F_GETFL);
    if (flags < 0 || fcntl(file->fd, F_SETFL, flags & ~O_DIRECT) != 0)
        return -errno;
    file->direct = false;
    return 0;
}

static int local_take_direct(struct ps_store_file *file)
{
    int flags = fcntl(file->fd, F_GETFL);
    if (flags < 0 || fcntl(file->fd, F_SETFL, flags | O_DIRECT) != 0)
        return -errno;
    file->direct = true;
    return 0;
}

static int local_rename(void *self, const char *from, const char *to)
{
    (void)self;
    return rename(from, to) == 0 ? 0 : -errno;
}

static int local_open_directory(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 ? fd : -errno;
}

static int local_sync_directory(void *self, const char *path)
{
    (void)self;
    int fd = local_open_directory(path);
    if (fd < 0)
        return fd;
    int result = fsync(fd) == 0 ? 0 : -errno;
    close(fd);
    return result;
}

void ps_store_writer(char out[PS_STORE_WRITER_BYTES])
{
    static _Atomic uint64_t process;
    uint64_t number = atomic_load(&process);
    if (number == 0 && getrandom(&number, sizeof(number), 0) == (ssize_t)sizeof(number)) {
        uint64_t none = 0;
        number |= 1;
        if (!atomic_compare_exchange_strong(&process, &none, number))
            number = none;
    }
    (void)snprintf(out, PS_STORE_WRITER_BYTES, ".%016" PRIx64 "%08x", number, (unsigned)getpid());
}

/* link() refuses a name that is taken; where there are no links, a look before has to do. */
static int name_new(const char *temporary, const char *path)
{
    if (link(temporary, path) == 0)
        return unlink(temporary) == 0 ? 0 : -errno;
    if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS)
        return -errno;
    if (access(path, F_OK) == 0)
        return -EEXIST;
    return rename(temporary, path) == 0 ? 0 : -errno;
}

/* Under another name first: if it must be new, one that no other writer has. */
static int store_put(void *self, const char *path, const void *data, size_t bytes, bool is_new)
{
    char temporary[PS_PATH_BYTES + PS_STORE_WRITER_BYTES + 8], directory[PS_PATH_BYTES];
    char writer[PS_STORE_WRITER_BYTES] = "";
    const char *slash = strrchr(path, '/');
    if (is_new)
        ps_store_writer(writer);
    (void)snprintf(temporary, sizeof(temporary), "%s%s.new", path, writer);
    (void)snprintf(directory, sizeof(directory), "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    (void)unlink(temporary);
    int error = ps_store_write_new(ps_store_local(), temporary, data, bytes);
    if (error == 0 && is_new)
        error = name_new(temporary, path);
    else if (error == 0 && rename(temporary, path) != 0)
        error = -errno;
    if (error != 0)
        (void)unlink(temporary);
    return error != 0 ? error : local_sync_directory(self, directory[0] != '\0' ? directory : "/");
}

static int local_replace(void *self, const char *path, const void *data, size_t bytes)
{
    return store_put(self, path, data, bytes, false);
}

static int local_put_new(void *self, const char *path, const void *data, size_t bytes)
{
    return store_put(self, path, data, bytes, true);
}

static int local_list(void *self, const char *path, void (*visit)(void *arg, const char *name), void *arg)
{
    (void)self;
    DIR *directory = opendir(path);
    if (!directory)
        return -errno;
    int result = -EOVERFLOW;
    for (uint32_t i = 0; i < PS_STORE_ENTRIES_MAX; i++) {
        errno = 0;
        const struct dirent *entry = readdir(directory);
        if (!entry) {
            result = -errno; /* 0: the end */
            break;
        }
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            visit(arg, entry->d_name);
    }
    closedir(directory);
    return result;
}

static int local_remove(void *self, const char *path)
{
    (void)self;
    return remove(path) == 0 ? 0 : -errno;
}

/* remove() below a directory. */
static int local_remove_below(int directory, const char *name)
{
    if (unlinkat(directory, name, 0) == 0)
        return 0;
    return errno == EISDIR && unlinkat(directory, name, AT_REMOVEDIR) == 0 ? 0 : -errno;
}

/* Where others can write beside checkpoints, a link to another directory may have the name of one. */
static int local_remove_tree(void *self, const char *path, const char *first)
{
    (void)self;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), error = 0;
    if (fd < 0 && (errno == ELOOP || errno == ENOTDIR))
        return unlink(path) == 0 ? 0 : -errno;
    DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;
    if (!directory) {
        error = -errno;
        if (fd >= 0)
            close(fd);
        return error;
    }
    if (first) {
        error = local_remove_below(fd, first);
        error = error == -ENOENT ? 0 : error;
    }
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(directory);
        if (!entry) {
            error = error != 0 ? error : -errno;
            break;
        }
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            const int removed = local_remove_below(fd, entry->d_name);
            error = error != 0 ? error : removed;
        }
    }
    closedir(directory);
    const int removed = rmdir(path) == 0 ? 0 : -errno;
    return error != 0 ? error : removed;
}

static int local_facts(void *self, const char *path, uint64_t *file_bytes, int64_t *written_s)
{
    (void)self;
    struct stat st;
    if (stat(path, &st) != 0)
        return -errno;
    *file_bytes = (uint64_t)st.st_size;
    *written_s = st.st_mtim.tv_sec;
    return 0;
}

static int local_claim(void *self, const char *path, bool shared, int *claim)
{
    (void)self;
    int fd = local_open_directory(path);
    if (fd < 0)
        return fd;
    if (flock(fd, (shared ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0) {
        int error = errno == EWOULDBLOCK ? EBUSY : errno;
        close(fd);
        return -error;
    }
    *claim = fd;
    return 0;
}

static void local_release(void *self, int claim)
{
    (void)self;
    close(claim);
}

const struct ps_store *ps_store_local(void)
{
    static const struct ps_store store = {
        .make_directory = local_make_directory,
        .create = local_create,
        .open = local_open,
        .write = local_write,
        .read = local_read,
        .sync = local_sync,
        .reserve = local_reserve,
        .set_length = local_set_length,
        .close = local_close,
        .descriptor = local_descriptor,
        .is_direct = local_is_direct,
        .drop_direct = local_drop_direct,
        .take_direct = local_take_direct,
        .replace = local_replace,
        .put_new = local_put_new,
        .rename = local_rename,
        .sync_directory = local_sync_directory,
        .list = local_list,
        .remove = local_remove,
        .remove_tree = local_remove_tree,
        .facts = local_facts,
        .claim = local_claim,
        .release = local_release,
    };
    return &store;
}

static _Thread_local struct {
    int error_number; /* 0: none is explained */
    char text[256];
} explained;

void ps_store_explain(int error_number, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    explained.error_number = error_number;
    (void)vsnprintf(explained.text, sizeof(explained.text), format, arguments);
    va_end(arguments);
    mr_make_printable(explained.text, sizeof(explained.text)); /* it quotes what the store answered */
}

const char *ps_store_explanation(int error_number)
{
    if (explained.error_number == 0 || explained.error_number != error_number)
        return NULL;
    explained.error_number = 0;
    return explained.text;
}

int ps_store_claim(const struct ps_store *store, const char *path, bool shared, int *claim)
{
    *claim = -1;
    return store->claim ? store->claim(store->self, path, shared, claim) : 0;
}

void ps_store_release(const struct ps_store *store, int claim)
{
    if (store->release)
        store->release(store->self, claim);
}

int ps_store_write_all(const struct ps_store *store, struct ps_store_file *file, const void *data,
                       size_t bytes, uint64_t offset)
{
    const uint8_t *from = data;
    while (bytes > 0) {
        int64_t n = store->write(file, from, bytes, offset);
        if (n <= 0)
            return n < 0 ? (int)n : -EIO;
        from += n;
        offset += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return 0;
}

bool ps_store_leave_direct(const struct ps_store *store, struct ps_store_file *file, int error)
{
    return error == -EINVAL && store->is_direct(file) && store->drop_direct(file) == 0;
}

int ps_store_read_all(const struct ps_store *store, struct ps_store_file *file, void *data, size_t bytes,
                      uint64_t offset)
{
    uint8_t *to = data;
    while (bytes > 0) {
        int64_t n = store->read(file, to, bytes, offset);
        if (n <= 0)
            return n < 0 ? (int)n : -ENODATA;
        to += n;
        offset += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return 0;
}

int ps_store_put_new(const struct ps_store *store, const char *path, const void *data, size_t bytes)
{
    return (store->put_new ? store->put_new : store->replace)(store->self, path, data, bytes);
}

int ps_store_write_new(const struct ps_store *store, const char *path, const void *data, size_t bytes)
{
    struct ps_store_file *file = NULL;
    int error = store->create(store->self, path, false, &file);
    if (error != 0 || file == NULL)
        return error;
    error = ps_store_write_all(store, file, data, bytes, 0);
    if (error == 0)
        error = store->sync(file);
    const int closed = store->close(file);
    return error != 0 ? error : closed;
}

static void ignore_name(void *arg, const char *name)
{
    (void)arg;
    (void)name;
}

int ps_store_look(const struct ps_store *store, const char *path)
{
    return store->list(store->self, path, ignore_name, NULL);
}

struct removal {
    const struct ps_store *store;
    const char *directory;
    int error;
};

static void remove_entry(void *arg, const char *name)
{
    struct removal *removal = arg;
    char path[PS_PATH_BYTES];
    int n = snprintf(path, sizeof(path), "%s/%s", removal->directory, name);
    int error =
        n > 0 && n < (int)sizeof(path) ? removal->store->remove(removal->store->self, path) : -ENAMETOOLONG;
    if (error != 0 && removal->error == 0)
        removal->error = error;
}

int ps_store_remove_tree(const struct ps_store *store, const char *path, const char *first)
{
    struct removal removal = {.store = store, .directory = path};
    if (store->remove_tree)
        return store->remove_tree(store->self, path, first);
    if (first) {
        remove_entry(&removal, first);
        if (removal.error == -ENOENT)
            removal.error = 0;
    }
    int listed = store->list(store->self, path, remove_entry, &removal);
    if (listed == -ENOENT)
        return listed;
    int removed = store->remove(store->self, path);
    if (removal.error != 0)
        return removal.error;
    return listed != 0 ? listed : removed;
}
