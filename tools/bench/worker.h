/* One client of the load: a thread with a struct mr_client of its own, so that clients share no lock. It
 * keeps calls in flight, notices at once which of them have ended, and spins for a moment before it sleeps,
 * as the library does for calls that wait. */
#ifndef TOOL_WORKER_H
#define TOOL_WORKER_H

#include <pthread.h>
#include <stdatomic.h>
#include "millrace.h"
#include "tools/bench/caller.h"
#include "tools/bench/flight.h"
#include "tools/bench/load_stats.h"

#define TOOL_WORKER_ERROR_BYTES 320

/* When a run begins, is measured from, and ends, by CLOCK_MONOTONIC. */
struct tool_bench_times {
    uint64_t start_ns, measured_ns, end_ns;
};

struct tool_worker {
    const struct tool_bench_plan *plan;
    const atomic_bool *stop; /* set: end now, whatever the times say */
    struct tool_bench_times times;
    struct mr_client *client;
    struct tool_caller caller;
    struct tool_flight flight;
    struct tool_flight_call *calls;
    uint64_t unseen;     /* calls that have ended and were not found yet */
    uint64_t busy_ns;    /* when something was last sent, or ended */
    uint64_t pause_ns;   /* nothing is sent before: calls fail at once */
    bool is_measured;    /* the warm-up is over */
    uint64_t give_up_ns; /* after a stop: what is in flight then is not waited for */
    pthread_t thread;
    /* what other threads read: */
    struct tool_load_stats stats;
    atomic_uint_fast64_t behind_ns; /* how late sending is, by the schedule */
    atomic_bool is_over;
    char first_error[TOOL_WORKER_ERROR_BYTES]; /* once it is over; "": no call has failed */
};

/* A client that is connected and knows the table; it belongs to the worker then. False: there is no
 * memory. */
bool tool_worker_init(struct tool_worker *w, const struct tool_bench_plan *plan, const atomic_bool *stop,
                      struct mr_client *client, uint32_t number);
/* Starts the thread. False: there is none to be had. */
bool tool_worker_start(struct tool_worker *w, const struct tool_bench_times *times);
/* Waits for its end. */
void tool_worker_join(struct tool_worker *w);
void tool_worker_fini(struct tool_worker *w);

#endif
