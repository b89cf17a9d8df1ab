#include "tools/options.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HELP_COLUMN 34

int tool_fail(const char *command, const char *format, ...)
{
    (void)fprintf(stderr, "millrace %s: ", command);
    va_list args;
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    (void)fputc('\n', stderr);
    return TOOL_EXIT_FAILED;
}

bool tool_parse_u64(const char *text, uint64_t max, uint64_t *out)
{
    const bool hexadecimal = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    const char *digits = hexadecimal ? text + 2 : text;
    if (!isxdigit((unsigned char)digits[0]))
        return false;
    char *end;
    errno = 0;
    unsigned long long n = strtoull(digits, &end, hexadecimal ? 16 : 10);
    if (errno != 0 || end == digits || *end != '\0' || n > max)
        return false;
    *out = n;
    return true;
}

bool tool_parse_float(const char *text, float *out)
{
    char *end;
    float f = strtof(text, &end);
    if (end == text || *end != '\0' || isspace((unsigned char)text[0]) || !isfinite(f))
        return false;
    *out = f;
    return true;
}

static void print_help(const struct tool_usage *usage)
{
    (void)printf("usage: millrace %s %s\n\n%s\n\n", usage->command, usage->synopsis, usage->summary);
    for (uint32_t i = 0; i < usage->option_count; i++) {
        const struct tool_option *o = &usage->options[i];
        int n = printf("  --%s%s%s", o->name, o->argument ? " " : "", o->argument ? o->argument : "");
        (void)printf("%*s%s\n", n < HELP_COLUMN ? HELP_COLUMN - n : 1, "", o->help);
    }
    int n = printf("  --help");
    (void)printf("%*sthis text\n", HELP_COLUMN - n, "");
}

static bool usage_error(const struct tool_usage *usage, const char *what, const char *which, int *exit_code)
{
    (void)tool_fail(usage->command, "%s%s; see millrace %s --help", what, which, usage->command);
    *exit_code = TOOL_EXIT_USAGE;
    return false;
}

static const struct tool_option *find_option(const struct tool_usage *usage, const char *name,
                                             size_t name_bytes)
{
    for (uint32_t i = 0; i < usage->option_count; i++) {
        const struct tool_option *o = &usage->options[i];
        if (strlen(o->name) == name_bytes && memcmp(o->name, name, name_bytes) == 0)
            return o;
    }
    return NULL;
}

/* NULL when `text` is a value of the option's kind, else what it should have been. */
static const char *store_value(const struct tool_option *o, const char *text)
{
    uint64_t n;
    switch (o->kind) {
    case TOOL_FLAG:
        *(bool *)o->value = true;
        return NULL;
    case TOOL_STRING:
        *(const char **)o->value = text;
        return NULL;
    case TOOL_LIST: {
        struct tool_list *list = o->value;
        if (list->count == list->items_max)
            return "given less often";
        list->items[list->count++] = text;
        return NULL;
    }
    case TOOL_U32:
        if (!tool_parse_u64(text, UINT32_MAX, &n))
            return "a whole number from 0 to 4294967295";
        *(uint32_t *)o->value = (uint32_t)n;
        return NULL;
    case TOOL_U64:
        return tool_parse_u64(text, UINT64_MAX, o->value) ? NULL : "a whole number from 0 to 2^64-1";
    case TOOL_FLOAT:
        return tool_parse_float(text, o->value) ? NULL : "a number";
    }
    return NULL;
}

/* Silently the last one would count, or the first: neither is what both say. */
static bool is_given_before(const struct tool_usage *usage, const struct tool_option *o, char **argv,
                            int before)
{
    const size_t name_bytes = strlen(o->name);
    for (int i = 1; i < before && strcmp(argv[i], "--") != 0; i++) {
        if (strncmp(argv[i], "--", 2) != 0)
            continue;
        const char *name = argv[i] + 2;
        const size_t bytes = strcspn(name, "=");
        if (bytes == name_bytes && memcmp(name, o->name, bytes) == 0)
            return true;
        const struct tool_option *other = find_option(usage, name, bytes);
        if (other && other->kind != TOOL_FLAG && name[bytes] == '\0')
            i++; /* its value */
    }
    return false;
}

/* One "--name", "--name value" or "--name=value" at argv[*i]; *i moves to the last argument it took. */
static bool take_option(const struct tool_usage *usage, int argc, char **argv, int *i, int *exit_code)
{
    const char *name = argv[*i] + 2;
    const char *equals = strchr(name, '=');
    const size_t name_bytes = equals ? (size_t)(equals - name) : strlen(name);
    if (name_bytes == 4 && memcmp(name, "help", 4) == 0) {
        print_help(usage);
        *exit_code = 0;
        return false;
    }
    const struct tool_option *o = find_option(usage, name, name_bytes);
    if (!o)
        return usage_error(usage, "unknown option ", argv[*i], exit_code);
    if (o->kind != TOOL_LIST && is_given_before(usage, o, argv, *i))
        return usage_error(usage, "given twice: --", o->name, exit_code);
    const char *value = equals ? equals + 1 : NULL;
    if (o->kind == TOOL_FLAG && value)
        return usage_error(usage, "no value belongs to --", o->name, exit_code);
    if (o->kind != TOOL_FLAG && !value) {
        if (*i + 1 >= argc)
            return usage_error(usage, "a value is missing behind --", o->name, exit_code);
        value = argv[++*i];
    }
    const char *wanted = store_value(o, value);
    if (!wanted)
        return true;
    (void)tool_fail(usage->command, "--%s must be %s, not \"%s\"", o->name, wanted, value);
    *exit_code = TOOL_EXIT_USAGE;
    return false;
}

bool tool_options_parse(const struct tool_usage *usage, int argc, char **argv, const char **words,
                        uint32_t *word_count, int *exit_code)
{
    uint32_t count = 0;
    bool options_end = false;
    for (int i = 1; i < argc; i++) {
        if (!options_end && strcmp(argv[i], "--") == 0)
            options_end = true;
        else if (!options_end && strcmp(argv[i], "-h") == 0) {
            print_help(usage);
            *exit_code = 0;
            return false;
        } else if (!options_end && strncmp(argv[i], "--", 2) == 0) {
            if (!take_option(usage, argc, argv, &i, exit_code))
                return false;
        } else if (!options_end && argv[i][0] == '-' && argv[i][1] != '\0')
            return usage_error(usage, "unknown option ", argv[i], exit_code);
        else if (count == usage->words_max)
            return usage_error(usage, "one argument too many: ", argv[i], exit_code);
        else
            words[count++] = argv[i];
    }
    if (count < usage->words_min)
        return usage_error(usage, "arguments are missing: ", usage->synopsis, exit_code);
    *word_count = count;
    return true;
}
