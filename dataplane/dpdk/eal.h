/* DPDK's environment: memory, arguments, its log. Started once per process, by the thread that calls
 * dp_create. */
#ifndef DP_EAL_H
#define DP_EAL_H

#include <stdbool.h>
#include "dataplane/dataplane.h"

/* Starts the EAL as the configuration says; `*hugepages_used` says which memory it got. DPDK's own messages
 * go nowhere unless the environment variable MILLRACE_DPDK_LOG names a level ("info", "debug", ...): then to
 * stderr. The calling thread keeps its CPU affinity. False, with one line in `error`, on failure. */
bool dp_eal_start(const struct dp_config *config, bool *hugepages_used, char error[DP_ERROR_BYTES]);
void dp_eal_stop(void);

/* The last error that DPDK logged since dp_eal_forget_error, or "": the cause, for our own one line. Main
 * thread. */
const char *dp_eal_last_error(void);
void dp_eal_forget_error(void);

#endif
