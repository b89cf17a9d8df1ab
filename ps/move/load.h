/* Loads blocks of a migration (ps/move/migration_source.h) or of a checkpoint (ps/move/take_over.h) onto this
 * node's cores while they serve other partitions: each loads what is of its own. By one thread, which is none
 * of a core's. */
#ifndef PS_MOVE_LOAD_H
#define PS_MOVE_LOAD_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"
#include "ps/base/partition_set.h"
#include "ps/core/node.h"

#define PS_MOVE_TEXT_BYTES 256u

struct ps_move_block {
    const uint8_t *bytes;
    uint32_t byte_count;
    bool is_first;    /* its rows have not come before */
    uint32_t clock_s; /* of the source */
    /* of a checkpoint: it has records of other kinds, too, and of features that were dropped since */
    bool is_saved;
    bool is_last; /* then: of its last link (ps_record_counts()) */
    /* of a copy (ps/move/copy_source.h): what it holds may have come before; a range's pieces come in
     * order */
    bool is_copy;
};

/* Has the cores load a block with records of these partitions, some ten microseconds at a time, and returns
 * at once. Blocks and partitions stay until it has been ended. Once the last core has ended it adds to the
 * eventfd `wakes`, unless that is -1. MR_NO_MEMORY, MR_BAD_MESSAGE: it has not begun, and `text`
 * (PS_MOVE_TEXT_BYTES) says why. */
struct ps_move_load;
enum mr_status ps_move_load_begin(struct ps_node *node, const struct ps_partition_set *partitions,
                                  const struct ps_move_block *block, int wakes, struct ps_move_load **out,
                                  char *text);
bool ps_move_load_has_ended(const struct ps_move_load *load);
/* Waits for its end, and frees it. *rows: in the block. MR_OUT_OF_MEMORY, MR_BAD_MESSAGE; `text`
 * (PS_MOVE_TEXT_BYTES) says what is wrong. */
enum mr_status ps_move_load_end(struct ps_move_load *load, uint64_t *rows, char *text);
/* Collects the pieces of records that are not of features (PS_MOVE_RECORD) in a block. False: no
 * memory, or they are none. */
struct ps_move_collected {
    uint8_t *bytes;
    size_t byte_count;
};
bool ps_move_collect(const struct ps_move_block *block, struct ps_move_collected *out);
/* Has all cores import what was collected from one of the source's, or of those that wrote a checkpoint
 * (`is_saved`), about its partitions, which arrive with that (ps_ownership_arrive()). Errors as
 * ps_records_import(). */
enum mr_status ps_move_load_records(struct ps_node *node, const struct ps_partition_set *partitions,
                                    const struct ps_move_collected *records, bool is_saved, char *text);

#endif
