#include "tools/bench/flight.h"

#include <stddef.h>

void tool_flight_init(struct tool_flight *f, struct tool_flight_call *calls, uint32_t max, uint64_t start_ns,
                      uint64_t end_ns, const struct tool_schedule *schedule)
{
    *f =
        (struct tool_flight){.max = max, .start_ns = start_ns, .end_ns = end_ns, .is_open = schedule != NULL};
    if (schedule != NULL)
        f->schedule = *schedule;
    mr_list_init(&f->calls);
    mr_list_init(&f->unused);
    for (uint32_t i = 0; i < max; i++)
        mr_list_append(&f->unused, &calls[i].link);
}

uint64_t tool_flight_next_ns(const struct tool_flight *f, uint64_t now_ns)
{
    uint64_t next_ns = now_ns > f->start_ns ? now_ns : f->start_ns;
    if (f->is_open)
        next_ns = f->start_ns + tool_schedule_next_ns(&f->schedule);
    return next_ns < f->end_ns ? next_ns : UINT64_MAX;
}

struct tool_flight_call *tool_flight_begin(struct tool_flight *f, uint64_t now_ns)
{
    const uint64_t due_ns = tool_flight_next_ns(f, now_ns);
    if (due_ns > now_ns || now_ns >= f->end_ns || f->count == f->max)
        return NULL;
    struct tool_flight_call *call = MR_CONTAINER(f->unused.next, struct tool_flight_call, link);
    mr_list_remove(&call->link);
    mr_list_append(&f->calls, &call->link);
    f->count++;
    call->due_ns = due_ns;
    if (f->is_open)
        tool_schedule_advance(&f->schedule);
    return call;
}

uint64_t tool_flight_end(struct tool_flight *f, struct tool_flight_call *call, uint64_t now_ns)
{
    mr_list_remove(&call->link);
    mr_list_append(&f->unused, &call->link);
    f->count--;
    return now_ns > call->due_ns ? now_ns - call->due_ns : 0;
}

uint64_t tool_flight_behind_ns(const struct tool_flight *f, uint64_t now_ns)
{
    const uint64_t due_ns = f->is_open ? tool_flight_next_ns(f, now_ns) : UINT64_MAX;
    return due_ns < now_ns ? now_ns - due_ns : 0;
}

void tool_flight_pass(struct tool_flight *f, uint64_t from_ns)
{
    while (f->is_open && f->start_ns + tool_schedule_next_ns(&f->schedule) < from_ns)
        tool_schedule_advance(&f->schedule);
}

bool tool_flight_skip(struct tool_flight *f, uint64_t *due_ns)
{
    const uint64_t next_ns = f->is_open ? tool_flight_next_ns(f, 0) : UINT64_MAX;
    if (next_ns == UINT64_MAX)
        return false;
    *due_ns = next_ns;
    tool_schedule_advance(&f->schedule);
    return true;
}
