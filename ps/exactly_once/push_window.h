/* Which pushes of one push stream were applied: a sliding window over their numbers, as IPsec's against
 * replay (RFC 4303, 3.4.3; the bits stay in place when it moves, RFC 6479).
 *
 * All numbers up to the floor were applied, or were given up. Above it a bit per number; a number beyond the
 * window moves the floor up, and what falls out without having been applied never will be. Pure functions, no
 * memory of their own.
 */
#ifndef PS_PUSH_WINDOW_H
#define PS_PUSH_WINDOW_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/push_number.h"

#define PS_PUSH_WINDOW_WORDS (MR_PUSH_WINDOW / 64)

/* All zero: nothing was applied. Numbers are 1..MR_PUSH_NUMBER_MAX. */
struct ps_push_window {
    uint64_t floor;
    uint64_t bits
        [PS_PUSH_WINDOW_WORDS]; /* of number n, floor < n <= floor + MR_PUSH_WINDOW: bit n % MR_PUSH_WINDOW */
};

/* Applied, or given up. */
bool ps_push_window_has(const struct ps_push_window *w, uint64_t number);
/* `number` was applied. Returns how many others were given up for it; a number that it has changes
 * nothing. */
uint64_t ps_push_window_add(struct ps_push_window *w, uint64_t number);
/* None of from..to will come: they count as applied. Numbers beyond the window move the floor as they do
 * there. */
void ps_push_window_add_range(struct ps_push_window *w, uint64_t from, uint64_t to);
/* All numbers up to this one would be given up if `number` was added: the floor when none would. */
uint64_t ps_push_window_gives_up(const struct ps_push_window *w, uint64_t number);

/* Bit i of the words: floor + 1 + i was applied. Returns how many words there are, up to the last bit set. */
uint32_t ps_push_window_store(const struct ps_push_window *w, uint64_t words[PS_PUSH_WINDOW_WORDS]);
/* word_count <= PS_PUSH_WINDOW_WORDS. The floor advances over bits that follow it. */
void ps_push_window_load(struct ps_push_window *w, uint64_t floor, const uint64_t *words,
                         uint32_t word_count);

#endif
