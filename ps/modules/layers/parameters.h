/* The parameters of a network, in versions. A version is a snapshot that does not change while anybody holds it: forwards and
 * backwards of several trainers read theirs while an optimizer makes the next. A step copies the values only when the version is
 * held; else it changes them in place.
 *
 * Threads: any, at once. Steps of one ps_parameters come one after the other. While values are changed in place, ps_parameters_hold()
 * waits: as long as the optimizer takes for one pass over the parameters.
 */
#ifndef PS_PARAMETERS_H
#define PS_PARAMETERS_H

#include <stddef.h>
#include <stdint.h>
#include "dataplane/wire/mr_feature.h"
#include "dataplane/wire/mr_status.h"

struct ps_network;
struct ps_parameters;
struct ps_version;
struct ps_parameters_optimizer;

/* Version 1, with first values as torch's conv2d and linear have them: uniform in +-1 / sqrt(fan_in), a function of `seed`, parameter and
 * element alone. `network` must outlive it. */
enum mr_status ps_parameters_create(struct ps_network *network, uint64_t seed, struct ps_parameters **out);
/* After all versions are let go and optimizers destroyed. NULL is fine. */
void ps_parameters_destroy(struct ps_parameters *parameters);

/* The newest version, until ps_version_release(). Waits for a change in place to end. */
struct ps_version *ps_parameters_hold(struct ps_parameters *parameters);
/* One holder more. */
void ps_version_retain(struct ps_version *version);
void ps_version_release(struct ps_version *version);          /* NULL is fine */
uint64_t ps_version_number(const struct ps_version *version); /* rises by one with each change */
/* ps_network_parameter_floats() floats, where ps_network_parameter() says what is where. Valid while held. */
const float *ps_version_values(const struct ps_version *version);

/* The next version holds `values`: ps_network_parameter_floats() of them. MR_NO_MEMORY: nothing is changed. */
enum mr_status ps_parameters_set(struct ps_parameters *parameters, const float *values);

/* An optimizer over parameters, with state of its own, by the code of tables and variables (dataplane/optimizer/rule.h): each parameter is a
 * variable. Of `feature` only optimizer, its arguments, learning rate and schedule, weight decay and clipping are read.
 * MR_INVALID_ARGUMENT or MR_UNSUPPORTED: *what names the field. */
enum mr_status ps_parameters_optimizer_create(struct ps_parameters *parameters,
                                              const struct mr_feature *feature,
                                              struct ps_parameters_optimizer **out, const char **what);
void ps_parameters_optimizer_destroy(struct ps_parameters_optimizer *optimizer); /* NULL is fine */

/* gradients: ps_network_parameter_floats() of them. step, learning_rate (0: the feature's): as in struct ps_table_push. A parameter whose
 * gradient holds NaN or Inf stays as it is; *skipped (may be NULL) tells how many. The new values are those of the next version.
 * MR_NO_MEMORY: nothing is changed. */
enum mr_status ps_parameters_step(struct ps_parameters_optimizer *optimizer, const float *gradients,
                                  uint64_t step, float learning_rate, uint32_t *skipped);

#endif
