#include "dataplane/wire/base/cli.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/wire/base/plural.h"
#include "dataplane/wire/base/printable.h"

#define HELP_COLUMN 34

int cli_fail(const char *program, const char *format, ...)
{
    char text[MR_PRINTABLE_BYTES_MAX];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    (void)fprintf(stderr, "%s: %s\n", program, mr_make_printable(text, sizeof(text)));
    return CLI_EXIT_FAILED;
}

void cli_refuse(const char *program, const char *format, ...)
{
    va_list args;
    (void)fprintf(stderr, "%s: ", program);
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    (void)fprintf(stderr, "; see %s --help\n", program);
    exit(CLI_EXIT_USAGE);
}

bool cli_u64(const char *text, uint64_t max, uint64_t *out)
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

bool cli_float(const char *text, float *out)
{
    char *end;
    float f = strtof(text, &end);
    if (end == text || *end != '\0' || isspace((unsigned char)text[0]) || !isfinite(f))
        return false;
    *out = f;
    return true;
}

static bool read_double(const char *text, double *out)
{
    char *end;
    double d = strtod(text, &end);
    if (end == text || *end != '\0' || isspace((unsigned char)text[0]) || !isfinite(d))
        return false;
    *out = d;
    return true;
}

/* What was to be printed and could not be (a full disk) is no success. */
static _Noreturn void end_output(const struct cli_usage *usage)
{
    if (fflush(stdout) != 0 || ferror(stdout))
        exit(cli_fail(usage->program, "the output could not be written"));
    exit(EXIT_SUCCESS);
}

static void print_lines(const char *lines, int first_indent)
{
    int indent = first_indent;
    for (const char *line = lines; line != NULL; indent = HELP_COLUMN) {
        const char *end = strchr(line, '\n');
        (void)printf("%*s%.*s\n", indent, "", end ? (int)(end - line) : (int)strlen(line), line);
        line = end ? end + 1 : NULL;
    }
}

static void print_option(const char *name, const char *argument, const char *help)
{
    int n = printf("  --%s%s%s", name, argument ? " " : "", argument ? argument : "");
    print_lines(help, n < HELP_COLUMN ? HELP_COLUMN - n : 1);
}

static _Noreturn void print_help(const struct cli_usage *usage)
{
    (void)printf("usage: %s %s\n\n%s\n\n", usage->program, usage->synopsis, usage->summary);
    for (uint32_t i = 0; i < usage->option_count; i++) {
        const struct cli_option *o = &usage->options[i];
        if (o->kind.value == CLI_VALUE_NONE)
            (void)printf("\n%s:\n", o->name);
        else
            print_option(o->name, o->argument, o->help);
    }
    if (usage->has_version)
        print_option("version", NULL, "print the version");
    print_option("help", NULL, "print this text");
    end_output(usage);
}

/* Whether `text`, up to '=' or its end, is this name. */
static bool is_name(const char *text, const char *name)
{
    while (*name != '\0' && (*text == *name || (*text == '_' && *name == '-'))) {
        text++;
        name++;
    }
    return *name == '\0' && (*text == '\0' || *text == '=');
}

static const struct cli_option *find_option(const struct cli_usage *usage, const char *text)
{
    for (uint32_t i = 0; i < usage->option_count; i++)
        if (usage->options[i].kind.value != CLI_VALUE_NONE && is_name(text, usage->options[i].name))
            return &usage->options[i];
    return NULL;
}

static void store_whole(const struct cli_usage *usage, const struct cli_option *o, const char *text)
{
    const bool bounded = o->kind.max > 0, is_u32 = o->kind.value == CLI_VALUE_U32;
    const uint64_t min = bounded ? (uint64_t)o->kind.min : 0;
    const uint64_t max = bounded ? (uint64_t)o->kind.max : is_u32 ? UINT32_MAX : UINT64_MAX;
    uint64_t n;
    if (!cli_u64(text, max, &n) || n < min)
        cli_refuse(usage->program, "--%s must be a whole number from %" PRIu64 " to %" PRIu64 ", not \"%s\"",
                   o->name, min, max, text);
    if (is_u32)
        *(uint32_t *)o->value = (uint32_t)n;
    else
        *(uint64_t *)o->value = n;
}

static void store_real(const struct cli_usage *usage, const struct cli_option *o, const char *text)
{
    const bool bounded = o->kind.max > o->kind.min;
    float f = 0;
    double d = 0;
    bool fits = o->kind.value == CLI_VALUE_FLOAT ? cli_float(text, &f) : read_double(text, &d);
    if (bounded && o->kind.value == CLI_VALUE_FLOAT)
        fits = fits && f >= (float)o->kind.min && f <= (float)o->kind.max;
    else if (bounded)
        fits = fits && d >= o->kind.min && d <= o->kind.max;
    if (!fits && bounded)
        cli_refuse(usage->program, "--%s must be a number from %g to %g, not \"%s\"", o->name, o->kind.min,
                   o->kind.max, text);
    if (!fits)
        cli_refuse(usage->program, "--%s must be a number, not \"%s\"", o->name, text);
    if (o->kind.value == CLI_VALUE_FLOAT)
        *(float *)o->value = f;
    else
        *(double *)o->value = d;
}

static void store_item(const struct cli_usage *usage, const struct cli_option *o, const char *text)
{
    struct cli_list *list = o->value;
    if (list->count == list->items_max)
        cli_refuse(usage->program, "--%s may be given %" PRIu32 " time%s at most", o->name, list->items_max,
                   mr_plural(list->items_max));
    list->items[list->count++] = text;
}

static void store_value(const struct cli_usage *usage, const struct cli_option *o, const char *text)
{
    switch (o->kind.value) {
    case CLI_VALUE_FLAG:
        *(bool *)o->value = true;
        return;
    case CLI_VALUE_STRING:
        *(const char **)o->value = text;
        return;
    case CLI_VALUE_LIST:
        store_item(usage, o, text);
        return;
    case CLI_VALUE_U32:
    case CLI_VALUE_U64:
        store_whole(usage, o, text);
        return;
    case CLI_VALUE_FLOAT:
    case CLI_VALUE_DOUBLE:
        store_real(usage, o, text);
        return;
    case CLI_VALUE_NONE:
        return;
    }
}

/* Takes the option at argv[i] with its value; returns the place of the last argument that it took. A second
 * one is refused: the last to count, or the first, would be neither of what both say. */
static int take_option(const struct cli_usage *usage, int argc, char **argv, int i, uint64_t *seen)
{
    const char *text = argv[i] + 2, *value = strchr(text, '=');
    if (is_name(text, "help"))
        print_help(usage);
    if (usage->has_version && is_name(text, "version")) {
        (void)printf("%s %s\n", usage->program, MR_VERSION);
        end_output(usage);
    }
    const struct cli_option *o = find_option(usage, text);
    if (!o)
        cli_refuse(usage->program, "unknown option %s", argv[i]);
    const uint64_t bit = UINT64_C(1) << (o - usage->options);
    if (o->kind.value != CLI_VALUE_LIST && (*seen & bit) != 0)
        cli_refuse(usage->program, "--%s is given twice", o->name);
    *seen |= bit;
    if (o->kind.value == CLI_VALUE_FLAG && value)
        cli_refuse(usage->program, "--%s takes no value", o->name);
    if (o->kind.value != CLI_VALUE_FLAG && !value && i + 1 >= argc)
        cli_refuse(usage->program, "--%s needs a value", o->name);
    const bool is_next = o->kind.value != CLI_VALUE_FLAG && !value;
    store_value(usage, o, is_next ? argv[i + 1] : value ? value + 1 : NULL);
    return is_next ? i + 1 : i;
}

uint32_t cli_parse(const struct cli_usage *usage, int argc, char **argv, const char **words)
{
    uint64_t seen = 0;
    uint32_t count = 0;
    bool options_end = false;
    assert(usage->option_count <= CLI_OPTIONS_MAX);
    for (int i = 1; i < argc; i++) {
        const bool is_option = !options_end && argv[i][0] == '-' && argv[i][1] != '\0';
        if (is_option && strcmp(argv[i], "--") == 0)
            options_end = true;
        else if (is_option && strcmp(argv[i], "-h") == 0)
            print_help(usage);
        else if (is_option && argv[i][1] == '-')
            i = take_option(usage, argc, argv, i, &seen);
        else if (is_option)
            cli_refuse(usage->program, "unknown option %s", argv[i]);
        else if (count == usage->words_max)
            cli_refuse(usage->program, "unexpected argument \"%s\"", argv[i]);
        else
            words[count++] = argv[i];
    }
    if (count < usage->words_min)
        cli_refuse(usage->program, "arguments are missing: %s", usage->synopsis);
    return count;
}
