#include "ps/checkpoint/manifest_json.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define HASH_DIGITS 32u

/* The form that is hashed: no spaces, sorted keys, 17 digits, which hold a double exactly. */
#define CANONICAL (JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17))
#define READABLE  (JSON_INDENT(1) | JSON_SORT_KEYS | JSON_REAL_PRECISION(17))

/* ---- printing ---- */

json_t *ps_json_hash(struct ps_hash hash)
{
    return json_sprintf("%016" PRIx64 "%016" PRIx64, hash.high, hash.low);
}

static struct ps_hash text_hash(const char *text)
{
    XXH128_hash_t hash = XXH3_128bits(text, strlen(text));
    return (struct ps_hash){.low = hash.low64, .high = hash.high64};
}

char *ps_json_seal(json_t *root, struct ps_hash *hash)
{
    char *text = NULL, *canonical = json_dumps(root, CANONICAL);
    *hash = canonical ? text_hash(canonical) : (struct ps_hash){0};
    if (canonical && json_object_set_new(root, "hash", ps_json_hash(*hash)) == 0)
        text = json_dumps(root, READABLE);
    free(canonical);
    return text;
}

int ps_json_set_needs(json_t *root, uint64_t needs, const char *written_by)
{
    json_t *names = json_array();
    int bad = 0;
    for (uint32_t bit = 0; bit < 64; bit++)
        if ((needs >> bit & 1) != 0)
            bad |= json_array_append_new(names, json_string(mr_capability_name(bit)));
    bad |= json_object_set_new(root, "needs", names);
    return bad | json_object_set_new(root, "written_by", json_string(written_by));
}

/* ---- parsing ---- */

void ps_json_refuse(struct ps_json_parse *p, const char *format, ...)
{
    if (p->bad)
        return;
    p->bad = true;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(p->text, PS_TEXT_BYTES, format, args);
    va_end(args);
}

uint64_t ps_json_integer(struct ps_json_parse *p, const json_t *o, const char *key, uint64_t low,
                         uint64_t high)
{
    const json_t *v = json_object_get(o, key);
    json_int_t n = json_integer_value(v);
    if (json_is_integer(v) && n >= 0 && (uint64_t)n >= low && (uint64_t)n <= high)
        return (uint64_t)n;
    ps_json_refuse(p, "\"%s\" must be a whole number from %" PRIu64 " to %" PRIu64, key, low, high);
    return low;
}

const char *ps_json_string(struct ps_json_parse *p, const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    if (json_is_string(v))
        return json_string_value(v);
    ps_json_refuse(p, "\"%s\" must be a string", key);
    return "";
}

uint64_t ps_json_u64(struct ps_json_parse *p, const json_t *o, const char *key)
{
    const char *s = ps_json_string(p, o, key);
    char again[24];
    uint64_t n = strtoull(s, NULL, 10);
    (void)snprintf(again, sizeof(again), "%" PRIu64, n);
    if (strcmp(s, again) != 0)
        ps_json_refuse(p, "\"%s\" must be a 64-bit decimal number in quotes", key);
    return n;
}

struct ps_hash ps_json_get_hash(struct ps_json_parse *p, const json_t *o, const char *key)
{
    const char *s = ps_json_string(p, o, key);
    if (strlen(s) != HASH_DIGITS || strspn(s, "0123456789abcdef") != HASH_DIGITS) {
        ps_json_refuse(p, "\"%s\" must be 32 lower-case hexadecimal digits", key);
        return (struct ps_hash){0, 0};
    }
    char high[HASH_DIGITS / 2 + 1] = {0};
    memcpy(high, s, HASH_DIGITS / 2);
    return (struct ps_hash){.low = strtoull(s + HASH_DIGITS / 2, NULL, 16), .high = strtoull(high, NULL, 16)};
}

const json_t *ps_json_array(struct ps_json_parse *p, const json_t *o, const char *key, size_t low,
                            size_t high)
{
    const json_t *v = json_object_get(o, key);
    if (json_is_array(v) && json_array_size(v) >= low && json_array_size(v) <= high)
        return v;
    ps_json_refuse(p, "\"%s\" must be a list of %zu to %zu entries", key, low, high);
    return NULL;
}

struct ps_hash ps_json_own_hash(struct ps_json_parse *p, json_t *root)
{
    struct ps_hash expected = ps_json_get_hash(p, root, "hash");
    if (p->bad)
        return expected;
    json_object_del(root, "hash");
    char *canonical = json_dumps(root, CANONICAL);
    if (!canonical) {
        ps_json_refuse(p, "no memory to check its hash");
        return expected;
    }
    struct ps_hash found = text_hash(canonical);
    free(canonical);
    if (!ps_hash_equal(found, expected))
        ps_json_refuse(p, "its hash does not match its content");
    return expected;
}

uint64_t ps_json_get_needs(struct ps_json_parse *p, const json_t *root,
                           char written_by[MR_VERSION_TEXT_BYTES])
{
    const json_t *names = ps_json_array(p, root, "needs", 1, 64);
    struct mr_peer_version writer = {0};
    uint64_t needs = 0;
    (void)snprintf(writer.text, sizeof(writer.text), "%s", ps_json_string(p, root, "written_by"));
    mr_version_name(&writer, written_by);
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        const uint64_t bit = name ? mr_capability_named(name) : 0;
        if (!name || strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != strlen(name))
            ps_json_refuse(p, "\"needs\" must hold names of capabilities");
        else if (bit == 0)
            ps_json_refuse(p, "it needs \"%.40s\", and was written by version %s", name, written_by);
        needs |= bit;
    }
    return needs;
}

static bool is_as_dumped(const json_t *root, const char *json, size_t json_bytes)
{
    char *again = json_dumps(root, READABLE);
    const bool is_same = again && strlen(again) == json_bytes && memcmp(again, json, json_bytes) == 0;
    free(again);
    return is_same;
}

bool ps_json_is_sealed(const char *json, size_t json_bytes)
{
    char ignored[PS_TEXT_BYTES];
    struct ps_json_parse p = {.text = ignored};
    json_t *root = json_loadb(json, json_bytes, JSON_REJECT_DUPLICATES, NULL);
    const bool is_same = root && is_as_dumped(root, json, json_bytes);
    if (is_same)
        (void)ps_json_own_hash(&p, root);
    json_decref(root);
    return is_same && !p.bad;
}

enum mr_status ps_json_unknown(const char *path, const char *why, char *text)
{
    char says[PS_TEXT_BYTES];
    (void)snprintf(says, sizeof(says),
                   "version %s does not know its content (%.90s): use the version that wrote it, or name an "
                   "older checkpoint",
                   mr_version_text(), why);
    ps_text_path(text, path, says);
    return MR_CHECKPOINT_NEWER;
}

void ps_json_same(struct ps_json_parse *p, char *again, const char *json, size_t json_bytes)
{
    if (!p->bad && !again)
        ps_json_refuse(p, "no memory to check its text");
    else if (!p->bad && (strlen(again) != json_bytes || memcmp(again, json, json_bytes) != 0))
        ps_json_refuse(p, "its text is not as it was written");
    free(again);
}
