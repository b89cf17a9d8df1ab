#include "fault_store.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "tests/wait.h"

struct ps_store_file {
    struct fault_store *faults;
    struct ps_store_file *below;
};

/* Counts the call; 0 when it may go on. */
static int strike(struct fault_store *f, enum fault_call what)
{
    if (f->mode == FAULT_SHORT_ONCE && what != FAULT_WRITE)
        return 0;
    uint32_t call = atomic_fetch_add(&f->calls, 1) + 1;
    if (f->fail_at == 0 || call < f->fail_at || (call > f->fail_at && f->mode != FAULT_FOR_EVER))
        return 0;
    if (!f->triggered)
        f->failed = what;
    f->triggered = true;
    return f->mode == FAULT_SHORT_ONCE ? 0 : -f->error;
}

static int fault_make_directory(void *self, const char *path)
{
    struct fault_store *f = self;
    int error = strike(f, FAULT_MAKE_DIRECTORY);
    return error != 0 ? error : f->below->make_directory(f->below->self, path);
}

static int wrap(struct fault_store *f, struct ps_store_file *below, struct ps_store_file **file)
{
    struct ps_store_file *wrapped = malloc(sizeof(*wrapped));
    assert(wrapped);
    *wrapped = (struct ps_store_file){.faults = f, .below = below};
    *file = wrapped;
    return 0;
}

static int fault_create(void *self, const char *path, bool direct, struct ps_store_file **file)
{
    struct fault_store *f = self;
    struct ps_store_file *below;
    int error = strike(f, FAULT_CREATE);
    if (error == 0)
        error = f->below->create(f->below->self, path, direct, &below);
    return error != 0 ? error : wrap(f, below, file);
}

static int fault_open(void *self, const char *path, struct ps_store_file **file, uint64_t *file_bytes)
{
    struct fault_store *f = self;
    struct ps_store_file *below;
    int error = strike(f, FAULT_OPEN);
    if (error == 0)
        error = f->below->open(f->below->self, path, &below, file_bytes);
    return error != 0 ? error : wrap(f, below, file);
}

static int64_t fault_write(struct ps_store_file *file, const void *data, size_t bytes, uint64_t offset)
{
    struct fault_store *f = file->faults;
    while (atomic_load(&f->hold_writes))
        wait_pause();
    bool before = f->triggered;
    int error = strike(f, FAULT_WRITE);
    if (error != 0)
        return error;
    if (f->refuses_direct && f->below->is_direct(file->below))
        return -EINVAL;
    if (f->triggered && !before && f->mode == FAULT_SHORT_ONCE) {
        f->shortened = true;
        bytes = bytes < 8192 ? bytes / 2 : bytes / 2 / 4096 * 4096; /* O_DIRECT's alignment is kept */
    }
    return f->below->write(file->below, data, bytes, offset);
}

static int64_t fault_read(struct ps_store_file *file, void *data, size_t bytes, uint64_t offset)
{
    int error = strike(file->faults, FAULT_READ);
    const int64_t got = error != 0 ? error : file->faults->below->read(file->below, data, bytes, offset);
    atomic_fetch_add(&file->faults->reads, 1);
    return got;
}

static int fault_sync(struct ps_store_file *file)
{
    int error = strike(file->faults, FAULT_SYNC);
    return error != 0 ? error : file->faults->below->sync(file->below);
}

static int fault_reserve(struct ps_store_file *file, uint64_t bytes)
{
    int error = strike(file->faults, FAULT_RESERVE);
    return error != 0 ? error : file->faults->below->reserve(file->below, bytes);
}

static int fault_set_length(struct ps_store_file *file, uint64_t bytes)
{
    int error = strike(file->faults, FAULT_SET_LENGTH);
    return error != 0 ? error : file->faults->below->set_length(file->below, bytes);
}

static int fault_close(struct ps_store_file *file)
{
    int error = strike(file->faults, FAULT_CLOSE);
    int closed = file->faults->below->close(file->below);
    free(file);
    return error != 0 ? error : closed;
}

static int fault_descriptor(const struct ps_store_file *file)
{
    return file->faults->descriptors ? file->faults->below->descriptor(file->below) : -1;
}

static bool fault_is_direct(const struct ps_store_file *file)
{
    return file->faults->below->is_direct(file->below);
}

static int fault_drop_direct(struct ps_store_file *file)
{
    return file->faults->below->drop_direct(file->below);
}

static int fault_rename(void *self, const char *from, const char *to)
{
    struct fault_store *f = self;
    int error = strike(f, FAULT_RENAME);
    return error != 0 ? error : f->below->rename(f->below->self, from, to);
}

static int fault_sync_directory(void *self, const char *path)
{
    struct fault_store *f = self;
    int error = strike(f, FAULT_SYNC_DIRECTORY);
    return error != 0 ? error : f->below->sync_directory(f->below->self, path);
}

static int fault_list(void *self, const char *path, void (*visit)(void *arg, const char *name), void *arg)
{
    struct fault_store *f = self;
    int error = strike(f, FAULT_LIST);
    return error != 0 ? error : f->below->list(f->below->self, path, visit, arg);
}

static int fault_facts(void *self, const char *path, uint64_t *file_bytes, int64_t *written_s)
{
    struct fault_store *f = self;
    int error = strike(f, FAULT_FACTS);
    return error != 0 ? error : f->below->facts(f->below->self, path, file_bytes, written_s);
}

static int fault_remove(void *self, const char *path)
{
    struct fault_store *f = self;
    int error = strike(f, FAULT_REMOVE);
    return error != 0 ? error : f->below->remove(f->below->self, path);
}

static int fault_claim(void *self, const char *path, bool shared, int *claim)
{
    struct fault_store *f = self;
    int error = strike(f, FAULT_CLAIM);
    return error != 0 ? error : f->below->claim(f->below->self, path, shared, claim);
}

/* Releasing cannot fail: the system does it when a process ends. */
static void fault_release(void *self, int claim)
{
    struct fault_store *f = self;
    f->below->release(f->below->self, claim);
}

void fault_store_init(struct fault_store *f)
{
    memset(f, 0, sizeof(*f));
    f->below = ps_store_local();
    f->error = EIO;
    f->store = (struct ps_store){
        .self = f,
        .make_directory = fault_make_directory,
        .create = fault_create,
        .open = fault_open,
        .write = fault_write,
        .read = fault_read,
        .sync = fault_sync,
        .reserve = fault_reserve,
        .set_length = fault_set_length,
        .close = fault_close,
        .descriptor = fault_descriptor,
        .is_direct = fault_is_direct,
        .drop_direct = fault_drop_direct,
        .rename = fault_rename,
        .sync_directory = fault_sync_directory,
        .list = fault_list,
        .facts = fault_facts,
        .remove = fault_remove,
        .claim = fault_claim,
        .release = fault_release,
    };
}
