/* Loads a checkpoint onto the cores of this node, however many cores and nodes wrote it: each row is loaded
 * by the core that owns its partition now.
 *
 * Called on the control thread; cores take part through tasks.
 */
#ifndef PS_RESTORE_H
#define PS_RESTORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"
#include "ps/checkpoint/checkpoint.h"
#include "ps/core/node.h"
#include "ps/restore/parameter_load.h"
#include "ps/restore/saved_writers.h"

#define PS_RESTORE_TEXT_BYTES 256

/* What of a checkpoint is for this node. */
struct ps_restore_share {
    const bool *owns; /* by partition: the keys that this node is to have; NULL: all */
    /* Of a cluster's checkpoint: the part that had just these partitions and belongs to this node, which
     * takes its parameters, and its cores, if they are as many, their records of batches, clients and pushes
     * as they are; PS_SAVED_NO_PART: there is none, and records are merged. 0: the checkpoint is of one
     * node. */
    uint32_t own_part;
};

/* Fills the staged features on all cores, which are empty (ps/core/staging.h).
 *
 * `whole`: they are all features of the checkpoint (with `leaves_out` all but those that were dropped since),
 * and replace the state that serves, together with the
 * records of batches, clients and pushes; no data call may be let in meanwhile. Otherwise they stay staged,
 * the checkpoint's other features and its records are left out, and data calls may continue: the cores are
 * busy for one block at a time.
 *
 * `makes_room`: as in ps_table_load_rows(); without it tables take the least memory, but loading takes
 * several times as long.
 *
 * `parameters` takes the records of parameters, in a restore of the whole; NULL: they are left out.
 *
 * On failure the cores serve what they served before, and the staged state must be dropped. `progress` rises
 * to about ps_chain_bytes(). MR_CHECKPOINT_CORRUPT, MR_OUT_OF_MEMORY, MR_IO_ERROR; `text`
 * (PS_RESTORE_TEXT_BYTES) says what. */
enum mr_status ps_restore_load(struct ps_node *node, struct ps_reader *reader,
                               const struct ps_restore_share *share, bool whole, bool leaves_out,
                               bool makes_room, struct ps_parameter_load *parameters,
                               _Atomic uint64_t *progress, char *text);

#endif
