/* Batches that this core has applied for a part of its keys only, as ranges of consecutive batches that are
 * applied to the same partitions.
 *
 * They come from a checkpoint that other cores wrote (ps/restore/applied_batches_merge.h), or with partitions
 * of another core (ps/exactly_once/records.h), whose record is ahead of this one's or behind it: after a
 * take-over by all batches since the checkpoint. A push of such a batch leaves out the keys of the partitions
 * that hold it already; then it is applied like any other. What is known of a batch from the record of
 * applied batches comes first: one that is applied may still be in a range. One thread.
 */
#ifndef PS_PARTIAL_H
#define PS_PARTIAL_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"
#include "ps/base/partition_set.h"

#define PS_PARTIALS_MAX 65536u /* ranges */

/* The batches first..last of one stream. */
struct ps_partial {
    uint64_t first, last;               /* batch ids */
    struct ps_partition_set partitions; /* where each of them is applied */
};

/* All zero: none. */
struct ps_partials {
    uint32_t count, room;
    struct ps_partial *entries; /* disjoint, by batch; neighbours that are alike are one */
};

/* Replaces what is there by a copy of these, which are disjoint and by batch. False, and nothing changed,
 * when memory is short. */
bool ps_partials_set(struct ps_partials *p, const struct ps_partial *entries, uint32_t count);
void ps_partials_clear(struct ps_partials *p);
/* Returns the range that has the batch; NULL: the batch is not partly applied. */
const struct ps_partial *ps_partials_find(const struct ps_partials *p, uint64_t batch_id);
/* Returns the place of the first range that ends with this batch or a later one; p->count: there is none. */
uint32_t ps_partials_from(const struct ps_partials *p, uint64_t batch_id);
/* The batches of the range are applied in its partitions, too. MR_NO_MEMORY; MR_UNSUPPORTED: that would be
 * more than PS_PARTIALS_MAX ranges. Then a part of the range may have been added. */
enum mr_status ps_partials_add(struct ps_partials *p, const struct ps_partial *range);
/* The batch is applied. Without memory it may stay where it is, see above. */
void ps_partials_remove(struct ps_partials *p, uint64_t batch_id);
/* Removes all of a stream. */
void ps_partials_forget(struct ps_partials *p, uint32_t stream);

#endif
