/* An optimizer on the owner of parameters: the rule, and the state of each parameter. It knows no calls and
 * no references. Any thread may use it; the caller makes sure that only one does at a time. */
#ifndef MR_RPC_OWNED_OPTIMIZER_H
#define MR_RPC_OWNED_OPTIMIZER_H

#include <stdbool.h>
#include "dataplane/optimizer/named_parameters.h"
#include "dataplane/optimizer/rule.h"
#include "dataplane/optimizer/versions.h"
#include "dataplane/rpc/millrace_rpc.h"

/* Turns options, with torch's defaults for zeros, into a rule of dataplane/optimizer/. MR_INVALID_ARGUMENT,
 * with one line in `error` that names the option. */
enum mr_status mr_dist_rule(const struct mr_dist_optimizer_options *options, struct mr_rule *rule,
                            char *error, size_t error_bytes);

struct mr_owned_parameter {
    uint64_t id;     /* of the reference */
    uint32_t number; /* in the program's list, for error lines */
    struct mr_versions *versions;
};

struct mr_owned_optimizer;
/* Creates an optimizer without parameters. `name`: among `all`, where its state is kept then; or NULL. NULL:
 * no memory. */
struct mr_owned_optimizer *mr_owned_optimizer_create(const struct mr_rule *rule,
                                                     struct mr_named_parameters *all, const char *name);
/* Returns how many steps optimizers of its name have made; 0: it has none. */
uint64_t mr_owned_optimizer_steps(const struct mr_owned_optimizer *optimizer);
/* Adds parameters, and retains their versions. MR_INVALID_ARGUMENT (a parameter comes twice, or has no name
 * and the optimizer has one), MR_NO_MEMORY: `error` has a line, and some of the parameters may have been
 * added. */
enum mr_status mr_owned_optimizer_add(struct mr_owned_optimizer *optimizer,
                                      const struct mr_owned_parameter *parameters, uint32_t count,
                                      char *error, size_t error_bytes);
void mr_owned_optimizer_destroy(struct mr_owned_optimizer *optimizer); /* NULL is fine */

/* Gets the gradient of the parameter with that id; false: it has none. The data stays until the step is
 * over. */
typedef bool mr_gradient_of(void *context, uint64_t id, struct mr_tensor *gradient);
/* Makes the next version of each parameter that has a gradient. A parameter stays as it is, with its state,
 * if its gradient has NaN, Inf or another shape, or if there is no memory for the version; the others change.
 * Then the status is that of the first such parameter, and `error` names it. */
enum mr_status mr_owned_optimizer_step(struct mr_owned_optimizer *optimizer, mr_gradient_of *gradient_of,
                                       void *context, char *error, size_t error_bytes);

#endif
