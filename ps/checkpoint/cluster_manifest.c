#include "ps/checkpoint/cluster_manifest.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ps/checkpoint/checkpoint_manifest.h"
#include "ps/checkpoint/manifest_json.h"

#define FORMAT_NAME   "millrace-cluster-checkpoint"
#define OWNERS_DIGITS (2u * MR_PARTITION_COUNT) /* two for each partition */
#define BYTES_MAX     (1u << 20)

bool ps_cluster_part_name_is_good(const char *name)
{
    const size_t bytes = strnlen(name, PS_CLUSTER_PART_NAME_BYTES);
    if (bytes == 0 || bytes == PS_CLUSTER_PART_NAME_BYTES || name[0] == '.')
        return false;
    for (const char *c = name; *c != '\0'; c++)
        if (!isalnum((unsigned char)*c) && strchr("-_.", *c) == NULL)
            return false;
    return ps_name_published(name) == 0 && ps_name_cluster(name) == 0;
}

uint32_t ps_cluster_manifest_find(const struct ps_cluster_manifest *m, const char *name)
{
    uint32_t i = 0;
    while (i < m->part_count && strcmp(m->parts[i].name, name) != 0)
        i++;
    return i;
}

/* ---- printing ---- */

static json_t *parts_json(const struct ps_cluster_manifest *m)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < m->part_count; i++) {
        json_t *part = json_pack("{s:s, s:I, s:o}", "name", m->parts[i].name, "cores",
                                 (json_int_t)m->parts[i].core_count, "manifest_hash",
                                 ps_json_hash(m->parts[i].manifest_hash));
        if (json_array_append_new(list, part) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

char *ps_cluster_manifest_seal(struct ps_cluster_manifest *m)
{
    char owners[OWNERS_DIGITS + 1], *text = NULL;
    for (uint32_t p = 0; p < MR_PARTITION_COUNT; p++)
        (void)snprintf(owners + 2u * p, 3, "%02x", m->owner[p]);
    json_t *root = json_pack("{s:s, s:I, s:I, s:o, s:b, s:I, s:o, s:s}", "format", FORMAT_NAME, "version",
                             (json_int_t)m->version, "id", (json_int_t)m->id, "step",
                             json_sprintf("%" PRIu64, m->step), "at_step", m->is_at_step, "time",
                             (json_int_t)m->time_s, "nodes", parts_json(m), "owners", owners);
    if (root && (m->version == PS_CLUSTER_FORMAT_1 || ps_json_set_needs(root, m->needs, m->written_by) == 0))
        text = ps_json_seal(root, &m->hash);
    json_decref(root);
    return text;
}

/* ---- parsing ---- */

static void parse_parts(struct ps_json_parse *p, const json_t *root, struct ps_cluster_manifest *m)
{
    const json_t *list = ps_json_array(p, root, "nodes", 1, PS_CLUSTER_PARTS_MAX);
    for (uint32_t i = 0; i < json_array_size(list) && !p->bad; i++) {
        const json_t *o = json_array_get(list, i);
        struct ps_cluster_part *part = &m->parts[i];
        const char *name = ps_json_string(p, o, "name");
        if (!p->bad && (!ps_cluster_part_name_is_good(name) || ps_cluster_manifest_find(m, name) < i))
            ps_json_refuse(p, "\"%.63s\" is no name of a node, or comes twice", name);
        (void)snprintf(part->name, sizeof(part->name), "%s", p->bad ? "" : name);
        part->core_count = (uint32_t)ps_json_integer(p, o, "cores", 1, MR_CORE_MAX);
        part->manifest_hash = ps_json_get_hash(p, o, "manifest_hash");
        m->part_count = i + 1;
    }
}

static uint32_t hex_value(char c)
{
    return c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
           : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a') + 10u
                                  : 16u;
}

static void parse_owners(struct ps_json_parse *p, const json_t *root, struct ps_cluster_manifest *m)
{
    const char *digits = ps_json_string(p, root, "owners");
    if (!p->bad && strlen(digits) != OWNERS_DIGITS)
        ps_json_refuse(p, "\"owners\" must have %u digits", OWNERS_DIGITS);
    for (uint32_t i = 0; i < MR_PARTITION_COUNT && !p->bad; i++) {
        const uint32_t high = hex_value(digits[2u * i]), low = hex_value(digits[2u * i + 1]);
        if (high > 15 || low > 15 || 16u * high + low >= m->part_count)
            ps_json_refuse(p, "\"owners\" names a node for partition %" PRIu32 " that is not in \"nodes\"",
                           i);
        m->owner[i] = (uint8_t)(16u * high + low);
    }
}

static void parse_root(struct ps_json_parse *p, json_t *root, struct ps_cluster_manifest *m)
{
    m->version = (uint32_t)ps_json_integer(p, root, "version", 1, PS_CLUSTER_FORMAT_VERSION);
    m->hash = ps_json_own_hash(p, root);
    if (!p->bad && m->version > PS_CLUSTER_FORMAT_1)
        m->needs = ps_json_get_needs(p, root, m->written_by);
    if (p->bad)
        return;
    m->id = ps_json_integer(p, root, "id", 1, (uint64_t)PS_CHECKPOINT_ID_MAX);
    m->step = ps_json_u64(p, root, "step");
    const json_t *at_step = json_object_get(root, "at_step");
    if (!json_is_boolean(at_step))
        ps_json_refuse(p, "\"at_step\" must be true or false");
    m->is_at_step = json_is_true(at_step);
    m->time_s = ps_json_integer(p, root, "time", 0, INT64_MAX);
    parse_parts(p, root, m);
    parse_owners(p, root, m);
}

static bool is_of_format(struct ps_json_parse *p, const json_t *root)
{
    if (strcmp(ps_json_string(p, root, "format"), FORMAT_NAME) != 0)
        ps_json_refuse(p, "\"format\" must be \"%s\"", FORMAT_NAME);
    return !p->bad;
}

bool ps_cluster_manifest_parse(const char *json, size_t json_bytes, struct ps_cluster_manifest *out,
                               char *text)
{
    struct ps_json_parse p = {0};
    json_error_t error;
    json_t *root = json_loadb(json, json_bytes, JSON_REJECT_DUPLICATES, &error);
    p.text = text;
    *out = (struct ps_cluster_manifest){0};
    if (!root) {
        ps_json_refuse(&p, "line %d: %s", error.line, error.text);
        return false;
    }
    if (is_of_format(&p, root))
        parse_root(&p, root, out);
    json_decref(root);
    const struct ps_hash hash = out->hash;
    ps_json_same(&p, p.bad ? NULL : ps_cluster_manifest_seal(out), json, json_bytes);
    out->hash = hash;
    return !p.bad;
}

/* Whether the text is of a later version, in the fields that all versions share. */
static bool is_newer(const char *json, size_t json_bytes)
{
    char ignored[PS_TEXT_BYTES];
    struct ps_json_parse p = {.text = ignored};
    json_t *root = json_loadb(json, json_bytes, JSON_REJECT_DUPLICATES, NULL);
    const bool newer = is_of_format(&p, root) &&
                       ps_json_integer(&p, root, "version", 1, UINT32_MAX) > PS_CLUSTER_FORMAT_VERSION;
    json_decref(root);
    return newer && !p.bad;
}

/* ---- the file ---- */

bool ps_cluster_manifest_is_there(const struct ps_store *store, const char *directory, uint64_t id)
{
    char path[PS_PATH_BYTES];
    struct ps_store_file *file;
    uint64_t bytes;
    if (!ps_path_cluster(directory, id, path) || store->open(store->self, path, &file, &bytes) != 0)
        return false;
    (void)store->close(file);
    return true;
}

static enum mr_status parse_file(const char *json, size_t bytes, const char *path, uint64_t id,
                                 struct ps_cluster_manifest *out, char *text)
{
    char why[PS_TEXT_BYTES];
    if (!ps_cluster_manifest_parse(json, bytes, out, why)) {
        if (is_newer(json, bytes) || ps_json_is_sealed(json, bytes))
            return ps_json_unknown(path, why, text);
        return ps_checkpoint_corrupt(text, path, why);
    }
    return out->id == id ? MR_OK : ps_checkpoint_corrupt(text, path, "it belongs to another checkpoint");
}

enum mr_status ps_cluster_manifest_read(const struct ps_store *store, const char *directory, uint64_t id,
                                        struct ps_cluster_manifest *out, char *text)
{
    char path[PS_PATH_BYTES];
    struct ps_store_file *file;
    uint64_t bytes = 0;
    if (!ps_path_cluster(directory, id, path))
        return ps_checkpoint_fail(text, "open", directory, -ENAMETOOLONG);
    int error = store->open(store->self, path, &file, &bytes);
    if (error == -ENOENT) {
        ps_text_path(text, path,
                     "there is no such checkpoint; millrace ckpt list shows those of its directory");
        return MR_CHECKPOINT_NOT_FOUND;
    }
    if (error != 0)
        return ps_checkpoint_fail(text, "open", path, error);
    const bool fits = bytes > 0 && bytes <= BYTES_MAX;
    char *json = fits ? malloc(bytes) : NULL;
    if (fits)
        error = json ? ps_store_read_all(store, file, json, bytes, 0) : -ENOMEM;
    (void)store->close(file);
    enum mr_status status = MR_OK;
    if (!fits)
        status = ps_checkpoint_corrupt(text, path, bytes == 0 ? "it is empty" : "it is too long");
    else if (error != 0)
        status = ps_checkpoint_fail(text, "read", path, error);
    else
        status = parse_file(json, bytes, path, id, out, text);
    free(json);
    return status;
}

/* The one that is there is this one, whoever has written it, at whatever time. */
static enum mr_status compare(const struct ps_store *store, const char *directory,
                              const struct ps_cluster_manifest *m, const char *path, char *text)
{
    struct ps_cluster_manifest *found = calloc(1, sizeof(*found));
    if (!found)
        return ps_checkpoint_fail(text, "read", path, -ENOMEM);
    const enum mr_status status = ps_cluster_manifest_read(store, directory, m->id, found, text);
    bool is_same = status == MR_OK && found->part_count == m->part_count && found->step == m->step &&
                   found->is_at_step == m->is_at_step &&
                   memcmp(found->owner, m->owner, sizeof(m->owner)) == 0;
    for (uint32_t i = 0; i < m->part_count && is_same; i++)
        is_same = strcmp(found->parts[i].name, m->parts[i].name) == 0 &&
                  found->parts[i].core_count == m->parts[i].core_count &&
                  ps_hash_equal(found->parts[i].manifest_hash, m->parts[i].manifest_hash);
    free(found);
    if (status != MR_OK || is_same)
        return status;
    ps_text_path(text, path,
                 "another checkpoint of this number is there: give each cluster its own directory");
    return MR_IO_ERROR;
}

enum mr_status ps_cluster_manifest_write(const struct ps_store *store, const char *directory,
                                         struct ps_cluster_manifest *m, char *text)
{
    char path[PS_PATH_BYTES];
    m->version = m->needs != 0 ? PS_CLUSTER_FORMAT_VERSION : PS_CLUSTER_FORMAT_1;
    if (m->needs != 0 && m->written_by[0] == '\0') /* a copy keeps whose it is */
        (void)snprintf(m->written_by, sizeof(m->written_by), "%s", mr_version_text());
    char *json = ps_cluster_manifest_seal(m);
    if (!json)
        return ps_checkpoint_fail(text, "write", directory, -ENOMEM);
    const int error = ps_path_cluster(directory, m->id, path)
                          ? ps_store_put_new(store, path, json, strlen(json))
                          : -ENAMETOOLONG;
    free(json);
    if (error == 0)
        return MR_OK;
    if (error == -EEXIST)
        return compare(store, directory, m, path, text);
    ps_text_io(text, "write", path, -error);
    return MR_IO_ERROR;
}
