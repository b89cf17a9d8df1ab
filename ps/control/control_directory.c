/* Directories of checkpoints: which ones a client may name, and who writes to them. */
#include <ctype.h>
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

/* The file `history` has the name of a directory in a line. */
static bool has_control_character(const char *path)
{
    while (*path != '\0' && !iscntrl((unsigned char)*path))
        path++;
    return *path != '\0';
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
    if (allowed[0] == '\0' || ps_store_url_is_remote(allowed) || !resolve(allowed, base))
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
    return config->checkpoint_directory[0] != '\0' && !ps_store_url_is_remote(config->checkpoint_directory) &&
           resolve(config->checkpoint_directory, base) && strcmp(base, path) == 0;
}

/* Whether a URL names that very directory of the configuration. */
static bool is_the_one(const char *configured, const char *url)
{
    struct ps_store_url u;
    char whole[2 * PS_STORE_URL_BYTES], ignored[PS_TEXT_BYTES];
    return ps_store_url_allows(configured, url, whole, sizeof(whole)) &&
           ps_store_url_parse(configured, &u, ignored) &&
           strncmp(whole, u.directory, strlen(u.directory)) == 0 &&
           strchr("?", whole[strlen(u.directory)]) != NULL;
}

static bool allows(const char *allowed, const char *url, char *out)
{
    return ps_store_url_allows(allowed, url, out, PS_DIRECTORY_BYTES);
}

/* What is saved to checkpoint.directory is copied to checkpoint.remote. */
static enum mr_status check_url(const struct ps_config *config, const char *url, char *out, char *text)
{
    if (is_the_one(config->checkpoint_directory, url) || is_the_one(config->checkpoint_remote, url)) {
        snprintf(out, PS_DIRECTORY_BYTES, "%s", config->checkpoint_directory);
        return MR_OK;
    }
    if (allows(config->checkpoint_directory, url, out))
        return MR_OK;
    for (uint32_t i = 0; i < config->checkpoint_allow.count; i++)
        if (allows(config->checkpoint_allow.values[i], url, out))
            return MR_OK;
    snprintf(text, PS_CONTROL_TEXT_BYTES,
             "%.160s is not checkpoint.directory, checkpoint.remote or a URL listed as checkpoint.allow, nor "
             "below one, with the same user and endpoint: list it in the server's configuration",
             url);
    return MR_INVALID_ARGUMENT;
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
    if (has_control_character(path)) {
        snprintf(text, PS_CONTROL_TEXT_BYTES,
                 "%.160s: a part of its path without links has a control character: rename it", meant);
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

enum mr_status ps_control_check_listed(const struct ps_config *config, const char *directory,
                                       char text[PS_CONTROL_TEXT_BYTES])
{
    char meant[PS_DIRECTORY_BYTES], base[PATH_MAX];
    const enum mr_status status = ps_control_check_directory(config, directory, meant, text);
    if (status != MR_OK)
        return status;
    const bool is_remote = ps_store_url_is_remote(meant);
    bool is_listed = strcmp(meant, config->checkpoint_directory) == 0;
    for (uint32_t i = 0; i < config->checkpoint_allow.count && !is_listed; i++) {
        const char *allowed = config->checkpoint_allow.values[i];
        if (ps_store_url_is_remote(allowed) != is_remote)
            continue;
        is_listed =
            is_remote ? is_the_one(allowed, meant) : resolve(allowed, base) && strcmp(base, meant) == 0;
    }
    if (is_listed)
        return MR_OK;
    snprintf(text, PS_CONTROL_TEXT_BYTES,
             "%.160s is below a directory of the server's configuration, and none that it lists: to save "
             "there needs "
             "an operator's key, or a line checkpoint.allow",
             meant);
    return MR_UNAUTHORIZED;
}

/* A restore reads what is there, not what was copied there. */
enum mr_status ps_control_check_source(const struct ps_config *config, const char *directory,
                                       char out[PS_DIRECTORY_BYTES], char text[PS_CONTROL_TEXT_BYTES])
{
    if (!ps_store_url_is_remote(directory) || !is_the_one(config->checkpoint_remote, directory))
        return ps_control_check_directory(config, directory, out, text);
    if (snprintf(out, PS_DIRECTORY_BYTES, "%s", config->checkpoint_remote) < PS_DIRECTORY_BYTES)
        return MR_OK;
    snprintf(text, PS_CONTROL_TEXT_BYTES,
             "checkpoint.remote is longer than %d bytes: millrace ckpt pull copies it",
             PS_DIRECTORY_BYTES - 1);
    return MR_INVALID_ARGUMENT;
}

enum mr_status ps_control_place_partial(const struct ps_config *config, struct ps_save_request *request,
                                        char text[PS_CONTROL_TEXT_BYTES])
{
    char base[PS_DIRECTORY_BYTES];
    enum mr_status status = ps_control_check_directory(config, request->directory, base, text);
    if (status != MR_OK)
        return status;
    request->is_kept = strcmp(base, config->checkpoint_directory) == 0;
    if (!ps_store_url_join(base, PS_PARTIAL_NAME, request->directory, PS_DIRECTORY_BYTES)) {
        snprintf(text, PS_CONTROL_TEXT_BYTES, "%.160s/" PS_PARTIAL_NAME " is longer than %d bytes", base,
                 PS_DIRECTORY_BYTES - 1);
        return MR_INVALID_ARGUMENT;
    }
    if (!ps_store_url_is_remote(base) && mkdir(base, PS_DIRECTORY_MODE) != 0 && errno != EEXIST) {
        ps_text_io(text, "make directory", base, errno);
        return MR_IO_ERROR;
    }
    return MR_OK;
}

/* ---- numbers of checkpoints in stores ---- */

static struct ps_last_id *find_last_id(struct ps_control *c, const char *directory)
{
    for (uint32_t i = 0; i < PS_LAST_IDS; i++)
        if (strcmp(c->last_ids[i].directory, directory) == 0)
            return &c->last_ids[i];
    return NULL;
}

/* The first place is the configured directory's, which is asked at the start alone; the others are taken in
 * turn. */
static struct ps_last_id *new_last_id(struct ps_control *c, const char *directory)
{
    const bool is_own = strcmp(directory, c->node->config->checkpoint_directory) == 0;
    struct ps_last_id *last = &c->last_ids[is_own ? 0 : 1 + c->last_id_count++ % (PS_LAST_IDS - 1)];
    *last = (struct ps_last_id){0};
    snprintf(last->directory, sizeof(last->directory), "%s", directory);
    return last;
}

void ps_control_note_id(struct ps_control *c, const char *directory, uint64_t id)
{
    if (!ps_store_url_is_remote(directory))
        return;
    struct ps_last_id *last = find_last_id(c, directory);
    if (last == NULL)
        last = new_last_id(c, directory);
    last->id = id > last->id ? id : last->id;
}

enum mr_status ps_control_learn_ids(struct ps_control *c, char *text)
{
    const char *directory = c->node->config->checkpoint_directory;
    uint64_t next;
    if (!ps_store_url_is_remote(directory))
        return MR_OK;
    const enum mr_status status = ps_checkpoint_next_id(c->own.store, c->own.path, &next, text);
    if (status == MR_OK)
        ps_control_note_id(c, directory, next - 1);
    return status;
}

/* The store did not say when it was asked. Only at the end of the node a save may wait for it. */
static enum mr_status ask_again(struct ps_control *c, const char *directory, const struct ps_place *place,
                                uint64_t *id, char *text)
{
    if (!c->is_in_thread)
        return ps_checkpoint_next_id(place->store, place->path, id, text);
    ps_control_ask_ids(c, directory);
    snprintf(text, PS_CONTROL_TEXT_BYTES,
             "%.160s: which numbers it has is not known; the store is asked now: save again", directory);
    return MR_INVALID_ARGUMENT;
}

enum mr_status ps_control_next_id(struct ps_control *c, const char *directory, const struct ps_place *place,
                                  uint64_t *id, char *text)
{
    const struct ps_last_id *last = find_last_id(c, directory);
    if (place->stop == NULL)
        return ps_checkpoint_next_id(place->store, place->path, id, text);
    if (last == NULL)
        return ask_again(c, directory, place, id, text);
    if (last->id == (uint64_t)PS_CHECKPOINT_ID_MAX) {
        snprintf(text, PS_CONTROL_TEXT_BYTES,
                 "%.160s: it has the checkpoint of the highest number: save to another directory", directory);
        return MR_INVALID_ARGUMENT;
    }
    *id = last->id + 1;
    return MR_OK;
}

/* ---- who writes to them ---- */

enum mr_status ps_control_claim_directory(struct ps_control *c, char *text)
{
    char who[64];
    const char *directory = c->node->config->checkpoint_directory;
    enum mr_status status = ps_stores_place(c->stores, directory, PS_PLACE_READ, &c->own, text);
    if (status == MR_OK)
        status = ps_stores_place(c->stores, directory, PS_PLACE_SCRUB, &c->scrubbed, text);
    if (status != MR_OK || directory[0] == '\0' || ps_store_url_is_remote(directory))
        return status;
    ps_checkpoint_unlock(c->directory_lock);
    snprintf(who, sizeof(who), "millraced %s", c->node->config->node_name);
    return ps_checkpoint_lock(c->node->config->checkpoint_directory, who, &c->directory_lock, text);
}

enum mr_status ps_control_lock_directory(struct ps_control *c, const char *directory, char *text)
{
    char who[64];
    if (ps_store_url_is_remote(directory) || ps_checkpoint_lock_is_on(c->directory_lock, directory))
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
