/* Which packets of one sender have arrived, by the numbers in their headers, so that each is processed once:
 * packets that were replayed, or duplicated by the network, are dropped at once. A ring of bits whose words
 * are cleared as the newest number advances (RFC 6479), like IPsec's anti-replay window (RFC 4303, section
 * 3.4.3).
 *
 * Pure: no clock, no memory of its own. */
#ifndef MR_NUMBERS_H
#define MR_NUMBERS_H

#include <stdbool.h>
#include <stdint.h>

#define MR_NUMBERS_WORDS 8u
#define MR_NUMBERS_REACH                                                                                     \
    ((MR_NUMBERS_WORDS - 1) * 64u) /* so far below the newest number it is known which ones have arrived */

struct mr_numbers {
    uint64_t newest; /* 0: none has arrived */
    uint64_t seen[MR_NUMBERS_WORDS];
};

static inline uint64_t *mr_numbers_word(struct mr_numbers *numbers, uint64_t number)
{
    return &numbers->seen[number / 64 % MR_NUMBERS_WORDS];
}

/* Returns whether the number has not arrived yet, and is not too old to know. Changes nothing: the packet's
 * tag is verified next. */
static inline bool mr_numbers_is_new(const struct mr_numbers *numbers, uint64_t number)
{
    if (number > numbers->newest)
        return true;
    if (number == 0 || numbers->newest - number >= MR_NUMBERS_REACH)
        return false;
    return (numbers->seen[number / 64 % MR_NUMBERS_WORDS] >> (number % 64) & 1) == 0;
}

/* Notes that a genuine packet of this number, which was new, has arrived. Returns whether it is the newest
 * one. */
static inline bool mr_numbers_take(struct mr_numbers *numbers, uint64_t number)
{
    bool newest = number > numbers->newest;
    if (newest) {
        uint64_t words = number / 64 - numbers->newest / 64;
        for (uint64_t i = 0; i < words && i < MR_NUMBERS_WORDS; i++)
            *mr_numbers_word(numbers, number - 64 * i) = 0;
        numbers->newest = number;
    }
    *mr_numbers_word(numbers, number) |= UINT64_C(1) << (number % 64);
    return newest;
}

#endif
