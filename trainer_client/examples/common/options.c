#include "trainer_client/examples/common/options.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_default(const struct example_option *o)
{
    if (o->kind == EXAMPLE_TEXT) {
        const char *const *text = o->value;
        if (*text != NULL)
            printf(" (default %s)", *text);
    } else if (o->kind == EXAMPLE_NUMBER) {
        const uint32_t *number = o->value;
        if (*number <= o->max)
            printf(" (default %u)", *number);
    } else {
        const float *real = o->value;
        printf(" (default %g)", (double)*real);
    }
}

static void print_usage(const struct example_program *p)
{
    printf("usage: %s [options]\n%s\n", p->name, p->about);
    for (size_t i = 0; i < p->option_count; i++) {
        const struct example_option *o = &p->options[i];
        static const char *const takes[] = {"TEXT", "N", "X"};
        printf("  --%s %s%*s%s", o->name, takes[o->kind],
               (int)(22 - strlen(o->name) - strlen(takes[o->kind])), "", o->help);
        print_default(o);
        printf("\n");
    }
}

void example_usage_error(const struct example_program *p, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s: ", p->name);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "; see %s --help\n", p->name);
    va_end(arguments);
    exit(2);
}

/* Whether `text`, up to '=' or its end, is this name; '_' stands for '-'. */
static bool is_name(const char *text, const char *name)
{
    while (*name != 0 && (*text == *name || (*text == '_' && *name == '-'))) {
        text++;
        name++;
    }
    return *name == 0 && (*text == 0 || *text == '=');
}

static void set(const struct example_program *p, const struct example_option *o, const char *text)
{
    char *end;
    if (o->kind == EXAMPLE_TEXT) {
        *(const char **)o->value = text;
        return;
    }
    errno = 0;
    double number = strtod(text, &end);
    bool fits = *text != 0 && *end == 0 && errno == 0 && number >= o->min && number <= o->max;
    if (o->kind == EXAMPLE_NUMBER)
        fits = fits && floor(number) >= number;
    if (!fits)
        example_usage_error(p, "--%s '%s' is not a%s number from %g to %g", o->name, text,
                            o->kind == EXAMPLE_NUMBER ? " whole" : "", o->min, o->max);
    if (o->kind == EXAMPLE_NUMBER)
        *(uint32_t *)o->value = (uint32_t)number;
    else
        *(float *)o->value = (float)number;
}

static const struct example_option *find(const struct example_program *p, const char *argument)
{
    for (size_t i = 0; strncmp(argument, "--", 2) == 0 && i < p->option_count; i++) {
        if (is_name(argument + 2, p->options[i].name))
            return &p->options[i];
    }
    return NULL;
}

void example_options_read(const struct example_program *p, int argc, char **argv)
{
    uint64_t seen = 0;
    assert(p->option_count <= 64);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            print_usage(p);
            exit(0);
        }
        const struct example_option *o = find(p, argv[i]);
        if (o == NULL)
            example_usage_error(p, "unknown option '%s'", argv[i]);
        uint64_t bit = UINT64_C(1) << (o - p->options);
        if ((seen & bit) != 0)
            example_usage_error(p, "given twice: --%s", o->name);
        seen |= bit;
        const char *equals = strchr(argv[i], '=');
        if (equals == NULL && i + 1 == argc)
            example_usage_error(p, "--%s needs a value", o->name);
        set(p, o, equals != NULL ? equals + 1 : argv[++i]);
    }
}
