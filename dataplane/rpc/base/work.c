#include "dataplane/rpc/base/work.h"

#include <linux/futex.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "dataplane/rpc/base/rpc.h"
#include "dataplane/wire/base/fence.h"
#include "dataplane/wire/base/printable.h"

#define ERROR_BYTES 768u
#define NUDGE_US    200u /* if jobs have not begun by then, one of those before was not short */

static _Thread_local char error_line[ERROR_BYTES];

const char *mr_rpc_last_error(void)
{
    return error_line;
}

void mr_rpc_error_line(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(error_line, sizeof(error_line), format, args);
    va_end(args);
    mr_make_printable(error_line, sizeof(error_line)); /* it names workers, as they call themselves */
}

/* ---- work ---- */

void mr_agent_run_work(struct mr_rpc *agent)
{
    struct mr_work *newest;
    while ((newest = atomic_exchange(&agent->work, NULL)) != NULL) {
        struct mr_work *in_order = NULL;
        while (newest != NULL) {
            struct mr_work *older = newest->next;
            newest->next = in_order;
            in_order = newest;
            newest = older;
        }
        while (in_order != NULL) {
            struct mr_work *next = in_order->next;
            in_order->run(agent, in_order);
            in_order = next;
        }
    }
}

void mr_agent_run_late(struct mr_rpc *agent)
{
    while (mr_agent_has_work(agent) && pthread_mutex_trylock(&agent->late) == 0) {
        mr_agent_run_work(agent);
        pthread_mutex_unlock(&agent->late);
        mr_fence();
    }
}

void mr_agent_submit_quietly(struct mr_rpc *agent, struct mr_work *work)
{
    work->next = atomic_load_explicit(&agent->work, memory_order_relaxed);
    while (!atomic_compare_exchange_weak(&agent->work, &work->next, work))
        ;
    /* Before the lock is tried, which may fail and orders nothing then. */
    mr_fence();
}

void mr_agent_wake(struct mr_rpc *agent)
{
    if (atomic_load(&agent->over))
        mr_agent_run_late(agent);
    else if (mr_agent_has_work(agent))
        agent->config.driver.wake(agent->config.driver.self);
}

/* The agent is held in the meantime: the work may have the last hold, and another thread may run it at
 * once. */
void mr_agent_submit(struct mr_rpc *agent, struct mr_work *work)
{
    mr_agent_hold(agent);
    mr_agent_submit_quietly(agent, work);
    mr_agent_wake(agent);
    mr_agent_put(agent);
}

bool mr_agent_has_work(const struct mr_rpc *agent)
{
    return atomic_load(&agent->work) != NULL;
}

uint32_t mr_agent_done(_Atomic uint32_t *done)
{
    uint32_t before = atomic_exchange(done, MR_DONE);
    if ((before & MR_DONE_SLEEPER) != 0)
        (void)syscall(SYS_futex, done, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
    return before;
}

bool mr_agent_wait(struct mr_rpc *agent, _Atomic uint32_t *done, uint64_t deadline_us)
{
    mr_executor_blocks();
    bool is_done = agent->config.driver.wait(agent->config.driver.self, done, deadline_us);

    mr_executor_unblocks();
    return is_done;
}

/* ---- the agent, its time and its process ---- */

void mr_agent_hold(struct mr_rpc *agent)
{
    atomic_fetch_add_explicit(&agent->holds, 1, memory_order_relaxed);
}

void mr_agent_put(struct mr_rpc *agent)
{
    if (atomic_fetch_sub(&agent->holds, 1) == 1)
        agent->free(agent);
}

uint64_t mr_agent_deadline_us(const struct mr_rpc *agent, uint64_t now_us, uint32_t timeout_ms)
{
    if (timeout_ms == UINT32_MAX)
        return UINT64_MAX;
    return now_us + (uint64_t)(timeout_ms == 0 ? agent->config.timeout_ms : timeout_ms) * 1000u;
}

bool mr_agent_is_inherited(const struct mr_rpc *agent)
{
    const struct mr_agent_driver *driver = &agent->config.driver;
    return driver->is_inherited != NULL && driver->is_inherited(driver->self);
}

enum mr_status mr_agent_check_process(const struct mr_rpc *agent, const char *caller)
{
    if (!mr_agent_is_inherited(agent))
        return MR_OK;
    return mr_rpc_error(
        MR_FORKED, "%s: the worker is of the process from which this one was forked: a child is no worker",
        caller);
}

/* ---- jobs ---- */

void mr_agent_add_job(struct mr_rpc *agent, struct mr_job *job)
{
    job->next = NULL;
    if (agent->jobs_last == NULL)
        agent->jobs_first = job;
    else
        agent->jobs_last->next = job;
    agent->jobs_last = job;
    agent->job_count++;
}

void mr_agent_give_jobs(struct mr_rpc *agent)
{
    if (agent->job_count == 0)
        return;
    if (agent->nudge_us == 0)
        agent->nudge_us = mr_agent_now(agent) + NUDGE_US;
    mr_executor_give(agent->executor, agent->jobs_first, agent->jobs_last, agent->job_count);
    agent->jobs_first = NULL;
    agent->jobs_last = NULL;
    agent->job_count = 0;
}

uint64_t mr_agent_nudge_jobs(struct mr_rpc *agent, uint64_t now_us)
{
    if (agent->nudge_us != 0 && agent->nudge_us <= now_us)
        agent->nudge_us = mr_executor_nudge(agent->executor) ? now_us + NUDGE_US : 0;
    return agent->nudge_us == 0 ? UINT64_MAX : agent->nudge_us;
}
