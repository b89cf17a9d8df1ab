/* Small files of text that a node keeps beside its checkpoints, on the disk or in a store. A crash leaves the
 * old text or the new one. `store` NULL: the local files.
 */
#ifndef PS_STATE_FILE_H
#define PS_STATE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include "dataplane/wire/format/mr_status.h"
#include "ps/io/store.h"

#define PS_HISTORY_NAME "history" /* of ps/core/history.h; copies of checkpoints take it along */

#define PS_HISTORY_BYTES_MAX (3u << 20) /* with its NUL */

/* DIRECTORY is made when its last part is missing. MR_IO_ERROR, and a line in `error`. */
enum mr_status ps_state_directory(const struct ps_store *store, const char *directory, char *error,
                                  size_t error_bytes);
/* The whole file, ended by a NUL; *is_there says whether there is one. MR_IO_ERROR, and a line in `error`:
 * it cannot be read, or is longer. */
enum mr_status ps_state_file_read(const struct ps_store *store, const char *directory, const char *name,
                                  char *text, size_t text_bytes, bool *is_there, char *error,
                                  size_t error_bytes);
/* Is on disk, or in the store, when this returns. MR_IO_ERROR, and a line in `error`. */
enum mr_status ps_state_file_write(const struct ps_store *store, const char *directory, const char *name,
                                   const char *text, char *error, size_t error_bytes);

#endif
