#include "ps/server/checkpoint_sync.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "dataplane/wire/base/log.h"
#include "ps/checkpoint/checkpoint.h"
#include "ps/checkpoint/checkpoint_format.h"
#include "ps/checkpoint/state_file.h"
#include "ps/control/control.h"
#include "ps/store/copier.h"

/* In checkpoint.directory while a fetch fills it: what is there is not all, as links of a chain come one
 * after the other. */
#define FETCHING_NAME "fetching"

static bool has_store(const struct ps_config *config)
{
    return config->checkpoint_remote[0] != '\0';
}

static struct ps_copier_options options_of(const struct ps_node *node)
{
    const struct ps_config *config = node->config;
    return (struct ps_copier_options){.directory = config->checkpoint_directory,
                                      .url = config->checkpoint_remote,
                                      .credentials = config->checkpoint_remote_credentials,
                                      .retention = ps_control_retention(config),
                                      .bytes_per_s_max = config->checkpoint_remote_rate_mib_s << 20,
                                      .pause_ms_max = (uint32_t)config->checkpoint_store_pause_ms,
                                      .avoid_cpus = node->cpus,
                                      .avoid_cpu_count = node->cpu_count};
}

static enum mr_status store_fail(enum mr_status status, const char *what, const char *text, char *error)
{
    (void)snprintf(error, DP_ERROR_BYTES, "checkpoint.remote: %s: %.250s%s", mr_status_text(status), text,
                   what);
    return status;
}

static bool check_one(const struct ps_config *config, const char *key, const char *url, char *error)
{
    const struct ps_remote_options options = {.credentials = config->checkpoint_remote_credentials};
    struct ps_remote *remote = NULL;
    char text[PS_TEXT_BYTES];
    if (!ps_store_url_is_remote(url))
        return true;
    const enum mr_status status = ps_remote_open(url, &options, &remote, text);
    if (status != MR_OK)
        (void)snprintf(error, DP_ERROR_BYTES, "%s: %s", key, text);
    ps_remote_close(remote);
    return status == MR_OK;
}

bool ps_checkpoint_sync_check(const struct ps_config *config, char *error)
{
    bool is_good = !has_store(config) || ps_store_url_is_remote(config->checkpoint_remote);
    if (!is_good)
        (void)snprintf(error, DP_ERROR_BYTES, "checkpoint.remote: %.200s is no URL of a store",
                       config->checkpoint_remote);
    is_good = is_good && check_one(config, "checkpoint.remote", config->checkpoint_remote, error) &&
              check_one(config, "checkpoint.directory", config->checkpoint_directory, error);
    is_good = is_good && check_one(config, "checkpoint.serve", config->checkpoint_serve, error);
    for (uint32_t i = 0; i < config->checkpoint_allow.count && is_good; i++)
        is_good = check_one(config, "checkpoint.allow", config->checkpoint_allow.values[i], error);
    return is_good;
}

/* Whether the disk has it: the named one, or any. */
static bool is_here(const char *directory, uint64_t id)
{
    uint64_t newest;
    uint32_t count = 0;
    if (id != 0)
        return ps_checkpoint_is_there(NULL, directory, id);
    return ps_checkpoint_list_all(NULL, directory, &newest, 1, &count) != 0 || count > 0;
}

enum mr_status ps_checkpoint_sync_fetch_history(const struct ps_node *node, char *error)
{
    char text[PS_TEXT_BYTES];
    uint64_t file_bytes;
    int64_t written_s;
    bool is_there = false;
    const struct ps_config *config = node->config;
    const struct ps_store *disk = ps_store_local();
    char path[PS_PATH_BYTES];
    if (!has_store(config) || strcmp(config->checkpoint_restore, "none") == 0 ||
        is_here(config->checkpoint_directory, 0) ||
        !ps_path_join(config->checkpoint_directory, PS_HISTORY_NAME, path) ||
        disk->facts(disk->self, path, &file_bytes, &written_s) == 0)
        return MR_OK;
    const struct ps_copier_options options = options_of(node);
    const enum mr_status status = ps_copier_fetch_history(&options, &is_there, text);
    if (status != MR_OK)
        return store_fail(status, "; --restore none starts empty", text, error);
    if (is_there)
        mr_log_info("history_fetched", "restore: took the history of this node from checkpoint.remote");
    return MR_OK;
}

/* ---- a fetch, and what one that failed has left ---- */

/* Whether all that the disk has was brought by a fetch that did not come to its end. */
static bool is_part_of_a_fetch(const struct ps_config *config)
{
    char path[PS_PATH_BYTES];
    uint64_t file_bytes;
    int64_t written_s;
    const char *directory = config->checkpoint_directory;
    const struct ps_store *disk = ps_store_local();
    return directory[0] != '\0' && !ps_store_url_is_remote(directory) &&
           ps_path_join(directory, FETCHING_NAME, path) &&
           disk->facts(disk->self, path, &file_bytes, &written_s) == 0 && is_here(directory, 0);
}

/* With the URL as its text, for people. */
static enum mr_status begin_fetch(const struct ps_config *config, char *error)
{
    if (is_here(config->checkpoint_directory, 0))
        return MR_OK;
    return ps_state_file_write(NULL, config->checkpoint_directory, FETCHING_NAME, config->checkpoint_remote,
                               error, DP_ERROR_BYTES);
}

enum mr_status ps_checkpoint_sync_end_fetch(const struct ps_node *node, char *error)
{
    char path[PS_PATH_BYTES];
    const char *directory = node->config->checkpoint_directory;
    const struct ps_store *disk = ps_store_local();
    if (directory[0] == '\0' || ps_store_url_is_remote(directory) ||
        !ps_path_join(directory, FETCHING_NAME, path))
        return MR_OK;
    int failed = disk->remove(disk->self, path);
    if (failed == -ENOENT)
        return MR_OK;
    if (failed == 0)
        failed = disk->sync_directory(disk->self, directory);
    if (failed == 0)
        return MR_OK;
    (void)snprintf(error, DP_ERROR_BYTES, "%.250s: cannot be removed: %s", path, strerror(-failed));
    return MR_IO_ERROR;
}

enum mr_status ps_checkpoint_sync_fetch(const struct ps_node *node, uint64_t id, char *error)
{
    char text[PS_TEXT_BYTES];
    const char *directory = node->config->checkpoint_directory;
    const bool goes_on = id == 0 && is_part_of_a_fetch(node->config);
    if (goes_on && !has_store(node->config)) {
        (void)snprintf(error, DP_ERROR_BYTES,
                       "checkpoint.directory %.200s has only a part of what was being taken from "
                       "checkpoint.remote: set checkpoint.remote again; --restore ID takes what is there, "
                       "--restore none starts empty",
                       directory);
        return MR_INVALID_ARGUMENT;
    }
    if (!has_store(node->config) || (is_here(directory, id) && !goes_on))
        return id != 0 ? ps_checkpoint_sync_end_fetch(node, error) : MR_OK;
    enum mr_status status = begin_fetch(node->config, error);
    if (status != MR_OK)
        return status;
    const struct ps_copier_options options = options_of(node);
    mr_log_info("fetching_checkpoint", "restore: there is %s in %s; asking checkpoint.remote",
                goes_on   ? "a part of a checkpoint"
                : id != 0 ? "no such checkpoint"
                          : "none",
                directory);
    status = ps_copier_fetch(&options, &id, text);
    if (status != MR_OK)
        return store_fail(status, "; --restore none starts empty", text, error);
    if (id != 0)
        mr_log_with(MR_LOG_INFO, MR_LOG_FIELDS({"checkpoint", .number = id}), "checkpoint_fetched",
                    "restore: took checkpoint %" PRIu64 " from checkpoint.remote", id);
    return ps_checkpoint_sync_end_fetch(node, error);
}

enum mr_status ps_checkpoint_sync_start(struct ps_node *node, char *error)
{
    char text[PS_TEXT_BYTES];
    if (!has_store(node->config))
        return MR_OK;
    struct ps_copier_options options = options_of(node);
    options.counters = &node->copier_counters;
    options.copied = node->control_wake;
    struct ps_copier *copier;
    const enum mr_status status = ps_copier_start(&options, &copier, text);
    if (status != MR_OK)
        return store_fail(status, "", text, error);
    atomic_store(&node->copier, copier);
    return MR_OK;
}

void ps_checkpoint_sync_stop(struct ps_node *node, uint32_t wait_s)
{
    ps_copier_stop(atomic_load(&node->copier), wait_s);
    atomic_store(&node->copier, NULL);
}
