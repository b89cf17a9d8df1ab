/* The record of a copy that is under way: which files are whole in the store, and how far the others are.
 * It lies beside the checkpoints on the disk, so that a copy which was interrupted goes on, also in the
 * next process. Nobody relies on it: the store is asked whether it still has what the record says, and a
 * record that is lost, old or damaged only means that more is sent again. So it is written without a sync.
 */
#ifndef PS_COPY_RECORD_H
#define PS_COPY_RECORD_H

#include <stdbool.h>
#include <stdint.h>
#include "ps/checkpoint/checkpoint.h"
#include "ps/io/store.h"

#define PS_COPY_RECORD_NAME "copying" /* in the directory of the checkpoints */

struct ps_copy_file {
    bool is_whole;
    uint64_t sent; /* bytes that have gone there at least once, whether they are still there or not */
    struct ps_store_mark mark;
    struct ps_hash hash; /* of the hashes of its blocks up to the mark */
};

struct ps_copy_record {
    char to[PS_PATH_BYTES]; /* the directory in the store; "": there is no record */
    uint64_t id;
    struct ps_hash manifest;
    uint32_t file_count;
    struct ps_copy_file *files; /* NULL: none */
};

/* Begins one for another checkpoint; false: no memory. */
bool ps_copy_record_begin(struct ps_copy_record *record, const char *to, uint64_t id, struct ps_hash manifest,
                          uint32_t file_count);
/* Reads the record in this directory of the disk; false: there is none that is whole. To be cleared. */
bool ps_copy_record_read(const char *directory, struct ps_copy_record *record);
/* Writes it; one thread at a time. An error only means that more is sent again some day. */
void ps_copy_record_write(const char *directory, const struct ps_copy_record *record);
void ps_copy_record_remove(const char *directory);
void ps_copy_record_clear(struct ps_copy_record *record);

#endif
