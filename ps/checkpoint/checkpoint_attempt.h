/* The files of one checkpoint being written: made under a temporary name, then published as a whole or
 * removed.
 *
 * Order of publishing, each step before the next: blocks, the length and an fsync of every file, MANIFEST,
 * its fsync, fsync of the temporary directory, rename to the published name, fsync of the parent. The rename
 * commits; any error before or at the last fsync discards everything. Belongs to one thread at a time.
 */
#ifndef PS_CHECKPOINT_ATTEMPT_H
#define PS_CHECKPOINT_ATTEMPT_H

#include <stdbool.h>
#include <stdint.h>
#include "ps/checkpoint/checkpoint_manifest.h"
#include "ps/checkpoint/checkpoint_store.h"

struct ps_attempt {
    const struct ps_store *store;
    struct ps_manifest manifest; /* the attempt fills in everything but the files' contents */
    struct ps_store_file *files[MR_CORE_MAX];
    char directory[PS_PATH_BYTES];
    char temporary[PS_PATH_BYTES];
    char published[PS_PATH_BYTES];
    uint64_t reserved_bytes[MR_CORE_MAX]; /* of each file; UINT64_MAX: there is no more room to be had */
    int claim;
    bool claimed, made, renamed;
};

/* Make directory and files. `a->store` and `a->manifest` (id, file_count) are set. 0, or -errno with `text`
 * filled in and nothing left behind. */
int ps_attempt_begin(struct ps_attempt *a, const char *directory, char text[PS_TEXT_BYTES]);
/* Before a core's block `block` is written: has room for it on the disk, and for the file up to about
 * `expected_bytes` (0: unknown), if that can be had ahead. */
void ps_attempt_reserve(struct ps_attempt *a, uint32_t core, uint32_t block, uint64_t expected_bytes);
/* Make it durable and visible. 0, or -errno with `text`; the caller discards it then. */
int ps_attempt_publish(struct ps_attempt *a, char text[PS_TEXT_BYTES]);
/* Close what is open; remove an attempt that was not published. Harmless after success. */
void ps_attempt_end(struct ps_attempt *a, bool published);

#endif
