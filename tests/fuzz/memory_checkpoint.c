#include "memory_checkpoint.h"

#include <errno.h>
#include <string.h>
#include <xxhash.h>
#include "fuzz_assert.h"

int memory_open(const struct memory_checkpoint *c, const char *name, struct ps_store_file **file,
                uint64_t *file_bytes)
{
    const struct ps_store_file *f = NULL;
    if (c && strcmp(name, PS_MANIFEST_NAME) == 0)
        f = &c->manifest;
    else if (c && strcmp(name, "core-000.mrc") == 0)
        f = &c->core;
    if (!f || !f->data)
        return -ENOENT;
    *file = (struct ps_store_file *)(uintptr_t)f; /* only read */
    *file_bytes = f->bytes;
    return 0;
}

int64_t memory_read(struct ps_store_file *file, void *data, size_t bytes, uint64_t offset)
{
    if (offset >= file->bytes)
        return 0;
    size_t n = bytes < file->bytes - offset ? bytes : file->bytes - offset;
    memcpy(data, file->data + offset, n);
    return (int64_t)n;
}

int memory_close(struct ps_store_file *file)
{
    (void)file;
    return 0;
}

static struct mr_feature feature(const char *name, uint32_t kind, uint32_t dim)
{
    struct mr_feature f = {.kind = kind,
                           .dtype = MR_F32,
                           .rank = 1,
                           .dims = {dim},
                           .initializer = MR_INIT_CONSTANT,
                           .optimizer = MR_OPT_SGD,
                           .learning_rate = 0.5f};
    memcpy(f.name, name, strlen(name));
    return f;
}

struct ps_manifest memory_manifest(const uint8_t *block, uint64_t id, uint32_t dim)
{
    static struct mr_feature features[2];
    static uint32_t ids[2] = {MEMORY_TABLE, MEMORY_VARIABLE};
    static struct ps_saved_parameter parameters[MEMORY_PARAMETERS] = {
        {.name = "p", .rank = 1, .dims = {MEMORY_PARAMETER_FLOATS}, .step = 7},
        {.name = "p",
         .optimizer = "o",
         .rule = MR_OPT_ADAGRAD,
         .rank = 1,
         .dims = {MEMORY_PARAMETER_FLOATS},
         .step = 7}};
    const struct ps_block_header *header = (const struct ps_block_header *)(const void *)block;
    XXH128_hash_t hash = XXH3_128bits(&header->hash, sizeof(header->hash));
    features[0] = feature("t", MR_TABLE, dim);
    features[1] = feature("v", MR_VARIABLE, 4);
    struct ps_manifest m = {.version = PS_FORMAT_VERSION,
                            .needs = MR_CAN(DENSE),
                            .written_by = "0.3.0",
                            .id = id,
                            .feature_count = 2,
                            .features = features,
                            .feature_ids = ids,
                            .parameter_count = MEMORY_PARAMETERS,
                            .parameters = parameters,
                            .file_count = 1};
    m.files[0] = (struct ps_manifest_file){.blocks = 1,
                                           .payload_bytes = header->payload_bytes,
                                           .records = header->record_count,
                                           .hash = {.low = hash.low64, .high = hash.high64}};
    return m;
}

struct ps_hash memory_block_hash(const uint8_t *block)
{
    const size_t from = offsetof(struct ps_block_header, checkpoint_id);
    XXH128_hash_t hash = XXH3_128bits(block + from, PS_BLOCK_BYTES - from);
    return (struct ps_hash){.low = hash.low64, .high = hash.high64};
}

static volatile uint32_t bytes_seen; /* so that reading the records cannot be optimized away */

void memory_check_record(const struct ps_record *record, const uint8_t *bytes)
{
    const uint32_t kind = ps_record_feature_kind(record->kind);
    uint32_t sum = 0;
    FUZZ_ASSERT(!ps_record_check(record) && (uintptr_t)bytes % 8 == 0);
    FUZZ_ASSERT(kind == 0 || record->feature == (kind == MR_TABLE ? MEMORY_TABLE : MEMORY_VARIABLE));
    if (record->kind == PS_RECORD_PARAMETER) {
        FUZZ_ASSERT(record->feature < MEMORY_PARAMETERS &&
                    record->offset + record->bytes <= MEMORY_PARAMETER_FLOATS * sizeof(float));
    }
    for (uint64_t i = 0; i < record->bytes; i++)
        sum += bytes[i];
    bytes_seen = sum;
}
