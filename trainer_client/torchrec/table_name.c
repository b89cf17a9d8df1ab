#define XXH_INLINE_ALL
#include <xxhash.h>

#include "trainer_client/torchrec/table_name.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DIGEST_BYTES 17 /* '.' and 16 digits */

static bool may_be_in_names(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("_./:-", c) != NULL);
}

/* Writes what fits, and the digest of all. */
struct name {
    char head[MR_NAME_BYTES];
    size_t bytes;
    bool is_plain;
    XXH3_state_t digest;
};

static void table_name_add(struct name *n, const char *text)
{
    (void)XXH3_64bits_update(&n->digest, text, strlen(text));
    for (; *text != '\0'; text++) {
        n->is_plain &= may_be_in_names(*text);
        if (n->bytes < sizeof(n->head))
            n->head[n->bytes] = may_be_in_names(*text) ? *text : '_';
        n->bytes++;
    }
}

void tde_table_name(const char *prefix, const char *table, bool has_column, int64_t column,
                    char out[MR_NAME_BYTES])
{
    struct name n = {.is_plain = true};
    char suffix[32] = "";
    (void)XXH3_64bits_reset(&n.digest);
    if (has_column)
        (void)snprintf(suffix, sizeof(suffix), ":c%" PRId64, column);
    table_name_add(&n, prefix);
    table_name_add(&n, table);
    table_name_add(&n, suffix);
    bool fits = n.is_plain && n.bytes >= 1 && n.bytes < MR_NAME_BYTES;
    size_t kept = fits || n.bytes < MR_NAME_BYTES - DIGEST_BYTES ? n.bytes : MR_NAME_BYTES - 1 - DIGEST_BYTES;
    memset(out, 0, MR_NAME_BYTES);
    memcpy(out, n.head, kept);
    if (!fits)
        (void)snprintf(out + kept, DIGEST_BYTES + 1, ".%016" PRIx64, (uint64_t)XXH3_64bits_digest(&n.digest));
}
