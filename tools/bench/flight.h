/* The calls of one client that are in flight, and when the next one may be sent.
 *
 * Closed loop: a call is due whenever fewer than `max` are in flight, and its latency counts from its
 * sending. Open loop: calls are due by a schedule, and latency counts from there: a server that stalls is
 * charged with the wait of every call that was due meanwhile, also of those that could not be sent because
 * `max` were in flight. Measuring from the sending instead would leave these out ("coordinated omission",
 * Gil Tene). Times are nanoseconds of any one clock. Pure.
 */
#ifndef TOOL_FLIGHT_H
#define TOOL_FLIGHT_H

#include <stdbool.h>
#include <stdint.h>
#include "dataplane/wire/base/list.h"
#include "tools/bench/mix.h"
#include "tools/bench/schedule.h"

struct mr_future;

struct tool_flight_call {
    struct mr_link link; /* in the order of sending */
    uint64_t due_ns;
    struct mr_future *future; /* the caller's, as all that follows */
    enum tool_op op;
    uint32_t keys;
};

struct tool_flight {
    struct mr_link calls, unused;
    uint32_t count, max;
    uint64_t start_ns, end_ns; /* no call is due from the end on */
    bool is_open;
    struct tool_schedule schedule; /* open loop */
};

/* calls: [max]. schedule NULL: a closed loop. */
void tool_flight_init(struct tool_flight *f, struct tool_flight_call *calls, uint32_t max, uint64_t start_ns,
                      uint64_t end_ns, const struct tool_schedule *schedule);
/* When the next call is due, whether or not too many are in flight; UINT64_MAX: never again. */
uint64_t tool_flight_next_ns(const struct tool_flight *f, uint64_t now_ns);
/* The next call, if one is due and fewer than `max` are in flight; else NULL. */
struct tool_flight_call *tool_flight_begin(struct tool_flight *f, uint64_t now_ns);
/* The call has ended: returns its latency. */
uint64_t tool_flight_end(struct tool_flight *f, struct tool_flight_call *call, uint64_t now_ns);
/* How far sending is behind the schedule; 0 in a closed loop. */
uint64_t tool_flight_behind_ns(const struct tool_flight *f, uint64_t now_ns);
/* Passes over the calls that were due before `from_ns` and could not be sent: a measurement does not begin
 * with the backlog of its warm-up. */
void tool_flight_pass(struct tool_flight *f, uint64_t from_ns);
/* At the end: passes over the next call that was due by then and never sent. False: there is none left. */
bool tool_flight_skip(struct tool_flight *f, uint64_t *due_ns);

#endif
