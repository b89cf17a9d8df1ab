/* A configuration that is read again while the node serves. main()'s thread. */
#ifndef PS_RELOAD_H
#define PS_RELOAD_H

#include "dataplane/dataplane.h"
#include "ps/config/config.h"

struct ps_node;

/* Takes over what `fresh` changes of the keys that may change now, and logs each of them, and which others
 * need a restart. `given` is the configuration as it was read before, and gets what is taken; `in_use` is
 * the one that the node goes by: some of its keys are the control thread's, which takes these soon. False,
 * and nothing is changed: `error` says which key cannot be followed. */
bool ps_reload(struct ps_node *node, struct ps_config *given, struct ps_config *in_use,
               const struct ps_config *fresh, char error[DP_ERROR_BYTES]);

#endif
