/* Sums of gradients: of leaves and parameters, on this worker and on others. */
#include <stdlib.h>
#include "dataplane/rpc/autograd/context.h"
#include "dataplane/rpc/call/executing.h"
#include "dataplane/rpc/rref/rref_internal.h"

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

/* Under the lock: finds or adds the entry of a parameter. NULL: no memory. */
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

/* Under the lock: keeps a sum until the context's end. False: no memory. */
static bool autograd_gradients_keep(struct mr_autograd *c, void *sum)
{
    struct mr_lent_sum *lent = malloc(sizeof(*lent));
    if (lent == NULL)
        return false;
    lent->next = c->lent;
    lent->sum = sum;
    c->lent = lent;
    return true;
}

/* Adds and takes the sum. False: no memory, it was not added. */
static bool add_to(struct mr_autograd *c, struct mr_parameter_gradient *entry, void *sum)
{
    for (;;) {
        pthread_mutex_lock(&c->lock);
        void *other = entry->sum;
        bool is_lent = other != NULL && entry->is_lent,
             is_kept = !is_lent || autograd_gradients_keep(c, other);

        if (is_kept) {
            entry->sum = other == NULL ? sum : NULL;
            entry->is_lent = false;
        }
        pthread_mutex_unlock(&c->lock);
        if (!is_kept)
            free(sum);
        if (!is_kept || other == NULL)
            return is_kept;
        mr_gradient_add(&entry->shape, sum, other);
        if (!is_lent)
            free(other);
    }
}

/* Returns the parameter's dtype and shape. False: it is not a tensor, or does not exist yet. */
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

static enum mr_status autograd_gradients_check(const struct mr_rpc_call *call, struct mr_rref *parameter,
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
    if (!mr_gradient_is_of(gradient->dtype) || (gradient->data == NULL && gradient->bytes != 0))
        return mr_rpc_error(MR_INVALID_ARGUMENT, ADD ": %s: the gradient is no tensor of f32 or f64", name);
    const struct mr_value given = mr_value_tensor(*gradient);
    struct mr_value value;

    if (!value_of(parameter, &value) || mr_gradient_same_shape(&value.tensor, gradient))
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
    enum mr_status status = autograd_gradients_check(call, parameter, gradient);
    if (status != MR_OK)
        return status;
    void *sum = mr_gradient_copy(gradient);

    pthread_mutex_lock(&c->lock);
    struct mr_parameter_gradient *entry = sum == NULL ? NULL : entry_of(c, parameter, gradient);

    pthread_mutex_unlock(&c->lock);
    if (entry == NULL) {
        free(sum);
        return no_memory(call);
    }
    if (!mr_gradient_same_shape(&entry->shape, gradient)) {
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

/* ---- another worker's parameters: "mr.gradients" returns pages of pairs ---- */

#define PAGE_PAIRS 47u /* with the number of all pairs, as many as fit into the results of a call */
#define PAGE_BYTES ((uint64_t)(16u << 20)) /* about, unless a single gradient is larger */

static enum mr_status return_page(struct mr_rpc_call *call, const struct mr_value *arguments,
                                  uint32_t argument_count)
{
    struct mr_autograd *c = call->context;
    enum mr_status status = MR_OK;
    uint64_t bytes = 0;
    uint32_t pairs = 0;
    int64_t at = 0;
    if (c == NULL)
        return mr_rpc_fail(call, "it was called in no context");
    pthread_mutex_lock(&c->lock);
    status = mr_rpc_return(call, mr_value_i64(c->gradients.count));
    for (const struct mr_parameter_gradient *entry = c->gradients_first; entry != NULL && status == MR_OK;
         entry = entry->next) {
        struct mr_value gradient = mr_value_tensor(entry->shape);
        if (at++ < arguments[0].i64)
            continue;
        bytes += entry->shape.bytes;
        if (pairs == PAGE_PAIRS || (pairs > 0 && bytes > PAGE_BYTES))
            break;
        gradient.tensor.data = entry->sum;
        if (entry->sum == NULL)
            status = mr_rpc_fail(call, "a backward pass runs in the context");
        if (status == MR_OK)
            status = mr_rpc_return(call, mr_value_rref(entry->parameter));
        if (status == MR_OK)
            status = mr_rpc_return(call, gradient);
        pairs++;
    }
    pthread_mutex_unlock(&c->lock);
    return status;
}

enum mr_status mr_gradients_register(struct mr_functions *functions)
{
    static const struct mr_rpc_function page = {
        .name = "mr.gradients", .arguments = "i64", .results = "i64, ...", .run = return_page};
    char error[64];
    return mr_functions_add(functions, &page, true, error, sizeof(error));
}

/* ---- on the worker that asks: it calls that until all are there ---- */

/* The pages that have arrived. */
struct gathered {
    struct mr_rpc_result **pages;
    uint32_t page_count, page_room;
    int64_t pairs, all;
};

/* Checks a page: it must bring some of the missing pairs. */
static enum mr_status read_page(const struct mr_rpc_result *page, uint32_t of, struct gathered *got)
{
    uint32_t count = mr_rpc_result_count(page);
    bool is_one = count % 2 == 1 && mr_rpc_result_value(page, 0)->kind == MR_VALUE_I64;
    for (uint32_t i = 1; i < count; i++)
        is_one =
            is_one && mr_rpc_result_value(page, i)->kind == (i % 2 == 1 ? MR_VALUE_RREF : MR_VALUE_TENSOR);
    if (is_one) {
        got->all = mr_rpc_result_value(page, 0)->i64;
        got->pairs += count / 2;
        is_one = got->pairs <= got->all && (count > 1 || got->all == 0);
    }
    return is_one ? MR_OK
                  : mr_rpc_error(MR_BAD_MESSAGE, "mr_autograd_gradients: rank %u gave none in pairs", of);
}

static enum mr_status fetch_page(struct mr_autograd *c, uint32_t of, struct gathered *got)
{
    struct mr_rpc_call_options options = {.context = c};
    struct mr_value first = mr_value_i64(got->pairs);
    if (got->page_count == got->page_room) {
        uint32_t room = got->page_room == 0 ? 4 : got->page_room * 2;
        struct mr_rpc_result **pages = realloc(got->pages, room * sizeof(struct mr_rpc_result *));
        if (pages == NULL)
            return mr_rpc_error(MR_NO_MEMORY, "mr_autograd_gradients: no memory");
        got->pages = pages;
        got->page_room = room;
    }
    struct mr_rpc_result *page;
    enum mr_status status = mr_rpc_sync(c->contexts->agent, of, "mr.gradients", &first, 1, &options, &page);

    if (status != MR_OK)
        return status;
    got->pages[got->page_count++] = page;
    return read_page(page, of, got);
}

static enum mr_status join_pages(struct mr_rpc *agent, const struct gathered *got,
                                 struct mr_rpc_result **pairs)
{
    struct mr_value *values = calloc((size_t)got->pairs * 2 + 1, sizeof(*values));
    struct mr_rpc_result *joined = NULL;
    uint32_t count = 0;
    for (uint32_t i = 0; values != NULL && i < got->page_count; i++)
        for (uint32_t j = 1; j < mr_rpc_result_count(got->pages[i]); j++)
            values[count++] = *mr_rpc_result_value(got->pages[i], j);
    if (values != NULL)
        joined = mr_result_copy(agent, values, count);
    if (joined != NULL) {
        mr_rrefs_retain(values, count); /* the pages' own holds are released with the pages */
        *pairs = joined;
    }
    free(values);
    return joined != NULL ? MR_OK : mr_rpc_error(MR_NO_MEMORY, "mr_autograd_gradients: no memory");
}

enum mr_status mr_autograd_gradients(struct mr_autograd *c, uint32_t of, struct mr_rpc_result **pairs)
{
    struct gathered got = {.pages = NULL};
    enum mr_status status;
    if (c == NULL)
        return mr_rpc_error(MR_INVALID_ARGUMENT, "mr_autograd_gradients: " MR_CONTEXT_IS_NULL);
    do {
        status = fetch_page(c, of, &got);
    } while (status == MR_OK && got.pairs < got.all);
    if (status == MR_OK)
        status = join_pages(c->contexts->agent, &got, pairs);
    for (uint32_t i = 0; i < got.page_count; i++)
        mr_rpc_result_free(got.pages[i]);
    free(got.pages);
    return status;
}
