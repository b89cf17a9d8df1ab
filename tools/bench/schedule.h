/* When the calls of an open loop are due: fixed before the first one is sent, whatever the server does.
 * Each client has a share of them. Times are nanoseconds from the start. Pure. */
#ifndef TOOL_SCHEDULE_H
#define TOOL_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

struct tool_schedule {
    double rate; /* calls per second, of this client */
    bool is_even;
    uint64_t random, count; /* of calls so far */
    double first_ns, next_ns;
};

/* rate: of all clients together. Even: all clients' calls together are evenly spaced. Otherwise arrivals are
 * a Poisson process: independent of each other, as those of many users are. */
void tool_schedule_init(struct tool_schedule *s, double rate, bool is_even, uint64_t seed, uint32_t client,
                        uint32_t client_count);
/* When the next call is due. */
static inline uint64_t tool_schedule_next_ns(const struct tool_schedule *s)
{
    return (uint64_t)(s->next_ns + 0.5);
}
/* On to the call after it. */
void tool_schedule_advance(struct tool_schedule *s);

#endif
