/* Which keys get a row. */
#include "ps/table_internal.h"

#define FILTER_MEMORY_SHARE 4u /* of the table's memory, at most */

bool ps_table_admission_init(struct ps_table *t)
{
    const struct mr_feature *f = &t->feature;
    if (f->admission == MR_ADMIT_PROBABILITY)
        t->admit_below = f->admission_arg < 1.0f ? (uint64_t)((double)f->admission_arg * 0x1p64) : UINT64_MAX;
    if (f->admission != MR_ADMIT_SIGHTINGS)
        return true;
    uint64_t bytes = f->filter_bytes != 0 ? f->filter_bytes : PS_SIGHTINGS_BYTES_DEFAULT;
    /* A filter that fills the table's memory would leave none for rows, ever. */
    if (f->memory_bytes != 0 && bytes > f->memory_bytes / FILTER_MEMORY_SHARE)
        bytes = f->memory_bytes / FILTER_MEMORY_SHARE;
    return ps_sightings_init(&t->sightings, t->arena, bytes, (uint32_t)f->admission_arg);
}

/* The hash's bits choose partition and bucket: mixed again, they say nothing of those. */
static bool is_chosen(const struct ps_table *t, uint64_t hash)
{
    uint64_t mixed = (hash ^ hash >> 31) * UINT64_C(0x9fb21c651e98df25);
    mixed = (mixed ^ mixed >> 28) * UINT64_C(0x9fb21c651e98df25);
    return (mixed ^ mixed >> 32) <= t->admit_below;
}

static bool is_seen_enough(struct ps_table *t, uint64_t hash)
{
    bool full = t->memory_max != 0 && ps_sightings_takes_memory(&t->sightings, hash) &&
                ps_table_memory_bytes(t) + ps_sightings_partition_bytes(&t->sightings) > t->memory_max;
    enum ps_sighting sighting = full ? PS_SIGHTING_LOST : ps_sightings_add(&t->sightings, hash);
    t->counters.keys_not_admitted_sightings += sighting != PS_SIGHTING_WANTED;
    t->counters.sightings_not_counted += sighting == PS_SIGHTING_LOST;
    return sighting == PS_SIGHTING_WANTED;
}

bool ps_table_admits_lookup(struct ps_table *t, uint64_t hash)
{
    if (t->feature.admission == MR_ADMIT_SIGHTINGS)
        return is_seen_enough(t, hash);
    bool admitted = t->feature.admission == MR_ADMIT_ALWAYS || is_chosen(t, hash);
    t->counters.keys_not_admitted_probability += !admitted;
    return admitted;
}

bool ps_table_admits_push(const struct ps_table *t, uint64_t hash)
{
    return t->feature.admission == MR_ADMIT_ALWAYS ||
           (t->feature.admission == MR_ADMIT_PROBABILITY && is_chosen(t, hash));
}

size_t ps_table_filter_partition_bytes(const struct ps_table *t)
{
    return t->feature.admission == MR_ADMIT_SIGHTINGS ? ps_sightings_partition_bytes(&t->sightings) : 0;
}

const uint8_t *ps_table_filter_partition(const struct ps_table *t, uint32_t partition)
{
    return t->feature.admission == MR_ADMIT_SIGHTINGS ? ps_sightings_partition(&t->sightings, partition)
                                                      : NULL;
}

enum mr_status ps_table_filter_load(struct ps_table *t, uint32_t partition, const uint8_t *counters)
{
    return ps_sightings_load(&t->sightings, partition, counters) ? MR_OK : MR_OUT_OF_MEMORY;
}
