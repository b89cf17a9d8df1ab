/* Work for the thread inside an agent, holds of the agent, and lines of errors: what every part of it
 * uses. */
#ifndef MR_RPC_WORK_H
#define MR_RPC_WORK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "dataplane/rpc/base/driver.h"
#include "dataplane/rpc/base/executor.h"
#include "dataplane/rpc/millrace_rpc.h"

#define MR_RPC_ID_SHIFT    48
#define MR_RPC_ERROR_BYTES 512u

/* Work for the thread inside; whoever submits it owns it until run() is called. */
struct mr_work {
    struct mr_work *next;
    void (*run)(struct mr_rpc *agent, struct mr_work *work);
};

/* ---- any thread ---- */

/* Runs it inside, in the order of submission; after mr_agent_destroy() at once. */
void mr_agent_submit(struct mr_rpc *agent, struct mr_work *work);
/* The same without waking anybody: whoever submits many calls mr_agent_wake() after the last. */
void mr_agent_submit_quietly(struct mr_rpc *agent, struct mr_work *work);
void mr_agent_wake(struct mr_rpc *agent);
bool mr_agent_has_work(const struct mr_rpc *agent);
/* *done has MR_DONE and nothing else now, and who sleeps on it is woken; `done` may be gone when this
 * returns. Returns what it was. */
uint32_t mr_agent_done(_Atomic uint32_t *done);
/* Waits, not inside, until *done has MR_DONE; on a thread that runs functions another may run meanwhile.
 * False: at the deadline. */
bool mr_agent_wait(struct mr_rpc *agent, _Atomic uint32_t *done, uint64_t deadline_us);
/* Whoever has something of the agent's that it does not know of, or that outlives it, holds it. The last put
 * frees it. */
void mr_agent_hold(struct mr_rpc *agent);
void mr_agent_put(struct mr_rpc *agent);
/* timeout_ms as in mr_rpc_call_options, as an absolute time. */
uint64_t mr_agent_deadline_us(const struct mr_rpc *agent, uint64_t now_us, uint32_t timeout_ms);
/* Whether the worker belongs to a process that this one was forked from. */
bool mr_agent_is_inherited(const struct mr_rpc *agent);
/* MR_FORKED then, with the line. */
enum mr_status mr_agent_check_process(const struct mr_rpc *agent, const char *caller);
/* The line of mr_rpc_last_error() of this thread. */
void mr_rpc_error_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define mr_rpc_error(status, ...) (mr_rpc_error_line(__VA_ARGS__), (status))

/* ---- inside ---- */

/* Runs all that was submitted, and what that submits. */
void mr_agent_run_work(struct mr_rpc *agent);
/* After the end, by any thread: whoever submits pushes first and tries the lock then, so that either he gets
 * it or it is seen here. */
void mr_agent_run_late(struct mr_rpc *agent);
/* For the executor, with the next mr_agent_give_jobs(). */
void mr_agent_add_job(struct mr_rpc *agent, struct mr_job *job);
void mr_agent_give_jobs(struct mr_rpc *agent);
/* Sees to those that were given a while ago and have not begun. Returns when it wants to be called again. */
uint64_t mr_agent_nudge_jobs(struct mr_rpc *agent, uint64_t now_us);

#endif
