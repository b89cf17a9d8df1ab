/* Recording: what calls and runs of functions put on a context's tape. The hooks of struct mr_agent_autograd
 * (agent.h says on which thread each comes); `self` is the struct mr_contexts.
 *
 * A call to another worker is two events here: its arguments leave (SEND), its results come (CALL); and two
 * there: the arguments come (ARGUMENTS), the results leave (RETURN). The values that travel get a number on
 * each side; "has a number" is all that the other side needs to know of it. So the graph over all workers is
 * the tapes and the calls between them, and it has no cycle, as each event depends on earlier ones only. A
 * call of our own function is not a message: it is on the same tape.
 */
#ifndef MR_RPC_AUTOGRAD_H
#define MR_RPC_AUTOGRAD_H

#include "dataplane/rpc/agent.h"

enum mr_status mr_autograd_call_out(void *self, struct mr_autograd *context, uint32_t to,
                                    const char *function, const struct mr_value *arguments,
                                    uint32_t argument_count, uint64_t *context_id, uint64_t *invocation);
enum mr_status mr_autograd_reply_in(void *self, uint64_t context_id, uint64_t invocation,
                                    struct mr_value *results, uint32_t result_count);
enum mr_status mr_autograd_run_begins(void *self, struct mr_rpc_call *call);
enum mr_status mr_autograd_run_ended(void *self, struct mr_rpc_call *call, enum mr_status status);

struct mr_recorded_run;
/* With what the user saved. NULL is fine. Not inside. */
void mr_recorded_run_free(struct mr_recorded_run *run);

#endif
