#include "ps/table/table_changes.h"

#include <stdlib.h>
#include "ps/table/table_internal.h"

#define ROOM_MIN 1024u

void ps_table_collect(struct ps_table *t, struct ps_table_changes *changes)
{
    t->changes = changes;
    t->notes = t->copy != NULL || changes != NULL;
}

void ps_table_changes_clear(struct ps_table_changes *changes)
{
    changes->count = 0;
    changes->is_lost = false;
}

void ps_table_changes_free(struct ps_table_changes *changes)
{
    free(changes->hashes);
    *changes = (struct ps_table_changes){0};
}

static __attribute__((cold, noinline)) bool changes_grow(struct ps_table_changes *c)
{
    const uint32_t room = c->room == 0 ? ROOM_MIN : 2 * c->room;
    uint64_t *hashes = room <= PS_CHANGES_MAX ? realloc(c->hashes, room * sizeof(*hashes)) : NULL;
    c->is_lost = hashes == NULL;
    if (c->is_lost)
        return false;
    c->hashes = hashes;
    c->room = room;
    return true;
}

/* A row that is made for a push is noted twice in a row. */
void ps_table_changes_note(struct ps_table *t, uint64_t hash)
{
    struct ps_table_changes *c = t->changes;
    if (c->is_lost || (c->count > 0 && c->hashes[c->count - 1] == hash) ||
        (c->count == c->room && !changes_grow(c)))
        return;
    c->hashes[c->count++] = hash;
}

void ps_table_note_changed(struct ps_table *t, struct ps_place place, uint64_t hash)
{
    if (t->copy != NULL)
        ps_table_copy_changed(t, place, hash);
    if (t->changes != NULL)
        ps_table_changes_note(t, hash);
}

void ps_table_note_key(struct ps_table *t, uint64_t hash)
{
    if (t->copy != NULL)
        ps_table_copy_note(t, hash);
    if (t->changes != NULL)
        ps_table_changes_note(t, hash);
}

const uint8_t *ps_table_row_of(const struct ps_table *t, uint64_t hash, uint64_t *key)
{
    const struct ps_place place = ps_index_find(&t->index, hash);
    *key = ps_index_key(&t->index, hash);
    return place.bucket != NULL ? ps_table_row(t, place) : NULL;
}

uint32_t ps_table_partition_rows(const struct ps_table *t, uint32_t partition)
{
    return t->index.partition_rows[partition];
}

void ps_table_partition_hashes(const struct ps_table *t, uint32_t partition, uint64_t *hashes)
{
    const uint32_t buckets = ps_index_bucket_count(&t->index, partition);
    for (uint32_t i = 0; i < buckets; i++) {
        struct ps_bucket *b = ps_index_bucket(&t->index, partition, i);
        for (uint32_t taken = ps_bucket_taken(b); taken != 0; taken &= taken - 1)
            *hashes++ = ps_index_hash_at(
                &t->index, ps_index_place_at(&t->index, partition, b, (uint32_t)__builtin_ctz(taken)));
    }
}

void ps_table_follow(struct ps_table *t, const struct ps_partition_set *followed)
{
    t->followed = followed;
    t->counters.rows_copied = 0;
    for (uint32_t p = 0; followed != NULL && p < MR_PARTITION_COUNT; p++)
        if (ps_partitions_has(followed, p))
            t->counters.rows_copied += t->index.partition_rows[p];
}
