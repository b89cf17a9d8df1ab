#include "trainer_client/api/applied_batches.h"

#include <stdlib.h>

static bool has(const struct mrc_applied_batches *set, uint64_t sequence)
{
    if (sequence < set->watermark)
        return true;
    uint64_t bit = sequence - set->watermark;

    return bit / 64 < set->words && (set->bitmap[bit / 64] >> (bit % 64) & 1) != 0;
}

static bool in_all(const struct mrc_applied_batches *sets, uint32_t count, uint64_t sequence)
{
    for (uint32_t i = 0; i < count; i++)
        if (!has(&sets[i], sequence))
            return false;
    return true;
}

bool mrc_applied_by_all(const struct mrc_applied_batches *sets, uint32_t count,
                        struct mrc_applied_batches *out)
{
    uint64_t watermark = UINT64_MAX, end = UINT64_MAX; /* nothing from `end` on is in all of them */
    for (uint32_t i = 0; i < count; i++) {
        uint64_t set_end = sets[i].watermark + (uint64_t)sets[i].words * 64;
        if (sets[i].watermark < watermark)
            watermark = sets[i].watermark;
        if (set_end < end)
            end = set_end;
    }
    while (watermark < end && in_all(sets, count, watermark))
        watermark++;

    uint32_t words = (uint32_t)((end - watermark + 63) / 64);
    uint64_t *bitmap = calloc(words == 0 ? 1 : words, sizeof(*bitmap));

    if (bitmap == NULL)
        return false;
    for (uint64_t sequence = watermark; sequence < end; sequence++)
        if (in_all(sets, count, sequence))
            bitmap[(sequence - watermark) / 64] |= UINT64_C(1) << ((sequence - watermark) % 64);
    while (words > 0 && bitmap[words - 1] == 0)
        words--;
    *out = (struct mrc_applied_batches){.watermark = watermark, .bitmap = bitmap, .words = words};
    return true;
}
