#include "trainer_client/hub/format/description_terms.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANGE_NAMES_MAX 4096u

/* Copies bytes [begin, end) without the blanks around them. False: nothing is left, or it is too long. */
static bool copy_trimmed(const char *begin, const char *end, char out[HUB_TERM_BYTES])
{
    while (begin < end && isspace((unsigned char)*begin))
        begin++;
    while (end > begin && isspace((unsigned char)end[-1]))
        end--;
    size_t bytes = (size_t)(end - begin);
    if (bytes == 0 || bytes >= HUB_TERM_BYTES)
        return false;
    memcpy(out, begin, bytes);
    out[bytes] = '\0';
    return true;
}

/* Splits [begin, end) at commas that are in no brackets. */
static bool description_terms_split(const char *begin, const char *end, struct hub_term *term)
{
    int depth = 0;
    const char *argument = begin;
    term->count = 0;
    for (const char *c = begin; c <= end; c++) {
        if (c < end && *c == '(')
            depth++;
        if (c < end && *c == ')' && --depth < 0)
            return false;
        if (c < end && (*c != ',' || depth > 0))
            continue;
        if (term->count == HUB_TERM_ARGUMENTS || !copy_trimmed(argument, c, term->arguments[term->count]))
            return false;
        term->count++;
        argument = c + 1;
    }
    return depth == 0;
}

bool hub_term_parse(const char *text, struct hub_term *term)
{
    const char *end = text + strlen(text), *open = strchr(text, '(');
    term->function[0] = '\0';
    term->count = 1;
    if (open == NULL)
        return strchr(text, ')') == NULL && copy_trimmed(text, end, term->arguments[0]);
    while (end > open && isspace((unsigned char)end[-1]))
        end--;
    return end[-1] == ')' && copy_trimmed(text, open, term->function) &&
           description_terms_split(open + 1, end - 1, term);
}

bool hub_list_parse(const char *text, struct hub_term *list)
{
    list->function[0] = '\0';
    return description_terms_split(text, text + strlen(text), list);
}

bool hub_number_parse(const char *text, double *number)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(value))
        return false;
    *number = value;
    return true;
}

bool hub_bounds_parse(const char *text, double *low, double *high)
{
    char first[HUB_TERM_BYTES];
    const char *dots = strstr(text, "..");
    if (dots == NULL || dots[2] == '.' || (dots == text && dots[2] == '\0'))
        return false;
    if (dots > text && (!copy_trimmed(text, dots, first) || !hub_number_parse(first, low)))
        return false;
    return dots[2] == '\0' || hub_number_parse(dots + 2, high);
}

bool hub_separator_parse(const char *text, char *separator)
{
    static const struct {
        const char *word;
        char character;
    } words[] = {{"tab", '\t'}, {"comma", ','}, {"semicolon", ';'},
                 {"pipe", '|'}, {"colon", ':'}, {"space", ' '}};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(text, words[i].word) == 0) {
            *separator = words[i].character;
            return true;
        }
    }
    if (text[0] == '\0' || text[1] != '\0' || !ispunct((unsigned char)text[0]) || text[0] == '"')
        return false;
    *separator = text[0];
    return true;
}

bool hub_class_parse(const char *text, uint64_t bits[4])
{
    memset(bits, 0, 4 * sizeof(*bits));
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++) {
        unsigned int first = *c, last = first;
        if (c[1] == '-' && c[2] != '\0') {
            last = c[2];
            c += 2;
        }
        if (last < first)
            return false;
        for (unsigned int byte = first; byte <= last; byte++)
            bits[byte / 64] |= UINT64_C(1) << byte % 64;
    }
    return text[0] != '\0';
}

/* A range of names: "c1..c26" has the stem "c" and the numbers 1 to 26, which are `digits` long at least. */
struct range {
    const char *begin, *end;
    size_t stem_bytes;
    int digits;
    uint32_t first, last;
};

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Takes the digits at the end of [begin, end) as a number. False: there are none, or nothing before them. */
static bool take_number(const char *begin, const char *end, size_t *stem_bytes, uint32_t *number)
{
    const char *digits = end;
    while (digits > begin && isdigit((unsigned char)digits[-1]))
        digits--;
    if (digits == begin || digits == end || end - digits > 6)
        return false;
    *stem_bytes = (size_t)(digits - begin);
    *number = (uint32_t)strtoul(digits, NULL, 10);
    return true;
}

/* The first range from `text` on. */
static bool find_range(const char *text, struct range *r)
{
    for (const char *dots = strstr(text, ".."); dots != NULL; dots = strstr(dots + 2, "..")) {
        const char *begin = dots, *end = dots + 2;
        size_t stem_bytes;
        while (begin > text && is_name(begin[-1]))
            begin--;
        while (is_name(*end))
            end++;
        if (!take_number(begin, dots, &r->stem_bytes, &r->first) ||
            !take_number(dots + 2, end, &stem_bytes, &r->last) || stem_bytes != r->stem_bytes ||
            memcmp(begin, dots + 2, stem_bytes) != 0)
            continue;
        r->begin = begin;
        r->end = end;
        r->digits = (int)((size_t)(dots - begin) - stem_bytes);
        return true;
    }
    return false;
}

static uint32_t names_of(const struct range *r)
{
    return r->last < r->first || r->last - r->first >= RANGE_NAMES_MAX ? 0 : r->last - r->first + 1;
}

uint32_t hub_range_count(const char *text)
{
    struct range r;
    return find_range(text, &r) ? names_of(&r) : 1;
}

bool hub_range_expand(const char *text, uint32_t count, uint32_t i, char *out, size_t out_bytes)
{
    struct range r;
    size_t at = 0;
    for (; find_range(text, &r); text = r.end) {
        if (names_of(&r) != count)
            return false;
        int added = snprintf(out + at, out_bytes - at, "%.*s%0*u", (int)(r.begin + r.stem_bytes - text), text,
                             r.digits, r.first + i);
        if (added < 0 || (size_t)added >= out_bytes - at)
            return false;
        at += (size_t)added;
    }
    int added = snprintf(out + at, out_bytes - at, "%s", text);
    return added >= 0 && (size_t)added < out_bytes - at;
}
