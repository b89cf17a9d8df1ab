/* Serving a checkpoint read only (checkpoint.serve): lookups are answered, and nothing ever changes or is
 * written. */
#ifndef PS_SERVE_H
#define PS_SERVE_H

#include "dataplane/wire/format/mr_status.h"
#include "ps/config/config.h"

struct ps_node;

/* What of a configuration has no meaning for a node that serves is as if it were not set: where, when and how
 * to save. */
void ps_serve_config(struct ps_config *config);
/* Loads config->checkpoint_serve (of a directory the newest that verifies) and freezes the node for good.
 * Before the first data call is let in; `error` (DP_ERROR_BYTES) gets one line. */
enum mr_status ps_serve_start(struct ps_node *node, char *error);

#endif
