/* Networks on a server as functions that workers call. The same functions stand in a shared object that a
 * node loads (layers_module.c), and may be registered in a worker's own program.
 *
 *   layers.network(text string, seed i64 [, name string]) -> object
 *                                                            makes a network (text.h), by mr_remote(); seed:
 *                                                            of first values and dropout. With a name, it has
 *                                                            its parameter from mr_parameter_open(),
 *                                                            as all networks of that name, which nodes save
 *   layers.parameter(network ref) -> ref                     its parameter: one tensor for all, for
 *                                                            mr_dist_optimizer_create()
 *   layers.forward(network ref, step i64, input f32[...]) -> f32[...]
 *                                                            differentiable, in input and parameter. Dropout
 *                                                            follows from seed and step, so give each call
 *                                                            another step
 *   layers.evaluate(network ref, input f32[...]) -> f32[...] without dropout and gradients
 *
 * input: [batch, ...] of so many floats a sample as the network takes, in any shape; the output is [batch,
 * ...] as the network has it.
 */
#ifndef PS_MODEL_FUNCTIONS_H
#define PS_MODEL_FUNCTIONS_H

#include <stdint.h>
#include "dataplane/rpc/millrace_rpc.h"

#define PS_MODEL_FUNCTIONS 4u

/* Those functions, as they are registered. `parts`: how many threads compute a batch, 1..PS_MODEL_PARTS_MAX.
 * For mr_rpc_options: callable as soon as anybody has joined. */
void ps_model_functions(uint32_t parts, struct mr_rpc_function out[PS_MODEL_FUNCTIONS]);
/* In a worker that has joined. Statuses of mr_rpc_register(). */
enum mr_status ps_model_register(struct mr_rpc *rpc, uint32_t parts);

#endif
