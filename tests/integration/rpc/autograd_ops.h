/* Differentiable functions of f32 matrices, each with its way back, and functions without one that use them:
 * for autograd_torch.py's graphs. */
#ifndef TESTS_AUTOGRAD_OPS_H
#define TESTS_AUTOGRAD_OPS_H

#include "millrace_rpc.h"

#define AUTOGRAD_OPS 11u
/* add, mul, tanh, sigmoid, matmul, chunk, concat, mean as torch's; pair(a, b) = tanh(a), sigmoid(b), by
 * applying them; here(name, ...): applies that function to its arguments, of references to what their owner
 * has; on(rank, name, ...): calls here(name, ...) on that worker. */
extern const struct mr_rpc_function autograd_ops[AUTOGRAD_OPS];

#endif
