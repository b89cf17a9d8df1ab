/* Characters of UTF-8 (RFC 3629): no surrogates, none longer than it needs to be. */
#ifndef MR_UTF8_H
#define MR_UTF8_H

#include <stddef.h>

/* The length in bytes of the character at the beginning of `text`, which ends with a zero byte; 0: none
 * begins there. A zero byte is a character. */
static inline size_t mr_utf8_bytes(const char *text)
{
    static const struct {
        unsigned char mask, is, second_min, second_max;
        size_t bytes;
    } kinds[] = {{0x80, 0x00, 0, 0xff, 1},    {0xe0, 0xc0, 0x80, 0xbf, 2}, {0xff, 0xe0, 0xa0, 0xbf, 3},
                 {0xff, 0xed, 0x80, 0x9f, 3}, {0xf0, 0xe0, 0x80, 0xbf, 3}, {0xff, 0xf0, 0x90, 0xbf, 4},
                 {0xff, 0xf4, 0x80, 0x8f, 4}, {0xfc, 0xf0, 0x80, 0xbf, 4}};
    const unsigned char *s = (const unsigned char *)text;
    if (s[0] == 0xc0 || s[0] == 0xc1)
        return 0;
    for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
        if ((s[0] & kinds[k].mask) != kinds[k].is)
            continue;
        if (kinds[k].bytes > 1 && (s[1] < kinds[k].second_min || s[1] > kinds[k].second_max))
            return 0;
        for (size_t i = 2; i < kinds[k].bytes; i++)
            if ((s[i] & 0xc0) != 0x80)
                return 0;
        return kinds[k].bytes;
    }
    return 0;
}

#endif
