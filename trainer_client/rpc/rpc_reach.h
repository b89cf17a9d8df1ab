/* Why nobody answers where the workers are to meet. */
#ifndef MRC_RPC_REACH_H
#define MRC_RPC_REACH_H

#include <stdbool.h>
#include <stddef.h>
#include "dataplane/wire/endpoint.h"

/* Asks the host once more and appends what it finds to the line in `error`. Takes up to a quarter of a
 * second. */
void mrc_rpc_explain_silence(const struct mr_address *rendezvous, bool has_key, char *error,
                             size_t error_bytes);

#endif
