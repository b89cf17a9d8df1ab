/* Recording: puts calls and runs of functions on a context's tape.
 *
 * A call to another worker is two events on the caller's tape: its arguments leave (SEND), and its results
 * arrive (CALL); and two on the callee's: the arguments arrive (ARGUMENTS), and the results leave (RETURN).
 * Each side gives the values that travel a number of its own; the other side only needs to know that they
 * have one. So the graph over all workers consists of the tapes and the calls between them. It has no cycle,
 * because each event depends on earlier ones only. A call of a worker's own function is not a message: it
 * stays on the tape.
 */
#ifndef MR_RPC_AUTOGRAD_H
#define MR_RPC_AUTOGRAD_H

#include "dataplane/rpc/millrace_rpc.h"

struct mr_contexts;

/* On the caller, on its thread, before anything is sent. Fails, with the error line, if the context has
 * ended. */
enum mr_status mr_autograd_call_out(struct mr_autograd *context, uint32_t to, const char *function,
                                    const struct mr_value *arguments, uint32_t argument_count,
                                    uint64_t *context_id, uint64_t *invocation);
/* On the caller, inside: the call's results arrived; gives them their numbers. Any other status than MR_OK
 * fails the call. */
enum mr_status mr_autograd_reply_in(struct mr_contexts *contexts, uint64_t context_id, uint64_t invocation,
                                    struct mr_value *results, uint32_t result_count);
/* On the callee, on the executor's thread, before and after the function's run: give arguments and results
 * their numbers. The second returns the status of the call. */
enum mr_status mr_autograd_run_begins(struct mr_rpc_call *call);
enum mr_status mr_autograd_run_ended(struct mr_rpc_call *call, enum mr_status status);

#endif
