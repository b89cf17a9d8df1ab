#include "ps/core/catalog.h"

#include <assert.h>
#include <string.h>

uint32_t ps_catalog_find(const struct ps_catalog *c, const char *name)
{
    uint32_t i = 0;
    while (i < c->count && strncmp(c->features[i].name, name, MR_NAME_BYTES) != 0)
        i++;
    return i;
}

uint32_t ps_catalog_find_id(const struct ps_catalog *c, uint32_t id)
{
    uint32_t i = 0;
    while (i < c->count && c->ids[i] != id)
        i++;
    return i;
}

uint32_t ps_catalog_last_id(const struct ps_catalog *c)
{
    uint32_t last = 0;
    for (uint32_t i = 0; i < c->count; i++)
        last = c->ids[i] > last ? c->ids[i] : last;
    return last;
}

void ps_catalog_add(struct ps_catalog *c, uint32_t id, const struct mr_feature *feature)
{
    assert(c->count < MR_FEATURE_MAX && ps_catalog_find_id(c, id) == c->count);
    c->ids[c->count] = id;
    c->features[c->count++] = *feature;
}

void ps_catalog_remove(struct ps_catalog *c, uint32_t id)
{
    uint32_t at = ps_catalog_find_id(c, id);
    assert(at < c->count);
    c->count--;
    memmove(&c->ids[at], &c->ids[at + 1], (c->count - at) * sizeof(c->ids[0]));
    memmove(&c->features[at], &c->features[at + 1], (c->count - at) * sizeof(c->features[0]));
}

void ps_catalog_pop(struct ps_catalog *c)
{
    assert(c->count > 0);
    c->count--;
}
