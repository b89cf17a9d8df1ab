#include "trainer_client/hub/paths.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "trainer_client/hub/sample_file.h"

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

static enum mr_status add(struct hub_paths *paths, const char *path, char *error)
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

static enum mr_status add_pattern(struct hub_paths *paths, const char *pattern, char *error)
{
    glob_t found;
    if (strpbrk(pattern, "*?[") == NULL)
        return add(paths, pattern, error);
    int outcome =
        glob(pattern, 0, NULL, &found); /* in the order of the locale "C": no program sets another */
    enum mr_status status = MR_OK;
    if (outcome == GLOB_NOSPACE) {
        snprintf(error, HUB_ERROR_BYTES, "no memory");
        status = MR_NO_MEMORY;
    } else if (outcome != 0) {
        snprintf(error, HUB_ERROR_BYTES, "no file matches %.200s; the path is one on the hub's machine",
                 pattern);
        status = MR_INVALID_ARGUMENT;
    }
    for (size_t i = 0; status == MR_OK && i < found.gl_pathc; i++)
        status = add(paths, found.gl_pathv[i], error);
    if (outcome == 0)
        globfree(&found);
    return status;
}

enum mr_status hub_paths_expand(const char *path, struct hub_paths *out, char *error)
{
    enum mr_status status = MR_OK;
    struct hub_paths paths = {.all = calloc(HUB_FILES_MAX, sizeof(*paths.all))};
    char *list = strdup(path), *rest = list;
    if (paths.all == NULL || list == NULL) {
        snprintf(error, HUB_ERROR_BYTES, "no memory");
        status = MR_NO_MEMORY;
    } else if (access(path, F_OK) == 0) {
        status = add(&paths, path, error);
    } else {
        for (const char *one; status == MR_OK && (one = strsep(&rest, ",")) != NULL;)
            if (one[0] != '\0')
                status = add_pattern(&paths, one, error);
    }
    if (status == MR_OK && paths.count == 0)
        status = add(&paths, path, error); /* which opening it refuses */
    free(list);
    if (status == MR_OK)
        *out = paths;
    else
        hub_paths_free(&paths);
    return status;
}
