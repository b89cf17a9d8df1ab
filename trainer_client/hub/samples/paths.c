#include "trainer_client/hub/samples/paths.h"

#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "trainer_client/hub/samples/sample_file.h"

void hub_paths_free(struct hub_paths *paths)
{
    for (uint32_t i = 0; i < paths->count; i++)
        free(paths->all[i]);
    free(paths->all);
    *paths = (struct hub_paths){0};
}

static bool is_there(const struct hub_paths *paths, const char *path)
{
    for (uint32_t i = 0; i < paths->count; i++)
        if (strcmp(paths->all[i], path) == 0)
            return true;
    return false;
}

static enum mr_status paths_add(struct hub_paths *paths, const char *path, char *error)
{
    if (is_there(paths, path))
        return MR_OK;
    if (paths->count == HUB_FILES_MAX) {
        snprintf(error, HUB_ERROR_BYTES,
                 "there are more than %u files up to %.200s: put some of them together", HUB_FILES_MAX, path);
        return MR_INVALID_ARGUMENT;
    }
    char *copy = strdup(path);
    if (copy == NULL) {
        snprintf(error, HUB_ERROR_BYTES, "no memory");
        return MR_NO_MEMORY;
    }
    paths->all[paths->count++] = copy;
    return MR_OK;
}

/* ---- glob(), which looks only into directories that are allowed ---- */

static _Thread_local const struct hub_allowed *glob_allowed;

static void *glob_open(const char *path)
{
    const int fd = hub_allowed_open(glob_allowed, path, O_RDONLY | O_DIRECTORY);
    DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;
    if (directory == NULL && fd >= 0)
        close(fd);
    return directory;
}

static struct dirent *glob_next(void *directory)
{
    return readdir(directory);
}

static void glob_close(void *directory)
{
    closedir(directory);
}

static int glob_stat(const char *restrict path, struct stat *restrict st)
{
    const int fd = hub_allowed_open(glob_allowed, path, O_PATH);
    if (fd < 0)
        return -1;
    const int result = fstat(fd, st);
    close(fd);
    return result;
}

static int glob_look(const char *pattern, const struct hub_allowed *allowed, glob_t *found)
{
    *found = (glob_t){.gl_opendir = glob_open,
                      .gl_readdir = glob_next,
                      .gl_closedir = glob_close,
                      .gl_stat = glob_stat,
                      .gl_lstat = glob_stat};
    glob_allowed = allowed;
    /* in the order of the locale "C": no program sets another */
    return glob(pattern, GLOB_ALTDIRFUNC, NULL, found);
}

static enum mr_status add_pattern(struct hub_paths *paths, const char *pattern,
                                  const struct hub_allowed *allowed, char *error)
{
    glob_t found;
    enum mr_status status = hub_allowed_check(allowed, pattern, error);
    if (status != MR_OK)
        return status;
    if (strpbrk(pattern, "*?[") == NULL)
        return paths_add(paths, pattern, error);
    const int outcome = glob_look(pattern, allowed, &found);
    if (outcome == GLOB_NOSPACE) {
        snprintf(error, HUB_ERROR_BYTES, "no memory");
        status = MR_NO_MEMORY;
    } else if (outcome != 0) {
        snprintf(error, HUB_ERROR_BYTES, "no file matches %.200s; the path is one on the hub's machine",
                 pattern);
        status = MR_INVALID_ARGUMENT;
    }
    for (size_t i = 0; status == MR_OK && i < found.gl_pathc; i++)
        status = paths_add(paths, found.gl_pathv[i], error);
    if (outcome == 0)
        globfree(&found);
    return status;
}

static bool exists(const char *path, const struct hub_allowed *allowed)
{
    const int fd = hub_allowed_open(allowed, path, O_PATH);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

enum mr_status hub_paths_expand(const char *path, const struct hub_allowed *allowed, struct hub_paths *out,
                                char *error)
{
    enum mr_status status = MR_OK;
    struct hub_paths paths = {.all = calloc(HUB_FILES_MAX, sizeof(*paths.all))};
    char *list = strdup(path), *rest = list;
    if (paths.all == NULL || list == NULL) {
        snprintf(error, HUB_ERROR_BYTES, "no memory");
        status = MR_NO_MEMORY;
    } else if (exists(path, allowed)) {
        status = paths_add(&paths, path, error);
    } else {
        for (const char *one; status == MR_OK && (one = strsep(&rest, ",")) != NULL;)
            if (one[0] != '\0')
                status = add_pattern(&paths, one, allowed, error);
    }
    if (status == MR_OK && paths.count == 0)
        status = hub_allowed_check(allowed, path, error);
    if (status == MR_OK && paths.count == 0)
        status = paths_add(&paths, path, error); /* which opening it refuses */
    free(list);
    if (status == MR_OK)
        *out = paths;
    else
        hub_paths_free(&paths);
    return status;
}
