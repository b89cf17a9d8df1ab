/* What calls are made, and in which proportion. Pure. */
#ifndef TOOL_MIX_H
#define TOOL_MIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tool_op {
    TOOL_LOOKUP,        /* rows by key */
    TOOL_BAGS,          /* the sums of bags of rows */
    TOOL_PUSH,          /* gradients by key */
    TOOL_VARIABLE,      /* reads a variable */
    TOOL_VARIABLE_PUSH, /* a variable's gradient */
    TOOL_ECHO,          /* bytes to a core and back */
};
#define TOOL_OPS (TOOL_ECHO + 1)

/* "lookup", "variable-push", ... */
const char *tool_op_name(enum tool_op op);

/* Whether its calls name keys of the table. */
static inline bool tool_op_has_keys(enum tool_op op)
{
    return op == TOOL_LOOKUP || op == TOOL_BAGS || op == TOOL_PUSH;
}

struct tool_mix {
    uint32_t weights[TOOL_OPS];
    uint32_t total; /* of them; > 0 */
};

/* "lookup=80,push=20": whole numbers, each op once; those that are not named are not made. False with one
 * line in `error`. */
bool tool_mix_parse(const char *text, struct tool_mix *mix, char *error, size_t error_bytes);
/* Whether some of its calls name keys. */
bool tool_mix_has_keys(const struct tool_mix *mix);
enum tool_op tool_mix_draw(const struct tool_mix *mix, uint64_t *random);

/* "100", or "10..200": a number of keys that is drawn for each call. False with one line in `error`. */
struct tool_range {
    uint32_t min, max;
};
bool tool_range_parse(const char *option, const char *text, uint32_t most, struct tool_range *range,
                      char *error, size_t error_bytes);
uint32_t tool_range_draw(const struct tool_range *range, uint64_t *random);

#endif
