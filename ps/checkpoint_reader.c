/* Reading checkpoints back. Nothing of a checkpoint is believed before all of it has been verified; what is then handed to
 * the visitor is verified again as it is read. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "ps/checkpoint.h"
#include "ps/checkpoint_manifest.h"

#define CHECKPOINTS_MAX 4096u /* looked at when searching for the newest that verifies */

struct ps_reader {
    const struct ps_store *store;
    struct ps_manifest manifest;
    char path[PS_PATH_BYTES]; /* of the checkpoint's directory */
    uint8_t *block;           /* PS_BLOCK_BYTES */
};

typedef enum mr_status (*visit_fn)(void *arg, const struct ps_record *record, const uint8_t *bytes);

/* A missing or cut file and a bad sector condemn the checkpoint; other errors are this process's or the machine's. */
static enum mr_status status_of(int error)
{
    switch (-error) {
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case EINVAL:
    case ENODATA:
    case EIO:
        return MR_CHECKPOINT_CORRUPT;
    case ENOMEM:
        return MR_NO_MEMORY;
    default:
        return MR_IO_ERROR;
    }
}

static enum mr_status corrupt(char *text, const char *path, const char *why)
{
    ps_text_path(text, path, why);
    return MR_CHECKPOINT_CORRUPT;
}

static enum mr_status fail(char *text, const char *what, const char *path, int error)
{
    if (error == -ENOENT)
        return corrupt(text, path, "it is missing");
    if (error == -ENODATA)
        return corrupt(text, path, "it ends too early");
    ps_text_io(text, what, path, -error);
    return status_of(error);
}

static enum mr_status visit_block(const uint8_t *block, visit_fn visit, void *arg)
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

struct file_scan {
    struct ps_store_file *file;
    char path[PS_PATH_BYTES];
    struct ps_manifest_file found; /* what has been read so far */
    XXH3_state_t *hash;
};

/* Reads and checks the next block into r->block. */
static enum mr_status next_block(struct ps_reader *r, struct file_scan *scan, uint32_t core, char *text)
{
    const struct ps_block_header *header = (const struct ps_block_header *)(const void *)r->block;
    const uint32_t number = scan->found.blocks;
    int error =
        ps_store_read_all(r->store, scan->file, r->block, PS_BLOCK_BYTES, (uint64_t)number * PS_BLOCK_BYTES);
    if (error != 0)
        return fail(text, "read", scan->path, error);
    const char *wrong = ps_block_check(r->block, r->manifest.version, r->manifest.id, core, number);
    if (!wrong)
        wrong = ps_manifest_block_check(&r->manifest, r->block);
    if (wrong) {
        char why[128];
        (void)snprintf(why, sizeof why, "block %" PRIu32 ": %s", number, wrong);
        return corrupt(text, scan->path, why);
    }
    scan->found.blocks++;
    scan->found.payload_bytes += header->payload_bytes;
    scan->found.records += header->record_count;
    XXH3_128bits_update(scan->hash, &header->hash, sizeof header->hash);
    return MR_OK;
}

static enum mr_status scan_blocks(struct ps_reader *r, struct file_scan *scan, uint32_t core, visit_fn visit,
                                  void *arg, char *text)
{
    const struct ps_manifest_file *told = &r->manifest.files[core];
    while (scan->found.blocks < told->blocks) {
        enum mr_status status = next_block(r, scan, core, text);
        if (status == MR_OK && visit)
            status = visit_block(r->block, visit, arg);
        if (status != MR_OK)
            return status;
    }
    XXH128_hash_t hash = XXH3_128bits_digest(scan->hash);
    if (scan->found.payload_bytes != told->payload_bytes || scan->found.records != told->records ||
        hash.low64 != told->hash.low || hash.high64 != told->hash.high)
        return corrupt(text, scan->path, "its blocks are not those that the MANIFEST names");
    return MR_OK;
}

static enum mr_status scan_file(struct ps_reader *r, uint32_t core, visit_fn visit, void *arg, char *text)
{
    struct file_scan scan = {0};
    char name[PS_FILE_NAME_BYTES];
    ps_file_name(core, name);
    uint64_t file_bytes = 0;
    int error = ps_path_join(r->path, name, scan.path) ? 0 : -ENAMETOOLONG;
    if (error == 0)
        error = r->store->open(r->store->self, scan.path, &scan.file, &file_bytes);
    if (error != 0)
        return fail(text, "open", scan.path, error);
    enum mr_status status;
    scan.hash = XXH3_createState();
    if (!scan.hash || XXH3_128bits_reset(scan.hash) != XXH_OK)
        status = fail(text, "read", scan.path, -ENOMEM);
    else if (file_bytes != (uint64_t)r->manifest.files[core].blocks * PS_BLOCK_BYTES)
        status = corrupt(text, scan.path, "its length is not that which the MANIFEST tells");
    else
        status = scan_blocks(r, &scan, core, visit, arg, text);
    XXH3_freeState(scan.hash);
    (void)r->store->close(scan.file);
    return status;
}

static enum mr_status parse_manifest(struct ps_reader *r, struct ps_store_file *file, uint64_t bytes,
                                     const char *path, uint64_t id, char *text)
{
    if (bytes == 0 || bytes > PS_MANIFEST_BYTES_MAX)
        return corrupt(text, path, bytes == 0 ? "it is empty" : "it is too long for a manifest");
    char *json = malloc(bytes);
    int error = json ? ps_store_read_all(r->store, file, json, bytes, 0) : -ENOMEM;
    enum mr_status status = error == 0 ? MR_OK : fail(text, "read", path, error);
    char why[PS_TEXT_BYTES];
    if (status == MR_OK && !ps_manifest_parse(json, bytes, &r->manifest, why))
        status = corrupt(text, path, why);
    if (status == MR_OK && r->manifest.id != id)
        status = corrupt(text, path, "it belongs to another checkpoint");
    free(json);
    return status;
}

static enum mr_status read_manifest(struct ps_reader *r, uint64_t id, char *text)
{
    char path[PS_PATH_BYTES];
    if (!ps_path_join(r->path, PS_MANIFEST_NAME, path))
        return fail(text, "open", r->path, -ENAMETOOLONG);
    struct ps_store_file *file = NULL;
    uint64_t bytes = 0;
    int error = r->store->open(r->store->self, path, &file, &bytes);
    if (error != 0)
        return fail(text, "open", path, error);
    enum mr_status status = parse_manifest(r, file, bytes, path, id, text);
    (void)r->store->close(file);
    return status;
}

static void ignore_name(void *arg, const char *name)
{
    (void)arg;
    (void)name;
}

/* Opens one checkpoint and verifies all of it. */
static enum mr_status open_one(const struct ps_store *store, const char *directory, uint64_t id,
                               struct ps_reader **out, char *text)
{
    struct ps_reader *r = calloc(1, sizeof *r);
    if (!r)
        return fail(text, "open", directory, -ENOMEM);
    r->store = store;
    r->block = aligned_alloc(64, PS_BLOCK_BYTES);
    enum mr_status status = MR_OK;
    if (!r->block)
        status = fail(text, "open", directory, -ENOMEM);
    else if (!ps_path_published(directory, id, r->path))
        status = fail(text, "open", directory, -ENAMETOOLONG);
    else if (store->list(store->self, r->path, ignore_name, NULL) == -ENOENT) {
        ps_text_path(text, r->path,
                     "there is no such checkpoint; millrace ctl status names the last good one");
        status = MR_CHECKPOINT_NOT_FOUND;
    } else
        status = read_manifest(r, id, text);
    for (uint32_t core = 0; status == MR_OK && core < r->manifest.file_count; core++)
        status = scan_file(r, core, NULL, NULL, text);
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
        return fail(text, "open", directory, -ENOMEM);
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
        status = open_one(store, directory, ids[i], out, why);
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
    enum mr_status status = open_one(store, directory, id, out, text);
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

enum mr_status ps_reader_each(struct ps_reader *r, visit_fn visit, void *arg, char *text)
{
    for (uint32_t core = 0; core < r->manifest.file_count; core++) {
        enum mr_status status = scan_file(r, core, visit, arg, text);
        if (status != MR_OK)
            return status;
    }
    return MR_OK;
}

void ps_reader_close(struct ps_reader *r)
{
    if (!r)
        return;
    ps_manifest_clear(&r->manifest);
    free(r->block);
    free(r);
}
