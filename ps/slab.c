#include "ps/slab.h"

#include <assert.h>
#include <string.h>

#define SLAB_ALIGN         64u
#define DIRECTORY_MIN      16u
#define PADDING_SHARE      16u /* rows are padded to whole lines as long as that costs at most 1/16 */
#define STRIDE_ALIGN_MIN   4u
#define STRIDE_ALIGN_START 64u

static uint32_t stride_of(uint32_t row_bytes)
{
    for (uint32_t align = STRIDE_ALIGN_START; align > STRIDE_ALIGN_MIN; align /= 2) {
        uint32_t stride = (row_bytes + align - 1) / align * align;
        if (stride - row_bytes <= row_bytes / PADDING_SHARE)
            return stride;
    }
    return (row_bytes + STRIDE_ALIGN_MIN - 1) / STRIDE_ALIGN_MIN * STRIDE_ALIGN_MIN;
}

static size_t slab_bytes(uint32_t slab_number)
{
    for (size_t bytes = PS_SLAB_BYTES_MIN; bytes < PS_SLAB_BYTES_MAX; bytes *= 2, slab_number--)
        if (slab_number == 0)
            return bytes;
    return PS_SLAB_BYTES_MAX;
}

static size_t directory_bytes(const struct ps_slabs *s)
{
    return s->slab_capacity * sizeof(*s->slab);
}

void ps_slabs_init(struct ps_slabs *s, struct ps_arena *arena, uint32_t row_bytes)
{
    assert(row_bytes >= STRIDE_ALIGN_MIN && row_bytes <= PS_SLAB_BYTES_MIN);
    memset(s, 0, sizeof(*s));
    s->arena = arena;
    s->stride_bytes = stride_of(row_bytes);
    uint32_t rows_max = (uint32_t)(PS_SLAB_BYTES_MAX / s->stride_bytes);
    while (((uint32_t)1 << s->index_bits) < rows_max)
        s->index_bits++;
}

void ps_slabs_clear(struct ps_slabs *s)
{
    for (uint32_t i = 0; i < s->slab_count; i++)
        ps_arena_free(s->arena, s->slab[i], slab_bytes(i), SLAB_ALIGN);
    if (s->slab != NULL)
        ps_arena_free(s->arena, s->slab, directory_bytes(s), SLAB_ALIGN);
    s->slab = NULL;
    s->slab_count = s->slab_capacity = 0;
    s->next_index = s->last_rows = 0;
    s->rows = 0;
    s->bytes = 0;
}

static bool directory_grow(struct ps_slabs *s)
{
    uint32_t capacity = s->slab_capacity == 0 ? DIRECTORY_MIN : 2 * s->slab_capacity;
    uint8_t **grown = ps_arena_alloc(s->arena, capacity * sizeof(*grown), SLAB_ALIGN);
    if (grown == NULL)
        return false;
    if (s->slab != NULL) {
        memcpy(grown, s->slab, s->slab_count * sizeof(*grown));
        ps_arena_free(s->arena, s->slab, directory_bytes(s), SLAB_ALIGN);
    }
    s->slab = grown;
    s->slab_capacity = capacity;
    return true;
}

static __attribute__((cold, noinline)) bool slab_add(struct ps_slabs *s)
{
    if (s->slab_count >= (uint64_t)1 << (32 - s->index_bits))
        return false;
    if (s->slab_count == s->slab_capacity && !directory_grow(s))
        return false;
    size_t bytes = slab_bytes(s->slab_count);
    uint8_t *slab = ps_arena_alloc(s->arena, bytes, SLAB_ALIGN);
    if (slab == NULL)
        return false;
    s->slab[s->slab_count++] = slab;
    s->bytes += bytes;
    s->next_index = 0;
    s->last_rows = (uint32_t)(bytes / s->stride_bytes);
    return true;
}

bool ps_slabs_take(struct ps_slabs *s, uint32_t *row)
{
    if (s->next_index == s->last_rows && !slab_add(s))
        return false;
    *row = (s->slab_count - 1) << s->index_bits | s->next_index++;
    s->rows++;
    return true;
}

void ps_slabs_untake(struct ps_slabs *s)
{
    assert(s->next_index > 0);
    s->next_index--;
    s->rows--;
}
