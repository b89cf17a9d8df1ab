#include "ps/store/copy.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>
#include "dataplane/wire/base/clock.h"
#include "dataplane/wire/base/number.h"
#include "ps/base/byte_rate.h"
#include "ps/base/cpu_affinity.h"
#include "ps/io/read_pool.h"
#include "ps/store/copy_record.h"

#define RATE_LOOK_NS 2000000 /* how often a copy looks whether it may go on */
#define RANGE_BLOCKS (PS_COPY_BYTES / PS_BLOCK_BYTES)
#define PASSED_MAX   64u /* ranges: more than those of the parts that a store sends at a time */
#define SENT_BYTES   (PS_COPY_BYTES / 4) /* read and written at a time, to a store with parts in memory */
#define SENT_BLOCKS  (SENT_BYTES / PS_BLOCK_BYTES)
#define RECORD_BYTES (8u << 20) /* of a file between two writes of the record, if nothing else has changed */

/* The copy of one checkpoint: its threads take one file after the other. */
struct job {
    const struct ps_copy *copy;
    const struct ps_manifest *manifest;
    const char *from_path;
    char to_path[PS_PATH_BYTES];  /* the temporary directory */
    pthread_mutex_t lock;         /* of what follows */
    struct ps_copy_record record; /* files NULL: none is kept */
    struct ps_byte_rate rate;
    uint32_t next, thread_count;
    enum mr_status status; /* the first that is not MR_OK */
    char text[PS_TEXT_BYTES];
};

static bool is_stopped(const struct ps_copy *copy)
{
    return copy->stop && atomic_load(copy->stop);
}

/* ---- one file ---- */

/* The hash of what a file has before some place. */
struct passed {
    uint64_t offset;
    struct ps_hash hash;
};

struct moving {
    struct job *job;
    uint32_t core;
    char from_path[PS_PATH_BYTES], to_path[PS_PATH_BYTES];
    struct ps_store_file *from, *to;
    struct ps_read_pool *ahead; /* of a file that is copied in its order */
    struct ps_manifest_file found;
    XXH3_state_t *hash;
    struct ps_hash *hashes;           /* of each block, of a file that comes in any order; else NULL */
    uint32_t next;                    /* block that no thread reads yet */
    struct ps_copy_file *noted;       /* of the record; NULL: there is none */
    struct passed passed[PASSED_MAX]; /* the last ranges, by their number modulo that */
    uint64_t kept;                    /* bytes at the beginning that are there */
    uint64_t sent;                    /* bytes that had been sent when it began */
    uint64_t recorded;                /* noted->sent when the record was last written */
    bool is_stale;                    /* what is there is not what is read here */
};

static bool wait_for_rate(struct job *job, uint64_t bytes)
{
    for (;;) {
        pthread_mutex_lock(&job->lock);
        const bool may_go = ps_byte_rate_take(&job->rate, bytes, mr_clock_us());
        pthread_mutex_unlock(&job->lock);
        if (is_stopped(job->copy))
            return false;
        if (may_go)
            return true;
        nanosleep(&(struct timespec){.tv_nsec = RATE_LOOK_NS}, NULL);
    }
}

static const struct ps_block_header *header_of(const uint8_t *block)
{
    return (const struct ps_block_header *)(const void *)block;
}

static enum mr_status check_block(const struct moving *m, const uint8_t *block, uint32_t number, char *text)
{
    const struct ps_manifest *manifest = m->job->manifest;
    char why[128];
    const char *wrong = ps_block_check(block, manifest->version, manifest->id, m->core, number);
    if (!wrong)
        return MR_OK;
    (void)snprintf(why, sizeof(why), "block %" PRIu32 ": %s", number, wrong);
    return ps_checkpoint_corrupt(text, m->from_path, why);
}

static enum mr_status check_blocks(struct moving *m, const uint8_t *blocks, uint32_t count, char *text)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *block = blocks + (size_t)i * PS_BLOCK_BYTES;
        const struct ps_block_header *header = header_of(block);
        const enum mr_status status = check_block(m, block, m->found.blocks, text);
        if (status != MR_OK)
            return status;
        m->found.blocks++;
        m->found.payload_bytes += header->payload_bytes;
        m->found.records += header->record_count;
        (void)XXH3_128bits_update(m->hash, &header->hash, sizeof(header->hash));
    }
    return MR_OK;
}

/* Of all blocks so far. */
static struct ps_hash digest(const struct moving *m)
{
    const XXH128_hash_t hash = XXH3_128bits_digest(m->hash);
    return (struct ps_hash){.low = hash.low64, .high = hash.high64};
}

static enum mr_status check_whole(const struct moving *m, char *text)
{
    const struct ps_manifest_file *expected = &m->job->manifest->files[m->core];
    if (m->found.payload_bytes == expected->payload_bytes && m->found.records == expected->records &&
        ps_hash_equal(digest(m), expected->hash))
        return MR_OK;
    return ps_checkpoint_corrupt(text, m->from_path, "its blocks are not those that the MANIFEST names");
}

static void report(struct job *job, void (*to)(void *arg, uint64_t bytes), uint64_t bytes)
{
    pthread_mutex_lock(&job->lock);
    if (to && bytes > 0)
        to(job->copy->arg, bytes);
    pthread_mutex_unlock(&job->lock);
}

/* What is there was sent when the hash of all blocks up to there was the same. */
static bool check_kept(struct moving *m)
{
    m->is_stale = !ps_hash_equal(digest(m), m->noted->hash);
    return !m->is_stale;
}

/* The hash up to there; NULL: it is too long ago. */
static const struct ps_hash *passed_at(const struct moving *m, uint64_t offset)
{
    const struct passed *p = &m->passed[offset / SENT_BYTES % PASSED_MAX];
    return p->offset == offset ? &p->hash : NULL;
}

/* Writes down how far the store is. It says that all is safe up to where some range began: it sends what is
 * written before. */
static void note_progress(struct moving *m)
{
    struct job *job = m->job;
    struct ps_store_mark mark;
    if (!m->noted || job->copy->to->mark(m->to, &mark) != 0)
        return;
    const struct ps_hash *hash = passed_at(m, mark.bytes);
    pthread_mutex_lock(&job->lock);
    const bool is_further = mark.bytes > m->noted->mark.bytes && hash != NULL;
    if (is_further) {
        m->noted->mark = mark;
        m->noted->hash = *hash;
    }
    if (is_further || m->noted->sent >= m->recorded + RECORD_BYTES) {
        m->recorded = m->noted->sent;
        ps_copy_record_write(job->copy->from_directory, &job->record);
    }
    pthread_mutex_unlock(&job->lock);
}

static void note_sent(struct moving *m, uint64_t offset, size_t bytes)
{
    struct job *job = m->job;
    const uint64_t end = offset + bytes;
    const uint64_t again_end = end < m->sent ? end : m->sent;
    report(job, job->copy->again, again_end > offset ? again_end - offset : 0);
    if (!m->noted)
        return;
    pthread_mutex_lock(&job->lock);
    m->noted->sent = end > m->noted->sent ? end : m->noted->sent;
    pthread_mutex_unlock(&job->lock);
    note_progress(m);
}

static void note_whole(struct moving *m)
{
    struct job *job = m->job;
    struct ps_store_mark mark;
    if (!m->noted || job->copy->to->mark(m->to, &mark) != 0 ||
        mark.bytes != (uint64_t)m->found.blocks * PS_BLOCK_BYTES)
        return;
    pthread_mutex_lock(&job->lock);
    *m->noted =
        (struct ps_copy_file){.is_whole = true, .sent = m->noted->sent, .mark = mark, .hash = digest(m)};
    ps_copy_record_write(job->copy->from_directory, &job->record);
    pthread_mutex_unlock(&job->lock);
}

static enum mr_status move_some(struct moving *m, char *text)
{
    const struct ps_copy *copy = m->job->copy;
    const uint64_t offset = (uint64_t)m->found.blocks * PS_BLOCK_BYTES;
    const struct ps_read *read;
    int error = ps_read_pool_take(m->ahead, &read);
    if (error != 0)
        return ps_checkpoint_fail(text, "read", m->from_path, error);
    const size_t bytes = read->bytes;
    const bool is_kept = offset < m->kept;
    if (is_kept ? is_stopped(copy) : !wait_for_rate(m->job, bytes))
        return ps_checkpoint_fail(text, "copy", m->to_path, -ECANCELED);
    m->passed[offset / SENT_BYTES % PASSED_MAX] = (struct passed){offset, digest(m)};
    const enum mr_status status = check_blocks(m, read->data, (uint32_t)(bytes / PS_BLOCK_BYTES), text);
    if (status != MR_OK)
        return status;
    if (is_kept) {
        if (offset + bytes == m->kept && !check_kept(m))
            return ps_checkpoint_corrupt(text, m->from_path, "it is not what was copied before");
        report(m->job, copy->kept, bytes);
        return MR_OK;
    }
    error = ps_store_write_all(copy->to, m->to, read->data, bytes, offset);
    if (error != 0)
        return ps_checkpoint_fail(text, "write", m->to_path, error);
    report(m->job, copy->progress, bytes);
    note_sent(m, offset, bytes);
    return MR_OK;
}

static uint32_t blocks_of(const struct moving *m)
{
    return m->job->manifest->files[m->core].blocks;
}

static uint64_t file_bytes(const struct moving *m)
{
    return (uint64_t)blocks_of(m) * PS_BLOCK_BYTES;
}

static bool next_sent(void *arg, struct ps_read *read)
{
    struct moving *m = arg;
    const uint32_t count = mr_min_u32(blocks_of(m) - m->next, SENT_BLOCKS);
    read->file = m->from;
    read->offset = (uint64_t)m->next * PS_BLOCK_BYTES;
    read->bytes = (size_t)count * PS_BLOCK_BYTES;
    m->next += count;
    return count > 0;
}

static enum mr_status move_in_order(struct moving *m, char *text)
{
    const uint32_t buffers = PS_COPY_BUFFERS / m->job->thread_count;
    const uint32_t reads = blocks_of(m) / SENT_BLOCKS + (blocks_of(m) % SENT_BLOCKS != 0);
    const struct ps_read_pool_options options = {.store = m->job->copy->from,
                                                 .thread_name = "mr-read-ahead",
                                                 .thread_count = mr_min_u32(buffers - 1, reads),
                                                 .buffer_count = buffers,
                                                 .buffer_bytes = SENT_BYTES,
                                                 .next = next_sent,
                                                 .arg = m};
    enum mr_status status = MR_OK;
    const int error = ps_read_pool_open(&options, &m->ahead);
    if (error != 0)
        status = ps_checkpoint_fail(text, "read", m->from_path, error);
    while (status == MR_OK && m->found.blocks < blocks_of(m)) {
        status = move_some(m, text);
        if (status == MR_OK)
            ps_read_pool_release(m->ahead, 1);
    }
    return status;
}

/* ---- one file, in any order, onto a disk: a range that comes late holds up no other ---- */

static bool take_range(struct moving *m, uint32_t *first, uint32_t *count)
{
    struct job *job = m->job;
    pthread_mutex_lock(&job->lock);
    const uint32_t left = job->status == MR_OK ? blocks_of(m) - m->next : 0;
    *first = m->next;
    *count = mr_min_u32(left, RANGE_BLOCKS);
    m->next += *count;
    pthread_mutex_unlock(&job->lock);
    return *count > 0;
}

static enum mr_status check_range(struct moving *m, const uint8_t *blocks, uint32_t first, uint32_t count,
                                  char *text)
{
    uint64_t payload_bytes = 0, records = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *block = blocks + (size_t)i * PS_BLOCK_BYTES;
        const enum mr_status status = check_block(m, block, first + i, text);
        if (status != MR_OK)
            return status;
        m->hashes[first + i] = header_of(block)->hash;
        payload_bytes += header_of(block)->payload_bytes;
        records += header_of(block)->record_count;
    }
    pthread_mutex_lock(&m->job->lock);
    m->found.payload_bytes += payload_bytes;
    m->found.records += records;
    pthread_mutex_unlock(&m->job->lock);
    return MR_OK;
}

/* Has the disk begin with what was just written to it, so that little is left to do for the sync. */
static void begin_writeback(const struct moving *m, uint64_t offset, size_t bytes)
{
    const int fd = m->job->copy->to->descriptor(m->to);
    if (fd >= 0)
        (void)sync_file_range(fd, (off64_t)offset, (off64_t)bytes, SYNC_FILE_RANGE_WRITE);
}

static enum mr_status move_range(struct moving *m, uint8_t *data, uint32_t first, uint32_t count, char *text)
{
    const struct ps_copy *copy = m->job->copy;
    const uint64_t offset = (uint64_t)first * PS_BLOCK_BYTES;
    const size_t bytes = (size_t)count * PS_BLOCK_BYTES;
    if (!wait_for_rate(m->job, bytes))
        return ps_checkpoint_fail(text, "copy", m->to_path, -ECANCELED);
    int error = ps_store_read_all(copy->from, m->from, data, bytes, offset);
    if (error != 0)
        return ps_checkpoint_fail(text, "read", m->from_path, error);
    const enum mr_status status = check_range(m, data, first, count, text);
    if (status != MR_OK)
        return status;
    error = ps_store_write_all(copy->to, m->to, data, bytes, offset);
    if (error != 0)
        return ps_checkpoint_fail(text, "write", m->to_path, error);
    begin_writeback(m, offset, bytes);
    report(m->job, copy->progress, bytes);
    return MR_OK;
}

static void job_fail(struct job *job, enum mr_status status, const char *text)
{
    pthread_mutex_lock(&job->lock);
    if (job->status == MR_OK) {
        job->status = status;
        memcpy(job->text, text, PS_TEXT_BYTES);
    }
    pthread_mutex_unlock(&job->lock);
}

static void *move_ranges(void *arg)
{
    struct moving *m = arg;
    char text[PS_TEXT_BYTES];
    uint32_t first, count;
    uint8_t *data = aligned_alloc(PS_READ_ALIGN, PS_COPY_BYTES);
    if (!data)
        job_fail(m->job, ps_checkpoint_fail(text, "copy", m->to_path, -ENOMEM), text);
    while (data && take_range(m, &first, &count)) {
        const enum mr_status status = move_range(m, data, first, count, text);
        if (status != MR_OK)
            job_fail(m->job, status, text);
    }
    free(data);
    return NULL;
}

static enum mr_status move_in_any_order(struct moving *m, char *text)
{
    struct job *job = m->job;
    pthread_t threads[PS_COPY_BUFFERS];
    uint32_t count = 0;
    m->hashes = calloc(blocks_of(m) + 1u, sizeof(*m->hashes));
    if (!m->hashes)
        return ps_checkpoint_fail(text, "copy", m->to_path, -ENOMEM);
    const uint32_t ranges = (blocks_of(m) + RANGE_BLOCKS - 1) / RANGE_BLOCKS;
    const uint32_t wanted = mr_min_u32(PS_COPY_BUFFERS / job->thread_count, ranges);
    while (count + 1 < wanted && pthread_create(&threads[count], NULL, move_ranges, m) == 0)
        (void)pthread_setname_np(threads[count++], "mr-copy");
    (void)move_ranges(m);
    for (uint32_t i = 0; i < count; i++)
        (void)pthread_join(threads[i], NULL);
    pthread_mutex_lock(&job->lock);
    const enum mr_status status = job->status;
    memcpy(text, job->text, PS_TEXT_BYTES);
    pthread_mutex_unlock(&job->lock);
    for (uint32_t i = 0; i < blocks_of(m) && status == MR_OK; i++)
        (void)XXH3_128bits_update(m->hash, &m->hashes[i], sizeof(m->hashes[i]));
    m->found.blocks = blocks_of(m);
    free(m->hashes);
    return status;
}

static enum mr_status move_blocks(struct moving *m, char *text)
{
    const bool any_order = !m->job->copy->to->mark;
    enum mr_status status = any_order ? move_in_any_order(m, text) : move_in_order(m, text);
    if (status == MR_OK)
        status = check_whole(m, text);
    if (status != MR_OK)
        return status;
    const int error = m->job->copy->to->sync(m->to);
    if (error != 0)
        return ps_checkpoint_fail(text, "write", m->to_path, error);
    if (!any_order)
        note_whole(m);
    return MR_OK;
}

/* Nothing of the file is there, but so much was sent before. A thread changes its own file's line alone, and
 * all of them write the record. */
static void note_nothing(struct job *job, struct ps_copy_file *noted)
{
    pthread_mutex_lock(&job->lock);
    *noted = (struct ps_copy_file){.sent = noted->sent};
    pthread_mutex_unlock(&job->lock);
}

/* Opens it where it can go on, if there is a record: m->kept. */
static int copy_create(struct moving *m)
{
    const struct ps_store *to = m->job->copy->to;
    if (!m->noted)
        return to->create(to->self, m->to_path, false, &m->to);
    struct ps_store_mark mark = m->noted->mark;
    const int error = to->resume(to->self, m->to_path, &mark, &m->to);
    m->kept = mark.bytes;
    m->sent = m->recorded = m->noted->sent;
    m->is_stale = m->kept % SENT_BYTES != 0 || m->kept > file_bytes(m);
    if (m->kept == 0)
        note_nothing(m->job, m->noted);
    return error;
}

static enum mr_status open_both(struct moving *m, char *text)
{
    const struct ps_copy *copy = m->job->copy;
    const uint64_t expected = file_bytes(m);
    uint64_t found;
    int error = copy->from->open(copy->from->self, m->from_path, &m->from, &found);
    if (error != 0)
        return ps_checkpoint_fail(text, "open", m->from_path, error);
    if (found != expected)
        return ps_checkpoint_corrupt(text, m->from_path, PS_WRONG_LENGTH);
    error = copy_create(m);
    /* A disk without that room may have it yet; a store that refuses such a length does so here. */
    if (error == 0 && copy->to->reserve && copy->to->reserve(m->to, expected) == -EFBIG)
        error = -EFBIG;
    if (error != 0)
        return ps_checkpoint_fail(text, "create", m->to_path, error);
    return m->is_stale ? ps_checkpoint_corrupt(text, m->to_path, "it ends at no block") : MR_OK;
}

/* *is_stale: what is there of it is not this file, and has to be sent again. */
static enum mr_status move_file_on(struct job *job, uint32_t core, bool *is_stale, char *text)
{
    char name[PS_FILE_NAME_BYTES];
    struct moving m = {.job = job, .core = core, .hash = XXH3_createState()};
    m.noted = job->record.files ? &job->record.files[core] : NULL;
    ps_file_name(core, name);
    enum mr_status status = MR_OK;
    if (!m.hash || XXH3_128bits_reset(m.hash) != XXH_OK)
        status = ps_checkpoint_fail(text, "copy", job->to_path, -ENOMEM);
    else if (!ps_path_join(job->from_path, name, m.from_path) || !ps_path_join(job->to_path, name, m.to_path))
        status = ps_checkpoint_fail(text, "copy", job->to_path, -ENAMETOOLONG);
    else
        status = open_both(&m, text);
    if (status == MR_OK)
        status = move_blocks(&m, text);
    if (status != MR_OK && m.to && !m.is_stale)
        note_progress(&m);
    ps_read_pool_close(m.ahead);
    if (m.from)
        (void)job->copy->from->close(m.from);
    if (m.to) {
        const int error = job->copy->to->close(m.to);
        if (status == MR_OK && error != 0)
            status = ps_checkpoint_fail(text, "close", m.to_path, error);
    }
    XXH3_freeState(m.hash);
    *is_stale = m.is_stale;
    return status;
}

/* Whether a file is whole there from a copy before, and still the same. */
static enum mr_status look_for_whole(struct job *job, uint32_t core, bool *is_whole, char *text)
{
    const struct ps_store *to = job->copy->to;
    char name[PS_FILE_NAME_BYTES], path[PS_PATH_BYTES];
    struct ps_copy_file *f = job->record.files ? &job->record.files[core] : NULL;
    const struct ps_manifest_file *expected = &job->manifest->files[core];
    *is_whole = false;
    if (!f || !f->is_whole)
        return MR_OK;
    ps_file_name(core, name);
    if (!ps_path_join(job->to_path, name, path))
        return ps_checkpoint_fail(text, "open", job->to_path, -ENAMETOOLONG);
    const bool is_expected = f->mark.bytes == (uint64_t)expected->blocks * PS_BLOCK_BYTES &&
                             ps_hash_equal(f->hash, expected->hash);
    const int error = is_expected ? to->is_marked(to->self, path, &f->mark) : -ESTALE;
    if (error != 0 && error != -ESTALE)
        return ps_checkpoint_fail(text, "open", path, error);
    *is_whole = error == 0;
    if (*is_whole)
        report(job, job->copy->kept, f->mark.bytes);
    else
        note_nothing(job, f);
    return MR_OK;
}

static enum mr_status move_file(struct job *job, uint32_t core, char *text)
{
    bool is_whole, is_stale = false;
    enum mr_status status = look_for_whole(job, core, &is_whole, text);
    if (status != MR_OK || is_whole)
        return status;
    status = move_file_on(job, core, &is_stale, text);
    if (!is_stale)
        return status;
    note_nothing(job, &job->record.files[core]);
    return move_file_on(job, core, &is_stale, text);
}

/* ---- all files ---- */

/* The next file to copy; false: there is none, or one has failed. */
static bool take_next(struct job *job, uint32_t *core)
{
    pthread_mutex_lock(&job->lock);
    const bool is_left = job->status == MR_OK && job->next < job->manifest->file_count;
    if (is_left)
        *core = job->next++;
    pthread_mutex_unlock(&job->lock);
    return is_left;
}

static void *move_files(void *arg)
{
    struct job *job = arg;
    char text[PS_TEXT_BYTES];
    uint32_t core;
    (void)pthread_setname_np(pthread_self(), "mr-copy");
    ps_cpu_affinity_avoid(pthread_self(), job->copy->avoid_cpus, job->copy->avoid_cpu_count);
    while (take_next(job, &core)) {
        const enum mr_status status = move_file(job, core, text);
        if (status != MR_OK)
            job_fail(job, status, text);
    }
    return NULL;
}

static enum mr_status move_all_files(struct job *job, char *text)
{
    pthread_t threads[PS_COPY_THREADS];
    uint32_t count = 0;
    job->thread_count =
        job->manifest->file_count < PS_COPY_THREADS ? job->manifest->file_count : PS_COPY_THREADS;
    while (count < job->thread_count && pthread_create(&threads[count], NULL, move_files, job) == 0)
        count++;
    if (count == 0)
        return ps_checkpoint_fail(text, "copy", job->to_path, -EAGAIN);
    for (uint32_t i = 0; i < count; i++)
        (void)pthread_join(threads[i], NULL);
    if (job->status != MR_OK)
        memcpy(text, job->text, PS_TEXT_BYTES);
    return job->status;
}

/* ---- MANIFESTs ---- */

/* All of a file, to be freed. */
static int read_whole(const struct ps_store *store, const char *path, uint8_t **data, uint64_t *bytes)
{
    struct ps_store_file *file;
    int error = store->open(store->self, path, &file, bytes);
    if (error != 0)
        return error;
    *data = *bytes <= PS_MANIFEST_BYTES_MAX ? malloc(*bytes + 1) : NULL;
    error = *data ? ps_store_read_all(store, file, *data, *bytes, 0) : -ENOMEM;
    (void)store->close(file);
    if (error != 0) {
        free(*data);
        *data = NULL;
    }
    return error;
}

/* The MANIFEST may have been replaced since it was read: its files go only with the one that they were
 * checked against. */
static enum mr_status copy_manifest(const struct job *job, char *text)
{
    char from[PS_PATH_BYTES], to[PS_PATH_BYTES];
    struct ps_manifest found;
    uint8_t *data = NULL;
    uint64_t bytes = 0;
    if (!ps_path_join(job->from_path, PS_MANIFEST_NAME, from) ||
        !ps_path_join(job->to_path, PS_MANIFEST_NAME, to))
        return ps_checkpoint_fail(text, "copy", job->to_path, -ENAMETOOLONG);
    int error = read_whole(job->copy->from, from, &data, &bytes);
    if (error != 0)
        return ps_checkpoint_fail(text, "read", from, error);
    enum mr_status status = MR_CHECKPOINT_CORRUPT;
    if (ps_manifest_parse((const char *)data, bytes, &found, text)) {
        const bool is_same = ps_hash_equal(found.hash, job->manifest->hash);
        status = is_same ? MR_OK : ps_checkpoint_corrupt(text, from, "it was replaced meanwhile");
        ps_manifest_clear(&found);
    }
    error = status == MR_OK ? ps_store_write_new(job->copy->to, to, data, bytes) : 0;
    free(data);
    return error == 0 ? status : ps_checkpoint_fail(text, "write", to, error);
}

/* Copies the file that says that a trainer asked for the checkpoint, if there is one. */
static enum mr_status copy_by_trainer(const struct job *job, char *text)
{
    const struct ps_copy *copy = job->copy;
    char path[PS_PATH_BYTES];
    bool is_by_trainer;
    int error =
        ps_checkpoint_is_by_trainer(copy->from, copy->from_directory, job->manifest->id, &is_by_trainer);
    if (error != 0)
        return ps_checkpoint_fail(text, "open " PS_BY_TRAINER_NAME " of", job->from_path, error);
    if (!is_by_trainer)
        return MR_OK;
    error = ps_path_join(job->to_path, PS_BY_TRAINER_NAME, path)
                ? ps_store_write_new(copy->to, path, PS_BY_TRAINER_TEXT, strlen(PS_BY_TRAINER_TEXT))
                : -ENAMETOOLONG;
    return error == 0 || error == -EEXIST ? MR_OK : ps_checkpoint_fail(text, "write", path, error);
}

/* ---- one checkpoint ---- */

static enum mr_status publish(const struct job *job, char *text)
{
    const struct ps_copy *copy = job->copy;
    char path[PS_PATH_BYTES];
    if (!ps_path_published(copy->to_directory, job->manifest->id, path))
        return ps_checkpoint_fail(text, "rename", job->to_path, -ENAMETOOLONG);
    int error = copy->to->sync_directory(copy->to->self, job->to_path);
    if (error == 0)
        error = copy->to->rename(copy->to->self, job->to_path, path);
    if (error == 0)
        error = copy->to->sync_directory(copy->to->self, copy->to_directory);
    return error == 0 ? MR_OK : ps_checkpoint_fail(text, "publish", path, error);
}

static enum mr_status make_temporary(const struct job *job, char *text)
{
    const struct ps_copy *copy = job->copy;
    (void)ps_store_remove_tree(copy->to, job->to_path, PS_MANIFEST_NAME); /* what a copy before left */
    const int error = copy->to->make_directory(copy->to->self, job->to_path);
    return error == 0 ? MR_OK : ps_checkpoint_fail(text, "create", job->to_path, error);
}

/* ---- what an interrupted copy has left ---- */

/* Removes it, and the record. 0: nothing of it is left. */
static int remove_left(const struct ps_copy *copy, const struct ps_copy_record *left)
{
    char path[PS_PATH_BYTES];
    int error = 0;
    if (strcmp(left->to, copy->to_directory) == 0 && ps_path_temporary(left->to, left->id, path))
        error = ps_store_remove_tree(copy->to, path, PS_MANIFEST_NAME);
    if (error != 0 && error != -ENOENT && error != -EBUSY) /* EBUSY: it has been published after all */
        return error;
    ps_copy_record_remove(copy->from_directory);
    return 0;
}

void ps_copy_abandon(const struct ps_copy *copy)
{
    struct ps_copy_record left;
    if (!copy->keeps_record || !ps_copy_record_read(copy->from_directory, &left))
        return;
    (void)remove_left(copy, &left);
    ps_copy_record_clear(&left);
}

static bool is_of(const struct ps_copy_record *record, const struct job *job)
{
    return record->id == job->manifest->id && ps_hash_equal(record->manifest, job->manifest->hash) &&
           record->file_count == job->manifest->file_count &&
           strcmp(record->to, job->copy->to_directory) == 0;
}

/* The temporary directory is there, with what has been copied before; in S3 it is not there if this
 * checkpoint has been published. */
static enum mr_status take_up(struct job *job, char *text)
{
    const struct ps_store *to = job->copy->to;
    int error = to->make_directory(to->self, job->to_path);
    if (error == -EEXIST)
        error = ps_store_look(to, job->to_path);
    return error == 0 ? MR_OK : ps_checkpoint_fail(text, "create", job->to_path, error);
}

/* Goes on where the record says, or starts over with another record. */
static enum mr_status copy_begin(struct job *job, char *text)
{
    const struct ps_copy *copy = job->copy;
    if (!copy->keeps_record || !copy->to->resume)
        return make_temporary(job, text);
    if (ps_copy_record_read(copy->from_directory, &job->record)) {
        if (is_of(&job->record, job))
            return take_up(job, text);
        (void)remove_left(copy, &job->record);
        ps_copy_record_clear(&job->record);
    }
    const enum mr_status status = make_temporary(job, text);
    if (status == MR_OK && !ps_copy_record_begin(&job->record, copy->to_directory, job->manifest->id,
                                                 job->manifest->hash, job->manifest->file_count))
        return ps_checkpoint_fail(text, "copy", job->to_path, -ENOMEM);
    if (status == MR_OK)
        ps_copy_record_write(copy->from_directory, &job->record);
    return status;
}

/* What has been copied stays for the next try, if that can go on with it. */
static void copy_end(struct job *job, enum mr_status status)
{
    const struct ps_copy *copy = job->copy;
    const bool may_go_on = job->record.files && (status == MR_IO_ERROR || status == MR_NO_MEMORY);
    if (may_go_on) {
        ps_copy_record_write(copy->from_directory, &job->record);
    } else if (!is_stopped(copy)) {
        (void)ps_store_remove_tree(copy->to, job->to_path, PS_MANIFEST_NAME);
        ps_copy_record_remove(copy->from_directory);
    }
}

static enum mr_status copy_link(const struct ps_copy *copy, const struct ps_chain_link *link, char *text)
{
    struct job job = {.copy = copy,
                      .manifest = &link->manifest,
                      .from_path = link->path,
                      .rate = {.bytes_per_s_max = copy->bytes_per_s_max}};
    if (!ps_path_temporary(copy->to_directory, link->manifest.id, job.to_path))
        return ps_checkpoint_fail(text, "copy", link->path, -ENAMETOOLONG);
    enum mr_status status = copy_begin(&job, text);
    if (status != MR_OK) {
        ps_copy_record_clear(&job.record);
        return status;
    }
    pthread_mutex_init(&job.lock, NULL);
    status = move_all_files(&job, text);
    pthread_mutex_destroy(&job.lock);
    if (status == MR_OK)
        status = copy_by_trainer(&job, text);
    if (status == MR_OK)
        status = copy_manifest(&job, text);
    if (status != MR_OK)
        copy_end(&job, status);
    ps_copy_record_clear(&job.record);
    if (status != MR_OK)
        return status;
    /* A publication that failed may yet arrive there, and must then find its files. */
    status = publish(&job, text);
    if (status == MR_OK && copy->keeps_record)
        ps_copy_record_remove(copy->from_directory);
    return status;
}

/* A checkpoint that is there has all its files, unless somebody has removed some. */
static enum mr_status check_files(const struct ps_copy *copy, const struct ps_manifest *manifest, char *text)
{
    char directory[PS_PATH_BYTES], name[PS_FILE_NAME_BYTES], path[PS_PATH_BYTES];
    if (!ps_path_published(copy->to_directory, manifest->id, directory))
        return ps_checkpoint_fail(text, "open", copy->to_directory, -ENAMETOOLONG);
    for (uint32_t core = 0; core < manifest->file_count; core++) {
        uint64_t bytes = 0;
        int64_t written_s;
        ps_file_name(core, name);
        if (!ps_path_join(directory, name, path))
            return ps_checkpoint_fail(text, "open", directory, -ENAMETOOLONG);
        const int error = copy->to->facts(copy->to->self, path, &bytes, &written_s);
        if (error != 0 && error != -ENOENT)
            return ps_checkpoint_fail(text, "open", path, error);
        if (error != 0 || bytes != (uint64_t)manifest->files[core].blocks * PS_BLOCK_BYTES)
            return ps_checkpoint_corrupt(text, path, "it is missing or has lost bytes; remove this copy");
    }
    return MR_OK;
}

/* Whether a checkpoint is there already. */
static enum mr_status look_for(const struct ps_copy *copy, const struct ps_manifest *wanted, bool *is_there,
                               char *text)
{
    struct ps_manifest found;
    const enum mr_status status = ps_manifest_read(copy->to, copy->to_directory, wanted->id, &found, text);
    *is_there = status == MR_OK;
    if (status != MR_OK)
        return status == MR_CHECKPOINT_NOT_FOUND ? MR_OK : status;
    const bool is_same = ps_hash_equal(found.hash, wanted->hash);
    ps_manifest_clear(&found);
    if (is_same)
        return check_files(copy, wanted, text);
    (void)snprintf(text, PS_TEXT_BYTES,
                   "%.120s holds another checkpoint %" PRIu64 ": give each node a directory of its own there",
                   copy->to_directory, wanted->id);
    return MR_INVALID_ARGUMENT;
}

static enum mr_status make_directory(const struct ps_copy *copy, char *text)
{
    const int error = copy->to->make_directory(copy->to->self, copy->to_directory);
    if (error == 0 || error == -EEXIST)
        return MR_OK;
    ps_text_io(text, "create", copy->to_directory, -error);
    return MR_IO_ERROR;
}

/* The folders of a node's part of a cluster's checkpoint, there and here. */
struct part_copy {
    struct ps_copy copy;
    char from[PS_PATH_BYTES], to[PS_PATH_BYTES];
};

static enum mr_status place_part(const struct ps_copy *copy, const struct ps_chain *chain, uint32_t part,
                                 struct part_copy *out, char *text)
{
    const char *name = chain->cluster ? chain->cluster->parts[part].name : NULL;
    out->copy = *copy;
    if (!name)
        return MR_OK;
    if (!ps_path_join(copy->from_directory, name, out->from) ||
        !ps_path_join(copy->to_directory, name, out->to))
        return ps_checkpoint_fail(text, "open", copy->to_directory, -ENAMETOOLONG);
    out->copy.from_directory = out->from;
    out->copy.to_directory = out->to;
    return MR_OK;
}

/* Copies the links of one node. */
static enum mr_status copy_part(const struct ps_copy *copy, const struct ps_chain *chain, uint32_t part,
                                char *text)
{
    struct part_copy p;
    const struct ps_chain_part *links = &chain->parts[part];
    enum mr_status status = place_part(copy, chain, part, &p, text);
    if (status == MR_OK)
        status = make_directory(&p.copy, text);
    for (uint32_t i = links->first; i < links->first + links->count && status == MR_OK; i++) {
        bool is_there;
        status = look_for(&p.copy, &chain->links[i]->manifest, &is_there, text);
        if (status == MR_OK && !is_there)
            status = copy_link(&p.copy, chain->links[i], text);
    }
    return status;
}

enum mr_status ps_copy_chain(const struct ps_copy *copy, uint64_t id, char *text)
{
    struct ps_chain chain;
    enum mr_status status = ps_chain_open(copy->from, copy->from_directory, id, &chain, text);
    if (status != MR_OK)
        return status;
    status = make_directory(copy, text);
    for (uint32_t part = 0; part < chain.part_count && status == MR_OK; part++)
        status = copy_part(copy, &chain, part, text);
    if (status == MR_OK && chain.cluster)
        status = ps_cluster_manifest_write(copy->to, copy->to_directory, chain.cluster, text);
    ps_chain_close(&chain);
    return status;
}

enum mr_status ps_copy_measure(const struct ps_copy *copy, uint64_t id, uint64_t *bytes, char *text)
{
    struct ps_chain chain;
    *bytes = 0;
    enum mr_status status = ps_chain_open(copy->from, copy->from_directory, id, &chain, text);
    if (status != MR_OK)
        return status;
    for (uint32_t i = 0; i < chain.count && status == MR_OK; i++) {
        bool is_there = true;
        struct part_copy p;
        status = place_part(copy, &chain, chain.links[i]->part, &p, text);
        if (status == MR_OK)
            status = look_for(&p.copy, &chain.links[i]->manifest, &is_there, text);
        *bytes += status == MR_OK && !is_there ? ps_manifest_block_bytes(&chain.links[i]->manifest) : 0;
    }
    ps_chain_close(&chain);
    return status;
}
