/* The checkpoint reader on any bytes: an error, or a restore in which every record is well-formed and belongs
 * to a feature of the manifest. The files live in memory. The first byte says what the rest is:
 *
 *   bit 0 clear  the MANIFEST, as it is
 *   bit 0 set    the beginning of the only block of core-000.mrc, under a manifest that names it
 *   bit 1 set    the block's fixed fields and hash are made right, so that the checks after it are reached
 *   bit 2 set    it is that of checkpoint 2, beside a whole checkpoint 1; a block is then a delta on it
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "fuzz_assert.h"
#include "ps/checkpoint/checkpoint_manifest.h"

#define LINKS       2u /* checkpoints 1 and 2 */
#define TABLE_ID    2u
#define VARIABLE_ID 3u

struct ps_store_file {
    const uint8_t *data;
    size_t bytes;
};

struct memory_files {
    struct ps_store_file manifest, core;
};

struct memory_store {
    struct memory_files links[LINKS];
};

static int memory_open(void *self, const char *path, struct ps_store_file **file, uint64_t *file_bytes)
{
    struct memory_store *links = self;
    const char *name = strrchr(path, '/') + 1;
    struct memory_files *files = &links->links[strncmp(path, "/ckpt-2/", 8) == 0];
    struct ps_store_file *f = NULL;
    if (strcmp(name, PS_MANIFEST_NAME) == 0)
        f = &files->manifest;
    else if (strcmp(name, "core-000.mrc") == 0)
        f = &files->core;
    if (!f || !f->data)
        return -ENOENT;
    *file = f;
    *file_bytes = f->bytes;
    return 0;
}

static int64_t memory_read(struct ps_store_file *file, void *data, size_t bytes, uint64_t offset)
{
    if (offset >= file->bytes)
        return 0;
    size_t n = bytes < file->bytes - offset ? bytes : file->bytes - offset;
    memcpy(data, file->data + offset, n);
    return (int64_t)n;
}

static int memory_close(struct ps_store_file *file)
{
    (void)file;
    return 0;
}

static int memory_list(void *self, const char *path, void (*visit)(void *arg, const char *name), void *arg)
{
    const struct memory_store *links = self;
    uint64_t id = ps_name_published(path + 1);
    if (id < 1 || id > LINKS || !links->links[id - 1].manifest.data)
        return -ENOENT;
    visit(arg, PS_MANIFEST_NAME);
    return 0;
}

static uint32_t bytes_seen; /* so that reading the records cannot be optimized away */

static enum mr_status visit(void *arg, const struct ps_record *record, const uint8_t *bytes)
{
    uint64_t *records = arg;
    ++*records;
    FUZZ_ASSERT(!ps_record_check(record) && (uintptr_t)bytes % 8 == 0);
    uint32_t kind = ps_record_feature_kind(record->kind);
    FUZZ_ASSERT(kind != MR_TABLE || record->feature == TABLE_ID);
    FUZZ_ASSERT(kind != MR_VARIABLE || record->feature == VARIABLE_ID);
    for (uint64_t i = 0; i < record->bytes; i++)
        bytes_seen += bytes[i];
    return MR_OK;
}

static void read_checkpoint(struct memory_store *links, uint64_t id)
{
    struct ps_store store = {
        .self = links, .open = memory_open, .read = memory_read, .close = memory_close, .list = memory_list};
    struct ps_reader *r = NULL;
    char text[PS_TEXT_BYTES] = "";
    enum mr_status status = ps_reader_open(&store, "", id, &r, text);
    FUZZ_ASSERT((status == MR_OK) == (r != NULL) && (status == MR_OK) == (text[0] == '\0'));
    if (!r)
        return;
    uint64_t records = 0;
    FUZZ_ASSERT(ps_reader_id(r) == id && ps_reader_link_count(r) <= id);
    FUZZ_ASSERT(ps_reader_each(r, visit, &records, text) == MR_OK);
    ps_reader_close(r);
}

static struct mr_feature feature(const char *name, uint32_t kind)
{
    struct mr_feature f = {.kind = kind,
                           .dtype = MR_F32,
                           .rank = 1,
                           .dims = {4},
                           .initializer = MR_INIT_CONSTANT,
                           .optimizer = MR_OPT_SGD,
                           .learning_rate = 0.5f};
    memcpy(f.name, name, strlen(name));
    return f;
}

/* A manifest that fits whatever the block's header claims. */
static char *manifest_for(const uint8_t *block, uint64_t id, const struct ps_manifest *parent)
{
    const struct ps_block_header *header = (const struct ps_block_header *)(const void *)block;
    struct mr_feature features[2] = {feature("t", MR_TABLE), feature("v", MR_VARIABLE)};
    uint32_t ids[2] = {TABLE_ID, VARIABLE_ID};
    XXH128_hash_t hash = XXH3_128bits(&header->hash, sizeof(header->hash));
    struct ps_manifest m = {.version = PS_FORMAT_VERSION,
                            .id = id,
                            .feature_count = 2,
                            .features = features,
                            .feature_ids = ids,
                            .file_count = 1};
    if (parent) {
        m.parent = parent->id;
        m.parent_hash = parent->hash;
    }
    m.files[0] = (struct ps_manifest_file){.blocks = 1,
                                           .payload_bytes = header->payload_bytes,
                                           .records = header->record_count,
                                           .hash = {.low = hash.low64, .high = hash.high64}};
    return ps_manifest_print(&m);
}

/* Checkpoint `id` of this block; gives the manifest's text, which is to be freed. */
static char *put_link(struct memory_store *links, uint64_t id, const uint8_t *block,
                      const struct ps_manifest *parent)
{
    char *json = manifest_for(block, id, parent);
    FUZZ_ASSERT(json != NULL);
    links->links[id - 1] =
        (struct memory_files){.manifest = {.data = (const uint8_t *)json, .bytes = strlen(json)},
                              .core = {.data = block, .bytes = PS_BLOCK_BYTES}};
    return json;
}

/* Checkpoint 1, whole and without a record. */
static char *put_full(struct memory_store *links, struct ps_manifest *manifest)
{
    static _Alignas(64) uint8_t block[PS_BLOCK_BYTES];
    char text[PS_TEXT_BYTES];
    memset(block, 0, sizeof(struct ps_block_header));
    ps_block_seal(block, 1, 0, 0);
    char *json = put_link(links, 1, block, NULL);
    FUZZ_ASSERT(ps_manifest_parse(json, strlen(json), manifest, text));
    return json;
}

static void repair(uint8_t *block, uint64_t id)
{
    struct ps_block_header *header = (struct ps_block_header *)(void *)block;
    header->magic = PS_BLOCK_MAGIC;
    header->version = PS_FORMAT_VERSION;
    header->checkpoint_id = id;
    header->core = 0;
    header->number = 0;
    const size_t from = offsetof(struct ps_block_header, checkpoint_id);
    XXH128_hash_t hash = XXH3_128bits(block + from, PS_BLOCK_BYTES - from);
    header->hash = (struct ps_hash){.low = hash.low64, .high = hash.high64};
}

static void read_block(const uint8_t *data, size_t bytes, bool repaired, bool is_delta)
{
    static _Alignas(64) uint8_t block[PS_BLOCK_BYTES];
    struct memory_store links = {0};
    struct ps_manifest parent = {0};
    const uint64_t id = is_delta ? 2 : 1;
    char *full = is_delta ? put_full(&links, &parent) : NULL;
    memset(block, 0, sizeof(block));
    memcpy(block, data, bytes < sizeof(block) ? bytes : sizeof(block));
    if (repaired)
        repair(block, id);
    char *json = put_link(&links, id, block, is_delta ? &parent : NULL);
    read_checkpoint(&links, id);
    ps_manifest_clear(&parent);
    free(json);
    free(full);
}

static void read_manifest(const uint8_t *data, size_t bytes, bool is_second)
{
    struct memory_store links = {0};
    struct ps_manifest parent = {0};
    char *full = is_second ? put_full(&links, &parent) : NULL;
    links.links[is_second].manifest = (struct ps_store_file){.data = data, .bytes = bytes};
    links.links[is_second].core = links.links[0].core;
    read_checkpoint(&links, is_second ? 2 : 1);
    ps_manifest_clear(&parent);
    free(full);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes == 0)
        return 0;
    const bool is_second = (data[0] & 4) != 0;
    if (data[0] & 1)
        read_block(data + 1, bytes - 1, (data[0] & 2) != 0, is_second);
    else
        read_manifest(data + 1, bytes - 1, is_second);
    return 0;
}
