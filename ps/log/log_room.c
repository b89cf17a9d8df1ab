#include "ps/log/log_room.h"

#include <errno.h>

#include "dataplane/wire/base/list.h"
#include "ps/log/log_format.h"

#define STEP_BYTES (256u << 10) /* written at once: what a block waits for at most */

static _Alignas(PS_LOG_ALIGN) uint8_t room_zeros[STEP_BYTES]; /* nobody writes here */

static int room_make(struct ps_io_job *job)
{
    struct ps_log_room *r = MR_CONTAINER(job, struct ps_log_room, job);
    int error = 0;
    for (uint64_t at = r->from; at < r->to && error == 0 && !atomic_load(&r->is_cancelled);
         at += STEP_BYTES) {
        error = ps_store_write_all(r->store, r->file, room_zeros, STEP_BYTES, at);
        if (error == 0)
            atomic_store(&r->done, at + STEP_BYTES);
    }
    /* One that is cancelled is waited for: the block's own flush does it. */
    if (error == 0 && !atomic_load(&r->is_cancelled) && r->store->sync(r->file) != 0)
        error = -EIO;
    r->has_failed = error != 0;
    return 0; /* an error would end the threads */
}

void ps_log_room_begin(struct ps_log_room *r, struct ps_io_threads *threads, struct ps_store_file *file,
                       uint64_t from, uint64_t now_us)
{
    const uint64_t bytes = from < PS_LOG_ROOM_BYTES_MIN   ? PS_LOG_ROOM_BYTES_MIN
                           : from > PS_LOG_ROOM_BYTES_MAX ? PS_LOG_ROOM_BYTES_MAX
                                                          : ps_log_padded(from, STEP_BYTES);
    if (r->file != NULL || now_us < r->retry_us)
        return;
    r->file = file;
    r->from = from;
    r->to = from + bytes;
    r->has_failed = false;
    atomic_store(&r->done, from);
    atomic_store(&r->is_cancelled, false);
    r->job = (struct ps_io_job){.run = room_make, .queue = PS_IO_NO_QUEUE};
    ps_io_threads_put(threads, &r->job);
}

bool ps_log_room_allows(struct ps_log_room *r, const struct ps_store_file *file, uint64_t to)
{
    if (r->file != file || to <= atomic_load(&r->done))
        return true;
    atomic_store(&r->is_cancelled, true);
    return false;
}

void ps_log_room_cancel(struct ps_log_room *r, const struct ps_store_file *file)
{
    if (r->file == file)
        atomic_store(&r->is_cancelled, true);
}

struct ps_store_file *ps_log_room_end(struct ps_log_room *r, uint64_t now_us, uint64_t *to)
{
    struct ps_store_file *file = r->file;
    *to = atomic_load(&r->done);
    r->retry_us = r->has_failed ? now_us + PS_LOG_ROOM_RETRY_US : 0;
    r->file = NULL;
    return file;
}
