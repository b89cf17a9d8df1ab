/* A copy of some partitions of a table for another node, made while the table serves: rows are given out as
 * they are when their turn comes, and again after each change. So the copy is never a state that the table
 * had, until changes stop and what is left has been given out.
 *
 * First come the rows of all partitions, one partition after the other. From then on a log says which keys
 * have changed since they were given out, were made, or were removed; a key that has a row is in it once at
 * most, which the row's mark sees to (ps/index/index.h). So nothing is searched for changes: once they stop,
 * what is left takes as long as it is large.
 *
 * No cut may be running, or begin before the copy ends, and the next one must be of every row. Belongs to the
 * table's thread. */
#ifndef PS_TABLE_COPY_H
#define PS_TABLE_COPY_H

#include <stdbool.h>
#include <stdint.h>
#include "ps/base/partition_set.h"
#include "ps/table/table.h"

/* Keys in a log at most, 32 MiB: more of them changed before they were given out. The copy is lost then. */
#define PS_COPY_LOG_MAX (4u << 20)

/* Begins to copy these partitions. MR_NO_MEMORY, MR_OUT_OF_MEMORY. */
enum mr_status ps_table_copy_begin(struct ps_table *t, const struct ps_partition_set *partitions);
/* Fine when there is none. */
void ps_table_copy_end(struct ps_table *t);
bool ps_table_copy_runs(const struct ps_table *t);

enum ps_copy_kind {
    PS_COPY_NONE,  /* nothing is left, or the budget is used up */
    PS_COPY_ROWS,  /* keys and their rows */
    PS_COPY_GONE,  /* keys that have no row, whether or not they were given out */
    PS_COPY_FILTER /* a piece of the occurrence filter */
};

struct ps_copy_part {
    uint32_t count; /* of keys */
    uint64_t keys[PS_CUT_EMIT_ROWS_MAX];
    const uint8_t *rows[PS_CUT_EMIT_ROWS_MAX]; /* until another function of the table is called */
    /* Of a filter: ps_table_filter_load() takes filter_bytes of them. */
    uint32_t partition, first_line, filter_bytes;
    uint8_t filter[PS_FILTER_PIECE_BYTES_MAX];
};

/* Gives out what comes next, keys_max keys at most, and takes what it cost off the budget. With some budget
 * left, PS_COPY_NONE says that everything has been given out as it is now. */
enum ps_copy_kind ps_table_copy_next(struct ps_table *t, uint32_t keys_max, struct ps_copy_part *out,
                                     uint64_t *budget_bytes);
/* How many rows are left, about: those that have not been given out yet, and keys in the log. */
uint64_t ps_table_copy_left(const struct ps_table *t);
/* Are there rows that were never given out? */
bool ps_table_copy_is_first(const struct ps_table *t);
/* The log was too long, or there was no memory for it: the copy cannot be completed any more. */
bool ps_table_copy_is_lost(const struct ps_table *t);

/* Removes the rows of a partition and what its filter has counted, not as a change: the next cut must be of
 * every row. True when there is more of it. */
bool ps_table_drop_partition(struct ps_table *t, uint32_t partition, uint64_t *budget_bytes);

#endif
