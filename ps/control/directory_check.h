/* Which directories of this machine a client may have checkpoints saved to and restored from:
 * checkpoint.directory, those listed as checkpoint.allow, and what lies below them. Control thread.
 */
#ifndef PS_DIRECTORY_CHECK_H
#define PS_DIRECTORY_CHECK_H

#include <stddef.h>
#include "dataplane/wire/format/mr_status.h"
#include "ps/config/config.h"

/* The path that is meant by a call, without links, in `out` (the configured one as it is configured). ""
 * means that one. MR_INVALID_ARGUMENT: there is none, it has a `..`, or it lies elsewhere, wherever links
 * lead; `text` names the key to set. */
enum mr_status ps_directory_check(const struct ps_config *config, const char *directory, char *out,
                                  size_t out_bytes, char *text, size_t text_bytes);

#endif
