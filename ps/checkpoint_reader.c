/* Reading checkpoints back. Nothing of a checkpoint is believed before all of it has been verified; what is then handed to
 * the visitor is verified again as it is read. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ps/block_stream.h"
#include "ps/checkpoint.h"
#include "ps/checkpoint_error.h"
#include "ps/checkpoint_manifest.h"
#include "ps/manifest_file.h"

#define CHECKPOINTS_MAX 4096u /* looked at when searching for the newest that verifies */
#define VERIFY_BATCH    4u    /* blocks, when nobody waits for them */

struct ps_reader {
    const struct ps_store *store;
    struct ps_manifest manifest;
    char path[PS_PATH_BYTES]; /* of the checkpoint's directory */
    bool damaged;             /* found while its blocks were read */
};

typedef enum mr_status (*visit_fn)(void *arg, const struct ps_record *record, const uint8_t *bytes);

enum mr_status ps_block_each(const uint8_t *block, visit_fn visit, void *arg)
{
    const struct ps_block_header *header = (const struct ps_block_header *)(const void *)block;
    const uint8_t *at = block + sizeof *header;
    for (uint32_t i = 0; i < header->record_count; i++) {
        const struct ps_record *record = (const struct ps_record *)(const void *)at;
        enum mr_status status = visit(arg, record, at + sizeof *record);
        if (status != MR_OK)
            return status;
        at += ps_record_space(record->bytes);
    }
    return MR_OK;
}

/* Reads and checks all blocks; what the visitor says is in `text` by the visitor. */
static enum mr_status read_blocks(struct ps_reader *r, uint32_t batch, ps_visit_blocks visit, void *arg,
                                  char *text)
{
    const uint8_t *blocks[PS_STREAM_BATCH_MAX];
    struct ps_stream *stream;
    enum mr_status status = ps_stream_open(r->store, r->path, &r->manifest, batch, &stream, text);
    if (status != MR_OK) {
        r->damaged = status == MR_CHECKPOINT_CORRUPT;
        return status;
    }
    uint32_t count;
    while (status == MR_OK && (count = ps_stream_take(stream, blocks)) > 0)
        if (visit)
            status = visit(arg, blocks, count);
    char why[PS_TEXT_BYTES];
    enum mr_status read = ps_stream_close(stream, why);
    if (read == MR_OK)
        return status;
    r->damaged = read == MR_CHECKPOINT_CORRUPT;
    memcpy(text, why, sizeof why);
    return read;
}

static void ignore_name(void *arg, const char *name)
{
    (void)arg;
    (void)name;
}

/* Opens one checkpoint, and verifies all of it when `whole`. */
static enum mr_status open_one(const struct ps_store *store, const char *directory, uint64_t id, bool whole,
                               struct ps_reader **out, char *text)
{
    struct ps_reader *r = calloc(1, sizeof *r);
    if (!r)
        return ps_checkpoint_fail(text, "open", directory, -ENOMEM);
    r->store = store;
    enum mr_status status = MR_OK;
    if (!ps_path_published(directory, id, r->path))
        status = ps_checkpoint_fail(text, "open", directory, -ENAMETOOLONG);
    else
        status = ps_manifest_read(store, directory, id, &r->manifest, text);
    if (status == MR_OK && r->manifest.parent != 0) {
        ps_text_path(text, r->path, "it is a delta: restore the checkpoint that it is based on");
        status = MR_UNSUPPORTED;
    }
    if (status == MR_OK && whole)
        status = read_blocks(r, VERIFY_BATCH, NULL, NULL, text);
    if (status == MR_OK)
        *out = r;
    else
        ps_reader_close(r);
    return status;
}

static enum mr_status open_newest(const struct ps_store *store, const char *directory, struct ps_reader **out,
                                  char *text)
{
    uint64_t *ids = malloc(CHECKPOINTS_MAX * sizeof *ids);
    if (!ids)
        return ps_checkpoint_fail(text, "open", directory, -ENOMEM);
    int error = store->list(store->self, directory, ignore_name, NULL);
    if (error != 0 && error != -ENOENT) {
        free(ids);
        ps_text_io(text, "open", directory, -error);
        return MR_IO_ERROR;
    }
    uint32_t count = ps_checkpoint_list_on(store, directory, ids, CHECKPOINTS_MAX);
    enum mr_status status = MR_CHECKPOINT_NOT_FOUND;
    if (count == 0)
        ps_text_path(text, directory, "there is no checkpoint in this directory");
    char why[PS_TEXT_BYTES], passed_over[PS_TEXT_BYTES] = "";
    for (uint32_t i = 0; i < count && i < CHECKPOINTS_MAX; i++) {
        status = open_one(store, directory, ids[i], true, out, why);
        if (status == MR_OK)
            break;
        if (passed_over[0] == '\0')
            memcpy(passed_over, why, sizeof why);
        /* Only a checkpoint that is broken may be passed over: an older one loses training that a newer one holds. */
        if (status != MR_CHECKPOINT_CORRUPT && status != MR_CHECKPOINT_NOT_FOUND) {
            memcpy(passed_over, why, sizeof why);
            break;
        }
    }
    free(ids);
    if (count > 0)
        memcpy(text, passed_over, sizeof passed_over);
    return status;
}

enum mr_status ps_reader_open_on(const struct ps_store *store, const char *directory, uint64_t id,
                                 struct ps_reader **out, char *text)
{
    if (id == 0)
        return open_newest(store, directory, out, text);
    enum mr_status status = open_one(store, directory, id, true, out, text);
    if (status == MR_OK)
        text[0] = '\0';
    return status;
}

enum mr_status ps_reader_open_unread(const char *directory, uint64_t id, struct ps_reader **out, char *text)
{
    enum mr_status status = open_one(ps_store_local(), directory, id, false, out, text);
    if (status == MR_OK)
        text[0] = '\0';
    return status;
}

enum mr_status ps_reader_open(const char *directory, uint64_t id, struct ps_reader **out, char *text)
{
    return ps_reader_open_on(ps_store_local(), directory, id, out, text);
}

uint64_t ps_reader_id(const struct ps_reader *r)
{
    return r->manifest.id;
}

uint32_t ps_reader_incarnation(const struct ps_reader *r)
{
    return r->manifest.incarnation;
}

uint32_t ps_reader_core_count(const struct ps_reader *r)
{
    return r->manifest.file_count;
}

uint32_t ps_reader_feature_count(const struct ps_reader *r)
{
    return r->manifest.feature_count;
}

const struct mr_feature *ps_reader_feature(const struct ps_reader *r, uint32_t index, uint32_t *feature_id)
{
    assert(index < r->manifest.feature_count);
    *feature_id = r->manifest.feature_ids[index];
    return &r->manifest.features[index];
}

uint64_t ps_reader_bytes(const struct ps_reader *r)
{
    uint64_t bytes = 0;
    for (uint32_t core = 0; core < r->manifest.file_count; core++)
        bytes += r->manifest.files[core].payload_bytes;
    return bytes;
}

enum mr_status ps_reader_blocks(struct ps_reader *r, uint32_t batch, ps_visit_blocks visit, void *arg,
                                char *text)
{
    return read_blocks(r, batch, visit, arg, text);
}

struct record_visit {
    visit_fn visit;
    void *arg;
};

static enum mr_status visit_records(void *arg, const uint8_t *const *blocks, uint32_t count)
{
    const struct record_visit *v = arg;
    enum mr_status status = MR_OK;
    for (uint32_t i = 0; i < count && status == MR_OK; i++)
        status = ps_block_each(blocks[i], v->visit, v->arg);
    return status;
}

enum mr_status ps_reader_each(struct ps_reader *r, visit_fn visit, void *arg, char *text)
{
    struct record_visit v = {visit, arg};
    return read_blocks(r, VERIFY_BATCH, visit_records, &v, text);
}

bool ps_reader_is_damaged(const struct ps_reader *r)
{
    return r->damaged;
}

void ps_reader_close(struct ps_reader *r)
{
    if (!r)
        return;
    ps_manifest_clear(&r->manifest);
    free(r);
}
