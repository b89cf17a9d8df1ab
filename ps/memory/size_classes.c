#include "ps/memory/size_classes.h"

#include <assert.h>
#include <string.h>
#include <sys/mman.h>

#define CHUNK_BYTES       (PS_HUGE_PAGE_BYTES / PS_CHUNKS_PER_HUGE_PAGE)
#define ROUNDING_SHARE    64u /* of a run, at most, is lost to rounding */
#define CLASSES_PER_POWER 16u
#define POWER_FIRST       4u /* of CLASSES_PER_POWER: lines from which on there are classes per power */
/* larger pieces, which are whole chunks, are runs of their own */
#define ALONE_BYTES_MIN ((size_t)64 << 10)
#define NONE            UINT32_MAX
#define CLEAR_SHARE                                                                                          \
    32u /* of what is in use: so much is left empty, and two huge pages, without any being cleared */
#define CLEAR_USED_MAX (PS_HUGE_PAGE_BYTES / 16 * 15) /* of a huge page to be cleared */

/* Of its first chunk. */
struct run {
    uint16_t pieces; /* in use */
    uint16_t fresh;  /* pieces from here on have never been used */
    uint16_t class;
    uint32_t free_first;     /* the free list's head, which holds the next one's number; NONE: empty */
    uint32_t previous, next; /* runs of the class with room: number + 1, or 0 */
};

struct ps_cut_huge_page {
    uint64_t chunks_free[PS_CHUNKS_PER_HUGE_PAGE / 64]; /* a bit each */
    uint32_t free_count;
    struct run runs[PS_CHUNKS_PER_HUGE_PAGE];
};

/* ---- sizes ---- */

static uint32_t class_of(size_t bytes)
{
    uint32_t lines = (uint32_t)((bytes + PS_PIECE_LINE_BYTES - 1) / PS_PIECE_LINE_BYTES);
    if (lines <= CLASSES_PER_POWER)
        return lines - 1;
    uint32_t power = 31 - (uint32_t)__builtin_clz(lines - 1), step = (1u << power) / CLASSES_PER_POWER;
    return (power - POWER_FIRST + 1) * CLASSES_PER_POWER + (lines - 1 - (1u << power)) / step;
}

static size_t class_bytes(uint32_t class)
{
    assert(class < PS_SIZE_CLASSES);
    if (class < CLASSES_PER_POWER)
        return (class + 1) * PS_PIECE_LINE_BYTES;
    uint32_t power = class / CLASSES_PER_POWER + POWER_FIRST - 1, step = (1u << power) / CLASSES_PER_POWER;
    return ((1u << power) + (class % CLASSES_PER_POWER + 1) * step) * PS_PIECE_LINE_BYTES;
}

size_t ps_piece_bytes(size_t bytes)
{
    return class_bytes(class_of(bytes));
}

/* The smallest power of two of which little is lost to rounding. */
static uint32_t chunks_for(uint32_t class)
{
    uint32_t chunks = 1;
    if (class_bytes(class) > ALONE_BYTES_MIN)
        return (uint32_t)(class_bytes(class) / CHUNK_BYTES);
    while (chunks < PS_CHUNKS_PER_HUGE_PAGE &&
           (chunks * CHUNK_BYTES < class_bytes(class) ||
            chunks * CHUNK_BYTES % class_bytes(class) * ROUNDING_SHARE > chunks * CHUNK_BYTES))
        chunks *= 2;
    return chunks;
}

/* ---- huge pages ---- */

static struct run *run_of(const struct ps_size_classes *p, uint32_t number)
{
    return &p->huge_pages[number / PS_CHUNKS_PER_HUGE_PAGE].runs[number % PS_CHUNKS_PER_HUGE_PAGE];
}

static uint8_t *run_memory(const struct ps_size_classes *p, uint32_t number)
{
    return p->space->base + (size_t)number * CHUNK_BYTES;
}

/* Chunks of this huge page may be allocated. */
static void huge_page_offer(struct ps_size_classes *p, uint32_t huge_page)
{
    for (uint32_t order = 0; order < PS_CHUNK_ORDERS; order++)
        p->search_from[order] = huge_page < p->search_from[order] ? huge_page : p->search_from[order];
}

static bool huge_page_add(struct ps_size_classes *p)
{
    uint8_t *memory = ps_huge_pages_take(p->space, PS_HUGE_PAGE_BYTES, PS_HUGE_PAGE_BYTES);
    if (memory == NULL)
        return false;
    uint32_t number = (uint32_t)((size_t)(memory - p->space->base) / PS_HUGE_PAGE_BYTES);
    struct ps_cut_huge_page *u = &p->huge_pages[number];
    u->free_count = PS_CHUNKS_PER_HUGE_PAGE;
    memset(u->chunks_free, 0xff, sizeof(u->chunks_free));
    p->longest[number] = PS_CHUNKS_PER_HUGE_PAGE;
    p->huge_page_count++;
    if (number >= p->huge_pages_end)
        p->huge_pages_end = number + 1;
    huge_page_offer(p, number);
    return true;
}

/* The first chunk from `from` on that is free, or that is not; PS_CHUNKS_PER_HUGE_PAGE: none. */
static uint32_t chunk_next(const struct ps_cut_huge_page *u, uint32_t from, bool is_free)
{
    while (from < PS_CHUNKS_PER_HUGE_PAGE) {
        uint64_t word = (is_free ? u->chunks_free[from / 64] : ~u->chunks_free[from / 64]) >> from % 64;
        if (word != 0)
            return from + (uint32_t)__builtin_ctzll(word);
        from = (from / 64 + 1) * 64;
    }
    return PS_CHUNKS_PER_HUGE_PAGE;
}

/* Where in the huge page so many chunks in a row are free, at a multiple of `step`, a power of two; NONE:
 * nowhere. */
static uint32_t chunks_find(const struct ps_cut_huge_page *u, uint32_t chunks, uint32_t step)
{
    uint32_t first = chunk_next(u, 0, true);
    while (first < PS_CHUNKS_PER_HUGE_PAGE) {
        uint32_t end = chunk_next(u, first, false);
        uint32_t aligned = (first + step - 1) / step * step;
        if (aligned + chunks <= end)
            return aligned;
        first = chunk_next(u, end, true);
    }
    return NONE;
}

static uint16_t longest_of(const struct ps_cut_huge_page *u)
{
    uint32_t longest = 0;
    for (uint32_t from = chunk_next(u, 0, true); from < PS_CHUNKS_PER_HUGE_PAGE;) {
        uint32_t end = chunk_next(u, from, false);
        longest = end - from > longest ? end - from : longest;
        from = chunk_next(u, end, true);
    }
    return (uint16_t)longest;
}

static void chunks_toggle(struct ps_size_classes *p, uint32_t huge_page, uint32_t first, uint32_t chunks)
{
    struct ps_cut_huge_page *u = &p->huge_pages[huge_page];
    for (uint32_t i = first; i < first + chunks;) {
        uint32_t count = 64 - i % 64 < first + chunks - i ? 64 - i % 64 : first + chunks - i;
        u->chunks_free[i / 64] ^= (count == 64 ? UINT64_MAX : ((uint64_t)1 << count) - 1) << i % 64;
        i += count;
    }
    p->longest[huge_page] = huge_page == p->clear_huge_page ? 0 : longest_of(u);
}

static uint32_t order_of(uint32_t chunks)
{
    return 31 - (uint32_t)__builtin_clz(chunks);
}

/* Finds the lowest place, so that high huge pages become free; false when there is none. */
static bool chunks_take(struct ps_size_classes *p, uint32_t class, uint32_t *number)
{
    uint32_t chunks = p->classes[class].chunks, step = p->classes[class].pieces > 1 ? chunks : 1;
    uint32_t *from = &p->search_from[order_of(chunks)];
    while (*from < p->huge_pages_end && p->longest[*from] < 1u << order_of(chunks))
        ++*from;
    for (uint32_t huge_page = *from; huge_page < p->huge_pages_end; huge_page++) {
        uint32_t first =
            p->longest[huge_page] < chunks ? NONE : chunks_find(&p->huge_pages[huge_page], chunks, step);
        if (first == NONE)
            continue;
        chunks_toggle(p, huge_page, first, chunks);
        p->huge_pages[huge_page].free_count -= chunks;
        *number = huge_page * PS_CHUNKS_PER_HUGE_PAGE + first;
        return true;
    }
    return false;
}

static void chunks_give(struct ps_size_classes *p, uint32_t number, uint32_t chunks)
{
    uint32_t huge_page = number / PS_CHUNKS_PER_HUGE_PAGE;
    struct ps_cut_huge_page *u = &p->huge_pages[huge_page];
    chunks_toggle(p, huge_page, number % PS_CHUNKS_PER_HUGE_PAGE, chunks);
    u->free_count += chunks;
    if (u->free_count < PS_CHUNKS_PER_HUGE_PAGE) {
        huge_page_offer(p, huge_page);
        return;
    }
    p->longest[huge_page] = 0; /* not cut any more */
    p->huge_page_count--;
    p->clear_huge_page = huge_page == p->clear_huge_page ? PS_PIECE_NO_HUGE_PAGE : p->clear_huge_page;
    (void)ps_huge_pages_give(p->space, p->space->base + huge_page * PS_HUGE_PAGE_BYTES, PS_HUGE_PAGE_BYTES);
}

/* ---- runs ---- */

static void run_link(struct ps_size_classes *p, uint32_t class, uint32_t number)
{
    struct run *run = run_of(p, number);
    run->previous = 0;
    run->next = p->classes[class].with_room;
    if (run->next != 0)
        run_of(p, run->next - 1)->previous = number + 1;
    p->classes[class].with_room = number + 1;
}

static bool run_add(struct ps_size_classes *p, uint32_t class)
{
    uint32_t number;
    if (!chunks_take(p, class, &number) && (!huge_page_add(p) || !chunks_take(p, class, &number)))
        return false;
    *run_of(p, number) = (struct run){.free_first = NONE, .class = (uint16_t) class};
    run_link(p, class, number);
    return true;
}

static void run_unlink(struct ps_size_classes *p, uint32_t class, const struct run *run)
{
    if (run->previous != 0)
        run_of(p, run->previous - 1)->next = run->next;
    else
        p->classes[class].with_room = run->next;
    if (run->next != 0)
        run_of(p, run->next - 1)->previous = run->previous;
}

/* ---- pieces ---- */

static void *bookkeeping_map(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p != MAP_FAILED ? p : NULL;
}

bool ps_size_classes_init(struct ps_size_classes *p, struct ps_huge_pages *space)
{
    memset(p, 0, sizeof(*p));
    p->space = space;
    for (uint32_t class = 0; class < PS_SIZE_CLASSES; class ++) {
        p->classes[class].chunks = chunks_for(class);
        p->classes[class].pieces = (uint32_t)(p->classes[class].chunks * CHUNK_BYTES / class_bytes(class));
    }
    p->huge_pages_bytes = (space->huge_page_count + 1) * sizeof(struct ps_cut_huge_page);
    p->longest_bytes = (space->huge_page_count + 1) * sizeof(*p->longest);
    p->huge_pages = bookkeeping_map(p->huge_pages_bytes);
    p->longest = bookkeeping_map(p->longest_bytes);
    p->used_map_bytes = (space->huge_page_count + 1) * sizeof(*p->used);
    p->used = bookkeeping_map(p->used_map_bytes);
    p->clear_huge_page = PS_PIECE_NO_HUGE_PAGE;
    if (p->huge_pages != NULL && p->longest != NULL && p->used != NULL)
        return true;
    ps_size_classes_free(p);
    return false;
}

void ps_size_classes_free(struct ps_size_classes *p)
{
    if (p->huge_pages != NULL)
        munmap(p->huge_pages, p->huge_pages_bytes);
    if (p->longest != NULL)
        munmap(p->longest, p->longest_bytes);
    if (p->used != NULL)
        munmap(p->used, p->used_map_bytes);
}

/* Adjusts how many bytes of the huge page's pieces are in use. */
static void used_add(struct ps_size_classes *p, uint32_t huge_page, size_t add_bytes, size_t subtract_bytes)
{
    p->used[huge_page] += (uint32_t)add_bytes;
    p->used[huge_page] -= (uint32_t)subtract_bytes;
    p->used_bytes += add_bytes;
    p->used_bytes -= subtract_bytes;
}

void *ps_size_classes_take(struct ps_size_classes *p, size_t bytes)
{
    assert(bytes > 0 && bytes <= PS_PIECE_BYTES_MAX);
    uint32_t class = class_of(bytes);
    while (p->classes[class].with_room == 0 && !run_add(p, class)) {
        if (p->clear_huge_page == PS_PIECE_NO_HUGE_PAGE)
            return NULL;
        ps_size_classes_clear_end(p);
    }
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
    used_add(p, number / PS_CHUNKS_PER_HUGE_PAGE, class_bytes(class), 0);
    return memory + piece * class_bytes(class);
}

void ps_size_classes_give(struct ps_size_classes *p, void *piece, size_t bytes)
{
    uint32_t class = class_of(bytes), chunks = p->classes[class].chunks;
    uint32_t number = (uint32_t)((size_t)((uint8_t *)piece - p->space->base) / CHUNK_BYTES);
    if (p->classes[class].pieces > 1)
        number = number / chunks * chunks;
    struct run *run = run_of(p, number);
    size_t offset = (size_t)((uint8_t *)piece - run_memory(p, number));
    assert(run->pieces > 0 && run->class == class && offset % class_bytes(class) == 0);
    used_add(p, number / PS_CHUNKS_PER_HUGE_PAGE, 0, class_bytes(class));
    bool is_offered = number / PS_CHUNKS_PER_HUGE_PAGE != p->clear_huge_page;
    if (run->pieces-- == p->classes[class].pieces && is_offered)
        run_link(p, class, number);
    if (run->pieces == 0) {
        if (is_offered)
            run_unlink(p, class, run);
        chunks_give(p, number, chunks);
        return;
    }
    memcpy(piece, &run->free_first, sizeof(run->free_first));
    run->free_first = (uint32_t)(offset / class_bytes(class));
}

/* ---- clearing ---- */

/* Offers the room in the huge page's runs, or withholds it. */
static void huge_page_runs_offer(struct ps_size_classes *p, uint32_t huge_page, bool offer)
{
    const struct ps_cut_huge_page *u = &p->huge_pages[huge_page];
    uint32_t chunk = chunk_next(u, 0, false);
    while (chunk < PS_CHUNKS_PER_HUGE_PAGE) {
        const struct run *run = &u->runs[chunk];
        uint32_t class = run->class;
        if (run->pieces < p->classes[class].pieces && offer)
            run_link(p, class, huge_page * PS_CHUNKS_PER_HUGE_PAGE + chunk);
        else if (run->pieces < p->classes[class].pieces)
            run_unlink(p, class, run);
        chunk = chunk_next(u, chunk + p->classes[class].chunks, false);
    }
}

bool ps_size_classes_clear_begin(struct ps_size_classes *p)
{
    size_t empty_bytes = p->huge_page_count * PS_HUGE_PAGE_BYTES - p->used_bytes;
    if (p->clear_huge_page != PS_PIECE_NO_HUGE_PAGE)
        return true;
    if (empty_bytes < p->used_bytes / CLEAR_SHARE + PS_HUGE_PAGE_BYTES)
        return false;
    size_t mean_bytes = p->used_bytes / p->huge_page_count;
    size_t most_bytes = mean_bytes < CLEAR_USED_MAX ? mean_bytes : CLEAR_USED_MAX;
    for (uint32_t looked_at = 0; looked_at < p->huge_pages_end; looked_at++) {
        uint32_t huge_page = p->clear_from++;
        p->clear_from = p->clear_from < p->huge_pages_end ? p->clear_from : 0;
        if (huge_page >= p->huge_pages_end || p->used[huge_page] == 0 || p->used[huge_page] > most_bytes)
            continue;
        huge_page_runs_offer(p, huge_page, false);
        p->longest[huge_page] = 0;
        p->clear_huge_page = huge_page;
        p->clear_count++;
        return true;
    }
    return false;
}

void ps_size_classes_clear_end(struct ps_size_classes *p)
{
    uint32_t huge_page = p->clear_huge_page;
    if (huge_page == PS_PIECE_NO_HUGE_PAGE)
        return;
    p->clear_huge_page = PS_PIECE_NO_HUGE_PAGE;
    p->longest[huge_page] = longest_of(&p->huge_pages[huge_page]);
    huge_page_offer(p, huge_page);
    huge_page_runs_offer(p, huge_page, true);
}
