/* What a core gives of its partitions to another node: blocks of records, while it serves them, until they
 * are held and nothing is left.
 *
 * Rows are copied as ps/table/table_copy.h says. Variables come at the end, while their partitions are
 * held, and last the records of batches, clients and pushes, which belong to the state that was given
 * before. One move at a time. Belongs to the core's thread. */
#ifndef PS_MIGRATION_SOURCE_H
#define PS_MIGRATION_SOURCE_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"
#include "ps/base/partition_set.h"

/* In the blocks of a move, beside the kinds of checkpoints: a piece of what was applied to the partitions
 * (ps/exactly_once/records.h), `count` bytes from `offset` on. */
#define PS_MOVE_RECORD 64u

struct ps_core;
struct ps_migration_source;

/* Begins to give the core's share of these partitions. MR_NO_MEMORY, MR_OUT_OF_MEMORY. */
enum mr_status ps_migration_source_begin(struct ps_core *core, uint64_t move,
                                         const struct ps_partition_set *partitions);
/* The partitions are held: from now on nothing changes there. */
void ps_migration_source_fence(struct ps_core *core, uint64_t move);
/* The move has ended, one way or the other. Fine if it is not this one that the core gives; 0: whichever. */
void ps_migration_source_end(struct ps_core *core, uint64_t move);

/* A block as it is made and kept until the next one is asked for. */
struct ps_migration_block {
    const uint8_t *bytes;
    uint32_t byte_count;
    uint32_t state; /* enum mr_move_state */
    bool is_first;
    uint64_t left_bytes;
};
/* Makes the block of this position, or finds it made. Some of it: true when it is done. A position that is
 * neither the last nor the next makes a block that is lost. */
bool ps_migration_source_read(struct ps_core *core, uint64_t move, uint64_t position, uint64_t budget_bytes,
                              struct ps_migration_block *out);

#endif
