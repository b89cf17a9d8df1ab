#include "ps/pieces.h"

#include <assert.h>
#include <string.h>
#include <sys/mman.h>

#define CHUNK_BYTES       (PS_UNIT_BYTES / PS_CHUNKS_PER_UNIT)
#define ROUNDING_SHARE    16u /* of a run, at most, is lost to rounding */
#define CLASSES_PER_POWER 8u
#define NONE              UINT32_MAX

/* Of its first chunk. */
struct run {
    uint32_t pieces;         /* in use */
    uint32_t fresh;          /* pieces from here on have never been used */
    uint32_t free_first;     /* the free list's head, which holds the next one's number; NONE: empty */
    uint32_t previous, next; /* runs of the class with room: number + 1, or 0 */
};

struct ps_piece_unit {
    uint64_t chunks_free[PS_CHUNKS_PER_UNIT / 64]; /* a bit each */
    uint32_t free_count;
    struct run runs[PS_CHUNKS_PER_UNIT];
};

/* ---- sizes ---- */

static uint32_t class_of(size_t bytes)
{
    uint32_t lines = (uint32_t)((bytes + PS_PIECE_LINE_BYTES - 1) / PS_PIECE_LINE_BYTES);
    if (lines <= CLASSES_PER_POWER)
        return lines - 1;
    uint32_t power = 31 - (uint32_t)__builtin_clz(lines - 1), step = (1u << power) / CLASSES_PER_POWER;
    return (power - 2) * CLASSES_PER_POWER + (lines - 1 - (1u << power)) / step;
}

static size_t class_bytes(uint32_t class)
{
    assert(class < PS_PIECE_CLASSES);
    if (class < CLASSES_PER_POWER)
        return (class + 1) * PS_PIECE_LINE_BYTES;
    uint32_t power = class / CLASSES_PER_POWER + 2, step = (1u << power) / CLASSES_PER_POWER;
    return ((1u << power) + (class % CLASSES_PER_POWER + 1) * step) * PS_PIECE_LINE_BYTES;
}

size_t ps_piece_bytes(size_t bytes)
{
    return class_bytes(class_of(bytes));
}

/* The smallest run of which little is lost to rounding. */
static uint32_t chunks_for(uint32_t class)
{
    uint32_t chunks = 1;
    while (chunks < PS_CHUNKS_PER_UNIT &&
           (chunks * CHUNK_BYTES < class_bytes(class) ||
            chunks * CHUNK_BYTES % class_bytes(class) * ROUNDING_SHARE > chunks * CHUNK_BYTES))
        chunks *= 2;
    return chunks;
}

/* ---- units ---- */

static struct run *run_of(const struct ps_pieces *p, uint32_t number)
{
    return &p->units[number / PS_CHUNKS_PER_UNIT].runs[number % PS_CHUNKS_PER_UNIT];
}

static uint8_t *run_memory(const struct ps_pieces *p, uint32_t number)
{
    return p->space->base + (size_t)number * CHUNK_BYTES;
}

static bool unit_add(struct ps_pieces *p)
{
    uint8_t *memory = ps_units_take(p->space, PS_UNIT_BYTES, PS_UNIT_BYTES);
    if (memory == NULL)
        return false;
    uint32_t number = (uint32_t)((size_t)(memory - p->space->base) / PS_UNIT_BYTES);
    struct ps_piece_unit *u = &p->units[number];
    u->free_count = PS_CHUNKS_PER_UNIT;
    memset(u->chunks_free, 0xff, sizeof(u->chunks_free));
    if (number >= p->units_end)
        p->units_end = number + 1;
    for (uint32_t order = 0; order < PS_CHUNK_ORDERS; order++)
        p->search_from[order] = number < p->search_from[order] ? number : p->search_from[order];
    return true;
}

static uint64_t chunks_mask(uint32_t chunks)
{
    return chunks >= 64 ? UINT64_MAX : ((uint64_t)1 << chunks) - 1;
}

static bool chunks_are_free(const struct ps_piece_unit *u, uint32_t first, uint32_t chunks)
{
    uint64_t mask = chunks_mask(chunks) << first % 64, all = mask;
    for (uint32_t i = first; i < first + chunks; i += 64)
        all &= u->chunks_free[i / 64];
    return all == mask;
}

static void chunks_toggle(struct ps_piece_unit *u, uint32_t first, uint32_t chunks)
{
    for (uint32_t i = first; i < first + chunks; i += 64)
        u->chunks_free[i / 64] ^= chunks_mask(chunks) << first % 64;
}

/* Where in the unit so many chunks are free, at a multiple of their number; NONE: nowhere. */
static uint32_t chunks_find(const struct ps_piece_unit *u, uint32_t chunks)
{
    for (uint32_t first = 0; u->free_count >= chunks && first < PS_CHUNKS_PER_UNIT; first += chunks)
        if (chunks_are_free(u, first, chunks))
            return first;
    return NONE;
}

/* The lowest place there is, so that high units become free; false when there is none. */
static bool chunks_take(struct ps_pieces *p, uint32_t chunks, uint32_t *number)
{
    uint32_t *from = &p->search_from[__builtin_ctz(chunks)];
    for (; *from < p->units_end; ++*from) {
        struct ps_piece_unit *u = &p->units[*from];
        uint32_t first = chunks_find(u, chunks);
        if (first == NONE)
            continue;
        chunks_toggle(u, first, chunks);
        u->free_count -= chunks;
        *number = *from * PS_CHUNKS_PER_UNIT + first;
        return true;
    }
    return false;
}

static void chunks_give(struct ps_pieces *p, uint32_t number, uint32_t chunks)
{
    uint32_t unit = number / PS_CHUNKS_PER_UNIT;
    struct ps_piece_unit *u = &p->units[unit];
    chunks_toggle(u, number % PS_CHUNKS_PER_UNIT, chunks);
    u->free_count += chunks;
    if (u->free_count == PS_CHUNKS_PER_UNIT) {
        u->free_count = 0; /* not cut any more */
        (void)ps_units_give(p->space, p->space->base + unit * PS_UNIT_BYTES, PS_UNIT_BYTES);
        return;
    }
    for (uint32_t order = 0; order < PS_CHUNK_ORDERS; order++)
        p->search_from[order] = unit < p->search_from[order] ? unit : p->search_from[order];
}

/* ---- runs ---- */

static void run_link(struct ps_pieces *p, uint32_t class, uint32_t number)
{
    struct run *run = run_of(p, number);
    run->previous = 0;
    run->next = p->classes[class].with_room;
    if (run->next != 0)
        run_of(p, run->next - 1)->previous = number + 1;
    p->classes[class].with_room = number + 1;
}

static bool run_add(struct ps_pieces *p, uint32_t class)
{
    uint32_t chunks = p->classes[class].chunks, number;
    if (!chunks_take(p, chunks, &number) && (!unit_add(p) || !chunks_take(p, chunks, &number)))
        return false;
    *run_of(p, number) = (struct run){.free_first = NONE};
    run_link(p, class, number);
    return true;
}

static void run_unlink(struct ps_pieces *p, uint32_t class, const struct run *run)
{
    if (run->previous != 0)
        run_of(p, run->previous - 1)->next = run->next;
    else
        p->classes[class].with_room = run->next;
    if (run->next != 0)
        run_of(p, run->next - 1)->previous = run->previous;
}

/* ---- pieces ---- */

bool ps_pieces_init(struct ps_pieces *p, struct ps_units *space)
{
    memset(p, 0, sizeof(*p));
    p->space = space;
    for (uint32_t class = 0; class < PS_PIECE_CLASSES; class ++) {
        p->classes[class].chunks = chunks_for(class);
        p->classes[class].pieces = (uint32_t)(p->classes[class].chunks * CHUNK_BYTES / class_bytes(class));
    }
    p->units_bytes = (space->unit_count + 1) * sizeof(struct ps_piece_unit);
    p->units = mmap(NULL, p->units_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                    -1, 0);
    return p->units != MAP_FAILED;
}

void ps_pieces_free(struct ps_pieces *p)
{
    munmap(p->units, p->units_bytes);
}

void *ps_pieces_take(struct ps_pieces *p, size_t bytes)
{
    assert(bytes > 0 && bytes <= PS_PIECE_BYTES_MAX);
    uint32_t class = class_of(bytes);
    if (p->classes[class].with_room == 0 && !run_add(p, class))
        return NULL;
    uint32_t number = p->classes[class].with_room - 1, piece;
    struct run *run = run_of(p, number);
    uint8_t *memory = run_memory(p, number);
    if (run->free_first != NONE) {
        piece = run->free_first;
        memcpy(&run->free_first, memory + piece * class_bytes(class), sizeof(run->free_first));
    } else {
        piece = run->fresh++;
    }
    if (++run->pieces == p->classes[class].pieces)
        run_unlink(p, class, run);
    return memory + piece * class_bytes(class);
}

void ps_pieces_give(struct ps_pieces *p, void *piece, size_t bytes)
{
    uint32_t class = class_of(bytes), chunks = p->classes[class].chunks;
    uint32_t number = (uint32_t)((size_t)((uint8_t *)piece - p->space->base) / CHUNK_BYTES) / chunks * chunks;
    struct run *run = run_of(p, number);
    size_t offset = (size_t)((uint8_t *)piece - run_memory(p, number));
    assert(run->pieces > 0 && offset % class_bytes(class) == 0);
    if (run->pieces-- == p->classes[class].pieces)
        run_link(p, class, number);
    if (run->pieces == 0) {
        run_unlink(p, class, run);
        chunks_give(p, number, chunks);
        return;
    }
    memcpy(piece, &run->free_first, sizeof(run->free_first));
    run->free_first = (uint32_t)(offset / class_bytes(class));
}
