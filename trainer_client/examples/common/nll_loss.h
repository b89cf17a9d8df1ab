/* The negative log likelihood, the mean over the batch, as a differentiable function of a trainer's own: what
 * torch.nn.functional.nll_loss is. To be registered, and run with mr_autograd_apply(context, "nll_loss", {log
 * probabilities f32[batch, classes], labels u32[batch]}). */
#ifndef EXAMPLES_NLL_LOSS_H
#define EXAMPLES_NLL_LOSS_H

#include <millrace_rpc.h>

extern const struct mr_rpc_function example_nll_loss;

#endif
