/* A network trained in one process, for tests and benchmarks: parameters in versions, optimizers over them,
 * and a loss. Steps of one struct parameters come one after the other. */
#ifndef LAYERS_TRAINING_H
#define LAYERS_TRAINING_H

#include "dataplane/optimizer/versions.h"
#include "dataplane/wire/format/mr_feature.h"
#include "dataplane/wire/format/mr_status.h"
#include "ps/modules/layers/network.h"

struct parameters;
struct parameters_optimizer;

/* Version 1, with first values. `network` must outlive it. */
enum mr_status parameters_create(struct ps_network *network, uint64_t seed, struct parameters **out);
/* After optimizers over them are destroyed. Versions stay until they are let go. NULL is fine. */
void parameters_destroy(struct parameters *parameters);

/* The newest version, until mr_version_release(). Waits for a change in place to end. Its values:
 * ps_network_parameter_floats() floats, where ps_network_parameter() says what is where. */
struct mr_parameter_version *parameters_hold(struct parameters *parameters);

/* The next version holds `values`: ps_network_parameter_floats() of them. MR_NO_MEMORY: nothing is
 * changed. */
/* The next version holds these values. */
enum mr_status versions_set(struct mr_versions *versions, const float *values);
enum mr_status parameters_set(struct parameters *parameters, const float *values);

/* An optimizer over parameters, with state of its own, by the code of tables and variables
 * (dataplane/optimizer/rule.h): each parameter is a variable. Of `feature` only optimizer, its arguments,
 * learning rate and schedule, weight decay and clipping are read. MR_INVALID_ARGUMENT or MR_UNSUPPORTED:
 * *what names the field. */
enum mr_status parameters_optimizer_create(struct parameters *parameters, const struct mr_feature *feature,
                                           struct parameters_optimizer **out, const char **what);
void parameters_optimizer_destroy(struct parameters_optimizer *optimizer); /* NULL is fine */

/* gradients: ps_network_parameter_floats() of them. step, learning_rate (NULL: the feature's): as in
 * ps_variable_push(). A parameter whose gradient holds NaN or Inf stays as it is; *skipped (may be NULL)
 * tells how many. The new values are those of the next version. MR_NO_MEMORY: nothing is changed. */
enum mr_status parameters_step(struct parameters_optimizer *optimizer, const float *gradients, uint64_t step,
                               const float *learning_rate, uint32_t *skipped);

/* Negative log likelihood, the mean over the batch. log_probabilities: [batch, classes] as of log-softmax;
 * labels: [batch]; *loss; gradient: [batch, classes], may be NULL, and may be log_probabilities.
 * MR_INVALID_ARGUMENT when a label is no class or the batch is empty: nothing is written. Any thread. */
enum mr_status nll_loss(const float *log_probabilities, const uint32_t *labels, uint32_t batch,
                        uint32_t classes, float *loss, float *gradient);

#endif
