/* Copies values from their owners: RPC_FETCH. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/rpc/call/call.h"
#include "dataplane/rpc/call/serving.h"
#include "dataplane/rpc/rref/rref_internal.h"

#define TO_HERE "mr_rref_to_here"

/* ---- asking ---- */

static enum mr_status send_fetch(struct mr_rpc *agent, struct mr_rpc_future *f)
{
    struct mr_rref *r = f->rref;
    if (agent->closing)
        return mr_rpc_error(MR_SHUTTING_DOWN, "this worker is being destroyed");
    enum mr_status status = mr_rref_make(r);

    if (status != MR_OK)
        return status;
    uint64_t words[MR_FETCH_WORDS] = {[MR_FETCH_REFERENCE] = r->id, [MR_FETCH_FORK] = r->handle->by_fork.id};
    struct mr_tensor tensor = mr_body_tensor(MR_BODY_FETCH, words);

    if (r->handle->status != MR_OK && r->handle->status != MR_WORKER_DIED)
        return mr_rpc_error(r->handle->status, "the call that was to make the value never left: %s",
                            mr_status_text(r->handle->status));
    status = mr_agent_begin(agent, &f->call, &tensor, 1);
    if (status != MR_OK)
        return status;
    mr_agent_send(agent, &f->call);
    mr_rpc_future_arm(f, f->begun_us);
    return MR_OK;
}

static void send_waiting(struct mr_rpc *agent, struct mr_work *work)
{
    struct mr_rpc_future *f = MR_CONTAINER(work, struct mr_rpc_future, work);
    enum mr_status status = send_fetch(agent, f);
    if (status == MR_OK)
        return;
    mr_rpc_future_end(f, status, mr_rpc_last_error(), NULL);
    mr_rpc_future_put(f);
}

static enum mr_status fetch(struct mr_rref *r, uint32_t timeout_ms, struct mr_rpc_result **result)
{
    struct mr_rpc *agent = r->all->agent;
    if (mr_rref_is_over(r, TO_HERE))
        return MR_SHUTTING_DOWN;
    struct mr_rpc_future *f = mr_rpc_future_begin(agent, TO_HERE, r->owner, timeout_ms);

    if (f == NULL)
        return mr_rpc_error(MR_NO_MEMORY, TO_HERE ": no memory for the call");
    f->call.op = MR_OP_RPC_FETCH;
    f->call.fetch = true;
    f->call.ended = mr_rpc_future_ended;
    f->call.over = &f->ended;
    f->work.run = send_waiting;
    (void)mr_rref_pin(r, TO_HERE);
    f->rref = r;
    mr_agent_submit(agent, &f->work);
    enum mr_status status = mr_rpc_wait(f, result);

    mr_rpc_future_put(f);
    return status;
}

static enum mr_status copy_own(struct mr_rref *r, uint32_t timeout_ms, struct mr_rpc_result **result)
{
    struct mr_kept *kept;
    enum mr_status status = mr_rref_wait_kept(r, TO_HERE, timeout_ms, &kept);
    if (status != MR_OK)
        return status;
    if (mr_kept_is_object(kept))
        return mr_rpc_error(MR_INVALID_ARGUMENT,
                            TO_HERE ": the value is an object: it stays with its owner, which gets it by "
                                    "mr_rref_local_value()");
    struct mr_rpc_result *copy = mr_kept_copy(kept);

    if (copy == NULL)
        return mr_rpc_error(MR_NO_MEMORY, TO_HERE ": no memory for the copy");
    *result = copy;
    return MR_OK;
}

enum mr_status mr_rref_to_here(struct mr_rref *r, uint32_t timeout_ms, struct mr_rpc_result **result)
{
    if (r == NULL)
        return mr_rpc_error(MR_INVALID_ARGUMENT, TO_HERE ": the reference is NULL");
    enum mr_status status = mr_agent_check_process(r->all->agent, TO_HERE);

    if (status != MR_OK)
        return status;
    if (!mr_rref_pin(r, TO_HERE))
        return MR_INVALID_ARGUMENT;
    status = mr_rref_is_owner(r) ? copy_own(r, timeout_ms, result) : fetch(r, timeout_ms, result);

    mr_rref_unpin(r);
    return status;
}

/* ---- answering ---- */

struct mr_fetch {
    struct mr_reference_waiter waiter;
    struct mr_rpc *agent;
    struct mr_reference_ticket ticket;
    uint32_t from;
    struct mr_call_ref ref;
    struct mr_fetch *next; /* in mr_rpc.unanswered_fetches */
    struct mr_kept *kept;  /* held by an answer in parts */
    struct mr_kept_read read;
};

static void answer_error(struct mr_fetch *fetch, enum mr_status status)
{
    struct mr_endpoint *ep = fetch->agent->config.endpoint;
    switch (status) {
    case MR_WORKER_DIED:
        mr_reply_error(ep, fetch->ref, status, "the worker that was to have the value made died");
        break;
    case MR_CANCELLED:
        mr_reply_error(ep, fetch->ref, MR_INVALID_ARGUMENT,
                       "the value is gone: its last reference was released");
        break;
    default:
        mr_reply_status(ep, fetch->ref, status);
    }
    free(fetch);
}

static void release(void *of)
{
    struct mr_fetch *fetch = of;
    mr_kept_unread(&fetch->read);
    mr_kept_unhold(fetch->kept);
    free(fetch);
}

static enum mr_answered reply_copy(struct mr_fetch *fetch, struct mr_kept *kept)
{
    struct mr_answer_hold hold = {.release = release, .of = fetch};
    if (!mr_kept_read(kept, false, &fetch->read))
        return MR_ANSWER_LATER;
    enum mr_answered answered = mr_serving_reply(fetch->agent, fetch->ref, fetch->from, 0, fetch->read.values,
                                                 fetch->read.count, hold);

    if (answered != MR_ANSWER_HELD) {
        mr_kept_unread(&fetch->read);
    } else {
        fetch->kept = kept;
        mr_kept_hold(kept);
    }
    return answered;
}

static void call_fetch_answer(struct mr_reference_waiter *waiter, enum mr_status status, void *value)
{
    struct mr_fetch *fetch = MR_CONTAINER(waiter, struct mr_fetch, waiter);
    struct mr_rpc *agent = fetch->agent;
    struct mr_kept *kept = value;
    enum mr_answered answered = MR_ANSWER_SENT;
    if (status != MR_OK) {
        answer_error(fetch, status);
        return;
    }
    if (kept->status != MR_OK)
        mr_reply_error(agent->config.endpoint, fetch->ref, kept->status, "%s", kept->error);
    else
        answered = reply_copy(fetch, kept);
    if (answered == MR_ANSWER_LATER) {
        fetch->next = agent->unanswered_fetches;
        agent->unanswered_fetches = fetch;
    } else if (answered == MR_ANSWER_SENT) {
        free(fetch);
    }
}

static void look_up(struct mr_fetch *fetch)
{
    enum mr_status status =
        mr_references_fetch(fetch->agent->rrefs->refs, fetch->from, &fetch->ticket, &fetch->waiter);
    if (status != MR_OK)
        answer_error(fetch, status);
}

void mr_fetch_retry(struct mr_rpc *agent)
{
    struct mr_fetch *next, *fetch = agent->unanswered_fetches;
    agent->unanswered_fetches = NULL;
    for (; fetch != NULL; fetch = next) {
        next = fetch->next;
        look_up(fetch);
    }
}

void mr_fetch_drop_all(struct mr_rpc *agent)
{
    while (agent->unanswered_fetches != NULL) {
        struct mr_fetch *fetch = agent->unanswered_fetches;
        agent->unanswered_fetches = fetch->next;
        answer_error(fetch, MR_SHUTTING_DOWN);
    }
}

void mr_fetch_serve(struct mr_rpc *agent, struct mr_member *from, const struct mr_request *request)
{
    struct mr_endpoint *ep = agent->config.endpoint;
    uint64_t words[MR_FETCH_WORDS];
    if (request->message->preamble.tensor_count != 1 ||
        !mr_body_read(MR_BODY_FETCH, &request->message->tensors[0], words)) {
        mr_reply_status(ep, request->ref, MR_BAD_MESSAGE);
        return;
    }
    struct mr_fetch *fetch = malloc(sizeof(*fetch));

    if (fetch == NULL || !mr_rrefs_reserve(agent->rrefs) || mr_reply_later(ep, request) == NULL) {
        free(fetch);
        mr_reply_busy(ep, request->ref);
        return;
    }
    *fetch = (struct mr_fetch){.waiter = {.run = call_fetch_answer},
                               .agent = agent,
                               .ticket = {.owner = agent->config.rank,
                                          .reference = words[MR_FETCH_REFERENCE],
                                          .fork = words[MR_FETCH_FORK]},
                               .from = from->rank,
                               .ref = request->ref};
    look_up(fetch);
}
