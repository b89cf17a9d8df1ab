/* The tables that `millrace ctl restore` is asked for. Pure. */
#ifndef TOOL_RESTORE_ARGS_H
#define TOOL_RESTORE_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include "millrace_admin.h"

/* "NAME", "NAME:NEW" or "NAME=NEW" into a pair of names that point into `buffer`, which holds a copy of
 * `text` (buffer_bytes of room). Names may hold colons themselves: where there is a '=', colons mean nothing.
 * False with one line in `error`. */
bool tool_restore_name_parse(const char *text, char *buffer, size_t buffer_bytes, struct mr_restore_name *out,
                             char *error, size_t error_bytes);

#endif
