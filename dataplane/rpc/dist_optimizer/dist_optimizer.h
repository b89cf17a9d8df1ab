/* The distributed optimizer. Each owner of parameters keeps the state of its parameters in an object. A step
 * calls "mr.optimizer_step" on all owners at the same time, in the context whose gradients are applied. These
 * functions run on executor threads, like any other:
 *
 *   mr.optimizer(kind i64, flags i64 (MR_DIST_NESTEROV, ...), numbers f32[MR_DIST_NUMBERS] [, name string])
 *     returns a reference to the object; with a name, its state is kept under that.
 *   mr.optimizer_add(that reference, which u32[n], n references)
 *     adds n parameters; it is called repeatedly if there are more than fit into a call. `which` has their
 *     numbers in the program's list, for error lines.
 *   mr.optimizer_step(that reference)
 *     makes the next version of each parameter that has a gradient.
 *   mr.optimizer_steps(that reference) -> i64
 *     returns how many steps optimizers of its name have made.
 */
#ifndef MR_RPC_DIST_OPTIMIZER_H
#define MR_RPC_DIST_OPTIMIZER_H

#include "dataplane/rpc/millrace_rpc.h"

#define MR_DIST_OPTIMIZER       "mr.optimizer"
#define MR_DIST_OPTIMIZER_ADD   "mr.optimizer_add"
#define MR_DIST_OPTIMIZER_STEP  "mr.optimizer_step"
#define MR_DIST_OPTIMIZER_STEPS "mr.optimizer_steps"

/* learning_rate, momentum, beta1, beta2, epsilon, weight_decay, initial_accumulator */
#define MR_DIST_NUMBERS        7u
#define MR_DIST_NESTEROV       1
#define MR_DIST_LEARNING_RATE  2                           /* numbers[0] counts, also if it is 0 */
#define MR_DIST_PARAMETERS_MAX (MR_RPC_ARGUMENTS_MAX - 2u) /* in a call */

/* Registers the owner's functions, at the agent's creation. MR_NO_MEMORY. */
enum mr_status mr_dist_optimizer_register(struct mr_rpc *agent);

#endif
