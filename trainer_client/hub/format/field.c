#include "trainer_client/hub/format/field.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_BYTES_MAX 63u

bool hub_field_next(struct hub_field *rest, char separator, struct hub_field *field)
{
    if (rest->text == NULL)
        return false;
    const char *end = memchr(rest->text, separator, rest->bytes);
    field->text = rest->text;
    if (end == NULL) {
        field->bytes = rest->bytes;
        *rest = (struct hub_field){NULL, 0};
        return true;
    }
    field->bytes = (size_t)(end - rest->text);
    rest->text = end + 1;
    rest->bytes -= field->bytes + 1;
    return true;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

struct hub_field hub_field_trim(struct hub_field field)
{
    while (field.bytes > 0 && is_blank(field.text[0])) {
        field.text++;
        field.bytes--;
    }
    while (field.bytes > 0 && is_blank(field.text[field.bytes - 1]))
        field.bytes--;
    return field;
}

bool hub_field_next_word(struct hub_field *rest, struct hub_field *field)
{
    size_t begin = 0;
    while (begin < rest->bytes && is_blank(rest->text[begin]))
        begin++;
    size_t end = begin;
    while (end < rest->bytes && !is_blank(rest->text[end]))
        end++;
    if (begin == end)
        return false;
    *field = (struct hub_field){rest->text + begin, end - begin};
    rest->text += end;
    rest->bytes -= end;
    return true;
}

bool hub_field_integer(struct hub_field field, int64_t *value)
{
    size_t i = 0;
    bool negative = false;
    if (field.bytes > 0 && (field.text[0] == '-' || field.text[0] == '+')) {
        negative = field.text[0] == '-';
        i = 1;
    }
    if (i == field.bytes)
        return false;
    int64_t sum = 0; /* built up below zero, where the range is larger by one */
    for (; i < field.bytes; i++) {
        char c = field.text[i];
        if (c < '0' || c > '9' || __builtin_mul_overflow(sum, (int64_t)10, &sum) ||
            __builtin_sub_overflow(sum, (int64_t)(c - '0'), &sum))
            return false;
    }
    if (!negative && sum == INT64_MIN)
        return false;
    *value = negative ? sum : -sum;
    return true;
}

bool hub_field_number(struct hub_field field, double *value)
{
    char text[NUMBER_BYTES_MAX + 1];
    if (field.bytes == 0 || field.bytes > NUMBER_BYTES_MAX)
        return false;
    /* strtod also takes blanks, hexadecimal, infinities and NaN: none of them belongs in a sample file. */
    for (size_t i = 0; i < field.bytes; i++)
        if (field.text[i] == '\0' || strchr("0123456789+-.eE", field.text[i]) == NULL)
            return false;
    memcpy(text, field.text, field.bytes);
    text[field.bytes] = '\0';
    char *end;
    double number = strtod(text, &end);
    if (end != text + field.bytes || !isfinite(number))
        return false;
    *value = number;
    return true;
}
