/* Waiting for the world, for those who make an agent. */
#ifndef MR_RPC_WORKERS_H
#define MR_RPC_WORKERS_H

#include "dataplane/rpc/base/work.h"

/* Not inside: until all have joined. MR_DEADLINE_EXCEEDED (`error` says who is missing), MR_UNREACHABLE,
 * MR_VERSION_MISMATCH, or why the rendezvous refused. */
enum mr_status mr_workers_wait_joined(struct mr_rpc *agent, uint64_t deadline_us, char *error,
                                      size_t error_bytes);

#endif
