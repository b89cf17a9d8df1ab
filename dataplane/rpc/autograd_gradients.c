/* What backwards have added up: gradients of leaves and of parameters. */
#include <stdlib.h>
#include "dataplane/rpc/agent_internal.h"
#include "dataplane/rpc/context.h"

enum mr_status mr_autograd_gradient(struct mr_autograd *c, const struct mr_value *leaf,
                                    struct mr_tensor *gradient)
{
    enum mr_status status = MR_OK;

    pthread_mutex_lock(&c->lock);
    uint32_t value = mr_tape_find(&c->tape, leaf->gradient);

    if (value == MR_TAPE_NONE || !c->tape.nodes[c->tape.values[value].node].is_leaf) {
        status = MR_INVALID_ARGUMENT;
    } else {
        *gradient = c->tape.values[value].shape;
        gradient->data = c->tape.values[value].gradient;
    }
    pthread_mutex_unlock(&c->lock);
    return status == MR_OK ? MR_OK
                           : mr_rpc_error(status, "mr_autograd_gradient: the value is no leaf that "
                                                  "mr_autograd_leaf() gave in this context on this worker");
}

void mr_context_gradients_drop(struct mr_autograd *c)
{
    mr_id_map_destroy(&c->gradients);
}
