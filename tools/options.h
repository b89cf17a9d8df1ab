/* Command lines: every option is declared once; parsing, --help and the errors follow from that. Pure but for
 * the printing. */
#ifndef TOOL_OPTIONS_H
#define TOOL_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#define TOOL_EXIT_FAILED 1 /* the command could not do it */
#define TOOL_EXIT_USAGE  2 /* the command line is wrong */

enum tool_option_kind {
    TOOL_FLAG,   /* bool: present or not */
    TOOL_STRING, /* const char * into argv */
    TOOL_LIST,   /* struct tool_list: may be given more than once */
    TOOL_U32,
    TOOL_U64,
    TOOL_FLOAT,
};

struct tool_list {
    const char **items; /* into argv; room for items_max */
    uint32_t count, items_max;
};

struct tool_option {
    const char *name; /* without the dashes; "--name value" or "--name=value" */
    enum tool_option_kind kind;
    void *value;          /* where it goes; left alone when the option is not given */
    const char *argument; /* what --help calls the value; NULL for flags */
    const char *help;
};

struct tool_usage {
    const char *command;  /* "ctl create" */
    const char *synopsis; /* what follows the command, "table NAME --dim N [options]" */
    const char *summary;  /* one or more lines on what it does */
    const struct tool_option *options;
    uint32_t option_count;
    uint32_t words_min, words_max; /* arguments that are no options */
};

/* False when there is nothing left to do: --help has been printed (*exit_code 0), or one line about what is
 * wrong (TOOL_EXIT_USAGE). `words` has room for words_max. argv[0] is not looked at. "--" ends the
 * options. */
bool tool_options_parse(const struct tool_usage *usage, int argc, char **argv, const char **words,
                        uint32_t *word_count, int *exit_code);

/* Whole numbers in decimal, or hexadecimal with 0x; nothing before or behind. Size suffixes are not taken. */
bool tool_parse_u64(const char *text, uint64_t max, uint64_t *out);
bool tool_parse_float(const char *text, float *out);

/* "millrace <command>: <text>" on standard error, one line. Returns TOOL_EXIT_FAILED, for return
 * statements. */
int tool_fail(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
