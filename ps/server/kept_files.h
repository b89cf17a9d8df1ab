/* Files with secrets that a node reads only when it starts: a reload says which have changed since. main()'s
 * thread. */
#ifndef PS_KEPT_FILES_H
#define PS_KEPT_FILES_H

#include <sys/stat.h>
#include "ps/config/config.h"

#define PS_KEPT_FILES 2u

struct ps_kept_files {
    struct stat at_start[PS_KEPT_FILES]; /* zeros: the file was missing */
};

/* Notes the files that the configuration names. */
void ps_kept_files_note(struct ps_kept_files *files, const struct ps_config *config);
/* Logs a warning about each that is another one now, has changed, or is missing. Returns their number. */
uint32_t ps_kept_files_warn(const struct ps_kept_files *files, const struct ps_config *config);

#endif
