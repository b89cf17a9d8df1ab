/* What every part of an agent uses: work for the thread inside, holds of the agent, waits, and error
 * lines. */
#ifndef MR_RPC_WORK_H
#define MR_RPC_WORK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "dataplane/rpc/base/driver.h"
#include "dataplane/rpc/base/executor.h"
#include "dataplane/rpc/millrace_rpc.h"

#define MR_RPC_ID_SHIFT    48
#define MR_RPC_ERROR_BYTES 640u /* a function's error of 400 bytes after its name and a worker's */

/* Work for the thread inside; whoever submits it owns it until run() is called. */
struct mr_work {
    struct mr_work *next;
    void (*run)(struct mr_rpc *agent, struct mr_work *work);
};

/* ---- any thread ---- */

/* Has the work run inside, in the order of submission; after mr_agent_destroy() it runs at once. */
void mr_agent_submit(struct mr_rpc *agent, struct mr_work *work);
/* Does the same without waking the driver: after the last of several, call mr_agent_wake(). */
void mr_agent_submit_quietly(struct mr_rpc *agent, struct mr_work *work);
void mr_agent_wake(struct mr_rpc *agent);
bool mr_agent_has_work(const struct mr_rpc *agent);
/* Sets *done to MR_DONE alone, and wakes the threads that sleep on it; `done` may be gone when this returns.
 * Returns the value before. */
uint32_t mr_agent_done(_Atomic uint32_t *done);
/* Not inside: waits until *done has MR_DONE (returns true) or until the deadline (false). If this thread runs
 * functions, another may replace it in the meantime. */
bool mr_agent_wait(struct mr_rpc *agent, _Atomic uint32_t *done, uint64_t deadline_us);
/* Holds the agent, as long as something of it is held that outlives it or that it does not know of. The last
 * put frees the agent. */
void mr_agent_hold(struct mr_rpc *agent);
void mr_agent_put(struct mr_rpc *agent);
/* Returns a call's deadline; timeout_ms is as in mr_rpc_call_options. */
uint64_t mr_agent_deadline_us(const struct mr_rpc *agent, uint64_t now_us, uint32_t timeout_ms);
/* Returns whether this process is a fork of the worker's. */
bool mr_agent_is_inherited(const struct mr_rpc *agent);
/* Returns MR_FORKED in that case, and sets the error line; else MR_OK. */
enum mr_status mr_agent_check_process(const struct mr_rpc *agent, const char *caller);
/* Sets the line of mr_rpc_last_error() for this thread. */
void mr_rpc_error_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define mr_rpc_error(status, ...) (mr_rpc_error_line(__VA_ARGS__), (status))

/* ---- inside ---- */

/* Runs all submitted work, and what that submits. */
void mr_agent_run_work(struct mr_rpc *agent);
/* Runs submitted work after mr_agent_destroy(), on any thread. A thread that submits work pushes it first,
 * and then tries the lock: either that succeeds, or the holder of the lock sees the work. */
void mr_agent_run_late(struct mr_rpc *agent);
/* Collects a job for the executor, which gets all of them with mr_agent_give_jobs(). */
void mr_agent_add_job(struct mr_rpc *agent, struct mr_job *job);
void mr_agent_give_jobs(struct mr_rpc *agent);
/* Wakes another thread if jobs have not begun that were given a while ago. Returns when to call it again. */
uint64_t mr_agent_nudge_jobs(struct mr_rpc *agent, uint64_t now_us);

#endif
