#include "dataplane/rpc/call/future.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dataplane/rpc/rref/rref_internal.h"
#include "dataplane/wire/base/list.h"

struct mr_rpc_future *mr_rpc_future_new(struct mr_rpc *agent, const char *function, uint32_t to)
{
    struct mr_rpc_future *f = mr_pool_take(&agent->futures);

    if (f == NULL)
        return NULL;
    memset(f, 0, offsetof(struct mr_rpc_future, function));
    memcpy(f->function, function, strnlen(function, sizeof(f->function) - 1) + 1);
    f->function[sizeof(f->function) - 1] = 0;
    f->error[0] = 0;
    f->agent = agent;
    mr_agent_hold(agent);
    f->call.to = to;
    atomic_store_explicit(&f->holds, 2, memory_order_relaxed);
    return f;
}

void mr_rpc_future_hold(struct mr_rpc_future *f)
{
    atomic_fetch_add(&f->holds, 1);
}

void mr_rpc_future_block_free(struct mr_rpc_future *f)
{
    free(f->block);
    f->block = NULL;
    mr_long_unreserve(f->agent, f->reserved_bytes);
    f->reserved_bytes = 0;
}

void mr_rpc_future_put(struct mr_rpc_future *f)
{
    if (atomic_fetch_sub(&f->holds, 1) != 1)
        return;
    struct mr_rpc *agent = f->agent;

    mr_rpc_result_free(f->result);
    if (f->rref != NULL)
        mr_rref_unpin(f->rref);
    free(f->passed);
    mr_rpc_future_block_free(f);
    mr_pool_give(&agent->futures, f);
    mr_agent_put(agent);
}

/* ---- time ---- */

void mr_rpc_future_arm(struct mr_rpc_future *f, uint64_t now_us)
{
    struct mr_rpc *agent = f->agent;

    if (f->ended || f->deadline_us == UINT64_MAX)
        return;
    mr_timer_arm(&agent->deadlines, &f->timer, now_us, f->deadline_us);
    if (f->deadline_us < agent->deadlines_next_us)
        agent->deadlines_next_us = f->deadline_us;
}

uint64_t mr_rpc_future_tick(struct mr_rpc *agent, uint64_t now_us)
{
    struct mr_timer *timer;

    if (now_us < agent->deadlines_next_us)
        return agent->deadlines_next_us;
    while ((timer = mr_timer_take(&agent->deadlines, now_us)) != NULL) {
        struct mr_rpc_future *f = MR_CONTAINER(timer, struct mr_rpc_future, timer);

        mr_rpc_future_end(f, MR_DEADLINE_EXCEEDED,
                          f->local ? "it did not end within the call's time-out"
                                   : "no answer came within the call's time-out",
                          NULL);
        if (!f->local)
            (void)mr_agent_withdraw(agent, &f->call);
    }
    agent->deadlines_next_us = mr_timer_next_us(&agent->deadlines);
    return agent->deadlines_next_us;
}

/* ---- the end ---- */

static void run_then(struct mr_job *job)
{
    struct mr_rpc_future *f = MR_CONTAINER(job, struct mr_rpc_future, then_job);
    struct mr_rpc_result *result = f->result;

    f->result = NULL;
    f->then(f->then_user, f->status, f->error, result);
    mr_rpc_future_put(f);
}

static void begin_then(struct mr_rpc_future *f)
{
    f->then_job = (struct mr_job){.run = run_then, .urgent = true, .depth = MR_EXECUTOR_DEPTHS - 1};
    mr_executor_give_one(f->agent->executor, &f->then_job);
}

void mr_rpc_future_end(struct mr_rpc_future *f, enum mr_status status, const char *why,
                       struct mr_rpc_result *result)
{
    struct mr_rpc *agent = f->agent;
    char who[MR_MEMBER_TEXT_BYTES];

    if (f->ended) {
        mr_rpc_result_free(result);
        return;
    }
    f->ended = true;
    mr_timer_disarm(&agent->deadlines, &f->timer);
    f->status = status;
    f->result = result;
    if (status != MR_OK) {
        mr_member_text(agent, f->call.to, who);
        snprintf(f->error, sizeof(f->error), "%s on %s: %s", f->function, who,
                 why == NULL || why[0] == 0 ? mr_status_text(status) : why);
    }
    uint32_t before = mr_agent_done(&f->word);

    if ((before & MR_RPC_FUTURE_THEN) != 0)
        begin_then(f);
    /* Last: what the `then` does counts as in flight, too. */
    atomic_fetch_sub(&agent->in_flight, 1);
}

/* ---- the user's ---- */

enum mr_status mr_rpc_wait(struct mr_rpc_future *f, struct mr_rpc_result **result)
{
    if (mr_agent_is_inherited(f->agent))
        return mr_agent_check_process(f->agent, "mr_rpc_wait");
    if ((atomic_load(&f->word) & MR_DONE) == 0)
        (void)mr_agent_wait(f->agent, &f->word, UINT64_MAX);
    if (f->status != MR_OK)
        return mr_rpc_error(f->status, "%s", f->error);
    if (result != NULL) {
        *result = f->result;
        f->result = NULL;
    }
    return MR_OK;
}

bool mr_rpc_done(struct mr_rpc_future *f)
{
    return (atomic_load(&f->word) & MR_DONE) != 0 || mr_agent_is_inherited(f->agent);
}

enum mr_status mr_rpc_then(struct mr_rpc_future *f, mr_rpc_then_run then, void *user)
{
    if (then == NULL)
        return mr_rpc_error(MR_INVALID_ARGUMENT, "mr_rpc_then: then is NULL");
    if (mr_agent_is_inherited(f->agent))
        return mr_agent_check_process(f->agent, "mr_rpc_then");
    f->then = then;
    f->then_user = user;
    if ((atomic_fetch_or(&f->word, MR_RPC_FUTURE_THEN) & MR_DONE) != 0)
        begin_then(f);
    return MR_OK;
}

void mr_rpc_future_destroy(struct mr_rpc_future *f)
{
    if (f != NULL && !mr_agent_is_inherited(f->agent))
        mr_rpc_future_put(f);
}
