/* Reads INI files: sections of `key = value`, comments after # or ;, lines as inih takes them. What all of
 * the project's files of keys have in common: where a mistake is, and that the first one counts. Any thread.
 */
#ifndef MR_INI_H
#define MR_INI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "dataplane/wire/format/mr_status.h"

#define MR_INI_LINE_MAX 512 /* bytes of one line */
#define MR_INI_WHY_MAX  480 /* bytes of what a handler has against a value */

/* Takes one value. False: it is refused, and `why` (MR_INI_WHY_MAX) has the reason, without the place. */
typedef bool (*mr_ini_handler)(void *arg, uint32_t line, const char *section, const char *name,
                               const char *value, char *why);

/* Reads `file`, which messages call `path`, to its end; after a mistake no more values are taken for good,
 * but the handler may still be called. MR_INVALID_ARGUMENT: `error` is "path:line: reason" of the first
 * mistake. MR_IO_ERROR: the file could not be read. */
enum mr_status mr_ini_read(FILE *file, const char *path, mr_ini_handler handler, void *arg, char *error,
                           size_t error_bytes);

#endif
