/* Loads blocks of a move (ps/move/give.h) onto this node's cores, each of which takes what is of its
 * partitions. By one thread, which is none of a core's. */
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
    uint32_t clock_s; /* of the giver */
};

/* Loads a block with records of these partitions: cores are busy for some ten microseconds at a time.
 * *rows grows by the rows in it. MR_OUT_OF_MEMORY, MR_BAD_MESSAGE; `text` (PS_MOVE_TEXT_BYTES) says what
 * is wrong. */
enum mr_status ps_move_load(struct ps_node *node, const struct ps_partition_set *partitions,
                            const struct ps_move_block *block, uint64_t *rows, char *text);
/* Collects the pieces of records that are not of features (PS_MOVE_RECORD) in a block. False: no
 * memory, or they are none. */
struct ps_move_collected {
    uint8_t *bytes;
    size_t byte_count;
};
bool ps_move_collect(const struct ps_move_block *block, struct ps_move_collected *out);
/* Has all cores take in what was collected from one of the giver's, about its partitions. `before`: those
 * of the move whose records were taken in already. Errors as ps_records_import(). */
enum mr_status ps_move_load_records(struct ps_node *node, const struct ps_partition_set *partitions,
                                    const struct ps_partition_set *before,
                                    const struct ps_move_collected *records, char *text);

#endif
