/* Judges whether a restarted node has everything that its answers said was on disk.
 *
 * Normally it has, because it comes back from its newest checkpoint. It has not if somebody put an older copy
 * of its directory back, or if the newest checkpoint was damaged. LIST names the starts that the node's state
 * comes from, and the checkpoint that each of them loaded. If the start after the newest one that this client
 * trusts loaded an older checkpoint than the newest that the client has heard of, something may be missing.
 * The number of a checkpoint alone would not do: an older copy that ran on has the same numbers. Pure. One
 * thread at a time.
 */
#ifndef MRC_ANCESTRY_H
#define MRC_ANCESTRY_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/op.h"

#define MRC_STARTS_MAX 16u /* that are remembered */

struct mrc_ancestry {
    uint64_t trusted[MRC_STARTS_MAX]; /* starts that had everything on disk, the newest last */
    uint32_t count;
    uint32_t restores;   /* of the answer that named `checkpoint` */
    uint64_t checkpoint; /* the newest that any answer has named; 0: none */
    uint64_t judged;     /* the last start that was judged; 0: none */
    bool lacks;          /* the verdict */
};

/* What LIST says of the node. */
struct mrc_origin {
    const uint64_t (*starts)[MR_LIST_START_WORDS];
    uint32_t count;
    bool same_lineage; /* as of what is known */
    uint32_t restores, whole;
};

/* Trusts the start of the node that this client meets first. Others are judged. */
void mrc_ancestry_meet(struct mrc_ancestry *ancestry, uint64_t start_id);
/* An answer names the checkpoint (0: none) that holds what it says is on disk, after so many restores by
 * call. */
void mrc_ancestry_saved(struct mrc_ancestry *ancestry, uint32_t restores, uint64_t checkpoint);
/* The node was restarted. Returns true if it may lack what was on disk; the same for the same start. */
bool mrc_ancestry_judge(struct mrc_ancestry *ancestry, uint64_t start_id, const struct mrc_origin *origin);
/* The last verdict was on this start, and it was true. */
bool mrc_ancestry_lacks(const struct mrc_ancestry *ancestry, uint64_t start_id);

#endif
