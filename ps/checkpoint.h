/* Checkpoint files: what is written, and reading it back. Knows bytes and files; which bytes belong to which table is the
 * caller's business (ps/save.c, ps/restore.c).
 *
 *   DIR/ckpt-<id>/core-NNN.mrc   1 MiB blocks: header {magic, version, checkpoint id, core, block number, payload bytes,
 *                                XXH3-128 of header and payload}, then records
 *   DIR/ckpt-<id>/MANIFEST       JSON: version, id, features, per file its blocks and bytes, incarnation; written last
 * The whole is written as DIR/.tmp-ckpt-<id> and renamed once file, directory and parent are synced: the rename commits.
 * docs/checkpoint-format.md has every field.
 *
 * Writer: cores fill 1 MiB buffers that are registered with io_uring and hand them over through a ring; one writer thread
 * submits them with O_DIRECT (plain writes where io_uring or O_DIRECT is refused, and says so in the log).
 */
#ifndef PS_CHECKPOINT_H
#define PS_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/mr_feature.h"
#include "dataplane/wire/mr_status.h"

#define PS_BLOCK_BYTES (1u << 20)

/* Records inside a block's payload, each 8-byte aligned: a header, then its bytes. */
enum ps_record_kind {
    PS_RECORD_ROWS = 1,     /* feature, count, stored row bytes; keys u64[count], rows[count] */
    PS_RECORD_VARIABLE = 2, /* feature, byte offset in the stored bytes, bytes */
    PS_RECORD_STREAM = 3,   /* learnt batches of one stream: u64 stream, watermark, bitmap words.. */
    PS_RECORD_CLIENT = 4,   /* client uuid[16], u64 last push step */
};
struct ps_record {
    uint32_t kind;
    uint32_t feature;
    uint32_t count;     /* rows, or bytes of the value */
    uint32_t row_bytes; /* PS_RECORD_ROWS */
    uint64_t offset;    /* PS_RECORD_VARIABLE */
    uint64_t bytes;     /* of what follows, before padding to 8 */
};

/* ---- writing ---- */
struct ps_writer; /* one checkpoint being written */

struct ps_writer_status {
    bool done;             /* published or failed */
    enum mr_status status; /* MR_OK when published */
    int error_number;      /* errno of the failure */
    char text[256];        /* what failed and where */
    uint64_t id, bytes_written, duration_us;
};

/* Opens the temporary directory and files, starts the writer thread. buffers_per_core >= 2 buffers are shared with each
 * core. `manifest_features` are copied. On failure `text` (256 bytes) says what and where. Control thread. */
enum mr_status ps_writer_start(const char *directory, uint64_t id, uint32_t core_count, uint32_t incarnation,
                               const struct mr_feature *features, const uint32_t *feature_ids,
                               uint32_t feature_count, uint32_t buffers_per_core, struct ps_writer **out,
                               char *text);
/* Core `core`'s side: called on that core's thread only, never blocks, never allocates. */
uint32_t ps_writer_free_bytes(struct ps_writer *w,
                              uint32_t core); /* payload bytes that can be written right now */
/* Append a record: returns room for record->bytes bytes, or NULL when no buffer is free (or the checkpoint failed). A
 * record never spans blocks: bytes <= ps_writer_record_bytes_max(). */
uint8_t *ps_writer_append(struct ps_writer *w, uint32_t core, const struct ps_record *record);
uint32_t ps_writer_record_bytes_max(void);
void ps_writer_core_done(struct ps_writer *w, uint32_t core); /* this core has written everything */
bool ps_writer_failed(const struct ps_writer *w);             /* any thread: stop early */
/* Any thread. */
void ps_writer_status(const struct ps_writer *w, struct ps_writer_status *out);
/* Fail it from the outside (shutdown). */
void ps_writer_abort(struct ps_writer *w);
/* Joins the thread; removes the temporary directory of a failed one; frees. Control thread, after done or abort. */
void ps_writer_finish(struct ps_writer *w);

/* ---- reading ---- */
struct ps_reader;

/* Open checkpoint `id` (0 = the newest that verifies) in `directory`: reads the MANIFEST and verifies every block of every
 * file before it returns. MR_CHECKPOINT_NOT_FOUND, MR_CHECKPOINT_CORRUPT, MR_IO_ERROR; `text` names file and block. */
enum mr_status ps_reader_open(const char *directory, uint64_t id, struct ps_reader **out, char *text);
uint64_t ps_reader_id(const struct ps_reader *r);
uint32_t ps_reader_feature_count(const struct ps_reader *r);
const struct mr_feature *ps_reader_feature(const struct ps_reader *r, uint32_t index, uint32_t *feature_id);
uint64_t ps_reader_bytes(const struct ps_reader *r);
/* Visit every record. `bytes` points at its content, 8-byte aligned, valid during the call. Stops at the first status that is
 * not MR_OK and returns it. */
enum mr_status ps_reader_each(struct ps_reader *r,
                              enum mr_status (*visit)(void *arg, const struct ps_record *record,
                                                      const uint8_t *bytes),
                              void *arg, char *text);
void ps_reader_close(struct ps_reader *r);

/* Ids of the checkpoints in `directory` (published ones, verified or not), newest first; returns how many there are. */
uint32_t ps_checkpoint_list(const char *directory, uint64_t *ids, uint32_t ids_max);
/* Remove published checkpoints beyond the newest `keep`, and temporary directories of dead writers. */
void ps_checkpoint_retain(const char *directory, uint32_t keep);

#endif
