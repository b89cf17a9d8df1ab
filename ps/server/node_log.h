/* The log of a node, as its configuration has it. */
#ifndef PS_NODE_LOG_H
#define PS_NODE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include "ps/config/config.h"

/* Sets the log's options. False, and the log is as it was: `error` says which key cannot be followed. */
bool ps_node_log_configure(const struct ps_config *config, char *error, size_t error_bytes);

#endif
