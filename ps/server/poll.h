/* What the data plane calls on a core's thread: a core starts, polls and stops. */
#ifndef PS_POLL_H
#define PS_POLL_H

#include "ps/core/core.h"

/* Hooks of struct dp_app: `self` is the node for start, then the core. */
void *ps_core_start(void *self, struct dp_core *dp_core, char error[DP_ERROR_BYTES]);
bool ps_core_poll(void *self, uint64_t now_us);
void ps_core_stop(void *self);
uint64_t ps_core_last_push_step(void *self, const uint8_t *client_uuid);

/* A core without a data plane below it, for tests: memory only. NULL when it is short. */
struct ps_core *ps_core_create(struct ps_node *node, uint32_t index);
void ps_core_destroy(struct ps_core *core);

#endif
