/* The files of a checkpoint being written: made under a temporary name, then published as a whole or removed.
 *
 * Order of publishing, each step before the next: blocks, the length and an fsync of every file, BY_TRAINER
 * (if a trainer asked for it), MANIFEST, its fsync, fsync of the temporary directory, rename to the published
 * name, fsync of the parent. The rename commits; any error before or at the last fsync discards everything.
 *
 * The caller writes the blocks. One thread at a time.
 */
#ifndef PS_CHECKPOINT_ATTEMPT_H
#define PS_CHECKPOINT_ATTEMPT_H

#include <stdbool.h>
#include <stdint.h>
#include "ps/checkpoint/checkpoint.h"
#include "ps/checkpoint/checkpoint_chain.h"
#include "ps/io/store.h"

struct ps_attempt {
    const struct ps_store *store;
    struct ps_manifest manifest; /* the attempt fills in everything but the files' contents */
    struct ps_store_file *files[MR_CORE_MAX];
    char directory[PS_PATH_BYTES];
    char temporary[PS_PATH_BYTES];
    char published[PS_PATH_BYTES];
    uint64_t reserved_bytes[MR_CORE_MAX]; /* of each file; UINT64_MAX: no more can be reserved */
    int claim;
    bool claimed, made, renamed;
    bool is_remote;
    bool is_by_trainer;
    bool may_arrive; /* a publication on another machine that failed may yet have effect: its files stay */
};

/* Makes directory and files. `a->store` and `a->manifest` (id, file_count) are set. 0, or -errno with `text`
 * filled in and no files left. */
int ps_attempt_begin(struct ps_attempt *a, const char *directory, char text[PS_TEXT_BYTES]);
/* Before a core's block `block` is written: reserves room on the disk for it, and for the file up to about
 * `expected_bytes` (0: unknown), if the store can. Writes that make a file longer come one after the other,
 * and each waits for the file's lock: hence room for many at a time. */
void ps_attempt_reserve(struct ps_attempt *a, uint32_t core, uint32_t block, uint64_t expected_bytes);
/* Makes it durable and visible. 0, or -errno with `text`; the caller discards it then. */
int ps_attempt_publish(struct ps_attempt *a, char text[PS_TEXT_BYTES]);
/* Closes what is open; removes an attempt that was not published. Harmless after success. */
void ps_attempt_end(struct ps_attempt *a, bool published);
/* Opens all that a delta is based on: every link is there, as far as that shows without reading blocks, and
 * the parent is the one with the `expected` hash, if any. Errors as those of ps_chain_open(). */
enum mr_status ps_attempt_open_parents(struct ps_attempt *a, const char *directory,
                                       const struct ps_hash *expected, struct ps_chain *out, char *text);

#endif
