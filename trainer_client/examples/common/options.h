/* The command line of an example: options with a value each, a usage that is made of their descriptions, and
 * one clear line for what is wrong. `--world-size 3`, `--world-size=3` and, as in torch's examples,
 * `--world_size 3` are the same.
 */
#ifndef EXAMPLES_OPTIONS_H
#define EXAMPLES_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

enum example_option_kind { EXAMPLE_TEXT, EXAMPLE_NUMBER, EXAMPLE_REAL };

struct example_option {
    const char *name; /* without the dashes */
    const char *help;
    enum example_option_kind kind;
    void *value;     /* const char **, uint32_t * or float *, with the default in it */
    double min, max; /* of numbers */
};

struct example_program {
    const char *name, *about; /* about: lines for the usage */
    const struct example_option *options;
    size_t option_count;
};

/* Ends the program: with 0 after --help, with 2 when the line is wrong. */
void example_options_read(const struct example_program *program, int argc, char **argv);
/* One line to stderr, and exit code 2. */
_Noreturn void example_usage_error(const struct example_program *program, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
