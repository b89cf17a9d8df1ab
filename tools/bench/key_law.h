/* Which keys calls name: the distribution on the command line, and draws from it. Pure. */
#ifndef TOOL_KEY_LAW_H
#define TOOL_KEY_LAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "tools/bench/zipf.h"

#define TOOL_KEYS_MAX (UINT64_C(1) << 48) /* different ones */

enum tool_key_kind { TOOL_KEYS_UNIFORM, TOOL_KEYS_ZIPF, TOOL_KEYS_SEQUENTIAL, TOOL_KEYS_HOT };

/* Keys 0 .. count - 1. */
struct tool_key_law {
    enum tool_key_kind kind;
    uint64_t count;
    double exponent;    /* zipf: key r with a probability proportional to (r + 1)^-exponent */
    double hot_share;   /* hot: of the draws that fall on the first hot_count keys */
    uint64_t hot_count; /* ... which are below count */
};

/* "uniform:N", "zipf:N:S", "sequential:N", "hot:N:P:H". False with one line in `error`. */
bool tool_key_law_parse(const char *text, struct tool_key_law *law, char *error, size_t error_bytes);

struct tool_key_source {
    struct tool_key_law law;
    struct tool_zipf zipf;
    uint64_t random, next;
};

/* What client `client` of `client_count` draws: the same for the same seed. Sequential keys begin at another
 * place for each. */
void tool_key_source_init(struct tool_key_source *s, const struct tool_key_law *law, uint64_t seed,
                          uint32_t client, uint32_t client_count);
void tool_key_source_draw(struct tool_key_source *s, uint64_t *out, uint32_t count);

#endif
