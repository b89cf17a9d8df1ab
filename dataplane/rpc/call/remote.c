/* mr_remote(): calls whose result stays where it was made. */
#include <stdlib.h>
#include <string.h>
#include "dataplane/rpc/call/call.h"
#include "dataplane/rpc/rref/rref_internal.h"

/* ---- the caller's side ---- */

enum mr_status mr_remote(struct mr_rpc *agent, uint32_t to, const char *function,
                         const struct mr_value *arguments, uint32_t argument_count,
                         const struct mr_rpc_call_options *options, struct mr_rref **rref)
{
    struct mr_rrefs *all = agent->rrefs;
    struct mr_rpc_future *future;

    if (all == NULL)
        return mr_rpc_error(MR_UNSUPPORTED, "mr_remote: this process is no worker of a world");
    struct mr_rref *r = mr_rref_new(all, to, mr_references_new_id(all->refs),
                                    to == agent->config.rank ? 0 : mr_references_new_id(all->refs));

    if (r == NULL)
        return mr_rpc_error(MR_NO_MEMORY, "mr_remote: no memory for a reference");
    struct mr_call_order order = {.caller = "mr_remote",
                                  .to = to,
                                  .function = function,
                                  .arguments = arguments,
                                  .argument_count = argument_count,
                                  .options = options,
                                  .flags = MR_RPC_REMOTE,
                                  .rref = r};
    enum mr_status status = mr_call_start(agent, &order, &future);

    if (status != MR_OK) {
        mr_rref_release(r);
        return status;
    }
    mr_rpc_future_destroy(future);
    *rref = r;
    return MR_OK;
}

enum mr_status mr_remote_goes(void *self, struct mr_rref *r)
{
    (void)self;
    return mr_rref_make(r);
}

void mr_remote_never(void *self, struct mr_rref *r, enum mr_status status)
{
    struct mr_rrefs *all = self;

    if (r->handle != NULL && !mr_rref_is_owner(r))
        mr_references_remote_failed(all->refs, r->handle, status);
    else if (r->status == MR_OK)
        r->status = status;
}

/* ---- the owner's side ---- */

enum mr_status mr_remote_came(void *self, uint32_t from, uint64_t reference, uint64_t fork)
{
    struct mr_rrefs *all = self;
    struct mr_reference_ticket ticket = {
        .owner = all->agent->config.rank, .reference = reference, .fork = fork};
    bool run = false;
    enum mr_status status = mr_references_remote_arrived(all->refs, from, &ticket, &run);

    if (status == MR_OK && !run) /* such calls come once */
        status = MR_BAD_MESSAGE;
    return status;
}

void mr_remote_ended(void *self, uint64_t reference, enum mr_status status, const char *error,
                     struct mr_rpc_result *result, void (*destroy)(void *object))
{
    struct mr_rrefs *all = self;
    struct mr_kept *kept = mr_kept_new(all, status, error, result, destroy);

    if (kept == NULL) { /* there is a reason, at least */
        if (result != NULL && result->count != 0 && result->values[0].kind == MR_VALUE_OBJECT &&
            destroy != NULL)
            destroy(result->values[0].object);
        mr_rpc_result_free(result);
        kept = &all->no_memory;
    }
    if (!mr_references_fulfil(all->refs, reference, kept))
        mr_kept_free(kept);
}
