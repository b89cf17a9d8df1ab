#include "tools/doctor/doctor_parse.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/system_file.h"

static bool number(const char *text, int base, uint64_t *out)
{
    while (text && (*text == ' ' || *text == '\t' || *text == ':'))
        text++;
    if (!text || !(base == 16 ? isxdigit((unsigned char)*text) : isdigit((unsigned char)*text)))
        return false;
    errno = 0;
    uint64_t n = strtoull(text, NULL, base);
    if (errno != 0)
        return false;
    *out = n;
    return true;
}

bool tool_field_u64(const char *text, const char *field, uint64_t *out)
{
    return number(mr_system_field(text, field), 10, out);
}

bool tool_field_hex(const char *text, const char *field, uint64_t *out)
{
    return number(mr_system_field(text, field), 16, out);
}

bool tool_limit(const char *limits, const char *name, uint64_t *out)
{
    const char *rest = mr_system_field(limits, name);
    while (rest && *rest == ' ')
        rest++;
    if (rest && strncmp(rest, "unlimited", 9) == 0) {
        *out = UINT64_MAX;
        return true;
    }
    return number(rest, 10, out);
}

bool tool_list_count(const char *list, uint32_t *out)
{
    uint32_t count = 0;
    const char *at = list;
    while (*at && *at != '\n') {
        char *end;
        if (!isdigit((unsigned char)*at))
            return false;
        unsigned long first = strtoul(at, &end, 10), last = first;
        if (*end == '-') {
            at = end + 1;
            if (!isdigit((unsigned char)*at))
                return false;
            last = strtoul(at, &end, 10);
        }
        if (last < first || last > 65535)
            return false;
        count += (uint32_t)(last - first + 1);
        at = *end == ',' ? end + 1 : end;
        if (at == end && *at && *at != '\n')
            return false;
    }
    *out = count;
    return true;
}

bool tool_selected(const char *text, char *out, size_t out_bytes)
{
    const char *open = strchr(text, '[');
    const char *close = open ? strchr(open, ']') : NULL;
    if (!close || (size_t)(close - open) > out_bytes)
        return false;
    memcpy(out, open + 1, (size_t)(close - open) - 1);
    out[close - open - 1] = '\0';
    return true;
}

bool tool_line_has_word(const char *text, const char *field, const char *word)
{
    const char *at = mr_system_field(text, field);
    if (!at)
        return false;
    const size_t line_bytes = strcspn(at, "\n"), word_bytes = strlen(word);
    const char *end = at + line_bytes;
    while (at < end) {
        at += strspn(at, " \t:");
        size_t n = strcspn(at, " \t\n");
        if (at < end && n == word_bytes && memcmp(at, word, n) == 0)
            return true;
        at += n;
    }
    return false;
}

bool tool_release(const char *text, uint32_t *major, uint32_t *minor)
{
    char *end;
    if (!isdigit((unsigned char)text[0]))
        return false;
    unsigned long first = strtoul(text, &end, 10);
    if (*end != '.' || !isdigit((unsigned char)end[1]))
        return false;
    unsigned long second = strtoul(end + 1, &end, 10);
    if (first > 10000 || second > 10000)
        return false;
    *major = (uint32_t)first;
    *minor = (uint32_t)second;
    return true;
}

bool tool_has_protocol(const char *protocols, const char *name)
{
    const char *rest = mr_system_field(protocols, name);
    return rest && (*rest == ' ' || *rest == '\t');
}
