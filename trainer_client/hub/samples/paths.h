/* Which files a plan's path stands for. */
#ifndef HUB_PATHS_H
#define HUB_PATHS_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"
#include "trainer_client/hub/samples/allowed.h"

#define HUB_FILES_MAX 512u

struct hub_paths {
    char **all; /* each once, in order */
    uint32_t count;
};

/* The file that has `path` for its name; where there is none, those of a list of names and glob(7) patterns
 * with commas between them: by name within a pattern, in the order of the list. A name that is no pattern
 * need not be there. MR_INVALID_ARGUMENT: a pattern matches nothing, or there are too many files; `error`
 * (HUB_ERROR_BYTES) says so. MR_UNAUTHORIZED: one of them is not below the directories that are allowed.
 * MR_NO_MEMORY. */
enum mr_status hub_paths_expand(const char *path, const struct hub_allowed *allowed, struct hub_paths *out,
                                char *error);
void hub_paths_free(struct hub_paths *paths); /* all zero is fine */

#endif
