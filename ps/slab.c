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
    uint32_t doublings = slab_number / PS_SLABS_PER_BYTES;
    return doublings < 8 && PS_SLAB_BYTES_MIN << doublings < PS_SLAB_BYTES_MAX
               ? PS_SLAB_BYTES_MIN << doublings
               : PS_SLAB_BYTES_MAX;
}

static uint32_t slab_places(const struct ps_slabs *s, uint32_t slab_number)
{
    return (uint32_t)(slab_bytes(slab_number) / s->stride_bytes);
}

static uint8_t *slab_take(const struct ps_slabs *s, uint32_t slab_number)
{
    size_t bytes = slab_bytes(slab_number);
    return bytes < PS_SLAB_BYTES_MAX ? ps_arena_piece_alloc(s->arena, bytes)
                                     : ps_arena_alloc(s->arena, bytes, SLAB_ALIGN);
}

static void slab_give(const struct ps_slabs *s, uint32_t slab_number)
{
    size_t bytes = slab_bytes(slab_number);
    if (s->slab[slab_number] == NULL)
        return;
    if (bytes < PS_SLAB_BYTES_MAX)
        ps_arena_piece_free(s->arena, s->slab[slab_number], bytes);
    else
        ps_arena_free(s->arena, s->slab[slab_number], bytes, SLAB_ALIGN);
}

static size_t directory_bytes(uint32_t capacity)
{
    return capacity * (sizeof(uint8_t *) + sizeof(struct ps_slab_state));
}

static void directory_free(struct ps_slabs *s)
{
    if (s->slab != NULL)
        ps_arena_free(s->arena, s->slab, directory_bytes(s->slab_capacity), SLAB_ALIGN);
}

static void forget_all(struct ps_slabs *s)
{
    s->slab = NULL;
    s->state = NULL;
    s->slab_count = s->slab_capacity = 0;
    s->room_first = s->room_last = s->number_free = PS_SLAB_NONE;
    s->empty_count = s->leaving_count = 0;
    s->rows = s->places = 0;
    s->bytes = 0;
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
    forget_all(s);
}

void ps_slabs_clear(struct ps_slabs *s)
{
    for (uint32_t i = 0; i < s->slab_count; i++)
        slab_give(s, i);
    directory_free(s);
    forget_all(s);
}

/* ---- slabs with room ---- */

static void room_append(struct ps_slabs *s, uint32_t number)
{
    s->state[number].previous = s->room_last;
    s->state[number].next = PS_SLAB_NONE;
    if (s->room_last != PS_SLAB_NONE)
        s->state[s->room_last].next = number;
    else
        s->room_first = number;
    s->room_last = number;
}

static void room_unlink(struct ps_slabs *s, uint32_t number)
{
    const struct ps_slab_state *state = &s->state[number];
    if (state->previous != PS_SLAB_NONE)
        s->state[state->previous].next = state->next;
    else
        s->room_first = state->next;
    if (state->next != PS_SLAB_NONE)
        s->state[state->next].previous = state->previous;
    else
        s->room_last = state->previous;
}

/* ---- slabs ---- */

static bool directory_grow(struct ps_slabs *s)
{
    uint32_t capacity = s->slab_capacity == 0 ? DIRECTORY_MIN : 2 * s->slab_capacity;
    uint8_t **grown = ps_arena_alloc(s->arena, directory_bytes(capacity), SLAB_ALIGN);
    if (grown == NULL)
        return false;
    struct ps_slab_state *state = (struct ps_slab_state *)(void *)(grown + capacity);
    if (s->slab != NULL) {
        memcpy(grown, s->slab, s->slab_count * sizeof(*grown));
        memcpy(state, s->state, s->slab_count * sizeof(*state));
        directory_free(s);
    }
    s->slab = grown;
    s->state = state;
    s->slab_capacity = capacity;
    return true;
}

/* A number for a slab: that of one given back, which is the smaller the earlier it was made, or the next. */
static bool number_take(struct ps_slabs *s, uint32_t *number)
{
    if (s->number_free != PS_SLAB_NONE) {
        *number = s->number_free;
        return true;
    }
    if (s->slab_count >= (uint64_t)1 << (32 - s->index_bits))
        return false;
    if (s->slab_count == s->slab_capacity && !directory_grow(s))
        return false;
    *number = s->slab_count;
    return true;
}

static __attribute__((cold, noinline)) bool slab_add(struct ps_slabs *s)
{
    uint32_t number;
    if (!number_take(s, &number))
        return false;
    uint8_t *slab = slab_take(s, number);
    if (slab == NULL)
        return false;
    if (number == s->slab_count)
        s->slab_count++;
    else
        s->number_free = s->state[number].next;
    s->slab[number] = slab;
    s->state[number] = (struct ps_slab_state){.free_first = PS_SLAB_NONE};
    room_append(s, number);
    s->empty_count++;
    s->places += slab_places(s, number);
    s->bytes += slab_bytes(number);
    return true;
}

/* It is in no list. */
static void slab_remove(struct ps_slabs *s, uint32_t number)
{
    slab_give(s, number);
    s->slab[number] = NULL;
    s->state[number].next = s->number_free;
    s->number_free = number;
    s->places -= slab_places(s, number);
    s->bytes -= slab_bytes(number);
}

bool ps_slabs_trim(struct ps_slabs *s)
{
    if (s->empty_count <= 1)
        return false;
    uint32_t number = s->room_last;
    while (s->state[number].rows != 0)
        number = s->state[number].previous;
    room_unlink(s, number);
    s->empty_count--;
    slab_remove(s, number);
    return true;
}

size_t ps_slabs_take_bytes(const struct ps_slabs *s)
{
    if (s->room_first != PS_SLAB_NONE || s->leaving_count > 0)
        return 0;
    return slab_bytes(s->number_free != PS_SLAB_NONE ? s->number_free : s->slab_count);
}

/* ---- rows ---- */

static uint8_t *place_of(const struct ps_slabs *s, uint32_t number, uint32_t place)
{
    return s->slab[number] + (size_t)place * s->stride_bytes;
}

bool ps_slabs_take(struct ps_slabs *s, uint32_t *row)
{
    if (s->room_first == PS_SLAB_NONE && s->leaving_count > 0)
        ps_slabs_compact_end(s);
    if (s->room_first == PS_SLAB_NONE && !slab_add(s))
        return false;
    uint32_t number = s->room_first, place;
    struct ps_slab_state *state = &s->state[number];
    if (state->free_first != PS_SLAB_NONE) {
        place = state->free_first;
        memcpy(&state->free_first, place_of(s, number, place), sizeof(state->free_first));
    } else {
        place = state->fresh++;
    }
    memset(place_of(s, number, place), 0, s->stride_bytes);
    s->empty_count -= state->rows == 0;
    if (++state->rows == slab_places(s, number))
        room_unlink(s, number);
    *row = number << s->index_bits | place;
    s->rows++;
    return true;
}

void ps_slabs_give(struct ps_slabs *s, uint32_t row)
{
    uint32_t number = row >> s->index_bits, place = row & (((uint32_t)1 << s->index_bits) - 1);
    struct ps_slab_state *state = &s->state[number];
    assert(number < s->slab_count && s->slab[number] != NULL && state->rows > 0 && place < state->fresh);
    memcpy(place_of(s, number, place), &state->free_first, sizeof(state->free_first));
    state->free_first = place;
    s->rows--;
    bool was_full = state->rows-- == slab_places(s, number);
    if (state->leaving) {
        if (state->rows == 0) {
            s->leaving_count--;
            slab_remove(s, number);
        }
        return;
    }
    if (was_full)
        room_append(s, number);
    s->empty_count += state->rows == 0;
}

/* ---- bringing rows together ---- */

#define FILL_LEVELS                                                                                          \
    4u /* few: slabs much alike are told apart by their numbers, so that neighbours go together */
#define ROOM_SHARE 32u /* of the rows: what is left free for the next ones */

/* How full a slab is, from 0 to FILL_LEVELS, which is nearly full; more: it is not there. */
static uint32_t fill_level(const struct ps_slabs *s, uint32_t number)
{
    uint32_t places = slab_places(s, number);
    return s->slab[number] == NULL
               ? FILL_LEVELS + 1
               : (uint32_t)(((uint64_t)s->state[number].rows * FILL_LEVELS + places / 2) / places);
}

/* The level up to which slabs may leave: those below it all do. */
static uint32_t level_to_leave(const struct ps_slabs *s, uint64_t places_spared)
{
    uint64_t places[FILL_LEVELS + 2] = {0};
    for (uint32_t number = 0; number < s->slab_count; number++)
        places[fill_level(s, number)] += slab_places(s, number);
    uint32_t level = 0;
    for (uint64_t sum = places[0]; level < FILL_LEVELS && sum < places_spared; sum += places[level])
        level++;
    return level;
}

bool ps_slabs_compact_begin(struct ps_slabs *s)
{
    assert(s->leaving_count == 0);
    uint64_t wanted = s->rows + s->rows / ROOM_SHARE;
    if ((s->places - s->rows) * PS_SLABS_FREE_SHARE < s->places || wanted >= s->places)
        return false;
    uint64_t spared = s->places - wanted;
    uint32_t level_max = level_to_leave(s, spared);
    for (uint32_t below = 0; below < 2;
         below++) { /* sparser ones first; of the others the last ones, which are large */
        for (uint32_t number = s->slab_count; number-- > 0;) {
            uint32_t level = fill_level(s, number), places = slab_places(s, number);
            if ((below == 0 ? level >= level_max : level != level_max) || s->slab[number] == NULL ||
                s->state[number].rows == 0 || s->state[number].rows == places || places > spared)
                continue;
            spared -= places;
            room_unlink(s, number);
            s->state[number].leaving = true;
            s->leaving_count++;
        }
    }
    return s->leaving_count > 0;
}

bool ps_slabs_move(struct ps_slabs *s, uint32_t *row)
{
    uint32_t from = *row;
    if (s->room_first == PS_SLAB_NONE) {
        ps_slabs_compact_end(s);
        return false;
    }
    bool taken = ps_slabs_take(s, row);
    assert(taken); /* there is room */
    memcpy(ps_slabs_row(s, *row), ps_slabs_row(s, from), s->stride_bytes);
    ps_slabs_give(s, from);
    return taken;
}

void ps_slabs_compact_end(struct ps_slabs *s)
{
    for (uint32_t number = 0; number < s->slab_count && s->leaving_count > 0; number++) {
        if (s->slab[number] == NULL || !s->state[number].leaving)
            continue;
        s->state[number].leaving = false;
        s->leaving_count--;
        room_append(s, number);
    }
}
