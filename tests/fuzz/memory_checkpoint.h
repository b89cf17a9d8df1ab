/* Checkpoints in memory, each with a MANIFEST and the file of one core, for the fuzzers of their reader. */
#ifndef MEMORY_CHECKPOINT_H
#define MEMORY_CHECKPOINT_H

#include "ps/checkpoint/checkpoint_manifest.h"
#include "ps/io/store.h"

#define MEMORY_TABLE            2u /* ids of the two features */
#define MEMORY_VARIABLE         3u
#define MEMORY_PARAMETERS       2u /* the values of a parameter, and a state beside it */
#define MEMORY_PARAMETER_FLOATS 4u /* of each */

struct ps_store_file {
    const uint8_t *data; /* NULL: there is no such file */
    size_t bytes;
};

struct memory_checkpoint {
    struct ps_store_file manifest, core;
};

/* What a store's open, read and close do. `c` may be NULL: there is no such checkpoint. */
int memory_open(const struct memory_checkpoint *c, const char *name, struct ps_store_file **file,
                uint64_t *file_bytes);
int64_t memory_read(struct ps_store_file *file, void *data, size_t bytes, uint64_t offset);
int memory_close(struct ps_store_file *file);

/* A manifest that fits whatever the header of its only block claims; the caller adds the parent. The
 * features are static, and their `dim` is that of the last call. */
struct ps_manifest memory_manifest(const uint8_t *block, uint64_t id, uint32_t dim);
struct ps_hash memory_block_hash(const uint8_t *block);
/* Fails unless the record is well-formed and belongs to its feature. */
void memory_check_record(const struct ps_record *record, const uint8_t *bytes);

#endif
