/* A network with its parameter, ready to be computed by calls: what a reference of "layers.network" refers
 * to. Forwards that wait for their backward hold it, and each keeps the version of the parameter that it
 * computed with.
 *
 * A batch may be computed in several parts, by a thread each: samples do not depend on each other.
 *
 * Any thread.
 */
#ifndef PS_MODEL_H
#define PS_MODEL_H

#include <stdint.h>
#include "dataplane/rpc/millrace_rpc.h"
#include "ps/modules/layers/network.h"

#define PS_MODEL_PARTS_MAX 16u

struct ps_model;
struct ps_forward_pass; /* a forward that was done, for its backward */

/* `text`: ps/modules/model/text.h; `seed`: of first values and dropout; `parts`: of a batch,
 * 1..PS_MODEL_PARTS_MAX. The parameter is made here, or is the one of that name, if `name` is not NULL. Held
 * once. Else `error` gets a line. */
enum mr_status ps_model_create(struct mr_rpc *rpc, const char *text, uint64_t seed, uint32_t parts,
                               const char *name, struct ps_model **out, char *error, size_t error_bytes);
/* Drops a holder; the last one frees the model and releases its parameter. */
void ps_model_release(void *model);
/* Held, if `object` is a model of this process that lives; else NULL. Safe for any pointer. */
struct ps_model *ps_model_find(const void *object);

const struct ps_network *ps_model_network(const struct ps_model *model);
/* Of the model: one tensor for all (see ps_network_parameter()). */
struct mr_rref *ps_model_parameter(const struct ps_model *model);

/* input: [batch, sample], output: [batch, ps_network_output()], by the newest version. MR_NO_MEMORY,
 * MR_INTERNAL. */
enum mr_status ps_model_evaluate(struct ps_model *model, const float *input, uint32_t batch, float *output);
/* The same, as for training: dropout drops, by the model's seed and `step`. *out: for the backward, to be
 * destroyed; it holds the model. */
enum mr_status ps_model_forward(struct ps_model *model, uint64_t step, const float *input, uint32_t batch,
                                float *output, struct ps_forward_pass **out);
/* Once. output_gradient: [batch, ps_network_output()]; input_gradient: [batch, sample], or NULL when not
 * wanted. `add` is called with the gradient of the parameter, a tensor of its shape. */
typedef enum mr_status (*ps_model_add)(void *user, struct mr_rref *parameter,
                                       const struct mr_tensor *gradient);
enum mr_status ps_model_backward(struct ps_forward_pass *p, const float *output_gradient,
                                 float *input_gradient, ps_model_add add, void *user);
void ps_forward_pass_destroy(void *forward_pass); /* NULL is fine */

#endif
