/* What the files of a push share: ps/table/table_push.c goes from stage to stage,
 * ps/table/table_push_collect.c brings repeated keys together, ps/table/table_push_apply.c runs the
 * optimizer. */
#ifndef PS_TABLE_PUSH_INTERNAL_H
#define PS_TABLE_PUSH_INTERNAL_H

#include "ps/table/table_internal.h"

/* A key, once, and its gradient. */
struct ps_distinct {
    uint64_t hash;
    uint64_t key;
    const float *gradient;
};

#define PS_PUSH_SPLIT_BITS_MAX 32u /* halvings of a push; none has more keys than that tells apart */

static inline bool ps_push_leaves_out(const struct ps_table_push *p, uint64_t hash)
{
    uint32_t partition = mr_partition_of(hash);
    return __builtin_expect(p->left_out != NULL, 0) &&
           (p->left_out[partition / 64] >> partition % 64 & 1) != 0;
}

static inline bool ps_push_is_narrow(const struct ps_table_push *p)
{
    return p->gradients_dtype != MR_F32 && p->gradients_dtype != MR_DTYPE_NONE;
}

/* Brings keys [first, end) together with those before; the table is not touched. False when there is no room:
 * then the keys are to be halved. */
bool ps_table_push_collect(struct ps_table_push *p, const struct ps_table *t, uint32_t first, uint32_t end);
/* Runs the optimizer over distinct[first, first + count). */
void ps_table_push_apply(struct ps_table_push *p, struct ps_table *t, uint32_t first, uint32_t count);

#endif
