#include "ps/checkpoint/block_stream.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "ps/checkpoint/checkpoint_format.h"

#define BLOCKS_PER_THREAD_MIN 4u /* fewer do not justify starting a thread */
#define BLOCK_ALIGN           4096u

struct file {
    struct ps_store_file *file;
    char path[PS_PATH_BYTES];
    uint32_t next;                 /* block to be read */
    struct ps_manifest_file found; /* in the blocks taken so far */
    XXH3_state_t *hash;
};

/* The n-th block of the order is in slot n % slot_count. */
struct slot {
    uint8_t *block;
    uint32_t file, number;
    bool ready;
    enum mr_status status;
    char text[PS_TEXT_BYTES];
};

struct ps_stream {
    const struct ps_store *store;
    const struct ps_manifest *manifest;
    struct file files[MR_CORE_MAX];
    uint32_t batch, held, slot_count, thread_count;
    struct slot *slots;
    pthread_t threads[PS_STREAM_THREADS];
    enum mr_status status; /* of the blocks taken so far */
    char text[PS_TEXT_BYTES];
    uint64_t taken; /* handed out, or found bad */

    pthread_mutex_t lock; /* of what follows, and of slots' `ready` */
    pthread_cond_t was_read, was_given_back;
    uint64_t total, next, given_back;
    uint32_t turn; /* the file whose block comes next, if it has any left */
    bool stop;
};

/* ---- reading, on any thread ---- */

/* Some file systems accept O_DIRECT and then refuse the reads. */
static void leave_direct(struct ps_stream *s, struct ps_store_file *file)
{
    pthread_mutex_lock(&s->lock);
    if (s->store->is_direct(file))
        (void)s->store->drop_direct(file);
    pthread_mutex_unlock(&s->lock);
}

static void read_block(struct ps_stream *s, struct slot *slot)
{
    const struct file *f = &s->files[slot->file];
    const uint64_t offset = (uint64_t)slot->number * PS_BLOCK_BYTES;
    int error = ps_store_read_all(s->store, f->file, slot->block, PS_BLOCK_BYTES, offset);
    if (error == -EINVAL && s->store->take_direct) {
        leave_direct(s, f->file);
        error = ps_store_read_all(s->store, f->file, slot->block, PS_BLOCK_BYTES, offset);
    }
    if (error != 0) {
        slot->status = ps_checkpoint_fail(slot->text, "read", f->path, error);
        return;
    }
    const char *wrong =
        ps_block_check(slot->block, s->manifest->version, s->manifest->id, slot->file, slot->number);
    if (!wrong)
        wrong = ps_manifest_block_check(s->manifest, slot->block);
    slot->status = MR_OK;
    if (wrong) {
        char why[128];
        (void)snprintf(why, sizeof(why), "block %" PRIu32 ": %s", slot->number, wrong);
        slot->status = ps_checkpoint_corrupt(slot->text, f->path, why);
    }
}

/* Assigns a slot to the next block. The caller holds the lock; a block is left, and its slot is free. */
static struct slot *assign_next(struct ps_stream *s)
{
    struct slot *slot = &s->slots[s->next++ % s->slot_count];
    while (s->files[s->turn].next == s->manifest->files[s->turn].blocks)
        s->turn = (s->turn + 1) % s->manifest->file_count;
    slot->ready = false;
    slot->file = s->turn;
    slot->number = s->files[s->turn].next++;
    s->turn = (s->turn + 1) % s->manifest->file_count;
    return slot;
}

static void *read_ahead(void *arg)
{
    struct ps_stream *s = arg;
    (void)pthread_setname_np(pthread_self(), "mr-restore");
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->stop && s->next - s->given_back == s->slot_count)
            pthread_cond_wait(&s->was_given_back, &s->lock);
        if (s->stop || s->next == s->total)
            break;
        struct slot *slot = assign_next(s);
        pthread_mutex_unlock(&s->lock);
        read_block(s, slot);
        pthread_mutex_lock(&s->lock);
        slot->ready = true;
        pthread_cond_signal(&s->was_read);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- taking ---- */

static struct slot *wait_for_next(struct ps_stream *s)
{
    struct slot *slot = &s->slots[s->taken % s->slot_count];
    if (s->thread_count == 0) {
        slot = assign_next(s);
        read_block(s, slot);
        return slot;
    }
    pthread_mutex_lock(&s->lock);
    while (s->next <= s->taken || !slot->ready)
        pthread_cond_wait(&s->was_read, &s->lock);
    pthread_mutex_unlock(&s->lock);
    return slot;
}

/* Checks a file after its last block was taken. */
static void check_file(struct ps_stream *s, uint32_t core)
{
    const struct ps_manifest_file *expected = &s->manifest->files[core];
    const struct file *f = &s->files[core];
    XXH128_hash_t hash = XXH3_128bits_digest(f->hash);
    if (f->found.payload_bytes != expected->payload_bytes || f->found.records != expected->records ||
        hash.low64 != expected->hash.low || hash.high64 != expected->hash.high)
        s->status =
            ps_checkpoint_corrupt(s->text, f->path, "its blocks are not those that the MANIFEST names");
}

static void count_block(struct ps_stream *s, const struct slot *slot)
{
    const struct ps_block_header *header = (const struct ps_block_header *)(const void *)slot->block;
    struct file *f = &s->files[slot->file];
    if (slot->status != MR_OK) {
        s->status = slot->status;
        memcpy(s->text, slot->text, sizeof(s->text));
        return;
    }
    f->found.blocks++;
    f->found.payload_bytes += header->payload_bytes;
    f->found.records += header->record_count;
    (void)XXH3_128bits_update(f->hash, &header->hash, sizeof(header->hash));
    if (f->found.blocks == s->manifest->files[slot->file].blocks)
        check_file(s, slot->file);
}

uint32_t ps_stream_take(struct ps_stream *s, const uint8_t *blocks[PS_STREAM_BATCH_MAX])
{
    uint32_t count = 0;
    pthread_mutex_lock(&s->lock);
    const uint64_t kept = (uint64_t)(s->held - 1) * s->batch;
    s->given_back = s->taken > kept ? s->taken - kept : 0;
    pthread_cond_broadcast(&s->was_given_back);
    pthread_mutex_unlock(&s->lock);
    while (count < s->batch && s->taken < s->total && s->status == MR_OK) {
        const struct slot *slot = wait_for_next(s);
        s->taken++;
        count_block(s, slot);
        if (s->status == MR_OK)
            blocks[count++] = slot->block;
    }
    return count;
}

/* ---- opening and closing ---- */

static enum mr_status open_file(struct ps_stream *s, const char *path, uint32_t core, char *text)
{
    struct file *f = &s->files[core];
    const struct ps_manifest_file *expected = &s->manifest->files[core];
    char name[PS_FILE_NAME_BYTES];
    ps_file_name(core, name);
    uint64_t file_bytes = 0;
    int error = ps_path_join(path, name, f->path) ? 0 : -ENAMETOOLONG;
    if (error == 0)
        error = s->store->open(s->store->self, f->path, &f->file, &file_bytes);
    if (error != 0) {
        f->file = NULL;
        return ps_checkpoint_fail(text, "open", f->path, error);
    }
    if (s->store->take_direct)
        (void)s->store->take_direct(f->file);
    f->hash = XXH3_createState();
    if (!f->hash || XXH3_128bits_reset(f->hash) != XXH_OK)
        return ps_checkpoint_fail(text, "read", f->path, -ENOMEM);
    if (file_bytes != (uint64_t)expected->blocks * PS_BLOCK_BYTES)
        return ps_checkpoint_corrupt(text, f->path, PS_WRONG_LENGTH);
    s->total += expected->blocks;
    if (expected->blocks == 0)
        check_file(s, core);
    if (s->status != MR_OK)
        memcpy(text, s->text, sizeof(s->text));
    return s->status;
}

static uint32_t threads_for(uint64_t blocks)
{
    const uint64_t most = blocks / BLOCKS_PER_THREAD_MIN;
    return most < PS_STREAM_THREADS ? (uint32_t)most : PS_STREAM_THREADS;
}

static bool make_slots(struct ps_stream *s, uint32_t threads)
{
    uint64_t count = (s->held + 1) * s->batch + threads;
    s->slot_count = (uint32_t)(count < s->total ? count : s->total);
    s->slots = calloc(s->slot_count + 1, sizeof(*s->slots));
    for (uint32_t i = 0; i < s->slot_count && s->slots; i++) {
        s->slots[i].block = aligned_alloc(BLOCK_ALIGN, PS_BLOCK_BYTES);
        if (!s->slots[i].block)
            return false;
    }
    return s->slots != NULL;
}

enum mr_status ps_stream_open(const struct ps_store *store, const char *path,
                              const struct ps_manifest *manifest, uint32_t batch, uint32_t held,
                              struct ps_stream **out, char *text)
{
    assert(batch >= 1 && batch <= PS_STREAM_BATCH_MAX && held >= 1 && held <= PS_STREAM_HELD_MAX);
    struct ps_stream *s = calloc(1, sizeof(*s));
    if (!s)
        return ps_checkpoint_fail(text, "read", path, -ENOMEM);
    s->store = store;
    s->manifest = manifest;
    s->batch = batch;
    s->held = held;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->was_read, NULL);
    pthread_cond_init(&s->was_given_back, NULL);
    enum mr_status status = MR_OK;
    for (uint32_t core = 0; core < manifest->file_count && status == MR_OK; core++)
        status = open_file(s, path, core, text);
    uint32_t threads = threads_for(s->total);
    if (status == MR_OK && !make_slots(s, threads))
        status = ps_checkpoint_fail(text, "read", path, -ENOMEM);
    if (status != MR_OK) {
        char ignored[PS_TEXT_BYTES];
        (void)ps_stream_close(s, ignored);
        return status;
    }
    while (s->thread_count < threads &&
           pthread_create(&s->threads[s->thread_count], NULL, read_ahead, s) == 0)
        s->thread_count++;
    *out = s;
    return MR_OK;
}

enum mr_status ps_stream_close(struct ps_stream *s, char *text)
{
    enum mr_status status = s->status;
    if (status != MR_OK)
        memcpy(text, s->text, sizeof(s->text));
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_broadcast(&s->was_given_back);
    pthread_mutex_unlock(&s->lock);
    for (uint32_t i = 0; i < s->thread_count; i++)
        pthread_join(s->threads[i], NULL);
    for (uint32_t core = 0; core < s->manifest->file_count; core++) {
        if (s->files[core].file)
            (void)s->store->close(s->files[core].file);
        XXH3_freeState(s->files[core].hash);
    }
    for (uint32_t i = 0; i < s->slot_count && s->slots; i++)
        free(s->slots[i].block);
    free(s->slots);
    pthread_cond_destroy(&s->was_given_back);
    pthread_cond_destroy(&s->was_read);
    pthread_mutex_destroy(&s->lock);
    free(s);
    return status;
}
