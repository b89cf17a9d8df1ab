#include "ps/exactly_once/partial.h"

#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/format/op.h"

bool ps_partials_set(struct ps_partials *p, const struct ps_partial *entries, uint32_t count)
{
    struct ps_partial *copy = malloc(count * sizeof(*copy) + 1);
    if (copy == NULL)
        return false;
    if (count > 0)
        memcpy(copy, entries, count * sizeof(*copy));
    free(p->entries);
    p->entries = copy;
    p->count = count;
    return true;
}

void ps_partials_clear(struct ps_partials *p)
{
    free(p->entries);
    *p = (struct ps_partials){0};
}

static uint32_t place_of(const struct ps_partials *p, uint64_t batch_id)
{
    uint32_t i = 0;
    while (i < p->count && p->entries[i].batch_id != batch_id)
        i++;
    return i;
}

const struct ps_partial *ps_partials_find(const struct ps_partials *p, uint64_t batch_id)
{
    uint32_t i = place_of(p, batch_id);
    return i < p->count ? &p->entries[i] : NULL;
}

void ps_partials_remove(struct ps_partials *p, uint64_t batch_id)
{
    uint32_t i = place_of(p, batch_id);
    if (i < p->count)
        p->entries[i] = p->entries[--p->count];
}

void ps_partials_forget(struct ps_partials *p, uint32_t stream)
{
    for (uint32_t i = p->count; i-- > 0;)
        if (mr_batch_stream(p->entries[i].batch_id) == stream)
            p->entries[i] = p->entries[--p->count];
}
