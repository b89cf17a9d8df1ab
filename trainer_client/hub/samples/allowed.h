/* The directories below which trainers may name files. A hub reads with its own rights what any trainer
 * names. */
#ifndef HUB_ALLOWED_H
#define HUB_ALLOWED_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"

#define HUB_ALLOWED_MAX 64u

struct hub_allowed;

/* `directories`: of the command line; relative ones are below the working directory. NULL, and `error`
 * (HUB_ERROR_BYTES) says why, if one of them is no directory or there is no memory. */
struct hub_allowed *hub_allowed_create(const char *const *directories, uint32_t count, char *error);
void hub_allowed_destroy(struct hub_allowed *allowed); /* NULL is fine */

/* Opens a file or directory below one of the directories, with open()'s flags. A path that leads out of all
 * of them, also by a link, is refused with EACCES. `allowed` is NULL: any path. Returns -1 with errno. */
int hub_allowed_open(const struct hub_allowed *allowed, const char *path, int flags);
/* Whether the path, or a pattern, begins with one of the directories; nothing is looked up. If not, `error`
 * says so, and what to do. */
enum mr_status hub_allowed_check(const struct hub_allowed *allowed, const char *path, char *error);

#endif
