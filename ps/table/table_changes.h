/* What keeps a copy of a table's rows on another node up to date (ps/move/copy_source.h, on the node that has
 * the copy ps/move/migration_target.h): the keys that change, and the rows of partitions.
 *
 * The keys of rows that are changed, removed or made are collected, in the order of the changes; whoever
 * keeps the copy takes the rows as they are between two calls. A row that is only looked up does not change:
 * the copy may have an older stamp of its last use. Marks of rows are not needed, so snapshots and moves go
 * on beside. Belongs to the table's thread. */
#ifndef PS_TABLE_CHANGES_H
#define PS_TABLE_CHANGES_H

#include <stdbool.h>
#include <stdint.h>
#include "ps/base/partition_set.h"
#include "ps/table/table.h"

/* More keys between two records are not collected. */
#define PS_CHANGES_MAX (4u << 20)

/* Zeros: nothing has changed. A key may be in it more than once. */
struct ps_table_changes {
    uint64_t *hashes;
    uint32_t count, room;
    bool is_lost; /* too many, or no memory for them */
};

/* From now on changes are collected there, which stays until another call; NULL: they are not. */
void ps_table_collect(struct ps_table *t, struct ps_table_changes *changes);
/* Begins again with nothing. */
void ps_table_changes_clear(struct ps_table_changes *changes);
void ps_table_changes_free(struct ps_table_changes *changes);

/* Returns the stored row of a hash and its key; NULL: the key, which is set nevertheless, has none. */
const uint8_t *ps_table_row_of(const struct ps_table *t, uint64_t hash, uint64_t *key);
/* The hashes of all rows of a partition: ps_table_partition_rows() of them. */
void ps_table_partition_hashes(const struct ps_table *t, uint32_t partition, uint64_t *hashes);
uint32_t ps_table_partition_rows(const struct ps_table *t, uint32_t partition);

/* The partitions, which must stay, whose rows are kept for another node; NULL: none. Their rows are loaded,
 * are in no snapshot, are not evicted here, and do not count against the table's limits. To be called again
 * when the set has changed. */
void ps_table_follow(struct ps_table *t, const struct ps_partition_set *followed);

#endif
