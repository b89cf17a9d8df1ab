/* The stages of a group of keys (struct ps_group) by a processor's vectors. They find what those of
 * table_group.c find key by key. */
#ifndef PS_TABLE_GROUP_H
#define PS_TABLE_GROUP_H

#include "ps/table/table_internal.h"

/* hash, seek and find: of full groups. Nothing is prefetched. */
struct ps_group_stages {
    void (*hash)(const struct ps_table *t, uint64_t *hashes, const uint64_t *keys);
    void (*seek)(const struct ps_table *t, struct ps_group *g); /* sets `buckets` and `limits` */
    void (*find)(const struct ps_table *t, struct ps_group *g); /* sets `rows`, `matches` and `late` */
    /* The same for the first keys of a group, one at least. */
    void (*find_some)(const struct ps_table *t, struct ps_group *g, uint32_t count);
};

/* The directory in which a key that was not found would find its slab, which is none. */
static const uint32_t ps_group_nowhere[1];

/* NULL: key by key. */
const struct ps_group_stages *ps_group_stages_of(enum mr_vector_set vectors);
extern const struct ps_group_stages ps_group_stages_avx2, ps_group_stages_avx512;
void ps_group_find_some_avx2(const struct ps_table *t, struct ps_group *g, uint32_t count);

#endif
