/* The thread that takes full blocks from every core's ring, seals and writes them, and publishes the
 * checkpoint when every core is done. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "dataplane/wire/base/clock.h"
#include "ps/checkpoint/checkpoint_writer_internal.h"

#define NAP_US                                                                                               \
    1000u /* the writer looks at the rings this often when there is nothing to do: no core makes a system call. Few blocks become \
             full meanwhile, and looking costs a busy machine a processor's time. */

static void fail(struct ps_writer *w, int error)
{
    w->outcome.status = MR_IO_ERROR;
    w->outcome.error_number = -error;
    atomic_store_explicit(&w->failed, true, memory_order_release);
}

static void write_block(struct ps_writer *w, uint32_t core, uint32_t buffer)
{
    struct writer_core *c = &w->cores[core];
    struct ps_manifest_file *file = &w->attempt.manifest.files[core];
    uint8_t *block = w->buffers + (size_t)buffer * PS_BLOCK_BYTES;
    const struct ps_block_header *header = (const struct ps_block_header *)(const void *)block;
    ps_block_seal(block, w->attempt.manifest.id, core, file->blocks);
    ps_attempt_reserve(&w->attempt, core, file->blocks, c->expected_bytes);
    XXH3_128bits_update(c->hash, &header->hash, sizeof(header->hash));
    ps_uring_writer_put(w->disk, core, buffer, (uint64_t)file->blocks * PS_BLOCK_BYTES);
    file->blocks++;
    file->payload_bytes += header->payload_bytes;
    file->records += header->record_count;
}

static bool may_write(struct ps_writer *w)
{
    return ps_uring_writer_ready(w->disk) && ps_byte_rate_take(&w->rate, PS_BLOCK_BYTES, mr_clock_us());
}

/* Takes what the cores have filled, fairly: one block of each core a turn, going on with the core behind the
 * last one. */
static bool take_full(struct ps_writer *w)
{
    bool any = false;
    for (uint32_t i = 0; i < w->core_count; i++) {
        const uint32_t core = w->next_core;
        uintptr_t buffer;
        if (ps_ring_count(&w->cores[core].full) > 0) {
            if (!may_write(w) || !ps_ring_take(&w->cores[core].full, &buffer))
                break;
            write_block(w, core, (uint32_t)buffer);
            any = true;
        }
        w->next_core = (core + 1) % w->core_count;
    }
    return any;
}

static bool give_back(struct ps_writer *w, uint32_t wait_us)
{
    struct ps_write_done done;
    if (!ps_uring_writer_reap(w->disk, wait_us, &done))
        return false;
    if (done.error != 0 && !ps_writer_failed(w)) {
        char path[PS_PATH_BYTES], name[PS_FILE_NAME_BYTES], what[48];
        ps_file_name(done.file, name);
        (void)ps_path_join(w->attempt.temporary, name, path);
        (void)snprintf(what, sizeof(what), "write of block %u to", (unsigned)(done.offset / PS_BLOCK_BYTES));
        ps_text_io(w->outcome.text, what, path, -done.error);
        fail(w, done.error);
    }
    if (done.error == 0)
        atomic_fetch_add_explicit(&w->bytes_written, PS_BLOCK_BYTES, memory_order_relaxed);
    bool room = ps_ring_put(&w->cores[done.file].empty, done.buffer);
    assert(room);
    (void)room;
    return true;
}

static bool all_written(struct ps_writer *w)
{
    for (uint32_t core = 0; core < w->core_count; core++) {
        /* In this order: a core sets `done` after its last put. */
        if (!atomic_load_explicit(&w->cores[core].done, memory_order_acquire) ||
            ps_ring_count(&w->cores[core].full) > 0)
            return false;
    }
    return ps_uring_writer_pending(w->disk) == 0;
}

static void nap(void)
{
    const struct timespec pause = {.tv_nsec = NAP_US * 1000L};
    (void)nanosleep(&pause, NULL);
}

static void write_blocks(struct ps_writer *w)
{
    while (!ps_writer_failed(w) && !all_written(w)) {
        if (atomic_load_explicit(&w->abort, memory_order_acquire)) {
            ps_text_io(w->outcome.text, "save to", w->attempt.directory, ECANCELED);
            fail(w, -ECANCELED);
            break;
        }
        bool taken = take_full(w);
        if (ps_uring_writer_pending(w->disk) > 0)
            (void)give_back(w, taken ? 0 : NAP_US);
        else if (!taken)
            nap();
    }
    /* The kernel reads the buffers until its writes are over. */
    while (ps_uring_writer_pending(w->disk) > 0)
        (void)give_back(w, NAP_US);
}

/* What it is based on may have gone while it was written: then it is worth nothing. */
static bool has_parents(struct ps_writer *w)
{
    const struct ps_manifest *m = &w->attempt.manifest;
    struct ps_chain parents = {0};
    if (m->parent == 0)
        return true;
    enum mr_status status =
        ps_writer_open_parents(w, w->attempt.directory, &m->parent_hash, &parents, w->outcome.text);
    ps_chain_close(&parents);
    if (status == MR_OK)
        return true;
    fail(w, -ESTALE);
    w->outcome.status = status;
    return false;
}

static void publish(struct ps_writer *w)
{
    if (!has_parents(w))
        return;
    for (uint32_t core = 0; core < w->core_count; core++) {
        XXH128_hash_t hash = XXH3_128bits_digest(w->cores[core].hash);
        w->attempt.manifest.files[core].hash = (struct ps_hash){.low = hash.low64, .high = hash.high64};
    }
    int error = ps_attempt_publish(&w->attempt, w->outcome.text);
    if (error != 0)
        fail(w, error);
}

void *ps_writer_thread(void *arg)
{
    struct ps_writer *w = arg;
    write_blocks(w);
    if (!ps_writer_failed(w))
        publish(w);
    ps_uring_writer_destroy(w->disk);
    w->disk = NULL;
    ps_attempt_end(&w->attempt, !ps_writer_failed(w));
    w->outcome.duration_us = mr_clock_us() - w->start_us;
    atomic_store_explicit(&w->done, true, memory_order_release);
    return NULL;
}
