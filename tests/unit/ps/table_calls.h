/* Lookups and pushes of f32 rows in one step, for tests and benchmarks. */
#ifndef TABLE_CALLS_H
#define TABLE_CALLS_H

#include "ps/table/table.h"

static inline void table_lookup_bags(struct ps_table *t, const uint64_t *keys, const uint32_t *offsets,
                                     uint32_t bag_count, bool insert, float *out)
{
    struct ps_table_lookup l = {.in = {.keys = keys,
                                       .key_count = bag_count > 0 ? offsets[bag_count] : 0,
                                       .offsets = offsets,
                                       .bag_count = bag_count},
                                .insert = insert};
    uint64_t budget_bytes = UINT64_MAX;
    l.out = out;
    if (bag_count > 0)
        (void)ps_table_lookup_step(t, &l, &budget_bytes);
}

static inline void table_lookup(struct ps_table *t, const uint64_t *keys, uint32_t key_count, bool insert,
                                float *out)
{
    struct ps_table_lookup l = {.in = {.keys = keys, .key_count = key_count}, .insert = insert};
    uint64_t budget_bytes = UINT64_MAX;
    l.out = out;
    (void)ps_table_lookup_step(t, &l, &budget_bytes);
}

static inline void table_push_bags(struct ps_table *t, const uint64_t *keys, const uint32_t *offsets,
                                   uint32_t bag_count, const float *gradients)
{
    struct ps_table_push p = {.in = {.keys = keys,
                                     .key_count = bag_count > 0 ? offsets[bag_count] : 0,
                                     .offsets = offsets,
                                     .bag_count = bag_count},
                              .gradients = gradients,
                              .at_once = true};
    uint64_t budget_bytes = UINT64_MAX;
    (void)ps_table_push_step(t, &p, &budget_bytes);
}

static inline void table_push(struct ps_table *t, const uint64_t *keys, uint32_t key_count,
                              const float *gradients)
{
    struct ps_table_push p = {
        .in = {.keys = keys, .key_count = key_count}, .gradients = gradients, .at_once = true};
    uint64_t budget_bytes = UINT64_MAX;
    (void)ps_table_push_step(t, &p, &budget_bytes);
}

#endif
