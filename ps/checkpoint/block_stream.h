/* The blocks of a checkpoint's files, read ahead and checked on threads of their own, and handed out in one
 * order: the first block of each file, the second of each, and so on, so that cores whose rows lie in
 * different files work at the same time.
 *
 * Nothing is handed out that did not verify. One thread opens, takes and closes.
 */
#ifndef PS_BLOCK_STREAM_H
#define PS_BLOCK_STREAM_H

#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"
#include "ps/checkpoint/checkpoint_manifest.h"
#include "ps/io/store.h"

#define PS_STREAM_THREADS   8u  /* each has a read in flight: a disk needs several to be fast */
#define PS_STREAM_BATCH_MAX 16u /* blocks taken at a time */
#define PS_STREAM_HELD_MAX  2u

struct ps_stream;

/* Opens the files in directory `path`. Store and manifest must outlive the stream. Blocks stay valid until
 * the `held`-th next call of ps_stream_take(); (held + 1) * batch of them and one per thread are in memory,
 * at most 56 MiB. They are read past the page cache where possible. If there are only a few, they are read
 * here, without threads. MR_CHECKPOINT_CORRUPT, MR_IO_ERROR, MR_NO_MEMORY; `text`
 * (PS_TEXT_BYTES) says what. */
enum mr_status ps_stream_open(const struct ps_store *store, const char *path,
                              const struct ps_manifest *manifest, uint32_t batch, uint32_t held,
                              struct ps_stream **out, char *text);
/* Takes the next blocks, as many as the batch unless they are the last. Returns how many; 0: all have been
 * taken, or one is bad. */
uint32_t ps_stream_take(struct ps_stream *s, const uint8_t *blocks[PS_STREAM_BATCH_MAX]);
/* Ends the threads and frees. MR_OK unless a block, or a file as a whole, was bad; then `text` says which. */
enum mr_status ps_stream_close(struct ps_stream *s, char *text);

#endif
