/* Whether a node that was started again has everything that its answers said to be on disk.
 *
 * Mostly it has: it comes back from its newest checkpoint. It has not where somebody put an older copy of its
 * directory back, or the newest checkpoint was damaged. LIST says which starts its state comes from, and which
 * checkpoint each of them went on from: where the newest start among them that this client trusts left off
 * before the newest checkpoint the client has heard of, something may be missing. A number of a checkpoint
 * alone would not do: an older copy that went on has the same numbers. Pure. One thread at a time.
 */
#ifndef MRC_ANCESTRY_H
#define MRC_ANCESTRY_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/op.h"

#define MRC_STARTS_MAX 16u /* that are remembered */

struct mrc_ancestry {
    uint64_t trusted[MRC_STARTS_MAX]; /* starts that had all that was on disk until then, the newest last */
    uint32_t count;
    uint32_t restores;   /* of the answer that named ... */
    uint64_t checkpoint; /* ... the newest checkpoint that any answer has named; 0: none has */
    uint64_t judged;     /* the last start that was judged; 0: none */
    bool lacks;          /* what was found of it */
};

/* What LIST says of the node. */
struct mrc_origin {
    const uint64_t (*starts)[MR_LIST_START_WORDS];
    uint32_t count;
    bool same_lineage; /* as of what is known */
    uint32_t restores, whole;
};

/* The start of the node that this client meets first. Others are judged. */
void mrc_ancestry_meet(struct mrc_ancestry *ancestry, uint64_t start_id);
/* An answer says that what it answers for is in this checkpoint, 0: in none, as of so many restores by call. */
void mrc_ancestry_saved(struct mrc_ancestry *ancestry, uint32_t restores, uint64_t checkpoint);
/* The node was started again. True: it may lack what was on disk. The same for the same start. */
bool mrc_ancestry_judge(struct mrc_ancestry *ancestry, uint64_t start_id, const struct mrc_origin *origin);
/* This start was judged so. */
bool mrc_ancestry_lacks(const struct mrc_ancestry *ancestry, uint64_t start_id);

#endif
