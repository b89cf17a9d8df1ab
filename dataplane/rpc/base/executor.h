/* Threads that run functions, so that no function delays the thread that moves packets.
 *
 * Jobs begin in the order in which they were given. Up to `threads` threads at a time run jobs without
 * waiting for other workers. A thread that waits (mr_executor_blocks) may be replaced by another in the
 * meantime, so that calls back and forth between workers cannot use up all threads. An urgent job begins
 * before all others, and a thread is made for it if all are taken. Threads are made when they are first
 * needed, by the executor's own threads; by the one that gives jobs only in mr_executor_give_one() and
 * mr_executor_nudge().
 *
 * A burst of short jobs wakes one thread, or none if one runs or is about to run such jobs, which gets to
 * them; their end is reported once (`done`). A job that is not short never waits for another one: before it
 * begins, a further thread is woken for the rest of the queue, and the end of earlier jobs is reported.
 *
 * The number of replacement threads is limited, so they are reserved for jobs that others wait for. A job's
 * depth says how many nested functions wait for it. While half of all threads wait for other workers, no job
 * of depth 0 begins; while three quarters wait, none of depth 1, and so on: such jobs wait for their turn.
 * When all threads wait, a job of the last depth is refused, so that those that wait for it continue. Hence
 * functions that call back and forth end, however many there are.
 */
#ifndef MR_RPC_EXECUTOR_H
#define MR_RPC_EXECUTOR_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/format/mr_status.h"

struct mr_job {
    struct mr_job *next;
    void (*run)(struct mr_job *job); /* the job may be gone when it returns */
    bool is_short;                   /* it is known to end within microseconds */
    bool urgent;                     /* running jobs may wait for it; only for mr_executor_give_one() */
    bool may_refuse;                 /* run() checks `refused` */
    bool refused;                    /* there is no thread for it: run() only reports that, at once */
    uint8_t depth;                   /* below MR_EXECUTOR_DEPTHS */
};

struct mr_executor;

#define MR_EXECUTOR_THREADS_MAX 512u /* including replacements */
#define MR_EXECUTOR_SPARE       64u  /* in addition, for urgent jobs */
#define MR_EXECUTOR_DEPTHS      8u

struct mr_executor_config {
    uint32_t threads;
    void *self;
    void (*done)(void *self);   /* on an executor's thread: jobs have run since the last time */
    void (*begins)(void *self); /* on each of its threads, before its first job; NULL: nothing */
};

/* Makes the executor, with one thread. MR_NO_MEMORY. */
enum mr_status mr_executor_create(const struct mr_executor_config *config, struct mr_executor **out);
/* Runs all jobs that were given, and then ends the threads. A job that is given after that runs at once on
 * the thread that gives it. Called by one thread, which is not the executor's. */
void mr_executor_stop(struct mr_executor *executor);
/* Stops the executor if it runs, and frees it. Nobody gives it jobs any more. NULL is allowed. */
void mr_executor_destroy(struct mr_executor *executor);

/* Any thread: gives a chain of `count` jobs, the last of which has next NULL. */
void mr_executor_give(struct mr_executor *executor, struct mr_job *first, struct mr_job *last,
                      uint32_t count);
/* Any thread: gives one job, without need for mr_executor_nudge(): if all threads are busy, another one is
 * made at once. */
void mr_executor_give_one(struct mr_executor *executor, struct mr_job *job);
/* Any thread: wakes another thread if jobs still wait although one was woken for them a while ago, because a
 * job that was taken for short is not. Returns whether any wait. */
bool mr_executor_nudge(struct mr_executor *executor);
/* Any thread: returns how many jobs wait or run. */
uint32_t mr_executor_load(struct mr_executor *executor);
struct mr_executor_use {
    uint32_t threads;          /* made so far, */
    uint32_t asleep;           /* of which so many wait for jobs */
    uint32_t running, waiting; /* jobs */
    uint32_t blocked;          /* running jobs that wait for other workers */
};
/* Any thread. */
void mr_executor_use(struct mr_executor *executor, struct mr_executor_use *out);
/* Takes out the first waiting job for which `match` returns true. NULL: there is none. */
struct mr_job *mr_executor_take_back(struct mr_executor *executor,
                                     bool (*match)(const struct mr_job *job, const void *arg),
                                     const void *arg);

/* Any thread: returns the depth of calls that this thread makes; 0 on threads that are not an executor's. */
uint8_t mr_executor_depth(void);
/* Any thread, before and after a wait for another worker: if it is an executor's thread, another one may run
 * in the meantime. */
void mr_executor_blocks(void);
void mr_executor_unblocks(void);

#endif
