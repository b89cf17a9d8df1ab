/* An optimizer at the owner of parameters: the rule, and the state beside each parameter. No calls, no
 * references.
 *
 * Threads: any, one step at a time; whoever calls sees to that. */
#ifndef MR_RPC_OWNED_OPTIMIZER_H
#define MR_RPC_OWNED_OPTIMIZER_H

#include <stdbool.h>
#include "dataplane/optimizer/rule.h"
#include "dataplane/optimizer/versions.h"
#include "dataplane/rpc/millrace_rpc.h"

/* The options with torch's defaults in the place of zeros, as a rule of dataplane/optimizer/.
 * MR_INVALID_ARGUMENT, with one line in `error` that names the option. */
enum mr_status mr_dist_rule(const struct mr_dist_optimizer_options *options, struct mr_rule *rule,
                            char *error, size_t error_bytes);

struct mr_owned_parameter {
    uint64_t id;     /* of the reference */
    uint32_t number; /* among those that the optimizer was made with, for error lines */
    struct mr_versions *versions;
};

struct mr_owned_optimizer;
/* Over no parameter yet. NULL: no memory. */
struct mr_owned_optimizer *mr_owned_optimizer_create(const struct mr_rule *rule);
/* Over these, too; their versions are retained. MR_INVALID_ARGUMENT (a parameter comes twice), MR_NO_MEMORY:
 * `error` has a line, and the optimizer may be over some of them. */
enum mr_status mr_owned_optimizer_add(struct mr_owned_optimizer *optimizer,
                                      const struct mr_owned_parameter *parameters, uint32_t count,
                                      char *error, size_t error_bytes);
void mr_owned_optimizer_destroy(struct mr_owned_optimizer *optimizer); /* NULL is fine */

/* The gradient of the parameter with that id; false: there is none. The data stays until the step is over. */
typedef bool mr_gradient_of(void *context, uint64_t id, struct mr_tensor *gradient);
/* Makes the next version of each parameter that has a gradient. One whose gradient holds NaN or Inf, has
 * another shape, or for whose version there is no memory stays as it is, with its state; the others are
 * changed. Then the status is that of the first such, and `error` names it. */
enum mr_status mr_owned_optimizer_step(struct mr_owned_optimizer *optimizer, mr_gradient_of *gradient_of,
                                       void *context, char *error, size_t error_bytes);

#endif
