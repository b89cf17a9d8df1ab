/* What a node may no longer do once its port is open. main()'s thread. */
#ifndef PS_PRIVILEGES_H
#define PS_PRIVILEGES_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/dataplane.h"
#include "ps/config/config.h"

/* Returns the capabilities (a bit for each CAP_*) that a node with this port still needs: for its stop, and
 * of root for files of other users. */
uint64_t ps_privileges_needed(const struct ps_config *config, enum dp_driver driver);

/* Takes all capabilities but these from every thread of the process, for good: no program that it would run
 * gets them back either. False: a thread still has others, which is logged. */
bool ps_privileges_drop(uint64_t kept);

/* From now on no memory becomes executable that was writable, where the kernel can refuse that (Linux 6.3).
 * Not for a node with modules: oneDNN compiles code for its layers. */
void ps_privileges_refuse_new_code(void);

#endif
