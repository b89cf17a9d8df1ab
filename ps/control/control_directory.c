/* Directories of checkpoints: which ones a client may name, and who writes to them. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "ps/checkpoint/checkpoint_format.h"
#include "ps/control/control_internal.h"
#include "ps/store/store_url.h"

/* ---- which ones a client may name ---- */

/* Whether a part of the path is "..", whose meaning depends on links. */
static bool goes_up(const char *path)
{
    for (const char *part = path; part != NULL; part = strchr(part, '/')) {
        part += *part == '/';
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0'))
            return true;
    }
    return false;
}

/* Resolves links; the last part need not exist yet. */
static bool resolve(const char *path, char out[PATH_MAX])
{
    char above[PATH_MAX];
    if (realpath(path, out) != NULL)
        return true;
    size_t bytes = strlen(path);
    while (bytes > 1 && path[bytes - 1] == '/')
        bytes--;
    size_t name = bytes;
    while (name > 0 && path[name - 1] != '/')
        name--;
    bool is_new = errno == ENOENT && bytes > name && bytes < PATH_MAX;
    snprintf(above, sizeof(above), "%.*s", (int)name, name > 0 ? path : "");
    if (!is_new || realpath(name > 0 ? above : ".", out) == NULL)
        return false;
    size_t at = strcmp(out, "/") == 0 ? 0 : strlen(out);
    return snprintf(out + at, PATH_MAX - at, "/%.*s", (int)(bytes - name), path + name) <
           (int)(PATH_MAX - at);
}

/* `path` is resolved. */
static bool is_within(const char *path, const char *allowed)
{
    char base[PATH_MAX];
    if (allowed[0] == '\0' || !resolve(allowed, base))
        return false;
    size_t bytes = strcmp(base, "/") == 0 ? 0 : strlen(base);
    return strncmp(path, base, bytes) == 0 && (path[bytes] == '\0' || path[bytes] == '/');
}

static bool is_allowed(const struct ps_config *config, const char *path)
{
    bool is_listed = is_within(path, config->checkpoint_directory);
    for (uint32_t i = 0; i < config->checkpoint_allow.count; i++)
        is_listed = is_listed || is_within(path, config->checkpoint_allow.values[i]);
    return is_listed;
}

static bool is_configured(const struct ps_config *config, const char *path)
{
    char base[PATH_MAX];
    return config->checkpoint_directory[0] != '\0' && resolve(config->checkpoint_directory, base) &&
           strcmp(base, path) == 0;
}

/* A save to the store that gets copies of the configured directory goes to that directory. */
static enum mr_status check_url(const struct ps_config *config, const char *url, char *out, char *text)
{
    struct ps_store_url remote;
    char ignored[PS_TEXT_BYTES];
    size_t bytes = strlen(url);
    while (bytes > 0 && url[bytes - 1] == '/')
        bytes--;
    bool is_remote = ps_store_url_parse(config->checkpoint_remote, &remote, ignored) &&
                     strlen(remote.directory) == bytes && strncmp(remote.directory, url, bytes) == 0;
    if (!is_remote && (config->checkpoint_remote[0] == '\0' || strcmp(url, config->checkpoint_remote) != 0)) {
        snprintf(
            text, PS_CONTROL_TEXT_BYTES,
            "%.200s is not checkpoint.remote: the server saves to its disk, and copies only to the store "
            "that its configuration names so",
            url);
        return MR_INVALID_ARGUMENT;
    }
    snprintf(out, PS_DIRECTORY_BYTES, "%s", config->checkpoint_directory);
    return MR_OK;
}

enum mr_status ps_control_check_directory(const struct ps_config *config, const char *directory,
                                          char out[PS_DIRECTORY_BYTES], char text[PS_CONTROL_TEXT_BYTES])
{
    char path[PATH_MAX];
    const char *meant = directory[0] != '\0' ? directory : config->checkpoint_directory;
    if (meant[0] == '\0') {
        snprintf(text, PS_CONTROL_TEXT_BYTES,
                 "no directory: set checkpoint.directory, or name one in the call");
        return MR_INVALID_ARGUMENT;
    }
    if (ps_store_url_is_remote(meant))
        return check_url(config, meant, out, text);
    if (strcmp(meant, config->checkpoint_directory) == 0) {
        snprintf(out, PS_DIRECTORY_BYTES, "%s", meant);
        return MR_OK;
    }
    if (goes_up(meant) || !resolve(meant, path) || !is_allowed(config, path)) {
        snprintf(
            text, PS_CONTROL_TEXT_BYTES,
            "%.160s is not below checkpoint.directory or a directory listed as checkpoint.allow (without "
            ".., wherever links lead): list it in the server's configuration",
            meant);
        return MR_INVALID_ARGUMENT;
    }
    const char *taken = is_configured(config, path) ? config->checkpoint_directory : path;
    if (snprintf(out, PS_DIRECTORY_BYTES, "%s", taken) >= PS_DIRECTORY_BYTES) {
        snprintf(text, PS_CONTROL_TEXT_BYTES, "%.160s: its path without links is longer than %d bytes", meant,
                 PS_DIRECTORY_BYTES - 1);
        return MR_INVALID_ARGUMENT;
    }
    return MR_OK;
}

enum mr_status ps_control_place_partial(const struct ps_config *config, struct ps_save_request *request,
                                        char text[PS_CONTROL_TEXT_BYTES])
{
    char base[PS_DIRECTORY_BYTES];
    enum mr_status status = ps_control_check_directory(config, request->directory, base, text);
    if (status != MR_OK)
        return status;
    request->is_kept = strcmp(base, config->checkpoint_directory) == 0;
    if (snprintf(request->directory, PS_DIRECTORY_BYTES, "%s/" PS_PARTIAL_NAME, base) >= PS_DIRECTORY_BYTES) {
        snprintf(text, PS_CONTROL_TEXT_BYTES, "%.160s/" PS_PARTIAL_NAME " is longer than %d bytes", base,
                 PS_DIRECTORY_BYTES - 1);
        return MR_INVALID_ARGUMENT;
    }
    if (mkdir(base, 0755) != 0 && errno != EEXIST) {
        ps_text_io(text, "make directory", base, errno);
        return MR_IO_ERROR;
    }
    return MR_OK;
}

/* ---- who writes to them ---- */

enum mr_status ps_control_claim_directory(struct ps_control *c, char *text)
{
    char who[64];
    if (c->node->config->checkpoint_directory[0] == '\0')
        return MR_OK;
    ps_checkpoint_unlock(c->directory_lock);
    snprintf(who, sizeof(who), "millraced %s", c->node->config->node_name);
    return ps_checkpoint_lock(c->node->config->checkpoint_directory, who, &c->directory_lock, text);
}

enum mr_status ps_control_lock_directory(struct ps_control *c, const char *directory, char *text)
{
    char who[64];
    if (ps_checkpoint_lock_is_on(c->directory_lock, directory))
        return MR_OK;
    if (strcmp(directory, c->node->config->checkpoint_directory) == 0)
        return ps_control_claim_directory(c, text); /* it was removed, or replaced by another one */
    snprintf(who, sizeof(who), "millraced %s", c->node->config->node_name);
    return ps_checkpoint_lock(directory, who, &c->save_lock, text);
}

void ps_control_unlock(struct ps_control *c)
{
    ps_checkpoint_unlock(c->save_lock);
    c->save_lock = PS_NO_LOCK;
}
