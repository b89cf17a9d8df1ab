/* The bytes of a log's segments: headers, blocks and records. No file is touched here. docs/log-format.md is
 * the description for people. Pure functions, any thread.
 *
 *   0       struct ps_log_header, zeros to PS_LOG_ALIGN
 *   4096    blocks, each at a multiple of PS_LOG_ALIGN: struct ps_log_block, its records, zeros
 *
 * A block is what one flush makes durable. It never shares a sector with another, so that a write that is
 * torn by a power failure cannot damage a block that was flushed before. Behind the last block lies what was
 * there when room was made: zeros. */
#ifndef PS_LOG_FORMAT_H
#define PS_LOG_FORMAT_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/format/op.h"
#include "dataplane/wire/format/packet.h"
#include "ps/checkpoint/checkpoint.h"

#define PS_LOG_VERSION         2u
#define PS_LOG_MAGIC           0x474C524Du /* "MRLG" */
#define PS_LOG_BLOCK_MAGIC     0x424C524Du /* "MRLB" */
#define PS_LOG_ALIGN           4096u       /* of blocks in the file */
#define PS_LOG_RECORD_ALIGN    64u         /* of records in a block, and of messages in them */
#define PS_LOG_DIRECTORY_BYTES 256u
#define PS_LOG_NO_BASE         UINT64_MAX

/* The first block of a segment: one file of one core. */
struct ps_log_header {
    uint32_t magic, version;
    struct ps_hash hash; /* XXH3-128 of the bytes after this field, to the end of the header */
    uint64_t number;     /* of the segment, from 1; the same on all cores from one cut to the next */
    uint64_t nonce;      /* random: blocks of another file, or of an earlier one in its place, have another */
    uint32_t core, core_count;
    /* The checkpoint that the segment's records follow; 0: none, the node began empty. PS_LOG_NO_BASE: they
     * follow those of the segment before it. */
    uint64_t base_id;
    char base_directory[PS_LOG_DIRECTORY_BYTES]; /* where that lies; "": in the node's own directory */
    /* The start that made this segment found that the core's log ends in segment cut_number, and took the
     * bytes before cut_bytes as all of it: segments in between have no records. 0: no start made it, or
     * there was none. */
    uint64_t cut_number, cut_bytes;
    /* The checkpoint that the start which began this log was told to begin from, other than the newest,
     * and so to give up the log that was there; PS_LOG_NO_BASE: none at all; 0: it was not. */
    uint64_t told;
    uint32_t is_first;    /* 1: segments before it are given up */
    uint8_t reserved[44]; /* zero */
};
static_assert(sizeof(struct ps_log_header) == 384 && offsetof(struct ps_log_header, number) == 24,
              "header size, and what the hash covers");

struct ps_log_block {
    uint32_t magic;
    uint32_t record_count;
    struct ps_hash hash;  /* XXH3-128 of the bytes after this field, to the end of the records */
    uint64_t nonce;       /* the segment's */
    uint64_t number;      /* in its file, from 0 */
    uint64_t bytes;       /* of the records */
    uint32_t is_last;     /* 1: no block of the segment follows; the next segment's may */
    uint8_t reserved[12]; /* zero */
};
static_assert(sizeof(struct ps_log_block) == PS_LOG_RECORD_ALIGN &&
                  offsetof(struct ps_log_block, nonce) == 24,
              "records are aligned, and what the hash covers");

enum ps_log_kind {
    /* A request that was applied, and what else decides its effect (struct ps_log_record). */
    PS_LOG_PUSH = 1,
    PS_LOG_NUMBERS, /* numbers of a push stream that are used up: u64 sequence, u64 first number */
    PS_LOG_EVICTED, /* rows of `feature`: u64 keys[] */
    PS_LOG_PLAN,    /* a stream of batches became a plan's: u64 stream, struct mr_plan */
    PS_LOG_FORGET,  /* streams of batches were forgotten: u64 streams[] */
    PS_LOG_CREATE,  /* `feature`: struct mr_feature */
    PS_LOG_ALTER,   /* likewise: as it is from now on */
    PS_LOG_DROP,    /* `feature`; without content */
    PS_LOG_KINDS,
};

#define PS_LOG_NUMBERS_BYTES (2 * sizeof(uint64_t))
#define PS_LOG_PLAN_BYTES    (sizeof(uint64_t) + sizeof(struct mr_plan))

/* Content follows, zeros to PS_LOG_RECORD_ALIGN. That of a push:
 *
 *   message_bytes      the request as it came, zeros to PS_LOG_RECORD_ALIGN
 *   left_out_count > 0: u64 keys[left_out_count], which got no row; u32 counts[part_count]: how many of them
 *                      are each part's, zeros to 8 bytes
 *   batch_parts times  struct ps_log_batch_part and its arrays: what the batch was fed with
 */
struct ps_log_record {
    uint32_t kind;
    uint32_t feature;
    uint64_t bytes;              /* of the content, without the zeros behind it */
    uint64_t clock_us;           /* the node's clock, which rows are stamped with */
    uint64_t step;               /* that training had reached on this core */
    uint8_t uuid[MR_UUID_BYTES]; /* of the client */
    uint64_t message_bytes;
    uint32_t left_out_count;
    uint16_t part_count; /* tables and variables of the push */
    uint16_t batch_parts;
};
static_assert(sizeof(struct ps_log_record) == PS_LOG_RECORD_ALIGN, "record header size");

/* Arrays follow: u64 keys[key_count], u32 offsets[samples * slots + 1], f32 weights[key_count] if
 * has_weights, f32 divisors[samples * slots] if has_divisors; each with zeros to 8 bytes. */
struct ps_log_batch_part {
    uint32_t feature, samples, slots, key_count;
    uint8_t has_weights, has_divisors, is_single, reserved[5];
};
static_assert(sizeof(struct ps_log_batch_part) == 24, "batch part size");

static inline uint64_t ps_log_padded(uint64_t bytes, uint32_t align)
{
    return (bytes + align - 1) & ~(uint64_t)(align - 1);
}

/* Bytes that a record takes in a block. */
static inline uint64_t ps_log_record_space(uint64_t content_bytes)
{
    return sizeof(struct ps_log_record) + ps_log_padded(content_bytes, PS_LOG_RECORD_ALIGN);
}

/* Bytes of a batch's part with its arrays. */
uint64_t ps_log_batch_part_space(const struct ps_log_batch_part *part);

/* Sets the fixed fields and the hash. */
void ps_log_header_seal(struct ps_log_header *header);
/* NULL: it is a header of this version, else what is wrong. */
const char *ps_log_header_check(const struct ps_log_header *header);

/* Sets the fixed fields and the hash of a block whose `bytes` and `record_count` are set, and whose records
 * follow it. Only the last may have none. */
void ps_log_block_seal(struct ps_log_block *block, uint64_t nonce, uint64_t number, bool is_last);
/* Whether this is the header of a block of that segment, with this number or a higher one, behind which at
 * most `bytes_max` bytes lie. Its hash is not looked at. */
bool ps_log_block_is_header(const struct ps_log_block *block, uint64_t nonce, uint64_t number,
                            uint64_t bytes_max);
/* NULL: the block's hash is right, and so is every record's form; else what is wrong. All of it is in memory,
 * aligned to PS_LOG_RECORD_ALIGN. */
const char *ps_log_block_check(const struct ps_log_block *block);

#endif
