/* The bytes of a checkpoint's blocks, its path names, and the texts about them. No file is touched here.
 * docs/checkpoint-format.md is the description for people. Pure functions, any thread.
 */
#ifndef PS_CHECKPOINT_FORMAT_H
#define PS_CHECKPOINT_FORMAT_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/format/packet.h"
#include "ps/checkpoint/checkpoint.h"
#include "ps/io/store.h"

#define PS_FORMAT_VERSION    7u /* with the capabilities that the content needs */
#define PS_FORMAT_VERSION_6  6u /* without them; written when none is needed */
#define PS_FORMAT_VERSION_5  5u /* push streams of cores only, no ranges of variables; is read as well */
#define PS_FORMAT_VERSION_4  4u /* without parameters; is read as well */
#define PS_FORMAT_VERSION_3  3u /* without the node's clock; is read as well */
#define PS_FORMAT_VERSION_2  2u /* without deltas and observations; is read as well */
#define PS_FORMAT_VERSION_1  1u /* without numbered pushes either; is read as well */
#define PS_BLOCK_MAGIC       0x4B43524Du /* "MRCK" */
#define PS_BLOCKS_MAX        (1u << 24)  /* per file: 16 TiB */
#define PS_CHECKPOINT_ID_MAX INT64_MAX   /* JSON integers are signed; 0 is no id */
#define PS_FILE_NAME_BYTES   16u         /* "core-063.mrc" */

struct ps_block_header {
    uint32_t magic;
    uint32_t version;
    struct ps_hash hash; /* XXH3-128 of the block's bytes after this field, to the end of the 1 MiB */
    uint64_t checkpoint_id;
    uint32_t core;          /* file core-NNN.mrc */
    uint32_t number;        /* of the block in its file, from 0 */
    uint32_t payload_bytes; /* after the header; the rest of the block is zero */
    uint32_t record_count;
    uint8_t reserved[16]; /* zero */
};
static_assert(sizeof(struct ps_block_header) == 64, "block header size");
static_assert(offsetof(struct ps_block_header, hash) == 8, "the hash covers what follows it");
static_assert(offsetof(struct ps_block_header, checkpoint_id) == 24, "hashed from here");
static_assert(offsetof(struct ps_block_header, payload_bytes) == 40, "payload_bytes");
static_assert(sizeof(struct ps_record) == 32, "record header size");
static_assert(sizeof(struct ps_stored_pushes) == 32, "size of a record of pushes without its words");
static_assert(sizeof(struct ps_stored_push_stream) == 40,
              "size of a record of a push stream without its words");

#define PS_PAYLOAD_BYTES    (PS_BLOCK_BYTES - (uint32_t)sizeof(struct ps_block_header))
#define PS_RECORD_BYTES_MAX (PS_PAYLOAD_BYTES - (uint32_t)sizeof(struct ps_record)) /* of its content */

/* Returns what a record takes in a block: header, content, zeros up to 8 bytes. */
static inline uint64_t ps_record_space(uint64_t bytes)
{
    return sizeof(struct ps_record) + ((bytes + 7u) & ~UINT64_C(7));
}
/* Returns NULL when kind and sizes of a record agree, else what is wrong. */
const char *ps_record_check(const struct ps_record *record);
/* Returns the kind of feature that a record of this kind belongs to: MR_TABLE, MR_VARIABLE; 0: none. */
uint32_t ps_record_feature_kind(uint32_t record_kind);

/* Fills in the header's fixed fields and the hash; payload_bytes and record_count are set already. Zeroes the
 * rest of the block first. `version` is that of its MANIFEST. */
void ps_block_seal(uint8_t *block, uint32_t version, uint64_t checkpoint_id, uint32_t core, uint32_t number);
/* Returns NULL when the block is the expected one and every record in it is well-formed, else what is wrong.
 * `version` is that of its MANIFEST, of which 7 takes blocks of 6. The block is 8-byte aligned. */
const char *ps_block_check(const uint8_t *block, uint32_t version, uint64_t checkpoint_id, uint32_t core,
                           uint32_t number);

/* Path names. False when the path would not fit in PS_PATH_BYTES. */
void ps_file_name(uint32_t core, char out[PS_FILE_NAME_BYTES]);
bool ps_path_published(const char *directory, uint64_t id, char out[PS_PATH_BYTES]);
bool ps_path_temporary(const char *directory, uint64_t id, char out[PS_PATH_BYTES]);
bool ps_path_cluster(const char *directory, uint64_t id,
                     char out[PS_PATH_BYTES]); /* of the file CLUSTER-<id> */
bool ps_path_join(const char *directory, const char *name, char out[PS_PATH_BYTES]);
/* Returns the id in "ckpt-<id>" (or ".tmp-ckpt-<id>", "CLUSTER-<id>"); 0 when the name has another form. */
uint64_t ps_name_published(const char *name);
uint64_t ps_name_temporary(const char *name);
uint64_t ps_name_cluster(const char *name);
/* Returns the id in CLUSTER-<id>, ps_store_writer() and an ending: of a writer that is at work, or died. */
uint64_t ps_name_cluster_unfinished(const char *name);

#define PS_TEXT_BYTES 256u
/* What helps against an error of a file: half a sentence. */
const char *ps_text_remedy(int error_number);
/* One line: "<what> <path>: <error>; <how to fix it>". A long path loses its beginning. */
void ps_text_io(char text[PS_TEXT_BYTES], const char *what, const char *path, int error_number);
/* One line: "<path>: <what>". */
void ps_text_path(char text[PS_TEXT_BYTES], const char *path, const char *what);

/* What an error of the store means for the checkpoint that is being read. */

#define PS_WRONG_LENGTH "its length is not the one that the MANIFEST gives"

/* MR_CHECKPOINT_CORRUPT; "<path>: <why>" in `text` (PS_TEXT_BYTES). */
enum mr_status ps_checkpoint_corrupt(char *text, const char *path, const char *why);
/* Turns `error`, a -errno, into a status: a file that is missing or too short condemns the checkpoint
 * (MR_CHECKPOINT_CORRUPT); other errors are of this process or the machine (MR_NO_MEMORY, MR_IO_ERROR), and
 * may be gone later. */
enum mr_status ps_checkpoint_fail(char *text, const char *what, const char *path, int error);

#endif
