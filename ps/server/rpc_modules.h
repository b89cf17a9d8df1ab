/* Modules: shared objects whose functions the node offers to the workers of its world. See mr_module_init in
 * millrace_rpc.h. */
#ifndef PS_RPC_MODULES_H
#define PS_RPC_MODULES_H

#include <stdbool.h>
#include <stddef.h>
#include "dataplane/rpc/millrace_rpc.h"
#include "ps/config/config.h"

struct ps_rpc_modules {
    const struct ps_config *config;
    uint32_t count; /* loaded, in the order of rpc.module */
    mr_module_init inits[PS_CONFIG_LIST_MAX];
    mr_module_exit exits[PS_CONFIG_LIST_MAX]; /* NULL: it has none */
};

/* Loads those of rpc.module. MR_INVALID_ARGUMENT; `error` gets one line that names the place in the
 * configuration, the file, what is wrong and what to do about it. They stay loaded until the process ends:
 * threads of libraries that they use may run. */
enum mr_status ps_rpc_modules_load(const struct ps_config *config, struct ps_rpc_modules *out, char *error,
                                   size_t error_bytes);
/* Calls the init function of each module. Not on core 0's thread, and while core 0 drives the agent. Returns
 * the status and line of the first that fails, after those before it have been ended. */
enum mr_status ps_rpc_modules_start(const struct ps_rpc_modules *modules, struct mr_rpc *rpc, char *error,
                                    size_t error_bytes);
/* Calls the exit function of each module, with the same rules. */
void ps_rpc_modules_exit(const struct ps_rpc_modules *modules, struct mr_rpc *rpc);

/* "PATH ARGUMENTS": the path as dlopen() takes it, and what follows the first blanks. A name without a slash
 * lies in MR_MODULE_DIR. False: the path is longer than `path_bytes`. Pure. */
bool ps_rpc_module_split(const char *value, char *path, size_t path_bytes, const char **arguments);

#endif
