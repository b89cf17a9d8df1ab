/* What the JSON of manifests has in common: its hash of itself, and how its fields are written and read. For
 * the files of this folder only.
 */
#ifndef PS_MANIFEST_JSON_H
#define PS_MANIFEST_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/format/capability.h"
#include "ps/checkpoint/checkpoint_format.h"

/* 32 digits, the high half first. */
json_t *ps_json_hash(struct ps_hash hash);
/* Returns the text with its hash in it, to be freed with free(), and sets *hash. NULL: no memory. */
char *ps_json_seal(json_t *root, struct ps_hash *hash);

/* Adds "needs", a set of capabilities by name, and "written_by", this version. Returns 0 or -1. */
int ps_json_set_needs(json_t *root, uint64_t needs, const char *written_by);

/* ---- reading: the first mistake stays ---- */

struct ps_json_parse {
    char *text; /* PS_TEXT_BYTES: what is wrong */
    bool bad;
};

void ps_json_refuse(struct ps_json_parse *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The field of that name, or something harmless and a refusal. */
uint64_t ps_json_integer(struct ps_json_parse *p, const json_t *o, const char *key, uint64_t low,
                         uint64_t high);
const char *ps_json_string(struct ps_json_parse *p, const json_t *o, const char *key);
/* A decimal number in quotes. */
uint64_t ps_json_u64(struct ps_json_parse *p, const json_t *o, const char *key);
struct ps_hash ps_json_get_hash(struct ps_json_parse *p, const json_t *o, const char *key);
/* NULL: it is no list, or has fewer or more entries. */
const json_t *ps_json_array(struct ps_json_parse *p, const json_t *o, const char *key, size_t low,
                            size_t high);
/* Removes "hash" from `root`, and checks that it is that of the rest. */
struct ps_hash ps_json_own_hash(struct ps_json_parse *p, json_t *root);
/* Reads what ps_json_set_needs() added. Refuses a capability that this version does not have, and names it
 * and the version that wrote it. */
uint64_t ps_json_get_needs(struct ps_json_parse *p, const json_t *root,
                           char written_by[MR_VERSION_TEXT_BYTES]);
/* Whether a text is as some version wrote it: its hash is that of its content, and no byte was changed. What
 * is refused in such a text is not damage: this version does not know it. */
bool ps_json_is_sealed(const char *json, size_t json_bytes);
/* MR_CHECKPOINT_NEWER, with a line in `text` (PS_TEXT_BYTES): a sealed text was refused because of `why`. */
enum mr_status ps_json_unknown(const char *path, const char *why, char *text);
/* Checks that the text is byte by byte as it was written: two decimals can mean the same double, and spaces
 * mean nothing, so the hash alone would miss such changes. `again`: what was read, printed; it is freed. */
void ps_json_same(struct ps_json_parse *p, char *again, const char *json, size_t json_bytes);

#endif
