#include "ps/index/slab.h"

#include <assert.h>
#include <string.h>
#include "ps/memory/size_classes.h"

#define PADDING_SHARE      16u /* rows are padded to whole lines as long as that costs at most 1/16 */
#define STRIDE_ALIGN_MIN   4u
#define STRIDE_ALIGN_START 64u
#define ROOM_SHARE         32u /* of a group's rows: what compaction leaves free for the next ones */

static uint32_t stride_of(uint32_t row_bytes)
{
    for (uint32_t align = STRIDE_ALIGN_START; align > STRIDE_ALIGN_MIN; align /= 2) {
        uint32_t stride = (row_bytes + align - 1) / align * align;
        if (stride - row_bytes <= row_bytes / PADDING_SHARE)
            return stride;
    }
    return (row_bytes + STRIDE_ALIGN_MIN - 1) / STRIDE_ALIGN_MIN * STRIDE_ALIGN_MIN;
}

void ps_slabs_init(struct ps_slabs *s, struct ps_arena *arena, uint32_t row_bytes)
{
    assert(row_bytes >= STRIDE_ALIGN_MIN && row_bytes <= PS_SLAB_ROW_MAX);
    memset(s, 0, sizeof(*s));
    s->arena = arena;
    s->base = ps_arena_base(arena);
    s->stride_bytes = stride_of(row_bytes);
    while ((size_t)s->stride_bytes << (s->first_shift + 1) <= PS_SLAB_FIRST_BYTES)
        s->first_shift++;
    s->last_shift = s->first_shift;
    while ((size_t)s->stride_bytes << (s->last_shift + 1) <= PS_PIECE_BYTES_MAX)
        s->last_shift++;
    s->row_bias = PS_SLABS_PER_SIZE << s->first_shift;
    for (uint32_t bit = s->first_shift + PS_SLABS_SHIFT; bit < 32; bit++) {
        uint32_t shift = bit - PS_SLABS_SHIFT < s->last_shift ? bit - PS_SLABS_SHIFT : s->last_shift;
        s->sizes[bit] = (struct ps_slab_size){.shift = shift,
                                              .place_mask = (1u << shift) - 1,
                                              .slab_offset = (shift - s->first_shift) * PS_SLABS_PER_SIZE -
                                                             PS_SLABS_PER_SIZE};
    }
    s->compaction = (struct ps_slab_compaction){.group = PS_ROW_NONE, .end = PS_ROW_NONE};
    for (uint32_t i = 0; i < PS_ROW_GROUPS; i++)
        s->groups[i] = (struct ps_slab_group){.free_first = PS_ROW_NONE};
}

/* ---- slabs ---- */

static uint32_t slab_shift(const struct ps_slabs *s, uint32_t slab)
{
    uint32_t shift = s->first_shift + slab / PS_SLABS_PER_SIZE;
    return shift < s->last_shift ? shift : s->last_shift;
}

static size_t slab_bytes(const struct ps_slabs *s, uint32_t slab)
{
    return ps_piece_bytes((size_t)s->stride_bytes << slab_shift(s, slab));
}

/* Slabs up to the one with this row. */
static uint32_t slabs_for(const struct ps_slabs *s, uint32_t row_end)
{
    if (row_end == 0)
        return 0;
    uint32_t biased = row_end - 1 + s->row_bias;
    const struct ps_slab_size *size = &s->sizes[31 - (uint32_t)__builtin_clz(biased)];
    return (biased >> size->shift) + size->slab_offset + 1;
}

static uint8_t *slab_memory(const struct ps_slabs *s, uint32_t group, uint32_t slab)
{
    return s->base + (size_t)s->directories[group][slab] * PS_SLAB_LINE_BYTES;
}

static size_t directory_bytes(uint32_t capacity)
{
    return capacity * sizeof(uint32_t);
}

/* False when memory is used up. */
static bool directory_resize(struct ps_slabs *s, uint32_t group, uint32_t capacity)
{
    struct ps_slab_group *g = &s->groups[group];
    uint32_t *fresh = NULL;
    if (capacity > 0) {
        fresh = ps_arena_alloc(s->arena, directory_bytes(capacity), PS_SLAB_LINE_BYTES);
        if (fresh == NULL)
            return false;
        if (g->slab_count > 0)
            memcpy(fresh, s->directories[group], g->slab_count * sizeof(*fresh));
    }
    if (g->slab_capacity > 0)
        ps_arena_free(s->arena, s->directories[group], directory_bytes(g->slab_capacity), PS_SLAB_LINE_BYTES);
    s->bytes += directory_bytes(capacity);
    s->bytes -= directory_bytes(g->slab_capacity);
    s->directories[group] = fresh;
    g->slab_capacity = capacity;
    return true;
}

static void slab_remove_last(struct ps_slabs *s, uint32_t group)
{
    struct ps_slab_group *g = &s->groups[group];
    uint32_t slab = --g->slab_count, rows = 1u << slab_shift(s, slab);
    ps_arena_slab_free(s->arena, slab_memory(s, group, slab), slab_bytes(s, slab));
    s->bytes -= slab_bytes(s, slab);
    s->places -= rows;
    g->places -= rows;
    if (g->slab_count % PS_SLABS_PER_SIZE == 0)
        (void)directory_resize(s, group, g->slab_count); /* without memory for it, it stays as it is */
}

static __attribute__((cold, noinline)) bool slab_add(struct ps_slabs *s, uint32_t group)
{
    struct ps_slab_group *g = &s->groups[group];
    uint32_t slab = g->slab_count, rows = 1u << slab_shift(s, slab);
    if (g->places + rows > PS_GROUP_ROWS_MAX ||
        (slab == g->slab_capacity && !directory_resize(s, group, slab + PS_SLABS_PER_SIZE)))
        return false;
    uint8_t *memory = ps_arena_slab_alloc(s->arena, slab_bytes(s, slab));
    if (memory == NULL)
        return false;
    assert(s->directories[group] != NULL);
    s->directories[group][slab] = (uint32_t)((size_t)(memory - s->base) / PS_SLAB_LINE_BYTES);
    g->slab_count++;
    g->places += rows;
    s->places += rows;
    s->bytes += slab_bytes(s, slab);
    return true;
}

void ps_slabs_clear(struct ps_slabs *s)
{
    for (uint32_t i = 0; i < PS_ROW_GROUPS; i++) {
        const struct ps_slab_group *g = &s->groups[i];
        for (uint32_t slab = 0; slab < g->slab_count; slab++)
            ps_arena_slab_free(s->arena, slab_memory(s, i, slab), slab_bytes(s, slab));
        if (g->slab_capacity > 0)
            ps_arena_free(s->arena, s->directories[i], directory_bytes(g->slab_capacity), PS_SLAB_LINE_BYTES);
    }
    ps_slabs_init(s, s->arena, s->stride_bytes);
}

bool ps_slabs_clear_some(struct ps_slabs *s, struct ps_arena_slice *slice)
{
    for (uint32_t i = 0; i < PS_ROW_GROUPS; i++) {
        while (s->groups[i].slab_count > 0) {
            if (!ps_arena_slice_take(slice))
                return true;
            slab_remove_last(s, i);
        }
    }
    return false;
}

/* ---- sets of groups ---- */

static void set_add(uint64_t *set, uint32_t group)
{
    set[group / 64] |= (uint64_t)1 << (group % 64);
}

static void set_remove(uint64_t *set, uint32_t group)
{
    set[group / 64] &= ~((uint64_t)1 << (group % 64));
}

/* One that is in it; PS_ROW_NONE: none. */
static uint32_t set_first(const uint64_t *set)
{
    for (uint32_t word = 0; word < PS_ROW_GROUPS / 64; word++)
        if (set[word] != 0)
            return word * 64 + (uint32_t)__builtin_ctzll(set[word]);
    return PS_ROW_NONE;
}

bool ps_slabs_want_upkeep(const struct ps_slabs *s)
{
    return s->compaction.group != PS_ROW_NONE || set_first(s->loose) != PS_ROW_NONE ||
           set_first(s->sparse) != PS_ROW_NONE;
}

bool ps_slabs_trim(struct ps_slabs *s)
{
    for (uint32_t group; (group = set_first(s->loose)) != PS_ROW_NONE;) {
        const struct ps_slab_group *g = &s->groups[group];
        uint32_t wanted = slabs_for(s, s->row_ends[group]);
        bool has_tombstones = g->slab_count > wanted;
        if (has_tombstones)
            slab_remove_last(s, group);
        if (g->slab_count <= wanted)
            set_remove(s->loose, group);
        if (has_tombstones)
            return true;
    }
    return false;
}

/* ---- free places ---- */

static uint32_t pop(const struct ps_slabs *s, uint32_t group, uint32_t *first)
{
    uint32_t row = *first;
    memcpy(first, ps_slabs_row(s, group, row), sizeof(*first));
    return row;
}

static void slab_push(const struct ps_slabs *s, uint32_t group, uint32_t *first, uint32_t row)
{
    memcpy(ps_slabs_row(s, group, row), first, sizeof(*first));
    *first = row;
}

static void push_high(struct ps_slabs *s, uint32_t row)
{
    struct ps_slab_compaction *c = &s->compaction;
    if (c->high_first == PS_ROW_NONE)
        c->high_last = row;
    slab_push(s, c->group, &c->high_first, row);
    c->high_count++;
}

/* The list to take from; NULL: there is no free place but after the last row. */
static uint32_t *list_with_room(struct ps_slabs *s, uint32_t group)
{
    struct ps_slab_compaction *c = &s->compaction;
    if (s->groups[group].free_first != PS_ROW_NONE)
        return &s->groups[group].free_first;
    if (group != c->group)
        return NULL;
    return c->unsorted_first != PS_ROW_NONE ? &c->unsorted_first
           : c->high_first != PS_ROW_NONE   ? &c->high_first
                                            : NULL;
}

size_t ps_slabs_take_bytes(const struct ps_slabs *s, uint32_t group)
{
    const struct ps_slab_group *g = &s->groups[group];
    if (g->rows < g->places) /* a free place of any kind */
        return 0;
    return slab_bytes(s, g->slab_count) +
           (g->slab_count == g->slab_capacity ? directory_bytes(g->slab_capacity + PS_SLABS_PER_SIZE) : 0);
}

bool ps_slabs_take(struct ps_slabs *s, uint32_t group, uint32_t *row)
{
    struct ps_slab_group *g = &s->groups[group];
    uint32_t *list = list_with_room(s, group);
    if (list != NULL) {
        *row = pop(s, group, list);
        s->compaction.high_count -= list == &s->compaction.high_first;
    } else {
        if (s->row_ends[group] == g->places && !slab_add(s, group))
            return false;
        *row = s->row_ends[group]++;
    }
    memset(ps_slabs_row(s, group, *row), 0, s->stride_bytes);
    g->rows++;
    s->rows++;
    return true;
}

static bool is_sparse(const struct ps_slabs *s, uint32_t group)
{
    uint32_t rows = s->groups[group].rows, end = s->row_ends[group];
    return end - rows >= end / PS_SLABS_FREE_SHARE &&
           slabs_for(s, rows + rows / ROOM_SHARE) < slabs_for(s, end);
}

void ps_slabs_give(struct ps_slabs *s, uint32_t group, uint32_t row)
{
    struct ps_slab_group *g = &s->groups[group];
    assert(row < s->row_ends[group] && g->rows > 0);
    if (group == s->compaction.group && ps_slabs_is_leaving(s, row))
        push_high(s, row);
    else
        slab_push(s, group, &g->free_first, row);
    g->rows--;
    s->rows--;
    if (is_sparse(s, group))
        set_add(s->sparse, group);
}

/* ---- bringing rows together ---- */

static void rows_end_at(struct ps_slabs *s, uint32_t group, uint32_t end)
{
    s->row_ends[group] = end;
    if (s->groups[group].slab_count > slabs_for(s, end))
        set_add(s->loose, group);
}

bool ps_slabs_compact_begin(struct ps_slabs *s)
{
    assert(s->compaction.group == PS_ROW_NONE);
    for (uint32_t group; (group = set_first(s->sparse)) != PS_ROW_NONE;) {
        struct ps_slab_group *g = &s->groups[group];
        set_remove(s->sparse, group);
        if (g->rows == 0) {
            g->free_first = PS_ROW_NONE;
            rows_end_at(s, group, 0);
        } else if (is_sparse(s, group)) {
            uint32_t end = g->rows + g->rows / ROOM_SHARE;
            s->compaction =
                (struct ps_slab_compaction){.group = group,
                                            .end = end < s->row_ends[group] ? end : s->row_ends[group],
                                            .unsorted_first = g->free_first,
                                            .high_first = PS_ROW_NONE};
            g->free_first = PS_ROW_NONE;
            return true;
        }
    }
    return false;
}

bool ps_slabs_compact_sort(struct ps_slabs *s, uint32_t count)
{
    struct ps_slab_compaction *c = &s->compaction;
    for (; count > 0 && c->unsorted_first != PS_ROW_NONE; count--) {
        uint32_t row = pop(s, c->group, &c->unsorted_first);
        if (ps_slabs_is_leaving(s, row))
            push_high(s, row);
        else
            slab_push(s, c->group, &s->groups[c->group].free_first, row);
    }
    return c->unsorted_first == PS_ROW_NONE;
}

uint32_t ps_slabs_move(struct ps_slabs *s, uint32_t row)
{
    uint32_t group = s->compaction.group, *first = &s->groups[group].free_first;
    if (*first == PS_ROW_NONE)
        return PS_ROW_NONE;
    uint32_t to = pop(s, group, first);
    memcpy(ps_slabs_row(s, group, to), ps_slabs_row(s, group, row), s->stride_bytes);
    push_high(s, row);
    return to;
}

void ps_slabs_compact_end(struct ps_slabs *s)
{
    struct ps_slab_compaction *c = &s->compaction;
    struct ps_slab_group *g = &s->groups[c->group];
    assert(c->unsorted_first == PS_ROW_NONE);
    if (c->high_count == s->row_ends[c->group] - c->end) {
        rows_end_at(s, c->group, c->end);
    } else if (c->high_first != PS_ROW_NONE) { /* rows are left there, or came: the places stay */
        memcpy(ps_slabs_row(s, c->group, c->high_last), &g->free_first, sizeof(g->free_first));
        g->free_first = c->high_first;
    }
    if (is_sparse(s, c->group))
        set_add(s->sparse, c->group);
    c->group = c->end = PS_ROW_NONE;
}
