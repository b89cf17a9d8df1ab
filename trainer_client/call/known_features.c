#include "trainer_client/call/known_features.h"

#include <stdlib.h>

#define CAPACITY_FIRST 16u

/* Sorted by number. */
struct mrc_known_feature {
    uint32_t id;
    bool is_void;
    struct mr_feature feature;
};

/* The first place whose number is not below `id`. */
static uint32_t place(const struct mrc_features *f, uint32_t id)
{
    uint32_t low = 0, high = f->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (f->known[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct mr_feature *mrc_features_get(const struct mrc_features *f, uint32_t id)
{
    uint32_t at = place(f, id);
    return at < f->count && f->known[at].id == id ? &f->known[at].feature : NULL;
}

enum mr_status mrc_features_add(struct mrc_features *f, uint32_t id, const struct mr_feature *feature)
{
    uint32_t at = place(f, id);
    if (at < f->count && f->known[at].id == id) {
        f->known[at].feature = *feature;
        return MR_OK;
    }
    if (f->count == f->capacity) {
        uint32_t capacity = f->capacity == 0 ? CAPACITY_FIRST : 2 * f->capacity;
        struct mrc_known_feature *known = realloc(f->known, capacity * sizeof(*known));
        if (known == NULL)
            return MR_NO_MEMORY;
        f->known = known;
        f->capacity = capacity;
    }
    for (uint32_t i = f->count; i > at; i--)
        f->known[i] = f->known[i - 1];
    f->known[at] = (struct mrc_known_feature){.id = id, .feature = *feature};
    f->count++;
    return MR_OK;
}

const struct mr_feature *mrc_features_at(const struct mrc_features *f, uint32_t i, uint32_t *id)
{
    *id = f->known[i].id;
    return &f->known[i].feature;
}

void mrc_features_set_void(struct mrc_features *f, uint32_t id, bool is_void)
{
    uint32_t at = place(f, id);
    if (at == f->count || f->known[at].id != id || f->known[at].is_void == is_void)
        return;
    f->known[at].is_void = is_void;
    if (is_void)
        f->void_count++;
    else
        f->void_count--;
}

bool mrc_features_is_void(const struct mrc_features *f, uint32_t id)
{
    uint32_t at = f->void_count == 0 ? f->count : place(f, id);
    return at < f->count && f->known[at].id == id && f->known[at].is_void;
}

void mrc_features_clear(struct mrc_features *f)
{
    f->count = 0;
    f->void_count = 0;
    f->complete = false;
}

void mrc_features_free(struct mrc_features *f)
{
    free(f->known);
    *f = (struct mrc_features){.known = NULL};
}
