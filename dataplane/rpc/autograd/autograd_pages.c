/* Gradients of another worker's parameters: "mr.gradients" returns them in pages of pairs, and
 * mr_autograd_gradients() calls it until all are there. */
#include <stdlib.h>
#include "dataplane/rpc/autograd/context.h"
#include "dataplane/rpc/base/rpc.h"
#include "dataplane/rpc/call/executing.h"
#include "dataplane/rpc/rref/result.h"
#include "dataplane/rpc/rref/rref.h"

#define PAGE_PAIRS 47u                     /* with the number of all of them, results of one call */
#define PAGE_BYTES ((uint64_t)(16u << 20)) /* about so much, unless one alone is larger */

/* ---- on the worker that has them ---- */

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

/* ---- on the worker that asks ---- */

/* Pages as they come. */
struct gathered {
    struct mr_rpc_result **pages;
    uint32_t page_count, page_room;
    int64_t pairs, all;
};

/* It brings some of those that are left, whatever else that worker says. */
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

    for (uint32_t i = 0; values != NULL && i < got->page_count; i++) {
        for (uint32_t j = 1; j < mr_rpc_result_count(got->pages[i]); j++)
            values[count++] = *mr_rpc_result_value(got->pages[i], j);
    }
    if (values != NULL)
        joined = mr_result_copy(agent, values, count);
    if (joined != NULL) {
        mr_rrefs_retain(values, count); /* the pages' holds go with the pages */
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
