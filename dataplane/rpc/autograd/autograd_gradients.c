/* What backwards have added up: gradients of leaves and of parameters of this worker. */
#include <stdlib.h>
#include "dataplane/rpc/autograd/backward_internal.h"
#include "dataplane/rpc/call/executing.h"
#include "dataplane/rpc/rref/parameter.h"
#include "dataplane/rpc/rref/rref_internal.h"

/* A sum that was looked at, and replaced since, by a backward that a program began too early: it stays until
 * the context's end. */
struct mr_lent_sum {
    struct mr_lent_sum *next;
    float *sum;
};

enum mr_status mr_autograd_gradient(struct mr_autograd *c, const struct mr_value *leaf,
                                    struct mr_tensor *gradient)
{
    enum mr_status status = MR_OK;

    if (c == NULL)
        return mr_rpc_error(MR_INVALID_ARGUMENT, "mr_autograd_gradient: " MR_CONTEXT_IS_NULL);
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

/* ---- adding up ---- */

#define ADD "mr_autograd_add_gradient"

/* Under the lock. NULL: no memory. */
static struct mr_parameter_gradient *entry_of(struct mr_autograd *c, struct mr_rref *parameter,
                                              const struct mr_tensor *shape)
{
    struct mr_id_node *node = mr_id_map_get(&c->gradients, mr_rref_id(parameter));

    if (node != NULL)
        return MR_CONTAINER(node, struct mr_parameter_gradient, id);
    struct mr_parameter_gradient *entry = calloc(1, sizeof(*entry));

    if (entry == NULL)
        return NULL;
    entry->id.id = mr_rref_id(parameter);
    entry->shape = *shape;
    entry->shape.data = NULL;
    entry->parameter = parameter;
    mr_rref_retain(parameter);
    mr_id_map_put(&c->gradients, &entry->id);
    if (c->gradients_last == NULL)
        c->gradients_first = entry;
    else
        c->gradients_last->next = entry;
    c->gradients_last = entry;
    return entry;
}

/* Under the lock. Until the context's end. False: no memory. */
static bool keep(struct mr_autograd *c, float *sum)
{
    struct mr_lent_sum *lent = malloc(sizeof(*lent));

    if (lent == NULL)
        return false;
    lent->next = c->lent;
    lent->sum = sum;
    c->lent = lent;
    return true;
}

/* Takes the sum. False: no memory, it is not in. */
static bool add_to(struct mr_autograd *c, struct mr_parameter_gradient *entry, float *sum)
{
    uint64_t count = entry->shape.bytes / sizeof(*sum);

    for (;;) {
        pthread_mutex_lock(&c->lock);
        float *other = entry->sum;
        bool is_lent = other != NULL && entry->is_lent, is_kept = !is_lent || keep(c, other);

        if (is_kept) {
            entry->sum = other == NULL ? sum : NULL;
            entry->is_lent = false;
        }
        pthread_mutex_unlock(&c->lock);
        if (!is_kept)
            free(sum);
        if (!is_kept || other == NULL)
            return is_kept;
        for (uint64_t i = 0; i < count; i++)
            sum[i] += other[i];
        if (!is_lent)
            free(other);
    }
}

/* Its dtype and shape. False: it is no tensor, or is not there yet. */
static bool value_of(struct mr_rref *parameter, struct mr_value *out)
{
    const struct mr_versions *versions = mr_parameter_versions(parameter);
    const struct mr_value *value = mr_rref_value_now(parameter);

    if (versions != NULL)
        *out = mr_value_tensor(*mr_versions_shape(versions));
    else if (value != NULL && value->kind == MR_VALUE_TENSOR)
        *out = *value;
    else
        return false;
    return true;
}

static enum mr_status check(const struct mr_rpc_call *call, struct mr_rref *parameter,
                            const struct mr_tensor *gradient)
{
    const char *name = call->function->name;
    char what[120], wanted[120];

    if (gradient == NULL)
        return mr_rpc_error(MR_INVALID_ARGUMENT, ADD ": %s: gradient is NULL", name);
    if (call->context == NULL)
        return mr_rpc_error(MR_INVALID_ARGUMENT, ADD ": %s was called in no context", name);
    if (!mr_rref_is_owner(parameter))
        return mr_rpc_error(MR_INVALID_ARGUMENT,
                            ADD ": %s: the parameter lives on rank %u, and its gradients add up there", name,
                            mr_rref_owner(parameter));
    if (gradient->dtype != MR_F32 || (gradient->data == NULL && gradient->bytes != 0))
        return mr_rpc_error(MR_INVALID_ARGUMENT, ADD ": %s: the gradient is no f32 tensor", name);
    const struct mr_value given = mr_value_tensor(*gradient);
    struct mr_value value;

    if (!value_of(parameter, &value) || mr_backward_same_shape(&value.tensor, gradient))
        return MR_OK;
    mr_signature_describe(&given, 1, what, sizeof(what));
    mr_signature_describe(&value, 1, wanted, sizeof(wanted));
    return mr_rpc_error(MR_WRONG_SHAPE, ADD ": %s: the gradient is %s, and the parameter is %s", name, what,
                        wanted);
}

static enum mr_status no_memory(const struct mr_rpc_call *call)
{
    return mr_rpc_error(MR_NO_MEMORY, ADD ": %s: no memory", call->function->name);
}

/* The parameter is held. */
static enum mr_status add_gradient(struct mr_rpc_call *call, struct mr_rref *parameter,
                                   const struct mr_tensor *gradient)
{
    struct mr_autograd *c = call->context;
    enum mr_status status = check(call, parameter, gradient);

    if (status != MR_OK)
        return status;
    float *sum = mr_backward_copy(gradient);

    pthread_mutex_lock(&c->lock);
    struct mr_parameter_gradient *entry = sum == NULL ? NULL : entry_of(c, parameter, gradient);

    pthread_mutex_unlock(&c->lock);
    if (entry == NULL) {
        free(sum);
        return no_memory(call);
    }
    if (!mr_backward_same_shape(&entry->shape, gradient)) {
        free(sum);
        return mr_rpc_error(MR_WRONG_SHAPE, ADD ": %s: gradients of two shapes for one parameter",
                            call->function->name);
    }
    return add_to(c, entry, sum) ? MR_OK : no_memory(call);
}

enum mr_status mr_autograd_add_gradient(struct mr_rpc_call *call, struct mr_rref *parameter,
                                        const struct mr_tensor *gradient)
{
    if (!mr_rref_pin(parameter, ADD))
        return MR_INVALID_ARGUMENT;
    enum mr_status status = add_gradient(call, parameter, gradient);

    mr_rref_unpin(parameter);
    return status;
}

bool mr_context_gradient(struct mr_autograd *c, uint64_t reference, struct mr_tensor *gradient)
{
    bool found = false;

    pthread_mutex_lock(&c->lock);
    struct mr_id_node *node = mr_id_map_get(&c->gradients, reference);

    if (node != NULL) {
        struct mr_parameter_gradient *entry = MR_CONTAINER(node, struct mr_parameter_gradient, id);

        entry->is_lent = entry->sum != NULL;
        *gradient = entry->shape;
        gradient->data = entry->sum;
        found = entry->sum != NULL;
    }
    pthread_mutex_unlock(&c->lock);
    return found;
}

void mr_context_gradients_drop(struct mr_autograd *c)
{
    while (c->gradients_first != NULL) {
        struct mr_parameter_gradient *entry = c->gradients_first;

        c->gradients_first = entry->next;
        mr_rref_release(entry->parameter);
        free(entry->sum);
        free(entry);
    }
    while (c->lent != NULL) {
        struct mr_lent_sum *lent = c->lent;

        c->lent = lent->next;
        free(lent->sum);
        free(lent);
    }
    mr_id_map_destroy(&c->gradients);
}
