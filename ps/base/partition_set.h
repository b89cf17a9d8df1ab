/* Sets of partitions, a bit for each. */
#ifndef PS_PARTITION_SET_H
#define PS_PARTITION_SET_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include "dataplane/wire/format/mr_feature.h"

#define PS_PARTITION_WORDS (MR_PARTITION_COUNT / 64)

struct ps_partition_set {
    uint64_t words[PS_PARTITION_WORDS];
};

static inline bool ps_partitions_has(const struct ps_partition_set *s, uint32_t partition)
{
    return (s->words[partition / 64] >> (partition % 64) & 1) != 0;
}

static inline void ps_partitions_add(struct ps_partition_set *s, uint32_t partition)
{
    s->words[partition / 64] |= UINT64_C(1) << (partition % 64);
}

static inline bool ps_partitions_empty(const struct ps_partition_set *s)
{
    uint64_t any = 0;
    for (uint32_t i = 0; i < PS_PARTITION_WORDS; i++)
        any |= s->words[i];
    return any == 0;
}

static inline bool ps_partitions_within(const struct ps_partition_set *s, const struct ps_partition_set *of)
{
    uint64_t outside = 0;
    for (uint32_t i = 0; i < PS_PARTITION_WORDS; i++)
        outside |= s->words[i] & ~of->words[i];
    return outside == 0;
}

static inline struct ps_partition_set ps_partitions_all(void)
{
    struct ps_partition_set all;
    memset(&all, 0xff, sizeof(all));
    return all;
}

static inline struct ps_partition_set ps_partitions_and(const struct ps_partition_set *a,
                                                        const struct ps_partition_set *b)
{
    struct ps_partition_set both;
    for (uint32_t i = 0; i < PS_PARTITION_WORDS; i++)
        both.words[i] = a->words[i] & b->words[i];
    return both;
}

static inline struct ps_partition_set ps_partitions_or(const struct ps_partition_set *a,
                                                       const struct ps_partition_set *b)
{
    struct ps_partition_set either;
    for (uint32_t i = 0; i < PS_PARTITION_WORDS; i++)
        either.words[i] = a->words[i] | b->words[i];
    return either;
}

/* Those of a that are not in b. */
static inline struct ps_partition_set ps_partitions_without(const struct ps_partition_set *a,
                                                            const struct ps_partition_set *b)
{
    struct ps_partition_set rest;
    for (uint32_t i = 0; i < PS_PARTITION_WORDS; i++)
        rest.words[i] = a->words[i] & ~b->words[i];
    return rest;
}

/* Those from `begin` to `end` - 1. */
static inline struct ps_partition_set ps_partitions_range(uint32_t begin, uint32_t end)
{
    struct ps_partition_set range = {{0}};
    for (uint32_t p = begin; p < end; p++)
        ps_partitions_add(&range, p);
    return range;
}

#endif
