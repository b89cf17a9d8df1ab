/* Writing a checkpoint: cores fill blocks, one thread writes them and publishes the checkpoint. */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <xxhash.h>

#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/log.h"
#include "dataplane/wire/base/thread.h"
#include "ps/base/byte_rate.h"
#include "ps/base/cpu_affinity.h"
#include "ps/base/ring.h"
#include "ps/checkpoint/checkpoint.h"
#include "ps/checkpoint/checkpoint_attempt.h"
#include "ps/checkpoint/checkpoint_manifest.h"
#include "ps/io/store.h"
#include "ps/io/write_pool.h"

#define HEADERS_SHARE      32u /* of a block: headers of records, and the unused rest at its end */
#define CACHE_LINE         64u
#define PREFETCH_BYTES_MAX 4096u

/* How often the thread looks at the rings when there is nothing to do, so that no core makes a system call.
 * Few blocks fill up meanwhile, and looking more often costs a busy machine processor time. */
#define NAP_US 1000u

#define PUSH_WAITS_US 1000000u /* so long after it was refused room, a push is taken to wait for it still */

/* What two threads touch is in the rings and the atomics; each other field belongs to the thread that it
 * names. */
static_assert(PS_WRITER_BUFFERS_MAX == PS_RING_CAPACITY, "a ring holds every buffer of its core");

struct writer_core {
    /* the core's own */
    alignas(64) uint8_t *block; /* being filled; NULL: none */
    uintptr_t buffer;           /* its number */
    uint32_t payload_bytes, record_count;
    uint64_t expected_bytes; /* of the file; 0: unknown. Set before the first put, then read by the thread */
    uint64_t needs;          /* read by the thread once the core is done */
    struct ps_ring full;     /* core -> writer */
    struct ps_ring empty;    /* writer -> core */
    /* the thread's own, and what it polls */
    alignas(64) XXH3_state_t *hash; /* over the hashes of the blocks so far */
    _Atomic bool done;              /* set by the core after its last put */
    _Atomic uint64_t wanted_us;     /* when the core refused a push for want of room last; 0: never */
};

struct ps_writer {
    struct writer_core cores[MR_CORE_MAX];
    struct ps_attempt attempt;
    struct ps_chain parents; /* of a delta; open, so that retention leaves them alone */
    struct ps_write_pool *pool;
    struct ps_uring_counters *counters; /* of it; NULL: not counted */
    uint8_t *buffers;
    size_t buffers_bytes;
    uint8_t *feature_kind; /* by feature id: enum mr_feature_kind, 0 = not saved */
    uint32_t core_count, buffers_per_core;
    pthread_t thread;
    struct ps_byte_rate rate; /* this and the next belong to the thread */
    uint64_t start_us;
    uint32_t next_core; /* whose block is taken next */
    _Atomic bool abort, failed, done;
    bool has_parent_hash;
    _Atomic uint64_t bytes_written;
    /* what is to be written, and on what */
    uint64_t parent_id;
    struct ps_hash parent_hash;
    char method[32];
    char directory[PS_PATH_BYTES];
    /* of a store on another machine */
    _Atomic bool *stop; /* NULL: the store is here */
    uint64_t stall_us_max;
    uint64_t waiting_since_us, seen_bytes; /* of ps_writer_watch() */
    _Atomic bool is_placed;                /* the thread runs where it may */
    _Atomic bool is_stalled;               /* why it is aborted */
    _Atomic bool is_cut_off;               /* by the abort, once: what is removed afterwards is let pass */
    struct ps_writer_status outcome;       /* the thread's until `done` */
};

/* ---- a core's side ---- */

bool ps_writer_failed(const struct ps_writer *w)
{
    return atomic_load_explicit(&w->failed, memory_order_acquire);
}

void ps_writer_expect(struct ps_writer *w, uint32_t core, uint64_t bytes)
{
    assert(core < w->core_count && !w->cores[core].block);
    w->cores[core].expected_bytes = bytes + bytes / HEADERS_SHARE + PS_BLOCK_BYTES;
}

void ps_writer_need(struct ps_writer *w, uint32_t core, uint64_t needs)
{
    assert(core < w->core_count);
    w->cores[core].needs |= needs;
}

uint32_t ps_writer_free_bytes(struct ps_writer *w, uint32_t core)
{
    assert(core < w->core_count);
    struct writer_core *c = &w->cores[core];
    if (ps_writer_failed(w))
        return 0;
    uint32_t left = c->block ? PS_PAYLOAD_BYTES - c->payload_bytes : 0;
    return left + ps_ring_count(&c->empty) * PS_PAYLOAD_BYTES;
}

static void hand_over(struct writer_core *c)
{
    struct ps_block_header *header = (struct ps_block_header *)(void *)c->block;
    header->payload_bytes = c->payload_bytes;
    header->record_count = c->record_count;
    bool room = ps_ring_put(&c->full, c->buffer);
    assert(room);
    (void)room;
    c->block = NULL;
}

static bool take_block(struct ps_writer *w, struct writer_core *c)
{
    if (!ps_ring_take(&c->empty, &c->buffer))
        return false;
    c->block = w->buffers + c->buffer * PS_BLOCK_BYTES;
    c->payload_bytes = 0;
    c->record_count = 0;
    return true;
}

static bool record_belongs(const struct ps_writer *w, const struct ps_record *record)
{
    const uint32_t kind = ps_record_feature_kind(record->kind);
    if (record->kind == PS_RECORD_GONE && w->attempt.manifest.parent == 0)
        return false;
    if (record->kind == PS_RECORD_PARAMETER)
        return record->feature < w->attempt.manifest.parameter_count;
    return kind == 0 || (record->feature <= PS_FEATURE_ID_MAX && w->feature_kind[record->feature] == kind);
}

/* Prefetches the place of the next record, which will be about as large: the disk's reads have evicted it
 * from the caches. */
static void prefetch_next(const struct writer_core *c, uint32_t bytes)
{
    uint32_t left = PS_PAYLOAD_BYTES - c->payload_bytes;
    bytes = bytes < left ? bytes : left;
    bytes = bytes < PREFETCH_BYTES_MAX ? bytes : PREFETCH_BYTES_MAX;
    const uint8_t *next = c->block + sizeof(struct ps_block_header) + c->payload_bytes;
    for (uint32_t at = 0; at < bytes; at += CACHE_LINE)
        __builtin_prefetch(next + at, 1, 3);
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
    memcpy(at, record, sizeof(*record));
    uint8_t *content = at + sizeof(*record);
    memset(content + record->bytes, 0, space - sizeof(*record) - record->bytes);
    c->payload_bytes += space;
    c->record_count++;
    prefetch_next(c, space);
    return content;
}

void ps_writer_push_waits(struct ps_writer *w, uint32_t core, uint64_t now_us)
{
    assert(core < w->core_count);
    atomic_store_explicit(&w->cores[core].wanted_us, now_us, memory_order_relaxed);
}

void ps_writer_core_done(struct ps_writer *w, uint32_t core)
{
    assert(core < w->core_count);
    struct writer_core *c = &w->cores[core];
    if (c->block)
        hand_over(c);
    atomic_store_explicit(&c->done, true, memory_order_release);
}

/* ---- the thread ---- */

/* What a store on another machine is doing for us ends, too. */
static void writer_fail(struct ps_writer *w, int error)
{
    w->outcome.status = MR_IO_ERROR;
    w->outcome.error_number = -error;
    atomic_store_explicit(&w->failed, true, memory_order_release);
    if (w->stop)
        atomic_store(w->stop, true);
    if (w->pool)
        ps_write_pool_cancel(w->pool);
}

/* A store on another machine may limit the length of a file. It refuses a longer one before the first
 * block. */
static void announce(struct ps_writer *w, uint32_t core)
{
    const struct ps_store *s = w->attempt.store;
    if (!w->stop || !s->reserve || w->attempt.manifest.files[core].blocks > 0)
        return;
    const int error = s->reserve(w->attempt.files[core], w->cores[core].expected_bytes);
    if (error != -EFBIG)
        return;
    ps_text_io(w->outcome.text, "save to", w->directory, -error);
    writer_fail(w, error);
}

static void write_block(struct ps_writer *w, uint32_t core, uint32_t buffer)
{
    struct writer_core *c = &w->cores[core];
    struct ps_manifest_file *file = &w->attempt.manifest.files[core];
    uint8_t *block = w->buffers + (size_t)buffer * PS_BLOCK_BYTES;
    const struct ps_block_header *header = (const struct ps_block_header *)(const void *)block;
    ps_block_seal(block, w->attempt.manifest.version, w->attempt.manifest.id, core, file->blocks);
    ps_attempt_reserve(&w->attempt, core, file->blocks, c->expected_bytes);
    announce(w, core);
    XXH3_128bits_update(c->hash, &header->hash, sizeof(header->hash));
    ps_write_pool_put(w->pool, core, buffer, (uint64_t)file->blocks * PS_BLOCK_BYTES);
    file->blocks++;
    file->payload_bytes += header->payload_bytes;
    file->records += header->record_count;
}

static bool may_write(struct ps_writer *w)
{
    return ps_write_pool_ready(w->pool) && ps_byte_rate_take(&w->rate, PS_BLOCK_BYTES, mr_clock_us());
}

/* Takes full blocks from the cores in turn, one block of each, starting after the core that came last. */
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
    if (!ps_write_pool_take(w->pool, wait_us, &done))
        return false;
    if (done.error != 0 && !ps_writer_failed(w)) {
        char path[PS_PATH_BYTES], name[PS_FILE_NAME_BYTES], what[48];
        ps_file_name(done.file, name);
        (void)ps_path_join(w->attempt.temporary, name, path);
        (void)snprintf(what, sizeof(what), "write of block %u to", (unsigned)(done.offset / PS_BLOCK_BYTES));
        ps_text_io(w->outcome.text, what, path, -done.error);
        writer_fail(w, done.error);
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
    return ps_write_pool_pending(w->pool) == 0;
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
            writer_fail(w, -ECANCELED);
            break;
        }
        bool taken = take_full(w);
        if (ps_write_pool_pending(w->pool) > 0)
            (void)give_back(w, taken ? 0 : NAP_US);
        else if (!taken)
            nap();
    }
    /* The kernel reads the buffers until its writes are over, and so do requests. */
    while (ps_write_pool_pending(w->pool) > 0)
        (void)give_back(w, NAP_US);
}

/* Checks the parents once more: they may have been removed meanwhile, and without them the delta is
 * worthless. */
static bool has_parents(struct ps_writer *w)
{
    const struct ps_manifest *m = &w->attempt.manifest;
    struct ps_chain parents = {0};
    if (m->parent == 0)
        return true;
    enum mr_status status = ps_attempt_open_parents(&w->attempt, w->attempt.directory, &m->parent_hash,
                                                    &parents, w->outcome.text);
    ps_chain_close(&parents);
    if (status == MR_OK)
        return true;
    writer_fail(w, -ESTALE);
    w->outcome.status = status;
    return false;
}

static void publish(struct ps_writer *w)
{
    struct ps_manifest *m = &w->attempt.manifest;
    if (!has_parents(w))
        return;
    for (uint32_t core = 0; core < w->core_count; core++) {
        m->needs |= w->cores[core].needs;
        XXH128_hash_t hash = XXH3_128bits_digest(w->cores[core].hash);
        m->files[core].hash = (struct ps_hash){.low = hash.low64, .high = hash.high64};
    }
    if (m->needs != 0) /* blocks are of version 6 then, perhaps */
        m->version = PS_FORMAT_VERSION;
    int error = ps_attempt_publish(&w->attempt, w->outcome.text);
    if (error != 0)
        writer_fail(w, error);
}

static enum mr_status read_parents(struct ps_writer *w, char *text)
{
    if (w->parent_id == 0)
        return MR_OK;
    enum mr_status status = ps_attempt_open_parents(
        &w->attempt, w->directory, w->has_parent_hash ? &w->parent_hash : NULL, &w->parents, text);
    if (status == MR_OK)
        w->attempt.manifest.parent_hash = w->parents.links[w->parents.count - 1]->manifest.hash;
    return status;
}

static int open_pool(struct ps_writer *w, const char **note)
{
    const struct ps_write_pool_options options = {.store = w->attempt.store,
                                                  .files = w->attempt.files,
                                                  .file_count = w->core_count,
                                                  .buffers = w->buffers,
                                                  .buffer_count = w->core_count * w->buffers_per_core,
                                                  .buffer_bytes = PS_BLOCK_BYTES,
                                                  .is_remote = w->stop != NULL,
                                                  .counters = w->stop ? NULL : w->counters};
    return ps_write_pool_create(&options, &w->pool, note);
}

/* Opens everything in a store on another machine, while the cores fill their buffers. */
static void open_remote(struct ps_writer *w)
{
    while (!atomic_load(&w->is_placed)) /* its own threads run where it does */
        nap();
    const enum mr_status status = read_parents(w, w->outcome.text);
    if (status != MR_OK) {
        writer_fail(w, -ESTALE);
        w->outcome.status = status;
        return;
    }
    const char *note;
    int error = ps_attempt_begin(&w->attempt, w->directory, w->outcome.text);
    if (error == 0 && (error = open_pool(w, &note)) != 0)
        ps_text_io(w->outcome.text, "save to", w->directory, -error);
    if (error != 0)
        writer_fail(w, error);
}

static void explain_stall(struct ps_writer *w)
{
    if (!ps_writer_failed(w) || !atomic_load(&w->is_stalled))
        return;
    (void)snprintf(
        w->outcome.text, sizeof(w->outcome.text),
        "save to %.120s: pushes waited for longer than checkpoint.store_wait_ms while the store took "
        "nothing; see whether it is overloaded",
        w->directory);
    w->outcome.status = MR_IO_ERROR;
    w->outcome.error_number = ETIMEDOUT;
}

static void *writer_thread(void *arg)
{
    struct ps_writer *w = arg;
    if (w->stop)
        open_remote(w);
    if (!ps_writer_failed(w))
        write_blocks(w);
    if (!ps_writer_failed(w))
        publish(w);
    ps_write_pool_destroy(w->pool);
    w->pool = NULL;
    explain_stall(w);
    if (w->stop)
        atomic_store(w->stop, false); /* for what is to be removed */
    ps_attempt_end(&w->attempt, !ps_writer_failed(w));
    w->outcome.duration_us = mr_clock_us() - w->start_us;
    atomic_store_explicit(&w->done, true, memory_order_release);
    return NULL;
}

/* ---- the control thread's side ---- */

static void writer_free(struct ps_writer *w)
{
    ps_write_pool_destroy(w->pool);
    ps_attempt_end(&w->attempt, !ps_writer_failed(w) && atomic_load(&w->done));
    for (uint32_t core = 0; core < MR_CORE_MAX; core++)
        XXH3_freeState(w->cores[core].hash);
    if (w->buffers)
        (void)munmap(w->buffers, w->buffers_bytes);
    ps_chain_close(&w->parents);
    ps_manifest_clear(&w->attempt.manifest);
    free(w->feature_kind);
    free(w);
}

void ps_writer_finish(struct ps_writer *w)
{
    (void)pthread_join(w->thread, NULL);
    writer_free(w);
}

static bool copy_features(struct ps_writer *w, const struct ps_writer_options *options)
{
    struct ps_manifest *m = &w->attempt.manifest;
    const uint32_t count = options->feature_count;
    m->features = calloc(count + 1u, sizeof(*m->features));
    m->feature_ids = calloc(count + 1u, sizeof(*m->feature_ids));
    w->feature_kind = calloc(PS_FEATURE_ID_MAX + 1u, 1);
    if (!m->features || !m->feature_ids || !w->feature_kind)
        return false;
    m->feature_count = count;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t id = options->feature_ids[i];
        m->needs |= mr_feature_needs(&options->features[i]);
        assert(id <= PS_FEATURE_ID_MAX);
        m->features[i] = options->features[i];
        m->feature_ids[i] = id;
        w->feature_kind[id] = (uint8_t)options->features[i].kind;
    }
    m->version = m->needs != 0 ? PS_FORMAT_VERSION : PS_FORMAT_VERSION_6;
    return true;
}

/* Checks this now rather than after all rows are written. */
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
        (void)ps_ring_put(&w->cores[buffer / w->buffers_per_core].empty, buffer);
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
    if (open_pool(w, &note) != 0)
        return false;
    bool direct = store->is_direct(w->attempt.files[0]);
    (void)snprintf(w->method, sizeof(w->method), "%s, %s", ps_write_pool_name(w->pool),
                   direct ? "O_DIRECT" : "page cache");
    if (note)
        mr_log_info("no_io_uring", "checkpoint: writing without io_uring: %s", note);
    if (!direct)
        mr_log_info("no_direct_io", "checkpoint: %s does not take O_DIRECT; writing through the page cache",
                    w->attempt.directory);
    return true;
}

static int start_thread(struct ps_writer *w, const struct ps_writer_options *options)
{
    const int error = mr_thread_start(&w->thread, writer_thread, w);
    if (error == 0) {
        (void)pthread_setname_np(w->thread, "checkpoint");
        ps_cpu_affinity_avoid(w->thread, options->avoid_cpus, options->avoid_cpu_count);
        atomic_store(&w->is_placed, true);
    }
    return error;
}

static enum mr_status checkpoint_writer_begin(struct ps_writer *w, const struct ps_writer_options *options,
                                              char *text)
{
    if (!copy_features(w, options) || !make_buffers(w))
        return MR_NO_MEMORY;
    if (!features_printable(w)) {
        ps_text_path(text, options->directory, "a feature's name or numbers cannot be written in a manifest");
        return MR_INVALID_ARGUMENT;
    }
    if (w->stop) {
        (void)snprintf(w->method, sizeof(w->method), "requests");
        return start_thread(w, options) == 0 ? MR_OK : MR_NO_MEMORY;
    }
    enum mr_status status = read_parents(w, text);
    if (status != MR_OK)
        return status;
    if (ps_attempt_begin(&w->attempt, options->directory, text) != 0)
        return MR_IO_ERROR;
    return open_disk(w) && start_thread(w, options) == 0 ? MR_OK : MR_NO_MEMORY;
}

enum mr_status ps_writer_start(const struct ps_store *store, const struct ps_writer_options *options,
                               struct ps_writer **out, char *text)
{
    assert(options->core_count >= 1 && options->core_count <= MR_CORE_MAX);
    assert(options->id >= 1 && options->id <= (uint64_t)PS_CHECKPOINT_ID_MAX &&
           options->parent_id < options->id && !(options->is_partial && options->parent_id != 0));
    assert(options->buffers_per_core >= 2 && options->buffers_per_core <= PS_WRITER_BUFFERS_MAX);
    enum mr_status status = MR_NO_MEMORY;
    struct ps_writer *w = aligned_alloc(64, (sizeof(*w) + 63) / 64 * 64);
    if (w) {
        memset(w, 0, sizeof(*w));
        w->core_count = options->core_count;
        w->buffers_per_core = options->buffers_per_core;
        w->rate.bytes_per_s_max = options->bytes_per_s_max;
        w->start_us = mr_clock_us();
        w->attempt.store = store ? store : ps_store_local();
        w->attempt.is_remote = options->stop != NULL;
        w->attempt.is_by_trainer = options->is_by_trainer;
        (void)snprintf(w->directory, sizeof(w->directory), "%s", options->directory);
        w->parent_id = options->parent_id;
        w->has_parent_hash = options->parent_hash != NULL;
        if (options->parent_hash)
            w->parent_hash = *options->parent_hash;
        w->stop = options->stop;
        w->stall_us_max = options->stall_us_max;
        w->counters = options->counters;
        if (w->stop)
            atomic_store(w->stop, false);
        w->attempt.manifest.id = options->id;
        w->attempt.manifest.parent = options->parent_id;
        w->attempt.manifest.step = options->step;
        w->attempt.manifest.clock_s = options->clock_s;
        w->attempt.manifest.is_at_step = options->is_at_step;
        w->attempt.manifest.is_partial = options->is_partial;
        if (options->ancestry)
            w->attempt.manifest.ancestry = *options->ancestry;
        w->attempt.manifest.incarnation = options->incarnation;
        w->attempt.manifest.file_count = options->core_count;
        status = checkpoint_writer_begin(w, options, text);
    }
    if (status == MR_OK) {
        *out = w;
        return MR_OK;
    }
    if (status == MR_NO_MEMORY)
        ps_text_io(text, "save to", options->directory, ENOMEM);
    if (w)
        writer_free(w);
    return status;
}

enum mr_status ps_writer_set_parameters(struct ps_writer *w, const struct ps_saved_parameter *parameters,
                                        uint32_t count)
{
    struct ps_manifest *m = &w->attempt.manifest;
    assert(count <= PS_PARAMETERS_MAX && !m->parameters);
    m->parameters = malloc((count + 1u) * sizeof(*m->parameters));
    if (!m->parameters)
        return MR_NO_MEMORY;
    if (count > 0)
        memcpy(m->parameters, parameters, count * sizeof(*parameters));
    m->parameter_count = count;
    return MR_OK;
}

void ps_writer_status(const struct ps_writer *w, struct ps_writer_status *out)
{
    struct ps_writer_status status = {0};
    if (atomic_load_explicit(&w->done, memory_order_acquire)) {
        status = w->outcome;
        status.done = true;
        status.manifest_hash = w->attempt.manifest.hash;
    } else {
        status.duration_us = mr_clock_us() - w->start_us;
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
    if (w->stop && !atomic_exchange(&w->is_cut_off, true))
        atomic_store(w->stop, true);
}

static bool pushes_wait(const struct ps_writer *w, uint64_t now_us)
{
    for (uint32_t core = 0; core < w->core_count; core++) {
        const uint64_t wanted_us = atomic_load_explicit(&w->cores[core].wanted_us, memory_order_relaxed);
        if (wanted_us != 0 && now_us < wanted_us + PUSH_WAITS_US)
            return true;
    }
    return false;
}

void ps_writer_watch(struct ps_writer *w, uint64_t now_us)
{
    const uint64_t bytes = atomic_load_explicit(&w->bytes_written, memory_order_relaxed);
    if (w->stall_us_max == 0)
        return;
    if (w->waiting_since_us == 0 || !pushes_wait(w, now_us) || bytes != w->seen_bytes)
        w->waiting_since_us = now_us;
    w->seen_bytes = bytes;
    if (now_us - w->waiting_since_us <= w->stall_us_max || atomic_exchange(&w->is_stalled, true))
        return;
    ps_writer_abort(w);
}
