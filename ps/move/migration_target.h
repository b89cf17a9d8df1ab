/* Takes partitions over from another node: a thread of its own reads the move from each of the giver's
 * cores over UDP, as a client does, and has this node's cores load what it brings, a little at a time. The
 * node does not serve these partitions, and has no rows of them when it begins.
 *
 * The thread asks for the stop at the end once little is left. A move that fails says why, once; the map
 * then cancels it. */
#ifndef PS_MIGRATION_TARGET_H
#define PS_MIGRATION_TARGET_H

#include <stdbool.h>
#include <stdint.h>
#include "ps/base/partition_set.h"
#include "ps/core/node.h"
#include "ps/move/load.h"

struct ps_migration_target;

struct ps_migration_target_options {
    struct ps_node *node;
    uint64_t move;
    struct ps_partition_set partitions;
    /* HOST:PORT of the giver's core 0; core i has that port plus i. Looked up on the thread; of several
     * addresses those are tried in turn until one answers */
    const char *address;
    uint32_t core_count; /* of the giver */
    uint64_t bytes_per_s_max;
    uint64_t silence_us; /* the take fails when one of the giver's cores gives no block for so long */
    /* Called on the thread when `state` has changed. */
    void (*changed)(void *context);
    void *context;
};

enum ps_migration_target_state { PS_TAKE_RUNS, PS_TAKE_COMPLETE, PS_TAKE_FAILED };

struct ps_migration_target_progress {
    enum ps_migration_target_state state;
    uint64_t rows, bytes;          /* taken so far; rows that changed count again */
    uint64_t left_bytes;           /* about */
    uint64_t started_us, held_us;  /* mr_clock_us(); 0: not yet */
    char text[PS_MOVE_TEXT_BYTES]; /* of one that has failed */
};

/* MR_NO_MEMORY, MR_INVALID_ARGUMENT; `text` (PS_MOVE_TEXT_BYTES) says what is wrong. */
enum mr_status ps_migration_target_start(const struct ps_migration_target_options *options,
                                         struct ps_migration_target **out, char *text);
/* Of a complete one: tells the giver so, until it is stopped. Nobody else may serve these partitions
 * before the giver knows, so the caller must be ready for it. Any thread. */
void ps_migration_target_confirm(struct ps_migration_target *t);
/* Any thread. */
void ps_migration_target_progress(struct ps_migration_target *t, struct ps_migration_target_progress *out);
/* Ends the thread, whatever it has come to. NULL is fine. Not on a core's thread. */
void ps_migration_target_stop(struct ps_migration_target *t);

#endif
