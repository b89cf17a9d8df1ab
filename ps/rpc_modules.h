/* Modules: shared objects whose functions the node offers to the workers of its world. See mr_module_init and
 * mr_module_exit in millrace_rpc.h. */
#ifndef PS_RPC_MODULES_H
#define PS_RPC_MODULES_H

#include <stddef.h>
#include "dataplane/rpc/millrace_rpc.h"
#include "ps/config.h"

/* Those that were loaded, and are to be told of the end. */
struct ps_rpc_modules {
    mr_module_exit exits[PS_CONFIG_LIST_MAX];
    uint32_t count;
};

/* Loads those of rpc.module in order, and has each register its functions. MR_INVALID_ARGUMENT, or what a module's own start said;
 * `error` gets one line that names the place in the configuration, the file, what is wrong and what to do about it. They stay
 * loaded until the process ends: threads of libraries that they use may run. Main's thread, while core 0 drives the agent. */
enum mr_status ps_rpc_modules_load(const struct ps_config *config, struct mr_rpc *rpc,
                                   struct ps_rpc_modules *modules, char *error, size_t error_bytes);
/* Once: the node stops. The last one first. Main's thread, while core 0 drives the agent. */
void ps_rpc_modules_exit(struct ps_rpc_modules *modules, struct mr_rpc *rpc);

/* "PATH ARGUMENTS": the path as dlopen() takes it, and what follows the first blanks. A name without a slash lies in MR_MODULE_DIR.
 * False: the path is longer than `path_bytes`. Pure. */
bool ps_rpc_module_split(const char *value, char *path, size_t path_bytes, const char **arguments);

#endif
