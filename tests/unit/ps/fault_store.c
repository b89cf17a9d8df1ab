#include "fault_store.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct ps_store_file {
    struct fault_store *faults;
    struct ps_store_file *below;
    uint32_t tracked; /* index in files[], FAULT_FILES_MAX = opened for reading */
};

/* Counts the call; 0 when it may go on. */
static int strike(struct fault_store *f)
{
    uint32_t call = atomic_fetch_add(&f->calls, 1) + 1;
    if (f->fail_at == 0 || call < f->fail_at || (call > f->fail_at && f->mode != FAULT_FOR_EVER))
        return 0;
    f->triggered = true;
    return f->mode == FAULT_SHORT_ONCE ? 0 : -f->error;
}

static int fault_make_directory(void *self, const char *path)
{
    int error = strike(self);
    return error != 0 ? error : ps_store_local()->make_directory(NULL, path);
}

static int wrap(struct fault_store *f, struct ps_store_file *below, uint32_t tracked,
                struct ps_store_file **file)
{
    struct ps_store_file *wrapped = malloc(sizeof *wrapped);
    assert(wrapped);
    *wrapped = (struct ps_store_file){.faults = f, .below = below, .tracked = tracked};
    *file = wrapped;
    return 0;
}

static int fault_create(void *self, const char *path, bool direct, struct ps_store_file **file)
{
    struct fault_store *f = self;
    int error = strike(f);
    struct ps_store_file *below;
    if (error == 0)
        error = ps_store_local()->create(NULL, path, direct, &below);
    if (error != 0)
        return error;
    assert(f->file_count < FAULT_FILES_MAX);
    (void)snprintf(f->files[f->file_count].path, PS_PATH_BYTES, "%s", path);
    return wrap(f, below, f->file_count++, file);
}

static int fault_open(void *self, const char *path, struct ps_store_file **file, uint64_t *file_bytes)
{
    int error = strike(self);
    struct ps_store_file *below;
    if (error == 0)
        error = ps_store_local()->open(NULL, path, &below, file_bytes);
    return error != 0 ? error : wrap(self, below, FAULT_FILES_MAX, file);
}

static int64_t fault_write(struct ps_store_file *file, const void *data, size_t bytes, uint64_t offset)
{
    struct fault_store *f = file->faults;
    while (atomic_load(&f->hold_writes))
        (void)nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    bool before = f->triggered;
    int error = strike(f);
    if (error != 0)
        return error;
    if (f->triggered && !before && f->mode == FAULT_SHORT_ONCE) {
        f->shortened = true;
        bytes = bytes < 8192 ? bytes / 2 : bytes / 2 / 4096 * 4096; /* O_DIRECT's alignment is kept */
    }
    f->files[file->tracked].content_synced = false;
    return ps_store_local()->write(file->below, data, bytes, offset);
}

static int64_t fault_read(struct ps_store_file *file, void *data, size_t bytes, uint64_t offset)
{
    int error = strike(file->faults);
    return error != 0 ? error : ps_store_local()->read(file->below, data, bytes, offset);
}

static int fault_sync(struct ps_store_file *file)
{
    int error = strike(file->faults);
    if (error != 0)
        return error;
    file->faults->files[file->tracked].content_synced = true;
    return ps_store_local()->sync(file->below);
}

static int fault_close(struct ps_store_file *file)
{
    int error = strike(file->faults);
    int closed = ps_store_local()->close(file->below);
    free(file);
    return error != 0 ? error : closed;
}

static int fault_descriptor(const struct ps_store_file *file)
{
    return file->faults->descriptors ? ps_store_local()->descriptor(file->below) : -1;
}

static bool fault_is_direct(const struct ps_store_file *file)
{
    return ps_store_local()->is_direct(file->below);
}

static int fault_drop_direct(struct ps_store_file *file)
{
    return ps_store_local()->drop_direct(file->below);
}

static int fault_rename(void *self, const char *from, const char *to)
{
    struct fault_store *f = self;
    int error = strike(f);
    if (error == 0)
        error = ps_store_local()->rename(NULL, from, to);
    if (error != 0)
        return error;
    (void)snprintf(f->renamed_from, sizeof f->renamed_from, "%s", from);
    (void)snprintf(f->renamed_to, sizeof f->renamed_to, "%s", to);
    for (uint32_t i = 0; i < f->file_count; i++) {
        char moved[PS_PATH_BYTES];
        if (strncmp(f->files[i].path, from, strlen(from)) != 0)
            continue;
        int n = snprintf(moved, sizeof moved, "%s%s", to, f->files[i].path + strlen(from));
        assert(n > 0 && n < (int)sizeof moved);
        memcpy(f->files[i].path, moved, sizeof moved);
    }
    return 0;
}

static bool is_parent(const char *directory, const char *path)
{
    size_t n = strlen(directory);
    return strncmp(path, directory, n) == 0 && path[n] == '/' && !strchr(path + n + 1, '/');
}

static int fault_sync_directory(void *self, const char *path)
{
    struct fault_store *f = self;
    int error = strike(f);
    if (error != 0)
        return error;
    for (uint32_t i = 0; i < f->file_count; i++)
        if (is_parent(path, f->files[i].path))
            f->files[i].name_synced = true;
    if (is_parent(path, f->renamed_to))
        f->renamed_to[0] = '\0';
    return ps_store_local()->sync_directory(NULL, path);
}

static int fault_list(void *self, const char *path, void (*visit)(void *arg, const char *name), void *arg)
{
    int error = strike(self);
    return error != 0 ? error : ps_store_local()->list(NULL, path, visit, arg);
}

static int fault_remove(void *self, const char *path)
{
    int error = strike(self);
    return error != 0 ? error : ps_store_local()->remove(NULL, path);
}

static int fault_claim(void *self, const char *path, int *claim)
{
    int error = strike(self);
    return error != 0 ? error : ps_store_local()->claim(NULL, path, claim);
}

/* Releasing cannot fail: the system does it when a process ends. */
static void fault_release(void *self, int claim)
{
    (void)self;
    ps_store_local()->release(NULL, claim);
}

void fault_store_init(struct fault_store *f)
{
    memset(f, 0, sizeof *f);
    f->error = EIO;
    f->store = (struct ps_store){
        .self = f,
        .make_directory = fault_make_directory,
        .create = fault_create,
        .open = fault_open,
        .write = fault_write,
        .read = fault_read,
        .sync = fault_sync,
        .close = fault_close,
        .descriptor = fault_descriptor,
        .is_direct = fault_is_direct,
        .drop_direct = fault_drop_direct,
        .rename = fault_rename,
        .sync_directory = fault_sync_directory,
        .list = fault_list,
        .remove = fault_remove,
        .claim = fault_claim,
        .release = fault_release,
    };
}

void fault_store_power_loss(struct fault_store *f, bool lose_rename)
{
    for (uint32_t i = 0; i < f->file_count; i++) {
        struct stat st;
        if (stat(f->files[i].path, &st) != 0)
            continue;
        if (!f->files[i].name_synced)
            (void)unlink(f->files[i].path);
        else if (!f->files[i].content_synced && truncate(f->files[i].path, st.st_size / 2) != 0)
            abort();
    }
    if (lose_rename && f->renamed_to[0] != '\0' && access(f->renamed_to, F_OK) == 0 &&
        rename(f->renamed_to, f->renamed_from) != 0)
        abort();
}
