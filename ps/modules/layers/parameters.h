/* The parameters of a network, in versions (dataplane/optimizer/versions.h), and optimizers over them. A
 * network computes with any version of so many floats: also with those of a parameter of remote calls that
 * begins as ps_parameters_first_values().
 *
 * Threads: any, at once. Steps of one ps_parameters come one after the other.
 */
#ifndef PS_PARAMETERS_H
#define PS_PARAMETERS_H

#include <stddef.h>
#include <stdint.h>
#include "dataplane/optimizer/versions.h"
#include "dataplane/wire/format/mr_feature.h"
#include "dataplane/wire/format/mr_status.h"
#include "dataplane/wire/format/mr_tensor.h"

struct ps_network;
struct ps_parameters;
struct ps_parameters_optimizer;

/* First values as torch's conv2d and linear have them: uniform in +-1 / sqrt(fan_in), a function of `seed`,
 * parameter and element alone. values: ps_network_parameter_floats(). */
void ps_parameters_first_values(const struct ps_network *network, uint64_t seed, float *values);
/* They, as one tensor: what mr_parameter_create() takes. */
struct mr_tensor ps_parameters_tensor(const struct ps_network *network, const float *values);

/* Version 1, with first values. `network` must outlive it. */
enum mr_status ps_parameters_create(struct ps_network *network, uint64_t seed, struct ps_parameters **out);
/* After optimizers over them are destroyed. Versions stay until they are let go. NULL is fine. */
void ps_parameters_destroy(struct ps_parameters *parameters);

/* The newest version, until mr_version_release(). Waits for a change in place to end. Its values:
 * ps_network_parameter_floats() floats, where ps_network_parameter() says what is where. */
struct mr_parameter_version *ps_parameters_hold(struct ps_parameters *parameters);

/* The next version holds `values`: ps_network_parameter_floats() of them. MR_NO_MEMORY: nothing is
 * changed. */
enum mr_status ps_parameters_set(struct ps_parameters *parameters, const float *values);

/* An optimizer over parameters, with state of its own, by the code of tables and variables
 * (dataplane/optimizer/rule.h): each parameter is a variable. Of `feature` only optimizer, its arguments,
 * learning rate and schedule, weight decay and clipping are read. MR_INVALID_ARGUMENT or MR_UNSUPPORTED:
 * *what names the field. */
enum mr_status ps_parameters_optimizer_create(struct ps_parameters *parameters,
                                              const struct mr_feature *feature,
                                              struct ps_parameters_optimizer **out, const char **what);
void ps_parameters_optimizer_destroy(struct ps_parameters_optimizer *optimizer); /* NULL is fine */

/* gradients: ps_network_parameter_floats() of them. step, learning_rate (NULL: the feature's): as in
 * ps_variable_push(). A parameter whose gradient holds NaN or Inf stays as it is; *skipped (may be NULL)
 * tells how many. The new values are those of the next version. MR_NO_MEMORY: nothing is changed. */
enum mr_status ps_parameters_step(struct ps_parameters_optimizer *optimizer, const float *gradients,
                                  uint64_t step, const float *learning_rate, uint32_t *skipped);

#endif
