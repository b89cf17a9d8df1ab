#include "ps/move/copy_shadow.h"

#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/bytes.h"
#include "dataplane/wire/format/op.h"
#include "dataplane/wire/format/packet.h"
#include "ps/checkpoint/checkpoint_format.h"
#include "ps/exactly_once/records.h"

#define PLACES_MIN 256u /* a power of two */
/* More than a core keeps, several times over: it forgets push streams and clients without saying so. Beyond
 * that the copy begins again. */
#define ENTRIES_MAX (4u * (PS_PUSH_STREAMS_MAX + PS_CLIENTS_MAX + PS_STREAMS_KEPT))

/* What a record is about. */
struct shadow_key {
    uint32_t kind;
    uint32_t stream; /* of batches, or of pushes */
    uint8_t uuid[MR_UUID_BYTES];
};

struct shadow_entry {
    struct shadow_key key;
    uint64_t number; /* of the stream's record that it is from */
    uint8_t *bytes;  /* records as ps_records_export() writes them; none: it is not known any more */
    size_t byte_count;
};

/* Entries are found by open addressing, and never removed: the core's records are bounded, and what it
 * forgets is empty here. */
struct ps_copy_shadow {
    uint32_t count, places; /* a power of two, at least twice as many */
    struct shadow_entry *entries;
};

static uint32_t key_place(const struct ps_copy_shadow *s, const struct shadow_key *key)
{
    uint64_t a, b;
    memcpy(&a, key->uuid, sizeof(a));
    memcpy(&b, key->uuid + sizeof(a), sizeof(b));
    a = (a ^ key->stream ^ (uint64_t)key->kind << 32) * UINT64_C(0x9e3779b97f4a7c15);
    a = (a ^ a >> 29 ^ b) * UINT64_C(0xbf58476d1ce4e5b9);
    return (uint32_t)(a >> 32) & (s->places - 1);
}

/* Its entry, or the free one for it. */
static struct shadow_entry *shadow_find(const struct ps_copy_shadow *s, const struct shadow_key *key)
{
    uint32_t at = key_place(s, key);
    while (s->entries[at].key.kind != 0 && memcmp(&s->entries[at].key, key, sizeof(*key)) != 0)
        at = (at + 1) & (s->places - 1);
    return &s->entries[at];
}

struct ps_copy_shadow *ps_copy_shadow_create(void)
{
    struct ps_copy_shadow *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return NULL;
    s->places = PLACES_MIN;
    s->entries = calloc(s->places, sizeof(*s->entries));
    if (s->entries != NULL)
        return s;
    free(s);
    return NULL;
}

void ps_copy_shadow_destroy(struct ps_copy_shadow *s)
{
    if (s == NULL)
        return;
    for (uint32_t i = 0; i < s->places; i++)
        free(s->entries[i].bytes);
    free(s->entries);
    free(s);
}

static bool shadow_grow(struct ps_copy_shadow *s)
{
    struct ps_copy_shadow more = {.places = 2 * s->places};
    more.entries = calloc(more.places, sizeof(*more.entries));
    if (more.entries == NULL)
        return false;
    for (uint32_t i = 0; i < s->places; i++)
        if (s->entries[i].key.kind != 0)
            *shadow_find(&more, &s->entries[i].key) = s->entries[i];
    free(s->entries);
    s->entries = more.entries;
    s->places = more.places;
    return true;
}

/* False: it is malformed. */
static bool key_of(const struct ps_record *record, const uint8_t *bytes, struct shadow_key *out)
{
    const uint64_t *words = (const uint64_t *)(const void *)bytes;
    const struct ps_partition_set *partitions;
    struct ps_push_load stream;
    struct ps_partial partial;
    memset(out, 0, sizeof(*out));
    out->kind = record->kind;
    if (ps_record_check(record) != NULL)
        return false;
    switch (record->kind) {
    case PS_RECORD_CLIENT:
        memcpy(out->uuid, bytes, MR_UUID_BYTES);
        return true;
    case PS_RECORD_PUSH_STREAM:
        if (!ps_stored_push_stream_read(record, bytes, &stream, &partitions) || partitions == NULL)
            return false;
        memcpy(out->uuid, stream.uuid, MR_UUID_BYTES);
        out->stream = stream.stream_id;
        return true;
    case PS_RECORD_STREAM:
        if (record->row_bytes == PS_STREAM_PARTIAL || record->row_bytes == PS_STREAM_PARTIALS) {
            if (!ps_stored_partial_read(record->row_bytes, words, record->bytes, &partial))
                return false;
            out->stream = mr_batch_stream(partial.first);
            return true;
        }
        if (record->bytes < 2 * sizeof(*words) || words[0] >= PS_STREAMS_MAX)
            return false;
        out->stream = (uint32_t)words[0];
        return true;
    default:
        return false;
    }
}

/* The core has forgotten the stream. */
static bool is_empty(const struct ps_record *record, const uint8_t *bytes)
{
    const uint64_t *words = (const uint64_t *)(const void *)bytes;
    return record->kind == PS_RECORD_STREAM && record->row_bytes == PS_STREAM_APPLIED &&
           record->bytes == 2 * sizeof(*words) && words[1] == 0 && record->offset == 0;
}

bool ps_copy_shadow_take(struct ps_copy_shadow *s, uint64_t number, const struct ps_record *record,
                         const uint8_t *bytes)
{
    struct shadow_key key;
    if (!key_of(record, bytes, &key) || (2 * (s->count + 1) > s->places && !shadow_grow(s)))
        return false;
    struct shadow_entry *entry = shadow_find(s, &key);
    if (entry->key.kind == 0 && s->count == ENTRIES_MAX)
        return false;
    const size_t kept = entry->number == number ? entry->byte_count : 0;
    const size_t more = sizeof(*record) + mr_padded(record->bytes);
    uint8_t *to = realloc(entry->bytes, kept + more);
    if (to == NULL)
        return false;
    s->count += entry->key.kind == 0;
    entry->key = key;
    entry->number = number;
    entry->bytes = to;
    entry->byte_count = kept;
    if (is_empty(record, bytes))
        return true;
    memcpy(to + kept, record, sizeof(*record));
    memcpy(to + kept + sizeof(*record), bytes, record->bytes);
    memset(to + kept + sizeof(*record) + record->bytes, 0, more - sizeof(*record) - record->bytes);
    entry->byte_count += more;
    return true;
}

bool ps_copy_shadow_collect(const struct ps_copy_shadow *s, struct ps_move_collected *out)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < s->places; i++)
        bytes += s->entries[i].byte_count;
    *out = (struct ps_move_collected){.bytes = malloc(bytes + 1)};
    for (uint32_t i = 0; i < s->places && out->bytes != NULL; i++) {
        const struct shadow_entry *entry = &s->entries[i];
        if (entry->byte_count > 0)
            memcpy(out->bytes + out->byte_count, entry->bytes, entry->byte_count);
        out->byte_count += entry->byte_count;
    }
    return out->bytes != NULL;
}

uint32_t ps_copy_shadow_count(const struct ps_copy_shadow *s)
{
    return s->count;
}
