/* Serving a checkpoint read only (checkpoint.serve): lookups are answered, and nothing ever changes or is
 * written. */
#ifndef PS_SERVE_H
#define PS_SERVE_H

#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"
#include "ps/config/config.h"

struct ps_node;

/* "DIR/ckpt-7" is checkpoint 7 of DIR; any other path is a directory of checkpoints, of which the newest
 * that verifies is meant (*id 0). Slashes at the end mean nothing. Of a URL, `directory` keeps the query.
 * False when `directory` has no room. Pure. */
bool ps_serve_path_parse(const char *path, char *directory, size_t directory_bytes, uint64_t *id);
/* What of a configuration has no meaning for a node that serves is as if it were not set: where, when and how
 * to save. */
void ps_serve_config(struct ps_config *config);
/* Loads config->checkpoint_serve and freezes the node for good. Before the first data call is let in; `error`
 * (DP_ERROR_BYTES) gets one line. */
enum mr_status ps_serve_start(struct ps_node *node, char *error);

#endif
