/* What peers, stores, ZooKeeper and files say, for people: lines of the log, of terminals, of errors. A
 * terminal takes some characters for commands, and text from elsewhere must not give any.
 *
 * Escaped as \xNN, byte by byte: control characters (U+0000 to U+001F, U+007F to U+009F), so that lines stay
 * lines; what changes the direction of text, separates lines or cannot be seen (U+061C, U+200B to U+200F,
 * U+2028 to U+202E, U+2060 to U+2069, U+FEFF); and bytes that are no UTF-8. All else stays, also the
 * backslash.
 *
 * Pure, any thread. */
#ifndef MR_PRINTABLE_H
#define MR_PRINTABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "dataplane/wire/base/utf8.h"

#define MR_PRINTABLE_BYTES_MAX 2048u /* of what is made printable in its place */

/* The character of `bytes` bytes that begins here is printed as it is. */
static inline bool mr_printable_is(const unsigned char *s, size_t bytes)
{
    if (bytes == 0 || s[0] < ' ' || s[0] == 0x7f)
        return false;
    if (bytes == 2)
        return !(s[0] == 0xc2 && s[1] < 0xa0) && !(s[0] == 0xd8 && s[1] == 0x9c);
    if (bytes != 3)
        return true;
    const bool is_mark = s[0] == 0xe2 && ((s[1] == 0x80 && (s[2] >= 0x8b && s[2] <= 0x8f)) ||
                                          (s[1] == 0x80 && (s[2] >= 0xa8 && s[2] <= 0xae)) ||
                                          (s[1] == 0x81 && (s[2] >= 0xa0 && s[2] <= 0xa9)));
    return !is_mark && !(s[0] == 0xef && s[1] == 0xbb && s[2] == 0xbf);
}

/* Writes the text, of which NUL is a byte like others, to out[out_bytes] (at least 4), with a NUL. What has
 * no room is left out, and the end is "..." then. Returns the length. */
static inline size_t mr_printable(char *out, size_t out_bytes, const char *text, size_t text_bytes)
{
    const size_t room = out_bytes - 1;
    size_t at = 0, cut = 0; /* cut: where "..." still fits */
    for (size_t i = 0; i < text_bytes;) {
        char c[5] = "", escaped[8];
        memcpy(c, text + i, text_bytes - i < 4 ? text_bytes - i : 4);
        size_t bytes = c[0] == '\0' ? 1 : mr_utf8_bytes(c);
        const char *piece = c;
        size_t length = bytes;
        if (!mr_printable_is((const unsigned char *)c, bytes)) {
            bytes = 1;
            length = (size_t)snprintf(escaped, sizeof(escaped), "\\x%02x", (unsigned)(unsigned char)c[0]);
            piece = escaped;
        }
        if (at + length > room) {
            memcpy(out + cut, "...", 3);
            at = cut + 3;
            break;
        }
        memcpy(out + at, piece, length);
        at += length;
        i += bytes;
        cut = at + 3 <= room ? at : cut;
    }
    out[at] = '\0';
    return at;
}

/* The same in its place: a string in a buffer of `room` bytes, of which no more than
 * MR_PRINTABLE_BYTES_MAX - 1 are kept, unless all are ASCII. Returns `text`. */
static inline char *mr_make_printable(char *text, size_t room)
{
    char copy[MR_PRINTABLE_BYTES_MAX];
    bool is_fine = true;
    size_t bytes = strnlen(text, room - 1);
    for (size_t i = 0; i < bytes && is_fine; i++) /* ASCII, as most are */
        is_fine = (unsigned char)text[i] >= ' ' && (unsigned char)text[i] < 0x7f;
    if (is_fine)
        return text;
    bytes = bytes < sizeof(copy) ? bytes : sizeof(copy) - 1;
    memcpy(copy, text, bytes);
    (void)mr_printable(text, room, copy, bytes);
    return text;
}

#endif
