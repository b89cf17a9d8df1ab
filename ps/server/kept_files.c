#include "ps/server/kept_files.h"

#include <string.h>
#include "dataplane/wire/base/log.h"

static const char *kept_file_path(const struct ps_config *config, uint32_t i)
{
    return i == 0 ? config->checkpoint_remote_credentials : config->cluster_credentials_file;
}

static void kept_file_look(const struct ps_config *config, uint32_t i, struct stat *st)
{
    const char *path = kept_file_path(config, i);
    if (path[0] == '\0' || stat(path, st) != 0)
        memset(st, 0, sizeof(*st));
}

static bool is_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

void ps_kept_files_note(struct ps_kept_files *files, const struct ps_config *config)
{
    for (uint32_t i = 0; i < PS_KEPT_FILES; i++)
        kept_file_look(config, i, &files->at_start[i]);
}

uint32_t ps_kept_files_warn(const struct ps_kept_files *files, const struct ps_config *config)
{
    uint32_t changed = 0;
    for (uint32_t i = 0; i < PS_KEPT_FILES; i++) {
        const char *path = kept_file_path(config, i);
        struct stat now;
        kept_file_look(config, i, &now);
        if (is_same_file(&now, &files->at_start[i]))
            continue;
        changed++;
        mr_log_with(
            MR_LOG_WARNING, MR_LOG_FIELDS({"path", .text = path}), "credentials_need_restart",
            "%s %s, but a node reads it only when it starts: what was in it then is used until a restart",
            path, now.st_ino == 0 ? "is missing" : "has changed");
    }
    return changed;
}
