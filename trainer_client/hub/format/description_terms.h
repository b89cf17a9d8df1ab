/* The small language of descriptions: calls, as cross(origin, hour(date)), bounds, separators, and ranges of
 * names. Pure, any thread.
 */
#ifndef HUB_DESCRIPTION_TERMS_H
#define HUB_DESCRIPTION_TERMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HUB_TERM_BYTES     256u
#define HUB_TERM_ARGUMENTS 16u

/* "a" has the function "" and one argument; "f(a, b(c))" has the function "f", and "a" and "b(c)". */
struct hub_term {
    char function[HUB_TERM_BYTES];
    uint32_t count;
    char arguments[HUB_TERM_ARGUMENTS][HUB_TERM_BYTES];
};
/* False: a bracket is missing, or something is empty, too long or too much. */
bool hub_term_parse(const char *text, struct hub_term *term);
/* The same without a function: "a, b, c". */
bool hub_list_parse(const char *text, struct hub_term *list);

/* "1..4", "0..", "..9": the bound that is missing is left alone. */
bool hub_bounds_parse(const char *text, double *low, double *high);
/* A finite number, and nothing else. */
bool hub_number_parse(const char *text, double *number);
/* A word, as tab or comma, or a single character that is no letter, digit or quotation mark. */
bool hub_separator_parse(const char *text, char *separator);
#define HUB_SEPARATORS_ALLOWED "tab, comma, semicolon, pipe, colon, space, or one character such as ^"
/* "A-Z0-9_": bits of the bytes that it allows. */
bool hub_class_parse(const char *text, uint64_t bits[4]);

/* How many names "c1..c26" stands for, at its first place in `text`; 1: there is no range. 0: it goes
 * backwards. */
uint32_t hub_range_count(const char *text);
/* Writes `text` with each range replaced by its name i. False: one has not `count` names, or there is no
 * room. */
bool hub_range_expand(const char *text, uint32_t count, uint32_t i, char *out, size_t out_bytes);

#endif
