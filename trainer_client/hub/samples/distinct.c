#include "trainer_client/hub/samples/distinct.h"

#include <assert.h>
#include <stdlib.h>
#include "trainer_client/hub/samples/permutation.h"

struct hub_distinct {
    uint64_t *hashes; /* open addressing; 0 = empty */
    uint32_t entries, used;
    uint32_t level; /* only hashes whose `level` low bits are zero are kept */
};

struct hub_distinct *hub_distinct_create(uint32_t table_entries)
{
    assert(table_entries >= 4 && (table_entries & (table_entries - 1)) == 0);
    struct hub_distinct *d = calloc(1, sizeof(*d));
    if (d == NULL)
        return NULL;
    d->entries = table_entries;
    d->hashes = calloc(table_entries, sizeof(*d->hashes));
    if (d->hashes == NULL) {
        free(d);
        return NULL;
    }
    return d;
}

void hub_distinct_destroy(struct hub_distinct *d)
{
    if (d != NULL) {
        free(d->hashes);
        free(d);
    }
}

static bool is_kept(const struct hub_distinct *d, uint64_t hash)
{
    return (hash & ((UINT64_C(1) << d->level) - 1)) == 0;
}

static void insert(struct hub_distinct *d, uint64_t hash)
{
    uint32_t at = (uint32_t)(hash >> 32) & (d->entries - 1);
    while (d->hashes[at] != 0) {
        if (d->hashes[at] == hash)
            return;
        at = (at + 1) & (d->entries - 1);
    }
    d->hashes[at] = hash;
    d->used++;
}

/* Half of the hashes go. Called when more than half full: the survivors are put back one by one into the
 * emptied table. */
static void halve(struct hub_distinct *d)
{
    uint64_t *old = d->hashes;
    uint64_t *fresh = calloc(d->entries, sizeof(*fresh));
    d->level++;
    d->used = 0;
    if (fresh != NULL) {
        d->hashes = fresh;
        for (uint32_t i = 0; i < d->entries; i++)
            if (old[i] != 0 && is_kept(d, old[i]))
                insert(d, old[i]);
        free(old);
        return;
    }
    /* No memory for a second table: thin out in place. What stays may come after a gap and be counted twice,
     * which is within the estimate's error. */
    for (uint32_t i = 0; i < d->entries; i++) {
        if (old[i] != 0 && !is_kept(d, old[i]))
            old[i] = 0;
        d->used += old[i] != 0;
    }
}

void hub_distinct_add(struct hub_distinct *d, uint64_t key)
{
    uint64_t hash = hub_mix(key, 0);
    hash += hash == 0; /* 0 marks an empty entry */
    if (!is_kept(d, hash))
        return;
    insert(d, hash);
    if (d->used > d->entries / 2)
        halve(d);
}

uint64_t hub_distinct_count(const struct hub_distinct *d)
{
    return (uint64_t)d->used << d->level;
}

bool hub_distinct_is_exact(const struct hub_distinct *d)
{
    return d->level == 0;
}
