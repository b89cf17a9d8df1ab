/* Threads that run functions, so that none of them delays the thread that moves packets.
 *
 * Jobs begin in the order in which they were given. There are up to `threads` at a time that do not wait for
 * other workers; one that waits (mr_executor_blocks) may be stood in for by another, so that calls back and
 * forth between workers cannot use up all threads. An urgent job begins before all others, and has a thread
 * made for it when all are taken. Threads are made when they are first needed, by the threads that are there:
 * by the one that gives jobs only in mr_executor_give_one() and mr_executor_nudge().
 *
 * A burst of short jobs wakes one thread, and what they have done is reported once (`done`). A job that is
 * not short never waits for another that is not: before one begins, a further thread is woken for what waits
 * in the queue, and what was done before is reported.
 *
 * Threads that stand in have an end, so they are kept for those that others wait for. A job's depth says how
 * many functions, one within the other, wait for it: while half of all threads wait for other workers, none
 * of depth 0 begins, while three quarters do, none of depth 1, and so on; they wait for their turn. When all
 * wait, a job of the last depth is refused, so that those that wait for it go on. Hence functions that call
 * back and forth end, however many there are.
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
    bool urgent;                     /* jobs that run may wait for it: mr_executor_give_one() only */
    bool may_refuse;                 /* run() looks at `refused` */
    bool refused;                    /* no thread can be had for it: run() only says so, at once */
    uint8_t depth;                   /* below MR_EXECUTOR_DEPTHS */
};

struct mr_executor;

#define MR_EXECUTOR_THREADS_MAX 512u /* with those that stand in */
#define MR_EXECUTOR_SPARE       64u  /* beside them, for urgent jobs */
#define MR_EXECUTOR_DEPTHS      8u

struct mr_executor_config {
    uint32_t threads;
    void *self;
    void (*done)(void *self);   /* on an executor's thread: one or more jobs have run since the last time */
    void (*begins)(void *self); /* on each of its threads, before its first job; NULL: nothing */
};

/* Makes one thread. MR_NO_MEMORY. */
enum mr_status mr_executor_create(const struct mr_executor_config *config, struct mr_executor **out);
/* Runs what was given to its end, then ends the threads. What is given from then on runs on the thread that
 * gives it, at once. One thread, none of its own. */
void mr_executor_stop(struct mr_executor *executor);
/* Stops it before, if it was not. Nobody gives anything any more. NULL is fine. */
void mr_executor_destroy(struct mr_executor *executor);

/* Any thread. A chain of `count` jobs, the last of which has next NULL. */
void mr_executor_give(struct mr_executor *executor, struct mr_job *first, struct mr_job *last,
                      uint32_t count);
/* Any thread. One job that nobody nudges: where all threads are busy, a further one is made for it at
 * once. */
void mr_executor_give_one(struct mr_executor *executor, struct mr_job *job);
/* Any thread: jobs wait although a thread was woken for them a while ago, because one that was taken for
 * short is not. Wakes another. Returns whether any wait. */
bool mr_executor_nudge(struct mr_executor *executor);
/* Any thread: jobs that wait or run. */
uint32_t mr_executor_load(struct mr_executor *executor);
struct mr_executor_use {
    uint32_t threads;          /* made so far */
    uint32_t running, waiting; /* jobs */
    uint32_t blocked;          /* of the running: those that wait for other workers */
};
/* Any thread. */
void mr_executor_use(struct mr_executor *executor, struct mr_executor_use *out);
/* The first job that waits and for which `match` says true: taken out. NULL: none. */
struct mr_job *mr_executor_take_back(struct mr_executor *executor,
                                     bool (*match)(const struct mr_job *job, const void *arg),
                                     const void *arg);

/* On any thread: the depth of what it asks for and waits for; 0 on threads that are no executor's. */
uint8_t mr_executor_depth(void);
/* On any thread, around a wait for another worker: on an executor's thread, one more may run meanwhile. */
void mr_executor_blocks(void);
void mr_executor_unblocks(void);

#endif
