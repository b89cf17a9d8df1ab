/* Differentiable functions for tests, of f32 tensors. */
#ifndef TEST_RPC_MATH_FUNCTIONS_H
#define TEST_RPC_MATH_FUNCTIONS_H

#include <stdatomic.h>
#include "net.h"

/* Registers on that worker
 *   mul(a, b), add(a, b)   of one shape, element by element
 *   square(a), sum(a)      sum: a scalar
 *   split(a)               its elements twice: a and 2 a
 *   plain(a)               2 a, without a backward: a constant
 *   same(a)                its argument, without a backward
 *   on(rank, name, a)      name(a) on that worker, within the call's context, without a backward of its own
 *   bounce(n, a)           n > 0: bounce(n - 1, 2 a) on the caller: a * 2^n in all
 *   wrong_shape(a), wrong_count(a), failing(a)   whose backward is wrong
 */
void math_register(struct mr_rpc *rpc);
/* A test's state: a world of so many workers that all have them; and its end, at which nothing is saved any
 * more. */
int math_world(void **state, uint32_t workers);
int math_world_end(void **state);
/* What mr_rpc_save() was given and is not freed yet, in all workers of this process. */
uint32_t math_saved(void);
/* Backward functions that have run since. */
uint32_t math_backwards(void);

#endif
