/* Judges whether a restarted node has everything that its answers said was on disk.
 *
 * Normally it has, because it comes back from its newest checkpoint. It has not if somebody put an older copy
 * of its directory back, or if the newest checkpoint was damaged. LIST names the starts that the node's state
 * comes from, and the checkpoint that each of them loaded. So the client looks for the start that wrote the
 * newest checkpoint it relies on: nothing is missing if the start after it loaded that checkpoint or a later
 * one. The number of a checkpoint alone would not do: an older copy that ran on has the same numbers. Pure.
 * One thread at a time.
 */
#ifndef MRC_ANCESTRY_H
#define MRC_ANCESTRY_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/op.h"

struct mrc_ancestry {
    uint64_t start_id; /* the start that was judged last; 0: the client has met none */
    bool lacks;        /* the verdict on it */
    uint64_t writer;   /* the start that wrote the newest checkpoint that the client relies on; 0: unknown */
    uint64_t checkpoint; /* that checkpoint; 0: none */
    uint32_t restores;   /* restores by call as of then */
};

/* What LIST reports about the node. */
struct mrc_origin {
    const uint64_t (*starts)[MR_LIST_START_WORDS];
    uint32_t count;
    bool same_lineage; /* the same as the known one */
    uint32_t restores, whole;
};

/* Notes the start of the node that this client meets first, or before it has pushed anything: that start has
 * everything. Others are judged. */
void mrc_ancestry_meet(struct mrc_ancestry *ancestry, uint64_t start_id);
/* Whether this is the start that was judged last. What others say to be on disk must not be relied on. */
bool mrc_ancestry_knows(const struct mrc_ancestry *ancestry, uint64_t start_id);
/* An answer of that start names the checkpoint (0: none) that holds what it says is on disk, after so many
 * restores by call. */
void mrc_ancestry_saved(struct mrc_ancestry *ancestry, uint32_t restores, uint64_t checkpoint);
/* The node was restarted: judges the start, unless it is the one that was judged last. */
void mrc_ancestry_judge(struct mrc_ancestry *ancestry, uint64_t start_id, const struct mrc_origin *origin);
/* Returns whether this is the start that was judged last, and it may lack what was on disk. */
bool mrc_ancestry_lacks(const struct mrc_ancestry *ancestry, uint64_t start_id);

#endif
