/* What a node does with its store (checkpoint.remote): takes from it what its disk does not have when it
 * starts, and copies to it what it saves. main()'s thread. */
#ifndef PS_CHECKPOINT_SYNC_H
#define PS_CHECKPOINT_SYNC_H

#include <stdbool.h>
#include "ps/core/node.h"

/* Checks URLs and credentials of checkpoint.remote, directory, serve and allow without asking the stores.
 * False: `error` (DP_ERROR_BYTES) has a line. */
bool ps_checkpoint_sync_check(const struct ps_config *config, char *error);
/* Before the history is read: where the disk has neither checkpoints nor a history, gets that of the store,
 * so that the node knows what was dropped and restored before. Errors as those of
 * ps_checkpoint_sync_fetch(). */
enum mr_status ps_checkpoint_sync_fetch_history(const struct ps_node *node, char *error);
/* Before the restore: where the disk lacks the checkpoint, gets it from the store with its chain: `id`,
 * or, if that is 0 and the disk has none at all or only what a fetch before has brought that failed, the
 * newest. Nothing to get is no error; a store that cannot be asked is one, because the node would begin
 * without what it has learnt, and so is a part of a fetch that checkpoint.remote is missing for. On failure
 * `error` (DP_ERROR_BYTES) has a line. */
enum mr_status ps_checkpoint_sync_fetch(const struct ps_node *node, uint64_t id, char *error);
/* Where the node starts with something else: what a fetch that failed has brought counts as all there is.
 * Errors as those of ps_checkpoint_sync_fetch(). */
enum mr_status ps_checkpoint_sync_end_fetch(const struct ps_node *node, char *error);
/* After the restore: begins to copy. Without checkpoint.remote it does nothing. */
enum mr_status ps_checkpoint_sync_start(struct ps_node *node, char *error);
/* At the end, after the last save: lets what is left go out for up to wait_s seconds. */
void ps_checkpoint_sync_stop(struct ps_node *node, uint32_t wait_s);

#endif
