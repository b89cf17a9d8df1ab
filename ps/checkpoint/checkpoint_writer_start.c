/* Beginning a checkpoint, and its end. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "dataplane/wire/base/clock.h"
#include "ps/base/cpu_affinity.h"
#include "ps/base/log.h"
#include "ps/checkpoint/checkpoint_writer_internal.h"

static void writer_free(struct ps_writer *w)
{
    ps_uring_writer_destroy(w->disk);
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
        assert(id <= PS_FEATURE_ID_MAX);
        m->features[i] = options->features[i];
        m->feature_ids[i] = id;
        w->feature_kind[id] = (uint8_t)options->features[i].kind;
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
    if (ps_uring_writer_create(store, w->attempt.files, w->core_count, w->buffers,
                               w->core_count * w->buffers_per_core, PS_BLOCK_BYTES, &w->disk, &note) != 0)
        return false;
    bool direct = store->is_direct(w->attempt.files[0]);
    (void)snprintf(w->method, sizeof(w->method), "%s, %s", ps_uring_writer_name(w->disk),
                   direct ? "O_DIRECT" : "page cache");
    if (note)
        ps_log("checkpoint: writing without io_uring: %s", note);
    if (!direct)
        ps_log("checkpoint: %s does not take O_DIRECT; writing through the page cache", w->attempt.directory);
    return true;
}

/* Signals are for the threads that handle them. */
static int start_thread(struct ps_writer *w, const struct ps_writer_options *options)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int error = pthread_create(&w->thread, NULL, ps_writer_thread, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0) {
        (void)pthread_setname_np(w->thread, "checkpoint");
        ps_cpu_affinity_avoid(w->thread, options->avoid_cpus, options->avoid_cpu_count);
    }
    return error;
}

/* The MANIFEST has what makes the parent the very one. */
static enum mr_status check_parent(const struct ps_writer *w, const struct ps_manifest *parent,
                                   const struct ps_hash *expected, char *why)
{
    char wrong[PS_TEXT_BYTES];
    if (expected && (expected->low != parent->hash.low || expected->high != parent->hash.high)) {
        (void)snprintf(why, PS_TEXT_BYTES,
                       "another checkpoint has come in the place of the one that was saved: save a full");
        return MR_CHECKPOINT_CORRUPT;
    }
    if (!ps_manifest_follows(parent, &w->attempt.manifest, wrong)) {
        (void)snprintf(why, PS_TEXT_BYTES, "%.190s: save a full", wrong);
        return MR_INVALID_ARGUMENT;
    }
    return MR_OK;
}

enum mr_status ps_writer_open_parents(const struct ps_writer *w, const char *directory,
                                      const struct ps_hash *expected, struct ps_chain *out, char *text)
{
    struct ps_chain parents = {0};
    char why[PS_TEXT_BYTES];
    const uint64_t id = w->attempt.manifest.parent;
    enum mr_status status = ps_chain_open(w->attempt.store, directory, id, &parents, why);
    if (status == MR_OK)
        status = check_parent(w, &parents.links[parents.count - 1]->manifest, expected, why);
    if (status == MR_OK)
        status = ps_chain_check_files(&parents, why);
    if (status == MR_OK) {
        *out = parents;
        return MR_OK;
    }
    ps_chain_close(&parents);
    (void)snprintf(text, PS_TEXT_BYTES, "a delta on checkpoint %" PRIu64 ": %.190s", id, why);
    return status;
}

static enum mr_status read_parents(struct ps_writer *w, const struct ps_writer_options *options, char *text)
{
    if (options->parent_id == 0)
        return MR_OK;
    enum mr_status status =
        ps_writer_open_parents(w, options->directory, options->parent_hash, &w->parents, text);
    if (status == MR_OK)
        w->attempt.manifest.parent_hash = w->parents.links[w->parents.count - 1]->manifest.hash;
    return status;
}

static enum mr_status begin(struct ps_writer *w, const struct ps_writer_options *options, char *text)
{
    if (!copy_features(w, options) || !make_buffers(w))
        return MR_NO_MEMORY;
    if (!features_printable(w)) {
        ps_text_path(text, options->directory, "a feature's name or numbers cannot be written in a manifest");
        return MR_INVALID_ARGUMENT;
    }
    enum mr_status status = read_parents(w, options, text);
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
           options->parent_id < options->id);
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
        w->attempt.manifest.version = PS_FORMAT_VERSION;
        w->attempt.manifest.id = options->id;
        w->attempt.manifest.parent = options->parent_id;
        w->attempt.manifest.step = options->step;
        w->attempt.manifest.clock_s = options->clock_s;
        w->attempt.manifest.is_at_step = options->is_at_step;
        if (options->ancestry)
            w->attempt.manifest.ancestry = *options->ancestry;
        w->attempt.manifest.incarnation = options->incarnation;
        w->attempt.manifest.file_count = options->core_count;
        status = begin(w, options, text);
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
