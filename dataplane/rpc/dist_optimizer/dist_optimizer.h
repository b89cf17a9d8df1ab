/* The distributed optimizer: its state lies at the owners of the parameters, as an object at each, and a step
 * is a call of "mr.optimizer_step" on each of them, all at once, in the context whose gradients are to be
 * applied. All of these run on executor threads, like any function.
 *
 *   mr.optimizer(kind i64, flags i64 (MR_DIST_NESTEROV, ...), numbers f32[MR_DIST_NUMBERS]) -> a reference to
 *   the object mr.optimizer_add(that reference, which u32[n], n references): these parameters, too; as often
 *   as there are more than a call takes.
 *     which: the parameters' numbers in the program's list, for error lines
 *   mr.optimizer_step(that reference)
 */
#ifndef MR_RPC_DIST_OPTIMIZER_H
#define MR_RPC_DIST_OPTIMIZER_H

#include "dataplane/rpc/millrace_rpc.h"

#define MR_DIST_OPTIMIZER      "mr.optimizer"
#define MR_DIST_OPTIMIZER_ADD  "mr.optimizer_add"
#define MR_DIST_OPTIMIZER_STEP "mr.optimizer_step"

/* learning_rate, momentum, beta1, beta2, epsilon, weight_decay, initial_accumulator */
#define MR_DIST_NUMBERS        7u
#define MR_DIST_NESTEROV       1
#define MR_DIST_LEARNING_RATE  2                           /* numbers[0] counts, also if it is 0 */
#define MR_DIST_PARAMETERS_MAX (MR_RPC_ARGUMENTS_MAX - 2u) /* of a call */

/* At the agent's creation: the owner's side. MR_NO_MEMORY. */
enum mr_status mr_dist_optimizer_register(struct mr_rpc *agent);

#endif
