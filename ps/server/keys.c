#include "ps/server/keys.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "dataplane/wire/base/log.h"
#include "dataplane/wire/session/key_file.h"
#include "ps/config/config_rules.h"

struct reading {
    struct ps_keys *keys;
    const char *paths[MR_PSK_MAX];
    char next_paths[MR_PSK_MAX][PS_CONFIG_VALUE_MAX + 8]; /* what paths of successors point to */
    char *error;
    bool is_reload;
};

static bool is_missing(const char *path)
{
    return access(path, F_OK) != 0 && errno == ENOENT;
}

/* Only a warning: what is in place continues to work. */
static void warn_of_readers(const char *path)
{
    if (mr_key_file_is_exposed(path))
        mr_log_with(MR_LOG_WARNING, MR_LOG_FIELDS({"path", .text = path}), "key_file_exposed",
                    "key file %s can be read by other users of this machine, or changed: chmod 600 %s (640 "
                    "if its group is "
                    "the node's)",
                    path, path);
}

/* The same key twice is fine while one file takes the other's place; with two roles nobody could say which
 * one counts. */
static enum mr_status check_roles(const struct reading *r, uint32_t added)
{
    const struct ps_keys *keys = r->keys;
    for (uint32_t i = 0; i < added; i++) {
        if (memcmp(keys->psks[i], keys->psks[added], MR_PSK_BYTES) == 0 &&
            keys->roles[i] != keys->roles[added]) {
            snprintf(
                r->error, PS_KEYS_ERROR_BYTES,
                "key files %.180s and %.180s hold the same key, with the roles %s and %s: make another one",
                r->paths[i], r->paths[added], mr_role_name((enum mr_role)keys->roles[i]),
                mr_role_name((enum mr_role)keys->roles[added]));
            return MR_INVALID_ARGUMENT;
        }
    }
    return MR_OK;
}

static enum mr_status read_key(struct reading *r, const char *path, enum mr_role role)
{
    struct ps_keys *keys = r->keys;
    if (keys->count == MR_PSK_MAX) {
        snprintf(r->error, PS_KEYS_ERROR_BYTES, "%.200s: a node takes at most %u keys at once", path,
                 MR_PSK_MAX);
        return MR_INVALID_ARGUMENT;
    }
    enum mr_status status = mr_key_file_read(path, keys->psks[keys->count], r->error, PS_KEYS_ERROR_BYTES);
    if (status != MR_OK)
        return status;
    warn_of_readers(path);
    r->paths[keys->count] = path;
    keys->roles[keys->count] = (uint8_t)role;
    status = check_roles(r, keys->count);
    keys->count += status == MR_OK ? 1 : 0;
    return status;
}

/* Once a node serves, who removes a file wants its key to end. */
static enum mr_status read_present(struct reading *r, const char *path, enum mr_role role)
{
    char *missing = r->keys->missing;
    const size_t at = strlen(missing);
    if (!r->is_reload || !is_missing(path))
        return read_key(r, path, role);
    snprintf(missing + at, sizeof(r->keys->missing) - at, "%s%s (%s)", at > 0 ? ", " : "", path,
             mr_role_name(role));
    return MR_OK;
}

/* Files of keys to come are there or not. */
static enum mr_status read_next(struct reading *r, const char *path, enum mr_role role)
{
    return is_missing(path) ? MR_OK : read_key(r, path, role);
}

static enum mr_status read_listed(struct reading *r, const char *value, uint32_t number)
{
    enum mr_role role;
    const char *path = ps_role_file_parse(value, &role);
    char *next = r->next_paths[number];
    enum mr_status status = read_present(r, path, role);
    if (status != MR_OK)
        return status;
    snprintf(next, sizeof(r->next_paths[0]), "%s.next", path);
    return read_next(r, next, role);
}

static enum mr_status read_all(struct reading *r, const struct ps_config *config)
{
    enum mr_status status = MR_OK;
    if (config->node_key_file[0] != '\0')
        status = read_present(r, config->node_key_file, MR_ROLE_OPERATOR);
    if (status == MR_OK && config->node_key_file_next[0] != '\0')
        status = read_next(r, config->node_key_file_next, MR_ROLE_OPERATOR);
    for (uint32_t i = 0; i < config->node_key.count && status == MR_OK; i++)
        status = read_listed(r, config->node_key.values[i], i);
    return status;
}

/* Workers hold trainers' keys, and the node calls them under its first one. */
static void put_first_trainer_first(struct ps_keys *keys)
{
    for (uint32_t i = 1; i < keys->count && keys->roles[0] != MR_ROLE_TRAINER; i++) {
        if (keys->roles[i] == MR_ROLE_TRAINER) {
            uint8_t psk[MR_PSK_BYTES];
            memcpy(psk, keys->psks[i], MR_PSK_BYTES);
            memcpy(keys->psks[i], keys->psks[0], MR_PSK_BYTES);
            memcpy(keys->psks[0], psk, MR_PSK_BYTES);
            keys->roles[i] = keys->roles[0];
            keys->roles[0] = MR_ROLE_TRAINER;
            explicit_bzero(psk, sizeof(psk));
        }
    }
}

static enum mr_status keys_read(const struct ps_config *config, bool is_reload, struct ps_keys *out,
                                char *error)
{
    struct reading r = {.keys = out, .is_reload = is_reload};
    r.error = error;
    memset(out, 0, sizeof(*out));
    enum mr_status status = read_all(&r, config);
    if (status != MR_OK) {
        explicit_bzero(out, sizeof(*out));
        return status;
    }
    if (config->rpc_world_size != 0)
        put_first_trainer_first(out);
    return MR_OK;
}

enum mr_status ps_keys_read(const struct ps_config *config, struct ps_keys *out,
                            char error[PS_KEYS_ERROR_BYTES])
{
    return keys_read(config, false, out, error);
}

enum mr_status ps_keys_read_again(const struct ps_config *config, bool has_keys, struct ps_keys *out,
                                  char error[PS_KEYS_ERROR_BYTES])
{
    enum mr_status status = keys_read(config, true, out, error);
    if (status == MR_OK && has_keys && out->count == 0) {
        snprintf(error, PS_KEYS_ERROR_BYTES,
                 "no key would be left, and then everybody who can reach the port could do "
                 "everything%s%.300s; to serve "
                 "without a key, restart the node",
                 out->missing[0] != '\0' ? "; these files are missing: " : "", out->missing);
        status = MR_INVALID_ARGUMENT;
    }
    return status;
}

void ps_keys_describe(const struct ps_keys *keys, char *out, size_t out_bytes)
{
    size_t at = (size_t)snprintf(out, out_bytes, "%u %s", keys->count, keys->count == 1 ? "key" : "keys");
    for (uint32_t role = 0, listed = 0; role < MR_ROLE_COUNT && at < out_bytes; role++) {
        uint32_t count = 0;
        for (uint32_t i = 0; i < keys->count; i++)
            count += keys->roles[i] == role;
        if (count > 0) {
            at += (size_t)snprintf(out + at, out_bytes - at, "%s %u %s", listed++ == 0 ? ":" : ",", count,
                                   mr_role_name((enum mr_role)role));
        }
    }
}
