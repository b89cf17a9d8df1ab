/* A worker's model: a parameter w of its own, and functions over it, for tests of optimizers. Made of the
 * public header alone.
 *
 *   "line.loss"(f32[n] x, f64 t) -> f32[]: (w . x - t)^2, differentiable; n is the parameter's number of
 *   elements "line.parameter"() -> ref
 */
#ifndef TEST_LINE_MODEL_H
#define TEST_LINE_MODEL_H

#include "millrace_rpc.h"

#define LINE_FUNCTIONS 2u

struct line_model {
    struct mr_rref *parameter;
};

/* `model` is there as long as the worker; its parameter may be set later. */
void line_functions(struct line_model *model, struct mr_rpc_function functions[LINE_FUNCTIONS]);

/* Of [-1, 1): what each test, and rpc_optimizer.py, draws for an element. */
float line_drawn(uint32_t stream, uint32_t element);

/* One step of training: the losses of workers [first, end) at x and t, backward. `context` is begun, and not
 * ended. *loss: their sum. */
enum mr_status line_backward(struct mr_rpc *rpc, uint32_t first, uint32_t end, struct mr_tensor x, double t,
                             struct mr_autograd *context, double *loss);

#endif
