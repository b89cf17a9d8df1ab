#include "ps/exactly_once/partial.h"

#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/format/op.h"

#define PARTIALS_ROOM_MIN 16u

static bool partials_reserve(struct ps_partials *p, uint32_t count)
{
    uint32_t room = p->room < PARTIALS_ROOM_MIN ? PARTIALS_ROOM_MIN : p->room;
    while (room < count)
        room *= 2;
    if (room == p->room)
        return true;
    struct ps_partial *more = realloc(p->entries, room * sizeof(*more));
    if (more == NULL)
        return false;
    p->entries = more;
    p->room = room;
    return true;
}

/* Opens (by > 0) or closes (by < 0) places before entry `at`. There is room. */
static void partials_shift(struct ps_partials *p, uint32_t at, int32_t by)
{
    memmove(p->entries + at + by, p->entries + at, (p->count - at) * sizeof(*p->entries));
    p->count = (uint32_t)((int64_t)p->count + by);
}

/* Whether b goes on where a ends, and is applied to the same partitions. */
static bool is_continued(const struct ps_partial *a, const struct ps_partial *b)
{
    return a->last + 1 == b->first && mr_batch_stream(a->first) == mr_batch_stream(b->first) &&
           memcmp(&a->partitions, &b->partitions, sizeof(a->partitions)) == 0;
}

/* Joins entry `at` with the one before it, if they are alike. */
static void partials_join(struct ps_partials *p, uint32_t at)
{
    if (at == 0 || at >= p->count || !is_continued(&p->entries[at - 1], &p->entries[at]))
        return;
    p->entries[at - 1].last = p->entries[at].last;
    partials_shift(p, at + 1, -1);
}

bool ps_partials_set(struct ps_partials *p, const struct ps_partial *entries, uint32_t count)
{
    struct ps_partials copy = {.count = 0};
    if (!partials_reserve(&copy, count))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        copy.entries[copy.count++] = entries[i];
        partials_join(&copy, copy.count - 1);
    }
    free(p->entries);
    *p = copy;
    return true;
}

void ps_partials_clear(struct ps_partials *p)
{
    free(p->entries);
    *p = (struct ps_partials){0};
}

uint32_t ps_partials_from(const struct ps_partials *p, uint64_t batch_id)
{
    uint32_t low = 0, high = p->count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (p->entries[middle].last < batch_id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct ps_partial *ps_partials_find(const struct ps_partials *p, uint64_t batch_id)
{
    const uint32_t at = ps_partials_from(p, batch_id);
    return at < p->count && p->entries[at].first <= batch_id ? &p->entries[at] : NULL;
}

/* Lets a range begin at this batch, if one has it and begins before: that becomes two. */
static bool partials_cut(struct ps_partials *p, uint64_t batch_id)
{
    const uint32_t at = ps_partials_from(p, batch_id);
    if (at == p->count || p->entries[at].first >= batch_id)
        return true;
    if (!partials_reserve(p, p->count + 1))
        return false;
    partials_shift(p, at, 1);
    p->entries[at] = p->entries[at + 1];
    p->entries[at].last = batch_id - 1;
    p->entries[at + 1].first = batch_id;
    return true;
}

enum mr_status ps_partials_add(struct ps_partials *p, const struct ps_partial *range)
{
    uint64_t next = range->first;
    bool is_over = false;
    if (!partials_cut(p, range->first) || (range->last != UINT64_MAX && !partials_cut(p, range->last + 1)))
        return MR_NO_MEMORY;
    uint32_t at = ps_partials_from(p, range->first);
    for (; !is_over; at++) { /* by turns a gap, and a range that is there */
        const bool has_next = at < p->count && p->entries[at].first <= range->last;
        if (!has_next || p->entries[at].first > next) {
            if (!partials_reserve(p, p->count + 1))
                return MR_NO_MEMORY;
            partials_shift(p, at, 1);
            p->entries[at] = (struct ps_partial){next, has_next ? p->entries[at + 1].first - 1 : range->last,
                                                 range->partitions};
        } else {
            p->entries[at].partitions = ps_partitions_or(&p->entries[at].partitions, &range->partitions);
        }
        is_over = p->entries[at].last >= range->last;
        next = p->entries[at].last + 1;
        const uint32_t before = p->count;
        partials_join(p, at);
        at -= before - p->count;
    }
    partials_join(p, at);
    return p->count <= PS_PARTIALS_MAX ? MR_OK : MR_UNSUPPORTED;
}

void ps_partials_remove(struct ps_partials *p, uint64_t batch_id)
{
    const uint32_t at = ps_partials_from(p, batch_id);
    if (at == p->count || p->entries[at].first > batch_id)
        return;
    struct ps_partial *range = &p->entries[at];
    if (range->first == range->last)
        partials_shift(p, at + 1, -1);
    else if (range->first == batch_id)
        range->first++;
    else if (range->last == batch_id)
        range->last--;
    else if (partials_cut(p, batch_id))
        p->entries[at + 1].first++;
}

void ps_partials_forget(struct ps_partials *p, uint32_t stream)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < p->count; i++)
        if (mr_batch_stream(p->entries[i].first) != stream)
            p->entries[left++] = p->entries[i];
    p->count = left;
}
