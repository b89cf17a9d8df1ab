#include "ps/exactly_once/push_window.h"

#include <assert.h>

static uint64_t *word_of(struct ps_push_window *w, uint64_t number)
{
    return &w->bits[number % MR_PUSH_WINDOW / 64];
}

static bool bit_of(const struct ps_push_window *w, uint64_t number)
{
    return (w->bits[number % MR_PUSH_WINDOW / 64] >> (number % 64) & 1) != 0;
}

bool ps_push_window_has(const struct ps_push_window *w, uint64_t number)
{
    return number <= w->floor || (number - w->floor <= MR_PUSH_WINDOW && bit_of(w, number));
}

uint64_t ps_push_window_gives_up(const struct ps_push_window *w, uint64_t number)
{
    return number > w->floor + MR_PUSH_WINDOW ? number - MR_PUSH_WINDOW : w->floor;
}

/* Moves the floor to `floor`; how many numbers below it were not applied. */
static uint64_t move_floor(struct ps_push_window *w, uint64_t floor)
{
    uint64_t given_up = floor - w->floor;
    uint64_t in_window = given_up < MR_PUSH_WINDOW ? given_up : MR_PUSH_WINDOW;
    for (uint64_t n = w->floor + 1; n <= w->floor + in_window; n++) {
        given_up -= bit_of(w, n);
        *word_of(w, n) &= ~(UINT64_C(1) << (n % 64));
    }
    w->floor = floor;
    return given_up;
}

/* Over the numbers that follow the floor and were applied. */
static void raise_floor(struct ps_push_window *w)
{
    while (bit_of(w, w->floor + 1)) {
        w->floor++;
        *word_of(w, w->floor) &= ~(UINT64_C(1) << (w->floor % 64));
    }
}

uint64_t ps_push_window_add(struct ps_push_window *w, uint64_t number)
{
    assert(number >= 1 && number <= MR_PUSH_NUMBER_MAX);
    if (ps_push_window_has(w, number))
        return 0;
    uint64_t given_up = move_floor(w, ps_push_window_gives_up(w, number));
    *word_of(w, number) |= UINT64_C(1) << (number % 64);
    raise_floor(w);
    return given_up;
}

void ps_push_window_add_range(struct ps_push_window *w, uint64_t from, uint64_t to)
{
    if (to <= w->floor || from > to)
        return;
    move_floor(w, from <= w->floor + 1 ? to : ps_push_window_gives_up(w, to));
    for (uint64_t n = from > w->floor ? from : w->floor + 1; n <= to; n++)
        *word_of(w, n) |= UINT64_C(1) << (n % 64);
    raise_floor(w);
}

/* The ring, turned so that it begins after the floor. */
uint32_t ps_push_window_store(const struct ps_push_window *w, uint64_t words[PS_PUSH_WINDOW_WORDS])
{
    uint32_t begin = (uint32_t)((w->floor + 1) % MR_PUSH_WINDOW), shift = begin % 64, count = 0;
    for (uint32_t i = 0; i < PS_PUSH_WINDOW_WORDS; i++) {
        uint64_t low = w->bits[(begin / 64 + i) % PS_PUSH_WINDOW_WORDS];
        uint64_t high = w->bits[(begin / 64 + i + 1) % PS_PUSH_WINDOW_WORDS];
        words[i] = shift == 0 ? low : low >> shift | high << (64 - shift);
        count = words[i] != 0 ? i + 1 : count;
    }
    return count;
}

void ps_push_window_load(struct ps_push_window *w, uint64_t floor, const uint64_t *words, uint32_t word_count)
{
    assert(word_count <= PS_PUSH_WINDOW_WORDS);
    *w = (struct ps_push_window){.floor = floor};
    for (uint32_t i = 0; i < word_count * 64; i++)
        if ((words[i / 64] >> (i % 64) & 1) != 0)
            *word_of(w, floor + 1 + i) |= UINT64_C(1) << ((floor + 1 + i) % 64);
    raise_floor(w);
}
