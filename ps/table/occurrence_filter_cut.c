/* Filters of observations in checkpoints: which pieces a cut has still to have, and lines that changed
 * before it had them. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "ps/table/occurrence_filter.h"

#define LINE        PS_OCCURRENCE_LINE_BYTES
#define LINES       PS_OCCURRENCE_PART_LINES
#define BLOCK_LINES 256u
#define BLOCKS_MAX  (PS_OCCURRENCE_ASIDE_MAX / BLOCK_LINES)
#define MARKS_ALIGN 64u
#define WORD_BITS   64u

static_assert(LINES <= WORD_BITS, "a word has a bit per line of a piece");
static_assert(PS_OCCURRENCE_ASIDE_MAX % BLOCK_LINES == 0, "lines come in whole blocks");

/* A line as it was at the cut. */
struct aside {
    uint32_t next; /* of the same piece: number + 1; 0: none */
    uint32_t line; /* within the piece */
    uint8_t counters[LINE];
};

/* What is known of a piece that the cut has still to have; all zero to begin with. */
struct piece_state {
    uint64_t is_aside; /* a bit per line */
    uint32_t first;    /* of those: number + 1 */
};

struct ps_occurrence_cut {
    uint32_t next; /* piece */
    uint32_t aside_count;
    struct aside *blocks[BLOCKS_MAX];
    uint64_t *pending; /* a bit per piece */
    struct piece_state *pieces;
};

/* ---- pieces: numbered from the first partition to the last ---- */

static uint32_t pieces_per_partition(const struct ps_occurrence_filter *s)
{
    return (s->line_count + LINES - 1) / LINES;
}

static uint32_t piece_count(const struct ps_occurrence_filter *s)
{
    return pieces_per_partition(s) * MR_PARTITION_COUNT;
}

/* MR_PARTITION_COUNT is a multiple of a word's bits. */
static size_t bits_bytes(const struct ps_occurrence_filter *s)
{
    return piece_count(s) / 8;
}

static struct ps_occurrence_part piece_at(const struct ps_occurrence_filter *s, uint32_t number)
{
    uint32_t per_partition = pieces_per_partition(s), first_line = number % per_partition * LINES;
    uint32_t left = s->line_count - first_line;
    return (struct ps_occurrence_part){.partition = number / per_partition,
                                       .first_line = first_line,
                                       .line_count = left < LINES ? left : LINES};
}

static bool bit_is_set(const uint64_t *bits, uint32_t number)
{
    return (bits[number / WORD_BITS] >> number % WORD_BITS & 1) != 0;
}

/* ---- marks ---- */

bool ps_occurrence_keep_marks(struct ps_occurrence_filter *s)
{
    s->changed = ps_arena_alloc(s->arena, bits_bytes(s), MARKS_ALIGN);
    s->bytes += s->changed != NULL ? bits_bytes(s) : 0;
    return s->changed != NULL;
}

void ps_occurrence_forget_marks(struct ps_occurrence_filter *s)
{
    if (s->changed == NULL)
        return;
    ps_arena_free(s->arena, s->changed, bits_bytes(s), MARKS_ALIGN);
    s->bytes -= bits_bytes(s);
    s->changed = NULL;
}

void ps_occurrence_mark_partition(struct ps_occurrence_filter *s, uint32_t partition)
{
    const uint32_t per_partition = pieces_per_partition(s);
    for (uint32_t i = 0; i < per_partition && s->counters[partition] != NULL; i++) {
        const uint32_t number = partition * per_partition + i;
        s->changed[number / WORD_BITS] |= (uint64_t)1 << number % WORD_BITS;
    }
}

bool ps_occurrence_take_marked(struct ps_occurrence_filter *s, const struct ps_partition_set *partitions,
                               struct ps_occurrence_part *out)
{
    const uint32_t per_partition = pieces_per_partition(s);
    for (uint32_t number = 0; number < piece_count(s); number++) {
        if (s->changed[number / WORD_BITS] == 0) {
            number |= WORD_BITS - 1;
            continue;
        }
        if (!bit_is_set(s->changed, number) || !ps_partitions_has(partitions, number / per_partition))
            continue;
        s->changed[number / WORD_BITS] &= ~((uint64_t)1 << number % WORD_BITS);
        *out = piece_at(s, number);
        return true;
    }
    return false;
}

/* ---- cuts ---- */

void ps_occurrence_cut_end(struct ps_occurrence_filter *s)
{
    if (s->cut == NULL)
        return;
    for (uint32_t i = 0; i < BLOCKS_MAX; i++)
        free(s->cut->blocks[i]);
    free(s->cut->pending);
    free(s->cut->pieces);
    free(s->cut);
    s->cut = NULL;
}

/* All pieces of partitions that have counters. */
static void pending_set_all(struct ps_occurrence_filter *s)
{
    uint32_t per_partition = pieces_per_partition(s);
    for (uint32_t number = 0; number < piece_count(s); number++)
        if (s->counters[number / per_partition] != NULL)
            s->cut->pending[number / WORD_BITS] |= (uint64_t)1 << number % WORD_BITS;
}

bool ps_occurrence_cut_begin(struct ps_occurrence_filter *s, bool changed_only)
{
    assert(s->cut == NULL && (!changed_only || s->changed != NULL));
    s->cut = calloc(1, sizeof(*s->cut));
    if (s->cut == NULL)
        return false;
    s->cut->pending = calloc(1, bits_bytes(s));
    s->cut->pieces = calloc(piece_count(s), sizeof(*s->cut->pieces));
    if (s->cut->pending == NULL || s->cut->pieces == NULL) {
        ps_occurrence_cut_end(s);
        return false;
    }
    if (changed_only)
        memcpy(s->cut->pending, s->changed, bits_bytes(s));
    else
        pending_set_all(s);
    if (s->changed != NULL)
        memset(s->changed, 0, bits_bytes(s));
    return true;
}

uint64_t ps_occurrence_cut_lines(const struct ps_occurrence_filter *s)
{
    uint64_t pieces = 0;
    for (uint32_t i = 0; s->cut != NULL && i < piece_count(s) / WORD_BITS; i++)
        pieces += (uint64_t)__builtin_popcountll(s->cut->pending[i]);
    return pieces * (s->line_count < LINES ? s->line_count : LINES);
}

bool ps_occurrence_cut_next(struct ps_occurrence_filter *s, struct ps_occurrence_part *out)
{
    struct ps_occurrence_cut *cut = s->cut;
    if (cut == NULL)
        return false;
    for (; cut->next < piece_count(s); cut->next++) {
        uint64_t word = cut->pending[cut->next / WORD_BITS];
        if (word == 0) {
            cut->next |= WORD_BITS - 1;
            continue;
        }
        if (bit_is_set(cut->pending, cut->next)) {
            *out = piece_at(s, cut->next);
            return true;
        }
    }
    ps_occurrence_cut_end(s);
    return false;
}

static struct aside *aside_at(const struct ps_occurrence_cut *cut, uint32_t number)
{
    return &cut->blocks[number / BLOCK_LINES][number % BLOCK_LINES];
}

void ps_occurrence_cut_take(struct ps_occurrence_filter *s, const struct ps_occurrence_part *piece,
                            uint8_t *counters)
{
    struct ps_occurrence_cut *cut = s->cut;
    const uint8_t *now = s->counters[piece->partition];
    assert(bit_is_set(cut->pending, cut->next) && now != NULL);
    memcpy(counters, now + (size_t)piece->first_line * LINE, (size_t)piece->line_count * LINE);
    for (uint32_t i = cut->pieces[cut->next].first; i != 0; i = aside_at(cut, i - 1)->next) {
        const struct aside *a = aside_at(cut, i - 1);
        memcpy(counters + (size_t)a->line * LINE, a->counters, LINE);
    }
    cut->pending[cut->next / WORD_BITS] &= ~((uint64_t)1 << cut->next % WORD_BITS);
}

/* NULL when there is no room. */
static struct aside *aside_take(struct ps_occurrence_cut *cut)
{
    if (cut->aside_count == PS_OCCURRENCE_ASIDE_MAX)
        return NULL;
    struct aside **block = &cut->blocks[cut->aside_count / BLOCK_LINES];
    if (*block == NULL && (*block = malloc(BLOCK_LINES * sizeof(**block))) == NULL)
        return NULL;
    return aside_at(cut, cut->aside_count++);
}

static bool line_keep(struct ps_occurrence_filter *s, uint32_t number, const uint8_t *counters, uint32_t line)
{
    struct piece_state *state = &s->cut->pieces[number];
    if ((state->is_aside >> line & 1) != 0)
        return true;
    struct aside *a = aside_take(s->cut);
    if (a == NULL)
        return false;
    a->next = state->first;
    a->line = line;
    memcpy(a->counters, counters, LINE);
    state->first = s->cut->aside_count;
    state->is_aside |= (uint64_t)1 << line;
    return true;
}

bool ps_occurrence_before_change(struct ps_occurrence_filter *s, uint32_t partition, uint32_t line)
{
    uint32_t number = partition * pieces_per_partition(s) + line / LINES;
    if (__builtin_expect(s->cut != NULL, 0) && bit_is_set(s->cut->pending, number) &&
        !line_keep(s, number, s->counters[partition] + (size_t)line * LINE, line % LINES))
        return false;
    if (s->changed != NULL)
        s->changed[number / WORD_BITS] |= (uint64_t)1 << number % WORD_BITS;
    return true;
}
