/* Batches that this core has applied for a part of its keys only.
 *
 * They come from a checkpoint that another number of cores wrote, when its cut fell between the messages of a
 * batch (see ps/restore/applied_batches_merge.h). A push of such a batch leaves out the keys of the
 * partitions that hold it already; then it is applied like any other. One thread.
 */
#ifndef PS_PARTIAL_H
#define PS_PARTIAL_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_feature.h"

#define PS_PARTIALS_MAX         65536u
#define PS_PARTIAL_BITMAP_WORDS (MR_PARTITION_COUNT / 64)

struct ps_partial {
    uint64_t batch_id;
    uint64_t partitions[PS_PARTIAL_BITMAP_WORDS]; /* set: applied */
};

struct ps_partials {
    uint32_t count;
    struct ps_partial *entries;
};

/* Replaces what is there by a copy; false, and nothing changed, when memory is short. */
bool ps_partials_set(struct ps_partials *p, const struct ps_partial *entries, uint32_t count);
void ps_partials_clear(struct ps_partials *p);
/* NULL when the batch is not partly applied. */
const struct ps_partial *ps_partials_find(const struct ps_partials *p, uint64_t batch_id);
void ps_partials_remove(struct ps_partials *p, uint64_t batch_id);
/* Removes all of a stream. */
void ps_partials_forget(struct ps_partials *p, uint32_t stream);

#endif
