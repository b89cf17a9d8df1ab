/* Reads the command lines of all programs. Every option is declared once: parsing, --help and the errors
 * follow from that. --help and --version end the program with 0, a mistake ends it with one line and
 * CLI_EXIT_USAGE. */
#ifndef MR_CLI_H
#define MR_CLI_H

#include <stdbool.h>
#include <stdint.h>

#define CLI_EXIT_FAILED 1 /* the program could not do it */
#define CLI_EXIT_USAGE  2 /* the command line is wrong */
#define CLI_OPTIONS_MAX 64

enum cli_value {
    CLI_VALUE_FLAG,   /* bool: present or not */
    CLI_VALUE_STRING, /* const char * into argv */
    CLI_VALUE_LIST,   /* struct cli_list: may be given more than once */
    CLI_VALUE_U32,
    CLI_VALUE_U64,
    CLI_VALUE_FLOAT,
    CLI_VALUE_DOUBLE,
    CLI_VALUE_NONE, /* no option, but a line of --help */
};

struct cli_list {
    const char **items; /* into argv; room for items_max */
    uint32_t count, items_max;
};

/* What an option takes. Of numbers min and max are the bounds; both 0: all that the type holds. */
struct cli_kind {
    enum cli_value value;
    double min, max;
};

#define CLI_FLAG                ((struct cli_kind){CLI_VALUE_FLAG, 0, 0})
#define CLI_STRING              ((struct cli_kind){CLI_VALUE_STRING, 0, 0})
#define CLI_LIST                ((struct cli_kind){CLI_VALUE_LIST, 0, 0})
#define CLI_U32                 ((struct cli_kind){CLI_VALUE_U32, 0, 0})
#define CLI_U64                 ((struct cli_kind){CLI_VALUE_U64, 0, 0})
#define CLI_FLOAT               ((struct cli_kind){CLI_VALUE_FLOAT, 0, 0})
#define CLI_U32_IN(min, max)    ((struct cli_kind){CLI_VALUE_U32, (min), (max)})
#define CLI_FLOAT_IN(min, max)  ((struct cli_kind){CLI_VALUE_FLOAT, (min), (max)})
#define CLI_DOUBLE_IN(min, max) ((struct cli_kind){CLI_VALUE_DOUBLE, (min), (max)})
#define CLI_HEADING             ((struct cli_kind){CLI_VALUE_NONE, 0, 0}) /* the row's name is the line */

struct cli_option {
    /* without the dashes: "--the-name value" and "--the-name=value"; '_' stands for '-', too */
    const char *name;
    struct cli_kind kind;
    void *value;          /* where it goes; left alone when the option is not given */
    const char *argument; /* what --help calls the value; NULL for flags */
    const char *help;     /* may have several lines */
};

struct cli_usage {
    const char *program;  /* "millrace ctl create" */
    const char *synopsis; /* what follows the program, "table NAME --dim N [options]" */
    const char *summary;  /* lines on what it does; then an empty one and, indented, an example */
    const struct cli_option *options;
    uint32_t option_count;
    uint32_t words_min, words_max; /* arguments that are no options */
    bool has_version;              /* --version prints "PROGRAM VERSION" */
};

/* Initialises the members options and option_count from an array. */
#define CLI_OPTIONS(array) .options = (array), .option_count = sizeof(array) / sizeof(*(array))

/* Fills the options' values, and `words` with the arguments that are no options; returns how many those are.
 * `words` has room for words_max. argv[0] is not looked at. "--" ends the options. */
uint32_t cli_parse(const struct cli_usage *usage, int argc, char **argv, const char **words);

/* Reads a whole number in decimal, or in hexadecimal with 0x; nothing may stand before or after it. */
bool cli_u64(const char *text, uint64_t max, uint64_t *out);
bool cli_float(const char *text, float *out);

/* Prints "PROGRAM: TEXT" on standard error. Returns CLI_EXIT_FAILED, for return statements. */
int cli_fail(const char *program, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Ends the program over a mistake in its command line: prints "PROGRAM: TEXT; see PROGRAM --help". */
_Noreturn void cli_refuse(const char *program, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
