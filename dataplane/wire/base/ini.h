/* Reads INI files: sections of `key = value`, comments after # or ;, lines as inih takes them. A comment
 * begins a line, or stands after a value and a space; a value that is # alone is one. What all of the
 * project's files of keys have in common: where a mistake is, and that the first one counts. Any thread. */
#ifndef MR_INI_H
#define MR_INI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define MR_INI_LINE_MAX 512 /* bytes of one line */
#define MR_INI_WHY_MAX  480 /* bytes of what a handler has against a value */

enum mr_ini {
    MR_INI_OK,
    MR_INI_WRONG,      /* there is a mistake in it */
    MR_INI_UNREADABLE, /* the file could not be read */
};

/* Takes one value. False: it is refused, and `why` (MR_INI_WHY_MAX) has the reason, without the place. */
typedef bool (*mr_ini_handler)(void *arg, uint32_t line, const char *section, const char *name,
                               const char *value, char *why);

/* Reads `file`, which messages call `path`, to its end; after a mistake no more values are taken for good,
 * but the handler may still be called. MR_INI_WRONG: `error` is "path:line: reason" of the first mistake.
 * MR_INI_UNREADABLE: `error` says so. */
enum mr_ini mr_ini_read(FILE *file, const char *path, mr_ini_handler handler, void *arg, char *error,
                        size_t error_bytes);

#endif
