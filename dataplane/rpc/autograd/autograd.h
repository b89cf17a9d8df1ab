/* Recording: what calls and runs of functions put on a context's tape.
 *
 * A call to another worker is two events here: its arguments leave (SEND), its results come (CALL); and two
 * there: the arguments come (ARGUMENTS), the results leave (RETURN). The values that travel get a number on
 * each side; "has a number" is all that the other side needs to know of it. So the graph over all workers is
 * the tapes and the calls between them, and it has no cycle, as each event depends on earlier ones only. A
 * call of our own function is not a message: it is on the same tape.
 */
#ifndef MR_RPC_AUTOGRAD_H
#define MR_RPC_AUTOGRAD_H

#include "dataplane/rpc/millrace_rpc.h"

struct mr_contexts;

/* On the caller, its thread, before anything is sent. Fails, with the line, when the context has ended. */
enum mr_status mr_autograd_call_out(struct mr_autograd *context, uint32_t to, const char *function,
                                    const struct mr_value *arguments, uint32_t argument_count,
                                    uint64_t *context_id, uint64_t *invocation);
/* On the caller, inside: the call's results came; they get their numbers. Unless this says MR_OK the call
 * fails. */
enum mr_status mr_autograd_reply_in(struct mr_contexts *contexts, uint64_t context_id, uint64_t invocation,
                                    struct mr_value *results, uint32_t result_count);
/* On the callee, the executor's thread, around the function's run. Arguments and results get their numbers.
 * The second returns the status of the call. */
enum mr_status mr_autograd_run_begins(struct mr_rpc_call *call);
enum mr_status mr_autograd_run_ended(struct mr_rpc_call *call, enum mr_status status);

#endif
