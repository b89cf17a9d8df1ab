/* A thread that takes full blocks from every core's ring, seals and writes them, and publishes the checkpoint when every
 * core is done. All state that both sides touch is in the two rings and the atomics below. */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <xxhash.h>

#include "ps/buffer_ring.h"
#include "ps/checkpoint.h"
#include "ps/checkpoint_attempt.h"
#include "ps/log.h"
#include "ps/uring_writer.h"

#define NAP_US                                                                                               \
    100u /* the writer looks at the rings this often when there is nothing to do: no core makes a system call */

static_assert(PS_WRITER_BUFFERS_MAX == PS_BUFFER_RING_CAPACITY, "a ring holds every buffer of its core");

struct writer_core {
    struct ps_buffer_ring full;  /* core -> writer */
    struct ps_buffer_ring empty; /* writer -> core */
    /* the core's own */
    alignas(64) uint8_t *block; /* being filled, NULL = none */
    uint32_t buffer, payload_bytes, record_count;
    /* the writer's own, and what it polls */
    alignas(64) XXH3_state_t *hash; /* over the hashes of the blocks so far */
    _Atomic bool done;              /* set by the core after its last put */
};

struct ps_writer {
    struct ps_attempt attempt;
    struct ps_uring_writer *disk;
    uint8_t *buffers;
    size_t buffers_bytes;
    uint32_t core_count, buffers_per_core;
    uint8_t *feature_kind; /* by feature id: enum mr_feature_kind, 0 = not saved */
    pthread_t thread;
    uint64_t start_us;
    char method[32];
    _Atomic uint64_t bytes_written;
    _Atomic bool abort, failed, done;
    struct ps_writer_status outcome; /* the thread's until `done` */
    struct writer_core cores[MR_CORE_MAX];
};

static uint64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

/* ---- a core's side ---- */

uint32_t ps_writer_record_bytes_max(void)
{
    return PS_PAYLOAD_BYTES - (uint32_t)sizeof(struct ps_record);
}

bool ps_writer_failed(const struct ps_writer *w)
{
    return atomic_load_explicit(&w->failed, memory_order_acquire);
}

uint32_t ps_writer_free_bytes(struct ps_writer *w, uint32_t core)
{
    assert(core < w->core_count);
    struct writer_core *c = &w->cores[core];
    if (ps_writer_failed(w))
        return 0;
    uint32_t left = c->block ? PS_PAYLOAD_BYTES - c->payload_bytes : 0;
    return left + ps_buffer_ring_count(&c->empty) * PS_PAYLOAD_BYTES;
}

bool ps_writer_fits(struct ps_writer *w, uint32_t core, uint64_t record_count, uint64_t record_bytes)
{
    assert(core < w->core_count && record_bytes <= ps_writer_record_bytes_max());
    struct writer_core *c = &w->cores[core];
    if (ps_writer_failed(w))
        return false;
    /* A block is left only when less than one largest record is free in it, so it holds at least this many. */
    const uint64_t space = ps_record_space(record_bytes);
    uint64_t left = c->block ? PS_PAYLOAD_BYTES - c->payload_bytes : 0;
    return left / space + ps_buffer_ring_count(&c->empty) * (PS_PAYLOAD_BYTES / space) >= record_count;
}

static void hand_over(struct writer_core *c)
{
    struct ps_block_header *header = (struct ps_block_header *)(void *)c->block;
    header->payload_bytes = c->payload_bytes;
    header->record_count = c->record_count;
    bool room = ps_buffer_ring_put(&c->full, c->buffer);
    assert(room);
    (void)room;
    c->block = NULL;
}

static bool take_block(struct ps_writer *w, struct writer_core *c)
{
    if (!ps_buffer_ring_take(&c->empty, &c->buffer))
        return false;
    c->block = w->buffers + (size_t)c->buffer * PS_BLOCK_BYTES;
    c->payload_bytes = 0;
    c->record_count = 0;
    return true;
}

static bool record_belongs(const struct ps_writer *w, const struct ps_record *record)
{
    if (record->kind != PS_RECORD_ROWS && record->kind != PS_RECORD_VARIABLE)
        return true;
    uint32_t kind = record->kind == PS_RECORD_ROWS ? MR_TABLE : MR_VARIABLE;
    return record->feature <= PS_FEATURE_ID_MAX && w->feature_kind[record->feature] == kind;
}

uint8_t *ps_writer_append(struct ps_writer *w, uint32_t core, const struct ps_record *record)
{
    assert(core < w->core_count && !ps_record_check(record) && record_belongs(w, record));
    struct writer_core *c = &w->cores[core];
    if (ps_writer_failed(w))
        return NULL;
    const uint32_t space = (uint32_t)ps_record_space(record->bytes);
    if (c->block && space > PS_PAYLOAD_BYTES - c->payload_bytes)
        hand_over(c);
    if (!c->block && !take_block(w, c))
        return NULL;
    uint8_t *at = c->block + sizeof(struct ps_block_header) + c->payload_bytes;
    memcpy(at, record, sizeof *record);
    uint8_t *content = at + sizeof *record;
    memset(content + record->bytes, 0, space - sizeof *record - record->bytes);
    c->payload_bytes += space;
    c->record_count++;
    return content;
}

void ps_writer_core_done(struct ps_writer *w, uint32_t core)
{
    assert(core < w->core_count);
    struct writer_core *c = &w->cores[core];
    if (c->block)
        hand_over(c);
    atomic_store_explicit(&c->done, true, memory_order_release);
}

/* ---- the writer thread ---- */

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
    XXH3_128bits_update(c->hash, &header->hash, sizeof header->hash);
    ps_uring_writer_put(w->disk, core, buffer, (uint64_t)file->blocks * PS_BLOCK_BYTES);
    file->blocks++;
    file->payload_bytes += header->payload_bytes;
    file->records += header->record_count;
}

/* Takes what the cores have filled, fairly: one block of each core a turn. */
static bool take_full(struct ps_writer *w)
{
    bool any = false;
    for (uint32_t core = 0; core < w->core_count && ps_uring_writer_ready(w->disk); core++) {
        uint32_t buffer;
        if (ps_buffer_ring_take(&w->cores[core].full, &buffer)) {
            write_block(w, core, buffer);
            any = true;
        }
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
        (void)snprintf(what, sizeof what, "write of block %u to", (unsigned)(done.offset / PS_BLOCK_BYTES));
        ps_text_io(w->outcome.text, what, path, -done.error);
        fail(w, done.error);
    }
    if (done.error == 0)
        atomic_fetch_add_explicit(&w->bytes_written, PS_BLOCK_BYTES, memory_order_relaxed);
    bool room = ps_buffer_ring_put(&w->cores[done.file].empty, done.buffer);
    assert(room);
    (void)room;
    return true;
}

static bool all_written(struct ps_writer *w)
{
    for (uint32_t core = 0; core < w->core_count; core++) {
        /* In this order: a core sets `done` after its last put. */
        if (!atomic_load_explicit(&w->cores[core].done, memory_order_acquire) ||
            ps_buffer_ring_count(&w->cores[core].full) > 0)
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

static void publish(struct ps_writer *w)
{
    for (uint32_t core = 0; core < w->core_count; core++) {
        XXH128_hash_t hash = XXH3_128bits_digest(w->cores[core].hash);
        w->attempt.manifest.files[core].hash = (struct ps_hash){.low = hash.low64, .high = hash.high64};
    }
    int error = ps_attempt_publish(&w->attempt, w->outcome.text);
    if (error != 0)
        fail(w, error);
}

static void *writer_thread(void *arg)
{
    struct ps_writer *w = arg;
    write_blocks(w);
    if (!ps_writer_failed(w))
        publish(w);
    ps_uring_writer_destroy(w->disk);
    w->disk = NULL;
    ps_attempt_end(&w->attempt, !ps_writer_failed(w));
    w->outcome.duration_us = now_us() - w->start_us;
    atomic_store_explicit(&w->done, true, memory_order_release);
    return NULL;
}

/* ---- the control thread's side ---- */

void ps_writer_status(const struct ps_writer *w, struct ps_writer_status *out)
{
    struct ps_writer_status status = {.id = w->attempt.manifest.id};
    if (atomic_load_explicit(&w->done, memory_order_acquire)) {
        status = w->outcome;
        status.id = w->attempt.manifest.id;
        status.done = true;
    } else {
        status.duration_us = now_us() - w->start_us;
    }
    status.bytes_written = atomic_load_explicit(&w->bytes_written, memory_order_relaxed);
    *out = status;
}

const char *ps_writer_method(const struct ps_writer *w)
{
    return w->method;
}

void ps_writer_abort(struct ps_writer *w)
{
    atomic_store_explicit(&w->abort, true, memory_order_release);
}

static void writer_free(struct ps_writer *w)
{
    ps_uring_writer_destroy(w->disk);
    ps_attempt_end(&w->attempt, !ps_writer_failed(w) && atomic_load(&w->done));
    for (uint32_t core = 0; core < MR_CORE_MAX; core++)
        XXH3_freeState(w->cores[core].hash);
    if (w->buffers)
        (void)munmap(w->buffers, w->buffers_bytes);
    ps_manifest_clear(&w->attempt.manifest);
    free(w->feature_kind);
    free(w);
}

void ps_writer_finish(struct ps_writer *w)
{
    (void)pthread_join(w->thread, NULL);
    writer_free(w);
}

static bool copy_features(struct ps_writer *w, const struct mr_feature *features, const uint32_t *feature_ids,
                          uint32_t count)
{
    struct ps_manifest *m = &w->attempt.manifest;
    m->features = calloc(count + 1u, sizeof *m->features);
    m->feature_ids = calloc(count + 1u, sizeof *m->feature_ids);
    w->feature_kind = calloc(PS_FEATURE_ID_MAX + 1u, 1);
    if (!m->features || !m->feature_ids || !w->feature_kind)
        return false;
    m->feature_count = count;
    for (uint32_t i = 0; i < count; i++) {
        assert(feature_ids[i] <= PS_FEATURE_ID_MAX);
        m->features[i] = features[i];
        m->feature_ids[i] = feature_ids[i];
        w->feature_kind[feature_ids[i]] = (uint8_t)features[i].kind;
    }
    return true;
}

/* Better known now than when all rows are written. */
static bool features_printable(const struct ps_writer *w)
{
    char *json = ps_manifest_print(&w->attempt.manifest);
    free(json);
    return json != NULL;
}

static bool make_buffers(struct ps_writer *w)
{
    const uint32_t count = w->core_count * w->buffers_per_core;
    w->buffers_bytes = (size_t)count * PS_BLOCK_BYTES;
    void *region = mmap(NULL, w->buffers_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (region == MAP_FAILED)
        return false;
    w->buffers = region;
    for (uint32_t buffer = 0; buffer < count; buffer++)
        (void)ps_buffer_ring_put(&w->cores[buffer / w->buffers_per_core].empty, buffer);
    for (uint32_t core = 0; core < w->core_count; core++) {
        w->cores[core].hash = XXH3_createState();
        if (!w->cores[core].hash || XXH3_128bits_reset(w->cores[core].hash) != XXH_OK)
            return false;
    }
    return true;
}

static bool open_disk(struct ps_writer *w)
{
    const struct ps_store *store = w->attempt.store;
    const char *note;
    if (ps_uring_writer_create(store, w->attempt.files, w->core_count, w->buffers,
                               w->core_count * w->buffers_per_core, PS_BLOCK_BYTES, &w->disk, &note) != 0)
        return false;
    bool direct = store->is_direct(w->attempt.files[0]);
    (void)snprintf(w->method, sizeof w->method, "%s, %s", ps_uring_writer_name(w->disk),
                   direct ? "O_DIRECT" : "page cache");
    if (note)
        ps_log("checkpoint: writing without io_uring: %s", note);
    if (!direct)
        ps_log("checkpoint: %s does not take O_DIRECT; writing through the page cache", w->attempt.directory);
    return true;
}

/* Signals are for the threads that handle them. */
static int start_thread(struct ps_writer *w)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int error = pthread_create(&w->thread, NULL, writer_thread, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0)
        (void)pthread_setname_np(w->thread, "checkpoint");
    return error;
}

enum mr_status ps_writer_start_on(const struct ps_store *store, const char *directory, uint64_t id,
                                  uint32_t core_count, uint32_t incarnation,
                                  const struct mr_feature *features, const uint32_t *feature_ids,
                                  uint32_t feature_count, uint32_t buffers_per_core, struct ps_writer **out,
                                  char *text)
{
    assert(core_count >= 1 && core_count <= MR_CORE_MAX && id >= 1 && id <= (uint64_t)PS_CHECKPOINT_ID_MAX);
    assert(buffers_per_core >= 2 && buffers_per_core <= PS_WRITER_BUFFERS_MAX);
    enum mr_status status = MR_NO_MEMORY;
    struct ps_writer *w = aligned_alloc(64, (sizeof *w + 63) / 64 * 64);
    if (!w)
        goto no_memory;
    memset(w, 0, sizeof *w);
    w->core_count = core_count;
    w->buffers_per_core = buffers_per_core;
    w->start_us = now_us();
    w->attempt.store = store;
    w->attempt.manifest.version = PS_FORMAT_VERSION;
    w->attempt.manifest.id = id;
    w->attempt.manifest.incarnation = incarnation;
    w->attempt.manifest.file_count = core_count;
    if (!copy_features(w, features, feature_ids, feature_count) || !make_buffers(w))
        goto no_memory;
    if (!features_printable(w)) {
        ps_text_path(text, directory, "a feature's name or numbers cannot be written in a manifest");
        status = MR_INVALID_ARGUMENT;
        goto failed;
    }
    if (ps_attempt_begin(&w->attempt, directory, text) != 0) {
        status = MR_IO_ERROR;
        goto failed;
    }
    if (!open_disk(w) || start_thread(w) != 0)
        goto no_memory;
    *out = w;
    return MR_OK;

no_memory:
    ps_text_io(text, "save to", directory, ENOMEM);
failed:
    if (w)
        writer_free(w);
    return status;
}

enum mr_status ps_writer_start(const char *directory, uint64_t id, uint32_t core_count, uint32_t incarnation,
                               const struct mr_feature *features, const uint32_t *feature_ids,
                               uint32_t feature_count, uint32_t buffers_per_core, struct ps_writer **out,
                               char *text)
{
    return ps_writer_start_on(ps_store_local(), directory, id, core_count, incarnation, features, feature_ids,
                              feature_count, buffers_per_core, out, text);
}
