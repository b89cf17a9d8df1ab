#include "ps/checkpoint/block_stream.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "ps/checkpoint/checkpoint_format.h"
#include "ps/io/read_pool.h"

#define BLOCKS_PER_THREAD_MIN 4u /* fewer do not justify starting a thread */

struct file {
    struct ps_store_file *file;
    char path[PS_PATH_BYTES];
    uint32_t next;                 /* block to be read */
    struct ps_manifest_file found; /* in the blocks taken so far */
    XXH3_state_t *hash;
};

struct ps_stream {
    const struct ps_store *store;
    const struct ps_manifest *manifest;
    struct file files[MR_CORE_MAX];
    struct ps_read_pool *reads; /* tagged by file and number of the block */
    uint32_t batch, held;
    uint32_t turn;              /* the file whose block comes next, if it has any left */
    uint64_t total, next;       /* blocks; those to be read */
    uint64_t taken, given_back; /* the first handed out, or found bad */
    enum mr_status status;      /* of the blocks taken so far */
    char text[PS_TEXT_BYTES];
};

/* ---- reading ---- */

static uint32_t block_file(const struct ps_read *read)
{
    return (uint32_t)(read->tag >> 32);
}

static uint32_t block_number(const struct ps_read *read)
{
    return (uint32_t)read->tag;
}

static bool stream_next(void *arg, struct ps_read *read)
{
    struct ps_stream *s = arg;
    if (s->next == s->total)
        return false;
    s->next++;
    while (s->files[s->turn].next == s->manifest->files[s->turn].blocks)
        s->turn = (s->turn + 1) % s->manifest->file_count;
    struct file *f = &s->files[s->turn];
    read->file = f->file;
    read->offset = (uint64_t)f->next * PS_BLOCK_BYTES;
    read->bytes = PS_BLOCK_BYTES;
    read->tag = (uint64_t)s->turn << 32 | f->next++;
    s->turn = (s->turn + 1) % s->manifest->file_count;
    return true;
}

/* On any thread. */
static const char *stream_check(void *arg, const struct ps_read *read)
{
    const struct ps_manifest *m = ((const struct ps_stream *)arg)->manifest;
    const char *wrong = ps_block_check(read->data, m->version, m->id, block_file(read), block_number(read));
    return wrong ? wrong : ps_manifest_block_check(m, read->data);
}

/* ---- taking ---- */

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

static void count_block(struct ps_stream *s, const struct ps_read *read, int error)
{
    const struct ps_block_header *header = (const struct ps_block_header *)(const void *)read->data;
    struct file *f = &s->files[block_file(read)];
    if (read->wrong) {
        char why[128];
        (void)snprintf(why, sizeof(why), "block %" PRIu32 ": %s", block_number(read), read->wrong);
        s->status = ps_checkpoint_corrupt(s->text, f->path, why);
    } else if (error != 0) {
        s->status = ps_checkpoint_fail(s->text, "read", f->path, error);
    }
    if (s->status != MR_OK)
        return;
    f->found.blocks++;
    f->found.payload_bytes += header->payload_bytes;
    f->found.records += header->record_count;
    (void)XXH3_128bits_update(f->hash, &header->hash, sizeof(header->hash));
    if (f->found.blocks == s->manifest->files[block_file(read)].blocks)
        check_file(s, block_file(read));
}

uint32_t ps_stream_take(struct ps_stream *s, const uint8_t *blocks[PS_STREAM_BATCH_MAX])
{
    uint32_t count = 0;
    const uint64_t kept = (uint64_t)(s->held - 1) * s->batch;
    if (s->taken > kept + s->given_back) {
        const uint64_t more = s->taken - kept - s->given_back;
        s->given_back += more;
        ps_read_pool_release(s->reads, more);
    }
    while (count < s->batch && s->taken < s->total && s->status == MR_OK) {
        const struct ps_read *read;
        const int error = ps_read_pool_take(s->reads, &read);
        s->taken++;
        count_block(s, read, error);
        if (s->status == MR_OK)
            blocks[count++] = read->data;
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
    enum mr_status status = MR_OK;
    for (uint32_t core = 0; core < manifest->file_count && status == MR_OK; core++)
        status = open_file(s, path, core, text);
    const uint32_t threads = threads_for(s->total);
    const uint64_t buffers = (held + 1) * batch + threads;
    const struct ps_read_pool_options options = {
        .store = store,
        .thread_name = "mr-restore",
        .thread_count = threads,
        .buffer_count = (uint32_t)(buffers < s->total ? buffers : s->total),
        .buffer_bytes = PS_BLOCK_BYTES,
        .next = stream_next,
        .check = stream_check,
        .arg = s,
    };
    if (status == MR_OK && ps_read_pool_open(&options, &s->reads) != 0)
        status = ps_checkpoint_fail(text, "read", path, -ENOMEM);
    if (status != MR_OK) {
        char ignored[PS_TEXT_BYTES];
        (void)ps_stream_close(s, ignored);
        return status;
    }
    *out = s;
    return MR_OK;
}

enum mr_status ps_stream_close(struct ps_stream *s, char *text)
{
    enum mr_status status = s->status;
    if (status != MR_OK)
        memcpy(text, s->text, sizeof(s->text));
    ps_read_pool_close(s->reads);
    for (uint32_t core = 0; core < s->manifest->file_count; core++) {
        if (s->files[core].file)
            (void)s->store->close(s->files[core].file);
        XXH3_freeState(s->files[core].hash);
    }
    free(s);
    return status;
}
