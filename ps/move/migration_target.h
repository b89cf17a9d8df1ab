/* The target of a migration (ps/cluster/migration.h) while it copies: a thread of its own reads blocks from
 * each of the source's cores over UDP, as a client does, and has this node's cores load them, a little at a
 * time. The node does not serve these partitions, and has no rows of them when it begins.
 *
 * Or the target is a backup (replication = 2): it copies what the source's cores have, and then follows, for
 * ever, what they apply, record after record (ps/move/copy_source.h), until it is promoted or the assignment
 * ends.
 *
 * The thread asks for the fence once little is left, and goes from copying to fenced, installed, or failed;
 * the control thread, which owns the migration, follows it there. */
#ifndef PS_MIGRATION_TARGET_H
#define PS_MIGRATION_TARGET_H

#include <stdint.h>
#include "ps/cluster/migration.h"
#include "ps/core/node.h"
#include "ps/move/load.h"

struct ps_migration_target;

struct ps_migration_target_options {
    struct ps_node *node; /* whose control thread is woken when the state has changed */
    /* Its peer's address is HOST:PORT of the source's core 0; core i has that port plus i. Looked up on the
     * thread; of several addresses those are tried in turn until one answers. */
    struct ps_migration migration;
    /* a backup: of these partitions, and move.id is the number of its assignment */
    bool follows;
    struct ps_partition_set partitions;
    uint64_t bytes_per_s_max; /* 0: no limit */
    /* It fails when one of the source's cores sends no block for so long; a backup that follows does not: it
     * has all that there is, and the map says what becomes of it. */
    uint64_t silence_us;
};

struct ps_migration_target_progress {
    enum ps_migration_state state;
    uint64_t id;                    /* of the migration */
    uint64_t rows, bytes;           /* copied so far; rows that changed count again */
    uint64_t left_bytes;            /* about */
    uint64_t started_us, fenced_us; /* mr_clock_us(); 0: not yet */
    enum mr_status status;          /* of one that has failed: why, and in words */
    char text[PS_MOVE_TEXT_BYTES];
};

/* MR_NO_MEMORY, MR_INVALID_ARGUMENT; `text` (PS_MOVE_TEXT_BYTES) says what is wrong. */
enum mr_status ps_migration_target_start(const struct ps_migration_target_options *options,
                                         struct ps_migration_target **out, char *text);
/* Of an installed one: tells the source so, until it is stopped. The map may make this node the owner as soon
 * as the source knows, so the caller must be ready for it. Any thread. */
void ps_migration_target_confirm(struct ps_migration_target *t);
/* Of a backup whose source is gone: ends the thread, loads the records that have come as a whole, and has
 * this node's cores take in what the source had recorded of these partitions. Errors as
 * ps_move_load_records(), and MR_INVALID_ARGUMENT: it does not follow yet; `text` (PS_MOVE_TEXT_BYTES). Then
 * the partitions must not be served. Not on a core's thread. */
enum mr_status ps_migration_target_promote(struct ps_migration_target *t,
                                           const struct ps_partition_set *partitions, char *text);
/* Of a backup: calls at the source wait for what it does (cluster.copies = sync), so it asks at once; else it
 * collects for a millisecond. Any thread. */
void ps_migration_target_hurry(struct ps_migration_target *t, bool hurries);
/* Any thread. */
void ps_migration_target_progress(struct ps_migration_target *t, struct ps_migration_target_progress *out);
/* Ends the thread, whatever it has come to. NULL is fine. Not on a core's thread. */
void ps_migration_target_stop(struct ps_migration_target *t);

#endif
