#include "tools/bench/mix.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "dataplane/wire/base/cli.h"
#include "tools/bench/random.h"

#define WEIGHT_MAX 1000000u
#define TEXT_BYTES 256

static const char *const names[TOOL_OPS] = {
    [TOOL_LOOKUP] = "lookup",     [TOOL_BAGS] = "bags", [TOOL_PUSH] = "push",
    [TOOL_VARIABLE] = "variable", [TOOL_ECHO] = "echo", [TOOL_VARIABLE_PUSH] = "variable-push",
};

const char *tool_op_name(enum tool_op op)
{
    return names[op];
}

/* One "op=weight". */
static bool take_item(char *item, struct tool_mix *mix, bool seen[TOOL_OPS], char *error, size_t error_bytes)
{
    char *equals = strchr(item, '=');
    uint32_t op = 0;
    uint64_t weight;
    if (equals != NULL)
        *equals = '\0';
    while (op < TOOL_OPS && strcmp(item, names[op]) != 0)
        op++;
    if (op == TOOL_OPS) {
        (void)snprintf(error, error_bytes,
                       "--mix: there is no call \"%s\"; there are lookup, bags, push, variable, "
                       "variable-push, echo",
                       item);
        return false;
    }
    if (seen[op]) {
        (void)snprintf(error, error_bytes, "--mix names %s twice", item);
        return false;
    }
    if (equals == NULL || !cli_u64(equals + 1, WEIGHT_MAX, &weight)) {
        (void)snprintf(error, error_bytes,
                       "--mix: the weight of %s must be a whole number from 0 to %u%s%s%s", item, WEIGHT_MAX,
                       equals == NULL ? ", as in " : ", not \"", equals == NULL ? item : equals + 1,
                       equals == NULL ? "=80" : "\"");
        return false;
    }
    seen[op] = true;
    mix->weights[op] = (uint32_t)weight;
    mix->total += (uint32_t)weight;
    return true;
}

bool tool_mix_parse(const char *text, struct tool_mix *mix, char *error, size_t error_bytes)
{
    char copy[TEXT_BYTES];
    bool seen[TOOL_OPS] = {false};
    struct tool_mix m = {.total = 0};
    if (strlen(text) >= sizeof(copy)) {
        (void)snprintf(error, error_bytes, "--mix is longer than %d bytes", TEXT_BYTES - 1);
        return false;
    }
    (void)snprintf(copy, sizeof(copy), "%s", text);
    for (char *item = copy; item != NULL;) {
        char *comma = strchr(item, ',');
        if (comma != NULL)
            *comma++ = '\0';
        if (!take_item(item, &m, seen, error, error_bytes))
            return false;
        item = comma;
    }
    if (m.total == 0) {
        (void)snprintf(error, error_bytes, "--mix makes no call: one weight must be above 0");
        return false;
    }
    *mix = m;
    return true;
}

bool tool_mix_has_keys(const struct tool_mix *mix)
{
    bool any = false;
    for (uint32_t op = 0; op < TOOL_OPS; op++)
        any |= mix->weights[op] > 0 && tool_op_has_keys((enum tool_op)op);
    return any;
}

enum tool_op tool_mix_draw(const struct tool_mix *mix, uint64_t *random)
{
    uint64_t left = tool_random_below(random, mix->total);
    uint32_t op = 0;
    while (left >= mix->weights[op])
        left -= mix->weights[op++];
    return (enum tool_op)op;
}

bool tool_range_parse(const char *option, const char *text, uint32_t most, struct tool_range *range,
                      char *error, size_t error_bytes)
{
    char first[TEXT_BYTES];
    const char *dots = strstr(text, ".."), *last = dots != NULL ? dots + 2 : text;
    uint64_t min, max;
    (void)snprintf(first, sizeof(first), "%.*s", (int)(dots != NULL ? dots - text : (long)strlen(text)),
                   text);
    if (!cli_u64(first, most, &min) || min == 0 || !cli_u64(last, most, &max)) {
        (void)snprintf(error, error_bytes,
                       "--%s must be a whole number from 1 to %" PRIu32 ", or two as in 10..200, not \"%s\"",
                       option, most, text);
        return false;
    }
    if (max < min) {
        (void)snprintf(error, error_bytes, "--%s %s: the first number must not be above the second", option,
                       text);
        return false;
    }
    *range = (struct tool_range){(uint32_t)min, (uint32_t)max};
    return true;
}

uint32_t tool_range_draw(const struct tool_range *range, uint64_t *random)
{
    if (range->min == range->max)
        return range->min;
    return range->min + (uint32_t)tool_random_below(random, range->max - range->min + UINT64_C(1));
}
