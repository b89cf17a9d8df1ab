/* What the files of a push share: ps/table_push.c brings repeated keys together, ps/table_push_apply.c runs the optimizer. */
#ifndef PS_TABLE_PUSH_INTERNAL_H
#define PS_TABLE_PUSH_INTERNAL_H

#include "ps/table_internal.h"

/* A key, once, and its gradient. */
struct ps_distinct {
    uint64_t hash;
    uint64_t key;
    const float *gradient;
};

/* Runs the optimizer over distinct[first, first + count). */
void ps_table_push_apply(struct ps_table_push *p, struct ps_table *t, uint32_t first, uint32_t count);

#endif
