/* The source of a migration (ps/cluster/migration.h) on one core: blocks of records for the target, made
 * while the core serves the partitions, until they are fenced and nothing is left.
 *
 * Rows are copied as ps/table/table_copy.h says. Variables come at the end, when the partitions are fenced,
 * and last the records of batches, clients and pushes, which belong to the state that was sent before. One
 * migration at a time. Belongs to the core's thread. */
#ifndef PS_MIGRATION_SOURCE_H
#define PS_MIGRATION_SOURCE_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"
#include "ps/base/partition_set.h"

/* In blocks, beside the kinds of checkpoints: a piece of what was applied to the partitions
 * (ps/exactly_once/records.h), `count` bytes from `offset` on. */
#define PS_MOVE_RECORD 64u

struct ps_core;
struct ps_migration_source;

/* Begins to copy the core's share of these partitions. MR_NO_MEMORY. */
enum mr_status ps_migration_source_begin(struct ps_core *core, uint64_t id,
                                         const struct ps_partition_set *partitions);
/* From now on nothing changes in the partitions. */
void ps_migration_source_fence(struct ps_core *core, uint64_t id);
/* The migration has ended, one way or the other. Nothing happens if it is not this one; 0: whichever. */
void ps_migration_source_end(struct ps_core *core, uint64_t id);

/* A block as it is made, and kept until the next one is asked for. */
struct ps_migration_block {
    const uint8_t *bytes;
    uint32_t byte_count;
    uint32_t state; /* enum mr_move_state */
    bool is_first;
    uint64_t left_bytes;
};
/* Makes the block of this position, or finds it made. True: it is done; false: the budget was used up first.
 * A position that is neither the last nor the next makes a block that is lost. */
bool ps_migration_source_read(struct ps_core *core, uint64_t id, uint64_t position, uint64_t budget_bytes,
                              struct ps_migration_block *out);

#endif
