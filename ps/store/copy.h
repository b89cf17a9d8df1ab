/* Copies checkpoints from one store to another: to a remote one, or back to the disk. Every block is
 * checked against its hash on the way, all of a file against the MANIFEST, and MANIFESTs are copied byte
 * by byte, so that a copy is that very checkpoint. Data goes first, then the MANIFEST, then the rename
 * that publishes; a chain goes from its full to the last delta. Whatever fails, what is published is
 * whole.
 *
 * With a record (ps/store/copy_record.h), a copy that was interrupted goes on: files that are whole there,
 * and what the store keeps of others, are not sent again if they are still what was sent then.
 */
#ifndef PS_STORE_COPY_H
#define PS_STORE_COPY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "ps/checkpoint/checkpoint_chain.h"

#define PS_COPY_THREADS 3u         /* files of a checkpoint at a time */
#define PS_COPY_BUFFERS 6u         /* of all of them: ranges that are read or being written */
#define PS_COPY_BYTES   (8u << 20) /* of a buffer; a quarter of that towards a store with parts in memory */

struct ps_copy {
    const struct ps_store *from, *to;
    const char *from_directory, *to_directory; /* the latter is made if it is missing */
    bool keeps_record;        /* in from_directory, which is on the disk; otherwise each copy starts over */
    uint64_t bytes_per_s_max; /* 0: no limit */
    const atomic_bool *stop;  /* true: it fails; NULL: never */
    const int *avoid_cpus;    /* of its threads, see ps/base/cpu_affinity.h */
    uint32_t avoid_cpu_count;
    /* Called with how many bytes more were copied, on any of its threads, one at a time; NULL: not. */
    void (*progress)(void *arg, uint64_t bytes);
    /* Called likewise, if there is a record, with bytes that are there already and not copied, and with
     * those of the copied ones that had been sent before. NULL: not. */
    void (*kept)(void *arg, uint64_t bytes);
    void (*again)(void *arg, uint64_t bytes);
    void *arg;
};

/* Copies checkpoint `id` with all that it is based on, but for what is there already; of a cluster the parts
 * of all nodes, and then CLUSTER-<id>. MR_OK: it is there.
 * MR_INVALID_ARGUMENT: another checkpoint of one of these numbers is there; MR_CHECKPOINT_NOT_FOUND,
 * MR_CHECKPOINT_CORRUPT: of `from`, or one that was damaged on the way; MR_CHECKPOINT_NEWER, MR_IO_ERROR,
 * MR_NO_MEMORY. On failure `text` (PS_TEXT_BYTES) says what and where. */
enum mr_status ps_copy_chain(const struct ps_copy *copy, uint64_t id, char *text);
/* Removes from the store what an interrupted copy has left there and nobody will go on with, and the
 * record with it: to be called when there is nothing to copy. */
void ps_copy_abandon(const struct ps_copy *copy);
/* Adds up the bytes that ps_copy_chain() would copy. */
enum mr_status ps_copy_measure(const struct ps_copy *copy, uint64_t id, uint64_t *bytes, char *text);

#endif
